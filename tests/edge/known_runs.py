"""Runs and executions that generated requests may name, kept under their leases while requests are generated."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import httpx

from ops.local.edge import LocalEdge
from tests.edge.client import client, fresh, good

SHA: Final = "a" * 64
BUILD: Final = {"implementation": SHA}
_STEP: Final = {"label": "step", "input_sha256": SHA}
_RENEW_SECONDS: Final = 8.0

CLAIM: Final = {"op": "claim", **_STEP, "kind": "step", "position": "0"}
RECORD: Final = {"op": "record", **_STEP, "value": {"n": 1}}


def opened(api: httpx.Client, body: str) -> dict[str, Any]:
    """An execution that is held, with a recorded step, a large value and a cursor."""
    told: dict[str, Any] = good(api.post("/executions", json={"body": body, "input": 1, "holder": "h"}))
    path = f"/executions/{told['execution_id']}"
    move = {"op": "commit_cursor", "label": "move", "position": "1", "name": "place", "value": 1, "expected": 0}
    good(api.post(f"{path}/journal", json={"epoch": 1, "operations": [CLAIM, RECORD, move]}))
    return told


def recorded_large(api: httpx.Client, execution: dict[str, Any]) -> str:
    """Record a large value in the execution; its digest."""
    path = f"/executions/{execution['execution_id']}"
    stored = good(api.put(f"{path}/blobs?epoch=1", json="x" * 1_100_000))
    put = {"op": "put", "label": "large", "kind": "step", "position": "2", "blob": stored}
    good(api.post(f"{path}/journal", json={"epoch": 1, "operations": [put]}))
    digest: str = stored["sha256"]
    return digest


def failed(api: httpx.Client, body: str) -> dict[str, Any]:
    """An execution whose run has failed, which could be resumed, restarted or rewound."""
    told = opened(api, body)
    close = {"op": "close", "status": "failed", "error": {"tag": "Permanent", "message": "no"}}
    good(api.post(f"/executions/{told['execution_id']}/journal", json={"epoch": 1, "operations": [close]}))
    return told


@contextmanager
def known_runs(edge: LocalEdge) -> Iterator[dict[str, list[Any]]]:
    """What generated requests may name; what is held among it stays held meanwhile."""
    body, ended = fresh("generated"), threading.Event()
    with client(edge) as api:
        good(api.put(f"/bodies/{body}", json={"build": BUILD}))
        held = [opened(api, body) for _ in range(3)]
        digest = recorded_large(api, held[0])
        broken = [failed(api, body) for _ in range(40)]
        waiting = [good(api.post("/runs", json={"body": body}))["run_id"] for _ in range(40)]
        items = [{"execution_id": one["execution_id"], "epoch": 1} for one in held]

        def keep() -> None:
            with client(edge) as own:
                while not ended.wait(_RENEW_SECONDS):
                    own.post("/executions/renew", json={"items": items})

        keeper = threading.Thread(target=keep, daemon=True)
        keeper.start()
        ids = [one["execution_id"] for one in held]
        bodies = [{"body": body, **BUILD}]
        try:
            yield {
                "run_id": [held[0]["run_id"], broken[0]["run_id"], waiting[0]],
                "job": [held[0]["run_id"], broken[0]["run_id"], waiting[0]],
                "ref": [f"step@{SHA}"],
                "/runs/{run_id}/steps/output run_id": [held[0]["run_id"]],
                "/runs/{run_id}/stop run_id": waiting[1:],
                "/runs/{run_id}/restart run_id": [one["run_id"] for one in broken[:20]],
                "from_step": [None],
                "execution_id": [ids[0]],
                "/executions/{execution_id}/journal execution_id": ids[1:],
                "/executions/{execution_id}/rewind execution_id": [one["execution_id"] for one in broken[20:]],
                "/executions/claim execution_id": [None],
                "force": [True],
                "reason": ["because"],
                "/runs body": [body],
                "/executions body": [body],
                "/bodies/{name} name": [body, *(fresh("more") for _ in range(10))],
                "/executions/{execution_id}/cursors/{name} name": ["place"],
                "bodies": [bodies],
                "holder": ["h"],
                "build": [BUILD],
                "retry": [None, {"attempts": 2}],
                "items": [items],
                "operations": [[CLAIM, RECORD], [{"op": "set_metadata", "metadata": {"a": 1}}]],
                "keys": [[_STEP]],
                "sha256": [digest],
                "since": ["2026-01-01"],
                "scope": [None],
                "/runs/{run_id}/stop scope": ["run"],
            }
        finally:
            ended.set()
            keeper.join()

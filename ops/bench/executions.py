"""What runs cost, through the protocol of hosts: each answer tells the rows of one transaction.

A host outside the Worker pays one more reading for its body when it opens or takes, and one for its first write.
The Runner pays neither (see `tests/edge/test_runs_edge.py`, which counts its round trips).
"""

import hashlib
from typing import Any

import httpx

from ops.bench.budget import Budget
from ops.bench.operations import Bench, Step

BODY = "bench.work"
ENTRIES = 100
"""What the replayed execution has recorded."""

BUILD = hashlib.sha256(b"bench").hexdigest()

Held = tuple[str, int]
"""An execution and the epoch under which the bench holds it."""


def prepare(bench: Bench) -> None:
    """Offer a body of which nothing is executed."""
    bench.send("PUT", f"/bodies/{BODY}", {"build": {"implementation": BUILD}})


def _open(bench: Bench) -> tuple[httpx.Response, Held]:
    sent = {"body": BODY, "input": {"n": 1}, "holder": "bench"}
    response = bench.send("POST", "/executions", sent)
    told = response.json()
    return response, (told["execution_id"], told["lease"]["epoch"])


def _apply(bench: Bench, held: Held, *operations: dict[str, Any]) -> httpx.Response:
    return bench.send("POST", f"/executions/{held[0]}/journal", {"epoch": held[1], "operations": operations})


def _claim(label: str, position: int) -> dict[str, Any]:
    return {"op": "claim", "label": label, "kind": "step", "position": str(position)}


def _record(label: str) -> dict[str, Any]:
    return {"op": "record", "label": label, "value": {"done": True}}


def _opened(bench: Bench, number: int) -> httpx.Response:
    return _open(bench)[0]


def _step(bench: Bench, number: int) -> httpx.Response:
    _, held = _open(bench)
    _apply(bench, held, _claim("one", 0))
    return _apply(bench, held, _record("one"), _claim("two", 1))


def _suspend(bench: Bench, number: int) -> httpx.Response:
    _, held = _open(bench)
    return _apply(bench, held, {"op": "suspend", "status": "suspended"})


def _close(bench: Bench, number: int) -> httpx.Response:
    _, held = _open(bench)
    _apply(bench, held, _claim("one", 0))
    return _apply(bench, held, _record("one"), {"op": "close", "status": "success", "result": {"n": 1}})


def _mint(bench: Bench, number: int) -> httpx.Response:
    _, held = _open(bench)
    _apply(bench, held, _claim("one", 0))
    return _apply(bench, held, {"op": "mint", "label": "approval", "position": "1", "ttl_seconds": 3600})


def _resolve(bench: Bench, number: int) -> httpx.Response:
    token = _mint(bench, number).json()["outcomes"][0]["token"]
    return bench.send("POST", f"/awake/{token}", {"number": number})


def wait_for(bench: Bench, key: str) -> None:
    """An execution that has let itself go until an event with this key comes."""
    _, held = _open(bench)
    wait = {"op": "await_event", "label": "event", "position": "0", "keys": [key], "look_back_seconds": 0}
    _apply(bench, held, wait, {"op": "suspend", "status": "suspended"})


def _replay(bench: Bench, number: int) -> httpx.Response:
    """Take an execution that has recorded ENTRIES steps, let itself go, and was woken."""
    _, held = _open(bench)
    puts = [
        {"op": "put", "label": f"step {one}", "kind": "step", "position": str(one), "value": one} for one in range(ENTRIES)
    ]
    minted = {"op": "mint", "label": "approval", "position": str(ENTRIES), "ttl_seconds": 3600}
    token = _apply(bench, held, *puts, minted).json()["outcomes"][-1]["token"]
    _apply(bench, held, {"op": "suspend", "status": "suspended"})
    bench.send("POST", f"/awake/{token}", True)
    host = {"bodies": [{"body": BODY, "implementation": BUILD}], "holder": "bench", "execution_id": held[0]}
    return bench.send("POST", "/executions/claim", host)


OPERATIONS = [
    Step("open an execution", Budget(2, 20, 9), _opened),
    Step("a step: record, claim the next", Budget(1, 20, 2), _step),
    Step("suspend, as the first write", Budget(2, 40, 3), _suspend),
    Step("record and close", Budget(1, 60, 10), _close),
    Step("mint in a run, first time", Budget(2, 30, 8), _mint),
    Step("resolve an awakeable of a run", Budget(1, 25, 6), _resolve),
    Step(f"take and replay {ENTRIES} entries", Budget(2, 1000, 6), _replay),
]

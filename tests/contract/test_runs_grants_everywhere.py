"""Grants on bodies hold on every route of runs: what a credential may not see answers as what never was.

Every operation of these rooms is in one of the tables, so that a new route fails the first test until somebody has said how
it hides what is not to be seen.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from moorage.api.app import build_app
from moorage.store.directory import DirectoryBlobs
from moorage.store.sqlite import connect
from tests.contract.adapters import schema_files
from tests.contract.test_grants_everywhere import RUNS, every_operation, told
from tests.unit.api.conftest import House, client_of

MARK = "only-he-may-see-this"
"""Stands in everything that the other credential may not see, and so in no answer to it."""

SHA = "a" * 64
BUILD = {"implementation": SHA}
HIS, MINE = "his-body", "my-body"

UNKNOWN: dict[str, list[Any]] = {
    "GET /runs/{run_id}": [None],
    "GET /runs/{run_id}?wait_seconds=0.01": [None],
    "GET /runs/{run_id}/stream": [None],
    "GET /runs/{run_id}/steps": [None],
    "GET /runs/{run_id}/steps/output?ref=step@" + SHA: [None],
    "POST /runs/{run_id}/stop": [{}, {"scope": "pipeline"}],
    "POST /runs/{run_id}/restart": [{"reason": "r"}],
    "GET /runs/{run_id}/notify": [None],
    "PUT /runs/{run_id}/notify/{destination}": [None],
    "GET /jobs/{job}": [None],
    "GET /bodies/{name}": [None],
    "PUT /bodies/{name}": [{"build": BUILD}],
    "DELETE /bodies/{name}": [None],
    "GET /executions/{execution_id}": [None],
    "POST /executions/{execution_id}/journal": [
        {"epoch": 1, "operations": [{"op": "close", "status": "canceled"}]},
        {"epoch": 1, "operations": [{"op": "set_metadata", "metadata": {"a": 1}}]},
    ],
    "POST /executions/{execution_id}/refresh": [{"epoch": 1}],
    "POST /executions/{execution_id}/values": [{"epoch": 1, "keys": [{"label": "step"}]}],
    "PUT /executions/{execution_id}/blobs?epoch=1": [{"a": 1}],
    "GET /executions/{execution_id}/blobs/{sha256}?epoch=1": [None],
    "POST /executions/{execution_id}/renew": [{"epoch": 1}],
    "GET /executions/{execution_id}/cursors/{cursor}?epoch=1": [None],
    "POST /executions/{execution_id}/wait": [{}, {"wait_seconds": 0.01}],
    "POST /executions/{execution_id}/rewind": [{"reason": "r"}, {"reason": "r", "force": True}],
}
"""Operations on one thing: asked of his they answer as of one that never was, whatever that is."""

LISTS: dict[str, list[Any]] = {
    "GET /runs": [None],
    "GET /runs/export": [None],
    "GET /bodies": [None],
    "POST /executions/renew": [{"items": [{"execution_id": "{execution_id}", "epoch": 1}]}],
    "POST /executions/stops": [{"items": [{"execution_id": "{execution_id}", "epoch": 1}]}],
}
"""Operations that answer several: none of their answers tells of what is his."""

BY_NAME: dict[str, list[Any]] = {
    "POST /runs": [{"body": "{name}", "input": 1}, {"body": "{name}", "scope": "s"}],
    "POST /executions": [{"body": "{name}", "holder": "h"}, {"body": "{name}", "holder": "h", "build": BUILD}],
    "POST /executions/claim": [
        {"bodies": [{"body": "{name}", **BUILD}], "holder": "h"},
        {"bodies": [{"body": "{name}", **BUILD}], "holder": "h", "execution_id": "{execution_id}"},
    ],
    "POST /executions/wait": [{"bodies": [{"body": "{name}", **BUILD}]}],
}
"""Operations that name a body: without a grant on it they are forbidden, whether or not there is such a body."""

NOTHING = {"GET /executions/capabilities"}
"""Operations that tell of nobody's things."""


@dataclass
class Scene:
    """His body with a run that he holds, and mine with one; `mine` may do everything with what is mine alone."""

    house: House
    root: httpx.AsyncClient
    mine: httpx.AsyncClient
    his: dict[str, str]
    own: dict[str, str]


async def hold(client: httpx.AsyncClient, name: str) -> dict[str, str]:
    """Offer a body, open an execution of it, record a step, and answer what its paths are filled with."""
    offered = await client.put(f"/bodies/{name}", json={"build": BUILD, "description": MARK if name == HIS else "mine"})
    offered.raise_for_status()
    sent = {"body": name, "holder": "h", "input": MARK if name == HIS else "mine", "scope": f"scope-of-{name}"}
    opened = (await client.post("/executions", json={**sent, "metadata": {"of": sent["input"]}})).json()
    operations: list[dict[str, Any]] = [
        {"op": "claim", "label": "step", "input_sha256": SHA, "kind": "step", "position": "0"},
        {"op": "record", "label": "step", "input_sha256": SHA, "value": sent["input"]},
        {
            "op": "commit_cursor",
            "label": "move",
            "position": "1",
            "name": "the-cursor",
            "value": sent["input"],
            "expected": 0,
        },
    ]
    path = f"/executions/{opened['execution_id']}"
    applied = await client.post(f"{path}/journal", json={"epoch": 1, "operations": operations})
    applied.raise_for_status()
    stored = (await client.put(f"{path}/blobs?epoch=1", json=sent["input"])).json()
    return {
        "run_id": opened["run_id"],
        "execution_id": opened["execution_id"],
        "job": opened["run_id"],
        "name": name,
        "sha256": stored["sha256"],
        "cursor": "the-cursor",
    }


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    connection = connect(":memory:")
    connection.executescript("\n".join(file.read_text() for file in schema_files()))
    house = House(connection, blobs=DirectoryBlobs(tmp_path)).initialized()
    app = build_app(house.ports())
    async with client_of(app) as root:
        grants: list[dict[str, Any]] = [{"actions": ["execute", "read", "operate"], "kinds": [MINE]}]
        grants.append({"actions": ["execute", "read", "operate"], "kinds": ["*"], "match": {"to": "mine"}})
        made = await root.post("/credentials", json={"subject": "ann", "grants": grants})
        async with client_of(app, made.json()["token"]) as mine:
            yield Scene(house, root, mine, await hold(root, HIS), await hold(mine, MINE))
    connection.close()


NEVER = {
    "run_id": "run_never",
    "execution_id": "exe_never",
    "job": "run_never",
    "name": "no-body",
    "sha256": "b" * 64,
    "cursor": "other-cursor",
}


def filled(text: Any, names: dict[str, str]) -> Any:
    """A path or a body with the names in their places."""
    if isinstance(text, dict):
        return {name: filled(one, names) for name, one in text.items()}
    if isinstance(text, list):
        return [filled(one, names) for one in text]
    if not isinstance(text, str):
        return text
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def anonymous(answer: httpx.Response, names: dict[str, str]) -> str:
    """What an answer tells, but for the names that were sent."""
    text = str(told(answer))
    for name, value in sorted(names.items(), key=lambda pair: -len(pair[1])):
        text = text.replace(value, f"<{name}>")
    return text


def without_query(operation: str) -> str:
    return operation.partition("?")[0].replace("{cursor}", "{name}")


@pytest.mark.clause("catalog.grants")
def test_every_operation_has_said_how_it_hides() -> None:
    known = {without_query(one) for one in [*UNKNOWN, *LISTS, *BY_NAME, *NOTHING]}
    there = {one for one in every_operation() if one.split()[1].startswith(RUNS)}
    assert there - known == set()
    assert known - there == set()


@pytest.mark.clause("catalog.grants")
@pytest.mark.parametrize("operation", UNKNOWN)
async def test_what_is_not_to_be_seen_answers_as_what_never_was(scene: Scene, operation: str) -> None:
    method, template = operation.split()
    before = "\n".join(scene.house.connection.iterdump())
    for sent in UNKNOWN[operation]:
        his, never = [await scene.mine.request(method, filled(template, names), json=sent) for names in (scene.his, NEVER)]
        assert his.status_code >= 400
        assert anonymous(his, scene.his) == anonymous(never, NEVER)
        assert MARK not in his.text
    assert "\n".join(scene.house.connection.iterdump()) == before


@pytest.mark.clause("catalog.grants")
@pytest.mark.parametrize("operation", [one for one in UNKNOWN if "stream" not in one])
async def test_what_may_be_seen_answers_otherwise(scene: Scene, operation: str) -> None:
    """The counterpart, without which the test before could pass for any reason."""
    method, template = operation.split()
    sent = UNKNOWN[operation][0]
    never = await scene.mine.request(method, filled(template, NEVER), json=sent)
    mine = await scene.mine.request(method, filled(template, scene.own), json=sent)
    assert anonymous(mine, scene.own) != anonymous(never, NEVER)


@pytest.mark.clause("catalog.grants")
@pytest.mark.parametrize("operation", LISTS)
async def test_no_list_tells_of_what_is_not_to_be_seen(scene: Scene, operation: str) -> None:
    method, path = operation.split()
    for sent in LISTS[operation]:
        his = await scene.mine.request(method, path, json=filled(sent, scene.his))
        assert his.status_code == 200
        assert MARK not in his.text
        assert HIS not in his.text
        assert scene.his["run_id"] not in his.text
        if sent is not None:
            assert anonymous(his, scene.his) == anonymous(
                await scene.mine.request(method, path, json=filled(sent, NEVER)), NEVER
            )
        mine = await scene.mine.request(method, path, json=filled(sent, scene.own))
        assert scene.own["name"] in mine.text or sent is not None


@pytest.mark.clause("catalog.grants")
@pytest.mark.parametrize("operation", BY_NAME)
async def test_a_body_without_a_grant_is_forbidden_whether_or_not_it_is_there(scene: Scene, operation: str) -> None:
    method, path = operation.split()
    before = "\n".join(scene.house.connection.iterdump())
    for sent in BY_NAME[operation]:
        his = await scene.mine.request(method, path, json=filled(sent, scene.his))
        never = await scene.mine.request(method, path, json=filled(sent, NEVER))
        assert (his.status_code, his.json()["code"]) == (403, "Forbidden")
        assert anonymous(his, scene.his) == anonymous(never, NEVER)
        mine = await scene.mine.request(method, path, json=filled(sent, scene.own))
        assert mine.status_code != 403
    assert "\n".join(line for line in scene.house.connection.iterdump() if MARK in line) == "\n".join(
        line for line in before.splitlines() if MARK in line
    )

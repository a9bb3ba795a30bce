"""A grant that a pattern narrows holds on every route: what the credential may not see answers as absent.

Every operation of the API is in one of the tables here, so that a new route fails the first test until somebody has said
how it hides what is not to be seen.
"""

import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from moorage.api.app import build_app
from moorage.api.reference import operations
from moorage.store.directory import DirectoryBlobs
from moorage.store.sqlite import connect
from tests.contract.adapters import schema_files
from tests.unit.api.conftest import House, client_of

MARK = "only-he-may-see-this"
"""Stands in every body that the narrowed credential may not see, and so in no answer to it."""

MINE = {"to": "mine"}
HIS = {"to": MARK}
DOCUMENT = build_app().document.openapi

BY_ID: dict[str, list[tuple[str, Any]]] = {
    "GET /records/{record}": [("ready", None), ("dead", None), ("done", None), ("gone", None)],
    "GET /records/{record}/lineage": [("ready", None), ("done", None), ("gone", None)],
    "GET /records/{record}/history": [("ready", None), ("done", None), ("gone", None)],
    "POST /records/{record}/cancel": [
        ("ready", {"reason": "r"}),
        ("held", {"reason": "r"}),
        ("done", {"reason": "r"}),
        ("gone", {"reason": "r"}),
    ],
    "GET /dead-letters/{record}": [("dead", None), ("ready", None), ("gone", None)],
    "POST /dead-letters/{record}/requeue": [
        ("dead", {"reason": "r"}),
        ("ready", {"reason": "r"}),
        ("gone", {"reason": "r"}),
    ],
    "POST /claims/{record}/renew": [("held", {"epoch": 1}), ("ready", {"epoch": 1}), ("gone", {"epoch": 1})],
    "POST /claims/{record}/release": [("held", {"epoch": 1}), ("ready", {"epoch": 1}), ("gone", {"epoch": 1})],
    "POST /claims/{record}/settle": [("held", {"epoch": 1}), ("done", {"epoch": 1}), ("gone", {"epoch": 1})],
    "POST /claims/{record}/fail": [
        ("held", {"epoch": 1, "error": {"tag": "Transient", "message": "m"}}),
        ("dead", {"epoch": 1, "error": {"tag": "Transient", "message": "m"}}),
    ],
    "GET /artifacts/{artifact}": [("artifact", None), ("ready", None)],
    "GET /artifacts/{artifact}/content": [("artifact", None), ("ready", None)],
    "POST /artifacts/{artifact}/shred": [("artifact", {"reason": "r"}), ("ready", {"reason": "r"})],
}
"""Operations on one record: asked of his, in some state, they answer as of an id that never was."""

LISTS: dict[str, list[tuple[str, Any]]] = {
    "POST /records": [("/records", {"kind": "doc", "body": HIS}), ("/records", {"kind": "other", "body": HIS})],
    "POST /records/batch": [("/records/batch", {"records": [{"kind": "doc", "body": MINE, "parents": ["his-ready"]}]})],
    "POST /records/query": [
        ("/records/query", {"kind": "doc"}),
        ("/records/query", {"kind": "doc", "match": {"to": {"$ne": "mine"}}}),
        ("/records/query", {"kind": "doc", "match": {"$not": MINE}, "order": "desc"}),
        ("/records/query", {"kind": "doc", "state": "dead"}),
        ("/records/query", {"kind": "other"}),
    ],
    "POST /records/dry-run": [("/records/dry-run", {"kind": "doc", "body": {"to": "else"}})],
    "POST /claims": [
        ("/claims", {"kind": "doc", "worker": "w", "limit": 50}),
        ("/claims", {"kind": "doc", "worker": "w", "match": {"to": {"$exists": True}}, "limit": 50}),
        ("/claims", {"kind": "other", "worker": "w"}),
    ],
    "GET /dead-letters": [("/dead-letters?kind=doc", None), ("/dead-letters", None), ("/dead-letters?kind=other", None)],
    "POST /dead-letters/requeue": [
        ("/dead-letters/requeue", {"kind": "doc", "reason": "r"}),
        ("/dead-letters/requeue", {"kind": "doc", "reason": "r", "match": {"$nor": [MINE]}}),
    ],
    "GET /history": [
        ("/history", None),
        ("/history?after=0&limit=500", None),
        ("/history?subject=his-ready", None),
        ("/history?subject=his-gone", None),
        ("/history?subject=his-other", None),
    ],
    "PUT /interests/{worker}": [("/interests/w", {"kind": "other"}), ("/interests/w", {"kind": "doc", "ttl_seconds": 9})],
    "DELETE /interests/{worker}": [("/interests/his-worker", None)],
    "GET /interests": [("/interests", None), ("/interests?kind=doc", None), ("/interests?kind=other", None)],
    "GET /watch": [
        ("/watch?kind=doc", None),
        ("/watch?kind=doc&after=5&match=%7B%22to%22%3A%7B%22%24ne%22%3A%22mine%22%7D%7D", None),
        ("/watch?kind=other", None),
        ("/watch?kind=artifact", None),
    ],
    "GET /kinds/{kind}/retention": [("/kinds/doc/retention", None), ("/kinds/other/retention", None)],
}
"""Operations that take or answer several: none of their answers tells of what is his."""

MANY: dict[str, dict[str, Any]] = {
    "POST /claims/renew": {"epoch": 1},
    "POST /claims/settle": {"epoch": 1},
}
"""Operations on several claims with an outcome for each: those of his are outcomes of what never was."""

NO_RECORDS = {
    "GET /kinds",
    "GET /kinds/{kind}",
    "PUT /kinds/{kind}",
    "GET /health",
    "GET /capabilities",
    "GET /limits",
    "GET /errors",
    "GET /openapi.json",
    "GET /docs",
    "POST /artifacts",
}
"""Operations that neither take nor answer records; so are all of these rooms:"""

OTHER_ROOMS = (
    "/credentials",
    "/senders",
    "/destinations",
    "/scopes",
    "/awake",
    "/awakeables",
    "/seals",
    "/sessions",
    "/guards",
    "/holders",
    "/audit",
    "/storage",
    "/subscriptions",
    "/deliveries",
    "/timers",
    "/kv",
    "/inbox",
    "/events",
    "/webhooks",
    "/correlations",
    "/schedules",
    "/clock",
)
RUNS = ("/runs", "/executions", "/bodies", "/jobs")
"""Rooms whose grants are on bodies: see `test_runs_grants_everywhere`."""


@dataclass
class Scene:
    """What is his, in every state; `narrow` may do everything with what is mine and nothing else.

    `holder` is another credential of the same subject that may do everything: whatever was claimed, it has claimed.
    """

    house: House
    root: httpx.AsyncClient
    holder: httpx.AsyncClient
    narrow: httpx.AsyncClient


async def publish(client: httpx.AsyncClient, name: str, body: Any, kind: str = "doc", **more: Any) -> None:
    (await client.post("/records", json={"kind": kind, "body": body, "id": name, **more})).raise_for_status()


async def claim(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    sent = {"kind": "doc", "worker": "root", "limit": 50, "lease_seconds": 40000}
    answer = await client.post("/claims", json=sent)
    found: list[dict[str, Any]] = answer.json()["claims"]
    return found


async def settle(client: httpx.AsyncClient, held: dict[str, Any]) -> None:
    under = {"epoch": held["lease"]["epoch"]}
    (await client.post(f"/claims/{held['record']['id']}/settle", json=under)).raise_for_status()


async def his_records(scene: Scene) -> None:
    """One of his in each state, each beside one of mine."""
    declared = {"paths": {"to": "string"}, "retention_seconds": 3600}
    for kind in ("doc", "other"):
        (await scene.root.put(f"/kinds/{kind}", json=declared)).raise_for_status()
    for whose, body in (("his", HIS), ("mine", MINE)):
        await publish(scene.root, f"{whose}-gone", body)
    for held in await claim(scene.holder):
        await settle(scene.holder, held)
    await scene.house.advance(3720)
    for whose, body in (("his", HIS), ("mine", MINE)):
        await publish(scene.root, f"{whose}-done", body)
    for held in await claim(scene.holder):
        await settle(scene.holder, held)
    for whose, body in (("his", HIS), ("mine", MINE)):
        await publish(scene.root, f"{whose}-dead", body)
        reason = {"reason": f"not wanted: {body['to']}"}
        (await scene.root.post(f"/records/{whose}-dead/cancel", json=reason)).raise_for_status()
        await publish(scene.root, f"{whose}-held", body)
    await claim(scene.holder)
    await publish(scene.root, "mine-ready", MINE)
    await publish(scene.root, "his-ready", HIS, parents=["mine-ready"])
    await publish(scene.root, "mine-child", MINE, parents=["his-ready"], not_before="2030-01-01T00:00:00Z")
    await publish(scene.root, "his-other", HIS, kind="other")
    for whose, media_type in (("his", "application/x-his"), ("mine", "text/plain")):
        headers = {"content-type": media_type}
        uploaded = await scene.root.post(f"/artifacts?id={whose}-artifact", content=MARK, headers=headers)
        uploaded.raise_for_status()
    wanted = {"kind": "doc", "match": HIS, "ttl_seconds": 3600}
    (await scene.root.put("/interests/his-worker", json=wanted)).raise_for_status()


ACTIONS = ["publish", "read", "claim", "watch", "operate"]
FORMS: dict[str, list[dict[str, Any]]] = {
    "by kind": [{"kinds": ["doc"]}, {"kinds": ["artifact"]}],
    "all kinds": [{}, {}],
    "every name": [{"kinds": ["*"]}, {"kinds": ["*"]}],
    "beside another kind": [{"kinds": ["d*"]}, {"kinds": ["artifact", "nothing"]}],
}
"""How the same records can be granted: what a grant names of kinds, beside its pattern."""


@pytest.fixture(params=FORMS)
async def scene(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    connection = connect(":memory:")
    connection.executescript("\n".join(file.read_text() for file in schema_files()))
    house = House(connection, blobs=DirectoryBlobs(tmp_path))
    app = build_app(house.ports())
    async with client_of(app) as root:
        matches = (MINE, {"media_type": "text/plain"})
        grants = [
            {"actions": ACTIONS, "match": match, **named} for match, named in zip(matches, FORMS[request.param], strict=True)
        ]
        tokens = [
            (await root.post("/credentials", json={"subject": "ann", "grants": given})).json()["token"]
            for given in ([{"actions": ACTIONS}], grants)
        ]
        async with client_of(app, tokens[0]) as holder, client_of(app, tokens[1]) as narrow:
            made = Scene(house, root, holder, narrow)
            await his_records(made)
            yield made
    connection.close()


def every_operation() -> set[str]:
    """`METHOD /path` of every operation of a deployment."""
    return {f"{method.upper()} {path}" for method, path, _ in operations(DOCUMENT)}


def about(template: str, record: str) -> str:
    """The path of an operation on one record."""
    return template.replace("{record}", record).replace("{artifact}", record)


def told(answer: httpx.Response) -> Any:
    """What a client can learn from an answer, its request's id and the time it took aside."""
    return answer.status_code, answer.text, answer.headers.get("content-type")


@pytest.mark.clause("catalog.grants")
def test_every_operation_has_said_how_it_hides() -> None:
    elsewhere = {one for one in every_operation() if one.split()[1].startswith(OTHER_ROOMS + RUNS)}
    known = BY_ID.keys() | LISTS.keys() | MANY.keys() | NO_RECORDS | elsewhere
    assert every_operation() - known == set()
    assert known - every_operation() == set()


@pytest.mark.clause("catalog.grants")
@pytest.mark.parametrize("operation", BY_ID)
async def test_what_is_not_to_be_seen_answers_as_what_never_was(scene: Scene, operation: str) -> None:
    method, template = operation.split()
    before = "\n".join(scene.house.connection.iterdump())
    for state, sent in BY_ID[operation]:
        his = await scene.narrow.request(method, about(template, f"his-{state}"), json=sent)
        never = await scene.narrow.request(method, about(template, f"nev-{state}"), json=sent)
        assert his.status_code == 404, (state, his.text)
        assert told(his) == told(never), state
        assert MARK not in his.text
        assert "server-timing" not in his.headers
    assert "\n".join(scene.house.connection.iterdump()) == before


@pytest.mark.clause("catalog.grants")
@pytest.mark.parametrize("operation", BY_ID)
async def test_what_may_be_seen_does_not(scene: Scene, operation: str) -> None:
    """The counterpart, without which the test before could pass for any reason."""
    method, template = operation.split()
    answers = []
    for state, sent in BY_ID[operation]:
        if state != "gone":
            answers.append(await scene.narrow.request(method, about(template, f"mine-{state}"), json=sent))
    assert any(answer.status_code != 404 for answer in answers)
    assert not any("server-timing" in answer.headers for answer in answers)


@pytest.mark.clause("catalog.grants")
@pytest.mark.parametrize("operation", LISTS)
async def test_no_answer_tells_of_what_is_not_to_be_seen(scene: Scene, operation: str) -> None:
    method = operation.split()[0]
    before = his_rows(scene.house.connection)
    for path, sent in LISTS[operation]:
        answer = await scene.narrow.request(method, path, json=sent, headers={"accept": "application/json"})
        assert MARK not in answer.text, path
        assert "his-" not in answer.text.replace("no record 'his-ready'", "").replace('"parents":["his-ready"]', ""), path
    assert his_rows(scene.house.connection) == before


@pytest.mark.clause("catalog.grants", "leases.fence")
@pytest.mark.parametrize("operation", MANY)
async def test_each_outcome_of_several_hides_for_itself(scene: Scene, operation: str) -> None:
    names = [f"{whose}-{state}" for state in ("held", "ready", "done", "gone") for whose in ("his", "nev", "mine")]
    sent = {"items": [{"record": name, **MANY[operation]} for name in names]}
    before = his_rows(scene.house.connection)
    answer = await scene.narrow.post(operation.split()[1], json=sent)
    outcomes = dict(zip(names, answer.json()["items"], strict=True))
    for state in ("held", "ready", "done", "gone"):
        told_of_his = str(outcomes[f"his-{state}"]).replace(f"his-{state}", "ID")
        assert told_of_his == str(outcomes[f"nev-{state}"]).replace(f"nev-{state}", "ID")
        assert "RecordUnknown" in told_of_his
    assert "RecordUnknown" not in str(outcomes["mine-ready"])
    assert MARK not in answer.text
    assert his_rows(scene.house.connection) == before


@pytest.mark.clause("catalog.grants")
@pytest.mark.parametrize(
    "operation", ["POST /records/query", "POST /claims", "GET /dead-letters", "POST /dead-letters/requeue", "GET /watch"]
)
async def test_what_is_to_be_seen_is_told(scene: Scene, operation: str) -> None:
    path, sent = LISTS[operation][0]
    answer = await scene.narrow.request(operation.split()[0], path, json=sent, headers={"accept": "application/json"})
    assert "mine-" in answer.text


ABOUT_ALL = [
    "GET /history",
    "GET /dead-letters",
    "GET /senders",
    "GET /senders/gh",
    "GET /destinations",
    "GET /destinations/there",
    "GET /destinations/there/health",
    "POST /destinations/there/enable",
    "GET /scopes",
    "GET /scopes/top",
    "GET /awakeables",
    "GET /seals",
    "GET /seals/entries",
    "POST /seals",
    "POST /seals/verify",
    "GET /storage",
    "POST /storage/initialize",
    "GET /credentials",
    "GET /guards",
    "GET /guards/summary",
    "GET /guards/grd_1",
    "GET /holders",
    "GET /audit",
    "GET /subscriptions",
    "GET /subscriptions/all",
    "GET /deliveries",
    "GET /deliveries/summary",
    "GET /deliveries/dlv_1",
    "GET /timers",
    "GET /clock/failures",
    "POST /clock/failures/retry",
    "GET /kv/space",
    "GET /kv/space/key",
    "GET /inbox/consumer/event",
]
"""What is about every record, or about none: a grant that a pattern narrows does not give it, whatever kinds it names."""


@pytest.mark.clause("catalog.grants")
@pytest.mark.parametrize("operation", ABOUT_ALL)
async def test_what_is_about_all_takes_a_grant_that_is_not_narrowed(scene: Scene, operation: str) -> None:
    method, path = operation.split()
    sent: dict[str, Any] | None = {} if path in ("/seals/verify", "/storage/initialize", "/clock/failures/retry") else None
    refused = await scene.narrow.request(method, path, json=sent)
    assert (refused.status_code, refused.json()["code"]) == (403, "Forbidden")
    if path != "/credentials":
        assert (await scene.holder.request(method, path, json=sent)).status_code != 403


@pytest.mark.clause("catalog.grants")
async def test_what_a_request_cost_is_told_to_operators_of_everything_alone(scene: Scene) -> None:
    for client, told in ((scene.root, True), (scene.holder, True), (scene.narrow, False)):
        assert ("server-timing" in (await client.get("/records/mine-ready")).headers) == told


@pytest.mark.clause("catalog.grants", "records.lineage")
async def test_lineage_and_history_pass_over_what_is_not_to_be_seen(scene: Scene) -> None:
    up = (await scene.narrow.get("/records/mine-child/lineage")).json()["items"]
    down = (await scene.narrow.get("/records/mine-ready/lineage", params={"direction": "descendants"})).json()["items"]
    assert [(one["depth"], one["record"]["id"]) for one in up] == [(2, "mine-ready")]
    assert [(one["depth"], one["record"]["id"]) for one in down] == [(2, "mine-child")]
    answer = await scene.narrow.get("/history", params={"subject": "mine-ready"})
    assert [one["type"] for one in answer.json()["items"]] == ["record.published"]


@pytest.mark.clause("catalog.grants", "records.publish")
async def test_a_parent_that_is_not_to_be_seen_is_as_unknown_as_one_that_never_was(scene: Scene) -> None:
    answers = []
    for parent in ("his-ready", "his-gone", "nev-ready"):
        answer = await scene.narrow.post("/records", json={"kind": "doc", "body": MINE, "parents": [parent]})
        answers.append((answer.status_code, answer.text.replace(parent, "PARENT")))
    assert answers[0] == answers[1] == answers[2]
    assert answers[0][0] == 409


def his_rows(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    """His records as they lie there."""
    rows = connection.execute("SELECT * FROM records WHERE id LIKE 'his-%' ORDER BY id").fetchall()
    return [dict(row) for row in rows]

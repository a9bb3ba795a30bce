"""Guards over HTTP: a host elsewhere guards its effects, falls silent, and operators release by hand."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from moorage.api.app import build_app
from moorage.guards.model import new_holder
from moorage.store.directory import DirectoryBlobs
from moorage.store.sqlite import connect
from tests.unit.api.conftest import House, client_of

BUILD = {"implementation": "a" * 64}
ENTRY = {"label": "charge", "input_sha256": "b" * 64}


@pytest.fixture
async def house(schema: str, tmp_path: Path) -> House:
    connection = connect(":memory:")
    connection.executescript(schema)
    return House(connection, blobs=DirectoryBlobs(tmp_path)).initialized()


@pytest.fixture
async def api(house: House) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(build_app(house.ports())) as client:
        yield client


async def told(answering: Any, status: int = 200, code: str | None = None) -> dict[str, Any]:
    """The body of an answer of this status."""
    answer = await answering
    assert answer.status_code == status, answer.text
    body: dict[str, Any] = answer.json()
    assert code is None or body["code"] == code
    return body


async def opened(api: httpx.AsyncClient, scope: str, status: int = 201, code: str | None = None) -> dict[str, Any]:
    sent = {"body": "pay", "input": None, "holder": "h", "scope": scope, "build": BUILD}
    return await told(api.post("/executions", json=sent), status, code)


async def apply(api: httpx.AsyncClient, one: dict[str, Any], *operations: dict[str, Any], status: int = 200) -> Any:
    sent = {"epoch": one["lease"]["epoch"], "operations": list(operations)}
    body = await told(api.post(f"/executions/{one['execution_id']}/journal", json=sent), status)
    return body if status != 200 else body["outcomes"]


async def registered(api: httpx.AsyncClient, house: House) -> str:
    holder = new_holder(house.now)
    made = await told(api.post("/holders", json={"id": holder, "name": "till-3"}), 201)
    assert (made["id"], made["kind"], made["exited_at"]) == (holder, "remote", None)
    return holder


async def working(api: httpx.AsyncClient, house: House, scope: str, holder: str, destination: str | None = "bank") -> Any:
    """An execution with an effect in flight, and what its admission was answered with."""
    execution = await opened(api, scope)
    claims = {"op": "claim", **ENTRY, "kind": "step", "position": "0"}
    wanted = {"op": "admit_guard", **ENTRY, "holder": holder, **({"destination": destination} if destination else {})}
    return execution, (await apply(api, execution, claims, wanted))[1]


@pytest.fixture
async def holder(api: httpx.AsyncClient, house: House) -> str:
    sent = {"url": "https://bank.example/in", "methods": ["POST"], "dedup_window_seconds": 3600, "secret": "env:BANK"}
    await told(api.put("/destinations/bank", json=sent))
    return await registered(api, house)


@pytest.mark.clause("guards.acquire", "guards.inspect", "guards.release")
async def test_a_guarded_effect_is_seen_while_it_is_in_flight(api: httpx.AsyncClient, house: House, holder: str) -> None:
    execution = await opened(api, "shop/7")
    [held] = await apply(api, execution, {"op": "hold_entity", "namespace": "customer", "key": "9"})
    assert (held["outcome"], held["epoch"]) == ("entity_held", 1)
    lease = {name: held[name] for name in ("namespace", "key", "epoch")}
    claims = {"op": "claim", **ENTRY, "kind": "step", "position": "0"}
    wanted = {"op": "admit_guard", **ENTRY, "holder": holder, "destination": "bank", "entities": [lease]}
    admitted = (await apply(api, execution, claims, wanted))[1]
    target = {"name": "bank", "url": "https://bank.example/in", "methods": ["POST"], "secret": "env:BANK"}
    assert (admitted["outcome"], admitted["destination"]) == ("admitted", target)
    page = await told(api.get("/guards", params={"scope": "shop", "class": "replay-safe", "destination": "bank"}))
    [shown] = page["items"]
    assert shown == await told(api.get(f"/guards/{admitted['token']}"))
    owned = (shown["holder"], shown["holder_name"], shown["holder_exited_at"], shown["lease_expires_at"])
    assert owned == (holder, "till-3", None, execution["lease"]["expires_at"])
    assert (shown["entry_key"], shown["idempotency_key"]) == (ENTRY, admitted["idempotency_key"])
    assert (shown["scopes"], shown["lease_keys"]) == (["shop", "shop/7"], ["entity:customer:9"])
    assert shown["window_ends_at"] == admitted["window_ends_at"]
    assert (await told(api.get("/guards/summary")))["by_class"] == {"replay-safe": 1, "receipt-required": 0, "unknown": 0}
    release = {"op": "release_guard", "token": admitted["token"], "holder": holder}
    await apply(api, execution, release, {"op": "record", **ENTRY, "value": 1}, {"op": "let_entity", **lease_name(lease)})
    assert (await told(api.get("/guards")))["items"] == []
    await told(api.get(f"/guards/{admitted['token']}"), 404, "GuardUnknown")


def lease_name(lease: dict[str, Any]) -> dict[str, Any]:
    return {name: lease[name] for name in ("namespace", "key")}


@pytest.mark.clause("guards.blocked", "guards.manual", "guards.evidence", "guards.live-holder", "guards.audit")
async def test_an_operator_releases_what_a_silent_host_left(api: httpx.AsyncClient, house: House, holder: str) -> None:
    execution, admitted = await working(api, house, "shop", holder, None)
    token, key = admitted["token"], admitted["idempotency_key"]
    path = f"/guards/{token}/reconcile"
    evidence = {"evidence": f"receipt:{key}:ch_1", "operator": "op-2"}
    await told(api.post(path, json=evidence), 409, "ExecutionGuardHeld")
    await house.advance(31)
    blocked = await opened(api, "shop", 409, "ExecutionGuardBlocked")
    assert (blocked["token"], blocked["evidence_class"], blocked["retryable"]) == (token, "unknown", True)
    assert blocked["command"].startswith("moorage storage reconcile-guard --project <project> " + token)
    for sent in ({"operator": "op-2"}, {"evidence": "", "operator": "op-2"}, {"evidence": evidence["evidence"]}):
        await told(api.post(path, json=sent), 422, "RequestInvalid")
    for wrong in (f"idempotency:{key}", "receipt:x:ch_1"):
        await told(api.post(path, json={**evidence, "evidence": wrong}), 422, "ExecutionGuardEvidenceMismatch")
    assert await told(api.get("/audit")) == {"items": [], "next_cursor": None}
    done = await told(api.post(path, json=evidence))
    assert (done["released"], done["receipt"]) == (True, "ch_1")
    again = await told(api.post(path, json=evidence), 409, "GuardReleased")
    assert again["audit"] == done["audit"]
    [row] = (await told(api.get("/audit", params={"token": token})))["items"]
    assert (row["id"], row["operator"], row["actor"]) == (done["audit"], "op-2", "root")
    assert row["guard"]["execution_id"] == execution["execution_id"]
    entry = (await opened(api, "shop"))["entries"][0]
    assert (entry["state"], entry["value"]) == ("done", {"receipt": "ch_1", "reconciled": True})


@pytest.mark.clause("guards.replay", "guards.holder-gone")
async def test_a_host_that_stopped_in_order_leaves_what_may_be_sent_again(
    api: httpx.AsyncClient, house: House, holder: str
) -> None:
    _, admitted = await working(api, house, "shop", holder)
    left = await told(api.post(f"/holders/{holder}/exit", json={"reason": "deployed anew"}))
    assert left["exit_reason"] == "deployed anew"
    assert left == await told(api.post(f"/holders/{holder}/exit", json={}))
    assert [one["id"] for one in (await told(api.get("/holders")))["items"]] == [holder]
    seen = await told(api.get(f"/guards/{admitted['token']}"))
    assert seen["holder_exited_at"] == left["exited_at"]
    await house.advance(31)
    execution = await opened(api, "shop")
    assert (await told(api.get("/guards")))["items"] == []
    second = await registered(api, house)
    claims = {"op": "claim", **ENTRY, "kind": "step", "position": "0"}
    wanted = {"op": "admit_guard", **ENTRY, "holder": second, "destination": "bank"}
    again = (await apply(api, execution, claims, wanted))[1]
    assert again["idempotency_key"] == admitted["idempotency_key"]
    assert again["window_ends_at"] == admitted["window_ends_at"]


@pytest.mark.clause("guards.holder-identity", "catalog.grants")
async def test_holders_are_registered_by_who_may_execute(api: httpx.AsyncClient, house: House) -> None:
    drawn = {"id": new_holder(house.now), "name": "laptop"}
    for grants, status in (([{"actions": ["operate", "read"]}], 403), ([{"actions": ["execute"], "kinds": ["pay"]}], 201)):
        made = await told(api.post("/credentials", json={"subject": f"s{status}", "grants": grants}), 201)
        async with client_of(build_app(house.ports()), made["token"]) as client:
            await told(client.post("/holders", json=drawn), status)
            await told(client.post(f"/holders/{drawn['id']}/exit", json={}), 403 if status == 403 else 200)
    await told(api.post("/holders", json=drawn), 409, "IdempotencyConflict")
    await told(api.post("/holders", json={**drawn, "id": "hld_1"}), 400, "IdInvalid")
    await told(api.post(f"/holders/{new_holder(house.now)}/exit", json={}), 404, "HolderUnknown")
    await told(api.get("/guards", params={"class": "harmless"}), 422)

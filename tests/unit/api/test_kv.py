"""Small values and consumers' inboxes over HTTP."""

from typing import Any

import httpx
import pytest

from moorage.kernel.instants import render
from moorage.kernel.limits import ID_CHARACTERS, KV_CHANGES, KV_VALUE_BYTES, SETTLE_RESULTS
from tests.unit.api.conftest import START, House, client_of
from tests.unit.api.test_requests import problem


@pytest.mark.clause("kv.ops")
async def test_values_are_put_read_listed_and_deleted(root: httpx.AsyncClient) -> None:
    made = (await root.put("/kv/ns/k", json={"value": {"n": 1}})).json()
    assert made == {"namespace": "ns", "key": "k", "value": {"n": 1}, "revision": 1, "updated_at": render(START)}
    assert (await root.get("/kv/ns/k")).json() == made
    await root.put("/kv/ns/other", json={"value": None})
    listed = (await root.get("/kv/ns?prefix=o")).json()
    assert ([one["key"] for one in listed["items"]], listed["next_cursor"]) == (["other"], None)
    first = (await root.get("/kv/ns?limit=1")).json()
    rest = (await root.get("/kv/ns", params={"limit": 1, "cursor": first["next_cursor"]})).json()
    assert ([one["key"] for one in rest["items"]], rest["next_cursor"]) == (["other"], None)
    problem(await root.get("/kv/ns", params={"prefix": "o", "cursor": first["next_cursor"]}), 400, "CursorMismatch")
    problem(await root.put("/kv/ns/k", json={"value": 2, "revision": 0}), 409, "KeyConflict")
    assert (await root.put("/kv/ns/k", json={"value": 2, "revision": 1})).json()["revision"] == 2
    problem(await root.delete("/kv/ns/k?revision=1"), 409, "KeyConflict")
    for _ in range(2):
        assert (await root.delete("/kv/ns/k")).status_code == 204
    problem(await root.get("/kv/ns/k"), 404, "KeyUnknown")
    assert (await root.put("/kv/ns/k", json={"value": 3, "revision": 0})).json()["revision"] == 4
    assert (await root.get("/kv/empty")).json() == {"items": [], "next_cursor": None}


@pytest.mark.clause("kv.ops")
async def test_names_and_values_out_of_bounds_are_refused(root: httpx.AsyncClient, house: House) -> None:
    longest = "n" * int(ID_CHARACTERS)
    assert (await root.put(f"/kv/{longest}/{longest}", json={"value": "x" * (int(KV_VALUE_BYTES) - 2)})).status_code == 200
    before = "\n".join(house.connection.iterdump())
    for path in ("/kv/ns/", "/kv//k", "/kv/ns/a%2Fb", "/kv/ns/a%20b", f"/kv/ns/{longest}n", "/kv/%E2%82%AC/k"):
        answer = await root.put(path, json={"value": 1})
        assert answer.status_code in (400, 404, 405), path
    problem(await root.put("/kv/ns/k", json={"value": "x" * (int(KV_VALUE_BYTES) - 1)}), 413, "PayloadTooLarge")
    for sent in ({}, {"value": 1, "revision": -1}, {"value": 1, "revision": "1"}, {"value": 1, "more": 1}, [1]):
        problem(await root.put("/kv/ns/k", json=sent), 422, "RequestInvalid")
    problem(await root.get("/kv/ns?prefix="), 422, "RequestInvalid")
    problem(await root.get("/kv/ns?prefix=a%2Fb"), 400, "IdInvalid")
    problem(await root.delete("/kv/ns/k?revision=0"), 422, "RequestInvalid")
    assert "\n".join(house.connection.iterdump()) == before


@pytest.mark.clause("kv.ops")
async def test_an_idempotency_key_puts_once(root: httpx.AsyncClient) -> None:
    headers = {"idempotency-key": "k"}
    first = await root.put("/kv/ns/k", json={"value": 1, "revision": 0}, headers=headers)
    await root.put("/kv/ns/k", json={"value": 2})
    again = await root.put("/kv/ns/k", json={"value": 1, "revision": 0}, headers=headers)
    assert (again.status_code, again.json()) == (200, first.json())
    problem(await root.put("/kv/ns/k", json={"value": 3}, headers=headers), 409, "IdempotencyConflict")


@pytest.mark.clause("inbox.consumer")
async def test_an_outcome_is_recorded_once_with_its_effects(root: httpx.AsyncClient, house: House) -> None:
    await root.put("/kinds/doc", json={"paths": {}})
    sent: dict[str, Any] = {
        "outcome": {"n": 1},
        "kv": {"ns": {"k": 1, "gone": None}},
        "records": [{"kind": "doc", "body": {}, "id": "mine", "not_before": "2030-01-01T00:00:00Z"}],
    }
    first = await root.post("/inbox/billing/dom_0000000000000001", json=sent)
    stored = {"consumer": "billing", "event_id": "dom_0000000000000001", "outcome": {"n": 1}, "recorded_at": render(START)}
    assert (first.status_code, first.json()) == (201, {**stored, "added": True})
    assert {shard for _, shard in house.dues} >= {"records", "upkeep"}
    before = "\n".join(house.connection.iterdump())
    for again in (sent, {"outcome": 2, "kv": {"ns": {"k": 2}}}, {"outcome": 3, "records": [{"kind": "no", "body": {}}]}):
        answer = await root.post("/inbox/billing/dom_0000000000000001", json=again)
        assert (answer.status_code, answer.json()) == (200, {**stored, "added": False})
    assert "\n".join(house.connection.iterdump()) == before
    assert (await root.get("/inbox/billing/dom_0000000000000001")).json() == stored
    assert (await root.get("/kv/ns/k")).json()["value"] == 1
    assert (await root.get("/records/mine")).status_code == 200
    problem(await root.get("/inbox/billing/other"), 404, "EventUnknown")
    problem(await root.get("/inbox/shipping/dom_0000000000000001"), 404, "EventUnknown")


@pytest.mark.clause("inbox.consumer")
async def test_outcomes_out_of_bounds_record_nothing(root: httpx.AsyncClient, house: House) -> None:
    await root.put("/kinds/doc", json={"paths": {}})
    before = "\n".join(house.connection.iterdump())
    record = {"kind": "doc", "body": {}}
    debounced = {**record, "debounce": {"key": "k", "seconds": 1, "max_seconds": 2}}
    many = {f"k{n}": n for n in range(int(KV_CHANGES) + 1)}
    for sent, status, code in (
        ({}, 422, "RequestInvalid"),
        ({"outcome": 1, "kv": {"ns": 1}}, 422, "RequestInvalid"),
        ({"outcome": 1, "kv": {"ns": many}}, 422, "RequestInvalid"),
        ({"outcome": 1, "kv": {"": {"k": 1}}}, 400, "IdInvalid"),
        ({"outcome": 1, "records": [record] * (int(SETTLE_RESULTS) + 1)}, 422, "RequestInvalid"),
        ({"outcome": 1, "records": [debounced]}, 422, "RequestInvalid"),
        ({"outcome": 1, "records": [{"kind": "no", "body": {}}]}, 404, "KindUnknown"),
        ({"outcome": 1, "records": [{**record, "parents": ["no"]}]}, 409, "ParentUnknown"),
        ({"outcome": "x" * 65_535}, 413, "PayloadTooLarge"),
    ):
        problem(await root.post("/inbox/c/e", json=sent), status, code)
    assert "\n".join(house.connection.iterdump()) == before
    problem(await root.post("/inbox/c/a%2Fb", json={"outcome": 1}), 400, "IdInvalid")
    assert (await root.post("/inbox/c/e", json={"outcome": "x" * 65_534})).status_code == 201


@pytest.mark.clause("inbox.consumer", "kv.ops")
async def test_grants_of_namespaces_and_consumers(root: httpx.AsyncClient, app: Any) -> None:
    grants = [{"actions": ["publish"], "kinds": ["billing", "mine*"]}]
    token = (await root.post("/credentials", json={"subject": "ann", "grants": grants})).json()["token"]
    async with client_of(app, token) as ann:
        assert (await ann.put("/kv/mine.x/k", json={"value": 1})).status_code == 200
        problem(await ann.put("/kv/other/k", json={"value": 1}), 403, "Forbidden")
        problem(await ann.get("/kv/mine.x/k"), 403, "Forbidden")
        problem(await ann.get("/kv/mine.x"), 403, "Forbidden")
        problem(await ann.delete("/kv/other/k"), 403, "Forbidden")
        assert (await ann.post("/inbox/billing/e", json={"outcome": 1, "kv": {"mine": {"k": 1}}})).status_code == 201
        problem(await ann.post("/inbox/billing/f", json={"outcome": 1, "kv": {"other": {"k": 1}}}), 403, "Forbidden")
        problem(await ann.post("/inbox/shipping/e", json={"outcome": 1}), 403, "Forbidden")
        problem(await ann.get("/inbox/shipping/e"), 403, "Forbidden")

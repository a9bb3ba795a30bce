"""The main job over HTTP, and what the routes themselves add to it: keys, wake-ups, epochs, rendering."""

from typing import Any

import httpx
import pytest

from moorage.history.seals import due_after
from moorage.kernel.instants import Instant, render
from tests.unit.api.conftest import House
from tests.unit.api.test_requests import problem


@pytest.fixture
async def docs(root: httpx.AsyncClient) -> httpx.AsyncClient:
    declared = {"paths": {"n": "number", "a": "any"}, "claim": {"lease_seconds": 30, "max_attempts": 2}}
    await root.put("/kinds/doc", json=declared)
    return root


async def publish(client: httpx.AsyncClient, **more: Any) -> Any:
    return (await client.post("/records", json={"kind": "doc", "body": {}, **more})).json()


async def claim_one(client: httpx.AsyncClient, **more: Any) -> Any:
    answer = await client.post("/claims", json={"kind": "doc", "worker": "w", **more})
    return answer.json()["claims"][0]


@pytest.mark.clause("records.publish", "records.claim", "records.settle", "records.settle-replay", "records.lineage")
async def test_a_record_is_published_claimed_settled_and_traced(docs: httpx.AsyncClient) -> None:
    record = await publish(docs, body={"n": 1}, metadata={"from": "test"})
    claimed = await claim_one(docs, match={"n": {"$gt": 0}})
    assert claimed["record"] == {**record, "state": "claimed", "attempts": 1}
    sent = {"epoch": claimed["lease"]["epoch"], "results": [{"kind": "doc", "body": {"n": 2}}]}
    settled = await docs.post(f"/claims/{record['id']}/settle", json=sent)
    again = await docs.post(f"/claims/{record['id']}/settle", json=sent)
    assert (settled.status_code, again.json()) == (200, settled.json())
    child = settled.json()["results"][0]
    assert child["parents"] == [record["id"]]
    up = (await docs.get(f"/records/{child['id']}/lineage")).json()
    down = (await docs.get(f"/records/{record['id']}/lineage", params={"direction": "descendants", "depth": 1})).json()
    assert [(one["depth"], one["record"]["id"]) for one in up["items"]] == [(1, record["id"])]
    assert [(one["depth"], one["record"]["id"]) for one in down["items"]] == [(1, child["id"])]
    told = [one["type"] for one in (await docs.get(f"/records/{record['id']}/history")).json()["items"]]
    assert told == ["record.published", "record.claimed", "record.settled"]


@pytest.mark.clause("leases.fence")
@pytest.mark.parametrize("epoch", [None, "1", 1.0, 1.5, -1, 0, True, 9007199254740993, [], {}])
@pytest.mark.parametrize("verb", ["renew", "release", "settle", "fail"])
async def test_a_malformed_epoch_never_means_any_epoch(docs: httpx.AsyncClient, verb: str, epoch: Any) -> None:
    record = await publish(docs)
    await claim_one(docs)
    sent = {"epoch": epoch}
    if verb == "fail":
        sent["error"] = {"tag": "Transient", "message": "m"}
    answer = await docs.post(f"/claims/{record['id']}/{verb}", json=sent)
    assert answer.status_code in (400, 422)
    del sent["epoch"]
    problem(await docs.post(f"/claims/{record['id']}/{verb}", json=sent), 422, "RequestInvalid")
    assert (await docs.get(f"/records/{record['id']}")).json()["state"] == "claimed"


@pytest.mark.clause("records.idempotent")
async def test_a_key_answers_the_first_record_again_and_refuses_other_content(docs: httpx.AsyncClient) -> None:
    key = {"idempotency-key": "once"}
    sent = {"kind": "doc", "body": {"n": 1, "z": [1.0, "é"]}}
    first = await docs.post("/records", json=sent, headers=key)
    again = await docs.post("/records", content=b'{"body":{"z":[1,"\\u00e9"],"n":1.0},"kind":"doc"}', headers=key)
    assert (again.status_code, again.json()) == (201, first.json())
    other = await docs.post("/records", json={**sent, "priority": 1}, headers=key)
    problem(other, 409, "IdempotencyConflict")
    another_route = await docs.post("/records/batch", json={"records": [sent]}, headers=key)
    problem(another_route, 409, "IdempotencyConflict")
    assert len((await docs.post("/records/query", json={"kind": "doc"})).json()["items"]) == 1


@pytest.mark.parametrize("key", ["", "x" * 201, "a\tb"])
async def test_a_malformed_key_is_refused(docs: httpx.AsyncClient, key: str) -> None:
    answer = await docs.post("/records", json={"kind": "doc", "body": {}}, headers={"idempotency-key": key})
    problem(answer, 400, "IdInvalid")


async def test_two_keys_are_refused(docs: httpx.AsyncClient) -> None:
    headers = httpx.Headers([*docs.headers.multi_items(), ("idempotency-key", "a"), ("idempotency-key", "b")])
    sent = httpx.Request("POST", "http://moorage.test/records", json={"kind": "doc", "body": {}})
    headers["content-length"] = sent.headers["content-length"]
    sent.headers = headers
    problem(await docs.send(sent), 422, "RequestInvalid")


@pytest.mark.clause("timers.alarm")
async def test_whatever_makes_something_due_tells_the_clock_when(docs: httpx.AsyncClient, house: House) -> None:
    def told() -> list[Instant]:
        woken, house.woken[:] = list(house.woken), []
        return [one for one in woken if one != due_after(house.now)]  # every change is sealed

    later = Instant(house.now + 60_000)
    waiting = await publish(docs, not_before=render(later))
    assert (told(), waiting["not_before"]) == ([later], render(later))
    record = await publish(docs)
    assert told() == []
    claimed = await claim_one(docs, lease_seconds=1.5)
    assert told() == [house.now + 1500]
    epoch = claimed["lease"]["epoch"]
    failure = {"epoch": epoch, "error": {"tag": "Transient", "message": "m"}, "retry_after_seconds": 7}
    failed = (await docs.post(f"/claims/{record['id']}/fail", json=failure)).json()["record"]
    assert (told(), failed["not_before"]) == ([house.now + 7000], render(Instant(house.now + 7000)))
    await docs.post("/claims", json={"kind": "doc", "worker": "w"})
    assert told() == []
    await docs.post("/awakeables", json={"ttl_seconds": 9})
    assert told() == [house.now + 9000]
    await house.advance(7)
    epoch = (await claim_one(docs))["lease"]["epoch"]
    told()
    sent = {"epoch": epoch, "results": [{"kind": "doc", "body": {}, "not_before": render(later)}]}
    await docs.post(f"/claims/{record['id']}/settle", json=sent)
    assert told() == [later]
    await docs.post("/records", json={"kind": "doc", "body": {}}, headers={"idempotency-key": "k"})
    assert told() == [house.now + 86_400_000]


@pytest.mark.clause("records.recover", "records.dead-letter")
async def test_a_record_that_kills_its_workers_is_dead_lettered_and_requeued(docs: httpx.AsyncClient) -> None:
    record = await publish(docs)
    for attempt in (1, 2):
        assert (await claim_one(docs))["lease"]["attempt"] == attempt
        fired = (await docs.post("/testing/clock", json={"advance_seconds": 31})).json()["fired"]
        assert fired["lease_expired"] == 1
    assert (await docs.post("/claims", json={"kind": "doc", "worker": "w"})).json() == {"claims": []}
    letter = (await docs.get(f"/dead-letters/{record['id']}")).json()
    assert [(one["attempt"], one["epoch"]) for one in letter["attempts"]] == [(1, 1), (2, 2)]
    assert letter["record"]["failure"]["code"] == "LeaseExpired"
    listed = (await docs.get("/dead-letters", params={"kind": "doc"})).json()["items"]
    assert listed == [letter]
    ready = (await docs.post(f"/dead-letters/{record['id']}/requeue", json={"reason": "fixed"})).json()
    assert (ready["state"], ready["attempts"]) == ("ready", 0)


@pytest.mark.parametrize("field", [{"wait_seconds": 26}, {"wait_seconds": True}, {"session": "s"}, {"sequence": 1}])
async def test_half_a_turn_and_a_wait_out_of_bounds_are_refused(docs: httpx.AsyncClient, field: dict[str, Any]) -> None:
    answer = await docs.post("/claims", json={"kind": "doc", "worker": "w", **field})
    problem(answer, 422, "RequestInvalid")
    assert (await docs.post("/claims", json={"kind": "doc", "worker": "w", "wait_seconds": 0})).status_code == 200


@pytest.mark.clause("records.undeclared", "kernel.canonical-json")
async def test_bodies_come_back_exactly(docs: httpx.AsyncClient) -> None:
    bodies: list[dict[str, Any]] = [
        {"__proto__": {"x": 1}, "constructor": 2},
        {"": 1, "a.b": 2, "é": "\u2028\u0000", "😀": None},
        {"n": 0.1, "a": [1e300, -5e-324, 9007199254740991, True, None, {}]},
    ]
    for body in bodies:
        record = await publish(docs, body=body)
        assert record["body"] == body
        assert (await docs.get(f"/records/{record['id']}")).json()["body"] == body


@pytest.mark.clause("history.query")
async def test_history_is_paged_by_position(docs: httpx.AsyncClient) -> None:
    for _ in range(5):
        await publish(docs)
    seen: list[int] = []
    cursor: str | None = ""
    while cursor is not None:
        parameters = {"limit": 2, "after": 1} | ({"cursor": cursor} if cursor else {})
        page = (await docs.get("/history", params=parameters)).json()
        seen += [entry["position"] for entry in page["items"]]
        cursor = page["next_cursor"]
    assert seen == [2, 3, 4, 5, 6]
    first = (await docs.get("/history", params={"limit": 2})).json()["next_cursor"]
    problem(await docs.get("/history", params={"cursor": first, "subject": "x"}), 400, "CursorMismatch")


@pytest.mark.clause("catalog.grants")
async def test_history_shows_a_reader_only_what_it_may_read(docs: httpx.AsyncClient) -> None:
    record = await publish(docs)
    made = {"subject": "reader", "grants": [{"actions": ["read"], "kinds": ["doc"]}]}
    token = (await docs.post("/credentials", json=made)).json()["token"]
    headers = {"authorization": f"Bearer {token}"}
    problem(await docs.get("/history", headers=headers), 403, "Forbidden")
    problem(await docs.get("/history", headers=headers, params={"subject": "kind:doc"}), 403, "Forbidden")
    own = await docs.get("/history", headers=headers, params={"subject": record["id"]})
    assert [entry["type"] for entry in own.json()["items"]] == ["record.published"]

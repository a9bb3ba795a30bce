"""Interests, cancelling and retention over HTTP: what the routes answer, and when they wake the Clock."""

from typing import Any

import httpx
import pytest

from moorage.kernel.instants import Instant, render
from tests.unit.api.conftest import House
from tests.unit.api.test_reference import documented
from tests.unit.api.test_requests import problem

HOUR = 3600
MINUTE_MS = 60_000


@pytest.fixture
async def docs(root: httpx.AsyncClient) -> httpx.AsyncClient:
    await root.put("/kinds/doc", json={"paths": {"n": "number"}, "retention_seconds": HOUR})
    return root


async def publish(client: httpx.AsyncClient, **more: Any) -> str:
    answer = await client.post("/records", json={"kind": "doc", "body": {}, **more})
    name: str = answer.json()["id"]
    return name


async def claim(client: httpx.AsyncClient) -> tuple[str, int]:
    [one] = (await client.post("/claims", json={"kind": "doc", "worker": "w"})).json()["claims"]
    return one["record"]["id"], one["lease"]["epoch"]


def full_minute(instant: int) -> int:
    return -(-instant // MINUTE_MS) * MINUTE_MS


@pytest.mark.clause("records.interests", "records.dry-run")
async def test_an_interest_is_declared_listed_reached_and_withdrawn(docs: httpx.AsyncClient, house: House) -> None:
    sent = {"kind": "doc", "match": {"n": {"$gt": 1}}}
    made = await docs.put("/interests/ann", json=sent)
    documented(made, "/interests/{worker}")
    until = Instant(house.now + MINUTE_MS)
    reach = {"interest": "ann", "worker": "ann", "subject": "root", "expires_at": render(until)}
    assert made.json() == {**reach, "kind": "doc", "match": {"n": {"$gt": 1}}, "created_at": render(house.now)}
    assert -(-until // 600_000) * 600_000 in house.woken
    listed = await docs.get("/interests", params={"kind": "doc"})
    documented(listed, "/interests")
    assert listed.json() == {"items": [made.json()], "next_cursor": None}
    for number, matches in ((2, [reach]), (1, [])):
        answer = await docs.post("/records/dry-run", json={"kind": "doc", "body": {"n": number}})
        documented(answer, "/records/dry-run")
        assert answer.json() == {"matches": matches, "truncated": False}
    refused = await docs.post("/records/dry-run", json={"kind": "doc", "body": {"n": "x"}})
    assert problem(refused, 422, "BodyInvalid")["errors"][0]["pointer"] == "/body/n"
    documented(refused, "/records/dry-run")
    gone = await docs.delete("/interests/ann")
    assert (gone.status_code, gone.content) == (204, b"")
    again = await docs.delete("/interests/ann")
    problem(again, 404, "InterestUnknown")
    documented(again, "/interests/{worker}")


@pytest.mark.parametrize("ttl", [0, -1, 0.5, 86_401, "60", None, True])
async def test_a_time_to_live_has_bounds(docs: httpx.AsyncClient, ttl: Any) -> None:
    problem(await docs.put("/interests/ann", json={"kind": "doc", "ttl_seconds": ttl}), 422, "RequestInvalid")
    assert (await docs.get("/interests")).json()["items"] == []


@pytest.mark.clause("records.dead-letter", "leases.fence")
async def test_a_record_is_canceled_and_its_holder_fenced(docs: httpx.AsyncClient) -> None:
    record = await publish(docs)
    _, epoch = await claim(docs)
    key = {"idempotency-key": "once"}
    path = f"/records/{record}/cancel"
    canceled = await docs.post(path, json={"reason": "not wanted"}, headers=key)
    documented(canceled, "/records/{record}/cancel")
    assert canceled.json()["state"] == "dead"
    assert canceled.json()["failure"] == {"tag": "Canceled", "message": "not wanted"}
    again = await docs.post(path, json={"reason": "not wanted"}, headers=key)
    assert (again.status_code, again.json()) == (200, canceled.json())
    late = await docs.post(f"/claims/{record}/settle", json={"epoch": epoch})
    problem(late, 409, "LeaseFenced")
    without = await docs.post(path, json={"reason": "not wanted"})
    problem(without, 409, "RecordEnded")
    documented(without, "/records/{record}/cancel")
    problem(await docs.post(path, json={}), 422, "RequestInvalid")
    problem(await docs.post("/records/nobody/cancel", json={"reason": "r"}), 404, "RecordUnknown")


@pytest.mark.clause("records.retention")
async def test_a_removed_record_is_gone_and_its_history_is_not(docs: httpx.AsyncClient, house: House) -> None:
    record = await publish(docs)
    _, epoch = await claim(docs)
    await docs.post(f"/claims/{record}/settle", json={"epoch": epoch})
    await house.advance(HOUR + 60)
    for path in (f"/records/{record}", f"/records/{record}/lineage"):
        gone = await docs.get(path)
        assert problem(gone, 410, "RecordRemoved")["tag"] == "Unknown"
        documented(gone, path.replace(record, "{record}"))
    told = (await docs.get(f"/records/{record}/history")).json()["items"]
    assert [one["type"] for one in told][::3] == ["record.published", "record.removed"]
    assert (await docs.get("/history", params={"subject": record})).json()["items"] == told
    problem(await docs.post("/records", json={"kind": "doc", "body": {}, "id": record}), 400, "IdInvalid")


@pytest.mark.clause("records.retention")
async def test_a_preview_tells_what_would_go(docs: httpx.AsyncClient, house: House) -> None:
    record = await publish(docs)
    await docs.post(f"/records/{record}/cancel", json={"reason": "r"})
    ended = house.now
    preview = await docs.get("/kinds/doc/retention")
    documented(preview, "/kinds/{kind}/retention")
    nothing = {"kind": "doc", "retention_seconds": HOUR, "candidates": 0, "held": 0, "oldest": []}
    assert preview.json() == nothing
    house.now = Instant(house.now + 10_000)
    supposed = await docs.get("/kinds/doc/retention", params={"retention_seconds": 10})
    oldest = [{"id": record, "state": "dead", "ended_at": render(ended)}]
    assert supposed.json() == {**nothing, "retention_seconds": 10, "candidates": 1, "oldest": oldest}
    problem(await docs.get("/kinds/doc/retention", params={"retention_seconds": 0}), 422, "RequestInvalid")
    problem(await docs.get("/kinds/none/retention"), 404, "KindUnknown")


@pytest.mark.clause("records.retention", "timers.alarm")
async def test_whatever_ends_a_record_tells_the_clock_when_to_look(docs: httpx.AsyncClient, house: House) -> None:
    def told() -> list[int]:
        woken, house.woken[:] = [int(one) for one in house.woken], []
        return woken

    due = full_minute(house.now + HOUR * 1000)
    told()
    await docs.put("/kinds/doc", json={"paths": {"n": "number"}, "retention_seconds": HOUR, "claim": {"max_attempts": 2}})
    assert full_minute(house.now) in told()
    record = await publish(docs)
    await docs.post(f"/records/{record}/cancel", json={"reason": "r"})
    assert due in told()
    record = await publish(docs)
    _, epoch = await claim(docs)
    told()
    await docs.post(f"/claims/{record}/settle", json={"epoch": epoch})
    assert due in told()
    record = await publish(docs)
    _, epoch = await claim(docs)
    told()
    failure = {"epoch": epoch, "error": {"tag": "Permanent", "message": "m"}, "dead_letter": True}
    await docs.post(f"/claims/{record}/fail", json=failure)
    assert due in told()

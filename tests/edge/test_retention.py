"""Retention and interests on the real edge: the Clock's alarm removes and forgets, driven by the product's clock."""

import asyncio
from typing import Any

import httpx
import pytest

from ops.local.edge import LocalEdge
from tests.edge.client import client, crowd, declare, fresh, good, problem

pytestmark = pytest.mark.edge

HOUR = 3600


def advance(api: httpx.Client, seconds: float) -> dict[str, int]:
    """Move the product's clock; what fired meanwhile."""
    fired: dict[str, int] = good(api.post("/testing/clock", json={"advance_seconds": seconds}))["fired"]
    return fired


def consumed(api: httpx.Client, kind: str, count: int, key: str | None = None) -> list[str]:
    """Records that were published and settled just now."""
    headers = {} if key is None else {"idempotency-key": key}
    sent = {"records": [{"kind": kind, "body": {}} for _ in range(count)]}
    ids = [one["id"] for one in good(api.post("/records/batch", json=sent, headers=headers))["records"]]
    while claims := good(api.post("/claims", json={"kind": kind, "worker": "w", "limit": 100}))["claims"]:
        for one in claims:
            under = {"epoch": one["lease"]["epoch"]}
            good(api.post(f"/claims/{one['record']['id']}/settle", json=under))
    return ids


def there(api: httpx.Client, kind: str) -> set[str]:
    found: list[dict[str, Any]] = good(api.post("/records/query", json={"kind": kind, "limit": 500}))["items"]
    return {one["id"] for one in found}


@pytest.mark.clause("records.retention", "timers.alarm")
def test_the_clock_removes_what_has_ended_long_enough(edge: LocalEdge) -> None:
    with client(edge) as api:
        kind = fresh("kept")
        good(api.put(f"/kinds/{kind}", json={"paths": {}, "retention_seconds": HOUR}))
        gone = consumed(api, kind, 120)
        keyed = consumed(api, kind, 1, key=fresh("key"))
        parent = consumed(api, kind, 1)[0]
        child = good(api.post("/records", json={"kind": kind, "body": {}, "parents": [parent]}))["id"]
        assert good(api.get(f"/kinds/{kind}/retention"))["candidates"] == 0
        assert advance(api, HOUR - 61).get("retention_swept", 0) == 0
        fired = advance(api, 180)
        assert fired["retention_swept"] >= 121
        assert there(api, kind) == {*keyed, parent, child}
        assert problem(api.get(f"/records/{gone[0]}"), 410)["code"] == "RecordRemoved"
        told = good(api.get(f"/records/{gone[0]}/history"))["items"]
        assert [one["type"] for one in told][-1] == "record.removed"
        assert good(api.get(f"/records/{child}"))["parents"] == [parent]


@pytest.mark.clause("records.interests", "records.dry-run")
def test_an_interest_is_reached_until_it_expires(edge: LocalEdge) -> None:
    with client(edge) as api:
        kind = declare(api, fresh("wanted"), {"n": "number"})
        worker = fresh("worker")
        good(api.put(f"/interests/{worker}", json={"kind": kind, "match": {"n": {"$gt": 1}}, "ttl_seconds": 60}))

        def reached(n: int) -> list[str]:
            answer = good(api.post("/records/dry-run", json={"kind": kind, "body": {"n": n}}))
            return [one["worker"] for one in answer["matches"]]

        assert (reached(2), reached(1)) == ([worker], [])
        assert there(api, kind) == set()
        advance(api, 61)
        assert reached(2) == []
        assert advance(api, 660)["interest_expired"] >= 1


@pytest.mark.clause("leases.fence")
async def test_a_cancel_and_a_settle_at_once_have_one_winner(edge: LocalEdge) -> None:
    with client(edge) as api:
        kind = declare(api, fresh("race"), {})
        sent = {"records": [{"kind": kind, "body": {}} for _ in range(20)]}
        good(api.post("/records/batch", json=sent))
        held = good(api.post("/claims", json={"kind": kind, "worker": "w", "limit": 20}))["claims"]
    async with crowd(edge, 20) as many:
        asked = []
        for one in held:
            record = one["record"]["id"]
            asked.append(many.post(f"/claims/{record}/settle", json={"epoch": one["lease"]["epoch"]}))
            asked.append(many.post(f"/records/{record}/cancel", json={"reason": "not wanted"}))
        answers = await asyncio.gather(*asked)
    for settled, canceled in zip(answers[::2], answers[1::2], strict=True):
        assert sorted((settled.status_code, canceled.status_code)) == [200, 409]
        lost = settled if settled.status_code == 409 else canceled
        assert lost.json()["code"] in ("LeaseFenced", "RecordEnded")

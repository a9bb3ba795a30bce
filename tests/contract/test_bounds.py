"""What bounds a kind's claims and publications: lanes, depth, time to live and rate, also under races."""

import asyncio
import json
from typing import Any

import pytest
from pydantic import ValidationError

from moorage.catalog.kinds import Kinds
from moorage.kernel.errors import KindFull, RequestInvalid
from moorage.kernel.instants import after
from moorage.kernel.limits import RETRY_AFTER_SECONDS
from moorage.kernel.pages import PageRequest
from moorage.records import dead_letters, lanes
from moorage.records.model import Claim, Draft
from tests.contract.adapters import Store, dump
from tests.contract.declared import put
from tests.contract.desk import Desk, ref

KIND = "job"
PATHS = {"customer": "string", "size": "number"}


@pytest.fixture
def desk(store: Store) -> Desk:
    return Desk(store)


async def bound(desk: Desk, **claim: Any) -> Any:
    """Declare the kind with these bounds."""
    return await put(desk.store, KIND, kinds=desk.kinds, now=desk.now, paths=PATHS, claim=claim)


async def publish(desk: Desk, *customers: str | None, **more: Any) -> None:
    bodies = [{} if name is None else {"customer": name} for name in customers]
    await desk.publish_all([Draft(KIND, {**body, "size": place}, **more) for place, body in enumerate(bodies)])


def sizes(claims: list[Claim]) -> list[int]:
    return [one.record.body["size"] for one in claims]


# --- concurrency ----------------------------------------------------------------------------------------------------


@pytest.mark.clause("records.claim")
async def test_no_more_than_the_limit_of_one_value_is_claimed(desk: Desk) -> None:
    await bound(desk, concurrency={"path": "customer", "limit": 2})
    await publish(desk, "a", "a", "a", "b", "a", "b", None, None, None)
    first = await desk.claim(kind=KIND, limit=100)
    assert sizes(first) == [0, 1, 3, 5, 6, 7, 8]
    assert await desk.claim(kind=KIND, limit=100) == []
    await desk.settle(ref(first[0]))
    assert sizes(await desk.claim(kind=KIND, limit=100)) == [2]
    await desk.release(ref(first[1]))
    assert sizes(await desk.claim({"size": {"$gte": 2}}, kind=KIND)) == [4]
    await desk.history_agrees()


@pytest.mark.clause("records.claim")
async def test_a_lane_is_free_again_however_its_claim_ended(desk: Desk) -> None:
    await bound(desk, concurrency={"path": "customer", "limit": 1}, lease_seconds=5, max_attempts=10)
    await publish(desk, "a", "a")
    held = await desk.claim_one(kind=KIND)
    await desk.fail(ref(held), retry=100)
    held = await desk.claim_one(kind=KIND)
    assert sizes([held]) == [1]
    desk.pass_time(5)
    assert await desk.claim(kind=KIND) == []
    await desk.fire()
    held = await desk.claim_one(kind=KIND)
    await desk.fail(ref(held), dead=True)
    assert await desk.claim(kind=KIND) == []


@pytest.mark.clause("records.claim")
async def test_many_claimers_at_once_never_pass_the_limit(desk: Desk) -> None:
    await bound(desk, concurrency={"path": "customer", "limit": 3})
    await publish(desk, *("abc"[number % 3] for number in range(60)))
    taken = await asyncio.gather(*(desk.claim(kind=KIND, limit=2, worker=f"w{number}") for number in range(20)))
    counts = [0, 0, 0]
    for one in (one for claims in taken for one in claims):
        counts["abc".index(one.record.body["customer"])] += 1
    assert counts == [3, 3, 3]


@pytest.mark.clause("records.claim")
async def test_a_saturated_front_is_skipped_without_reading_the_backlog(desk: Desk) -> None:
    """More of one value than any look reads stands before the only other one."""
    await bound(desk, concurrency={"path": "customer", "limit": 1})
    for _ in range(4):
        await publish(desk, *["a"] * 500)
    await desk.publish({"customer": "b", "size": 7}, kind=KIND)
    await publish(desk, *["a"] * 200)
    assert sizes(await desk.claim(kind=KIND)) == [0]
    assert sizes(await desk.claim(kind=KIND)) == [7]
    assert desk.cost.rows_read <= 400
    for nothing in ({}, {"customer": "a"}):
        assert await desk.claim(nothing, kind=KIND) == []
        assert (desk.cost.trips, desk.cost.rows_read <= 10 * lanes.WIDE) == (1, True)


@pytest.mark.clause("records.claim")
async def test_what_has_no_value_and_what_stands_in_many_lanes_is_found_behind_a_full_one(desk: Desk) -> None:
    await bound(desk, concurrency={"path": "customer", "limit": 1})
    await publish(desk, *["m"] * 100)
    await publish(desk, *(f"n{number}" for number in range(lanes.LANES + 50)), None)
    assert sizes(await desk.claim(kind=KIND)) == [0]
    assert sizes(await desk.claim(kind=KIND)) == [0]
    taken = await desk.claim(kind=KIND, limit=100)
    assert sizes(taken) == list(range(1, 18))
    while taken:
        taken = await desk.claim(kind=KIND, limit=100)
    left = await desk.query(state="ready", kind=KIND)
    assert {one.body.get("customer") for one in left.items} == {"m"}


@pytest.mark.clause("records.claim")
async def test_priority_holds_across_lanes(desk: Desk) -> None:
    await bound(desk, concurrency={"path": "customer", "limit": 1})
    await publish(desk, *["a"] * 500, priority=9)
    await publish(desk, *["a"] * 500, priority=9)
    await publish(desk, *["a"] * 100, priority=9)
    await desk.publish({"customer": "b", "size": 1}, kind=KIND, priority=1)
    await desk.publish({"customer": "c", "size": 2}, kind=KIND, priority=5)
    await desk.claim_one(kind=KIND)
    assert sizes(await desk.claim(kind=KIND)) == [2]
    assert sizes(await desk.claim(kind=KIND)) == [1]


@pytest.mark.clause("records.claim", "catalog.kind")
async def test_a_limit_that_is_declared_later_counts_what_is_claimed_already(desk: Desk) -> None:
    await bound(desk)
    await publish(desk, "a", "a", "b")
    await desk.claim_one(kind=KIND)
    await bound(desk, concurrency={"path": "customer", "limit": 1})
    assert sizes(await desk.claim(kind=KIND, limit=9)) == [2]
    await bound(desk)
    assert sizes(await desk.claim(kind=KIND, limit=9)) == [1]
    with pytest.raises(RequestInvalid, match="declared path"):
        await bound(desk, concurrency={"path": "nobody", "limit": 1})


# --- depth ----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("records.publish")
async def test_a_full_kind_refuses_what_would_pass_its_depth(desk: Desk) -> None:
    await bound(desk)
    await publish(desk, "a")
    await bound(desk, depth_limit=3)
    await publish(desk, "b", not_before=after(desk.now, 60))
    before = await dump(desk.store)
    with pytest.raises(KindFull) as caught:
        await publish(desk, "c", "d")
    assert caught.value.retryable
    assert caught.value.retry_after == 1
    assert await dump(desk.store) == before
    await publish(desk, "c")
    with pytest.raises(KindFull):
        await publish(desk, "d")
    held = await desk.claim_one(kind=KIND)
    await publish(desk, "d")
    await desk.release(ref(held))
    held = await desk.claim_one(kind=KIND)
    await desk.settle(ref(held), Draft(KIND, {}), Draft(KIND, {}))
    await depth_is_right(desk)
    with pytest.raises(KindFull):
        await publish(desk, "e")
    await bound(desk)
    await publish(desk, "e")
    assert await desk.store.sql("SELECT 1 FROM kind_depths") == []


@pytest.mark.clause("records.publish")
async def test_many_publishers_at_once_never_pass_the_depth(desk: Desk) -> None:
    await bound(desk, depth_limit=5)

    async def one() -> int:
        try:
            await publish(desk, "a")
        except KindFull:
            return 0
        return 1

    assert sum(await asyncio.gather(*(one() for _ in range(12)))) == 5
    await depth_is_right(desk)


async def depth_is_right(desk: Desk) -> None:
    [counted] = await desk.store.sql("SELECT ready FROM kind_depths")
    [found] = await desk.store.sql("SELECT count(*) AS ready FROM records WHERE state = 'ready'")
    assert counted == found


@pytest.mark.clause("records.publish", "records.fail", "records.dead-letter")
async def test_the_depth_follows_every_way_in_and_out(desk: Desk) -> None:
    await bound(desk, depth_limit=100, lease_seconds=5, ttl_seconds=1000)
    await publish(desk, *"abcdef")
    await depth_is_right(desk)
    one, two, three, _ = await desk.claim(kind=KIND, limit=4)
    await depth_is_right(desk)
    await desk.fail(ref(one))
    await desk.fail(ref(two), dead=True)
    await desk.settle(ref(three))
    desk.pass_time(5)
    await desk.fire()
    await depth_is_right(desk)
    await desk.requeue(two.record.id)
    await depth_is_right(desk)
    desk.pass_time(995)
    assert (await desk.fire())["record_stale"] == 4
    await depth_is_right(desk)


# --- time to live ---------------------------------------------------------------------------------------------------


@pytest.mark.clause("records.dead-letter", "timers.alarm")
async def test_a_record_that_nobody_claims_in_time_becomes_a_dead_letter(desk: Desk) -> None:
    await bound(desk, ttl_seconds=60, lease_seconds=100)
    stale = await desk.publish({}, kind=KIND)
    assert stale.ready_until == after(desk.now, 60)
    assert await desk.get(stale.id) == stale
    assert await desk.next_due() == after(desk.now, 60)
    later = await desk.publish({}, kind=KIND, not_before=after(desk.now, 30))
    held = await desk.claim_one(kind=KIND)
    assert held.record.ready_until is None
    await desk.release(ref(held))
    desk.pass_time(59)
    assert "record_stale" not in await desk.fire()
    desk.pass_time(1)
    assert await desk.fire() == {"record_stale": 1}
    dead = await desk.get(stale.id)
    assert (dead.state, dead.ended_at, (dead.failure or {})["code"]) == ("dead", desk.now, "TimeToLiveOver")
    held = await desk.claim_one(kind=KIND)
    assert held.record.id == later.id
    desk.pass_time(50)
    assert "record_stale" not in await desk.fire()
    await desk.release(ref(held))
    assert await desk.fire() == {"record_stale": 1}
    page = await dead_letters.list_dead_letters(desk.db(), desk.kinds, desk.caller, desk.now, PageRequest(), KIND)
    assert [one.record.id for one in page.items] == [stale.id, later.id]
    requeued = await desk.requeue(stale.id)
    assert requeued.ready_until == after(desk.now, 60)
    await desk.history_agrees()


# --- rate -----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("records.claim")
async def test_claims_draw_from_a_bucket_that_all_share(desk: Desk) -> None:
    await bound(desk, rate={"per_second": 2, "burst": 3})
    await publish(desk, *["a"] * 20)
    assert len(await desk.claim(kind=KIND, limit=2)) == 2
    other = Desk(desk.store)
    other.kinds = Kinds()
    assert len(await other.claim(kind=KIND, limit=2)) == 1
    empty = await desk.claim(kind=KIND, limit=2)
    assert (empty, empty.retry_after) == ([], 0.5)
    assert desk.cost.trips == 1
    desk.pass_time(0.25)
    assert (await desk.claim(kind=KIND)).retry_after == 0.25
    desk.pass_time(0.25)
    assert len(await desk.claim(kind=KIND, limit=2)) == 1
    desk.pass_time(3600)
    assert len(await desk.claim(kind=KIND, limit=9)) == 3


@pytest.mark.clause("records.claim")
async def test_a_claim_that_finds_nothing_costs_no_token(desk: Desk) -> None:
    await bound(desk, rate={"per_second": 0.1})
    for _ in range(3):
        assert (await desk.claim(kind=KIND)).retry_after is None
    await publish(desk, "a", "a")
    assert len(await desk.claim(kind=KIND, limit=2)) == 1
    assert (await desk.claim(kind=KIND)).retry_after == 10


@pytest.mark.clause("records.claim")
async def test_rate_and_concurrency_hold_together(desk: Desk) -> None:
    await bound(desk, rate={"per_second": 1, "burst": 2}, concurrency={"path": "customer", "limit": 1})
    await publish(desk, "a", "a", "b", "c", "d")
    taken = await asyncio.gather(*(desk.claim(kind=KIND, limit=5) for _ in range(5)))
    assert sorted(sizes([one for claims in taken for one in claims])) == [0, 2]
    desk.pass_time(1)
    assert sizes(await desk.claim(kind=KIND, limit=5)) == [3]


@pytest.mark.clause("records.claim", "catalog.kind")
async def test_a_rate_from_before_there_was_a_least_one_still_answers(desk: Desk) -> None:
    await bound(desk, rate={"per_second": 1 / 86400})
    with pytest.raises(ValidationError):
        await bound(desk, rate={"per_second": 5e-324})
    await desk.store.sql("""UPDATE kinds SET rate = '{"burst":1,"per_second":5e-324}'""")
    desk.kinds = Kinds()
    await publish(desk, "a", "a")
    assert len(await desk.claim(kind=KIND, limit=2)) == 1
    assert (await desk.claim(kind=KIND, limit=2)).retry_after == RETRY_AFTER_SECONDS


@pytest.mark.clause("catalog.kind")
async def test_bounds_are_shown_told_and_may_change(desk: Desk) -> None:
    kind = await bound(desk, rate={"per_second": 1.5, "burst": 2}, depth_limit=5, ttl_seconds=9)
    assert kind.answer()["claim"]["rate"] == {"per_second": 1.5, "burst": 2}
    again = await bound(desk, rate={"per_second": 1.5, "burst": 2}, depth_limit=5, ttl_seconds=9)
    assert again.revision == 1
    [told] = await desk.store.sql("SELECT data FROM history")
    assert json.loads(told["data"])["claim"]["depth_limit"] == 5
    assert (await bound(desk)).revision == 2


@pytest.mark.clause("records.claim", "records.pattern-safe")
@pytest.mark.parametrize("operators", [2, 10, 30, 62])
async def test_patterns_of_every_length_fit_beside_every_bound(desk: Desk, operators: int) -> None:
    """The parser of SQL nests only so deep, and a statement is only so long."""
    await bound(desk, rate={"per_second": 1, "burst": 9}, concurrency={"path": "customer", "limit": 1})
    await publish(desk, "a", "b", "b")
    ranges = [{"size": {"$gte": -number, "$lt": 1000 + number}} for number in range(operators // 2)]
    match = {"$and": [{"customer": {"$in": ["a", "b"]}}, *ranges]}
    assert sizes(await desk.claim(match, kind=KIND, limit=9)) == [0, 1]

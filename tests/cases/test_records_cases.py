"""Faults that users of queues really had, asked of the records room with the clock driven by the test."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage.kernel.errors import (
    CursorMismatch,
    LeaseExpired,
    LeaseFenced,
)
from moorage.kernel.instants import Instant, after
from moorage.kernel.pages import PageRequest
from moorage.records.due import RecordLeases
from moorage.records.model import ClaimRef, Draft
from tests.contract.adapters import dump, sqlite_store
from tests.contract.desk import KIND, Desk, ref


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with sqlite_store(tmp_path) as store:
        made = Desk(store)
        await made.declare()
        yield made
        # After every case an ordinary publish, claim and settle still works.
        record = await made.publish({"to": "ordinary"}, priority=1_000_000)
        held = await made.claim_one()
        assert held.record.id == record.id
        await made.settle(ref(held))
        await made.history_agrees()


# --- C03: the holder whose lease is over ---


@pytest.mark.clause("leases.fence", "records.settle")
async def test_c03_a_late_holder_changes_nothing(desk: Desk) -> None:
    record = await desk.publish({"to": "a@example.test"})
    first = await desk.claim_one(worker="a", seconds=2)
    desk.pass_time(3)
    await desk.fire()
    second = await desk.claim_one(worker="b", seconds=2)
    assert second.lease.epoch > first.lease.epoch

    async def late() -> None:
        before = await dump(desk.store)
        for attempt in (
            desk.settle(ref(first), Draft(KIND, {"any": "A"})),
            desk.fail(ref(first)),
            desk.renew(ref(first)),
            desk.fail(ref(first), dead=True),
            desk.release(ref(first)),
        ):
            with pytest.raises(LeaseFenced):
                await attempt
        assert await dump(desk.store) == before

    await late()
    done = await desk.settle(ref(second), Draft(KIND, {"any": "B"}))
    await late()
    assert (await desk.get(record.id)).state == "consumed"
    assert [one.record.body for one in (await desk.lineage(record.id, "descendants"))[0]] == [{"any": "B"}]
    assert (await desk.types(record.id)).count("settled") == 1
    for epoch in (-1, 0, 2**53 - 1, 2**53 + 1, 10**18):
        with pytest.raises(LeaseFenced):
            await desk.settle(ClaimRef(record.id, epoch), Draft(KIND, {"any": "B"}))
    await desk.claim({"any": "B"})
    assert (await desk.get(done.results[0].id)).state == "claimed"


# --- C04: the sweep acts on a stale picture ---


@pytest.mark.clause("records.recover", "leases.fence", "store.atomic")
async def test_c04_settles_around_the_expiry_of_three_hundred_leases(desk: Desk) -> None:
    await desk.publish_all([Draft(KIND, {"size": number}) for number in range(300)])
    held = [one for _ in range(3) for one in await desk.claim(limit=100, seconds=10)]
    expiry = held[0].lease.expires_at
    chance = random.Random(4)
    moments: list[tuple[int, int]] = sorted((expiry + chance.randint(-50, 50), place) for place in range(300))
    settled: dict[str, bool] = {}
    again: dict[str, int] = {}

    def at(instant: int) -> Desk:
        one = desk.seen_by(desk.caller)
        one.now = Instant(instant)
        return one

    async def settle(instant: int, place: int) -> None:
        try:
            await at(instant).settle(ref(held[place]))
            settled[held[place].record.id] = True
        except (LeaseExpired, LeaseFenced):
            settled[held[place].record.id] = False

    async def claim(instant: int) -> None:
        for taken in await at(instant).claim(worker="other", limit=7, seconds=600):
            assert taken.record.id not in again
            again[taken.record.id] = taken.lease.epoch

    async def stale_sweep(instant: int) -> None:
        for one in chance.sample(held, 20):
            await RecordLeases().fire(desk.store.db(), Instant(instant), f"{one.record.id}@{one.lease.expires_at}")

    for start in range(0, 300, 12):
        some = moments[start : start + 12]
        await asyncio.gather(
            *(settle(instant, place) for instant, place in some),
            claim(some[0][0]),
            stale_sweep(some[-1][0]),
            claim(some[-1][0]),
        )
    desk.now = Instant(expiry + 51)
    await desk.fire()
    assert 0 < sum(settled.values()) < 300
    for one in held:
        record = await desk.get(one.record.id)
        if settled[record.id]:
            assert (record.state, record.attempts, record.failure) == ("consumed", 1, None)
            assert record.id not in again
        else:
            assert record.state in ("ready", "claimed")
            assert (record.id in again) == (record.state == "claimed")
            assert again.get(record.id, 2) > one.lease.epoch
    assert len((await desk.query(state="consumed", page=PageRequest(500))).items) == sum(settled.values())


# --- C05: a record that kills its worker ---


@pytest.mark.clause("records.recover", "records.dead-letter")
@pytest.mark.parametrize("ends", [["abandon"] * 3, ["fail", "abandon", "fail"]], ids=["abandoned", "mixed"])
async def test_c05_every_abandoned_claim_is_an_attempt(desk: Desk, ends: list[str]) -> None:
    poison = await desk.publish({"to": "poison"}, priority=9)
    healthy = [await desk.publish({"to": "healthy"}) for _ in range(10)]
    started = []
    for end in ends:
        held = await desk.claim_one()
        assert held.record.id == poison.id
        started.append((held.lease.attempt, held.lease.epoch, desk.now))
        assert len((await desk.query({"to": "healthy"}, state="ready")).items) == 10
        if end == "fail":
            await desk.fail(ref(held), retry=0)
        else:
            desk.pass_time(30)
            await desk.fire()
    letter = await desk.letter(poison.id)
    assert [(one.attempt, one.epoch, one.claimed_at) for one in letter.attempts] == started
    assert letter.record.failure is not None
    assert ("lease" in letter.record.failure["message"]) == (ends[-1] == "abandon")
    taken = await desk.claim(limit=100)
    assert {one.record.id for one in taken} == {record.id for record in healthy}
    await desk.fire()


# --- C09: many records of one instant across a page edge ---


async def walk(page: Any, between: Any = None) -> list[str]:
    """The ids on all pages of ten."""
    seen: list[str] = []
    cursor = None
    while True:
        answer = await page(PageRequest(10, cursor))
        seen += [getattr(one, "record", one).id for one in answer.items]
        cursor = answer.next_cursor
        if cursor is None:
            return seen
        assert len(answer.items) == 10
        if between is not None:
            await between()
            between = None


@pytest.mark.clause("records.dead-letter", "records.pattern-one-meaning")
@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_c09_records_and_dead_letters_of_one_instant(desk: Desk, order: Any) -> None:
    published = await desk.publish_all([Draft(KIND, {"size": number}) for number in range(25)])
    ids = [record.id for record in published]
    assert len({record.created_at for record in published}) == 1
    wanted = ids if order == "asc" else ids[::-1]

    async def records(page: PageRequest) -> Any:
        return await desk.query(page=page, order=order)

    async def meanwhile() -> None:
        for one in await desk.claim({"size": {"$lt": 2}}, limit=2):
            await desk.settle(ref(one))
        await desk.publish_all([Draft(KIND, {"late": number}) for number in range(3)])

    assert await walk(records) == wanted
    seen = await walk(records, meanwhile)
    assert [one for one in seen if one in ids] == wanted
    assert len(seen) == len(set(seen)) == (28 if order == "asc" else 25)

    for one in await desk.claim({"size": {"$gte": 5}}, limit=100):
        await desk.fail(ref(one), dead=True)
    dead = await walk(lambda page: desk.letters(KIND, page))
    assert dead == ids[5:]
    first = await desk.letters(KIND, PageRequest(10))
    second = await desk.letters(KIND, PageRequest(10, first.next_cursor))
    assert second.next_cursor is None
    for cursor in ("abc", "", (await desk.query(page=PageRequest(10))).next_cursor):
        with pytest.raises(CursorMismatch):
            await desk.letters(KIND, PageRequest(10, cursor))


# --- C26: waiting longer than a lease ---


@pytest.mark.clause("records.claim", "records.fail", "leases.renew")
async def test_c26_a_wait_longer_than_the_lease(desk: Desk) -> None:
    record = await desk.publish(not_before=after(desk.now, 10))
    taken: list[tuple[Instant, str]] = []

    async def idle(seconds: int) -> None:
        """Three workers claim in a loop, with two-second leases that they end at once."""
        for _ in range(seconds * 4):
            desk.pass_time(0.25)
            await desk.fire()
            for worker in ("a", "b", "c"):
                taken.extend((desk.now, one.record.id) for one in await desk.claim(worker=worker, seconds=2))

    start = desk.now
    shown = await desk.get(record.id)
    assert (shown.state, shown.not_before) == ("ready", after(start, 10))
    await idle(11)
    assert taken == [(after(start, 10), record.id)]

    [held] = (await desk.query(state="claimed")).items
    failed_at = desk.now
    failed = await desk.fail(ClaimRef(held.id, 1), retry=10)
    assert (failed.state, failed.not_before) == ("ready", after(failed_at, 10))
    taken.clear()
    await idle(11)
    assert taken == [(after(failed_at, 10), record.id)]

    for _ in range(10):
        await desk.renew(ClaimRef(record.id, 2), 2)
        desk.pass_time(1)
        assert await desk.fire() == {}
        assert await desk.claim(worker="b") == []
    assert (await desk.get(record.id)).attempts == 2
    await desk.settle(ClaimRef(record.id, 2))


@pytest.mark.clause("records.claim")
async def test_c26_a_hundred_records_due_at_one_instant(desk: Desk) -> None:
    due = after(desk.now, 10)
    await desk.publish_all([Draft(KIND, {"size": number}, not_before=due) for number in range(100)])
    desk.pass_time(9.999)
    assert await desk.fire() == {}
    desks = [desk.seen_by(desk.caller) for _ in range(100)]
    assert sum([len(taken) for taken in await asyncio.gather(*(one.claim() for one in desks))]) == 0
    desk.pass_time(0.001)
    assert await desk.fire() == {"record_due": 100}
    desks = [desk.seen_by(desk.caller) for _ in range(110)]
    taken = [one.record.id for some in await asyncio.gather(*(each.claim() for each in desks)) for one in some]
    assert len(taken) == len(set(taken)) == 100

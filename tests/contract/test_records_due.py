"""What time does to records: leases run out, delays end, and a Clock that comes late, twice or with an old picture."""

import asyncio

import pytest

from moorage.kernel.errors import LeaseExpired
from moorage.kernel.instants import after
from moorage.records.due import RecordDelays, RecordLeases
from moorage.records.model import Draft
from tests.contract.adapters import Store, dump
from tests.contract.desk import KIND, Desk, ref


@pytest.fixture
async def desk(store: Store) -> Desk:
    made = Desk(store)
    await made.declare()
    await made.publish()
    return made


@pytest.mark.clause("records.recover")
async def test_an_expired_lease_counts_as_an_attempt_and_gives_the_record_back(desk: Desk) -> None:
    held = await desk.claim_one(seconds=5)
    assert await desk.next_due() == held.lease.expires_at
    desk.pass_time(5)
    assert await desk.claim() == []
    assert await desk.fire() == {"lease_expired": 1}
    record = await desk.get(held.record.id)
    assert (record.state, record.attempts, record.not_before) == ("ready", 1, None)
    assert record.failure is not None
    assert record.failure["code"] == "LeaseExpired"
    again = await desk.claim_one(worker="ben")
    assert (again.lease.epoch, again.lease.attempt) == (2, 2)
    assert await desk.types(record.id) == ["published", "claimed", "lease_expired", "claimed"]
    await desk.history_agrees()


@pytest.mark.clause("records.recover", "timers.late")
async def test_a_clock_that_was_down_recovers_when_it_comes(desk: Desk) -> None:
    await desk.claim_one(seconds=5)
    desk.pass_time(86400)
    assert await desk.fire() == {"lease_expired": 1}
    assert await desk.fire() == {}
    assert len(await desk.claim()) == 1


@pytest.mark.clause("records.recover", "history.append")
async def test_expiring_twice_in_one_millisecond_tells_of_one_death(desk: Desk) -> None:
    work = RecordLeases()
    for _ in range(3):
        held = await desk.claim_one(seconds=1)
        desk.pass_time(1)
        item = f"{held.record.id}@{held.lease.expires_at}"
        assert await work.fire(desk.db(), desk.now, item) == 1
        before = await dump(desk.store)
        assert await work.fire(desk.db(), desk.now, item) == 0
        assert await dump(desk.store) == before
    [record] = (await desk.query(state="dead")).items
    assert (await desk.types(record.id)).count("dead_lettered") == 1
    await desk.history_agrees()


@pytest.mark.clause("records.recover", "history.append")
async def test_a_clock_with_an_old_picture_changes_nothing(desk: Desk) -> None:
    """The record was settled, failed for good, renewed, released or never there when the Clock comes for it."""
    others = [await desk.publish() for _ in range(3)]
    settled, dead, renewed, released = [await desk.claim_one(seconds=5) for _ in range(4)]
    desk.pass_time(4)
    await desk.settle(ref(settled))
    await desk.fail(ref(dead), dead=True)
    await desk.renew(ref(renewed), 60)
    await desk.release(ref(released))
    desk.pass_time(1)
    before = await dump(desk.store)
    for name in [*(one.record.id for one in (settled, dead, renewed, released)), others[0].id, "rec_nobody"]:
        for due in (settled.lease.expires_at, after(desk.now, 59)):
            assert await RecordLeases().fire(desk.db(), desk.now, f"{name}@{due}") == 0
            assert await RecordDelays().fire(desk.db(), desk.now, f"{name}@{due}") == 0
    assert await dump(desk.store) == before


@pytest.mark.clause("records.recover", "history.append")
async def test_a_death_by_failing_is_not_told_again_by_the_clock_of_the_same_instant(desk: Desk) -> None:
    held = await desk.claim_one(seconds=5)
    failed = await desk.fail(ref(held), dead=True)
    before = await dump(desk.store)
    assert await RecordLeases().fire(desk.db(), desk.now, f"{failed.id}@{held.lease.expires_at}") == 0
    assert await dump(desk.store) == before


@pytest.mark.clause("records.recover", "records.claim")
async def test_a_delay_ends_once(desk: Desk) -> None:
    record = await desk.publish(not_before=after(desk.now, 5))
    item = f"{record.id}@{record.not_before}"
    desk.pass_time(4.999)
    assert await RecordDelays().fire(desk.db(), desk.now, item) == 0
    desk.pass_time(0.001)
    assert await RecordDelays().fire(desk.db(), desk.now, item) == 1
    before = await dump(desk.store)
    assert await RecordDelays().fire(desk.db(), desk.now, item) == 0
    assert await dump(desk.store) == before
    assert (await desk.get(record.id)).not_before is None
    await desk.history_agrees()


@pytest.mark.clause("records.recover", "store.atomic")
async def test_two_clocks_at_once_fire_each_item_once(desk: Desk) -> None:
    await desk.publish_all([Draft(KIND, {"size": number}) for number in range(29)])
    held = await desk.claim(limit=30, seconds=5)
    desk.pass_time(5)
    other = desk.seen_by(desk.caller)
    counts = await asyncio.gather(desk.fire(), other.fire())
    assert sum(count.get("lease_expired", 0) for count in counts) == len(held)
    assert [record.attempts for record in (await desk.query(state="ready")).items] == [1] * 30
    await desk.history_agrees()


@pytest.mark.clause("records.recover", "leases.renew")
async def test_a_renewal_that_races_the_clock_wins_or_is_told_that_it_lost(desk: Desk) -> None:
    held = await desk.claim_one(seconds=5)
    desk.pass_time(5)
    other = desk.seen_by(desk.caller)
    renewed, fired = await asyncio.gather(other.renew(ref(held)), desk.fire(), return_exceptions=True)
    assert isinstance(renewed, LeaseExpired)
    assert fired == {"lease_expired": 1}


@pytest.mark.clause("timers.alarm")
async def test_the_alarm_is_for_the_earliest_of_leases_and_delays(desk: Desk) -> None:
    await desk.publish(not_before=after(desk.now, 50))
    await desk.publish(not_before=after(desk.now, 40))
    await desk.claim_one(seconds=45)
    due = [after(desk.now, seconds) for seconds in (40, 45, 50)]
    for instant in due:
        assert await desk.next_due() == instant
        desk.now = instant
        await desk.fire()
    assert await desk.next_due() is None

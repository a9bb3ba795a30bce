"""However calls interleave, the alarm is armed for the earliest instant asked."""

import asyncio
import random

import pytest

from moorage.edge.arming import FARTHEST_MS, LOST_MS, SOON_MS, Alarm, KnownAlarms
from moorage.kernel.instants import Instant


class Stored:
    """An alarm whose reads and writes end in any order, as a Durable Object's do; writes take effect when asked."""

    def __init__(self, chance: random.Random, at: int | None = None) -> None:
        self.at = at
        self.sets = 0
        self._chance = chance

    async def get(self) -> int | None:
        found = self.at
        await self._wait()
        return found

    async def set(self, at: int) -> None:
        self.at = at
        self.sets += 1
        await self._wait()

    async def _wait(self) -> None:
        for _ in range(self._chance.randrange(5)):
            await asyncio.sleep(0)


@pytest.mark.clause("timers.alarm")
@pytest.mark.parametrize("seed", range(50))
async def test_of_many_calls_at_once_the_earliest_wins(seed: int) -> None:
    chance = random.Random(seed)
    before = chance.choice([None, 1500, 999_999])
    stored = Stored(chance, before)
    alarm = Alarm(stored, lambda: 1000)
    asked = [chance.randrange(1000, 100_000) for _ in range(20)]
    answers = await asyncio.gather(*(alarm.arm(at) for at in asked))
    assert stored.at == min(asked + ([before] if before else []))
    assert all(answer <= at for answer, at in zip(answers, asked, strict=True))


@pytest.mark.clause("timers.alarm")
async def test_a_later_instant_leaves_the_alarm_alone_and_costs_no_write() -> None:
    stored = Stored(random.Random(0))
    alarm = Alarm(stored, lambda: 0)
    assert [await alarm.arm(at) for at in (50, 60, 50, 70)] == [50, 50, 50, 50]
    assert (stored.at, stored.sets) == (50, 1)


@pytest.mark.clause("timers.alarm")
async def test_a_rearming_after_a_drain_does_not_undo_a_call_that_came_meanwhile() -> None:
    stored = Stored(random.Random(0))
    alarm = Alarm(stored, lambda: 100)
    await alarm.arm(100)
    stored.at = None
    alarm.rang()
    await alarm.arm(150)
    assert await alarm.arm(900) == 150
    assert stored.at == 150


@pytest.mark.clause("timers.alarm")
@pytest.mark.parametrize("known_before", [True, False])
async def test_an_alarm_that_never_rang_is_not_relied_upon(known_before: bool) -> None:
    now = 0
    stored = Stored(random.Random(0), None if known_before else 10)
    alarm = Alarm(stored, lambda: now)
    if known_before:
        await alarm.arm(10)
    now = 10 + LOST_MS
    assert await alarm.arm(90_000) == 10
    now += 1
    assert await alarm.arm(90_000) == 90_000
    assert stored.at == 90_000


@pytest.mark.clause("timers.alarm")
@pytest.mark.parametrize("ahead", [FARTHEST_MS, FARTHEST_MS + 1, 2**31, 2**33, 253_402_300_799_999])
async def test_what_is_far_ahead_is_armed_for_in_stages_and_never_early(ahead: int) -> None:
    now, wanted = 1_800_000_000_000, 1_800_000_000_000 + ahead
    stored = Stored(random.Random(0))
    alarm = Alarm(stored, lambda: now)
    first = await alarm.arm(wanted)
    assert stored.at == first == now + FARTHEST_MS
    # An alarm that rings before its time arms anew; that it is asked often in between costs no write.
    assert [await alarm.arm(wanted) for _ in range(3)] == [first] * 3
    assert stored.sets == 1
    if ahead > FARTHEST_MS:
        now = first
        alarm.rang()
        stored.at = None
        assert await alarm.arm(wanted) == min(wanted, first + FARTHEST_MS)


@pytest.mark.clause("timers.alarm")
def test_a_clock_that_rings_before_need_not_be_told_unless_that_is_just_now_or_another_shards() -> None:
    known, now = KnownAlarms(), Instant(1000)
    assert not known.ring_before(Instant(5000), "time", now)
    known.learn("time", 5000)
    assert known.ring_before(Instant(5000), "time", now)
    assert not known.ring_before(Instant(4999), "time", now)
    assert not known.ring_before(Instant(5000), "runs", now)
    assert not known.ring_before(Instant(5000), "time", Instant(5000 - SOON_MS))
    assert known.ring_before(Instant(5000), "time", Instant(5000 - SOON_MS - 1))
    known.learn("time", 900)
    assert not known.ring_before(Instant(5000), "time", now)
    known.learn("time", 5000)
    known.forget()
    assert not known.ring_before(Instant(5000), "time", now)

"""Whom a Bell wakes, and when. Time is the loop's own, so that waiting takes none."""

import asyncio
from dataclasses import replace

import pytest

from moorage.kernel.errors import StorageBindingUnavailable
from moorage.timers.bell import (
    EARLY_SECONDS,
    EXPECTED_SECONDS,
    MARGIN_SECONDS,
    QUIET_SECONDS,
    RESCAN_SECONDS,
    Bell,
    Heard,
    Look,
    Quiet,
    Ring,
    Seen,
    Wish,
    Woken,
)
from tests.unit.timers.virtual import run

Wait = asyncio.Task[Woken]


class Tower:
    """A Bell with a database that tests change. It has stood for long enough to remember whatever rang."""

    def __init__(self) -> None:
        self.shows = Look(0, ready=False)
        self.looks = 0
        self.fails = False
        loop = asyncio.get_running_loop()
        start = loop.time()
        self.bell = Bell("b", lambda: loop.time() - start, self.look)

    async def look(self) -> Look:
        self.looks += 1
        if self.fails:
            raise StorageBindingUnavailable
        return self.shows

    async def park(self, *wishes: Wish) -> list[Wait]:
        """One wait after the other, in this order."""
        await asyncio.sleep(2 * MARGIN_SECONDS)
        waits = []
        for wish in wishes:
            waits.append(asyncio.create_task(self.bell.wait(wish)))
            await asyncio.sleep(0)
        return waits


def claim(group: str = "any", **changes: object) -> Wish:
    return replace(Wish(25, group), **changes)  # type: ignore[arg-type]


async def woken(waits: list[Wait]) -> list[int]:
    """The numbers of the waits that are over, once everything has happened that happens at this instant."""
    for _ in range(5):
        await asyncio.sleep(0)
    return [number for number, wait in enumerate(waits) if wait.done()]


@pytest.mark.clause("records.claim-wait")
def test_a_ring_of_k_wakes_the_k_oldest() -> None:
    async def main() -> None:
        tower = Tower()
        waits = await tower.park(*[claim()] * 200)
        tower.bell.ring(Ring(ready=3))
        assert await woken(waits) == [0, 1, 2]
        tower.bell.ring(Ring(ready=2))
        assert await woken(waits) == [0, 1, 2, 3, 4]
        assert {wait.result().reason for wait in waits if wait.done()} == {"ring"}
        tower.bell.ring(Ring(ready=500))
        assert len(await woken(waits)) == 200
        assert tower.bell.heard.claims == 0

    run(main())


@pytest.mark.clause("records.claim-wait")
def test_each_pattern_has_its_own_share_of_a_ring() -> None:
    async def main() -> None:
        tower = Tower()
        waits = await tower.park(claim("a"), claim("a"), claim("b"), claim("a"), claim("c"))
        tower.bell.ring(Ring(ready=1))
        assert await woken(waits) == [0, 2, 4]

    run(main())


@pytest.mark.clause("records.claim-wait")
def test_who_parks_again_keeps_its_place() -> None:
    async def main() -> None:
        tower = Tower()
        waits = await tower.park(claim(), claim(), claim())
        tower.bell.ring(Ring(ready=1))
        await woken(waits)
        first = waits[0].result()
        (again,) = await tower.park(claim(seen=first.seen, place=first.place))
        tower.bell.ring(Ring(ready=1))
        assert await woken([again, *waits[1:]]) == [0]

    run(main())


@pytest.mark.clause("records.claim-wait")
def test_a_ring_between_reading_and_parking_is_not_missed_and_serves_one() -> None:
    async def main() -> None:
        tower = Tower()
        await asyncio.sleep(2 * MARGIN_SECONDS)
        tower.bell.ring(Ring(ready=1))
        await asyncio.sleep(3)
        late = [claim(age_seconds=2.5), claim(age_seconds=2.5), claim(age_seconds=0.1)]
        waits = [asyncio.create_task(tower.bell.wait(wish)) for wish in late]
        assert await woken(waits) == [0]
        assert tower.bell.heard.claims == 2

    run(main())


@pytest.mark.clause("records.claim-wait")
def test_a_ring_that_woke_another_sends_nobody_back() -> None:
    async def main() -> None:
        tower = Tower()
        waits = await tower.park(claim())
        tower.bell.ring(Ring(ready=1))
        assert await woken(waits) == [0]
        assert await woken([asyncio.create_task(tower.bell.wait(claim(age_seconds=1)))]) == []
        assert await woken([asyncio.create_task(tower.bell.wait(claim("other", age_seconds=1)))]) == [0]

    run(main())


@pytest.mark.clause("records.claim-wait", "history.watch")
def test_a_bell_that_cannot_know_sends_back_at_once() -> None:
    async def main() -> None:
        tower = Tower()
        young = await tower.bell.wait(claim())
        assert young.reason == "ring"
        await asyncio.sleep(100)
        for wish in (claim(seen=Seen("another", 0)), Wish(25, seen=Seen("another", 7))):
            assert (await tower.bell.wait(wish)).seen == Seen("b", 0)
        for _ in range(1500):
            tower.bell.ring(Ring())
        assert (await tower.bell.wait(claim(seen=Seen("b", 3)))).reason == "ring"
        assert await woken([asyncio.create_task(tower.bell.wait(claim(seen=Seen("b", 600))))]) == []

    run(main())


@pytest.mark.clause("history.watch")
def test_every_ring_wakes_every_watch_and_a_ring_of_nothing_no_claim() -> None:
    async def main() -> None:
        tower = Tower()
        waits = await tower.park(Wish(25), claim(), Wish(25))
        assert tower.bell.ring(Ring()) == Heard(claims=1, bounded=0, watches=2)
        assert await woken(waits) == [0, 2]
        seen = waits[0].result().seen
        tower.bell.ring(Ring(freed=1))
        assert (await tower.bell.wait(Wish(25, seen=seen))).reason == "ring"
        assert await woken(waits) == [0, 2]

    run(main())


@pytest.mark.clause("records.claim-wait")
def test_the_end_of_a_claim_wakes_one_where_claims_are_bounded() -> None:
    async def main() -> None:
        tower = Tower()
        waits = await tower.park(claim(), claim(bounded=True), claim(bounded=True))
        assert tower.bell.ring(Ring(freed=1)) == Heard(claims=3, bounded=2, watches=0)
        assert await woken(waits) == [1]

    run(main())


@pytest.mark.clause("records.claim-wait")
@pytest.mark.parametrize("number", [1, 200])
def test_idle_waiting_costs_one_look_for_all_every_rescan_and_ends_in_time(number: int) -> None:
    async def main() -> None:
        tower = Tower()
        start = asyncio.get_running_loop().time() + 2 * MARGIN_SECONDS
        waits = await tower.park(*[claim()] * number)
        results = await asyncio.gather(*waits)
        assert asyncio.get_running_loop().time() - start == pytest.approx(25)
        assert {result.reason for result in results} == {"timeout"}
        assert tower.looks == 25 // RESCAN_SECONDS
        assert sum(result.trips for result in results) == tower.looks
        assert tower.bell.heard.claims == 0

    run(main())


@pytest.mark.clause("records.claim-wait")
def test_a_lost_ring_is_made_good_by_the_next_look_one_of_each_pattern() -> None:
    async def main() -> None:
        tower = Tower()
        waits = await tower.park(claim("a"), claim("a"), claim("b"))
        await asyncio.sleep(1)
        tower.shows = Look(5, ready=True)
        await asyncio.sleep(RESCAN_SECONDS - 1.1)
        assert await woken(waits) == []
        await asyncio.sleep(0.2)
        assert await woken(waits) == [0, 2]
        assert waits[0].result().reason == "scan"

    run(main())


@pytest.mark.clause("records.claim-wait")
def test_a_claim_that_its_rate_holds_back_asks_for_one_look_for_all() -> None:
    async def main() -> None:
        tower = Tower()
        tower.shows = Look(5, ready=True)
        waits = await tower.park(*(claim(look_in=2, seen=Seen("b", 0), place=place) for place in range(50)))
        await asyncio.sleep(1.9)
        assert await woken(waits) == []
        await asyncio.sleep(0.2)
        assert (await woken(waits), tower.looks) == ([0], 1)
        tower.bell.ring(Ring(ready=1, again=True))
        assert await woken(waits) == [0, 1]
        assert waits[1].result().reason == "scan"

    run(main())


@pytest.mark.clause("history.watch")
def test_a_look_wakes_the_watches_that_stand_behind() -> None:
    async def main() -> None:
        tower = Tower()
        tower.shows = Look(7, ready=True)
        waits = await tower.park(Wish(25, position=7), Wish(25, position=6))
        await asyncio.sleep(RESCAN_SECONDS + 0.1)
        assert await woken(waits) == [1]
        assert tower.looks == 1

    run(main())


@pytest.mark.clause("history.watch")
def test_a_watch_that_was_reading_when_a_ring_was_heard_by_nobody_looks_again_early() -> None:
    async def main() -> None:
        tower = Tower()
        (first,) = await tower.park(Wish(25))
        tower.bell.ring(Ring(ready=1))
        seen = (await first).seen
        tower.bell.ring(Ring())
        again = await tower.bell.wait(Wish(25, position=1, seen=seen))
        assert again.reason == "ring"
        # What follows within EARLY_SECONDS may be left out by whoever rang.
        tower.shows = Look(2, ready=False)
        waits = [asyncio.create_task(tower.bell.wait(Wish(25, position=1, seen=again.seen)))]
        await asyncio.sleep(EARLY_SECONDS + 0.1)
        assert await woken(waits) == [0]

    run(main())


@pytest.mark.clause("history.watch", "records.claim-wait")
def test_a_look_that_fails_is_taken_for_nothing_new() -> None:
    async def main() -> None:
        tower = Tower()
        tower.fails = True
        waits = await tower.park(claim(), claim())
        assert {result.reason for result in await asyncio.gather(*waits)} == {"timeout"}

    run(main())


def test_a_wait_that_is_given_up_leaves_nothing_behind() -> None:
    async def main() -> None:
        tower = Tower()
        waits = await tower.park(claim(), Wish(25))
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        assert tower.bell.heard == Heard(0, 0, 0)

    run(main())


class Hands:
    """A clock that tests turn."""

    def __init__(self) -> None:
        self.now = 0.0
        self.quiet = Quiet(lambda: self.now)


NOBODY = Heard(claims=0, bounded=0, watches=0)


@pytest.mark.parametrize(
    ("heard", "left_out"),
    [
        (NOBODY, {"ready", "freed", "nothing"}),
        (Heard(claims=1, bounded=0, watches=0), {"freed", "nothing"}),
        (Heard(claims=1, bounded=1, watches=0), set()),
        (Heard(claims=0, bounded=0, watches=1), set()),
    ],
)
def test_only_what_nobody_would_hear_is_left_out_and_not_for_long(heard: Heard, left_out: set[str]) -> None:
    hands = Hands()
    rings = {"ready": Ring(ready=1), "freed": Ring(freed=1), "nothing": Ring()}

    def covered(kind: str) -> set[str]:
        return {name for name, ring in rings.items() if hands.quiet.covers(kind, ring)}

    assert covered("a") == set()
    hands.quiet.learn("a", heard)
    assert covered("a") == left_out
    assert covered("b") == set()
    hands.now += QUIET_SECONDS
    assert covered("a") == set()


@pytest.mark.clause("records.claim-wait", "history.watch")
def test_who_is_about_to_wait_here_is_always_rung_for() -> None:
    hands = Hands()
    hands.quiet.learn("a", NOBODY)
    assert hands.quiet.covers("a", Ring(ready=1))
    hands.quiet.expect("a")
    hands.now += EXPECTED_SECONDS - 1
    hands.quiet.learn("a", NOBODY)
    assert not hands.quiet.covers("a", Ring(ready=1))
    assert not hands.quiet.covers("a", Ring())


@pytest.mark.clause("records.claim-wait", "history.watch")
@pytest.mark.parametrize("wish", [claim(age_seconds=-1), claim(bounded=True, age_seconds=-1), Wish(25, age_seconds=-1)])
def test_who_parks_soon_after_a_ring_that_nobody_heard_looks_early(wish: Wish) -> None:
    async def main() -> None:
        tower = Tower()
        await asyncio.sleep(2 * EARLY_SECONDS)
        tower.bell.ring(Ring())
        await asyncio.sleep(0.4)
        waiting = asyncio.create_task(tower.bell.wait(wish))
        await asyncio.sleep(0)
        tower.shows = Look(1, ready=True)
        await asyncio.sleep(EARLY_SECONDS + 0.1)
        assert (await woken([waiting]), tower.looks) == ([0], 1)

    run(main())


@pytest.mark.clause("records.claim-wait")
def test_a_ring_that_a_claim_hears_makes_no_other_look_early() -> None:
    async def main() -> None:
        tower = Tower()
        waits = await tower.park(claim())
        tower.bell.ring(Ring())
        waits += await tower.park(claim())
        await asyncio.sleep(EARLY_SECONDS + 0.1)
        assert (await woken(waits), tower.looks) == ([], 0)

    run(main())

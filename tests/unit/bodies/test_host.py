"""Stops, lost leases, the keeper, and bodies that will not be stopped."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from moorage.bodies import Run, body, each
from moorage.bodies.declare import Each
from moorage.bodies.observe import Report
from moorage.journal.model import Fence, Lease
from moorage.kernel.errors import StorageBindingUnavailable
from moorage.runs.model import Stop
from moorage.runs.observing import RunChange
from tests.unit.bodies.clock import START
from tests.unit.bodies.world import World

EFFECTS: list[str | Each] = [each("one"), "hang", "late", "ask"]


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def hanging(run: Run, where: str) -> Any:
    match where:
        case "effect":
            await run.step("hang", forever)
        case "sleep":
            await run.sleep(0.9)
            await run.sleep(0.9)
        case "gather":
            await run.gather(run.step("hang", forever), run.step("one", forever, input=1), run.sleep(10))
        case "first":
            await run.first(run.step("hang", forever), run.sleep(10))
        case "timeout":
            await run.step("hang", forever, timeout=1000)


@body("hangs", effects=EFFECTS)
async def hangs(run: Run, where: str) -> Any:
    await run.step("one", lambda: 1, input=0)
    try:
        await hanging(run, where)
    finally:
        # What a body does on its way out is refused: it has been stopped.
        await run.step("late", lambda: 2)


async def begin(world: World, name: str, given: Any = None, *, rounds: int = 40) -> "asyncio.Task[str]":
    task: asyncio.Task[Any] = world.host.start(world.memory.open(name, given))
    for _ in range(rounds):
        await asyncio.sleep(0)
    await asyncio.sleep(0.005)
    return task


@pytest.mark.clause(
    "runs.one-token", "runs.poll", "runs.cancel-keeps-effects", "runs.distinct-canceled", "runs.resumable-remains"
)
@pytest.mark.parametrize("where", ["effect", "sleep", "gather", "first", "timeout"])
@pytest.mark.parametrize("poked", [True, False])
async def test_a_stop_ends_whatever_the_run_is_at_within_half_a_second(where: str, poked: bool) -> None:
    world = World(hangs)
    task = await begin(world, "hangs", where)
    assert world.row.status == "running"
    asked = world.clock.now()
    world.row.stop = Stop(asked, "run")
    if poked:
        assert world.host.stop("exe_1")
    assert await world.clock.drive(task) == "canceled"
    assert world.clock.now() - asked <= 500
    assert world.row.status == "canceled"
    assert world.row.error is None
    assert "late" not in world.entries()
    assert world.entries("done")[0] == "one"
    if where not in ("sleep",):
        # The effect that had begun stays visible as begun; the view shows its step as failed by the stop.
        assert "hang" in world.entries("pending")
        assert world.told.steps("hang")[-1].error == {"tag": "Canceled", "message": "the run was stopped"}
    assert isinstance(world.told.changes[-1], RunChange)
    assert world.told.changes[-1].status == "canceled"
    assert not world.host.busy


async def test_a_stop_that_was_asked_for_before_it_began_runs_nothing() -> None:
    world = World(hangs)
    execution = world.memory.open("hangs", "effect")
    from dataclasses import replace

    assert await world.clock.drive(world.host.run(replace(execution, stop=Stop(START, "run")))) == "canceled"
    assert not world.row.entries


@pytest.mark.clause("runs.abandoned")
async def test_a_body_that_swallows_its_cancellation_is_abandoned() -> None:
    effects: list[int] = []
    released: list[bool] = []

    @body("stubborn", effects=EFFECTS)
    async def stubborn(run: Run) -> None:
        for index in range(100_000):
            if released:
                return
            try:
                await run.step("one", forever, input=index)
            except BaseException:
                effects.append(index)

    world = World(stubborn)
    task = await begin(world, "stubborn")
    world.host.stop("exe_1")
    assert await world.clock.drive(task) == "canceled"
    assert world.row.status == "canceled"
    assert len(effects) < 20
    released.append(True)


@pytest.mark.clause("runs.abandoned")
async def test_who_lost_its_lease_lets_go_at_once_and_sends_nothing_more() -> None:
    world = World(hangs)
    task = await begin(world, "hangs", "effect")
    world.row.epoch += 1
    world.row.owner = "somebody else"
    assert await world.clock.drive(task) == "lost"
    assert world.row.status == "running"
    calls = world.memory.calls
    await asyncio.sleep(0.01)
    assert world.memory.calls == calls
    assert world.clock.now() - START <= 15_500


async def test_a_write_that_is_fenced_loses_the_run() -> None:
    @body("two", effects=EFFECTS)
    async def two(run: Run) -> int:
        await run.step("one", lambda: take_away(), input=1)
        try:
            return await run.step("one", lambda: 2, input=2)
        except BaseException:
            return await run.step("one", lambda: 3, input=3)

    def take_away() -> int:
        world.row.epoch += 1
        return 1

    world = World(two)
    assert await world.run("two") == "lost"
    assert [batch[-1].op for batch in world.memory.applied] == ["claim"]


@pytest.mark.clause("runs.owner-lease")
async def test_a_long_effect_keeps_its_lease_and_all_share_one_round_trip() -> None:
    renewed: list[int] = []
    finish: list[asyncio.Future[None]] = []

    async def long() -> int:
        future = asyncio.get_running_loop().create_future()
        finish.append(future)
        await future
        return 1

    @body("long", effects=EFFECTS)
    async def long_body(run: Run) -> int:
        return await run.step("hang", long)

    world = World(long_body)
    renew = world.memory.renew

    async def counted(fences: Sequence[Fence]) -> dict[str, Lease]:
        renewed.append(len(fences))
        if len(renewed) == 2:
            raise StorageBindingUnavailable
        return await renew(fences)

    world.memory.renew = counted  # type: ignore[method-assign]
    tasks = [world.host.start(world.memory.open("long", name=f"exe_{index}")) for index in range(20)]
    while len(renewed) < 8:
        await world.clock.drive(asyncio.sleep(0))
        world.clock.advance_to(world.clock.now() + 500)
    for future in finish:
        future.set_result(None)
    await world.clock.drive(asyncio.wait(tasks))
    assert {task.result() for task in tasks} == {"success"}
    assert set(renewed) == {20}
    assert world.clock.now() - START > 60_000


async def test_a_look_that_fails_only_warns(caplog: pytest.LogCaptureFixture) -> None:
    world = World(hangs)
    looks: list[int] = []

    async def broken(fences: Sequence[Fence]) -> dict[str, Stop]:
        looks.append(len(fences))
        if len(looks) == 1:
            raise StorageBindingUnavailable
        if len(looks) == 2:
            raise ZeroDivisionError
        return {fence.execution_id: Stop(START, "run") for fence in fences}

    world.memory.stops = broken  # type: ignore[method-assign]
    with caplog.at_level(logging.WARNING):
        assert await world.clock.drive(world.host.run(world.memory.open("hangs", "effect"))) == "canceled"
    assert len(looks) == 3


async def test_a_wake_of_what_is_not_in_hand_takes_it() -> None:
    @body("asks", effects=EFFECTS)
    async def asks(run: Run) -> Any:
        return await (await run.awakeable("ask", ttl=1000))

    world = World(asks)
    await world.run("asks")
    (ref,) = [entry.ref for entry in world.row.entries.values() if entry.kind == "wait"]
    world.memory.end(str(ref), {"resolved": 1})
    task = world.host.wake("exe_1")
    assert task is not None
    assert world.host.busy
    assert await world.clock.drive(task) == "success"


async def test_a_wake_reaches_a_run_whose_other_branch_is_at_work() -> None:
    done: list[asyncio.Future[None]] = []

    @body("asks", effects=EFFECTS)
    async def asks(run: Run) -> Any:
        async def ask() -> Any:
            found = await (await run.awakeable("ask", ttl=1000))
            done[0].set_result(None)
            return found

        async def work() -> None:
            done.append(asyncio.get_running_loop().create_future())
            await done[0]

        return await run.gather(ask(), run.step("hang", work))

    world = World(asks)
    task = await begin(world, "asks")
    (ref,) = [entry.ref for entry in world.row.entries.values() if entry.kind == "wait"]
    world.memory.end(str(ref), {"resolved": 5})
    assert world.host.wake("exe_1") is task
    assert await world.clock.drive(task) == "success"
    assert world.row.result == [5, None]
    assert world.clock.now() - START < 1000


async def test_another_build_or_an_unknown_body_is_not_run() -> None:
    from dataclasses import replace

    from moorage.runs.model import Pins

    world = World(hangs)
    execution = world.memory.open("hangs", "effect")
    other = replace(execution.pins.build, implementation="0" * 64)
    assert await world.host.run(replace(execution, pins=Pins(other, execution.pins.input))) == "lost"
    assert await world.host.run(replace(execution, body="nobody")) == "lost"
    assert world.memory.calls == 0


async def test_spans_are_told_once_at_the_end() -> None:
    reports: list[Report] = []

    class Spans:
        def closed(self, report: Report) -> None:
            reports.append(report)
            raise RuntimeError("never mind")

    @body("two", effects=EFFECTS)
    async def two(run: Run) -> int:
        return sum(await run.gather(*(run.step("one", lambda: 1, input=index) for index in range(3))))

    world = World(two, spans=Spans())
    assert await world.run("two") == "success"
    (report,) = reports
    assert report.status == "success"
    assert [(step.label, step.status) for step in report.steps] == [("one", "success")] * 3


@pytest.mark.clause("runs.abandoned")
@pytest.mark.parametrize("ending", ["close", "suspend", "record"])
async def test_who_is_fenced_while_it_lets_go_says_that_it_lost(ending: str) -> None:
    @body("ends", effects=EFFECTS)
    async def ends(run: Run) -> int:
        await run.step("one", lambda: 1, input=1)
        if ending == "suspend":
            await run.sleep(100)
        if ending == "record":
            await run.gather(run.step("one", lambda: 1, input=2), run.step("hang", forever))
        return 1

    world = World(ends)
    reports: list[Report] = []

    async def taken_away() -> None:
        if world.memory.calls == (3 if ending == "record" else 2):
            world.row.epoch += 1

    world.memory.latency = taken_away
    assert await world.run("ends") == "lost"
    assert world.row.status == "running"
    assert not reports


async def test_a_database_that_stays_away_ends_the_attempt_and_another_one_goes_on() -> None:
    @body("ends", effects=EFFECTS)
    async def ends(run: Run) -> int:
        return await run.step("one", lambda: 1, input=1) + await run.step("one", lambda: 1, input=2)

    for first in (1, 2, 3):
        world = World(ends)
        world.memory.fail_before = set(range(first, first + 6))
        assert await world.run("ends") == "lost", first
        assert world.row.status == "running"
        world.memory.lapse()
        assert await world.again() == "success"
        assert world.row.result == 2


async def test_a_host_whose_clock_is_ahead_does_not_spin() -> None:
    from moorage.bodies import Failed, Retry
    from moorage.kernel.instants import Instant

    tries: list[int] = []

    @body("skewed", effects=EFFECTS, retry=Retry(base_ms=400, jitter_ms=0))
    async def skewed(run: Run) -> int:
        def once() -> int:
            tries.append(1)
            if len(tries) == 1:
                raise Failed("Transient", "not yet")
            return 1

        return await run.step("one", once, input=1)

    world = World(skewed)
    host = world.another_host(now=lambda: Instant(world.clock.now() + 1000))
    assert await world.clock.drive(host.run(world.memory.open("skewed"))) == "success"
    assert world.memory.calls < 20


@pytest.mark.clause("runs.wake", "waits.match")
async def test_a_wake_between_letting_go_and_being_done_is_not_lost() -> None:
    """The execution is in hand no more, and its task has not ended: whoever is woken then looks once more."""

    @body("waits", effects=["paid"])
    async def waits(run: Run) -> Any:
        return (await run.wait_event("paid", keys=["k"])).data

    class Leaving(dict[str, Any]):
        """What is in hand; as something leaves, an event comes and wakes it."""

        def pop(self, name: str, default: Any = None) -> Any:
            if not world.memory.events:
                world.memory.arrive("k", data=7)
                asyncio.get_running_loop().call_soon(world.host.wake, name)
            return super().pop(name, default)

    world = World(waits)
    world.host._held = Leaving()
    task = world.host.start(world.memory.open("waits"))
    assert await world.clock.drive(task) == "suspended"
    await asyncio.sleep(0)
    await world.clock.drive(world.host.settled())
    assert (world.row.status, world.row.result) == ("success", 7)

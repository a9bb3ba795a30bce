"""Driving executions inside one object: nothing poked is forgotten, and the alarm is set for long work only."""

import asyncio
from collections.abc import Collection
from typing import Any

from moorage.edge.driving import Driver
from moorage.journal.model import Lease, Value
from moorage.kernel.instants import Instant
from moorage.runs.model import Build, Execution, Pins, Trace


def execution(id_: str) -> Execution:
    pins = Pins(Build("b", "0" * 64), "0" * 64)
    return Execution(
        id_, "run_1", "b", "s", Lease(1, "runner:r:00", Instant(1)), pins, Value.of("null"), Trace("0" * 32, "0" * 16)
    )


class Bench:
    """A driver with a holder whose executions end when the test says so, and a clock that stands until it is let go."""

    def __init__(self) -> None:
        self.held: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.log: list[str] = []
        self.due: dict[str, int] = {}
        self.alarms = 0
        self.moments: list[asyncio.Event] = []
        self.driver = Driver(self, self.set_alarm, self.sleep)

    @property
    def busy(self) -> bool:
        return bool(self.tasks)

    @property
    def driven(self) -> Collection[str]:
        return self.tasks

    def start(self, execution: Execution) -> "asyncio.Task[Any]":
        return self.spawn(execution.execution_id, takes=False)

    def wake(self, execution_id: str) -> "asyncio.Task[Any] | None":
        if execution_id in self.held:
            self.log.append(f"wake {execution_id}")
        return self.tasks.get(execution_id) or self.spawn(execution_id, takes=True)

    async def settled(self) -> None:
        while self.tasks:
            await asyncio.wait(list(self.tasks.values()))

    def spawn(self, id_: str, *, takes: bool) -> "asyncio.Task[None]":
        task = self.tasks[id_] = asyncio.ensure_future(self.work(id_, takes))
        task.add_done_callback(lambda _: self.tasks.pop(id_))
        return task

    async def work(self, id_: str, takes: bool) -> None:
        if takes:
            self.log.append(f"take {id_}")
            await asyncio.sleep(0)
            self.due[id_] = self.due.get(id_, 0) - 1
            if self.due[id_] < 0:
                return
        self.log.append(f"run {id_}")
        self.held[id_] = asyncio.Event()
        await self.held[id_].wait()
        del self.held[id_]
        for _ in range(3):
            await asyncio.sleep(0)

    async def set_alarm(self) -> None:
        self.alarms += 1

    async def sleep(self, seconds: float) -> None:
        moment = asyncio.Event()
        self.moments.append(moment)
        await moment.wait()

    async def moment(self) -> None:
        moments, self.moments = self.moments, []
        for one in moments:
            one.set()
        await turns()


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_is_handed_over_runs_at_once() -> None:
    bench = Bench()
    bench.driver.start(execution("a"))
    await turns()
    assert bench.log == ["run a"]
    assert not await bench.driver.settle(0)
    bench.held["a"].set()
    assert await bench.driver.settle(1)


async def test_a_poke_takes_what_is_due_and_leaves_what_is_not() -> None:
    bench = Bench()
    bench.due = {"a": 1}
    assert bench.driver.poke(["b", "a"]) == []
    await turns()
    assert bench.log == ["take b", "take a", "run a"]
    bench.held["a"].set()
    assert await bench.driver.settle(1)


async def test_what_one_poke_took_is_not_looked_after_again() -> None:
    bench = Bench()
    bench.due = {"a": 2}
    bench.driver.poke(["a"])
    await turns()
    bench.held["a"].set()
    assert await bench.driver.settle(1)
    await turns()
    assert bench.log == ["take a", "run a"]


async def test_a_poke_while_it_is_being_taken_is_looked_after() -> None:
    bench = Bench()
    bench.driver.poke(["a"])
    bench.driver.poke(["a"])
    bench.due = {"a": 0}
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    bench.due = {"a": 1}  # what the second poke told of came after the first had looked
    await turns()
    assert bench.log == ["take a", "take a", "run a"]
    bench.held["a"].set()
    assert await bench.driver.settle(1)


async def test_a_poke_of_what_is_in_hand_wakes_it_and_says_so() -> None:
    bench = Bench()
    bench.driver.start(execution("a"))
    await turns()
    assert bench.driver.poke(["a"]) == ["a"]
    bench.held["a"].set()
    assert await bench.driver.settle(1)
    assert bench.log == ["run a", "wake a"]


async def test_a_poke_while_it_is_being_let_go_of_is_not_lost() -> None:
    bench = Bench()
    bench.driver.start(execution("a"))
    await turns()
    bench.held["a"].set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert "a" not in bench.held
    assert "a" in bench.tasks  # neither in hand any more, nor gone
    bench.due = {"a": 1}
    bench.driver.poke(["a"])
    await turns()
    assert bench.log == ["run a", "take a", "run a"]


async def test_short_work_sets_no_alarm_and_long_work_one() -> None:
    bench = Bench()
    bench.driver.start(execution("a"))
    await turns()
    bench.held["a"].set()
    await turns()
    bench.driver.start(execution("b"))
    await turns()
    await bench.moment()
    assert bench.alarms == 0  # all through this moment was neither of them
    await bench.moment()
    assert bench.alarms == 1
    await bench.moment()
    assert bench.alarms == 1
    ringing = asyncio.ensure_future(bench.driver.alarm())
    await turns()
    assert not ringing.done()
    bench.held["b"].set()
    await ringing
    assert bench.alarms == 1


async def test_an_alarm_without_work_ends_at_once() -> None:
    bench = Bench()
    await bench.driver.alarm()
    assert (bench.alarms, bench.log) == (0, [])


async def test_an_alarm_that_stayed_long_enough_rings_again() -> None:
    bench = Bench()
    bench.driver.start(execution("a"))
    await turns()
    bench.driver.settle = no_patience  # type: ignore[method-assign]
    await bench.driver.alarm()
    assert bench.alarms == 1


async def no_patience(seconds: float) -> bool:
    assert seconds > 60
    return False

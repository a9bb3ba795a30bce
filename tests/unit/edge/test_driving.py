"""Driving executions inside one object: each is held once, none is forgotten, and the alarm is set for long work only."""

import asyncio
from dataclasses import replace

from moorage.edge.driving import Driver
from moorage.journal.model import Lease, Value
from moorage.kernel.instants import Instant
from moorage.runs.protocol import Build, Execution, Pins, Trace


def execution(id_: str) -> Execution:
    pins = Pins(Build("b", "0" * 64), "0" * 64)
    return Execution(
        id_, "run_1", "b", "s", Lease(1, "runner:r:00", Instant(1)), pins, Value.of("null"), Trace("0" * 32, "0" * 16)
    )


class Bench:
    """A driver with a holder whose executions end when the test says so, and a clock that stands until it is let go."""

    def __init__(self) -> None:
        self.running: dict[str, asyncio.Event] = {}
        self.log: list[str] = []
        self.due: dict[str, int] = {}
        self.alarms = 0
        self.moments: list[asyncio.Event] = []
        self.driver = Driver(self, self.take, self.set_alarm, self.sleep)

    async def run(self, execution: Execution) -> None:
        id_ = execution.execution_id
        self.log.append(f"run {id_}")
        self.running[id_] = asyncio.Event()
        await self.running[id_].wait()
        del self.running[id_]
        if id_ == "bad":
            raise ValueError

    def holds(self, execution_id: str) -> bool:
        return execution_id in self.running

    def wake(self, execution_id: str) -> None:
        self.log.append(f"wake {execution_id}")

    async def take(self, execution_id: str) -> Execution | None:
        self.log.append(f"take {execution_id}")
        await asyncio.sleep(0)
        left = self.due.get(execution_id, 0)
        self.due[execution_id] = left - 1
        return replace(execution(execution_id), run_id="run_2") if left > 0 else None

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


async def test_what_is_handed_over_runs_at_once_and_once() -> None:
    bench = Bench()
    bench.driver.start(execution("a"))
    bench.driver.start(execution("a"))
    await turns()
    assert bench.log == ["run a"]
    assert bench.driver.busy
    assert not await bench.driver.settle(0)
    bench.running["a"].set()
    assert await bench.driver.settle(1)
    assert not bench.driver.busy


async def test_a_poke_takes_what_is_due_and_leaves_what_is_not() -> None:
    bench = Bench()
    bench.due = {"a": 1}
    bench.driver.poke(["a", "b"])
    await turns()
    assert bench.log == ["take a", "take b", "run a"]
    bench.running["a"].set()
    assert await bench.driver.settle(1)
    assert bench.log == ["take a", "take b", "run a"]


async def test_a_poke_of_what_is_held_wakes_it_and_is_looked_at_again_once_it_was_let_go() -> None:
    bench = Bench()
    bench.due = {"a": 2}
    bench.driver.start(execution("a"))
    await turns()
    bench.driver.poke(["a"])
    bench.driver.poke(["a"])
    assert bench.log == ["run a", "wake a", "wake a"]
    bench.running["a"].set()
    await turns()
    assert bench.log == ["run a", "wake a", "wake a", "take a", "run a"]
    bench.running["a"].set()
    assert await bench.driver.settle(1)
    assert bench.log[-1] == "run a"


async def test_a_poke_while_it_is_being_taken_is_not_lost() -> None:
    bench = Bench()
    bench.driver.poke(["a"])
    bench.driver.poke(["a"])
    assert await bench.driver.settle(1)
    assert bench.log == ["take a", "take a"]


async def test_what_raises_is_let_go_and_stops_nothing_else() -> None:
    bench = Bench()
    bench.driver.start(execution("bad"))
    bench.driver.start(execution("good"))
    await turns()
    bench.running["bad"].set()
    await turns()
    assert list(bench.running) == ["good"]
    bench.running["good"].set()
    assert await bench.driver.settle(1)


async def test_short_work_sets_no_alarm_and_long_work_one() -> None:
    bench = Bench()
    bench.driver.start(execution("a"))
    await turns()
    bench.running["a"].set()
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
    bench.running["b"].set()
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

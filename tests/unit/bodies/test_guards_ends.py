"""Ends of runs and of hosts, while an effect is in flight."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from moorage.bodies import Failed, Run, body
from moorage.kernel.errors import ExecutionGuardBlocked
from moorage.runs.model import Stop
from tests.unit.bodies.bank import WINDOW, declare
from tests.unit.bodies.harbor import begun, harbor, nothing, only_guard, paying, printing
from tests.unit.bodies.world import World

# --- ends, while something is in flight -----------------------------------------------------------------------------------


@pytest.mark.clause("runs.cancel-keeps-effects")
async def test_a_stop_ends_the_run_at_once_and_keeps_the_guard_of_what_is_in_flight() -> None:
    world, bank = harbor(printing)
    task = await begun(world, bank)
    asked = world.clock.now()
    world.row.stop = Stop(asked, "run")
    world.host.stop("exe_1")
    assert await world.clock.drive(task) == "canceled"
    assert world.clock.now() - asked <= 500
    assert world.row.status == "canceled"
    assert only_guard(world).key.label == "print"
    # Nothing of the callback is left, and what it might have recorded is nobody's.
    await asyncio.sleep(0.01)
    assert world.host.holder.in_flight == 0
    assert world.entries("pending") == ["print"]


async def test_a_stop_waits_a_moment_for_what_is_about_to_return() -> None:
    world, bank = harbor(printing)
    task = await begun(world, bank, 0.2)
    world.row.stop = Stop(world.clock.now(), "run")
    world.host.stop("exe_1")
    assert await world.clock.drive(task) == "canceled"
    assert not world.memory.watch.guards
    assert world.entries("done") == ["print"]


@pytest.mark.parametrize("function", [paying, printing])
async def test_a_deadline_takes_effect_once_the_callback_has_returned(function: Callable[[Run], Any]) -> None:
    world, bank = harbor(function, deadline_seconds=10)
    task = await begun(world, bank, 15)
    assert await world.clock.drive(task) == "failed"
    assert world.row.error is not None
    assert world.row.error["code"] == "RunDeadline"
    assert not world.memory.watch.guards
    assert world.entries("done")[-1] in ("pay", "print")


async def test_the_loser_of_a_race_is_waited_for_while_it_sends() -> None:
    async def races(run: Run) -> Any:
        index, _ = await run.first(run.effect("print", "printer", "jobs"), run.sleep(0.1))
        await run.step("before", nothing)
        return index

    world, bank = harbor(races)
    bank.during = lambda: world.clock.sleep(0.5)
    assert await world.run("pays") == "success"
    assert world.row.result == 1
    assert not world.memory.watch.guards
    assert sorted(world.entries("done")) == ["before", "print", "run.first", "run.sleep"]


async def test_the_loser_of_a_race_that_is_in_doubt_keeps_the_run_from_ending() -> None:
    async def races(run: Run) -> Any:
        index, _ = await run.first(run.effect("print", "printer", "jobs"), run.sleep(0.9))
        return index

    world, bank = harbor(races)
    bank.behave = {1: "unheard"}
    assert await world.run("pays") == "suspended"
    assert world.row.awaiting[0]["guard"] == only_guard(world).token
    assert world.row.result is None
    bank.look_after()
    assert await world.again() == "success"
    assert world.row.result == 1
    assert len(bank.asked) == 1


@pytest.mark.clause("guards.release")
async def test_a_run_that_fails_beside_a_doubt_is_not_closed() -> None:
    async def breaks(run: Run) -> Any:
        async def refuses() -> None:
            raise Failed("Invalid", "no")

        await run.gather(run.effect("print", "printer", "jobs"), run.step("before", refuses))

    world, bank = harbor(breaks)
    bank.behave = {1: "unheard"}
    assert await world.run("pays") == "suspended"
    bank.look_after()
    assert await world.again() == "failed"
    assert world.row.error is not None
    assert world.row.error["step"] == "before"


@pytest.mark.clause("guards.blocked")
async def test_a_run_does_not_end_while_an_effect_below_its_scope_is_in_flight() -> None:
    world, bank = harbor(printing)

    @body("parent", effects=[])
    async def parent(run: Run) -> str:
        return "over"

    both = World(parent, *world.registry, transport=bank.transport, secret={}.get)
    bank.memory, bank.clock = both.memory, both.clock
    declare(both.memory)
    reached = asyncio.Event()

    async def hang() -> None:
        reached.set()
        await both.clock.sleep(20)

    bank.during = hang
    below = both.host.start(both.memory.open("pays", name="exe_b", scope="job/b"))
    await both.clock.drive(reached.wait())
    above = both.host.start(both.memory.open("parent", name="exe_a", scope="job"))
    assert await both.clock.drive(above) == "suspended"
    row = both.memory.rows["exe_a"]
    assert row.awaiting[0]["guard"] == only_guard(both).token
    assert row.next_attempt_at is not None
    assert await both.clock.drive(below) == "success"
    assert await both.again("exe_a") == "success"
    assert row.result is None
    assert both.memory.rows["exe_a"].result == "over"


async def test_who_loses_its_lease_while_it_sends_leaves_the_guard_and_records_nothing() -> None:
    world, bank = harbor(printing)
    task = await begun(world, bank)
    world.row.epoch += 1
    assert await world.clock.drive(task) == "lost"
    assert only_guard(world).key.label == "print"
    assert world.host.holder.in_flight == 0
    assert world.entries("pending") == ["print"]


# --- holders --------------------------------------------------------------------------------------------------------------


@pytest.mark.clause("guards.holder-gone", "guards.replay")
async def test_what_a_host_that_left_had_in_flight_is_sent_again_under_its_key_while_the_window_covers_it() -> None:
    world, bank = harbor(paying)
    await begun(world, bank)
    first = only_guard(world)
    await world.clock.drive(world.host.close())
    # The lease has not run out; once it has, the holder must be gone as well.
    assert await world.memory.take("exe_1") is None
    world.memory.lapse()
    with pytest.raises(ExecutionGuardBlocked):
        await world.memory.take("exe_1")
    assert await world.clock.drive(world.host.leave("stopped"))
    assert world.memory.watch.holders[first.holder] is False
    bank.during = None
    world.host = world.another_host()
    assert await world.again() == "success"
    assert len(set(bank.keys)) == 1
    assert list(bank.effects.values()) == [1]


@pytest.mark.clause("guards.replay", "guards.window")
@pytest.mark.parametrize("function", [paying, printing])
async def test_after_the_window_or_without_one_it_stays_for_an_operator(function: Callable[[Run], Any]) -> None:
    world, bank = harbor(function)
    await begun(world, bank)
    await world.clock.drive(world.host.close())
    await world.clock.drive(world.host.leave("stopped"))
    world.clock.advance_to(world.clock.now() + WINDOW * 1000)
    with pytest.raises(ExecutionGuardBlocked):
        await world.memory.take("exe_1")
    assert only_guard(world).key.label in ("pay", "print")


@pytest.mark.clause("guards.holder-gone")
async def test_a_host_whose_callback_will_not_end_is_not_gone() -> None:
    async def own(run: Run) -> Any:
        async def stubborn() -> None:
            reached.set()
            while not let_go:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    continue

        return await run.effect("print", "printer", stubborn)

    reached, let_go = asyncio.Event(), []
    world, _ = harbor(own)
    world.host.start(world.memory.open("pays"))
    await world.clock.drive(reached.wait())
    [callback] = world.host.holder._callbacks
    await world.clock.drive(world.host.close())
    assert not await world.host.leave("stopped")
    assert world.memory.watch.holders == {world.host.holder.id: True}
    let_go.append(1)
    callback.cancel()
    await asyncio.wait([callback])
    assert await world.host.leave("stopped")


async def test_who_comes_back_after_leaving_is_another_holder() -> None:
    world, _bank = harbor(paying)
    assert await world.run("pays") == "success"
    first = world.host.holder.id
    assert await world.host.leave("stopped")
    assert await world.clock.drive(world.host.run(world.memory.open("pays", name="exe_2"))) == "success"
    assert world.host.holder.id != first
    assert world.memory.watch.holders == {first: False, world.host.holder.id: True}

"""Kill the host at every write and every effect, run again, and find the same (clause runs.effect-boundary)."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage.journal.model import EntryKey, idempotency_key
from moorage.kernel.instants import Instant
from moorage.runs.model import Execution
from moorage.runs.operations import Operation, Outcome, Record
from tests.unit.bodies import programs
from tests.unit.bodies.memory import Memory
from tests.unit.bodies.programs import Outside, Program, program
from tests.unit.bodies.rows import Row
from tests.unit.bodies.world import World

PATIENCE = 300

EASY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


async def survive(world: World, nodes: Program, kill: Any = None, *, again: bool = False) -> Row:
    """Run to the end on as many hosts as it takes; everything that is asked for outside is answered once the run waits."""
    memory, clock = world.memory, world.clock
    if not again:
        programs.outside = Outside()
    programs.outside.killed = memory.killed
    if kill is not None:
        kill(memory, programs.outside)
    host, execution = world.host, await memory.take("exe_1") if again else memory.open("program", nodes)
    assert execution is not None
    for _ in range(PATIENCE):
        task = host.start(execution)
        killed = asyncio.ensure_future(memory.killed.wait())
        await clock.drive(asyncio.wait({task, killed}, return_when=asyncio.FIRST_COMPLETED))
        killed.cancel()
        if memory.killed.is_set():
            memory.killed.clear()
            await clock.drive(host.close())
            host = world.another_host()
        if world.row.status in ("success", "failed", "canceled"):
            break
        if world.row.owner is not None:
            clock.advance_to(world.row.expires_at)
        elif world.row.status == "waiting" and world.row.next_attempt_at is not None:
            clock.advance_to(world.row.next_attempt_at)
        else:
            for entry in list(world.row.entries.values()):
                if entry.kind == "wait" and entry.state == "pending" and entry.ref is not None:
                    memory.end(entry.ref, {"resolved": entry.ref})
        taken = await memory.take("exe_1")
        assert taken is not None, world.row
        execution = taken
    else:
        raise AssertionError(f"not at its end: {world.row}")
    await clock.drive(host.close())
    return world.row


def check_effects(row: Row, calls: list[tuple[str, int, int]], kills: int) -> None:
    """One idempotency key for each effect, and it began as often as it was claimed, but for claims that a kill cut short."""
    entries = {idempotency_key("exe_1", one.key): one for one in row.entries.values() if one.kind == "step"}
    assert len({number for _, number, _ in calls}) == len({key for key, _, _ in calls})
    for key, entry in entries.items():
        began = [attempt for found, _, attempt in calls if found == key]
        assert began == sorted(set(began)), "an attempt began twice"
        assert entry.attempt - kills <= len(began) <= entry.attempt
    assert {key for key, _, _ in calls} <= set(entries)


async def replayed(nodes: Program, row: Row, world: World) -> tuple[Any, int]:
    """The result of one more pass over what was recorded, and how many effects it began."""
    programs.outside = Outside()
    world.memory.kill_at = None
    execution = replace(row.execution, entries=tuple(row.entries.values()))
    row.epoch, row.owner, row.expires_at = 1, "host", Instant(execution.lease.expires_at + 10**12)
    assert await world.clock.drive(world.another_host().run(execution)) == "success"
    return world.row.result, len(programs.outside.calls)


async def _count(nodes: Program) -> tuple[Any, int, int]:
    world = World(program)
    row = await survive(world, nodes)
    assert row.status == "success", row.error
    check_effects(row, programs.outside.calls, 0)
    return row.result, world.memory.calls, len(programs.outside.calls)


@pytest.mark.clause("runs.step-output", "runs.claim-takeover", "runs.idempotency-key", "runs.unclosed-execution")
@given(programs.programs(), st.lists(st.integers(0, 10_000), min_size=1, max_size=4, unique=True))
@EASY
def test_a_kill_anywhere_changes_no_result(nodes: Program, drawn: list[int]) -> None:
    async def check() -> None:
        result, writes, effects = await _count(nodes)
        places = [("write", number, when) for number in range(1, writes + 1) for when in ("before", "after")]
        places += [("effect", number, when) for number in range(1, effects + 1) for when in ("before", "after")]
        for place in drawn:
            what, number, when = places[place % len(places)]
            world = World(program)

            def kill(memory: Any, outside: Any, what: str = what, number: int = number, when: str = when) -> None:
                (memory if what == "write" else outside).kill_at = (number, when)

            row = await survive(world, nodes, kill)
            assert row.status == "success", (what, number, when, row.error)
            assert row.result == result, (what, number, when)
            check_effects(row, programs.outside.calls, 1)
            assert await replayed(nodes, row, world) == (result, 0)

    asyncio.run(check())


@pytest.mark.clause("runs.fan-out-join", "runs.effect-boundary")
@given(programs.programs(races=True, chance=True), st.integers(1, 30), st.sampled_from(["before", "after"]), st.booleans())
@EASY
def test_races_and_chance_are_decided_once(nodes: Program, number: int, when: str, write: bool) -> None:
    async def check() -> None:
        world = World(program)

        def kill(memory: Any, outside: Any) -> None:
            (memory if write else outside).kill_at = (number, when)

        row = await survive(world, nodes, kill)
        assert row.status == "success", row.error
        result = row.result
        assert await replayed(nodes, row, world) == (result, 0)
        assert not [entry for entry in row.entries.values() if entry.state in ("pending", "waiting")]

    asyncio.run(check())


@pytest.mark.clause("runs.no-double-spend")
@given(programs.programs(), st.lists(st.integers(1, 40), max_size=6), st.lists(st.integers(1, 40), max_size=6))
@EASY
def test_a_database_that_does_not_answer_changes_nothing(nodes: Program, before: list[int], after: list[int]) -> None:
    async def check() -> None:
        result, _, effects = await _count(nodes)
        world = World(program)
        world.memory.fail_before, world.memory.fail_after = set(before), set(after)
        row = await survive(world, nodes)
        assert row.status == "success"
        assert row.result == result
        assert len(programs.outside.calls) == effects

    asyncio.run(check())


@pytest.mark.clause("runs.resumable-remains", "runs.cancel-race", "runs.cancel-keeps-effects")
@given(programs.programs(), st.integers(1, 25), st.booleans())
@EASY
def test_a_stop_at_any_point_ends_once_and_what_was_recorded_is_resumed(
    nodes: Program, number: int, at_effect: bool
) -> None:
    async def check() -> None:
        result, _, _ = await _count(nodes)
        world = World(program)
        memory, clock = world.memory, world.clock
        outside = programs.outside = Outside()

        async def stop() -> None:
            if (len(outside.calls) if at_effect else memory.calls) == number:
                world.host.stop("exe_1")

        memory.latency = outside.latency = stop
        task = world.host.start(memory.open("program", nodes))
        asked = await clock.drive(task)
        if asked != "canceled":
            return
        assert world.row.status == "canceled"
        begun = [entry for entry in world.row.entries.values() if entry.kind == "step" and entry.state == "pending"]
        memory.latency = None
        # The scope is opened again: what was recorded is replayed, what had begun begins again under its key.
        world.row.status, world.row.owner, world.row.epoch = "waiting", None, 1
        first = list(outside.calls)
        outside.latency = None
        row = await survive(world, nodes, again=True)
        assert (row.status, row.result) == ("success", result)
        redone = {key for key, _, _ in programs.outside.calls[len(first) :]} & {key for key, _, _ in first}
        assert redone <= {
            idempotency_key("exe_1", entry.key)
            for entry in row.entries.values()
            if entry.attempt > 1 or entry.key in {one.key for one in begun}
        }

    asyncio.run(check())


# --- Negative controls: the checks above find a house that breaks its word -------------------------------------------


class Forgetful(Memory):
    """Keeps the claim of a step, and loses its value."""

    def _one(self, row: Row, operation: Operation) -> Outcome:
        if isinstance(operation, Record) and operation.key.label == "step":
            return super()._one(replace(row, entries=dict(row.entries)), operation)
        return super()._one(row, operation)


class Overwriting(Memory):
    """Lets a claim begin an entry anew that has ended."""

    def _claim(self, row: Row, key: EntryKey, kind: Any, position: str) -> Outcome:
        row.entries.pop(key, None)
        return super()._claim(row, key, kind, position)

    async def take(self, name: str) -> Execution | None:
        taken = await super().take(name)
        return None if taken is None else replace(taken, entries=())


@pytest.mark.parametrize("broken", [Forgetful, Overwriting])
async def test_a_house_that_forgets_is_found_out(broken: type[Memory]) -> None:
    nodes: Program = [["step", 1, 0], ["sleep", 100], ["step", 2, 0]]
    world = World(program)
    world.memory.__class__ = broken
    try:
        row = await survive(world, nodes)
        check_effects(row, programs.outside.calls, 0)
        assert len(programs.outside.calls) == 2
    except AssertionError:
        return
    pytest.fail("nothing was noticed")

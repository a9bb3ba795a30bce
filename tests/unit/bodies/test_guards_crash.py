"""Kill the host at every write and at every request, lose answers, and find each effect done once (clauses guards.*).

An operator looks after what stays guarded, with nothing to go by but the guard and the bank's own books.
"""

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage.kernel.errors import ExecutionGuardBlocked
from moorage.runs.model import Execution
from moorage.runs.operations import AdmitGuard, Admitted, ReleaseGuard
from tests.unit.bodies.bank import WINDOW, Bank, declare
from tests.unit.bodies.memory import Memory
from tests.unit.bodies.payments import Program, guarded, payments_of, programs
from tests.unit.bodies.world import World

PATIENCE = 60
EASY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Voyage:
    """One program, on as many hosts as it takes."""

    def __init__(self, nodes: Program, *, orderly: bool = False, memory: type[Memory] = Memory) -> None:
        self.nodes = nodes
        self.orderly = orderly
        transport = httpx.MockTransport(lambda request: httpx.Response(500))
        self.world = World(guarded, transport=transport)
        self.world.memory.__class__ = memory
        self.bank = Bank(self.world.memory, self.world.clock)
        transport.handler = self.bank.answer
        declare(self.world.memory)
        self.operated = self.taken_over = 0

    async def to_the_end(self) -> Any:
        """Its result. What must hold at every moment is looked at here."""
        world, memory, clock = self.world, self.world.memory, self.world.clock
        execution: Execution | None = memory.open("guarded", self.nodes)
        for _ in range(PATIENCE):
            if execution is not None:
                await self._drive(execution)
            row = world.row
            if row.status in ("success", "failed", "canceled"):
                break
            if row.owner is not None:
                clock.advance_to(row.expires_at)
            elif row.next_attempt_at is not None:
                clock.advance_to(row.next_attempt_at)
            self.bank.arrive()
            execution = await self._taken()
        else:
            raise AssertionError(f"not at its end: {world.row}")
        assert world.row.status == "success", world.row.error
        self.check()
        return world.row.result

    async def _drive(self, execution: Execution) -> None:
        world, memory, clock = self.world, self.world.memory, self.world.clock
        task = world.host.start(execution)
        killed = asyncio.ensure_future(memory.killed.wait())
        await clock.drive(asyncio.wait({task, killed}, return_when=asyncio.FIRST_COMPLETED))
        killed.cancel()
        if memory.killed.is_set():
            memory.killed.clear()
            await clock.drive(world.host.close())
            if self.orderly:
                assert await clock.drive(world.host.leave("stopped"))
            world.host = world.another_host()

    async def _taken(self) -> Execution | None:
        memory = self.world.memory
        before = len(memory.watch.guards)
        try:
            taken = await memory.take("exe_1")
        except ExecutionGuardBlocked:
            self.operated += self.bank.look_after()
            return None
        self.taken_over += before - len(memory.watch.guards)
        return taken

    def check(self) -> None:
        """Each effect once, each request guarded, one at a time, one key each, and nothing left behind."""
        wanted = sum(1 for _ in payments_of(self.nodes))
        assert len(self.bank.effects) == wanted, (self.bank.effects, wanted)
        assert set(self.bank.effects.values()) <= {1}, self.bank.effects
        assert not self.bank.unguarded
        assert self.bank.most <= 1
        assert not self.world.memory.watch.guards
        assert set(self.bank.keys) <= set(self.bank.effects)


async def undisturbed(nodes: Program) -> tuple[Any, int, int]:
    voyage = Voyage(nodes)
    result = await voyage.to_the_end()
    assert voyage.operated == 0
    return result, voyage.world.memory.calls, len(voyage.bank.asked)


@pytest.mark.clause("guards.release", "guards.replay", "guards.holder-gone", "guards.acquire", "guards.manual")
@given(programs(), st.lists(st.integers(0, 10_000), min_size=1, max_size=4, unique=True), st.booleans())
@EASY
def test_a_kill_anywhere_does_no_effect_twice_and_leaves_none_out(nodes: Program, drawn: list[int], orderly: bool) -> None:
    async def check() -> None:
        result, writes, requests = await undisturbed(nodes)
        places = [("write", number, when) for number in range(1, writes + 1) for when in ("before", "after")]
        places += [("request", number, when) for number in range(1, requests + 1) for when in ("before", "after")]
        for place in drawn:
            what, number, when = places[place % len(places)]
            voyage = Voyage(nodes, orderly=orderly)
            (voyage.world.memory if what == "write" else voyage.bank).kill_at = (number, when)
            assert await voyage.to_the_end() == result, (what, number, when)

    asyncio.run(check())


@pytest.mark.clause("guards.release", "guards.window", "guards.evidence", "guards.class")
@given(
    programs(),
    st.dictionaries(st.integers(1, 12), st.sampled_from(["refused", "503", "504", "unseen", "unheard"]), max_size=6),
    st.sets(st.integers(1, 40), max_size=4),
    st.sets(st.integers(1, 40), max_size=4),
)
@EASY
def test_requests_that_go_wrong_and_a_database_that_does_not_answer_change_nothing(
    nodes: Program, behave: dict[int, str], before: set[int], after: set[int]
) -> None:
    async def check() -> None:
        result, _, _ = await undisturbed(nodes)
        voyage = Voyage(nodes)
        voyage.bank.behave = behave
        voyage.world.memory.fail_before, voyage.world.memory.fail_after = before, after
        assert await voyage.to_the_end() == result

    asyncio.run(check())


# --- each case, by itself ----------------------------------------------------------------------------------------------


@pytest.mark.clause("guards.crash-held", "guards.holder-gone", "guards.replay")
@pytest.mark.parametrize(
    ("destination", "orderly", "operated", "replayed"),
    [("bank", True, 0, 1), ("bank", False, 1, 0), ("printer", True, 1, 0), ("printer", False, 1, 0)],
)
async def test_only_what_left_in_order_to_a_place_that_drops_keys_is_sent_again_without_an_operator(
    destination: str, orderly: bool, operated: int, replayed: int
) -> None:
    for when in ("before", "after"):
        voyage = Voyage([["pay", 1, destination]], orderly=orderly)
        voyage.bank.kill_at = (1, when)
        await voyage.to_the_end()
        assert (voyage.operated, voyage.taken_over) == (operated, replayed), when


@pytest.mark.clause("guards.window")
async def test_what_is_sent_again_and_again_stays_within_the_window_of_the_first_request() -> None:
    voyage = Voyage([["pay", 1, "bank"]], orderly=True)
    world = voyage.world
    first = world.clock.now()
    for number in (1, 2):
        voyage.bank.kill_at = (number, "before")
        await voyage._drive(await _any(voyage))
        world.clock.advance_to(max(world.row.expires_at, first + WINDOW * 400 * number))
    taken = await _any(voyage)
    voyage.bank.kill_at = (3, "before")
    await voyage._drive(taken)
    [guard] = world.memory.watch.guards.values()
    assert guard.since == first
    world.clock.advance_to(first + WINDOW * 1000)
    with pytest.raises(ExecutionGuardBlocked):
        await world.memory.take("exe_1")


async def _any(voyage: Voyage) -> Execution:
    memory = voyage.world.memory
    if "exe_1" not in memory.rows:
        return memory.open("guarded", voyage.nodes)
    taken = await memory.take("exe_1")
    assert taken is not None
    return taken


# --- Negative controls: the checks above find a house that breaks its word ---------------------------------------------


class Careless(Memory):
    """Lets anybody take an execution over, and forgets what may be in flight."""

    async def take(self, name: str) -> Execution | None:
        self.watch.guards.clear()
        return await super().take(name)


class Unguarded(Memory):
    """Admits without a guard."""

    def _guard(self, watch: Any, row: Any, operation: Any) -> Any:
        outcome = super()._guard(watch, row, operation)
        if isinstance(operation, AdmitGuard):
            watch.guards.clear()
        return outcome


class Keyless(Memory):
    """Gives another key each time."""

    def _guard(self, watch: Any, row: Any, operation: Any) -> Any:
        outcome = super()._guard(watch, row, operation)
        if not isinstance(outcome, Admitted):
            return outcome
        key = f"{outcome.idempotency_key}-{watch.drawn}"
        guard = watch.guards[outcome.token]
        watch.guards[outcome.token] = replace(guard, idempotency_key=key)
        return replace(outcome, idempotency_key=key)


class Sticky(Memory):
    """Removes no guard when its holder asks for it."""

    def _apply(self, fence: Any, operations: Any) -> Any:
        before = dict(self.watch.guards)
        outcomes = super()._apply(fence, operations)
        kept = {one.token: before[one.token] for one in operations if isinstance(one, ReleaseGuard) and one.token in before}
        self.watch.guards.update(kept)
        return outcomes


@pytest.mark.parametrize("broken", [Careless, Unguarded, Keyless, Sticky])
async def test_a_house_that_breaks_its_word_is_found_out(broken: type[Memory]) -> None:
    found = 0
    for killed, orderly in ((False, False), (True, False), (True, True)):
        voyage = Voyage([["pay", 1, "printer"], ["pay", 2, "bank"]], orderly=orderly, memory=broken)
        voyage.bank.kill_at = (1, "after") if killed else None
        voyage.bank.behave = {2: "503"}
        try:
            await asyncio.wait_for(voyage.to_the_end(), 5)
            assert killed or voyage.operated == 0
        except (AssertionError, TimeoutError, ExecutionGuardBlocked):
            found += 1
        await voyage.world.clock.drive(voyage.world.host.close())
    assert found


async def test_a_house_that_keeps_its_word_is_not() -> None:
    for killed, orderly in ((False, False), (True, False), (True, True)):
        voyage = Voyage([["pay", 1, "printer"], ["pay", 2, "bank"]], orderly=orderly)
        voyage.bank.kill_at = (1, "after") if killed else None
        voyage.bank.behave = {2: "503"}
        await voyage.to_the_end()
        assert voyage.operated == int(killed)

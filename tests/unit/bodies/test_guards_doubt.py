"""A request that may have arrived: no refusal of a later one with its key says that it did not."""

from collections.abc import Sequence
from typing import Any

import pytest

from moorage.bodies import Run
from moorage.kernel.instants import after
from moorage.runs.operations import AdmitGuard, Operation
from tests.unit.bodies.harbor import RETRY, begun, harbor, only_guard, paying


@pytest.mark.clause("guards.release", "guards.window")
@pytest.mark.parametrize("later", ["400", "503", "refused"])
async def test_after_a_doubt_a_refusal_neither_fails_the_step_nor_releases_the_guard(later: str) -> None:
    world, bank = harbor(paying)
    bank.behave = {1: "unheard"} | dict.fromkeys(range(2, 10), later)
    assert await world.run("pays") == "suspended"
    assert len(bank.asked) == (2 if later == "400" else RETRY.attempts)
    guard = only_guard(world)
    assert world.row.awaiting == [{"label": "pay", "kind": "guard", "guard": guard.token}]
    entry = world.row.entries[guard.key]
    assert entry.state == "waiting"
    assert entry.failure is not None
    assert "the outcome is not known" in entry.failure["message"]
    bank.look_after()
    assert await world.again() == "success"
    assert world.row.result == [None, bank.receipt(bank.keys[0])]
    assert list(bank.effects.values()) == [1]


@pytest.mark.clause("guards.release")
async def test_after_a_doubt_an_answer_that_is_none_of_refusal_ends_it() -> None:
    world, bank = harbor(paying)
    bank.behave = {1: "unheard", 2: "503"}
    assert await world.run("pays") == "success"
    assert (len(bank.asked), world.memory.watch.drawn) == (3, 1)
    assert not world.memory.watch.guards
    assert list(bank.effects.values()) == [1]


@pytest.mark.clause("guards.replay", "guards.release")
async def test_a_refusal_of_what_was_sent_again_after_a_takeover_leaves_the_doubt_of_the_first_host() -> None:
    world, bank = harbor(paying)
    await begun(world, bank)
    first = only_guard(world)
    await world.clock.drive(world.host.close())
    await world.clock.drive(world.host.leave("stopped"))
    world.clock.advance_to(world.row.expires_at)
    bank.happen("bank", first.idempotency_key)
    bank.during = None
    bank.behave = {2: "400"}
    world.host = world.another_host()
    assert await world.again() == "suspended"
    guard = only_guard(world)
    assert (guard.idempotency_key, guard.since) == (first.idempotency_key, first.since)
    bank.look_after()
    assert await world.again() == "success"
    assert list(bank.effects.values()) == [1]


async def paying_soon(run: Run) -> Any:
    sent = await run.effect("pay", "bank", "/charges", json={"cents": 5}, timeout=1)
    return sent.receipt


@pytest.mark.clause("guards.window")
async def test_an_admission_that_took_longer_than_the_window_sends_nothing_again() -> None:
    """The window covered the next attempt when that was planned. Then the database was away, or the machine slept."""
    world, bank = harbor(paying_soon)
    world.memory.watch.declare("bank", window=2)
    bank.behave = {1: "unheard"}
    admissions = 0

    def refuse(operations: Sequence[Operation]) -> None:
        nonlocal admissions
        admissions += any(isinstance(one, AdmitGuard) for one in operations)
        if admissions == 2:
            world.clock.advance_to(after(world.clock.now(), 5))

    world.memory.refuse = refuse
    assert await world.run("pays") == "suspended"
    assert (admissions, len(bank.asked), list(bank.effects.values())) == (2, 1, [1])
    bank.look_after()
    assert await world.again() == "success"
    assert world.row.result == bank.receipt(bank.keys[0])


@pytest.mark.clause("guards.release")
async def test_who_is_canceled_while_it_asks_again_leaves_the_guard_of_its_doubt() -> None:
    world, bank = harbor(paying)
    bank.behave = {1: "unheard", 2: "unheard"}
    admissions = 0

    def refuse(operations: list[object]) -> None:
        nonlocal admissions
        admissions += any(getattr(one, "op", "") == "admit_guard" for one in operations)
        if admissions == 2:
            world.host.stop("exe_1")

    world.memory.refuse = refuse  # type: ignore[assignment]
    await world.run("pays")
    assert only_guard(world).idempotency_key == bank.keys[0]
    assert list(bank.effects.values()) == [1]

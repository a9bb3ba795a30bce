"""Guarded effects as a body does them: admitted, sent to where it is declared, and what becomes of them."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from moorage.bodies import Failed, Retry, Run, StepFailed
from moorage.bodies.sending import beneath, check_path
from moorage.journal.model import EntryKey, idempotency_key
from moorage.kernel.errors import ExecutionGuardBlocked, ExecutionGuardHeld
from moorage.runs.observing import RunChange
from moorage.runs.operations import AdmitGuard
from tests.unit.bodies.bank import declare
from tests.unit.bodies.harbor import RETRY, SECRET, harbor, nothing, only_guard, paying, printing

# --- admission ------------------------------------------------------------------------------------------------------------


@pytest.mark.clause("guards.release", "guards.acquire", "guards.identity", "runs.idempotency-key")
async def test_an_effect_takes_two_round_trips_and_is_guarded_while_it_is_sent() -> None:
    world, bank = harbor(paying)
    assert await world.run("pays") == "success"
    kinds = [[one.op for one in batch] for batch in world.memory.applied]
    assert kinds == [["claim"], ["record", "claim", "admit_guard"], ["release_guard", "record"], ["close"]]
    [asked] = bank.asked
    assert str(asked.url) == "https://bank.test/v1/charges?by=card"
    assert (asked.method, asked.content) == ("POST", b'{"cents":5}')
    [key] = [entry.key for entry in world.row.entries.values() if entry.key.label == "pay"]
    assert bank.keys == [idempotency_key("exe_1", key)]
    assert asked.headers["traceparent"].startswith(f"00-{'a' * 32}")
    assert not bank.unguarded
    assert not world.memory.watch.guards
    assert world.row.result == [bank.receipt(bank.keys[0]), None]


@pytest.mark.clause("guards.holder-identity")
async def test_a_holder_is_registered_before_its_first_guard_and_not_before_that() -> None:
    async def twice(run: Run) -> None:
        await run.step("before", nothing)
        assert not world.memory.watch.holders
        for number in range(2):
            await run.effect("pay", "bank", "charges", json=number)

    world, bank = harbor(twice)
    first, second = world.host.holder.id, world.another_host().holder.id
    assert first != second
    assert await world.run("pays") == "success"
    assert world.memory.watch.holders == {first: True}
    admitted = [one for batch in world.memory.applied for one in batch if isinstance(one, AdmitGuard)]
    assert {one.holder for one in admitted} == {first}
    assert len(bank.asked) == 2


@pytest.mark.clause("guards.acquire")
async def test_effects_of_one_execution_are_sent_one_after_the_other() -> None:
    async def many(run: Run) -> int:
        done = await run.gather(*(run.effect("pay", "bank", "charges", json=number) for number in range(5)))
        return len(done)

    world, bank = harbor(many)
    bank.during = lambda: world.clock.sleep(2)
    assert await world.run("pays") == "success"
    assert (len(bank.asked), bank.most) == (5, 1)
    assert not bank.unguarded


@pytest.mark.clause("guards.acquire", "guards.scope")
async def test_an_effect_waits_for_the_callback_of_an_execution_beside_it() -> None:
    world, bank = harbor(paying)
    admitted = asyncio.Event()

    async def slow() -> None:
        admitted.set()
        await world.clock.sleep(100)

    bank.during = slow
    first = world.host.start(world.memory.open("pays", name="exe_a", scope="job/a"))
    await world.clock.drive(admitted.wait())
    bank.during = None
    second = world.host.start(world.memory.open("pays", name="exe_b", scope="job/b"))
    # Short waits are sat out; then the run is let go of, saying what it waits for.
    assert await world.clock.drive(second) == "waiting"
    row = world.memory.rows["exe_b"]
    assert row.awaiting[0]["guard"] == only_guard(world).token
    assert row.owner is None
    assert await world.clock.drive(first) == "success"
    assert await world.again("exe_b") == "success"
    assert bank.most == 1
    assert sorted(bank.effects.values()) == [1, 1]


@pytest.mark.clause("guards.current-owner")
async def test_a_superseded_owner_sends_nothing() -> None:
    async def late(run: Run) -> None:
        await run.step("before", take_away)
        await run.effect("pay", "bank", "charges")

    async def take_away() -> None:
        world.row.epoch += 1

    world, bank = harbor(late)
    assert await world.run("pays") == "lost"
    assert not bank.asked
    assert not world.memory.watch.guards


# --- where it is sent -----------------------------------------------------------------------------------------------------


@pytest.mark.clause("catalog.destinations")
async def test_the_destinations_secret_is_sent_and_recorded_nowhere() -> None:
    world, bank = harbor(paying)
    declare(world.memory, secret="env:BANK")
    bank.behave = {1: "503", 2: "unheard"}
    assert (await world.to_the_end("pays")).status == "success"
    assert {one.headers["authorization"] for one in bank.asked} == {f"Bearer {SECRET}"}
    assert "0123456789abcdef" not in repr([world.row, world.told.changes, world.memory.applied, world.memory.watch])


@pytest.mark.parametrize(
    ("secret", "methods", "code"),
    [("env:OTHER", ("POST",), "SecretMissing"), (None, ("PUT",), "MethodUndeclared")],
)
async def test_what_cannot_be_sent_is_not_and_leaves_no_guard(secret: str, methods: tuple[str, ...], code: str) -> None:
    world, bank = harbor(paying)
    declare(world.memory, secret=secret, methods=methods)
    assert await world.run("pays") == "failed"
    assert world.row.error is not None
    assert (world.row.error["code"], world.row.error["step"]) == (code, "pay")
    assert not bank.asked
    assert not world.memory.watch.guards


async def test_an_undeclared_destination_fails_the_step() -> None:
    async def nowhere(run: Run) -> str:
        try:
            await run.effect("pay", "nowhere", "charges")
        except StepFailed as refused:
            return f"{refused.tag} {refused.code}"
        return "sent"

    world, bank = harbor(nowhere)
    assert await world.run("pays") == "success"
    assert world.row.result == "Unknown DestinationUnknown"
    assert not bank.asked


@pytest.mark.parametrize(
    "path",
    [
        "../other",
        "a/../../b",
        "a/%2e%2e/b",
        "a/%2E./b",
        "..",
        "//evil.test/x",
        "https://evil.test/",
        "a\\b",
        "a#b",
        "a b",
        "é",
    ],
)
def test_no_path_leads_out_of_a_destination(path: str) -> None:
    with pytest.raises(ValueError, match="path to a destination"):
        check_path(path)


@pytest.mark.parametrize(
    ("base", "path", "url"),
    [
        ("https://bank.test/v1", "", "https://bank.test/v1"),
        ("https://bank.test/v1/", "/charges", "https://bank.test/v1/charges"),
        ("https://bank.test", "charges?a=1", "https://bank.test/charges?a=1"),
        ("https://bank.test/v1?tenant=7", "charges?a=1", "https://bank.test/v1/charges?tenant=7&a=1"),
        ("https://bank.test:8443/v1", "a:b@c", "https://bank.test:8443/v1/a:b@c"),
    ],
)
def test_a_path_is_sent_beneath_the_destinations_url(base: str, path: str, url: str) -> None:
    assert beneath(base, check_path(path)) == url


# --- what becomes of it ---------------------------------------------------------------------------------------------------


@pytest.mark.clause("guards.release")
@pytest.mark.parametrize("behaviour", ["refused", "503"])
async def test_what_was_answered_or_never_sent_is_released_and_tried_again_under_another_guard(behaviour: str) -> None:
    world, bank = harbor(printing)
    bank.behave = {1: behaviour, 2: behaviour}
    world_row = await world.to_the_end("pays")
    assert (world_row.status, world_row.result) == ("success", [200, None])
    assert len(set(bank.keys)) == 1
    assert len(bank.keys) == 3
    kinds = [[one.op for one in batch] for batch in world.memory.applied]
    assert kinds[1] == ["release_guard", "fail"]
    assert world.memory.watch.drawn == 3
    assert not bank.unguarded


async def test_a_refusal_ends_the_step_and_leaves_no_guard() -> None:
    world, bank = harbor(printing)
    bank.behave = {1: "400"}
    assert await world.run("pays") == "failed"
    assert world.row.error is not None
    assert world.row.error["code"] == "Http400"
    assert not world.memory.watch.guards


@pytest.mark.clause("guards.replay", "guards.window", "guards.identity")
@pytest.mark.parametrize("behaviour", ["unheard", "unseen", "504"])
async def test_in_doubt_the_holder_sends_the_same_key_again_under_the_same_guard(behaviour: str) -> None:
    world, bank = harbor(paying)
    bank.behave = {1: behaviour}
    assert await world.run("pays") == "success"
    assert len(bank.asked) == 2
    assert len(set(bank.keys)) == 1
    assert list(bank.effects.values()) == [1]
    assert world.memory.watch.drawn == 1
    assert not bank.unguarded


@pytest.mark.clause("guards.release", "guards.class")
@pytest.mark.parametrize("behaviour", ["unheard", "unseen", "504"])
async def test_in_doubt_without_a_window_the_run_is_let_go_of_and_the_guard_stays(behaviour: str) -> None:
    world, bank = harbor(printing)
    bank.behave = {1: behaviour}
    assert await world.run("pays") == "suspended"
    guard = only_guard(world)
    row = world.row
    assert row.awaiting == [{"label": "print", "kind": "guard", "guard": guard.token}]
    assert (row.owner, row.next_attempt_at) == (None, None)
    [entry] = row.entries.values()
    assert entry.state == "waiting"
    assert entry.failure is not None
    assert "the outcome is not known" in entry.failure["message"]
    # Nobody takes it up, however long it is left.
    world.clock.advance_to(world.clock.now() + 10**9)
    with pytest.raises(ExecutionGuardBlocked):
        await world.memory.take("exe_1")
    assert len(bank.asked) == 1


@pytest.mark.clause("guards.window")
async def test_a_window_that_would_end_during_another_attempt_covers_none() -> None:
    world, bank = harbor(paying)
    world.memory.watch.declare("bank", window=25)
    bank.behave = {1: "unheard"}
    assert await world.run("pays") == "suspended"
    assert len(bank.asked) == 1


@pytest.mark.clause("guards.release", "guards.replay")
@pytest.mark.parametrize("refusal", ["refused", "503", "400"])
async def test_a_refusal_after_a_doubt_does_not_say_what_became_of_the_effect(refusal: str) -> None:
    world, bank = harbor(paying)
    bank.behave = {1: "unheard", **dict.fromkeys(range(2, 10), refusal)}
    assert await world.run("pays") == "suspended"
    assert len(bank.asked) == (2 if refusal == "400" else RETRY.attempts)
    # Also not to whoever sends the key again on the evidence that the destination drops it.
    asked = len(bank.asked)
    guard = only_guard(world)
    world.memory.reconcile(guard.token, f"idempotency:{guard.idempotency_key}")
    assert await world.again() == "suspended"
    assert len(bank.asked) == asked + 1
    bank.look_after()
    assert await world.again() == "success"
    assert list(bank.effects.values()) == [1]


@pytest.mark.clause("guards.window")
async def test_nothing_is_sent_again_once_the_window_of_the_first_request_is_over() -> None:
    world, bank = harbor(paying)
    bank.behave = dict.fromkeys(range(1, 10), "unseen")
    await world.run("pays")
    guard = only_guard(world)
    world.memory.reconcile(guard.token, f"idempotency:{guard.idempotency_key}")
    world.clock.advance_to(guard.ends_at)
    asked = len(bank.asked)
    assert await world.again() == "suspended"
    assert len(bank.asked) == asked
    assert world.row.awaiting[0]["guard"] == only_guard(world).token != guard.token


async def test_attempts_in_doubt_come_to_an_end() -> None:
    world, bank = harbor(paying)
    bank.behave = dict.fromkeys(range(1, 10), "unheard")
    assert await world.run("pays") == "suspended"
    assert len(bank.asked) == RETRY.attempts
    assert list(bank.effects.values()) == [1]
    assert only_guard(world).key.label == "pay"


@pytest.mark.clause("guards.manual", "guards.evidence", "guards.audit")
async def test_a_receipt_is_the_steps_value_and_nothing_is_sent_again() -> None:
    world, bank = harbor(printing)
    bank.behave = {1: "unheard"}
    await world.run("pays")
    bank.look_after()
    assert await world.again() == "success"
    assert world.row.result == [None, bank.receipt(bank.keys[0])]
    assert len(bank.asked) == 1
    [(guard, evidence)] = world.memory.watch.audit
    assert evidence.startswith(f"receipt:{guard.idempotency_key}:")


@pytest.mark.clause("guards.manual", "guards.evidence")
async def test_on_the_evidence_of_the_key_the_same_key_is_sent_again() -> None:
    world, bank = harbor(paying)
    bank.behave = dict.fromkeys(range(1, 4), "unseen")
    await world.run("pays")
    bank.look_after()
    assert await world.again() == "success"
    assert len(bank.asked) == 4
    assert len(set(bank.keys)) == 1
    assert list(bank.effects.values()) == [1]
    assert world.row.result == [bank.receipt(bank.keys[0]), None]


@pytest.mark.clause("guards.live-holder")
async def test_a_guard_whose_callback_is_under_way_is_not_reconciled() -> None:
    refused: list[str] = []

    async def operator() -> None:
        guard = only_guard(world)
        with pytest.raises(ExecutionGuardHeld):
            world.memory.reconcile(guard.token, f"receipt:{guard.idempotency_key}:r")
        refused.append(guard.token)

    world, bank = harbor(printing)
    bank.during = operator
    assert await world.run("pays") == "success"
    assert len(refused) == 1


async def test_a_publication_is_one_on_its_guard() -> None:
    async def publishes(run: Run) -> Any:
        return (await run.publication("print", "printer", "jobs")).reconciled

    world, bank = harbor(publishes)
    bank.behave = {1: "unheard"}
    assert await world.run("pays") == "suspended"
    assert only_guard(world).publication
    bank.look_after()
    assert await world.again() == "success"
    assert world.row.result is True


# --- what people see ------------------------------------------------------------------------------------------------------


async def test_observers_hear_of_the_steps_and_of_what_is_awaited() -> None:
    world, bank = harbor(printing)
    bank.behave = {1: "unheard"}
    await world.run("pays")
    assert [one.status for one in world.told.steps("print")] == ["running", "waiting"]
    last = world.told.changes[-1]
    assert isinstance(last, RunChange)
    assert last.awaiting is not None
    assert last.awaiting[0]["guard"] == only_guard(world).token
    assert world.told.steps("print")[0].input_sha256 == only_guard(world).key.input_sha256
    assert isinstance(only_guard(world).key, EntryKey)


# --- what effects share with steps ----------------------------------------------------------------------------------------


@pytest.mark.clause("runs.schedule")
@pytest.mark.parametrize(("told", "asked"), [(None, 3), (2, 2), (5, 5)])
async def test_the_schedule_that_a_run_brings_stands_above_the_body_s_for_effects_as_well(
    told: int | None, asked: int
) -> None:
    async def calls(run: Run) -> None:
        def fails() -> None:
            raise Failed("Transient", "not yet")

        await run.effect("pay", None, fails)

    async def sends(run: Run) -> None:
        await run.effect("pay", "bank", "charges")

    retry = None if told is None else Retry(attempts=told, base_ms=0, jitter_ms=0).wire()
    for function in (calls, sends):
        world, bank = harbor(function)
        bank.behave = dict.fromkeys(range(1, 9), "refused")
        await world.clock.drive(world.host.run(replace(world.memory.open("pays"), retry=retry)))
        (entry,) = world.row.entries.values()
        assert (entry.state, entry.attempt) == ("failed", asked), function

"""A run that mints, suspends and goes on, against everybody who resolves: whatever comes first, nothing is lost, and nobody
is left suspended on what has ended (clauses awake.early, awake.journal; cases C01 and C02 from the field).
"""

import asyncio
import json
from typing import Any

import pytest

from moorage.awakeables import executions
from moorage.awakeables.due import AwakeableDeadlines
from moorage.awakeables.model import Rejection
from moorage.awakeables.payloads import Payload
from moorage.awakeables.resolve import reject, resolve
from moorage.journal.model import EntryKey, wait_hash
from moorage.kernel.errors import (
    AwakeableRejected,
    AwakeableTimedOut,
    AwakeableTokenLost,
    AwakeableUnknown,
    ExecutionWoken,
    FailureTag,
)
from moorage.kernel.instants import render
from moorage.kernel.limits import JOURNAL_INLINE_BYTES
from moorage.runs.model import Execution, Minted
from moorage.runs.operations import Await, Claimed, Close, Done, Mint, Operation, Outcome, Recorded, Suspend
from moorage.runs.substrate import LocalSubstrate
from moorage.store.transaction import Transaction
from moorage.timers.clock import drain
from tests.contract.adapters import Store, dump
from tests.contract.executions import Poked, row_of
from tests.contract.harbor import BODIES, KEYS, ROOT, START, Harbor, claim, key, record, value
from tests.contract.test_awakeables import story

OK = {"ok": True, "n": 1}
TTL = 60
SUSPEND = Suspend("suspended", None)
SUSPENDED_ON_ENDED = """
SELECT r.run_id FROM runs AS r JOIN journal AS j ON j.execution_id = r.execution_id AND j.kind = 'wait'
JOIN awakeables AS a ON a.id = j.ref JOIN executions AS e ON e.execution_id = r.execution_id
WHERE r.status = 'suspended' AND a.state <> 'pending' AND e.wake_at IS NULL
"""


@pytest.fixture
def harbor(store: Store) -> Harbor:
    return Harbor(store)


async def minted(harbor: Harbor, execution: Execution, label: str = "approval", **more: Any) -> Minted:
    [told] = await harbor.apply(execution.fence, Mint(key(label), "0", TTL, **more))
    assert isinstance(told, Minted)
    return told


def waiting(new: Minted, label: str = "approval") -> Await:
    return Await(EntryKey(label, wait_hash(new.token)), "1", new.id)


def recorded(outcome: Outcome) -> Any:
    """What a wait has recorded."""
    assert isinstance(outcome, Recorded)
    assert outcome.entry.value is not None
    return json.loads(outcome.entry.value.text or "")


async def goes_on(harbor: Harbor, execution: str, expected: Any) -> Execution:
    """The execution is due, whoever takes it has the wait's value with it, and it is the same for the next one."""
    again = await harbor.held(execution, "ben")
    [wait] = [entry for entry in again.entries if entry.kind == "wait"]
    assert wait.state == "done"
    assert wait.value is not None
    assert json.loads(wait.value.text or "") == expected
    return again


# --- early, late and in between -----------------------------------------------------------------------------------------


@pytest.mark.clause("awake.early", "awake.journal")
async def test_a_resolution_while_the_first_step_runs_is_kept_for_the_wait(harbor: Harbor) -> None:
    execution = await harbor.opened()
    new = await minted(harbor, execution)
    await harbor.apply(execution.fence, claim("a"))
    await harbor.resolve(new.token, OK)
    told = await harbor.apply(execution.fence, record("a", 1), waiting(new))
    assert recorded(told[1]) == {"resolved": OK}
    assert harbor.cost.trips == 1
    # A crash after it reads it back: nobody suspends again.
    harbor.pass_time(31)
    again = await goes_on(harbor, execution.execution_id, {"resolved": OK})
    assert recorded((await harbor.apply(again.fence, waiting(new)))[0]) == {"resolved": OK}


@pytest.mark.clause("awake.early")
async def test_of_two_tokens_the_one_resolved_early_serves_its_own_wait_alone(harbor: Harbor) -> None:
    execution = await harbor.opened()
    first, second = await minted(harbor, execution, "first"), await minted(harbor, execution, "second")
    await harbor.resolve(second.token, {"for": "second"})
    told = await harbor.apply(execution.fence, waiting(first, "first"), waiting(second, "second"))
    assert isinstance(told[0], Claimed)
    assert recorded(told[1]) == {"resolved": {"for": "second"}}
    assert isinstance((await harbor.apply(execution.fence, SUSPEND))[0], Done)
    await harbor.resolve(first.token, {"for": "first"})
    again = await harbor.held(execution.execution_id)
    values = {
        entry.key.label: json.loads(entry.value.text or "")
        for entry in again.entries
        if entry.kind == "wait" and entry.value
    }
    assert values == {"first": {"resolved": {"for": "first"}}, "second": {"resolved": {"for": "second"}}}


@pytest.mark.clause("awake.early")
async def test_nobody_resolves_what_no_run_has_minted_yet(harbor: Harbor) -> None:
    """Documented: before the entry is stored there is no token; who posts to a guess is refused, never told of a success."""
    with pytest.raises(AwakeableUnknown):
        await harbor.resolve("awk_tok_" + "x" * 43, OK)
    execution = await harbor.opened()
    assert (await minted(harbor, execution)).token


@pytest.mark.clause("awake.early", "awake.journal", "runs.wake")
@pytest.mark.parametrize("end", ["resolved", "rejected", "timed_out"])
@pytest.mark.parametrize("when", ["before the wait", "before the suspension", "after it"])
async def test_every_end_is_recorded_whenever_it_comes(harbor: Harbor, end: str, when: str) -> None:
    execution = await harbor.opened()
    new = await minted(harbor, execution)

    async def ends() -> None:
        match end:
            case "resolved":
                await harbor.resolve(new.token, OK)
            case "rejected":
                await reject(harbor.store.db(), ROOT, harbor.now, new.token, Rejection(FailureTag.FORBIDDEN, "no"))
            case _:
                await harbor.store.sql("UPDATE awakeables SET deadline = ?", harbor.now)
                await drain(harbor.store.db, harbor.now, [AwakeableDeadlines()])

    expected = {
        "resolved": {"resolved": OK},
        "rejected": {"rejected": {"tag": "Forbidden", "message": "no"}},
        "timed_out": {"timed_out": render(START)},
    }[end]
    if when == "before the wait":
        await ends()
        assert recorded((await harbor.apply(execution.fence, waiting(new)))[0]) == expected
        return
    assert isinstance((await harbor.apply(execution.fence, waiting(new)))[0], Claimed)
    if when == "before the suspension":
        await ends()
        with pytest.raises(ExecutionWoken):
            await harbor.apply(execution.fence, SUSPEND)
        [entry] = await harbor.substrate.refresh(execution.fence)
        assert entry.value is not None
        assert json.loads(entry.value.text or "") == expected
        return
    await harbor.apply(execution.fence, SUSPEND)
    await ends()
    assert await harbor.store.sql(SUSPENDED_ON_ENDED) == []
    await goes_on(harbor, execution.execution_id, expected)


@pytest.mark.clause("awake.early", "awake.journal", "runs.wake")
@pytest.mark.parametrize("order", ["resolve first", "suspend first", "at once"])
async def test_no_run_stays_suspended_on_a_token_that_is_resolved(harbor: Harbor, order: str) -> None:
    """C02: in 200 pairs, whichever of the two transactions comes first, the run is due and reads the payload."""
    pairs: list[tuple[Execution, Minted]] = []
    for _ in range(200):
        execution = await harbor.opened()
        new = await minted(harbor, execution)
        assert isinstance((await harbor.apply(execution.fence, waiting(new)))[0], Claimed)
        pairs.append((execution, new))
    woken = 0

    async def suspends(execution: Execution) -> bool:
        """Whether the host let go; otherwise it was told, and has read the value."""
        try:
            await harbor.apply(execution.fence, SUSPEND)
        except ExecutionWoken:
            [entry] = await harbor.substrate.refresh(execution.fence)
            assert entry.value is not None
            assert json.loads(entry.value.text or "") == {"resolved": OK}
            return False
        return True

    for execution, new in pairs:
        match order:
            case "resolve first":
                await harbor.resolve(new.token, OK)
                suspended = await suspends(execution)
                assert not suspended
            case "suspend first":
                suspended = await suspends(execution)
                assert suspended
                await harbor.resolve(new.token, OK)
            case _:
                _, suspended = await asyncio.gather(harbor.resolve(new.token, OK), suspends(execution))
        if suspended:
            await goes_on(harbor, execution.execution_id, {"resolved": OK})
            woken += 1
    assert woken == {"resolve first": 0, "suspend first": 200}.get(order, woken)
    assert await harbor.store.sql(SUSPENDED_ON_ENDED) == []
    left = await harbor.store.sql("SELECT count(*) AS n FROM journal WHERE kind = 'wait' AND state <> 'done'")
    assert left == [{"n": 0}]


@pytest.mark.clause("awake.deadline", "awake.journal")
async def test_a_recorded_timeout_stays_for_every_replay_whatever_the_clock_says_then(harbor: Harbor) -> None:
    execution = await harbor.opened()
    new = await minted(harbor, execution)
    await harbor.apply(execution.fence, waiting(new))
    await harbor.apply(execution.fence, SUSPEND)
    harbor.pass_time(TTL)
    # Nobody wrote it down yet: whoever takes the execution finds that the deadline has passed, and records that.
    await goes_on(harbor, execution.execution_id, {"timed_out": render(new.deadline)})
    with pytest.raises(AwakeableTimedOut):
        await harbor.resolve(new.token, OK)
    harbor.pass_time(-30)
    with pytest.raises(AwakeableTimedOut):
        await harbor.resolve(new.token, OK)
    harbor.pass_time(120)
    await goes_on(harbor, execution.execution_id, {"timed_out": render(new.deadline)})


@pytest.mark.clause("awake.journal", "blobs.inline-cutoff")
async def test_a_large_payload_is_the_value_of_the_wait(harbor: Harbor) -> None:
    execution = await harbor.opened()
    new = await minted(harbor, execution)
    large = "é" * JOURNAL_INLINE_BYTES
    await harbor.apply(execution.fence, waiting(new))
    await harbor.apply(execution.fence, SUSPEND)
    await harbor.resolve(new.token, large)
    again = await harbor.held(execution.execution_id)
    [entry] = [entry for entry in again.entries if entry.kind == "wait"]
    [loaded] = await harbor.substrate.values(again.fence, [entry.key])
    assert json.loads(loaded.text or "") == {"resolved": large}
    # The run's end releases nothing that the awakeable still answers with.
    await harbor.apply(again.fence, Close("success", value(None)))
    await harbor.resolve(new.token, large)
    assert len(await harbor.store.sql("SELECT holder FROM blob_references WHERE holder = ?", new.id)) == 1


# --- whose it is ------------------------------------------------------------------------------------------------------


@pytest.mark.clause("awake.binding")
async def test_an_execution_awaits_its_own_alone(harbor: Harbor) -> None:
    mine, yours = await harbor.opened(), await harbor.opened()
    new = await minted(harbor, yours)
    await harbor.resolve(new.token, {"private": "to yours"})
    before = await dump(harbor.store)
    for wrong in (new.id, "awk_nobody"):
        with pytest.raises(AwakeableUnknown):
            await harbor.apply(mine.fence, Await(key("approval"), "1", wrong))
    assert await dump(harbor.store) == before


@pytest.mark.clause("awake.mint", "awake.restart")
async def test_a_host_that_starts_anew_is_told_the_same_token(harbor: Harbor) -> None:
    execution = await harbor.opened()
    new = await minted(harbor, execution)
    await harbor.apply(execution.fence, waiting(new))
    harbor.pass_time(31)
    again = await harbor.held(execution.execution_id, "ben")
    fresh = LocalSubstrate(
        harbor.store.db,
        harbor.store.blobs,
        lambda: harbor.now,
        harbor.kinds,
        ("newer", *KEYS),
        "https://moor.test",
        BODIES.get,
    )
    operations: list[Operation] = [Mint(key("approval"), "0", TTL)]
    assert await fresh.apply(again.fence, operations) == [new]
    assert new.url == f"https://moor.test/awake/{new.token}"
    fresh.keys = ("newer",)
    with pytest.raises(AwakeableTokenLost, match="MOORAGE_DERIVATION_KEYS"):
        await fresh.apply(again.fence, operations)


@pytest.mark.clause("awake.mint")
async def test_no_row_tells_a_token_of_a_run_whatever_became_of_it(harbor: Harbor) -> None:
    """C20: neither the journal, nor the run's row with its steps, nor history, nor a refusal."""
    tokens = []
    for end in ("resolved", "pending"):
        execution = await harbor.opened()
        new = await minted(harbor, execution)
        tokens.append(new.token)
        await harbor.apply(execution.fence, waiting(new))
        await harbor.apply(execution.fence, Suspend("suspended", None, [{"label": "approval", "awakeable": new.id}]))
        if end == "resolved":
            await harbor.resolve(new.token, OK)
            again = await harbor.held(execution.execution_id)
            await harbor.apply(again.fence, Close("success", value(1)))
        with pytest.raises(AwakeableUnknown) as refused:
            await harbor.resolve(new.token + "x", OK)
        assert new.token not in str(refused.value.problem())
        assert new.token not in repr(new)
    stored = repr(await dump(harbor.store))
    for token in tokens:
        assert token.removeprefix("awk_tok_") not in stored
        assert wait_hash(token) in stored


# --- the end of the run ------------------------------------------------------------------------------------------------


@pytest.mark.clause("awake.reject", "awake.expired")
async def test_who_resolves_after_the_run_succeeded_is_told_that_it_is_over(harbor: Harbor) -> None:
    execution = await harbor.opened()
    new, done = await minted(harbor, execution), await minted(harbor, execution, "done")
    await harbor.resolve(done.token, OK)
    await harbor.apply(execution.fence, Close("success", value("went on without")))
    assert await harbor.row(execution.execution_id) is None
    with pytest.raises(AwakeableRejected):
        await harbor.resolve(new.token, OK)
    await harbor.resolve(done.token, OK)
    assert await story(harbor.store, new.id) == [("awakeable.minted", "root"), ("awakeable.rejected", "moorage:runs")]
    assert await harbor.store.sql("SELECT id FROM awakeables WHERE state = 'pending'") == []


@pytest.mark.clause("awake.early", "runs.resumable-remains")
async def test_an_execution_that_stays_keeps_its_promises_open(harbor: Harbor) -> None:
    execution = await harbor.opened(scope="orders/7")
    new = await minted(harbor, execution)
    await harbor.apply(execution.fence, waiting(new), Close("canceled"))
    await harbor.resolve(new.token, OK)
    again = await harbor.opened(scope="orders/7")
    assert again.execution_id == execution.execution_id
    assert [json.loads(entry.value.text or "") for entry in again.entries if entry.kind == "wait" and entry.value] == [
        {"resolved": OK}
    ]


@pytest.mark.clause("awake.reconcile")
async def test_the_registry_is_completed_from_what_a_run_has_read(harbor: Harbor) -> None:
    execution = await harbor.opened()
    new = await minted(harbor, execution)
    await harbor.apply(execution.fence, waiting(new))
    await harbor.apply(execution.fence, SUSPEND)
    await harbor.resolve(new.token, OK)
    await goes_on(harbor, execution.execution_id, {"resolved": OK})
    await harbor.store.sql(
        "UPDATE awakeables SET state = 'pending', payload = NULL, payload_sha256 = NULL, ended_at = NULL, ended_by = NULL"
    )
    tx = Transaction(harbor.now)
    executions.reconcile(tx, "SELECT :execution_id", execution_id=execution.execution_id)
    await harbor.store.db().commit(tx)
    await harbor.resolve(new.token, OK)
    assert len(await harbor.store.sql("SELECT id FROM awakeables WHERE state = 'resolved'")) == 1


@pytest.mark.clause("runs.wake")
async def test_a_suspended_execution_is_due_at_the_first_deadline_and_sooner_once_it_is_woken(harbor: Harbor) -> None:
    execution = await harbor.opened()
    new = await minted(harbor, execution)
    await harbor.apply(execution.fence, waiting(new))
    await harbor.apply(execution.fence, SUSPEND)
    assert (await row_of(harbor.store, execution.execution_id))["wake_at"] == new.deadline
    db = Poked(harbor.store.db())
    await resolve(db, ROOT, harbor.now, new.token, Payload.of(OK))
    assert db.pokes == [execution.execution_id]
    assert (await row_of(harbor.store, execution.execution_id))["wake_at"] == harbor.now + 5000

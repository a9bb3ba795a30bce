"""Awakeables of runs on every adapter: minted as entries, ended with a wake, completed from the journal, over with it."""

from typing import Any

import pytest

from moorage.awakeables import entries, executions, payloads
from moorage.awakeables.due import AwakeableDeadlines
from moorage.awakeables.entries import Told, Wanted
from moorage.awakeables.mint import mint
from moorage.awakeables.model import Draft, Rejection
from moorage.awakeables.resolve import reject, resolve, show, show_one
from moorage.history.query import entries as history
from moorage.journal.model import EntryKey, Fence, Value, wait_hash
from moorage.journal.wake import REPAIR_MS
from moorage.journal.write import Write, write
from moorage.kernel.errors import (
    AwakeableAlreadyResolved,
    AwakeableRejected,
    AwakeableTimedOut,
    AwakeableTokenLost,
    AwakeableUnknown,
    FailureTag,
    LeaseFenced,
    RequestInvalid,
)
from moorage.kernel.instants import Instant, render
from moorage.store.transaction import Reading, Transaction
from moorage.timers.clock import drain
from tests.contract.adapters import Store, dump
from tests.contract.executions import Poked, an_entry, an_execution, row_of
from tests.contract.test_awakeables import DEADLINE, NOW, OK, OTHER, ROOT, TTL, a_credential, later, story

KEYS = ["a derivation key of this test"]
APPROVAL = EntryKey("approval")
NO = Rejection(FailureTag.FORBIDDEN, "the reviewer said no")
ONE = "SELECT :execution_id"


async def minted(store: Store, execution: str = "exe_1", now: Instant = NOW, **wanted: Any) -> Told:
    """Mint as whoever applies a host's operations does: the entry, then the awakeable, in one transaction."""
    keys = wanted.pop("keys", KEYS)
    asked = Wanted(**{"execution_id": execution, "key": APPROVAL, "ttl_seconds": TTL, **wanted})
    prepared = entries.prepare(keys, now, asked)
    tx = Transaction(now)
    one = Write(asked.key, "done", "awakeable", "1", ref=prepared.id, value=Value.of(prepared.value))
    write(tx, Fence(execution, 1), [one])
    row = entries.insert(tx, ROOT, prepared)
    await store.db().commit(tx)
    return entries.told(keys, asked, row.one())


async def awaited(store: Store, new: Told, execution: str = "exe_1", value: Any = None, **columns: Any) -> None:
    """The entry of the wait for it, recorded with a value or still pending."""
    state = columns.pop("state", "pending" if value is None and "blob" not in columns else "done")
    label = columns.pop("label", "approval")
    wait = {"ref": new.id, "input_sha256": wait_hash(new.token), "value": value, **columns}
    await an_entry(store, execution, label, "wait", state, **wait)


async def forgotten_end(store: Store, new: Told) -> None:
    """Take the registry's row back to pending, as a copy of it restored from elsewhere would be."""
    await store.sql(
        "UPDATE awakeables SET state = 'pending', payload = NULL, payload_sha256 = NULL, payload_blob = NULL,"
        " payload_size = NULL, failure = NULL, ended_at = NULL, ended_by = NULL WHERE id = ?",
        new.id,
    )


async def state_of(store: Store, new: Told) -> str:
    return str((await store.sql("SELECT state FROM awakeables WHERE id = ?", new.id))[0]["state"])


# --- minting ----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("awake.mint")
async def test_an_entry_mints_once_and_tells_the_same_token_on_every_replay(store: Store) -> None:
    await an_execution(store, "exe_1")
    first = await minted(store)
    before = await dump(store)
    again = await minted(store, now=later(30_000))
    assert again == first
    assert first.deadline == DEADLINE
    assert await dump(store) == before
    shown = (await show_one(store.db(), ROOT, NOW, first.id)).awakeable
    assert (shown.state, shown.label, shown.execution_id, shown.created_by) == ("pending", "approval", "exe_1", "root")
    assert await story(store, first.id) == [("awakeable.minted", "root")]
    [entry] = await store.sql("SELECT ref, value FROM journal")
    assert (entry["ref"], entry["value"]) == (first.id, f'{{"deadline":"{render(DEADLINE)}","id":"{first.id}"}}')


@pytest.mark.clause("awake.mint")
async def test_no_row_holds_a_token_that_a_run_minted(store: Store) -> None:
    await an_execution(store, "exe_1")
    new = await minted(store)
    await awaited(store, new)
    await resolve(store.db(), ROOT, NOW, new.token, OK)
    assert new.token.removeprefix("awk_tok_") not in repr(await dump(store))
    assert new.token not in repr(new)


@pytest.mark.clause("awake.mint")
async def test_a_token_outlives_the_key_that_made_it_only_among_the_others(store: Store) -> None:
    await an_execution(store, "exe_1")
    first = await minted(store)
    assert (await minted(store, keys=["a newer key", *KEYS])).token == first.token
    with pytest.raises(AwakeableTokenLost):
        await minted(store, keys=["a newer key"])
    assert (await minted(store, keys=["a newer key"], key=EntryKey("another"))).token != first.token


@pytest.mark.clause("awake.mint", "kernel.limits")
@pytest.mark.parametrize(
    "wrong", [{"ttl_seconds": 0}, {"ttl_seconds": 1e12}, {"subject": ""}, {"metadata": {"m": "x" * 16400}}]
)
async def test_what_a_run_asks_for_has_the_bounds_of_minting(store: Store, wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestInvalid):
        await minted(store, **wrong)


@pytest.mark.clause("awake.binding")
async def test_one_bound_to_a_subject_is_unknown_to_every_other(store: Store) -> None:
    await an_execution(store, "exe_1")
    new = await minted(store, subject="github")
    await awaited(store, new)
    before = await dump(store)
    with pytest.raises(AwakeableUnknown):
        await resolve(store.db(), ROOT, NOW, new.token, OK)
    assert await dump(store) == before
    bound = await a_credential(store, "github", "read")
    db = Poked(store.db())
    assert (await resolve(db, bound, NOW, new.token, OK)).ended_by == "github"
    assert db.pokes == ["exe_1"]


# --- waking -----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("awake.journal", "runs.wake")
@pytest.mark.parametrize("end", ["resolved", "rejected", "timed out by a resolver", "timed out by the Clock"])
async def test_every_end_wakes_the_execution_in_its_own_transaction(store: Store, end: str) -> None:
    for name in ("exe_1", "exe_2"):
        await an_execution(store, name)
    new = await minted(store)
    db = Poked(store.db())
    now = NOW if end in ("resolved", "rejected") else DEADLINE
    match end:
        case "resolved":
            await resolve(db, ROOT, now, new.token, OK)
        case "rejected":
            await reject(db, ROOT, now, new.token, NO)
        case "timed out by a resolver":
            with pytest.raises(AwakeableTimedOut):
                await resolve(db, ROOT, now, new.token, OK)
        case _:
            assert (await drain(lambda: db, now, [AwakeableDeadlines()])).fired == {"awakeable_timed_out": 1}
    assert db.pokes == ["exe_1"]
    assert (await row_of(store, "exe_1"))["wake_at"] == now + REPAIR_MS
    assert (await row_of(store, "exe_2"))["wake_at"] is None
    assert len(await story(store, new.id)) == 2


@pytest.mark.clause("awake.journal", "runs.wake")
async def test_a_repeated_end_wakes_nobody(store: Store) -> None:
    await an_execution(store, "exe_1")
    new = await minted(store)
    await resolve(store.db(), ROOT, NOW, new.token, OK)
    before = await dump(store)
    db = Poked(store.db())
    await resolve(db, ROOT, later(9), new.token, OK)
    for refused in (resolve(db, ROOT, later(9), new.token, OTHER), reject(db, ROOT, later(9), new.token, NO)):
        with pytest.raises(AwakeableAlreadyResolved):
            await refused
    assert db.pokes == []
    assert await dump(store) == before


@pytest.mark.clause("awake.journal", "runs.wake")
async def test_a_live_owner_is_poked_and_keeps_its_lease(store: Store) -> None:
    expires = later(30_000)
    await an_execution(store, "exe_1", owner="runner:r:00", expires_at=expires, wake_at=expires)
    new = await minted(store)
    db = Poked(store.db())
    await resolve(db, ROOT, NOW, new.token, OK)
    row = await row_of(store, "exe_1")
    assert (db.pokes, row["owner"], row["expires_at"], row["wake_at"]) == (["exe_1"], "runner:r:00", expires, expires)


@pytest.mark.clause("awake.journal", "runs.wake")
async def test_one_of_a_remote_host_becomes_claimable(store: Store) -> None:
    await an_execution(store, "exe_1", host="remote", runner="")
    new = await minted(store)
    await resolve(store.db(), ROOT, NOW, new.token, OK)
    assert (await row_of(store, "exe_1"))["claimable"] == 1


@pytest.mark.clause("runs.wake")
async def test_one_of_no_run_wakes_nobody(store: Store) -> None:
    await an_execution(store, "exe_1")
    new = await mint(store.db(), ROOT, NOW, Draft(TTL))
    db = Poked(store.db())
    await resolve(db, ROOT, NOW, new.token, OK)
    assert db.pokes == []
    assert (await row_of(store, "exe_1"))["wake_at"] is None


@pytest.mark.clause("awake.idempotent", "awake.reconcile")
@pytest.mark.parametrize("others", [0, 200])
async def test_an_end_is_one_trip_whatever_the_run_has_recorded(store: Store, others: int) -> None:
    await an_execution(store, "exe_1")
    for number in range(others):
        await an_entry(store, "exe_1", f"step-{number}", "step", "done", value=number)
    new = await minted(store)
    await awaited(store, new)
    for payload in (OK, OK, OTHER):
        db = store.db()
        try:
            await resolve(db, ROOT, NOW, new.token, payload)
        except AwakeableAlreadyResolved:
            assert payload is OTHER
        assert db.cost.trips == 1
        assert db.cost.rows_read <= END_READ
        assert db.cost.rows_written <= END_WRITTEN


END_READ = 20
END_WRITTEN = 5
"""Rows of one end of an awakeable of a run, as D1 counts them: the row, its place among the pending, history with its
index by subject, the execution and its place among the due."""


# --- reconciling ------------------------------------------------------------------------------------------------------


@pytest.mark.clause("awake.reconcile", "awake.journal")
async def test_a_resolution_first_completes_the_registry_from_the_journal(store: Store) -> None:
    await an_execution(store, "exe_1")
    new = await minted(store)
    await resolve(store.db(), ROOT, later(5), new.token, OK)
    await awaited(store, new, value={"resolved": {"ok": True, "n": 1}}, ended_at=later(5))
    for payload, refused in ((OTHER, AwakeableAlreadyResolved), (OK, None)):
        await forgotten_end(store, new)
        db = store.db()
        if refused:
            with pytest.raises(refused):
                await resolve(db, ROOT, later(70_000), new.token, payload)
        else:
            again = await resolve(db, ROOT, later(70_000), new.token, payload)
            assert (again.value(), again.ended_at) == ({"ok": True, "n": 1}, later(5))
        assert db.cost.trips == 1
        shown = (await show_one(store.db(), ROOT, later(70_000), new.id)).awakeable
        assert (shown.state, shown.value(), shown.ended_at) == ("resolved", {"ok": True, "n": 1}, later(5))
        assert shown.ended_by == "moorage:journal"
        # What is completed answers like any other from then on.
        assert (await resolve(store.db(), ROOT, NOW, new.token, OK)).value() == {"ok": True, "n": 1}
        with pytest.raises(AwakeableAlreadyResolved):
            await resolve(store.db(), ROOT, NOW, new.token, OTHER)
    assert ("awakeable.resolved", "moorage:journal") in await story(store, new.id)


@pytest.mark.clause("awake.reconcile")
async def test_a_payload_with_the_shape_of_an_outcome_stays_a_payload(store: Store) -> None:
    await an_execution(store, "exe_1")
    new = await minted(store)
    tricky = {"rejected": {"tag": "Invalid", "message": 'é"}'}}
    await awaited(store, new, value={"resolved": tricky})
    shown = await resolve(store.db(), ROOT, NOW, new.token, payloads.Payload.of(tricky))
    assert (shown.state, shown.value()) == ("resolved", tricky)


@pytest.mark.clause("awake.reconcile", "awake.reject")
async def test_a_recorded_rejection_and_a_recorded_timeout_complete_the_registry_too(store: Store) -> None:
    await an_execution(store, "exe_1")
    no, late = await minted(store), await minted(store, key=EntryKey("late"))
    await awaited(store, no, value={"rejected": NO.wire()})
    await awaited(store, late, value={"timed_out": render(DEADLINE)}, label="late")
    with pytest.raises(AwakeableRejected):
        await resolve(store.db(), ROOT, NOW, no.token, OK)
    assert (await reject(store.db(), ROOT, NOW, no.token, NO)).rejection == NO
    # A run has read the timeout, by a clock a little ahead of this one's: nobody is told of a success any more.
    with pytest.raises(AwakeableTimedOut):
        await resolve(store.db(), ROOT, Instant(DEADLINE - 1), late.token, OK)
    shown = (await show_one(store.db(), ROOT, NOW, late.id)).awakeable
    assert (shown.state, shown.ended_at, shown.ended_by) == ("timed_out", DEADLINE, "moorage:clock")


@pytest.mark.clause("awake.reconcile", "awake.deadline")
async def test_the_clock_times_nothing_out_that_the_journal_has_resolved(store: Store) -> None:
    await an_execution(store, "exe_1")
    new = await minted(store)
    await awaited(store, new, value={"resolved": {"ok": True, "n": 1}}, ended_at=later(5))
    await drain(store.db, DEADLINE, [AwakeableDeadlines()])
    shown = (await show_one(store.db(), ROOT, DEADLINE, new.id)).awakeable
    assert (shown.state, shown.value(), shown.ended_at) == ("resolved", {"ok": True, "n": 1}, later(5))
    assert await story(store, new.id) == [("awakeable.minted", "root"), ("awakeable.resolved", "moorage:journal")]


@pytest.mark.clause("awake.reconcile")
async def test_an_opening_completes_every_registry_row_of_its_execution_and_no_other(store: Store) -> None:
    for name in ("exe_1", "exe_2"):
        await an_execution(store, name)
    labels = ["resolved", "rejected", "late", "open"]
    values = [{"resolved": 7}, {"rejected": NO.wire()}, {"timed_out": render(DEADLINE)}, None]
    several = [await minted(store, key=EntryKey(label)) for label in labels]
    other = await minted(store, "exe_2")
    for label, new, value in zip(labels, several, values, strict=True):
        await awaited(store, new, value=value, label=label)
    await awaited(store, other, "exe_2", value={"resolved": 8})
    tx = Transaction(later(9))
    executions.reconcile(tx, ONE, execution_id="exe_1")
    await store.db().commit(tx)
    assert [await state_of(store, new) for new in [*several, other]] == [
        "resolved",
        "rejected",
        "timed_out",
        "pending",
        "pending",
    ]
    told = [(entry.type, entry.actor) for entry in await history(store.db(), 0, 500) if entry.type != "awakeable.minted"]
    assert sorted(told) == [
        ("awakeable.rejected", "moorage:journal"),
        ("awakeable.resolved", "moorage:journal"),
        ("awakeable.timed_out", "moorage:clock"),
    ]
    before = await dump(store)
    again = Transaction(later(10))
    executions.reconcile(again, ONE, execution_id="exe_1")
    await store.db().commit(again)
    assert await dump(store) == before


@pytest.mark.clause("awake.reconcile")
async def test_a_wait_that_was_given_up_or_is_of_another_execution_settles_nothing(store: Store) -> None:
    await an_execution(store, "exe_1")
    new = await minted(store)
    await awaited(store, new, value={"resolved": 1}, state="canceled")
    await awaited(store, new, "exe_9", value={"resolved": 2})
    assert (await resolve(store.db(), ROOT, NOW, new.token, OK)).value() == {"ok": True, "n": 1}


# --- the end of a run -------------------------------------------------------------------------------------------------


async def retired(store: Store, now: Instant, execution: str = "exe_1") -> None:
    tx = Transaction(now)
    executions.retire(tx, ONE, execution_id=execution)
    tx.run("DELETE FROM journal WHERE execution_id = :execution_id", execution_id=execution)
    tx.run("DELETE FROM executions WHERE execution_id = :execution_id", execution_id=execution)
    await store.db().commit(tx)


@pytest.mark.clause("awake.reject", "awake.expired")
async def test_what_is_pending_when_its_execution_is_retired_ends_and_says_why(store: Store) -> None:
    for name in ("exe_1", "exe_2"):
        await an_execution(store, name)
    several = {label: await minted(store, key=EntryKey(label)) for label in ("open", "resolved", "unwritten")}
    late = await minted(store, key=EntryKey("late"), ttl_seconds=1)
    other = await minted(store, "exe_2")
    await resolve(store.db(), ROOT, NOW, several["resolved"].token, OK)
    await awaited(store, several["unwritten"], value={"resolved": {"ok": True, "n": 1}}, label="unwritten")
    await retired(store, later(2000))
    with pytest.raises(AwakeableRejected):
        await resolve(store.db(), ROOT, later(2000), several["open"].token, OK)
    shown = (await show(store.db(), ROOT, later(2000), several["open"].token)).wire()
    assert (shown["state"], shown["error"]["tag"], shown["ended_by"]) == ("rejected", "Canceled", "moorage:runs")
    # Who had resolved it is answered as before.
    for label in ("resolved", "unwritten"):
        assert (await resolve(store.db(), ROOT, later(2000), several[label].token, OK)).value() == {"ok": True, "n": 1}
    with pytest.raises(AwakeableTimedOut):
        await resolve(store.db(), ROOT, later(2000), late.token, OK)
    assert await state_of(store, other) == "pending"
    for new in (*several.values(), late):
        assert len(await story(store, new.id)) == 2
    assert await store.sql("SELECT id FROM awakeables WHERE state = 'pending' AND execution_id = 'exe_1'") == []


async def test_retiring_an_execution_without_awakeables_changes_nothing_else(store: Store) -> None:
    await an_execution(store, "exe_1")
    await mint(store.db(), ROOT, NOW, Draft(TTL))
    before = await dump(store)
    tx = Transaction(NOW)
    executions.retire(tx, ONE, execution_id="exe_1")
    db = store.db()
    await db.commit(tx)
    assert await dump(store) == before
    assert db.cost.rows_written == 0
    assert db.cost.rows_read <= 10


@pytest.mark.clause("runs.rewind-unsafe")
async def test_what_is_pending_before_its_deadline_is_named(store: Store) -> None:
    await an_execution(store, "exe_1")
    several = [await minted(store, key=EntryKey(f"l{number}"), ttl_seconds=TTL + number) for number in range(4)]
    await minted(store, "exe_2")
    await resolve(store.db(), ROOT, NOW, several[1].token, OK)
    await awaited(store, several[2], value={"resolved": 1}, label="l2")

    async def pending(now: Instant) -> list[str]:
        reading = Reading()
        found = executions.pending_of(reading, "exe_1", now)
        await store.db().read(reading)
        return [row["label"] for row in found.rows]

    assert await pending(NOW) == ["l0", "l3"]
    assert await pending(DEADLINE) == ["l3"]
    tx = Transaction(NOW)
    executions.require_none_pending(tx, "exe_1", LeaseFenced())
    with pytest.raises(LeaseFenced):
        await store.db().commit(tx)
    past = Transaction(later(TTL * 2000))
    executions.require_none_pending(past, "exe_1", LeaseFenced())
    await store.db().commit(past)


@pytest.mark.clause("awake.restart")
async def test_pending_ones_are_there_for_a_process_that_opens_the_store_anew(store: Store) -> None:
    await an_execution(store, "exe_1")
    new = await minted(store)
    await awaited(store, new)
    # `store.db()` is a new instance each time, and nothing else of the first one is used again.
    again = await minted(store, now=later(1))
    assert again.token == new.token
    db = Poked(store.db())
    assert (await resolve(db, ROOT, later(1), again.token, OK)).state == "resolved"
    assert db.pokes == ["exe_1"]

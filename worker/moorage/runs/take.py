"""Taking an execution that nobody holds: its lease, its run, and all that was recorded (clause runs.owner).

One round trip: the lease is taken if it is free or has run out and no guard protects the scope, the build that the execution
is bound to is compared with the host's, waits that are over are written down, and the run and its entries are read. A build
that the host does not have ends the run; the execution stays, bound as it was (clause runs.pinned-plan-changed).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from moorage.awakeables import entries as awakeables
from moorage.awakeables.derive import Keys
from moorage.awakeables.entries import Told
from moorage.guards import blocked, release
from moorage.guards import statements as guards
from moorage.journal import load
from moorage.journal.model import Entry, EntryKey, Fence, Lease, Value
from moorage.kernel import canonical
from moorage.kernel.errors import BlobCorrupt, BlobMissing, ExecutionGuardBlocked, FailureTag, JournalFull
from moorage.kernel.instants import Instant, after
from moorage.kernel.limits import JOURNAL_ENTRIES, OWNER_LEASE_SECONDS
from moorage.runs import letting_go, settle, statements, values
from moorage.runs.model import CAPABILITIES, TERMINAL, Execution, Failure, Minted, Pins, Stop, Trace
from moorage.runs.operations import Close
from moorage.store.ports import Blobs, Database
from moorage.store.transaction import Answer, Reading, Row, Transaction


class _Changed(Exception):
    """What was to be refused is no longer as it was read. It never leaves this module."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """What tells the tokens of awakeables: the derivation keys, and the deployment's address without a slash at its end."""

    keys: Keys = field(default=(), repr=False)
    url: str = ""

    def minted(self, told: Told) -> Minted:
        """An awakeable as a host is answered it."""
        return Minted(told.id, told.token, told.deadline, f"{self.url}/awake/{told.token}")


NO_TOKENS: Final = Tokens()
"""Without keys a host is handed no tokens, and asks for each."""


async def take(
    db: Database,
    blobs: Blobs,
    now: Instant,
    execution_id: str,
    owner: str,
    builds: Mapping[str, str],
    tokens: Tokens = NO_TOKENS,
) -> Execution | None:
    """Take an execution for `owner` with the builds that its host has, by the body's name; None when it is not to be had.

    It is not when somebody holds it under a live lease, when its run has ended, or when there is none. A run that is pinned
    to another build than the host's ends as failed with ExecutionPinMismatch, and one whose input cannot be read with
    BlobMissing or BlobCorrupt. So does one that has recorded more than JOURNAL_ENTRIES, with JournalFull: hosts count what
    they record, because to count with every write would read the whole journal or write another row each time, and here
    every entry is read anyway. An execution with a stop that was asked for is taken like any other: see `stop`. `tokens`
    make what the execution has minted part of the answer.

    Where a guard protects its scope it is taken only over the execution's own, whose holder has exited while the window
    covers the key: the guard is removed in the same batch, and the step sends the same key again (clause guards.replay).
    Raises ExecutionGuardBlocked otherwise.
    """
    found = await _take(db, now, statements.TAKE, execution_id, owner, builds)
    if found.claimed is None:
        row = found.execution.first()
        if row is None or _is_held(row, now) or row["status"] in TERMINAL:
            return None
        if builds.get(row["body"]) != row["build"]:
            await _refuse(db, now, row, builds)
            return None
        found = await _take(db, now, statements.TAKE_OVER, execution_id, owner, builds)
        if found.claimed is None:
            guard = await blocked.of_execution(db, execution_id)
            if guard is None:
                return None
            raise blocked.error(guard, now)
    return await _held(db, blobs, now, found, tokens)


async def _take(
    db: Database, now: Instant, statement: str, execution_id: str, owner: str, builds: Mapping[str, str]
) -> "_Found":
    """Take an execution with `statement` if it may be; with TAKE_OVER its guard gives way in the same batch."""
    tx = Transaction(now)
    expires_at = after(now, OWNER_LEASE_SECONDS)
    told = canonical.compact(dict(builds))
    claimed = tx.run(statement, execution=execution_id, owner=owner, expires_at=expires_at, builds=told)
    if statement is statements.TAKE_OVER:
        where: dict[str, Any] = {"execution": execution_id, "owner": owner, "expires_at": expires_at}
        release.replay(tx, letting_go.RUNNER, guards.OF_TAKEN, **where)
    found = _plan_reading(tx, execution_id, owner, expires_at)
    await db.commit(tx)
    found.claimed = claimed.first()
    return found


async def take_next(
    db: Database, blobs: Blobs, now: Instant, owner: str, builds: Mapping[str, str], tokens: Tokens = NO_TOKENS
) -> Execution | None:
    """Take the oldest execution that waits for a host outside the Worker with one of these builds; None when none does.

    Two round trips, or one that finds nothing. Executions pinned to another build are left to a host that has it; those
    that a guard protects are passed over, but for one that gives way, as `take` says.
    """
    tx = Transaction(now)
    expires_at = after(now, OWNER_LEASE_SECONDS)
    wanted = canonical.compact(dict(builds))
    claimed = tx.run(statements.TAKE_NEXT, owner=owner, expires_at=expires_at, builds=wanted)
    giving_way = tx.run(statements.NEXT_TO_TAKE_OVER, builds=wanted)
    await db.commit(tx)
    taken = claimed.first()
    if taken is None:
        if (left := giving_way.first()) is None:
            return None
        try:
            return await take(db, blobs, now, left["execution_id"], owner, builds, tokens)
        except ExecutionGuardBlocked:
            return None  # it was released and taken meanwhile, and another effect begun
    tx = Transaction(now)
    found = _plan_reading(tx, taken["execution_id"], owner, expires_at)
    await db.commit(tx)
    return await _held(db, blobs, now, found, tokens)


async def held_by(
    db: Database,
    blobs: Blobs,
    now: Instant,
    execution_id: str,
    owner: str,
    expires_at: Instant | None = None,
    tokens: Tokens = NO_TOKENS,
) -> Execution | None:
    """An execution that `owner` holds already, as `take` answers it; None when another one does, or nobody.

    One round trip where `expires_at` of the lease is known, else two.
    """
    if expires_at is None:
        reading = Reading()
        lease = reading.ask(statements.LEASE, execution=execution_id)
        await db.read(reading)
        row = lease.first()
        if row is None or row["owner"] != owner or row["expires_at"] <= now:
            return None
        expires_at = row["expires_at"]
    tx = Transaction(now)
    found = _plan_reading(tx, execution_id, owner, expires_at)
    await db.commit(tx)
    row = found.execution.first()
    if row is None or row["owner"] != owner or row["expires_at"] != expires_at:
        return None
    return await _held(db, blobs, now, found, tokens)


@dataclass(slots=True)
class _Found:
    """What a taking reads: the execution with its run, its entries and awakeables, and the children whose results are
    apart."""

    execution: Answer
    entries: Answer
    awakeables: Answer
    large: Answer
    claimed: Row | None = None


def _plan_reading(tx: Transaction, execution_id: str, owner: str, expires_at: Instant) -> _Found:
    tx.run(statements.RUNNING, execution=execution_id, owner=owner, expires_at=expires_at)
    large = settle.taken(tx, execution_id, owner, expires_at)
    return _Found(
        execution=tx.run(statements.EXECUTION, execution=execution_id),
        entries=load.all_of(tx, execution_id),
        awakeables=awakeables.of_execution(tx, execution_id),
        large=large,
    )


async def _held(db: Database, blobs: Blobs, now: Instant, found: _Found, tokens: Tokens) -> Execution | None:
    row = found.execution.one()
    execution = execution_of(row)
    entries = load.entries_of(found.entries.rows)
    if len(entries) > JOURNAL_ENTRIES:
        full = f"{len(entries)} entries are recorded, and {JOURNAL_ENTRIES} are the most. {JournalFull.meaning()}"
        await _close_failed(db, now, execution.fence, Failure(JournalFull.tag.value, full, JournalFull.__name__))
        return None
    try:
        if found.large.rows:
            ended = await settle.large(db, blobs, now, execution.fence, found.large.rows)
            entries = _with_ended(entries, ended)
        given = await values.load(blobs, execution.input)
    except (BlobMissing, BlobCorrupt) as error:
        await _close_failed(db, now, execution.fence, Failure(error.tag.value, error.detail, error.code))
        return None
    told = awakeables.tokens(tokens.keys, entries, found.awakeables.rows)
    minted = {key: tokens.minted(one) for key, one in told.items()}
    return replace(execution, input=given, entries=entries, minted=minted)


def execution_of(row: Row) -> Execution:
    """The execution that a row of EXECUTION holds, without its entries; a large input without its text."""
    return Execution(
        execution_id=row["execution_id"],
        run_id=row["run_id"],
        body=row["body"],
        scope=row["scope"],
        lease=Lease(row["epoch"], row["owner"], row["expires_at"], row["attempt"]),
        pins=Pins.of(json.loads(row["pins"])),
        input=Value(row["input"], row["input_size"], row["input_blob"]),
        trace=Trace(row["trace_id"], row["span_id"], row["parent_span"], row["trace_state"]),
        stop=stop_of(row),
        metadata=canonical.stored(row["metadata"]),
        config=canonical.stored(row["config"]),
        retry=None if row["retry"] is None else canonical.stored(row["retry"]),
        capabilities=CAPABILITIES,
        started_at=row["started_at"],
    )


def stop_of(row: Row) -> Stop | None:
    """The stop that a run's row holds."""
    if row["stop_requested_at"] is None:
        return None
    return Stop(row["stop_requested_at"], row["stop_scope"], row["stop_reason"])


def _with_ended(entries: list[Entry], ended: list[Entry]) -> list[Entry]:
    changed: dict[EntryKey, Entry] = {entry.key: entry for entry in ended}
    return [changed.get(entry.key, entry) for entry in entries]


def _is_held(row: Row, now: Instant) -> bool:
    return row["owner"] is not None and bool(row["expires_at"] > now)


async def _refuse(db: Database, now: Instant, row: Row, builds: Mapping[str, str]) -> None:
    """End the run of an execution that is to be had, but not by a host with these builds."""
    tx = Transaction(now)
    where: dict[str, Any] = {"execution": row["execution_id"], "epoch": row["epoch"], "run": row["run_id"]}
    tx.require(statements.MAY_BE_REFUSED, _Changed(), **where)
    build = builds.get(row["body"])
    close = Close("failed", error=_mismatch(row, build))
    letting_go.close(tx, Fence(row["execution_id"], row["epoch"]), close, requested_plan=build or "no build of this body")
    try:
        await db.commit(tx)
    except _Changed:
        return


async def _close_failed(db: Database, now: Instant, fence: Fence, failure: Failure) -> None:
    tx = Transaction(now)
    tx.require(statements.HELD_AND_OPEN, _Changed(), execution=fence.execution_id, epoch=fence.epoch)
    letting_go.close(tx, fence, Close("failed", error=failure))
    try:
        await db.commit(tx)
    except _Changed:
        return


def _mismatch(row: Row, build: str | None) -> Failure:
    pinned = Pins.of(json.loads(row["pins"]))
    execution, scope = row["execution_id"], row["scope"]
    now_there = f"the host has build {build}" if build else f"no body {row['body']!r} is registered any more"
    message = (
        f"the execution {execution} of scope {scope!r} is pinned to build {pinned.build.digest} (implementation "
        f"{pinned.build.implementation}) with input {pinned.input}, and {now_there} for it. Restore the pinned build and "
        f"open the scope again, or give up what it recorded with `moorage run rewind {execution} --reason '...'`"
    )
    return Failure(FailureTag.INCOMPATIBLE.value, message, "ExecutionPinMismatch")

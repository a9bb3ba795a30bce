"""Restarting a run from what it recorded: a fresh execution of the same scope and input that keeps a prefix.

The recorded steps before a named one are copied, and the earlier execution is retired, in one transaction and with the
protections of a rewind. The fresh execution is bound to the build that is registered now, and its effects carry keys of
their own: what comes after the prefix is done again.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from moorage.catalog.access import Action, Caller
from moorage.history.append import Event, append
from moorage.idempotency.keys import AlreadyDone, Key, remember
from moorage.journal.model import Value
from moorage.kernel import canonical
from moorage.kernel.errors import (
    EntryUnknown,
    ExecutionRewindNotPending,
    IdempotencyConflict,
    RunJournalRetired,
    RunUnknown,
    StorageCapabilityMissing,
)
from moorage.kernel.instants import Instant
from moorage.kernel.refusals import check_reason
from moorage.messages.inbox import waits
from moorage.runs import admission, authority, retiring, values
from moorage.runs import control_statements as statements
from moorage.runs.admission import Admitted, Planned, Start
from moorage.runs.model import BodyInfo, Trace
from moorage.runs.placement import RUNNERS
from moorage.runs.rewind import leave, pending_execution, require_safe
from moorage.store.ports import Blobs, Database
from moorage.store.transaction import Reading, Row, Transaction

_ACTIONS: Final[tuple[Action, ...]] = ("execute", "operate")
_SEPARATORS = re.compile(r"[./]")


async def restart(
    db: Database,
    blobs: Blobs | None,
    caller: Caller,
    now: Instant,
    run_id: str,
    body: Callable[[str], Awaitable[BodyInfo]],
    trace: Trace,
    reason: str,
    from_step: str | None = None,
    key: Key | None = None,
    *,
    check: Callable[[BodyInfo, Any], None],
    shards: int = RUNNERS,
) -> Admitted:
    """Run again from what a run's execution recorded: all of it, or only what stands before the first `from_step`.

    "Before" is the order of the body: by the entries' positions, where branches stand one after the other. `body` tells a
    registered body by its name, and `check` raises InputInvalid where another build does not take the old input: then
    nothing is given up. It takes grants to execute and to operate on the body. Raises RunUnknown, Forbidden,
    RunJournalRetired when nothing is pending any more, EntryUnknown when no entry has the label, ExecutionRewindUnsafe,
    ExecutionGuardBlocked while a guard protects its scope, EffectUnsettled while an effect is to be sent again, BodyUnknown,
    BlobMissing or BlobCorrupt when the input cannot be read, RequestInvalid for the reason, IdempotencyConflict.
    """
    check_reason(reason)
    execution_id = await _execution_of(db, caller, run_id)
    try:
        pending = await pending_execution(db, caller, now, execution_id)
    except ExecutionRewindNotPending:
        return await _restarted_before(db, key)
    row = pending.row
    kept = prefix(await _entries(db, execution_id), from_step)
    info = await body(row["body"])
    if info.build.digest != row["build"]:
        check(info, await _input(blobs, row))
    tx = Transaction(now)
    caller.guard(tx)
    require_safe(tx, pending)
    leave(tx, caller.subject, execution_id, "it was restarted")
    tx.run(statements.RETIRE, executions=canonical.compact([execution_id]))
    start = _start(caller, row, trace, run_id)
    planned = admission.plan(tx, now, info, start, handoff=False, shards=shards)
    _carry_over(tx, row, planned, kept)
    retiring.collect(tx, [execution_id])
    told = {"from_step": from_step, "kept": len(kept), "reason": reason, "run_id": planned.run_id, "scope": row["scope"]}
    append(tx, caller.subject, Event(execution_id, "execution.restarted", told))
    remember(tx, key, {"run": planned.run_id})
    try:
        await db.commit(tx)
    except AlreadyDone:
        return await admission.admitted_before(db, key)
    return admission.admitted(planned)


def prefix(entries: Sequence[Row], from_step: str | None) -> list[list[str]]:
    """The keys of the recorded entries that stand before the first entry labelled `from_step`; all without one.

    Raises EntryUnknown when no entry has the label.
    """
    recorded = [row for row in entries if row["state"] == "done"]
    if from_step is not None:
        places = [place(row["position"]) for row in entries if row["label"] == from_step]
        if not places:
            raise EntryUnknown(f"the execution has no entry {from_step!r}")
        recorded = [row for row in recorded if place(row["position"]) < min(places)]
    return [[row["label"], row["input_sha256"]] for row in recorded]


def place(position: str) -> list[int]:
    """A position as a list that sorts as the body reads: `2.1/10` after `2.1/9`, and the first branch before the second."""
    return [int(part) for part in _SEPARATORS.split(position) if part]


async def _execution_of(db: Database, caller: Caller, run_id: str) -> str:
    reading = Reading()
    found = reading.ask(statements.EXECUTION_OF, run_id=run_id)
    await db.read(reading)
    row = found.first()
    if row is None or not (row["created_by"] == caller.subject or authority.sees(caller, row["body"])):
        raise RunUnknown()
    for action in _ACTIONS:
        authority.demand(caller, action, row["body"])
    return str(row["execution_id"])


async def _input(blobs: Blobs | None, row: Row) -> Any:
    """The input that the execution is bound to."""
    given = Value(row["input"], row["input_size"], row["input_blob"])
    if blobs is not None:
        given = await values.load(blobs, given)
    if given.text is None:
        raise StorageCapabilityMissing("an input of this size needs the bucket")
    return canonical.loads(given.text.encode())


async def _entries(db: Database, execution_id: str) -> list[Row]:
    reading = Reading()
    entries = reading.ask(statements.ENTRIES, execution=execution_id)
    await db.read(reading)
    return entries.rows


async def _restarted_before(db: Database, key: Key | None) -> Admitted:
    """The execution is gone, which this very key may have done."""
    if key is not None:
        with suppress(IdempotencyConflict):
            return await admission.admitted_before(db, key)
    raise RunJournalRetired()


def _start(caller: Caller, row: Row, trace: Trace, run_id: str) -> Start:
    return Start(
        scope=row["scope"],
        input=Value(row["input"], row["input_size"], row["input_blob"]),
        subject=caller.subject,
        credential=caller.credential,
        trace=trace,
        parent_execution=row["parent_execution"],
        parent_run=row["parent_run"],
        config_revision=row["config_revision"],
        restarted_from=run_id,
        metadata=canonical.stored(row["metadata"]),
        config=canonical.stored(row["config"]),
        retry=None if row["retry"] is None else canonical.stored(row["retry"]),
    )


def _carry_over(tx: Transaction, row: Row, planned: Planned, kept: list[list[str]]) -> None:
    """Give the fresh execution the kept entries, with the awakeables and the objects that these name."""
    earlier, fresh = row["execution_id"], planned.execution.execution_id
    tx.run(statements.COPY, execution=earlier, fresh=fresh, kept=canonical.compact(kept))
    tx.run(statements.COPY_AWAKEABLES, execution=earlier, fresh=fresh)
    waits.copy(tx, earlier, fresh)
    tx.run(statements.COPY_REFERENCES, execution=earlier, fresh=fresh, input_blob=row["input_blob"])
    if row["parent_execution"] is not None:
        tx.run(statements.RELINK, parent=row["parent_execution"], run_id=planned.run_id, earlier=row["run_id"])

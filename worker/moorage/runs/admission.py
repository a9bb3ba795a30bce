"""Opening an execution under a scope, and the run that records it (clauses runs.admission, runs.row-at-open, runs.owner).

Who may start what, with what input and under which scope, is checked before anything is stored. Then one transaction makes
the execution and its run: in the usual case it hands the execution over to its Runner at once, so that a start costs no
further reading. What is pending under the scope is decided inside it: joined, or a refusal that leaves a run of its own.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from moorage.blobs import references
from moorage.catalog.access import Caller
from moorage.guards import blocked, release
from moorage.guards import statements as guards
from moorage.guards.model import Guard
from moorage.history.append import Event, append, append_selected
from moorage.idempotency import keys
from moorage.idempotency.keys import AlreadyDone, Key
from moorage.journal.model import Lease, Value
from moorage.journal.wake import REPAIR_MS
from moorage.kernel import canonical, ids
from moorage.kernel.errors import (
    ExecutionBusy,
    ExecutionGuardBlocked,
    ExecutionPinMismatch,
    ExecutionUnknown,
    MoorageError,
    PayloadTooLarge,
    RunMetadataTooLarge,
    RunUnknown,
    StorageCapabilityMissing,
)
from moorage.kernel.instants import Instant, after
from moorage.kernel.limits import JOURNAL_VALUE_BYTES, METADATA_BYTES, OWNER_LEASE_SECONDS
from moorage.messages.inbox import correlate
from moorage.messages.inbox.correlate import ExternalKey
from moorage.messages.outbox import completions
from moorage.runs import admission_statements as statements
from moorage.runs import authority, letting_go, scopes, values
from moorage.runs.model import CAPABILITIES, BodyInfo, Execution, Pins, Status, Trace
from moorage.runs.placement import RUNNERS, runner_of
from moorage.store.ports import Blobs, Database
from moorage.store.transaction import Answer, Reading, Row, Scalar, Transaction

HANDOFF_SECONDS: Final = 30
"""The lease with which an execution is handed to its Runner, which renews it like any other. Of a thousand that are started
at once the last ones come to that after more than ten seconds on a busy machine."""

RECOVERIES: Final = (
    "restore the build and the input that are pinned and open the scope again",
    "moorage run rewind {execution} --reason '...'",
)


@dataclass(frozen=True, slots=True)
class Start:
    """What is to be started. `scope` None is a scope of the run's own; `input` has its text, and its digest as `blob` when
    it was stored in the bucket already. `subject` and `credential` are whom the run acts as. `retry` is the schedule of
    steps that name none: no pin, so that a pending execution is joined all the same, and goes on with it."""

    scope: str | None
    input: Value
    subject: str
    credential: str | None
    trace: Trace
    parent_execution: str | None = None
    parent_run: str | None = None
    config_revision: str | None = None
    restarted_from: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    retry: Mapping[str, Any] | None = None
    notify: tuple[str, ...] = ()
    """Destinations that the run's end is told to."""
    correlations: tuple[ExternalKey, ...] = ()
    """Keys that belong to the run's scope from then on."""

    @property
    def input_sha256(self) -> str:
        """The digest of the input's canonical text."""
        return self.input.blob or canonical.digest(self.input.text or "")


@dataclass(frozen=True, slots=True)
class Planned:
    """An opening that was planned into a transaction. Its answers hold after the commit.

    `execution` is what a fresh one will be, with the lease under which it is handed over, if it is; `lease` None: to nobody.
    """

    run_id: str
    execution: Execution
    lease: Lease | None
    run: Answer
    pending: Answer
    due: Instant
    guard: Answer | None = None

    @property
    def refusal(self) -> str | None:
        """The code of the error that the run failed with at once; None when it was admitted."""
        error = self.run.one()["error"]
        return None if error is None else str(json.loads(error)["code"])

    @property
    def is_fresh(self) -> bool:
        """Whether the execution is new, rather than joined or refused."""
        row = self.run.one()
        return bool(row["execution_id"] == self.execution.execution_id and row["error"] is None)


@dataclass(frozen=True, slots=True)
class Admitted:
    """A run that was admitted, now or earlier under the same key.

    `execution` is to be handed to its Runner by the poke that the caller sends; None: whoever takes it is poked already.
    `due` is when the Clock must look if nobody did.
    """

    run_id: str
    execution_id: str
    status: Status
    host: str
    runner: str
    execution: Execution | None = None
    due: Instant | None = None


def plan(
    tx: Transaction,
    now: Instant,
    info: BodyInfo,
    start: Start,
    *,
    handoff: bool,
    owner: str | None = None,
    shards: int = RUNNERS,
) -> Planned:
    """Plan the opening of an execution, its run and the run's entry of history into `tx`.

    With `handoff` the Runner has the lease from the beginning, for HANDOFF_SECONDS; with `owner` that host has it, for
    OWNER_LEASE_SECONDS. Otherwise the execution is poked after the commit, and the Clock makes sure. An execution that is
    joined is handed to nobody but an `owner`. It raises nothing at the commit: a pending execution that refuses shows as
    a run that has failed, which a parent takes as its child's end and `admit` raises.
    """
    run_id = ids.new("run", now)
    scope = start.scope if start.scope is not None else run_id
    declared = start.scope is not None and not scopes.is_derived(scope)
    runner = runner_of(scope, declared, shards)
    lease = _lease(now, runner, info, handoff, owner)
    pins = Pins(info.build, start.input_sha256)
    execution = Execution(
        execution_id=ids.new("exe", now),
        run_id=run_id,
        body=info.name,
        scope=scope,
        lease=lease or Lease(0, "", now),
        pins=pins,
        input=start.input,
        trace=start.trace,
        metadata=start.metadata,
        config=start.config,
        retry=start.retry,
        capabilities=CAPABILITIES,
        started_at=now,
    )
    due = lease.expires_at if lease else Instant(now + REPAIR_MS)
    row = _row(execution, info, start, runner, lease, due)
    if start.scope is None:
        return _plan_fresh(tx, execution, lease, row, due)
    return _plan_named(tx, execution, lease, row, due, owner)


async def admit(
    db: Database,
    blobs: Blobs | None,
    caller: Caller,
    now: Instant,
    info: BodyInfo,
    start: Start,
    key: Key | None = None,
    *,
    handoff: bool = True,
    shards: int = RUNNERS,
) -> Admitted:
    """Admit a run of a body, in one round trip unless its input is large. Its input was checked against the body before.

    `handoff` is for bodies of the Worker. Raises Forbidden, IdInvalid, PayloadTooLarge, RunMetadataTooLarge,
    ExecutionBusy, ExecutionPinMismatch, ExecutionGuardBlocked, ExecutionUnknown for a run's own scope whose execution is
    gone, IdempotencyConflict. The first three conflicts leave a run that has failed, which `run_id` names.
    """
    check(caller, info, start)
    hand_over = handoff and info.host == "worker"
    try:
        planned = await commit(
            db, blobs, caller, now, start, key, lambda tx, told: plan(tx, now, info, told, handoff=hand_over, shards=shards)
        )
    except AlreadyDone:
        return await admitted_before(db, key)
    return admitted(planned)


def admitted(planned: Planned) -> Admitted:
    """What an opening that was committed, and not refused, is answered with."""
    row, opened = planned.run.one(), planned.pending.one()
    execution = planned.execution if planned.is_fresh and planned.lease else None
    return Admitted(
        planned.run_id, row["execution_id"], row["status"], opened["host"], opened["runner"], execution, planned.due
    )


async def admitted_before(db: Database, key: Key | None) -> Admitted:
    """What was admitted under a key that was used before. Raises IdempotencyConflict when other content was."""
    made = await keys.recall(db, key)
    reading = Reading()
    run = reading.ask(statements.OPENED_RUN, run_id=made["run"])
    await db.read(reading)
    row: Row = run.one(RunUnknown())
    return Admitted(row["run_id"], row["execution_id"], row["status"], row["host"], row["runner"])


def check(caller: Caller, info: BodyInfo, start: Start) -> None:
    """Raise Forbidden, IdInvalid, PayloadTooLarge or RunMetadataTooLarge unless the caller may start this."""
    authority.demand(caller, "execute", info.name)
    if start.scope is not None:
        (scopes.check_derived if scopes.is_derived(start.scope) else scopes.check_declared)(start.scope)
    if start.input.size > JOURNAL_VALUE_BYTES:
        raise PayloadTooLarge(f"the input passes {JOURNAL_VALUE_BYTES} bytes", limit=int(JOURNAL_VALUE_BYTES))
    completions.check(start.notify)
    correlate.check(start.correlations, "/correlations")
    size = canonical.size(canonical.dumps(dict(start.metadata)))
    if size > METADATA_BYTES:
        raise RunMetadataTooLarge(f"{size} bytes of metadata; the limit is {METADATA_BYTES}", limit=int(METADATA_BYTES))


async def commit(
    db: Database,
    blobs: Blobs | None,
    caller: Caller,
    now: Instant,
    start: Start,
    key: Key | None,
    planning: Callable[[Transaction, Start], Planned],
) -> Planned:
    """Commit what `planning` plans, with a large input stored before, and raise what refused it.

    Raises AlreadyDone under a key that was used, and what `admit` raises.
    """
    stored, upload = await _store(db, blobs, now, start)
    tx = Transaction(now)
    caller.guard(tx)
    if start.scope is not None and scopes.is_derived(start.scope):
        unknown = ExecutionUnknown("no execution is pending under this run's scope")
        tx.require(statements.IS_PENDING, unknown, scope=start.scope)
    planned = planning(tx, stored)
    if start.notify:
        completions.plan(tx, start.subject, planned.run_id, start.notify)
    if start.correlations:
        correlate.plan(tx, start.scope or planned.run_id, start.correlations, start.subject)
    if upload is not None and stored.input.blob is not None:
        references.require_held(tx, stored.input.blob, upload)
        tx.run(
            statements.KEEP_INPUT,
            sha256=stored.input.blob,
            upload=upload,
            execution_id=planned.execution.execution_id,
        )
    if key is not None:
        keys.remember(tx, key, {"run": planned.run_id})
        if start.scope is not None:
            tx.run(statements.FORGET_REFUSED, key_subject=key.subject, key_text=key.key, run_id=planned.run_id)
    await db.commit(tx)
    if planned.refusal is not None:
        raise refusal(caller, planned)
    return planned


def refusal(caller: Caller, planned: Planned) -> MoorageError:
    """The error of an opening that a pending execution refused (clauses runs.live-owner, runs.pinned-plan-changed,
    guards.blocked).

    What the pending execution is, is told only to who may see its body.
    """
    pending = planned.pending.one()
    scope = planned.execution.scope
    seen = authority.sees(caller, pending["body"])
    if planned.refusal == "ExecutionBusy":
        attempt = {"attempt": pending["run_id"], "execution_id": pending["execution_id"]} if seen else {}
        who = f"run {pending['run_id']}" if seen else "another run"
        wait = max(1, -(-(pending["expires_at"] - planned.execution.started_at) // 1000))
        detail = f"{who} holds the execution of scope {scope!r} under a live lease"
        return ExecutionBusy(detail, retry_after=wait, run_id=planned.run_id, scope=scope, **attempt)
    if planned.refusal == "ExecutionGuardBlocked":
        return _guarded(planned, seen)
    requested = planned.execution.pins
    if not seen:
        detail = f"the execution that is pending under scope {scope!r} is bound to other pins"
        return ExecutionPinMismatch(detail, run_id=planned.run_id, scope=scope, requested=_told(requested))
    execution = pending["execution_id"]
    recoveries = [one.replace("{execution}", execution) for one in RECOVERIES]
    bound = Pins.of(json.loads(pending["pins"]))
    detail = (
        f"the execution {execution} that is pending under scope {scope!r} is bound to another "
        f"{_differing(bound, requested)}: to plan {bound.reference}, where this run asks for {requested.reference}. "
        f"{recoveries[0].capitalize()}, or give up what it recorded with `{recoveries[1]}`"
    )
    return ExecutionPinMismatch(
        detail,
        run_id=planned.run_id,
        scope=scope,
        execution_id=execution,
        pending=_told(bound),
        requested=_told(requested),
        recoveries=recoveries,
    )


def _guarded(planned: Planned, seen: bool) -> ExecutionGuardBlocked:
    """A guard keeps the pending execution from the opening. Which one is told only to who may see its body."""
    about: dict[str, Any] = {"run_id": planned.run_id, "scope": planned.execution.scope}
    row = None if planned.guard is None else planned.guard.first()
    if row is None or not seen:
        return ExecutionGuardBlocked(f"a guard protects the execution of scope {about['scope']!r}", **about)
    told = blocked.error(Guard.of(row), planned.execution.started_at)
    return ExecutionGuardBlocked(told.detail, **about, **told.members)


def _differing(bound: Pins, requested: Pins) -> str:
    """What of two pins is not the same, in words: `implementation and input`."""
    one, other = bound.wire(), requested.wire()
    return " and ".join(name for name in one if one[name] != other.get(name)) or "plan"


def _lease(now: Instant, runner: str, info: BodyInfo, handoff: bool, owner: str | None) -> Lease | None:
    if owner is not None:
        return Lease(1, owner, after(now, OWNER_LEASE_SECONDS))
    if handoff and info.host == "worker":
        return Lease(1, f"runner:{runner}", after(now, HANDOFF_SECONDS))
    return None


def _row(
    execution: Execution, info: BodyInfo, start: Start, runner: str, lease: Lease | None, due: Instant
) -> dict[str, Scalar]:
    """What the statements bind, by name."""
    trace = execution.trace
    return {
        "execution_id": execution.execution_id,
        "run_id": execution.run_id,
        "scope": execution.scope,
        "body": info.name,
        "host": info.host,
        "runner": runner,
        "build": info.build.digest,
        "plan_reference": execution.pins.reference,
        "pins": execution.pins.text,
        "epoch": lease.epoch if lease else 0,
        "owner": lease.owner if lease else None,
        "expires_at": lease.expires_at if lease else None,
        "wake_at": due,
        "claimable": int(lease is None and info.host == "remote"),
        "parent_execution": start.parent_execution,
        "subject": start.subject,
        "credential": start.credential,
        "config": canonical.dumps(dict(start.config)),
        "retry": None if start.retry is None else canonical.dumps(dict(start.retry)),
        "input_sha256": start.input_sha256,
        "input_size": start.input.size,
        "input_blob": start.input.blob,
        "input": None if start.input.blob else start.input.text,
        "config_revision": start.config_revision,
        "parent_run": start.parent_run,
        "restarted_from": start.restarted_from,
        "trace_id": trace.trace_id,
        "span_id": trace.span_id,
        "parent_span": trace.parent_span,
        "trace_state": trace.state,
        "metadata": canonical.dumps(dict(start.metadata)),
    }


def _plan_fresh(tx: Transaction, execution: Execution, lease: Lease | None, row: dict[str, Scalar], due: Instant) -> Planned:
    """Nobody else can have the scope: plain insertions."""
    opened = tx.run(statements.OPEN, **row)
    if lease is None:
        tx.poke(opened)
    run = tx.run(statements.RECORD, **row)
    data = {"body": row["body"], "execution_id": row["execution_id"], "scope": row["scope"], "status": "running"}
    append(tx, str(row["subject"]), Event(execution.run_id, "run.opened", data))
    return Planned(execution.run_id, execution, lease, run, opened, due)


def _plan_named(
    tx: Transaction,
    execution: Execution,
    lease: Lease | None,
    row: dict[str, Scalar],
    due: Instant,
    owner: str | None,
) -> Planned:
    actor = str(row["subject"])
    tx.run(statements.RETRY_FAILED, **row)
    tx.run(statements.PASS_ON, **row)
    tx.run(statements.SUPERSEDE, **row)
    append_selected(tx, actor, "run.closed", statements.SUPERSEDED, many=False, **row)
    tx.run(statements.OPEN_OR_JOIN, **row, takes=int(owner is not None), joined_wake_at=Instant(tx.now + REPAIR_MS))
    if owner is not None:
        release.replay(tx, letting_go.RUNNER, guards.OF_JOINED, scope=execution.scope, run_id=execution.run_id)
    run = tx.run(statements.RECORD_OR_REFUSAL, **row)
    append_selected(tx, actor, "run.opened", statements.OPENED, run_id=execution.run_id)
    tx.run(statements.NOTE_PLAN, **row)
    if owner is None:
        tx.poke(tx.run(statements.UNHELD, scope=execution.scope, run_id=execution.run_id))
    pending = tx.run(statements.PENDING, scope=execution.scope)
    guard = tx.run(statements.GUARD, scope=execution.scope, run_id=execution.run_id)
    return Planned(execution.run_id, execution, lease, run, pending, due, guard)


async def _store(db: Database, blobs: Blobs | None, now: Instant, start: Start) -> tuple[Start, str | None]:
    """The start with its input in the bucket when it is too large for its row, and the upload that it was put there by."""
    placed = values.placed(start.input)
    if placed.blob is None or placed.text is None:
        return start, None
    if blobs is None:
        raise StorageCapabilityMissing("an input of this size needs the bucket")
    holder = ids.new("upl", now)
    await values.store(db, blobs, now, holder, [placed])
    return replace(start, input=placed), values.upload_of(holder)


def _told(pins: Pins) -> dict[str, Any]:
    return {"plan_reference": pins.reference, **pins.wire()}

"""Starting what a window of a schedule is for, in one transaction with all that is to be known of it (schedules.window).

A schedule acts as whoever declared it, with the grants that the credential has now. What cannot be started is noted with
the code of its error, and the schedule goes on.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from moorage.catalog.access import Caller
from moorage.catalog.credentials import grants_of
from moorage.catalog.kinds import Kinds
from moorage.history.append import Event, append
from moorage.journal.model import Value
from moorage.kernel import canonical
from moorage.kernel.errors import (
    BlobBusy,
    DeploymentError,
    ExecutionBusy,
    ExecutionGuardBlocked,
    ExecutionPinMismatch,
    KindConflict,
    MoorageError,
    ScheduleConflict,
    Unauthenticated,
)
from moorage.kernel.instants import Instant, render
from moorage.kernel.limits import SCHEDULE_QUEUE
from moorage.records import publish
from moorage.records.model import Draft
from moorage.runs import admission, remote_bodies
from moorage.runs.admission import Start
from moorage.runs.configuration import Configurations
from moorage.runs.model import BodyInfo
from moorage.runs.placement import RUNNERS
from moorage.runs.tracing_context import trace_of
from moorage.schedules import statements
from moorage.schedules.model import PREFIX, BodyTarget, RecordTarget, Schedule, State, Window
from moorage.store.ports import Blobs, Database
from moorage.store.transaction import Answer, Reading, Transaction


class Bodies(Protocol):
    """The bodies that the Worker itself executes."""

    def get(self, name: str) -> BodyInfo | None:
        """One of them, or None."""

    def check_input(self, name: str, value: Any) -> None:
        """Raise InputInvalid, with JSON pointers, unless the value is what the body takes."""


@dataclass(frozen=True, slots=True)
class Means:
    """What starting takes: the kinds and bodies that there are, the bucket for large inputs, and how many Runners share what
    has no scope of its own."""

    kinds: Kinds
    bodies: Bodies
    blobs: Blobs | None = None
    shards: int = RUNNERS


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a window."""

    state: State
    run_id: str | None = None
    record: str | None = None
    error: Mapping[str, Any] | None = None

    def columns(self) -> dict[str, Any]:
        """What its row holds."""
        error = None if self.error is None else canonical.dumps(dict(self.error))
        return {"state": self.state, "run_id": self.run_id, "record": self.record, "error": error}

    def event(self, schedule: str, window: Window) -> Event:
        """The entry of history that tells of it."""
        told = {"trigger_id": window.trigger_id(schedule), "state": self.state}
        about = {"run_id": self.run_id, "record": self.record, "error": self.error}
        return Event(f"{PREFIX}{schedule}", "schedule.fired", {**told, **{k: v for k, v in about.items() if v is not None}})


SKIPPED = Outcome("skipped", error={"reason": "overlap"})
FULL = Outcome("skipped", error={"reason": "queue_full"})
QUEUED = Outcome("queued")

Note = Callable[[Transaction, Outcome], None]
"""Adds to a transaction what is to be stored of an outcome, and what it depends on."""

_COMMITTED = (ExecutionBusy, ExecutionPinMismatch, ExecutionGuardBlocked)
"""A run that its scope refused is on record all the same, and says why it failed."""

_PASSING = (ScheduleConflict, BlobBusy, KindConflict)
"""Errors that say nothing about the window: whoever asked for it tries again."""


async def look(db: Database, now: Instant, name: str) -> tuple[Schedule | None, State | None]:
    """A schedule, and what has become of its next window already. One round trip."""
    reading = Reading()
    found = reading.ask(statements.SCHEDULE, name=name, now=now)
    came = reading.ask(statements.NEXT_TRIGGER, name=name)
    await db.read(reading)
    row, state = found.first(), came.first()
    return None if row is None else Schedule.of(row), None if state is None else state["state"]


def decide(schedule: Schedule) -> Outcome | None:
    """What the overlap policy says of a window that comes now; None: let it start.

    Records queue by themselves, so enqueue publishes them at once.
    """
    if schedule.overlap == "skip":
        return SKIPPED if schedule.busy else None
    if schedule.overlap == "enqueue" and isinstance(schedule.target, RecordTarget):
        return None
    if not schedule.busy and not schedule.queued:
        return None
    if schedule.overlap == "enqueue" and schedule.queued >= SCHEDULE_QUEUE:
        return FULL
    return QUEUED


def noting(
    tx: Transaction, actor: str, schedule: Schedule, window: Window, outcome: Outcome, next_at: Instant | None
) -> None:
    """Store the outcome of a window that came just now; the schedule is as it was read.

    The commit raises ScheduleConflict when the schedule has changed, or something became of the window already.
    """
    tx.require(statements.UNCHANGED, ScheduleConflict(), **schedule.seen())
    if outcome.state == "queued" and schedule.overlap == "coalesce":
        tx.run(statements.COALESCE, name=schedule.name)
    tx.refuse("schedule_triggers.schedule", ScheduleConflict("the window has come already"))
    tx.run(
        statements.INSERT_TRIGGER,
        name=schedule.name,
        window_start=window.start,
        window_end=window.end,
        trigger_id=window.trigger_id(schedule.name),
        **outcome.columns(),
    )
    advance(tx, schedule, window if outcome.state == "started" else None, next_at)
    append(tx, actor, outcome.event(schedule.name, window))


def advance(tx: Transaction, schedule: Schedule, started: Window | None, next_at: Instant | None) -> Answer:
    """Move a schedule on: to its next window, and to the one that was started."""
    begun = None if started is None else started.start
    return tx.run(statements.ADVANCE, name=schedule.name, started=begun, new_next_at=next_at)


def principal(schedule: Schedule) -> Caller:
    """As whom a schedule acts. Raises Unauthenticated when its credential is gone."""
    if schedule.credential is not None and schedule.grants is None:
        raise Unauthenticated("the credential that declared the schedule is gone")
    grants = grants_of(schedule.grants) if schedule.grants else ()
    return Caller(schedule.created_by, grants, schedule.credential)


async def start(db: Database, means: Means, now: Instant, schedule: Schedule, window: Window, note: Note) -> Outcome:
    """Start what the window is for, with what `note` adds; or store, with the same, why that cannot be.

    Raises ScheduleConflict, BlobBusy, KindConflict, and errors of the deployment: then nothing is stored.
    """
    try:
        caller = principal(schedule)
        match schedule.target:
            case BodyTarget() as target:
                return await _run(db, means, caller, now, target, schedule.name, window, note)
            case RecordTarget() as target:
                return await _record(db, means, caller, now, target, schedule.name, window, note)
    except (*_PASSING, DeploymentError):
        raise
    except MoorageError as error:
        failed = Outcome("failed", error={"code": error.code})
        tx = Transaction(now)
        note(tx, failed)
        await db.commit(tx)
        return failed


async def info_of(db: Database, bodies: Bodies, name: str) -> BodyInfo:
    """A body of this name; the Worker's own before another's. Raises BodyUnknown."""
    own = bodies.get(name)
    return own if own is not None else (await remote_bodies.find(db, name)).info


async def start_of(db: Database, caller: Caller, now: Instant, target: BodyTarget, told: Mapping[str, Any]) -> Start:
    """What is opened for a window of which the run is `told`."""
    configuration = await Configurations().of(db, now, target.scope)
    return Start(
        scope=target.scope,
        input=Value.of(canonical.dumps(target.input)),
        subject=caller.subject,
        credential=caller.credential,
        trace=trace_of(None),
        metadata=told,
        config=configuration.values,
        config_revision=configuration.revision,
    )


def draft_of(target: RecordTarget, told: Mapping[str, Any]) -> Draft:
    """What is published for a window of which the record is `told`."""
    return Draft(target.kind, target.body, metadata={**target.metadata, **told}, priority=target.priority)


async def _run(
    db: Database, means: Means, caller: Caller, now: Instant, target: BodyTarget, name: str, window: Window, note: Note
) -> Outcome:
    info = await info_of(db, means.bodies, target.body)
    if info.host == "worker":
        means.bodies.check_input(info.name, target.input)
    opening = await start_of(db, caller, now, target, window.metadata(name))
    admission.check(caller, info, opening)
    made = Outcome("started")

    def planning(tx: Transaction, stored: Start) -> admission.Planned:
        nonlocal made
        planned = admission.plan(tx, now, info, stored, handoff=False, shards=means.shards)
        made = Outcome("started", run_id=planned.run_id)
        note(tx, made)
        return planned

    try:
        await admission.commit(db, means.blobs, caller, now, opening, None, planning)
    except _COMMITTED:
        return made
    return made


async def _record(
    db: Database, means: Means, caller: Caller, now: Instant, target: RecordTarget, name: str, window: Window, note: Note
) -> Outcome:
    def also(tx: Transaction, planned: Any) -> None:
        note(tx, Outcome("started", record=planned[0].id))

    [record] = await publish.publish(db, means.kinds, caller, now, [draft_of(target, window.metadata(name))], also=also)
    return Outcome("started", record=record.id)


def passed_over(schedule: Schedule, window: Window, count: int | None) -> dict[str, Any]:
    """What is stored of windows that are not caught up with: `window` spans them; `count` None is more than are counted."""
    return {
        "name": schedule.name,
        "window_start": window.start,
        "window_end": window.end,
        "trigger_id": window.trigger_id(schedule.name),
        "error": json.dumps({"reason": "missed", "until": render(window.end), "windows": count}),
    }

"""Declaring schedules, looking at them, pausing and deleting them (clause schedules.window)."""

from collections.abc import Mapping
from typing import Any, Final

from moorage.catalog.access import Caller
from moorage.catalog.builtin import check_publisher
from moorage.history.append import Event, append
from moorage.idempotency import keys
from moorage.idempotency.keys import AlreadyDone, Key
from moorage.kernel import canonical
from moorage.kernel.errors import ScheduleConflict, ScheduleUnknown
from moorage.kernel.ids import check_client_id
from moorage.kernel.instants import LATEST, Instant
from moorage.kernel.limits import CATCH_UP_SECONDS, CONFIG_BYTES
from moorage.kernel.pages import Page, PageRequest
from moorage.kernel.refusals import refused
from moorage.records import publish
from moorage.runs import admission, authority, scopes
from moorage.schedules import access, statements
from moorage.schedules.cadence import cadence_of
from moorage.schedules.model import PREFIX, BodyTarget, Declaration, RecordTarget, Schedule, Target, Trigger, Window
from moorage.schedules.starting import Means, draft_of, info_of, start_of
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Transaction

TRIES: Final = 5
"""How often an operation begins anew on a schedule that fires meanwhile."""


async def put(
    db: Database, means: Means, caller: Caller, now: Instant, name: str, declaration: Declaration
) -> tuple[Schedule, bool]:
    """Declare a schedule, or declare it anew: it acts as the caller from now on. Answers it, and whether it is new.

    Windows are counted from now on where cadence or zone changed, or where it goes on after a pause. The same declaration by
    the same credential changes nothing.

    Raises IdInvalid, RequestInvalid, ScheduleConflict; Forbidden unless the caller may start the target, and manages the
    schedule that it replaces; and whatever starting it now would raise: BodyUnknown, InputInvalid, KindUnknown,
    BodyInvalid, PayloadTooLarge.
    """
    check_client_id(name, "a schedule's name")
    check_declaration(declaration, now)
    await _check_target(db, means, caller, now, name, declaration.target)
    for _ in range(TRIES):
        stored = await find(db, now, name)
        if stored is not None:
            if not access.manages(caller, stored):
                # A name is nobody's secret: it can be seen to be taken.
                access.demand(caller, stored)
            if stored.columns() == declaration.columns() and stored.credential == caller.credential:
                return stored, False
        try:
            await _commit(db, caller, now, name, declaration, stored)
        except ScheduleConflict:
            continue
        return await show(db, caller, now, name), stored is None
    raise ScheduleConflict()


def check_declaration(declaration: Declaration, now: Instant) -> None:
    """Raise RequestInvalid unless cadence, catch-up and size are within bounds."""
    cadence_of(declaration.cron, declaration.every_ms, declaration.timezone, now)
    if not 0 <= declaration.catch_up_ms <= int(CATCH_UP_SECONDS) * 1000:
        raise refused("/catch_up_seconds", f"must lie between 0 and {CATCH_UP_SECONDS}")
    if canonical.size(canonical.dumps(declaration.target.wire())) > CONFIG_BYTES:
        raise refused("/target", f"is longer than {CONFIG_BYTES} bytes")


async def find(db: Database, now: Instant, name: str) -> Schedule | None:
    """A schedule, whoever asks."""
    reading = Reading()
    found = reading.ask(statements.SCHEDULE, name=name, now=now)
    await db.read(reading)
    row = found.first()
    return None if row is None else Schedule.of(row)


async def show(db: Database, caller: Caller, now: Instant, name: str) -> Schedule:
    """One schedule. Raises ScheduleUnknown, also when the caller may not see it."""
    schedule = await find(db, now, name)
    if schedule is None or not access.sees(caller, schedule):
        raise ScheduleUnknown()
    return schedule


async def managed(db: Database, caller: Caller, now: Instant, name: str) -> Schedule:
    """One schedule that the caller manages. Raises ScheduleUnknown, Forbidden."""
    schedule = await show(db, caller, now, name)
    access.demand(caller, schedule)
    return schedule


async def list_schedules(db: Database, caller: Caller, now: Instant, page: PageRequest) -> Page[Schedule]:
    """The schedules that the caller may see, by name; a page may be short and have a next cursor. Raises CursorMismatch."""
    filters = ["schedules"]
    after = page.after(filters, str) or [""]
    reading = Reading()
    rows = reading.ask(statements.SCHEDULES, after=after[0], limit=page.limit + 1, now=now)
    await db.read(reading)
    found = page.page(rows.rows, filters, lambda row: [row["name"]], Schedule.of)
    return Page([one for one in found.items if access.sees(caller, one)], found.next_cursor)


async def list_triggers(db: Database, caller: Caller, now: Instant, name: str, page: PageRequest) -> Page[Trigger]:
    """What became of a schedule's windows, the latest window first. Raises ScheduleUnknown, CursorMismatch."""
    await show(db, caller, now, name)
    filters = ["triggers", name]
    before = page.after(filters, int) or [LATEST + 1]
    reading = Reading()
    rows = reading.ask(statements.TRIGGERS, name=name, before=before[0], limit=page.limit + 1)
    await db.read(reading)
    return page.page(rows.rows, filters, lambda row: [row["window_start"]], Trigger.of)


async def set_paused(db: Database, caller: Caller, now: Instant, name: str, paused: bool) -> Schedule:
    """Pause a schedule, or let it go on from now. Doing so again changes nothing.

    While it is paused its windows pass, and those that wait go on waiting. Raises ScheduleUnknown, Forbidden,
    ScheduleConflict.
    """
    for _ in range(TRIES):
        stored = await managed(db, caller, now, name)
        if stored.paused == paused:
            return stored
        tx = Transaction(now)
        caller.guard(tx)
        tx.require(statements.UNCHANGED, ScheduleConflict(), **stored.seen())
        next_at = None if paused else stored.cadence.after(now)
        tx.run(statements.SET_PAUSED, name=name, paused=int(paused), new_next_at=next_at)
        append(tx, caller.subject, Event(f"{PREFIX}{name}", "schedule.paused" if paused else "schedule.resumed"))
        try:
            await db.commit(tx)
        except ScheduleConflict:
            continue
        return await show(db, caller, now, name)
    raise ScheduleConflict()


async def delete(db: Database, caller: Caller, now: Instant, name: str, key: Key | None = None) -> None:
    """Delete a schedule; what it started goes on, and windows that wait go with it. What became of its windows is remembered
    under its name. Under a key that happens once: one that was declared since stays. Raises ScheduleUnknown, Forbidden,
    ScheduleConflict, IdempotencyConflict."""
    for _ in range(TRIES):
        try:
            stored = await managed(db, caller, now, name)
        except ScheduleUnknown:
            if await keys.is_done(db, key):
                return
            raise
        tx = Transaction(now)
        caller.guard(tx)
        keys.remember(tx, key, {})
        tx.require(statements.UNCHANGED, ScheduleConflict(), **stored.seen())
        tx.run(statements.DROP_QUEUED, name=name)
        tx.run(statements.DELETE, name=name)
        append(tx, caller.subject, Event(f"{PREFIX}{name}", "schedule.deleted"))
        try:
            await db.commit(tx)
        except AlreadyDone:
            await keys.recall(db, key)
        except ScheduleConflict:
            continue
        return
    raise ScheduleConflict()


async def _check_target(db: Database, means: Means, caller: Caller, now: Instant, name: str, target: Target) -> None:
    """Raise what starting it would, short of storing anything."""
    told = Window(now, now).metadata(name)
    match target:
        case BodyTarget():
            if target.scope is not None:
                scopes.check_declared(target.scope)
            authority.demand(caller, "execute", target.body)
            info = await info_of(db, means.bodies, target.body)
            if info.host == "worker":
                means.bodies.check_input(info.name, target.input)
            admission.check(caller, info, await start_of(db, caller, now, target, told))
        case RecordTarget():
            check_publisher({target.kind})
            await publish.plan(db, means.kinds, caller, now, [draft_of(target, told)])


async def _commit(
    db: Database, caller: Caller, now: Instant, name: str, declaration: Declaration, stored: Schedule | None
) -> None:
    columns = declaration.columns()
    anchor, next_at = _timing(columns, now, stored)
    tx = Transaction(now)
    caller.guard(tx)
    if stored is None:
        tx.require(statements.IS_NEW, ScheduleConflict(), name=name)
    else:
        tx.require(statements.UNCHANGED, ScheduleConflict(), **stored.seen())
    told: dict[str, Any] = {"caller": caller.subject, "credential": caller.credential}
    tx.run(statements.PUT, name=name, anchor=anchor, new_next_at=next_at, **told, **columns)
    append(tx, caller.subject, _event(name, declaration))
    await db.commit(tx)


def _timing(columns: Mapping[str, Any], now: Instant, stored: Schedule | None) -> tuple[Instant, Instant | None]:
    """From when an interval counts, and the next window. Where the cadence stays, both stay."""
    kept = stored is not None and all(getattr(stored, one) == columns[one] for one in ("cron", "every_ms", "timezone"))
    anchor = stored.anchor if kept and stored is not None else now
    if columns["paused"]:
        return anchor, None
    if kept and stored is not None and not stored.paused:
        return anchor, stored.next_at
    return anchor, cadence_of(columns["cron"], columns["every_ms"], columns["timezone"], anchor).after(now)


def _event(name: str, declaration: Declaration) -> Event:
    """What history is told: the cadence and what is started, and of its input or body the digest alone."""
    columns = declaration.columns()
    target = declaration.target
    what = {"body": target.body} if isinstance(target, BodyTarget) else {"kind": target.kind}
    told = {one: columns[one] for one in ("cron", "every_ms", "timezone", "overlap", "catch_up", "paused")}
    data = {one: value for one, value in {**told, **what}.items() if value is not None}
    return Event(f"{PREFIX}{name}", "schedule.declared", data, content_sha256=canonical.digest(columns["target"]))

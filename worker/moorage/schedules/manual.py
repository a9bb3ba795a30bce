"""Windows that people ask for: one by hand, or those of a past range (clause schedules.window)."""

from typing import Final

from moorage.catalog.access import Caller
from moorage.history.append import Event, append
from moorage.idempotency import keys
from moorage.idempotency.keys import AlreadyDone, Key
from moorage.kernel import canonical
from moorage.kernel.errors import ScheduleConflict, ScheduleUnknown
from moorage.kernel.instants import Instant, render
from moorage.kernel.limits import SCHEDULE_BACKFILL, SCHEDULE_QUEUE
from moorage.kernel.refusals import refused
from moorage.schedules import statements
from moorage.schedules.cadence import take
from moorage.schedules.declare import TRIES, managed
from moorage.schedules.model import PREFIX, Schedule, Trigger, Window
from moorage.schedules.starting import Means, Outcome, decide, noting, start
from moorage.store.chunks import json_arrays
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Transaction

FULL: Final = "the schedule's line is full"


async def trigger(
    db: Database, means: Means, caller: Caller, now: Instant, name: str, key: Key | None = None
) -> tuple[Trigger, bool]:
    """Let a window come now, of this instant, paused or not; the overlap policy holds for it too. Answers what became of it,
    and whether that was just now. Where a window has begun at this millisecond already it is of the next free one.

    It acts as the schedule does. Raises ScheduleUnknown, Forbidden, ScheduleConflict, IdempotencyConflict.
    """
    begun = now
    for _ in range(TRIES):
        schedule = await managed(db, caller, now, name)
        window = Window(begun, begun)
        try:
            await _come(db, means, caller, now, schedule, window, key)
        except AlreadyDone:
            made = await keys.recall(db, key)
            return await trigger_of(db, name, made["window_start"]), False
        except ScheduleConflict:
            free = await _free(db, schedule, now)
            if free == begun and (await managed(db, caller, now, name)).seen() == schedule.seen():
                raise
            begun = free
            continue
        return await trigger_of(db, name, begun), True
    raise ScheduleConflict()


async def _come(
    db: Database, means: Means, caller: Caller, now: Instant, schedule: Schedule, window: Window, key: Key | None
) -> None:
    def note(tx: Transaction, outcome: Outcome) -> None:
        caller.guard(tx)
        keys.remember(tx, key, {"window_start": window.start})
        noting(tx, caller.subject, schedule, window, outcome, schedule.next_at)

    decided = decide(schedule)
    if decided is None:
        await start(db, means, now, schedule, window, note)
        return
    tx = Transaction(now)
    note(tx, decided)
    await db.commit(tx)


async def _free(db: Database, schedule: Schedule, now: Instant) -> Instant:
    """The first millisecond from `now` on at and after which no window has begun, nor is the next one to."""
    reading = Reading()
    found = reading.ask(statements.NEXT_FREE, name=schedule.name, now=now)
    await db.read(reading)
    free = Instant(found.one()["free"])
    return Instant(free + 1) if free == schedule.next_at and free > now else free


async def trigger_of(db: Database, name: str, start: Instant) -> Trigger:
    """What became of a window. Raises ScheduleUnknown when it is remembered no more."""
    reading = Reading()
    found = reading.ask(statements.TRIGGER, name=name, window_start=start)
    await db.read(reading)
    return Trigger.of(found.one(ScheduleUnknown("what became of the window is not remembered any more")))


async def backfill(
    db: Database, caller: Caller, now: Instant, name: str, first: Instant, end: Instant, key: Key | None = None
) -> tuple[int, int]:
    """Let the windows that began from `first` on and before `end`, both past, wait for their turn, one after the other and
    whatever the overlap policy; records are published without waiting. Answers how many windows those are, and how many of
    them wait now: what started something, or waits already, is left alone.

    Raises ScheduleUnknown, Forbidden, RequestInvalid for a range that is none or has more than SCHEDULE_BACKFILL windows,
    ScheduleConflict when more than SCHEDULE_QUEUE would wait, IdempotencyConflict.
    """
    schedule = await managed(db, caller, now, name)
    windows = _past(schedule, now, first, end)
    tx = Transaction(now)
    caller.guard(tx)
    tx.require(statements.UNCHANGED, ScheduleConflict(), **schedule.seen())
    keys.remember(tx, key, {"windows": len(windows), "queued": 0})
    rows = (canonical.compact([one.start, one.end, one.trigger_id(name)]) for one in windows)
    added = [tx.run(statements.BACKFILL, name=name, windows=array) for array in json_arrays(rows)]
    tx.require(statements.HAS_ROOM, ScheduleConflict(FULL), name=name, most=int(SCHEDULE_QUEUE))
    tx.run(statements.ADVANCE, name=name, started=None, new_next_at=schedule.next_at)
    keys.note(tx, key, statements.BACKFILLED, name=name, windows=len(windows))
    told = {"start": render(first), "end": render(end), "windows": len(windows)}
    append(tx, caller.subject, Event(f"{PREFIX}{name}", "schedule.backfilled", told))
    try:
        await db.commit(tx)
    except AlreadyDone:
        made = await keys.recall(db, key)
        return made["windows"], made["queued"]
    return len(windows), sum(len(answer.rows) for answer in added)


def _past(schedule: Schedule, now: Instant, first: Instant, end: Instant) -> list[Window]:
    """The windows of a past range, in order."""
    if end > now or first >= end:
        raise refused("/end", "must lie past start, and not in the future")
    most = int(SCHEDULE_BACKFILL)
    starts = take(schedule.cadence, Instant(first - 1), most + 2)
    chosen = [one for one in starts if one < end]
    if len(chosen) > most:
        raise refused("/end", f"leaves more than {most} windows in the range")
    ends = [*starts[1:], None]
    return [Window(one, one if following is None else following) for one, following in zip(chosen, ends, strict=False)]

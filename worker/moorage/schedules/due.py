"""What the Clock does for schedules: it fires windows that have begun, and lets windows that wait have their turn
(clauses schedules.window, timers.late)."""

from typing import Final

from moorage.history.append import CLOCK, Event, append
from moorage.kernel.errors import ScheduleConflict
from moorage.kernel.instants import Instant
from moorage.kernel.limits import CATCH_UP_WINDOWS
from moorage.schedules import statements
from moorage.schedules.cadence import take
from moorage.schedules.model import PREFIX, RecordTarget, Schedule, State, Window
from moorage.schedules.starting import Means, Outcome, advance, decide, look, noting, passed_over, start
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Scalar, Transaction
from moorage.timers.due import Shard

GRACE_MS: Final = 120_000
"""A window is not missed as long as it is no later than this, whatever the schedule says: the cron tick that repairs a lost
alarm comes within a minute."""


async def _look(db: Database, now: Instant, item: str) -> tuple[Schedule | None, State | None]:
    """The schedule of an item, unless it was declared anew meanwhile, and what has become of its next window."""
    name, _, declared = item.rpartition("@")
    schedule, came = await look(db, now, name)
    return (schedule, came) if schedule is not None and str(schedule.updated_at) == declared else (None, None)


class Schedules:
    """Schedules of which a window has begun; an item is a schedule's name and when it was declared last.

    A window is late when the Clock was; it is missed when the next one has begun meanwhile, or when it is later than the
    schedule catches up with. What is missed and not caught up with is passed over, and noted as one.
    """

    name = "schedule_fired"
    shard: Shard = "time"
    parallel = True
    earliest = statements.EARLIEST
    page = statements.DUE

    def __init__(self, means: Means) -> None:
        self._means = means

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """See to one window, or pass over those that were missed; 0 when the schedule has changed meanwhile."""
        schedule, came = await _look(db, now, item)
        first = None if schedule is None else schedule.next_at
        if schedule is None or first is None or first > now:
            return 0
        try:
            if came is not None:
                return await self._go_on(db, now, schedule, first)
            wanted = caught_up(schedule, first, now)
            if wanted != first:
                return await self._pass_over(db, now, schedule, first, wanted)
            await self._come(db, now, schedule, schedule.window(first))
        except ScheduleConflict:
            return 0
        return 1

    async def _come(self, db: Database, now: Instant, schedule: Schedule, window: Window) -> None:
        following = schedule.cadence.after(window.start)

        def note(tx: Transaction, outcome: Outcome) -> None:
            noting(tx, CLOCK, schedule, window, outcome, following)

        decided = decide(schedule)
        if decided is None:
            await start(db, self._means, now, schedule, window, note)
            return
        tx = Transaction(now)
        note(tx, decided)
        await db.commit(tx)

    async def _go_on(self, db: Database, now: Instant, schedule: Schedule, first: Instant) -> int:
        """Something became of the window already: by hand, or by a backfill."""
        tx = Transaction(now)
        tx.require(statements.UNCHANGED, ScheduleConflict(), **schedule.seen())
        advance(tx, schedule, None, schedule.cadence.after(first))
        await db.commit(tx)
        return 1

    async def _pass_over(
        self, db: Database, now: Instant, schedule: Schedule, first: Instant, wanted: Instant | None
    ) -> int:
        following = wanted if wanted is not None else schedule.cadence.after(now)
        window = Window(first, following if following is not None else now)
        count = 1 + len(take(schedule.cadence, first, int(CATCH_UP_WINDOWS), Instant(window.end - 1)))
        tx = Transaction(now)
        tx.require(statements.UNCHANGED, ScheduleConflict(), **schedule.seen())
        noted = passed_over(schedule, window, None if count > CATCH_UP_WINDOWS else count)
        tx.run(statements.MISSED, **noted)
        advance(tx, schedule, None, following)
        told = {"trigger_id": noted["trigger_id"], "state": "skipped", "error": {"reason": "missed"}}
        append(tx, CLOCK, Event(f"{PREFIX}{schedule.name}", "schedule.fired", told))
        await db.commit(tx)
        return 1


def caught_up(schedule: Schedule, first: Instant, now: Instant) -> Instant | None:
    """The window, `first` or a later one that has begun, that is to come next; None when all of them are passed over."""
    cadence = schedule.cadence
    reach = 0 if schedule.catch_up == "none" else schedule.catch_up_ms
    horizon = Instant(now - max(reach, GRACE_MS))
    following = cadence.after(first)
    if following is None or following > now:
        return first if first >= horizon else None
    if schedule.catch_up != "all":
        latest = max(first, *cadence.last(now, 1))
        return latest if latest >= horizon else None
    found = first if first >= horizon else cadence.after(Instant(horizon - 1))
    if found is None or found > now:
        return None
    if len(take(cadence, found, int(CATCH_UP_WINDOWS), now)) == CATCH_UP_WINDOWS:
        return max(found, cadence.last(now, int(CATCH_UP_WINDOWS))[0])
    return found


class ScheduleQueue:
    """Schedules with a window that waits and may have its turn; items are as those of Schedules."""

    name = "schedule_resumed"
    shard: Shard = "time"
    parallel = True
    earliest = statements.EARLIEST_READY
    page = statements.READY

    def __init__(self, means: Means) -> None:
        self._means = means

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Start the window that has waited for longest; 0 when its turn has not come after all."""
        schedule, _ = await _look(db, now, item)
        if schedule is None or schedule.paused:
            return 0
        reading = Reading()
        first = reading.ask(statements.FIRST_QUEUED, name=schedule.name)
        await db.read(reading)
        row = first.first()
        if row is None:
            return 0
        # Records of a past range are published beside what comes by itself, and hold none of that up.
        beside = bool(row["backfill"]) and isinstance(schedule.target, RecordTarget)
        if schedule.busy and not beside:
            return 0
        window = Window(row["window_start"], row["window_end"])

        def note(tx: Transaction, outcome: Outcome) -> None:
            taking_turn(tx, schedule, window, outcome, beside=beside)

        try:
            await start(db, self._means, now, schedule, window, note)
        except ScheduleConflict:
            return 0
        return 1


def taking_turn(tx: Transaction, schedule: Schedule, window: Window, outcome: Outcome, *, beside: bool) -> None:
    """Store the outcome of a window that waited; `beside` what was started last, which stays that. The commit raises
    ScheduleConflict when it waits no more."""
    tx.require(statements.UNCHANGED, ScheduleConflict(), **schedule.seen())
    where: dict[str, Scalar] = {"name": schedule.name, "window_start": window.start}
    tx.require(statements.IS_QUEUED, ScheduleConflict(), **where)
    tx.run(statements.END_QUEUED, **where, **outcome.columns())
    advance(tx, schedule, window if outcome.state == "started" and not beside else None, schedule.next_at)
    append(tx, CLOCK, outcome.event(schedule.name, window))

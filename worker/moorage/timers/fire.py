"""Firing timers: each accepts its event and goes, or goes on, in one transaction (clauses timers.fire, timers.late).

Nothing here asks how long the Clock was down: a timer that is late fires once, its event is of its due instant, and one that
repeats goes on from that instant, with no occurrence left out.
"""

from typing import Final

from moorage.catalog.access import Caller
from moorage.history.append import CLOCK, Event, append, append_selected
from moorage.kernel.errors import TimerNotDue
from moorage.kernel.instants import LATEST, Instant, render
from moorage.messages.inbox import accept
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Transaction
from moorage.timers import timer_statements as statements
from moorage.timers.model import SUBJECT, Timer


async def fire_timer(db: Database, now: Instant, timer: str, revision: int) -> None:
    """Fire a timer at its revision, in two round trips.

    Its event is accepted, received now and of the due instant. Where an event of that identity was accepted already none is
    added, and the timer goes or goes on all the same. Where the credential that set it is revoked or over, nothing is sent
    and the timer goes. Raises TimerNotDue when its time has not come, or it was set anew, deleted or fired meanwhile;
    nothing is changed then.
    """
    found, alive = await _read(db, now, timer)
    if found is None or found.revision != revision or found.fire_at > now:
        raise TimerNotDue()
    await _fire(db, now, found, alive=alive)


async def _read(db: Database, now: Instant, timer: str) -> tuple[Timer | None, bool]:
    reading = Reading()
    rows = reading.ask(statements.GET_TO_FIRE, id=timer, now=now)
    await db.read(reading)
    row = rows.first()
    if row is None:
        return None, False
    alive = bool(row.pop("alive"))
    return Timer.of(row), alive


async def _fire(db: Database, now: Instant, timer: Timer, *, alive: bool) -> None:
    tx = Transaction(now)
    tx.require(statements.IS_DUE, TimerNotDue(), id=timer.id, revision=timer.revision)
    if not alive:
        append(tx, CLOCK, Event(f"{SUBJECT}{timer.id}", "timer.refused", {"due": render(timer.fire_at)}))
        tx.run(statements.REMOVE, id=timer.id)
        await db.commit(tx)
        return
    Caller(timer.created_by, (), timer.credential).guard(tx)
    draft = timer.draft()
    accept.plan(tx, draft, actor=accept.CLOCK_ACTOR)
    append_selected(
        tx,
        CLOCK,
        "timer.fired",
        statements.FIRING,
        id=timer.id,
        due=render(timer.fire_at),
        source=draft.source,
        delivery_id=draft.delivery_id,
    )
    upcoming = None if timer.every_ms is None else timer.fire_at + timer.every_ms
    if upcoming is None or upcoming > LATEST:
        tx.run(statements.REMOVE, id=timer.id)
    else:
        tx.run(statements.REARM, id=timer.id, next=upcoming)
    await db.commit(tx)


class Timers:
    """The Clock's class of work that fires timers; an item is a timer's id and revision, `reminder-7@3`, so that one that
    failed and is set anew is tried at its own instant."""

    name = "timer_fired"
    shard: Final = "time"
    parallel = True
    earliest = statements.EARLIEST
    page = statements.DUE

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Fire one timer; 0 when it is gone, or was set anew meanwhile."""
        timer, _, revision = item.rpartition("@")
        found, alive = await _read(db, now, timer)
        if found is None or str(found.revision) != revision or found.fire_at > now:
            return 0
        try:
            await _fire(db, now, found, alive=alive)
        except TimerNotDue:
            return 0
        return 1

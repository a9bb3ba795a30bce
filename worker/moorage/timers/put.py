"""Setting and deleting timers (clause timers.fire).

Whoever may publish events of a type may set timers that send one, and look at and delete such timers, whoever set them. A
timer sends its event in the name of the credential that set it: one that is revoked or over by then sends nothing.
"""

from dataclasses import replace
from typing import Any, Final

from moorage.catalog.access import Caller
from moorage.history.append import Event, append, append_selected
from moorage.idempotency import keys
from moorage.idempotency.keys import AlreadyDone, Key
from moorage.kernel import canonical
from moorage.kernel.errors import EventIdentityUsed, Forbidden, TimerConflict, TimerUnknown
from moorage.kernel.ids import check_client_id
from moorage.kernel.instants import LATEST, Instant, render
from moorage.kernel.limits import EVERY_SECONDS
from moorage.kernel.refusals import refused
from moorage.messages.inbox.accept import require_unused
from moorage.messages.inbox.checks import check, check_open
from moorage.messages.inbox.model import TIMERS
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Scalar, Transaction
from moorage.timers import timer_statements as statements
from moorage.timers.model import SUBJECT, Timer, Wish, draft_of

_LONGEST: Final = str(2**53)
"""A revision as long as any, for bounds that a revision counts towards."""


async def put(
    db: Database,
    caller: Caller,
    now: Instant,
    timer: str,
    wish: Wish,
    revision: int | None = None,
    key: Key | None = None,
) -> Timer:
    """Set a timer, or set it anew, in one round trip; the same again changes nothing. What is past is due at once.

    With `revision` only if the timer has that one; 0 is a timer that is not there. Under a key the same request again
    answers what the first one made, also when that has fired meanwhile. Raises IdInvalid, RequestInvalid (an instant past
    the year 9999, an interval below a second or past EVERY_SECONDS, an event out of bounds), PayloadTooLarge, Forbidden
    without a grant to publish events of its type, or of the type of the timer that it would replace, EventIdentityUsed when
    its event was accepted already, TimerConflict at another revision, IdempotencyConflict.
    """
    check_client_id(timer, "a timer's id")
    asked = _asked(timer, wish, now, caller)
    caller.demand_whole("publish", asked.type)
    tx = Transaction(now)
    caller.guard(tx)
    keys.remember(tx, key, {})
    if revision is not None:
        tx.require(statements.IS_AT, TimerConflict(), id=timer, revision=revision)
    _plan(tx, caller, asked, wish.template.event_id)
    keys.note(tx, key, statements.SET_MADE, id=timer)
    stored = tx.run(statements.GET, id=timer)
    try:
        await db.commit(tx)
    except AlreadyDone:
        return replace(asked, **await keys.recall(db, key))
    return Timer.of(stored.one())


def _asked(timer: str, wish: Wish, now: Instant, caller: Caller) -> Timer:
    """The timer as it will stand, but for what only the transaction knows: its revision, and an id made of it."""
    template = wish.template
    own = TIMERS + timer
    source = template.source if template.source is not None else own
    delivery_id = template.event_id if template.event_id is not None else f"{timer}:{_LONGEST}"
    fire_at = _instant(wish, now)
    if wish.every_ms is not None and not 1000 <= wish.every_ms <= int(EVERY_SECONDS) * 1000:
        message = f"must be 1 to {EVERY_SECONDS} seconds"
        raise refused("/every_seconds", message)
    if source != own:
        check_open(source, "/event/source")
    check(draft_of(fire_at, wish.every_ms, source, delivery_id, template), "/event")
    return Timer(
        id=timer,
        revision=0,
        fire_at=fire_at,
        every_ms=wish.every_ms,
        source=source,
        type=template.type,
        delivery_id=delivery_id,
        subject=template.subject,
        keys=template.keys,
        created_by=caller.subject,
        credential=caller.credential,
        created_at=now,
        updated_at=now,
        data=template.data,
    )


def _instant(wish: Wish, now: Instant) -> Instant:
    if wish.fire_at is not None:
        return wish.fire_at
    delay = wish.delay_ms or 0
    if not 0 <= delay <= LATEST - now:
        raise refused("/delay_seconds", "must be 0 or more, and end within the year 9999")
    return Instant(now + delay)


def _plan(tx: Transaction, caller: Caller, asked: Timer, event_id: str | None) -> None:
    types = caller.whole("publish")
    if types is not None:
        another = Forbidden("the credential does not grant publishing events of the type that the timer has now")
        tx.require(statements.IS_OF_TYPES, another, id=asked.id, types=canonical.compact(types))
    if event_id is not None:
        draft = asked.draft()
        require_unused(tx, draft.source, draft.delivery_id, EventIdentityUsed())
    told: dict[str, Any] = {"fire_at": render(asked.fire_at), "type": asked.type}
    if asked.every_ms is not None:
        told["every_seconds"] = asked.every_ms / 1000
    parts: dict[str, Scalar] = {
        "id": asked.id,
        "fire_at": asked.fire_at,
        "every_ms": asked.every_ms,
        "source": asked.source,
        "event_type": asked.type,
        "event_id": event_id,
        "subject": asked.subject,
        "keys": canonical.dumps(list(asked.keys)),
        "owner": asked.created_by,
        "credential": asked.credential,
        "data": asked.data,
    }
    telling: dict[str, Scalar] = {
        "told": canonical.dumps(told),
        "sha256": None if asked.data is None else canonical.digest(asked.data),
    }
    append_selected(tx, caller.subject, "timer.set", statements.SETTING, many=False, **parts, **telling)
    tx.run(statements.SET, **parts)


async def delete(db: Database, caller: Caller, now: Instant, timer: str, revision: int, key: Key | None = None) -> None:
    """Delete a timer at its revision: whatever fires it after this finds nothing. Under a key that happens once: one that
    was set since stays.

    Raises IdInvalid, TimerUnknown, also for a timer that the caller may not see, TimerConflict at another revision,
    IdempotencyConflict.
    """
    try:
        await show(db, caller, timer)
    except TimerUnknown:
        if await keys.is_done(db, key):
            return
        raise
    tx = Transaction(now)
    caller.guard(tx)
    keys.remember(tx, key, {})
    tx.require(statements.IS_AT, TimerConflict(), id=timer, revision=revision)
    append(tx, caller.subject, Event(f"{SUBJECT}{timer}", "timer.deleted"))
    tx.run(statements.REMOVE, id=timer)
    try:
        await db.commit(tx)
    except AlreadyDone:
        await keys.recall(db, key)


async def show(db: Database, caller: Caller, timer: str) -> Timer:
    """A timer, for operators and for who may publish events of its type. Raises IdInvalid, TimerUnknown."""
    check_client_id(timer, "a timer's id")
    reading = Reading()
    rows = reading.ask(statements.GET, id=timer)
    await db.read(reading)
    found = Timer.of(rows.one(TimerUnknown()))
    if not caller.may("operate") and caller.narrowing("publish", found.type) is not None:
        raise TimerUnknown()
    return found

"""Reading events, and the scope of one, which is written once (clauses inbox.scope-once, inbox.two-checkpoints)."""

from dataclasses import dataclass
from typing import Any, Final

from moorage.catalog.access import Caller
from moorage.history.append import append_selected
from moorage.kernel.errors import EventScopeConflict, EventUnknown, Forbidden, ScopeUnknown
from moorage.kernel.instants import Instant
from moorage.kernel.limits import PAGE_BYTES
from moorage.kernel.pages import Page, PageRequest, encode
from moorage.messages.inbox import event_statements as statements
from moorage.messages.inbox.model import KEY_TERM, TYPE_TERM, Event
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Transaction

EXAMINED: Final = 2000
"""Events that are looked at for one page; it may be short, or empty, and still have a next cursor."""

_BY_SEQ = (
    statements.BY_SEQ,
    statements.LOOKED_BY_SEQ,
    statements.NEWEST_BY_SEQ,
    statements.NEWEST_LOOKED_BY_SEQ,
)

_BY_ROUTING = (
    statements.BY_ROUTING,
    statements.LOOKED_BY_ROUTING,
    statements.NEWEST_BY_ROUTING,
    statements.NEWEST_LOOKED_BY_ROUTING,
)

_BY_SCOPE = (
    statements.BY_SCOPE,
    statements.LOOKED_BY_SCOPE,
    statements.NEWEST_BY_SCOPE,
    statements.NEWEST_LOOKED_BY_SCOPE,
)

_BY_WORK = (
    statements.BY_WORK,
    statements.LOOKED_BY_WORK,
    statements.NEWEST_BY_WORK,
    statements.NEWEST_LOOKED_BY_WORK,
)

_NO_SEQ: Final = 2**53 - 1
"""Past every seq."""

_BY_TERM = (
    statements.BY_TERM,
    statements.LOOKED_BY_TERM,
    statements.NEWEST_BY_TERM,
    statements.NEWEST_LOOKED_BY_TERM,
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events a list is to hold: all that is named must hold. `unrouted` leaves out what was routed; `after` is the seq
    past which they lie, however they are ordered."""

    type: str | None = None
    source: str | None = None
    key: str | None = None
    scope: str | None = None
    work: str | None = None
    unrouted: bool = False
    after: int = 0
    newest_first: bool = False

    def statements(self) -> tuple[str, str]:
        """The page, and how far was looked for it, by the narrowest way."""
        way = _way(self)
        return way[2:] if self.newest_first else way[:2]

    def parameters(self) -> dict[str, Any]:
        """What the statements are asked with."""
        return {
            "type": self.type,
            "source": self.source,
            "key": self.key,
            "scope": self.scope,
            "work": self.work,
            "unrouted": int(self.unrouted),
            "term": f"{TYPE_TERM}{self.type}" if self.key is None else f"{KEY_TERM}{self.key}",
        }


def _way(wanted: Wanted) -> tuple[str, str, str, str]:
    if wanted.key is not None:
        return _BY_TERM
    if wanted.work is not None:
        return _BY_WORK
    if wanted.unrouted:
        return _BY_ROUTING
    if wanted.scope is not None:
        return _BY_SCOPE
    return _BY_SEQ if wanted.type is None else _BY_TERM


async def show(db: Database, caller: Caller, event_id: str) -> Event:
    """One event with its data. Raises EventUnknown, also where the caller may not read its type."""
    reading = Reading()
    found = reading.ask(statements.EVENT, event_id=event_id)
    await db.read(reading)
    event = Event.of(found.one(EventUnknown()))
    if caller.narrowing("read", event.type) is not None:
        raise EventUnknown()
    return event


async def list_events(db: Database, caller: Caller, page: PageRequest, wanted: Wanted) -> Page[Event]:
    """A page of events with their data, by the order of their acceptance, with PAGE_BYTES of data at most past the first.

    Its work is bounded: it may hold fewer events than asked for, or none, and still have a next cursor.
    Raises Forbidden unless the caller may read events of every type, or of the one that is named; CursorMismatch.
    """
    if not caller.may("read"):
        if wanted.type is None:
            raise Forbidden("the credential does not grant reading events of every type; name one that it does")
        caller.demand_whole("read", wanted.type)
    filters = ["events", wanted.parameters(), wanted.after, wanted.newest_first]
    cursor = page.after(filters, int)
    bounds = {"after": wanted.after, "before": _NO_SEQ}
    if cursor is not None:
        bounds["before" if wanted.newest_first else "after"] = cursor[0]
    listed, looked = wanted.statements()
    asked = {**wanted.parameters(), **bounds, "limit": page.limit, "examined": EXAMINED}
    reading = Reading()
    rows = reading.ask(listed, bytes=int(PAGE_BYTES), **asked)
    far = reading.ask(looked, **asked)
    await db.read(reading)
    span = far.one()
    if span["wanted"] > len(rows.rows):
        last = rows.rows[-1]["seq"]
    else:
        last = span["last"] if span["examined"] == EXAMINED else None
    return Page([Event.of(row) for row in rows.rows], None if last is None else encode(filters, [last]))


async def set_scope(db: Database, caller: Caller, now: Instant, event_id: str, scope: str) -> Event:
    """Say which scope an event belongs to; the same again changes nothing.

    Raises Forbidden, EventUnknown, ScopeUnknown, and EventScopeConflict when it belongs to another.
    """
    caller.demand("operate")
    tx = Transaction(now)
    caller.guard(tx)
    tx.require(statements.EXISTS, EventUnknown(), event_id=event_id)
    tx.require(statements.SCOPE_EXISTS, ScopeUnknown(), scope=scope)
    tx.require(statements.HAS_NO_OTHER_SCOPE, EventScopeConflict(), event_id=event_id, scope=scope)
    append_selected(tx, caller.subject, "event.scoped", statements.SCOPING, event_id=event_id, scope=scope)
    tx.run(statements.SET_SCOPE, event_id=event_id, scope=scope)
    found = tx.run(statements.EVENT, event_id=event_id)
    await db.commit(tx)
    return Event.of(found.one())

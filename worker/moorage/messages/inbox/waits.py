"""Waits of executions for events (clause waits.match).

A wait is stored in the transaction of whoever holds its execution, with its keys and types, an acceptance boundary and, if
it has one, the instant of its timeout. What came before is looked for at that moment: the events past the boundary are read,
and the transaction commits only if none has come since. Whatever comes later meets a wait that is there already, and is
routed to it (`routing`). So an event is missed by neither, whichever comes first.

A wait ends once: woken, timed out or canceled, by whoever finds it active. It times out only when no event is unrouted that
might be its own.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from moorage.history.append import append_selected
from moorage.journal import load
from moorage.journal.model import EntryKey
from moorage.journal.wake import wake
from moorage.kernel import canonical
from moorage.kernel.errors import EventMatched, RequestInvalid
from moorage.kernel.instants import Instant
from moorage.messages.inbox import wait_statements as statements
from moorage.messages.inbox.matching import Filter
from moorage.messages.inbox.routing import ROUTER, TRIES, route
from moorage.store.chunks import json_arrays
from moorage.store.ports import Database
from moorage.store.transaction import Answer, Reading, Row, Scalar, Transaction

PAGE: Final = 100
PAGE_BYTES: Final = 4 * 1024 * 1024
"""Events of one term that are read at once, and the bytes of their data."""

EXAMINED: Final = 5_000
"""Events that one wait looks at before it is refused: it should name a key, or look back less far."""

TIMEOUTS: Final = 100
"""Waits of one execution that one transaction times out, and events that are routed before."""


class Unrouted(Exception):
    """An event came that might be one of a wait that was to time out. It never leaves the room."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A wait that an execution asks for. `timeout_at` None: it never times out. Events that were accepted up to
    `look_back_ms` before now may be the one."""

    key: EntryKey
    filter: Filter
    timeout_at: Instant | None
    look_back_ms: int


@dataclass(slots=True)
class _Look:
    """What was found for one wait: the boundary past which its event has to lie, and its event."""

    wanted: Wanted
    after: int
    timeout_at: Instant | None
    event: int | None = None


@dataclass(slots=True)
class Looked:
    """What was read for the waits of one list.

    `horizon` is the last event that had been accepted; `boundaries` are kept when it is read anew, so that an event which
    came meanwhile lies past them. `before` are earlier waits to which an event was left.
    """

    execution_id: str
    horizon: int = 0
    looks: list[_Look] = field(default_factory=list)
    before: dict[EntryKey, None] = field(default_factory=dict)
    boundaries: dict[EntryKey, int] = field(default_factory=dict)

    @property
    def due(self) -> list[Instant]:
        """The instants at which waits that are stored time out."""
        return [one.timeout_at for one in self.looks if one.event is None and one.timeout_at is not None]


async def look(
    db: Database, now: Instant, execution_id: str, wanted: Sequence[Wanted], before: Looked | None = None
) -> Looked:
    """Read what is there for these waits. One that stands already is not looked for again; if it is over, it ends now.

    Two round trips, one more for each further page. Raises RequestInvalid when a wait would have to look at more than
    EXAMINED events.
    """
    found = Looked(execution_id, boundaries=dict(before.boundaries) if before else {})
    standing, active = await _read(db, now, found, wanted)
    if any(row["state"] == "active" and (row["timeout_at"] or now + 1) <= now for row in standing.values()):
        await time_out(db, now, execution_id)
    taken: set[int] = set()
    for one in wanted:
        there = standing.get(one.key)
        if there is not None and there["state"] != "canceled":
            continue
        after = found.boundaries[one.key] if there is None else there["after"]
        here = _Look(one, after, one.timeout_at if there is None else there["timeout_at"])
        earlier = [(key, waiting) for key, waiting in active if key != one.key]
        here.event = await _first_fitting(db, found, here, earlier, taken)
        if here.event is not None:
            taken.add(here.event)
        found.looks.append(here)
    return found


def plan(tx: Transaction, looked: Looked) -> None:
    """Store the waits whose entries wait, after these were written.

    The commit raises EventMatched when an event has come since `look` that may be one of them: look again.
    """
    if not looked.looks:
        return
    tx.refuse("event_waits.event", EventMatched())
    waits = [_stored(looked, one, tx.now) for one in looked.looks]
    for array in json_arrays(canonical.compact(one) for one in waits):
        tx.run(statements.REGISTER, waits=array)
        tx.run(statements.ADD_TERMS, waits=array)
    if taken := [one[:7] for one in waits if one[6] is not None]:
        told = canonical.compact(taken)
        append_selected(tx, ROUTER, "event.matched", statements.MATCHED, many=True, waits=told)


def require(tx: Transaction, looked: Looked) -> None:
    """What `plan` relies on: no event has come since, and those that were found are kept."""
    if not looked.looks:
        return
    terms = sorted({term for one in looked.looks for term in one.wanted.filter.terms})
    tx.require(statements.NONE_NEWER, EventMatched(), terms=canonical.compact(terms), horizon=looked.horizon)
    if events := [one.event for one in looked.looks if one.event is not None]:
        tx.require(statements.ALL_KEPT, EventMatched(), events=canonical.compact(events))
    if looked.before:
        # If one of them ended meanwhile, nobody may have been there for the event that was left to it.
        left = [[looked.execution_id, key.label, key.input_sha256] for key in looked.before]
        tx.require(statements.ALL_ACTIVE, EventMatched(), waits=canonical.compact(left))


def cancel(tx: Transaction, execution_id: str, keys: Sequence[EntryKey]) -> None:
    """Cancel those of these waits that are active: nobody awaits them any more."""
    waits = canonical.compact([[execution_id, key.label, key.input_sha256] for key in keys])
    tx.run(statements.REMOVE_TERMS, waits=waits)
    tx.run(statements.CANCEL, waits=waits)


def cancel_all(tx: Transaction, selection: str, **parameters: Scalar) -> None:
    """Cancel the active waits of the executions that `selection`, a SELECT of execution ids, gives: their runs have ended.

    An execution that goes on in another run takes each of them up where it was, with what came meanwhile.
    """
    tx.run(statements.REMOVE_TERMS_OF.replace("{executions}", selection), **parameters)
    tx.run(statements.CANCEL_OF.replace("{executions}", selection), **parameters)


def forget(tx: Transaction, selection: str, **parameters: Scalar) -> None:
    """Remove the waits of executions that are retired, with their journals."""
    tx.run(statements.REMOVE_TERMS_OF.replace("{executions}", selection), **parameters)
    tx.run(statements.FORGET.replace("{executions}", selection), **parameters)


def copy(tx: Transaction, execution_id: str, fresh: str) -> None:
    """Let a fresh execution have what its kept entries took, so that it takes none of these events again."""
    tx.run(statements.COPY, execution=execution_id, fresh=fresh)


async def time_out(db: Database, now: Instant, execution_id: str, due: str | None = None) -> int:
    """Time out the waits of an execution that are over, once every event that may be theirs is routed; how many did. Only
    those that are over at `due`, an instant in digits, where it is given.

    Whoever awaits them is woken. An event that is accepted while this goes on wins, and so does one that was accepted at any
    time before.
    """
    changed = 0
    for _ in range(TRIES):
        rows = await _overdue(db, now, execution_id, due)
        if not rows:
            return changed
        terms = canonical.compact(sorted({term for row in rows for term in _filter(row).terms}))
        await _route_all(db, now, terms)
        waits = canonical.compact([[row["execution_id"], row["label"], row["input_sha256"]] for row in rows])
        tx = Transaction(now)
        tx.require(statements.NONE_UNROUTED, Unrouted(), terms=terms)
        answer = tx.run(statements.TIME_OUT, waits=waits)
        wake(tx, statements.TIMED_OUT, execution=execution_id)
        tx.run(statements.REMOVE_TERMS, waits=waits)
        try:
            await db.commit(tx)
        except Unrouted:
            continue
        changed += len(answer.rows)
    raise EventMatched("events for the wait come faster than they can be routed")


class EventWaitTimeouts:
    """The Clock's class of work that times waits for events out; an item is the id of an execution and an instant at which
    waits of it are over (clause waits.match)."""

    name = "event_wait_timed_out"
    shard: Final = "runs"
    earliest = statements.EARLIEST_TIMEOUT
    page = statements.TIMEOUTS

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Time out what is over of one execution, and wake it; 0 when its waits have ended meanwhile."""
        execution_id, _, due = item.rpartition("@")
        return await time_out(db, now, execution_id, due)


# --- reading ---------------------------------------------------------------------------------------------------------


async def _read(
    db: Database, now: Instant, found: Looked, wanted: Sequence[Wanted]
) -> tuple[dict[EntryKey, Row], list[tuple[EntryKey, Row]]]:
    """The horizon, the boundaries of new waits, the waits that stand under these keys, and the execution's active ones."""
    reading = Reading()
    horizon = reading.ask(statements.HORIZON)
    standing = reading.ask(statements.STANDING, execution=found.execution_id, keys=load.keys_text(one.key for one in wanted))
    active = reading.ask(statements.ACTIVE, execution=found.execution_id)
    since = {one.look_back_ms for one in wanted if one.look_back_ms and one.key not in found.boundaries}
    boundaries = {span: reading.ask(statements.BOUNDARY, since=now - span) for span in sorted(since)}
    await db.read(reading)
    found.horizon = horizon.one()["seq"]
    for one in wanted:
        boundary: Answer = boundaries.get(one.look_back_ms, horizon)
        found.boundaries.setdefault(one.key, boundary.one()["seq"])
    rows = {EntryKey(row["label"], row["input_sha256"]): row for row in standing.rows}
    return rows, [(EntryKey(row["label"], row["input_sha256"]), row) for row in active.rows]


async def _first_fitting(
    db: Database, looked: Looked, here: _Look, earlier: Sequence[tuple[EntryKey, Row]], taken: set[int]
) -> int | None:
    """The first event past the wait's boundary that fits it, that the execution has not taken, and that is not left to an
    earlier wait of it."""
    filter_ = here.wanted.filter
    after, examined = here.after, 0
    with_data = int(filter_.match is not None or any(row["match"] is not None for _, row in earlier))
    while True:
        rows, last = await _page(db, looked.execution_id, filter_.terms, after, with_data)
        for row in rows:
            if row["taken"] or row["seq"] in taken or not _fits(filter_, row):
                continue
            owner = next((key for key, one in earlier if one["after"] < row["seq"] and _fits(_filter(one), row)), None)
            if owner is None:
                return int(row["seq"])
            looked.before[owner] = None
        if last is None:
            return None
        examined += len(rows)
        if examined >= EXAMINED:
            raise RequestInvalid(
                f"more than {EXAMINED} events would have to be looked at: name a key, or look back less far than that"
            )
        after = last


async def _page(
    db: Database, execution_id: str, terms: Sequence[str], after: int, with_data: int
) -> tuple[list[Row], int | None]:
    """Events past `after` with one of the terms, in order, and how far they are all of them; None: there are no more."""
    reading = Reading()
    where: dict[str, Scalar] = {"execution": execution_id, "after": after, "with_data": with_data}
    answers = [reading.ask(statements.CANDIDATES, term=term, limit=PAGE, room=PAGE_BYTES, **where) for term in terms]
    await db.read(reading)
    full = (one.rows for one in answers if one.rows and (len(one.rows) < one.rows[0]["met"] or len(one.rows) == PAGE))
    cut = [rows[-1]["seq"] for rows in full]
    last = min(cut, default=None)
    rows = {row["seq"]: row for one in answers for row in one.rows if last is None or row["seq"] <= last}
    return [rows[seq] for seq in sorted(rows)], last


async def _overdue(db: Database, now: Instant, execution_id: str, due: str | None) -> list[Row]:
    reading = Reading()
    overdue = reading.ask(statements.OVERDUE, execution=execution_id, now=now, due=due, limit=TIMEOUTS)
    await db.read(reading)
    return overdue.rows


async def _route_all(db: Database, now: Instant, terms: str) -> None:
    """Route every event with one of these terms that nobody has routed."""
    while True:
        reading = Reading()
        unrouted = reading.ask(statements.UNROUTED_WITH, terms=terms, limit=TIMEOUTS)
        await db.read(reading)
        for row in unrouted.rows:
            await route(db, now, row["seq"])
        if len(unrouted.rows) < TIMEOUTS:
            return


def _stored(looked: Looked, one: _Look, now: Instant) -> list[Any]:
    """The wait as a row: woken by what was found; or over at once, where its time has passed and nothing was; or active."""
    passed = one.timeout_at is not None and one.timeout_at <= now
    state = "woken" if one.event is not None else "timed_out" if passed else "active"
    key, filter_ = one.wanted.key, one.wanted.filter
    return [
        looked.execution_id,
        key.label,
        key.input_sha256,
        state,
        one.after,
        one.timeout_at,
        one.event,
        canonical.compact(list(filter_.keys)),
        canonical.compact(list(filter_.types)),
        filter_.match,
    ]


def _filter(row: Mapping[str, Any]) -> Filter:
    return Filter(tuple(json.loads(row["keys"])), tuple(json.loads(row["types"])), row.get("match"))


def _fits(filter_: Filter, row: Mapping[str, Any]) -> bool:
    return filter_.fits(row["type"], json.loads(row["keys"]), row["data"])

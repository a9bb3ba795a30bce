"""Routing: the second checkpoint of an event (clauses inbox.two-checkpoints, waits.match).

An accepted event is safe and has done nothing yet. Routing reads whom it may wake, and then commits at once: it wakes every
wait that fits, one of an execution at most and of several the one that was stored first, says which work the event belongs
to, and marks it as routed. Whatever dies before that commit leaves an event that is routed later, as if nothing had been.

The waits that were read must all be active still when that commits. A wait of the same execution that was stored meanwhile
left the event to one of these; so if one of them has ended otherwise, everything is read anew.

Events are routed many at a time: one reading finds a page of them and the waits that may be for them, one transaction wakes
with those that wake somebody, and one marks those that wake nobody. An event that no wait fits may always be marked: a wait
that is stored meanwhile finds it by itself. But an event for which an execution has only waits that earlier events of the
page wake is left to the next reading. A wait that is stored before these are woken left the event to one of them, and must
be seen.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from moorage.history.append import append_selected
from moorage.journal.wake import wake
from moorage.kernel import canonical
from moorage.kernel.errors import EventMatched
from moorage.kernel.instants import Instant
from moorage.messages.inbox import wait_statements as statements
from moorage.messages.inbox.matching import Filter
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Scalar, Transaction

ROUTER: Final = "moorage:router"
"""The actor of routing; no subject can be called so."""

EXECUTIONS: Final = 200
"""Executions that one transaction wakes. An event that may wake more takes more; the last of them marks it."""

PASS: Final = 100
"""Events that are routed before somebody looks again."""

WAITS: Final = 400
"""Waits, once for each term that they share with an event, that are read for a page of events; and of each term for an
event by itself."""

DATA_BYTES: Final = 4 * 1024 * 1024
"""Data of events that is read at once, where waits ask for it."""

TRIES: Final = 20
"""How often a picture gone stale is read anew."""


class Routed(Exception):
    """Somebody else routed the event. It never leaves the module."""


@dataclass(slots=True)
class _Page:
    """Events in order and, by their seqs, the waits that may be for them. From the event `cut` on there may be more."""

    events: list[Row]
    waits: Mapping[int, list[Row]]
    cut: int | None


@dataclass(slots=True)
class _Choice:
    """What becomes of a page: the waits that wake, each with its event; and the events that wake somebody, those that wake
    nobody, and those that are left, all in order."""

    waits: list[list[str | int]] = field(default_factory=list)
    waking: list[int] = field(default_factory=list)
    idle: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)


async def route(db: Database, now: Instant, seq: int) -> int:
    """Route one event; the waits that it woke just now, and 1 where it woke none but is routed now; 0 when it was before.

    Two round trips; for each further page of executions one more, and another where it wakes some of them. It may be called
    as often as one likes, and by several at once. Raises EventMatched when waits end faster than they can be read; nothing
    is lost then.
    """
    woken = 0
    after = ""
    for _ in range(TRIES):
        while True:
            event, waits, last = await _read(db, seq, after)
            if event is None:
                return woken
            chosen = [_woken(first, seq) for first, *_ in _fitting(event, event["data"], waits)]
            if len(chosen) > EXECUTIONS:
                chosen = chosen[:EXECUTIONS]
                last = str(chosen[-1][0])
            if chosen or last is None:
                tx = Transaction(now)
                _wake(tx, [seq], chosen)
                if last is None:
                    _mark(tx, [seq])
                try:
                    await db.commit(tx)
                except Routed:
                    return woken
                except EventMatched:
                    break
            woken += len(chosen)
            if last is None:
                return max(1, woken)
            after = last
    raise EventMatched("the waits for the event end faster than they can be read")


async def route_unrouted(db: Database, now: Instant) -> bool:
    """Route the events that nobody has, at most PASS of them in the order of their acceptance; whether there may be more.

    Two round trips where all wake somebody or all wake nobody, three where both are among them, and one more where a wait
    asks for the data of its event.
    """
    return (await _pass(db, now)).more


class UnroutedEvents:
    """The Clock's class of work that routes what nobody did, UNROUTED_MS after it was accepted; an item is the seq of the
    first such event, with which as many others are routed as one pass takes.

    Whoever accepts an event routes it right after the answer. This is for whoever died in between.
    """

    name = "event_routed"
    shard: Final = "messages"
    earliest = statements.EARLIEST_UNROUTED
    page = statements.UNROUTED

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Route the event, and others; how many, or 0 when it was routed meanwhile. Where that fails it is routed by itself:
        the fault is that of one of them, and another may be the one to set aside."""
        try:
            routed = (await _pass(db, now)).routed
        except Exception:
            routed = set()
        return len(routed) if int(item) in routed else await route(db, now, int(item))


@dataclass(frozen=True, slots=True)
class _Passed:
    routed: set[int]
    more: bool


async def _pass(db: Database, now: Instant) -> _Passed:
    page = await _first(db)
    choice = _choose(page, await _data(db, page))
    if choice.left and not choice.waking:
        # It may wake more than one transaction can.
        choice.waking.append(choice.left.pop(0))
        await route(db, now, choice.waking[0])
    elif choice.waking:
        await _wake_together(db, now, choice)
    if choice.idle:
        tx = Transaction(now)
        _mark(tx, choice.idle)
        await db.commit(tx)
    return _Passed({*choice.waking, *choice.idle}, bool(choice.left) or len(page.events) == PASS)


async def _wake_together(db: Database, now: Instant, choice: _Choice) -> None:
    """Route the events that wake somebody; where one of them was routed meanwhile or one of the waits has ended, each by
    itself."""
    tx = Transaction(now)
    _wake(tx, choice.waking, choice.waits)
    _mark(tx, choice.waking)
    try:
        await db.commit(tx)
    except (Routed, EventMatched):
        for seq in choice.waking:
            await route(db, now, seq)


def _choose(page: _Page, data: Mapping[int, str | None]) -> _Choice:
    """Go through a page as if its events came one by one."""
    choice = _Choice()
    taken: set[tuple[str, ...]] = set()
    for event in page.events:
        seq = event["seq"]
        waits = page.waits.get(seq, [])
        unknown = seq not in data and any(row["match"] is not None for row in waits)
        if unknown or (page.cut is not None and seq >= page.cut):
            choice.left.append(seq)
            continue
        fitting = _fitting(event, data.get(seq), waits)
        if not fitting:
            choice.idle.append(seq)
            continue
        free = [next((row for row in rows if _key(row) not in taken), None) for rows in fitting]
        chosen = [row for row in free if row is not None]
        if choice.left or len(chosen) < len(free) or len(choice.waits) + len(chosen) > EXECUTIONS:
            choice.left.append(seq)
            continue
        taken.update(map(_key, chosen))
        choice.waits += [_woken(row, seq) for row in chosen]
        choice.waking.append(seq)
    return choice


def _fitting(event: Row, data: str | None, waits: Iterable[Row]) -> list[list[Row]]:
    """The waits that an event fits, execution by execution, in each in the order in which they were stored."""
    keys = json.loads(event["keys"])
    fitting: dict[str, list[Row]] = {}
    for row in waits:
        if row["after"] >= event["seq"]:
            continue
        filter_ = Filter(tuple(json.loads(row["keys"])), tuple(json.loads(row["types"])), row["match"])
        if filter_.fits(event["type"], keys, data):
            fitting.setdefault(row["execution_id"], []).append(row)
    return [sorted(rows, key=lambda row: (row["created_at"], *_key(row))) for rows in fitting.values()]


def _key(row: Row) -> tuple[str, ...]:
    return row["execution_id"], row["label"], row["input_sha256"]


def _woken(row: Row, seq: int) -> list[str | int]:
    return [*_key(row), seq]


def _wake(tx: Transaction, events: Sequence[int], waits: Sequence[Sequence[str | int]]) -> None:
    """Wake these waits, if the events are unrouted and the waits active. The commit raises Routed and EventMatched."""
    tx.require(statements.ALL_UNROUTED, Routed(), events=canonical.compact(list(events)))
    if waits:
        keys = canonical.compact([list(one) for one in waits])
        tx.refuse("event_waits.event", EventMatched())
        tx.require(statements.ALL_ACTIVE, EventMatched(), waits=keys)
        tx.run(statements.REMOVE_TERMS, waits=keys)
        tx.run(statements.WAKE, waits=keys)
        wake(tx, statements.WOKEN, waits=keys)


def _mark(tx: Transaction, events: Sequence[int]) -> None:
    """Mark the events as routed, those that are not yet."""
    told = canonical.compact(list(events))
    tx.run(statements.ROUTE, events=told)
    append_selected(tx, ROUTER, "event.routed", statements.ROUTED, many=len(events) > 1, events=told)


# --- reading ---------------------------------------------------------------------------------------------------------


async def _first(db: Database) -> _Page:
    """The first events that nobody has routed."""
    reading = Reading()
    found = reading.ask(statements.FIRST_UNROUTED, limit=PASS)
    waits = reading.ask(statements.FIRST_WAITS, limit=PASS, most=WAITS)
    await db.read(reading)
    by_event: dict[int, dict[tuple[str, ...], Row]] = {}
    for row in waits.rows:
        by_event.setdefault(row["seq"], {})[_key(row)] = row
    cut = waits.rows[-1]["seq"] if len(waits.rows) == WAITS else None
    return _Page(found.rows, {seq: list(rows.values()) for seq, rows in by_event.items()}, cut)


async def _data(db: Database, page: _Page) -> dict[int, str | None]:
    """The data of those events of a page for which it matters, as much as one reading holds."""
    known = ((seq, rows) for seq, rows in page.waits.items() if page.cut is None or seq < page.cut)
    asked = [seq for seq, rows in known if any(row["match"] is not None for row in rows)]
    if not asked:
        return {}
    reading = Reading()
    found = reading.ask(statements.DATA, events=canonical.compact(asked), room=DATA_BYTES)
    await db.read(reading)
    return {row["seq"]: row["data"] for row in found.rows}


async def _read(db: Database, seq: int, after: str) -> tuple[Row | None, list[Row], str | None]:
    """The event, unless it was routed; the waits that may be for it, of a page of executions in their order; and the last
    of these, if there may be more."""
    reading = Reading()
    found = reading.ask(statements.EVENT, seq=seq)
    page: dict[str, Scalar] = {"seq": seq, "after": after, "limit": WAITS}
    until = reading.ask(statements.UNTIL, **page)
    waits = reading.ask(statements.WAITS, **page)
    await db.read(reading)
    return found.first(), waits.rows, until.one()["until"]

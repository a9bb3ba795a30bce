"""Routing: the second checkpoint of an event (clauses inbox.two-checkpoints, waits.match).

An accepted event is safe and has done nothing yet. Routing reads whom it may wake, and then commits at once: it wakes every
wait that fits, one of an execution at most and of several the one that was stored first, says which work the event belongs
to, and marks it as routed. Whatever dies before that commit leaves an event that is routed later, as if nothing had been.

The waits that were read must all be active still when that commits. A wait of the same execution that was stored meanwhile
left the event to one of these; so if one of them has ended otherwise, everything is read anew.
"""

import json
from collections.abc import Sequence
from typing import Final

from moorage.history.append import append_selected
from moorage.journal.wake import wake
from moorage.kernel import canonical
from moorage.kernel.errors import EventMatched
from moorage.kernel.instants import Instant
from moorage.messages import wait_statements as statements
from moorage.messages.matching import Filter
from moorage.messages.model import terms_of
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Transaction

ROUTER: Final = "moorage:router"
"""The actor of routing; no subject can be called so."""

EXECUTIONS: Final = 200
"""Executions that one transaction wakes. An event that may wake more takes more; the last of them marks it."""

PASS: Final = 50
"""Events that are routed before somebody looks again."""

TRIES: Final = 20
"""How often a picture gone stale is read anew."""


class Routed(Exception):
    """Somebody else routed the event. It never leaves the module."""


async def route(db: Database, now: Instant, seq: int) -> int:
    """Route one event; the waits that it woke just now, and 1 where it woke none but is routed now; 0 when it was before.

    Two round trips, two more for each further page of executions. It may be called as often as one likes, and by several at
    once. Raises EventMatched when waits end faster than they can be read; nothing is lost then.
    """
    woken = 0
    after = ""
    for _ in range(TRIES):
        while True:
            event, waits, last = await _read(db, seq, after)
            if event is None:
                return woken
            chosen = _chosen(event, waits)
            tx = _plan(now, seq, chosen, whole=last is None)
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


async def route_ids(db: Database, now: Instant, event_ids: Sequence[str]) -> None:
    """Route those of these events that are not yet, in the order in which they were accepted."""
    reading = Reading()
    unrouted = reading.ask(statements.UNROUTED_OF, ids=canonical.compact(list(event_ids)))
    await db.read(reading)
    for row in unrouted.rows:
        await route(db, now, row["seq"])


async def route_unrouted(db: Database, now: Instant) -> bool:
    """Route the events that nobody has, at most PASS of them in the order of their acceptance; whether there may be more."""
    reading = Reading()
    unrouted = reading.ask(statements.FIRST_UNROUTED, limit=PASS)
    await db.read(reading)
    for row in unrouted.rows:
        await route(db, now, row["seq"])
    return len(unrouted.rows) == PASS


class UnroutedEvents:
    """The Clock's class of work that routes what nobody did, UNROUTED_MS after it was accepted; an item is an event's seq.

    Whoever accepts an event routes it right after the answer. This is for whoever died in between.
    """

    name = "event_routed"
    shard: Final = "messages"
    earliest = statements.EARLIEST_UNROUTED
    page = statements.UNROUTED

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Route one event; 0 when it was routed meanwhile."""
        return await route(db, now, int(item))


async def _read(db: Database, seq: int, after: str) -> tuple[Row | None, list[Row], str | None]:
    """The event, unless it was routed; the waits that may be for it, of a page of executions; and the last of these, if
    there may be more."""
    reading = Reading()
    found = reading.ask(statements.EVENT, seq=seq)
    await db.read(reading)
    event = found.first()
    if event is None:
        return None, [], None
    terms = canonical.compact(terms_of(tuple(json.loads(event["keys"])), event["type"]))
    reading = Reading()
    waits = reading.ask(statements.WAITS, terms=terms, seq=seq, after=after, limit=EXECUTIONS)
    await db.read(reading)
    executions = {row["execution_id"] for row in waits.rows}
    return event, waits.rows, max(executions) if len(executions) >= EXECUTIONS else None


def _chosen(event: Row, waits: Sequence[Row]) -> list[list[str]]:
    """The keys of the waits that the event wakes: of each execution the first that fits."""
    keys = json.loads(event["keys"])
    chosen: dict[str, list[str]] = {}
    for row in waits:
        if row["execution_id"] in chosen or row["after"] >= event["seq"]:
            continue
        filter_ = Filter(tuple(json.loads(row["keys"])), tuple(json.loads(row["types"])), row["match"])
        if filter_.fits(event["type"], keys, event["data"]):
            chosen[row["execution_id"]] = [row["execution_id"], row["label"], row["input_sha256"]]
    return list(chosen.values())


def _plan(now: Instant, seq: int, chosen: Sequence[Sequence[str]], *, whole: bool) -> Transaction:
    tx = Transaction(now)
    tx.require(statements.IS_UNROUTED, Routed(), seq=seq)
    if chosen:
        waits = canonical.compact([list(one) for one in chosen])
        tx.refuse("event_waits.event", EventMatched())
        tx.require(statements.ALL_ACTIVE, EventMatched(), waits=waits)
        tx.run(statements.REMOVE_TERMS, waits=waits)
        tx.run(statements.WAKE, seq=seq, waits=waits)
        wake(tx, statements.WOKEN, waits=waits)
    if whole:
        tx.run(statements.ROUTE, seq=seq)
        append_selected(tx, ROUTER, "event.routed", statements.ROUTED, seq=seq)
    return tx

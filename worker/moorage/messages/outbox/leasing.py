"""Leasing deliveries, and recording what became of them (clause outbox.deliver).

A lease is an attempt: it is counted as it begins, because nobody can tell of one that was cut off whether it arrived. When
a Courier is lost while it sends, the lease runs out, and the same bytes are sent again under the same id.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from moorage.catalog import statements as catalog
from moorage.catalog.destinations import Destination
from moorage.catalog.model import DeliveryDeclaration, Method
from moorage.history.append import append_selected
from moorage.kernel.instants import Instant, after
from moorage.messages.outbox import circuit
from moorage.messages.outbox import courier_statements as statements
from moorage.messages.outbox.backoff import asked_for, delay
from moorage.messages.outbox.sending import Leased, Outcome, Target
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Transaction

COURIER: Final = "moorage:courier"
"""The actor of what Couriers find out; no subject can be called so."""

MARGIN_SECONDS: Final = 15
"""How much longer a lease is than an answer may take: time to record it."""

LATELY_SECONDS: Final = 600
"""For how long after a wait that a destination asked for a Courier that begins anew goes by it."""

_WITH_BODY: Final[tuple[Method, ...]] = ("POST", "PUT", "PATCH")

_ENDS: Final = {"delivered": "delivered", "gone": "canceled"}


@dataclass(frozen=True, slots=True)
class Round:
    """What one look gave: deliveries to send, and the destination as it stands. `spent` counts those that were given up,
    `due` is when there is something to do again, as far as is known now."""

    leased: list[Leased]
    destination: Destination
    spent: int
    due: Instant | None


async def begin(db: Database, now: Instant, name: str) -> tuple[Destination | None, bool]:
    """What a Courier that remembers nothing begins with, in one round trip: the destination as it stands, None when it is
    not declared, and whether a wait that it asked for goes on or has ended within LATELY_SECONDS."""
    reading = Reading()
    found = reading.ask(catalog.DESTINATION, name=name)
    asked = reading.ask(statements.ASKED_SINCE, destination=name, since=now - LATELY_SECONDS * 1000)
    await db.read(reading)
    row = found.first()
    return None if row is None else Destination.of(row), asked.first() is not None


def target_of(known: Destination) -> Target:
    """Where deliveries to a destination go, by the first of its methods that carries a body."""
    method = next((method for method in _WITH_BODY if method in known.methods), None)
    return Target(known.name, known.url, method, known.secret, known.delivery.timeout_seconds)


async def lease(db: Database, now: Instant, known: Destination, free: int) -> Round:
    """Lease at most `free` deliveries that are due, in one transaction, as many as the destination may get at once.

    When nothing more is due the Courier rests from then on, whatever is under way: it is told of what comes next.
    """
    defaults = DeliveryDeclaration()
    destination = known.name
    picked: dict[str, Any] = {"destination": destination, "free": free, "concurrency": defaults.concurrency}
    most: dict[str, Any] = {"max_attempts": defaults.max_attempts}
    lasting: dict[str, Any] = {"margin": MARGIN_SECONDS, "timeout": defaults.timeout_seconds}
    tx = Transaction(now)
    append_selected(tx, COURIER, "delivery.dead", statements.SPENT_ENTRIES, many=True, **picked, **most)
    spent = tx.run(statements.END_SPENT, **picked, **most)
    leased = tx.run(statements.LEASE, **lasting, **picked, **most)
    tx.run(statements.PROBE, destination=destination, **lasting)
    tx.run(statements.REST, destination=destination)
    due = tx.run(statements.NEXT_DUE, destination=destination)
    fresh = tx.run(catalog.DESTINATION, name=destination)
    await db.commit(tx)
    rows = sorted(leased.rows, key=lambda row: row["position"])
    upcoming = due.first()
    return Round(
        [_leased(row) for row in rows],
        Destination.of(fresh.one()),
        spent.changes,
        None if upcoming is None else Instant(upcoming["due"]),
    )


async def record(
    db: Database, now: Instant, known: Destination, leased: Leased, outcome: Outcome, random: Callable[[], float]
) -> None:
    """Record what became of an attempt, in one transaction, unless its lease was lost meanwhile."""
    fence: dict[str, Any] = {"delivery": leased.delivery_id, "epoch": leased.epoch}
    told: dict[str, Any] = {"status": outcome.status, "error": outcome.error}
    until = after(now, outcome.wait_seconds)
    tx = Transaction(now)
    if outcome.fate == "gone":
        append_selected(tx, COURIER, "destination.disabled", statements.DISABLED_ENTRY, error=outcome.error, **fence)
    circuit.learn(tx, known.name, fence, outcome, until)
    if outcome.fate in _ENDS:
        tx.run(statements.END, state=_ENDS[outcome.fate], **fence, **told)
    elif leased.attempt >= known.delivery.max_attempts:
        append_selected(tx, COURIER, "delivery.dead", statements.DEAD_ENTRY, status=outcome.status, **fence)
        tx.run(statements.END, state="dead", **fence, **told)
    else:
        asked = outcome.wait_seconds
        seconds = asked_for(asked, leased.attempt, random) if outcome.fate == "wait" else delay(leased.attempt, random)
        tx.run(statements.AGAIN, next=after(now, seconds), **fence, **told)
    await db.commit(tx)


def _leased(row: Row) -> Leased:
    told: dict[str, str | None] = json.loads(row["trace"] or "{}")
    trace = {name: value for name, value in told.items() if value is not None}
    return Leased(row["delivery_id"], row["event_id"], row["generation"], row["attempts"], row["epoch"], row["body"], trace)

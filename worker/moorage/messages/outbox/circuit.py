"""How a destination has answered lately: its circuit, what it asked for, and whether it is gone (clause outbox.deliver).

    closed      deliveries are sent. FAILURES of them in a row that fail open the circuit
    open        nothing is sent until `blocked_until`; what waits uses no attempt. First for OPEN_SECONDS, and twice as long
                each time a probe fails, up to LONGEST_SECONDS
    half_open   one delivery is sent to find out. A success closes the circuit
    disabled    it answered 410. Deliveries are kept, and sent once an operator enables it

A Retry-After sets `blocked_until` for the whole destination and is no failure of it: it has answered.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from moorage.catalog.access import Caller
from moorage.history.append import Event, append
from moorage.kernel.errors import DestinationUnknown
from moorage.kernel.instants import Instant, render
from moorage.messages.outbox import courier_statements as statements
from moorage.messages.outbox.sending import Outcome
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Scalar, Transaction

Circuit = Literal["closed", "open", "half_open", "disabled"]

FAILURES: Final = 5
OPEN_SECONDS: Final = 30
LONGEST_SECONDS: Final = 900


@dataclass(frozen=True, slots=True)
class Health:
    """How a destination has answered lately. `failures` are those in a row; nothing is sent before `blocked_until`."""

    destination: str
    state: Circuit
    failures: int
    blocked_until: Instant | None
    reason: str | None
    updated_at: Instant

    @classmethod
    def of(cls, row: Row) -> "Health":
        """The health that a row holds."""
        return cls(**row)

    def answer(self) -> dict[str, Any]:
        """What a client is shown."""
        return {
            "destination": self.destination,
            "state": self.state,
            "failures": self.failures,
            "blocked_until": None if self.blocked_until is None else render(self.blocked_until),
            "reason": self.reason,
            "updated_at": render(self.updated_at),
        }


def learn(tx: Transaction, destination: str, fence: Mapping[str, Scalar], outcome: Outcome, until: Instant) -> None:
    """Plan what an attempt's outcome tells of its destination, as long as the attempt has its lease, which `fence` names.

    `until` is when a wait ends that it asked for.
    """
    if outcome.fate == "delivered":
        tx.run(statements.SUCCEEDED, destination=destination, **fence)
    elif outcome.fate == "wait":
        tx.run(statements.BLOCKED, until=until, reason=outcome.error, **fence)
    elif outcome.fate == "gone":
        tx.run(statements.GONE, reason=outcome.error, **fence)
    else:
        tx.run(
            statements.FAILED,
            **fence,
            reason=outcome.error,
            threshold=FAILURES,
            first=OPEN_SECONDS * 1000,
            longest=LONGEST_SECONDS * 1000,
        )


async def enable(db: Database, caller: Caller, now: Instant, name: str) -> Health:
    """Send to a destination again, from now on: its circuit is closed, and what was kept for it is due.

    The same again changes nothing but history. Raises Forbidden, DestinationUnknown.
    """
    caller.demand("operate")
    tx = Transaction(now)
    caller.guard(tx)
    tx.require(statements.DECLARED, DestinationUnknown(), destination=name)
    stored = tx.run(statements.ENABLE, destination=name)
    append(tx, caller.subject, Event(f"destination:{name}", "destination.enabled"))
    await db.commit(tx)
    return Health.of(stored.one())


async def show(db: Database, caller: Caller, name: str) -> Health:
    """How a destination has answered lately. Raises Forbidden, DestinationUnknown."""
    caller.demand("operate")
    reading = Reading()
    found = reading.ask(statements.COURIER, destination=name)
    await db.read(reading)
    return Health.of(found.one(DestinationUnknown()))

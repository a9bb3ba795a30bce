"""Entity leases of executions: one execution at a time works on an entity (clauses guards.scope, items.entity-admission).

Such a lease is owned by the execution, whoever holds that; it lasts as long as an owner's lease and is renewed with it. A
guard that was admitted under it keeps it from changing hands.
"""

from dataclasses import dataclass

from moorage.guards import blocked, statements
from moorage.guards.model import Guard, lease_key
from moorage.kernel.errors import LeaseHeld, MoorageError
from moorage.kernel.instants import Instant, after, render
from moorage.kernel.limits import OWNER_LEASE_SECONDS
from moorage.store.ports import Database
from moorage.store.transaction import Answer, Reading, Transaction


@dataclass(frozen=True, slots=True)
class Wish:
    """An entity that an execution wants to hold, or wants to let go of. It never leaves the room but as an exception's."""

    execution_id: str
    namespace: str
    key: str

    @property
    def lease(self) -> str:
        """The key of its lease."""
        return lease_key(self.namespace, self.key)


class Denied(Exception):
    """The entity is not to be had, or not to be let go of. It never leaves the core; see `why`."""

    def __init__(self, wish: Wish) -> None:
        super().__init__()
        self.wish = wish


def hold(tx: Transaction, wish: Wish) -> Answer:
    """Take the entity's lease, or extend it, in a fenced transaction; the answer holds key, epoch and expires_at.

    The commit raises Denied.
    """
    until = after(tx.now, OWNER_LEASE_SECONDS)
    taken = tx.run(statements.HOLD_ENTITY, key=wish.lease, execution=wish.execution_id, expires_at=until)
    tx.require(statements.HAS_ENTITY, Denied(wish), key=wish.lease, execution=wish.execution_id)
    return taken


def let(tx: Transaction, wish: Wish) -> None:
    """Give the entity's lease up in a fenced transaction; what the execution does not hold is let go of already.

    The commit raises Denied while a guard protects it.
    """
    tx.run(statements.LET_ENTITY, key=wish.lease, execution=wish.execution_id)
    tx.require(statements.HAS_LET_ENTITY, Denied(wish), key=wish.lease, execution=wish.execution_id)


def renew(tx: Transaction, fences: str, expires_at: Instant) -> None:
    """Extend the entity leases of executions that are held; `fences` is a JSON object of their epochs."""
    tx.run(statements.RENEW_ENTITIES, fences=fences, expires_at=expires_at)


async def why(db: Database, now: Instant, wish: Wish) -> MoorageError:
    """Why the wish was denied: LeaseHeld by another execution, or ExecutionGuardBlocked."""
    reading = Reading()
    lease = reading.ask(statements.ENTITY, key=wish.lease)
    guard = reading.ask(statements.OF_LEASE, key=wish.lease)
    await db.read(reading)
    held, protected = lease.first(), guard.first()
    if held is not None and held["owner"] not in (None, wish.execution_id) and held["expires_at"] > now:
        until = held["expires_at"]
        detail = f"another execution holds the entity {wish.key!r} of {wish.namespace!r} until {render(until)}"
        return LeaseHeld(detail, retry_after=(until - now) / 1000, key=wish.lease)
    if protected is not None:
        other = Guard.of(protected)
        return blocked.error(other, now, discreet=other.execution_id != wish.execution_id)
    return LeaseHeld("the entity was held; ask again", retry_after=0, key=wish.lease)

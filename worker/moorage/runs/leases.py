"""Owners' leases on executions: renewing them, what is asked of their holders, and whether one still holds."""

from collections.abc import Sequence

from moorage.guards import entities
from moorage.journal.model import Fence, Lease
from moorage.kernel import canonical
from moorage.kernel.errors import LeaseExpired, LeaseFenced
from moorage.kernel.instants import Instant, after
from moorage.kernel.limits import OWNER_LEASE_SECONDS
from moorage.runs import statements
from moorage.runs.model import Stop
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Transaction


def require_held(row: Row | None, fence: Fence, now: Instant) -> None:
    """Raise LeaseFenced or LeaseExpired unless the row of an execution shows this epoch and a live lease."""
    if row is None or row["epoch"] != fence.epoch or row["owner"] is None:
        raise LeaseFenced()
    if row["expires_at"] <= now:
        raise LeaseExpired()


async def renew(db: Database, now: Instant, fences: Sequence[Fence]) -> dict[str, Lease]:
    """Extend leases by OWNER_LEASE_SECONDS from now, and those of the entities that the executions hold, in one round trip;
    one that was lost is missing in the answer.

    None is shortened, and none that has run out is revived (clause leases.renew).
    """
    if not fences:
        return {}
    tx = Transaction(now)
    told, until = _told(fences), after(now, OWNER_LEASE_SECONDS)
    renewed = tx.run(statements.RENEW, fences=told, expires_at=until)
    entities.renew(tx, told, until)
    await db.commit(tx)
    return {
        row["execution_id"]: Lease(row["epoch"], row["owner"], row["expires_at"], row["attempt"]) for row in renewed.rows
    }


async def stops(db: Database, fences: Sequence[Fence]) -> dict[str, Stop]:
    """The stops that were asked for, by execution, in one round trip."""
    if not fences:
        return {}
    reading = Reading()
    found = reading.ask(statements.STOPS, fences=_told(fences))
    await db.read(reading)
    return {row["execution_id"]: Stop(row["stop_requested_at"], row["stop_scope"], row["stop_reason"]) for row in found.rows}


def _told(fences: Sequence[Fence]) -> str:
    return canonical.compact({fence.execution_id: fence.epoch for fence in fences})

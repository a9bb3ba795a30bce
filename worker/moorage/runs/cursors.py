"""Cursors: positions that runs of one scope commit, each with what it stands for (clause runs.substrate)."""

from moorage.journal.model import Fence, Value
from moorage.kernel.instants import Instant
from moorage.runs import statements
from moorage.runs.leases import require_held
from moorage.store.ports import Database
from moorage.store.transaction import Reading


async def read(db: Database, now: Instant, fence: Fence, name: str) -> tuple[Value | None, int]:
    """A cursor of the execution's scope, and its revision; None and 0 when there is none. One round trip.

    Raises LeaseFenced, LeaseExpired.
    """
    reading = Reading()
    lease = reading.ask(statements.LEASE, execution=fence.execution_id)
    found = reading.ask(statements.CURSOR, execution=fence.execution_id, name=name)
    await db.read(reading)
    require_held(lease.first(), fence, now)
    row = found.first()
    return (None, 0) if row is None else (Value.of(row["position"]), row["revision"])

"""Deliveries that are long over go away; one that is still being tried never does, and a dead one waits for an operator."""

from typing import Final

from moorage.kernel.instants import Instant
from moorage.kernel.limits import DELIVERY_RETENTION_SECONDS
from moorage.messages.outbox import outbox_statements as statements
from moorage.store.ports import Database
from moorage.store.transaction import Transaction

SWEEP_DELIVERIES: Final = 500
"""Deliveries that one transaction removes."""


class DeliveryRetention:
    """The Clock's class of work that removes deliveries DELIVERY_RETENTION_SECONDS after they were delivered or canceled, in
    bulk at the full ten minutes."""

    name = "delivery_removed"
    shard: Final = "upkeep"
    coalesces = True
    earliest = statements.EARLIEST_REMOVAL
    page = statements.REMOVALS

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Remove at most SWEEP_DELIVERIES; what is left is listed again at once."""
        tx = Transaction(now)
        ended_before = now - int(DELIVERY_RETENTION_SECONDS) * 1000
        removed = tx.run(statements.REMOVE, ended_before=ended_before, limit=SWEEP_DELIVERIES)
        await db.commit(tx)
        return removed.changes

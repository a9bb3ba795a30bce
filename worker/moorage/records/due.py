"""What the clock does for records: leases that run out, and records whose not_before comes (clause records.recover)."""

from moorage.history.append import append_selected
from moorage.kernel.instants import Instant
from moorage.records import statements
from moorage.records.fail import plan_expiry
from moorage.store.ports import Database
from moorage.store.transaction import Transaction

CLOCK = "moorage:clock"
"""The actor of what the clock does."""


class RecordLeases:
    """A lease that has run out makes its record claimable again, or dead after the last attempt."""

    name = "lease_expired"
    earliest = statements.EARLIEST_EXPIRY
    page = statements.EXPIRED

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Expire one record's lease if it still runs out by `now`; a record settled or renewed meanwhile is left alone."""
        tx = Transaction(now)
        ended = plan_expiry(tx, CLOCK, item)
        await db.commit(tx)
        return len(ended.rows)


class RecordDelays:
    """A record whose not_before has come becomes claimable."""

    name = "record_due"
    earliest = statements.EARLIEST_DELAY
    page = statements.DELAYED

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Make one record claimable if it is due by `now`."""
        tx = Transaction(now)
        append_selected(tx, CLOCK, "record.due", statements.BECOMING_DUE, record=item)
        due = tx.run(statements.BECOME_DUE, record=item)
        await db.commit(tx)
        return len(due.rows)

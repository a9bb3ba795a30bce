"""What the clock does for records: leases that run out, records whose not_before comes, and records that nobody claimed
within their kind's time to live (clause records.recover)."""

from typing import Final

from moorage.history.append import CLOCK, append_selected
from moorage.kernel import canonical
from moorage.kernel.errors import FailureTag
from moorage.kernel.instants import Instant
from moorage.records import bound_statements, statements
from moorage.records.fail import plan_expiry
from moorage.store.ports import Database
from moorage.store.transaction import Transaction

_STALE = canonical.dumps(
    {
        "tag": FailureTag.TIMED_OUT.value,
        "code": "TimeToLiveOver",
        "message": "Nobody claimed the record within its kind's time to live.",
    }
)


class RecordLeases:
    """A lease that has run out makes its record claimable again, or dead after the last attempt."""

    name = "lease_expired"
    shard: Final = "records"
    parallel = True
    earliest = statements.EARLIEST_EXPIRY
    page = statements.EXPIRED

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Expire one record's lease if it still runs out by `now`; a record settled or renewed meanwhile is left alone."""
        record, _, due = item.rpartition("@")
        tx = Transaction(now)
        ended = plan_expiry(tx, CLOCK, record, due)
        await db.commit(tx)
        return len(ended.rows)


class StaleRecords:
    """A ready record that nobody claimed within its kind's time to live becomes a dead letter."""

    name = "record_stale"
    shard: Final = "records"
    parallel = True
    earliest = bound_statements.EARLIEST_STALE
    page = bound_statements.STALE

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Make one record a dead letter if its time to live has ended by `now`; a claimed one is left alone."""
        record, _, due = item.rpartition("@")
        tx = Transaction(now)
        becoming = bound_statements.BECOMING_STALE
        append_selected(tx, CLOCK, "record.dead_lettered", becoming, record=record, due=due, failure=_STALE)
        ended = tx.run(bound_statements.END_STALE, record=record, due=due, failure=_STALE)
        await db.commit(tx)
        return len(ended.rows)


class RecordDelays:
    """A record whose not_before has come becomes claimable."""

    name = "record_due"
    shard: Final = "records"
    parallel = True
    earliest = statements.EARLIEST_DELAY
    page = statements.DELAYED

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Make one record claimable if it is due by `now`."""
        record, _, due = item.rpartition("@")
        tx = Transaction(now)
        append_selected(tx, CLOCK, "record.due", statements.BECOMING_DUE, record=record, due=due)
        became = tx.run(statements.BECOME_DUE, record=record, due=due)
        await db.commit(tx)
        return len(became.rows)

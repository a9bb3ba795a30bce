"""What the Clock does for events: it removes those that were routed long ago (clause timers.alarm)."""

from typing import Final

from moorage.history.append import CLOCK, append_selected
from moorage.kernel.instants import Instant
from moorage.kernel.limits import EVENT_RETENTION_SECONDS
from moorage.messages.inbox import event_statements as statements
from moorage.messages.inbox.wait_statements import BOUNDARY
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Transaction

SWEEP_EVENTS: Final = 100
"""Events that one transaction removes."""


class EventRetention:
    """Events that were routed, and accepted EVENT_RETENTION_SECONDS ago, are removed; from then on a second delivery of one
    is a new event. One that has woken a wait is kept until the journal has recorded it.

    It falls due at the full ten minutes.
    """

    name = "event_retention"
    shard: Final = "upkeep"
    coalesces = True
    earliest = statements.EARLIEST_OLD
    page = statements.SWEEPS

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Remove at most SWEEP_EVENTS, in two round trips; what is left is listed again at once."""
        reading = Reading()
        last = reading.ask(BOUNDARY, since=now - int(EVENT_RETENTION_SECONDS) * 1000 + 1)
        await db.read(reading)
        old = {"through": last.one()["seq"], "limit": SWEEP_EVENTS}
        tx = Transaction(now)
        append_selected(tx, CLOCK, "event.removed", statements.REMOVING_OLD, many=True, **old)
        tx.run(statements.REMOVE_OLD_KEYS, **old)
        tx.run(statements.REMOVE_OLD_TYPES, **old)
        removed = tx.run(statements.REMOVE_OLD, **old)
        await db.commit(tx)
        return removed.changes

"""What became of windows is remembered for long, and then forgotten, also where the schedule itself is gone by then."""

from typing import Final

from moorage.history.append import CLOCK, append_selected
from moorage.kernel.instants import Instant
from moorage.kernel.limits import TRIGGER_RETENTION_SECONDS
from moorage.schedules import statements
from moorage.store.ports import Database
from moorage.store.transaction import Transaction

SWEEP_WINDOWS: Final = 500
"""Windows that one transaction forgets."""


class WindowRetention:
    """The Clock's class of work that forgets windows TRIGGER_RETENTION_SECONDS after they came, in bulk at the full ten
    minutes; those that wait for their turn stay."""

    name = "schedule_forgotten"
    shard: Final = "upkeep"
    coalesces = True
    earliest = statements.EARLIEST_FORGOTTEN
    page = statements.FORGOTTEN

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Forget at most SWEEP_WINDOWS; what is left is listed again at once."""
        tx = Transaction(now)
        old = {"before": now - int(TRIGGER_RETENTION_SECONDS) * 1000, "limit": SWEEP_WINDOWS}
        append_selected(tx, CLOCK, "schedule.forgotten", statements.FORGETTING, many=True, **old)
        forgotten = tx.run(statements.FORGET, **old)
        await db.commit(tx)
        return forgotten.changes

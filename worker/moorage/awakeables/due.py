"""What the Clock does for awakeables: it times them out, and removes those that are long over (clauses awake.deadline,
timers.alarm)."""

from typing import Final

from moorage.awakeables import statements
from moorage.blobs import references
from moorage.history.append import CLOCK, append_selected, append_told
from moorage.journal.wake import wake
from moorage.kernel.instants import Instant
from moorage.kernel.limits import AWAKE_RETENTION_SECONDS
from moorage.store.ports import Database
from moorage.store.transaction import Transaction

SWEEP_AWAKEABLES: Final = 100
"""Awakeables that one transaction removes."""


class AwakeableDeadlines:
    """The Clock's class of work that times awakeables out; an item is an awakeable's id."""

    name = "awakeable_timed_out"
    shard: Final = "runs"
    parallel = True
    earliest = statements.EARLIEST_DEADLINE
    page = statements.PASSED_DEADLINES

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Time one out, with its history entry, and wake the execution that awaits it; 0 when it has ended meanwhile or its
        deadline lies ahead. One whose end a journal has recorded ends like that (clause awake.reconcile)."""
        tx = Transaction(now)
        changed = tx.run(statements.TIME_OUT_DUE, id=item)
        append_told(tx, statements.CHANGED_DUE, id=item)
        wake(tx, statements.WAITING_DUE, id=item)
        await db.commit(tx)
        return changed.changes


class AwakeableRetention:
    """Awakeables that no run minted and that ended AWAKE_RETENTION_SECONDS ago are removed, with their payloads; from then
    on their tokens are unknown. Those of runs go with the last run of their execution.

    It falls due at the full ten minutes.
    """

    name = "awakeable_retention"
    shard: Final = "upkeep"
    coalesces = True
    earliest = statements.EARLIEST_ENDED
    page = statements.ENDED

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Remove at most SWEEP_AWAKEABLES, in one round trip; what is left is listed again at once."""
        old = {"before": now - int(AWAKE_RETENTION_SECONDS) * 1000, "limit": SWEEP_AWAKEABLES}
        tx = Transaction(now)
        append_selected(tx, CLOCK, "awakeable.removed", statements.REMOVING_OLD, many=True, **old)
        references.release_selected(tx, statements.OLD, **old)
        removed = tx.run(statements.REMOVE_OLD, **old)
        await db.commit(tx)
        return removed.changes

"""Deadlines of awakeables as due work of the Clock (clauses awake.deadline, timers.alarm)."""

from moorage.awakeables import statements
from moorage.history.append import CLOCK, append_selected
from moorage.kernel.instants import Instant
from moorage.store.ports import Database
from moorage.store.transaction import Transaction


class AwakeableDeadlines:
    """The Clock's class of work that times awakeables out; an item is an awakeable's id."""

    name = "awakeable_timed_out"
    earliest = statements.EARLIEST_DEADLINE
    page = statements.PASSED_DEADLINES

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Time one out, with its history entry; 0 when it has ended meanwhile or its deadline lies ahead."""
        tx = Transaction(now)
        changed = tx.run(statements.TIME_OUT_DUE, id=item)
        append_selected(tx, CLOCK, "awakeable.timed_out", statements.CHANGED_DUE, id=item)
        await db.commit(tx)
        return changed.changes

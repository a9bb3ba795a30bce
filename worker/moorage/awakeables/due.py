"""Deadlines of awakeables as due work of the Clock (clauses awake.deadline, timers.alarm)."""

from moorage.awakeables import statements
from moorage.history.append import append_told
from moorage.journal.wake import wake
from moorage.kernel.instants import Instant
from moorage.store.ports import Database
from moorage.store.transaction import Transaction


class AwakeableDeadlines:
    """The Clock's class of work that times awakeables out; an item is an awakeable's id."""

    name = "awakeable_timed_out"
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

"""What the Clock does for runs: executions that nobody looked after, and records whose time is over.

In the usual case the poke that goes out with a commit has long been followed when the Clock comes by, and nothing is due.
"""

from typing import Final

from moorage.awakeables import executions as awakeables
from moorage.blobs import references
from moorage.guards.statements import FORGET_REPLAYS
from moorage.history.append import CLOCK, append_selected
from moorage.journal.wake import wake
from moorage.kernel import canonical
from moorage.kernel.errors import FailureTag
from moorage.kernel.instants import Instant
from moorage.kernel.limits import RUN_RETENTION_SECONDS
from moorage.messages.inbox import waits
from moorage.messages.outbox.outbox_statements import FORGET_COMPLETIONS
from moorage.runs import due_statements as statements
from moorage.runs import retiring
from moorage.runs.errors_text import error_json
from moorage.runs.model import Failure
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Scalar, Transaction

FIRST_LOOK_MS: Final = 5_000
LONGEST_LOOK_MS: Final = 300_000
"""A Runner that does not come is poked again after this, twice as long each time, up to that."""

SWEEP_RUNS: Final = 50
"""Runs that one transaction removes."""

_LAPSED = error_json(Failure(FailureTag.TRANSIENT.value, "the host let its lease run out"))


class RunsDue:
    """An execution whose time has come, or whose owner is gone (clauses runs.wake, runs.orphan-reap, runs.claim-takeover).

    One of the Worker is poked again, until its Runner takes it. One of another host is offered when nobody holds it; when
    a host held it and let its lease run out, its run ends as a partial failure and the execution waits to be opened again.
    A driven clock that passes many of its looks fires it once: nobody could follow a poke before the clock has arrived.
    An item is an execution's id and the instant at which it is due.
    """

    name = "run_due"
    shard: Final = "runs"
    parallel = True
    coalesces = True
    earliest = statements.EARLIEST_WAKE
    page = statements.WAKES

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """See after one execution, in one round trip; 0 when it was seen after meanwhile."""
        execution, _, due = item.rpartition("@")
        one: dict[str, Scalar] = {"execution": execution, "due": due}
        tx = Transaction(now)
        append_selected(tx, CLOCK, "run.reaped", statements.REAPING, execution=execution, due=due)
        wake(tx, statements.REAPED_PARENT, **one)
        reaped = tx.run(statements.REAP, **one, error=_LAPSED)
        waits.cancel_all(tx, statements.REAPED, **one)
        tx.run(statements.LET_GO, **one)
        rested = tx.run(statements.REST, **one)
        poked = tx.run(statements.LOOK_AGAIN, **one, first=FIRST_LOOK_MS, longest=LONGEST_LOOK_MS)
        tx.poke(poked)
        await db.commit(tx)
        return len(reaped.rows) or len(poked.rows) or len(rested.rows)


class RunRetention:
    """Runs that ended RUN_RETENTION_SECONDS ago are removed, with their results; and with an execution's last run whatever
    it could have been resumed from. What is in flight is never among them, however old it is.

    It falls due at the full ten minutes. What it counts are runs.
    """

    name = "run_retention"
    shard: Final = "upkeep"
    coalesces = True
    earliest = statements.EARLIEST_ENDED
    page = statements.ENDED

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Remove at most SWEEP_RUNS runs; what is left is listed again at once."""
        before = now - int(RUN_RETENTION_SECONDS) * 1000
        reading = Reading()
        found = reading.ask(statements.OLD_RUNS, before=before, limit=SWEEP_RUNS)
        await db.read(reading)
        runs = canonical.compact([row["run_id"] for row in found.rows])
        executions = sorted({row["execution_id"] for row in found.rows})
        listed = canonical.compact(executions)
        tx = Transaction(now)
        tx.run(statements.ORPHAN_WAITS, runs=runs)
        append_selected(tx, CLOCK, "execution.retired", statements.RETIRING, many=True, runs=runs)
        tx.run(statements.RETIRE_OLD, runs=runs)
        retiring.collect(tx, executions)
        references.release_selected(tx, statements.LISTED_RUNS, runs=runs, before=before)
        tx.run(FORGET_COMPLETIONS, runs=runs)
        removed = tx.run(statements.REMOVE, runs=runs, before=before)
        awakeables.forget(tx, statements.FORGOTTEN, executions=listed)
        tx.run(FORGET_REPLAYS.replace("{executions}", statements.FORGOTTEN), executions=listed)
        await db.commit(tx)
        return removed.changes

"""Stopping runs (clauses runs.stop-channel, runs.two-grains, runs.not-in-flight, runs.stop-authority, runs.cancel-race).

A stop is noted on the rows of runs. Who executes one finds it there, closes it between two steps and leaves what was
recorded. A run that nobody executes ends in the very transaction that noted the stop, so that whatever else ends it, and
this, are ordered by the database: exactly one of them does.
"""

from typing import Final

from moorage.catalog.access import Caller
from moorage.history.append import append_selected
from moorage.journal.wake import wake
from moorage.kernel import canonical
from moorage.kernel.errors import CancelTargetNotInFlight, CancelUnauthorized, RunUnknown
from moorage.kernel.instants import Instant
from moorage.kernel.refusals import check_reason
from moorage.messages.inbox import waits
from moorage.runs import authority, retiring
from moorage.runs import control_statements as statements
from moorage.runs.model import Grain
from moorage.store.ports import Database
from moorage.store.transaction import Answer, Reading, Row, Transaction

STOP_BATCH: Final = 200
"""Runs that one transaction stops."""


async def stop(
    db: Database, caller: Caller, now: Instant, run_id: str, scope: Grain = "run", reason: str | None = None
) -> list[str]:
    """Ask that a run stop, or with the grain `pipeline` every run in flight under its scope and the scopes below it that
    the caller may execute; answers the runs. A newer request overwrites an older one.

    It takes a grant to execute the body that the run's own row names. Raises CancelUnauthorized otherwise, which names
    nothing; RunUnknown to those who may execute everything; CancelTargetNotInFlight; RequestInvalid for a reason that is
    empty or too long.
    """
    if reason is not None:
        check_reason(reason)
    target = await _authorized(db, caller, run_id)
    if scope == "run":
        stopped = await _stop(db, caller, now, {target["execution_id"]: run_id}, scope, reason)
    else:
        stopped = await _stop_all(db, caller, now, run_id, reason)
    if not stopped:
        raise CancelTargetNotInFlight()
    return stopped


async def _authorized(db: Database, caller: Caller, run_id: str) -> Row:
    reading = Reading()
    found = reading.ask(statements.TARGET, run_id=run_id)
    await db.read(reading)
    row = found.first()
    if row is None:
        raise RunUnknown() if caller.may("execute") else CancelUnauthorized()
    if not authority.holds(caller, "execute", row["body"]):
        raise CancelUnauthorized()
    return row


async def _stop_all(db: Database, caller: Caller, now: Instant, run_id: str, reason: str | None) -> list[str]:
    stopped: list[str] = []
    after = ""
    while True:
        reading = Reading()
        page = reading.ask(statements.IN_FLIGHT, run_id=run_id, after=after, limit=STOP_BATCH)
        await db.read(reading)
        mine = [row for row in page.rows if authority.holds(caller, "execute", row["body"])]
        targets = {row["execution_id"]: row["run_id"] for row in mine}
        if targets:
            stopped += await _stop(db, caller, now, targets, "pipeline", reason)
        if len(page.rows) < STOP_BATCH:
            return stopped
        after = max(row["scope"] for row in page.rows)


async def _stop(
    db: Database, caller: Caller, now: Instant, targets: dict[str, str], scope: Grain, reason: str | None
) -> list[str]:
    """Stop the runs of some executions, as far as they are in flight still; answers which."""
    tx = Transaction(now)
    caller.guard(tx)
    marked = plan(tx, caller.subject, targets, scope, reason)
    await db.commit(tx)
    return sorted(row["run_id"] for row in marked.rows)


def plan(tx: Transaction, actor: str, targets: dict[str, str], scope: Grain, reason: str | None) -> Answer:
    """Plan the stop of these executions' runs; the answer holds the runs that were in flight."""
    aimed = canonical.compact(targets)
    told = canonical.dumps({"reason": reason, "scope": scope})
    append_selected(tx, actor, "run.stop_requested", statements.MARKED, many=True, targets=aimed, data=told)
    append_selected(tx, actor, "run.closed", statements.STOPPED, many=True, targets=aimed)
    wake(tx, statements.PARENTS, targets=aimed)
    tx.poke(tx.run(statements.HELD, targets=aimed))
    marked = tx.run(statements.MARK, targets=aimed, stop_scope=scope, reason=reason, actor=actor)
    tx.run(statements.CANCEL, targets=aimed)
    tx.run(statements.RETIRE_EMPTY, targets=aimed)
    retiring.collect(tx, list(targets))
    waits.cancel_all(tx, statements.CANCELED, targets=aimed)
    tx.run(statements.KEEP, targets=aimed)
    return marked

"""Letting go of an execution: suspending it, and ending its run (clauses runs.retirement, runs.collection, runs.wake)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from moorage.awakeables import executions as awakeables
from moorage.blobs import references
from moorage.history.append import append_selected
from moorage.journal.model import Fence
from moorage.journal.wake import REPAIR_MS, wake
from moorage.kernel import canonical
from moorage.kernel.errors import ExecutionWoken
from moorage.messages.inbox import waits
from moorage.runs import statements
from moorage.runs.errors_text import error_json
from moorage.runs.operations import Close, Suspend
from moorage.store.transaction import Answer, Scalar, Transaction

RUNNER: Final = "moorage:runner"
"""The actor of what a run's host has done on its behalf; no subject can be called so."""

AWAITING: Final = 100
"""How many of the things that a run awaits are told in its row."""

AWAITING_BYTES: Final = 64 * 1024
"""How much of them."""


def suspend(tx: Transaction, fence: Fence, operation: Suspend) -> Answer:
    """Let go of an execution in a transaction that holds its fence; the answer holds `wake_at`.

    The commit raises ExecutionWoken when something that it awaits has ended.
    """
    told = list(_fitting(operation.awaiting[:AWAITING]))
    where: dict[str, Scalar] = {"execution": fence.execution_id, "epoch": fence.epoch}
    tx.require(statements.NOTHING_ENDED, ExecutionWoken(), execution=fence.execution_id)
    tx.run(
        statements.SUSPEND_RUN,
        execution=fence.execution_id,
        status=operation.status,
        until=operation.next_attempt_at,
        awaiting=canonical.compact(told),
    )
    return tx.run(statements.SUSPEND, **where, until=operation.next_attempt_at, repair=REPAIR_MS)


def closes_under(operation: Close) -> str:
    """What an owner that closes its run has to hold. A success is retired, and a failure has to be known to be one; what was
    canceled ends whatever may be in flight, and its execution stays (clauses guards.blocked, runs.cancel-keeps-effects)."""
    match operation.status:
        case "success":
            return statements.HELD_AND_UNPROTECTED
        case "failed":
            return statements.HELD_AND_RETURNED
        case "canceled":
            return statements.HELD_AND_OPEN


def _fitting(awaiting: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """As many of them as have room in a row that listings show: they are for people."""
    room = int(AWAITING_BYTES)
    for one in awaiting:
        room -= canonical.size(canonical.compact(dict(one)))
        if room < 0:
            return
        yield dict(one)


def close(tx: Transaction, fence: Fence, operation: Close, requested_plan: str | None = None) -> None:
    """End the run in a transaction in which it is open, and retire its execution unless something is left to replay.

    The operation's result is placed already. Whoever waits for the run is woken. What is retired takes its journal and its
    references to objects with it, in this transaction; the run's own result stays.
    """
    result = operation.result
    execution = fence.execution_id
    tx.run(
        statements.CLOSE_RUN,
        execution=execution,
        epoch=fence.epoch,
        status=operation.status,
        result=None if result is None or result.blob else result.text,
        result_blob=None if result is None else result.blob,
        result_size=None if result is None else result.size,
        error=None if operation.error is None else error_json(operation.error),
    )
    append_selected(tx, RUNNER, "run.closed", statements.CLOSED, execution=execution)
    wake(tx, statements.PARENT_OF, child=execution)
    tx.run(statements.RETIRE, execution=execution, always=operation.status == "success")
    awakeables.retire(tx, statements.RETIRED, execution=execution)
    if operation.status != "success":
        waits.cancel_all(tx, "SELECT :execution", execution=execution)
    waits.forget(tx, statements.RETIRED, execution=execution)
    tx.run(statements.COLLECT, execution=execution)
    references.release_selected(tx, statements.RETIRED, execution=execution)
    if operation.status != "success":
        tx.run(statements.LET_GO, execution=execution, requested_plan=requested_plan)

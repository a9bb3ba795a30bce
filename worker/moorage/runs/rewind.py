"""Retiring a pending execution by hand, so that its scope can be opened under another plan (clauses runs.rewind,
runs.rewind-record, runs.rewind-not-pending, runs.rewind-plan-current, runs.rewind-unsafe)."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from moorage.awakeables import executions as awakeables
from moorage.catalog.access import Caller
from moorage.guards import blocked
from moorage.guards import statements as guards
from moorage.guards.model import Guard
from moorage.history.append import Event, append, append_selected
from moorage.journal.wake import wake
from moorage.kernel import canonical, ids
from moorage.kernel.errors import (
    ExecutionRewindNotPending,
    ExecutionRewindPlanCurrent,
    ExecutionRewindUnsafe,
    FailureTag,
)
from moorage.kernel.instants import Instant, render
from moorage.kernel.refusals import check_reason
from moorage.runs import authority, retiring
from moorage.runs import control_statements as statements
from moorage.runs.errors_text import error_json
from moorage.runs.model import Failure
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Transaction


@dataclass(frozen=True, slots=True)
class Rewound:
    """A retired execution, and the run that records that: canceled, and as old as the execution was."""

    execution_id: str
    run_id: str
    scope: str
    plan_reference: str

    def wire(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "execution_id": self.execution_id,
            "run_id": self.run_id,
            "scope": self.scope,
            "plan_reference": self.plan_reference,
        }


async def rewind(
    db: Database,
    caller: Caller,
    now: Instant,
    execution_id: str,
    reason: str,
    force: bool = False,
    *,
    settled: Sequence[str] = (),
) -> Rewound:
    """Retire a pending execution with all that it recorded; the next opening of its scope begins anew. Cursors stay.

    It takes grants to execute and to operate on the body. Raises ExecutionRewindNotPending, also for what the caller may
    not see; Forbidden; ExecutionRewindUnsafe while an attempt is live or waits for an instant, or an awakeable is pending
    before its deadline; ExecutionGuardBlocked while a guard protects its scope; EffectUnsettled while an effect is to be
    sent again whose key is not among the `settled`; ExecutionRewindPlanCurrent unless an opening asked for another plan,
    which `force` overrides; RequestInvalid for a reason that is empty or too long.
    """
    check_reason(reason)
    pending = await pending_execution(db, caller, now, execution_id, settled)
    row = pending.row
    tx = Transaction(now)
    caller.guard(tx)
    require_safe(tx, pending)
    if not force:
        current = ExecutionRewindPlanCurrent(
            f"nothing asked scope {row['scope']!r} for another plan than {row['plan_reference']}: open it again to resume",
            execution_id=execution_id,
        )
        tx.require(statements.IS_ASKED_FOR_OTHERWISE, current, execution=execution_id)
    rewound = Rewound(execution_id, ids.new("run", row["opened_at"]), row["scope"], row["plan_reference"])
    leave(tx, caller.subject, execution_id, "its execution was rewound")
    wake(tx, statements.PARENT, execution=execution_id)
    tx.run(
        statements.RECORD_REWIND,
        run_id=rewound.run_id,
        execution=execution_id,
        actor=caller.subject,
        reason=reason,
        span_id=secrets.token_hex(8),
    )
    retiring.retire(tx, [execution_id])
    told: dict[str, Any] = {
        "plan_reference": rewound.plan_reference,
        "reason": reason,
        "run_id": rewound.run_id,
        "scope": rewound.scope,
    }
    if settled:
        told["settled"] = list(settled)
    append(tx, caller.subject, Event(execution_id, "execution.rewound", told))
    await db.commit(tx)
    return rewound


@dataclass(frozen=True, slots=True)
class Pending:
    """A pending execution with its run, the awakeables pending before their deadlines, the guard on its scope, and an effect
    that is to be sent again under a key that is not `settled`."""

    row: Row
    awaited: list[Row]
    guard: Guard | None
    unsettled: Row | None
    settled: str


async def pending_execution(
    db: Database, caller: Caller, now: Instant, execution_id: str, settled: Sequence[str] = ()
) -> Pending:
    """A pending execution, and what stands against retiring it. Raises ExecutionRewindNotPending, Forbidden."""
    reading = Reading()
    found = reading.ask(statements.PENDING, execution=execution_id)
    pending = awakeables.pending_of(reading, execution_id, now)
    guard = reading.ask(guards.OF_EXECUTION, execution=execution_id)
    keys = canonical.compact(list(settled))
    unsettled = reading.ask(guards.UNSETTLED, execution=execution_id, settled=keys)
    await db.read(reading)
    row = found.first()
    if row is None or not authority.sees(caller, row["body"]):
        raise ExecutionRewindNotPending()
    authority.demand(caller, "execute", row["body"])
    authority.demand(caller, "operate", row["body"])
    protecting = guard.first()
    return Pending(row, pending.rows, None if protecting is None else Guard.of(protecting), unsettled.first(), keys)


def require_safe(tx: Transaction, pending: Pending) -> None:
    """Let the transaction commit only while the execution is pending and nothing of it is live, in flight, waiting or
    awaited."""
    row = pending.row
    execution = row["execution_id"]
    tx.require(statements.IS_PENDING, ExecutionRewindNotPending(), execution=execution)
    told = {"execution_id": execution, "run_id": row["run_id"]}
    held = ExecutionRewindUnsafe(f"run {row['run_id']} holds the execution under a live lease: stop it first", **told)
    tx.require(statements.IS_UNHELD, held, execution=execution)
    blocked.require_free(tx, execution, pending.guard)
    blocked.require_settled(tx, execution, pending.unsettled, pending.settled)
    until = "" if row["next_attempt_at"] is None else f" until {render(row['next_attempt_at'])}"
    tx.require(
        statements.IS_NOT_WAITING,
        ExecutionRewindUnsafe(f"run {row['run_id']} is waiting{until}: stop it first", **told),
        execution=execution,
    )
    names = [f"{one['label'] or one['id']} ({one['id']}, until {render(one['deadline'])})" for one in pending.awaited]
    awaited = ExecutionRewindUnsafe(
        f"the execution awaits {', '.join(names) or 'an awakeable'}: resolve or reject it first, or wait for its deadline",
        **told,
        awakeables=[one["id"] for one in pending.awaited],
    )
    awakeables.require_none_pending(tx, execution, awaited)


def leave(tx: Transaction, actor: str, execution_id: str, why: str) -> None:
    """End the run that the execution is at as a partial failure, unless it has ended."""
    append_selected(tx, actor, "run.closed", statements.LEFT, execution=execution_id)
    error = error_json(Failure(FailureTag.TRANSIENT.value, why))
    tx.run(statements.LEAVE, execution=execution_id, error=error)

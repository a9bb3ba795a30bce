"""What a guard keeps from changing hands, and how that is told (clause guards.blocked)."""

from typing import Any

from moorage.guards import statements
from moorage.guards.model import COMMAND, Guard
from moorage.kernel.errors import EffectUnsettled, ExecutionGuardBlocked
from moorage.kernel.instants import Instant
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Transaction


def error(guard: Guard, now: Instant, *, discreet: bool = False) -> ExecutionGuardBlocked:
    """The error that names the guard, its evidence class, and what releases it unless a replay does; with `discreet` for
    somebody who may not see whose effect it is.
    """
    told: Any = guard.evidence_class(now)
    members: dict[str, Any] = {"token": guard.token, "evidence_class": told}
    effect = "an effect"
    if not discreet:
        members["execution_id"] = guard.execution_id
        effect += f" of step {guard.key.label!r}"
    detail = f"guard {guard.token} protects it: {effect} may be in flight ({told})"
    if told != "replay-safe":
        members["command"] = COMMAND.format(token=guard.token)
        detail += f"; release it with `{members['command']}`"
    return ExecutionGuardBlocked(detail, **members)


async def of_execution(db: Database, execution_id: str) -> Guard | None:
    """The guard that protects an execution's scope, if one does."""
    reading = Reading()
    found = reading.ask(statements.OF_EXECUTION, execution=execution_id)
    await db.read(reading)
    row = found.first()
    return None if row is None else Guard.of(row)


def require_free(tx: Transaction, execution_id: str, guard: Guard | None) -> None:
    """Let the transaction commit only while no guard protects the execution's scope; `guard` is what was read of it."""
    refusal = ExecutionGuardBlocked() if guard is None else error(guard, tx.now)
    tx.require(statements.IS_FREE, refusal, execution=execution_id)


def require_settled(tx: Transaction, execution_id: str, unsettled: Row | None, settled: str) -> None:
    """Let the transaction commit only while no effect of the execution is to be sent again under a key that is not
    `settled`, a JSON list; `unsettled` is what was read of one. Its guard gave way for that, and its key goes with the
    execution.
    """
    refusal = EffectUnsettled()
    if unsettled is not None:
        label, key = unsettled["label"], unsettled["idempotency_key"]
        detail = (
            f"the effect of step {label!r} may have arrived under the key {key}, and was not sent again since its guard "
            "gave way: open the scope again and let it run, for another execution would send it under another key. If you "
            "know what became of it, a rewind that names the key as settled gives it up"
        )
        refusal = EffectUnsettled(detail, label=label, idempotency_key=key)
    tx.require(statements.IS_SETTLED, refusal, execution=execution_id, settled=settled)

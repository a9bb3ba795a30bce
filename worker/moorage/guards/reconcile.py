"""Releasing a guard by hand, on evidence (clauses guards.manual, guards.evidence, guards.live-holder, guards.audit).

An operator looks at the destination for the guard's key, and says what was found: that the destination still drops the key,
so that it is sent again, or the receipt of the effect, which is recorded as the step's value so that it is not.
"""

from dataclasses import dataclass
from typing import Any, Final

from moorage.catalog.access import Caller
from moorage.guards import statements
from moorage.guards.model import Guard
from moorage.guards.release import erase
from moorage.history.append import append_selected
from moorage.journal.wake import wake
from moorage.kernel import canonical, ids
from moorage.kernel.errors import (
    ExecutionGuardEvidenceMismatch,
    ExecutionGuardHeld,
    GuardReleased,
    GuardUnknown,
    MoorageError,
)
from moorage.kernel.instants import Instant, render
from moorage.kernel.limits import ID_CHARACTERS, TEXT_CHARACTERS
from moorage.kernel.refusals import refused
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Transaction

_KEY: Final = "idempotency:"
_RECEIPT: Final = "receipt:"


class _Gone(Exception):
    """The guard is no more. It never leaves this module."""


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The record of a release."""

    audit: str
    receipt: str | None


async def reconcile(db: Database, caller: Caller, now: Instant, token: str, evidence: str, operator: str) -> Reconciled:
    """Release a guard, record who vouched for it, and wake what it kept waiting: one batch.

    `evidence` is `idempotency:<key>` while the window covers the guard's key, or `receipt:<key>:<id>`. Raises Forbidden,
    GuardUnknown, GuardReleased for one that was reconciled before, ExecutionGuardHeld, ExecutionGuardEvidenceMismatch,
    RequestInvalid for an operator without a name.
    """
    caller.demand("operate")
    if not 1 <= len(operator) <= ID_CHARACTERS or not operator.isprintable():
        raise refused("/operator", f"has 1 to {ID_CHARACTERS} printable characters")
    guard = await _open(db, token)
    receipt = receipt_of(guard, evidence, now)
    tx = Transaction(now)
    caller.guard(tx)
    tx.require(statements.IS_OPEN, _Gone(), token=token)
    tx.require(statements.IS_NOT_LIVE, _held(guard), token=token)
    wake(tx, statements.PROTECTED, token=token)
    audit = ids.new("aud", now)
    _conclude(tx, guard, receipt)
    vouched: dict[str, Any] = {"evidence": evidence, "operator": operator}
    append_selected(tx, caller.subject, "guard.reconciled", statements.RECONCILED, token=token, **vouched)
    erase(tx, "SELECT :token", token=token)
    told = canonical.dumps(guard.wire(now))
    tx.run(statements.AUDIT, id=audit, token=token, guard=told, actor=caller.subject, **vouched)
    try:
        await db.commit(tx)
    except _Gone:
        raise await _released(db, token) from None
    return Reconciled(audit, receipt)


def receipt_of(guard: Guard, evidence: str, now: Instant) -> str | None:
    """The receipt's id that the evidence names; None when it is the key that the destination still drops.

    Raises ExecutionGuardEvidenceMismatch for anything else.
    """
    key = guard.idempotency_key
    receipt = evidence.removeprefix(f"{_RECEIPT}{key}:")
    if receipt != evidence:
        if not 1 <= len(receipt) <= TEXT_CHARACTERS or not receipt.isprintable() or receipt.isspace():
            raise _mismatch(f"a receipt's id has 1 to {TEXT_CHARACTERS} printable characters")
        return receipt
    if evidence != f"{_KEY}{key}":
        raise _mismatch(f"the evidence is {_KEY}<key> or {_RECEIPT}<key>:<id>, with the guard's own key")
    if not guard.covers(now):
        ends = guard.window_ends_at
        why = "the destination declares no window" if ends is None else f"the window ended at {render(ends)}"
        raise _mismatch(f"{why}: the key alone says nothing, a receipt does")
    return None


def _conclude(tx: Transaction, guard: Guard, receipt: str | None) -> None:
    """What the step is from now on: recorded as having happened, or to be sent again under its key."""
    if receipt is None:
        tx.run(statements.NOTE_REPLAY.replace("{tokens}", "SELECT :token"), token=guard.token)
        return
    value = canonical.dumps({"receipt": receipt, "reconciled": True})
    tx.run(
        statements.RECORD_RECEIPT,
        execution=guard.execution_id,
        label=guard.key.label,
        input_sha256=guard.key.input_sha256,
        value=value,
        size=canonical.size(value),
    )


async def _open(db: Database, token: str) -> Guard:
    reading = Reading()
    found = reading.ask(statements.SHOW, token=token)
    await db.read(reading)
    row = found.first()
    if row is None:
        raise await _released(db, token)
    return Guard.of(row)


async def _released(db: Database, token: str) -> MoorageError:
    """Why there is no such guard."""
    reading = Reading()
    found = reading.ask(statements.AUDITED, token=token)
    await db.read(reading)
    row = found.first()
    return GuardUnknown() if row is None else GuardReleased(f"{token} was reconciled already", audit=row["id"])


def _held(guard: Guard) -> ExecutionGuardHeld:
    detail = f"execution {guard.execution_id} is held under a live lease, and holder {guard.holder} has not exited"
    return ExecutionGuardHeld(detail, token=guard.token, execution_id=guard.execution_id, holder=guard.holder)


def _mismatch(detail: str) -> ExecutionGuardEvidenceMismatch:
    return ExecutionGuardEvidenceMismatch(detail)

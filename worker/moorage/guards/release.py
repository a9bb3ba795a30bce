"""Removing guards: by their holder, and by a takeover that sends the same key again (clauses guards.release, guards.replay).

Nothing else does, but an operator (`guards.reconcile`). What was waiting for a guard is woken in the same transaction.
"""

from moorage.guards import statements
from moorage.history.append import append_selected
from moorage.journal.model import Fence
from moorage.journal.wake import wake
from moorage.kernel.errors import GuardUnknown
from moorage.store.transaction import Scalar, Transaction


def release(tx: Transaction, actor: str, fence: Fence, token: str, holder: str) -> None:
    """Remove the guard of a callback that has returned. It changes nothing where there is none any more.

    Another holder's, or one of another epoch, it does not touch: `require_released` refuses then.
    """
    where: dict[str, Scalar] = {"token": token, "holder": holder, "execution": fence.execution_id, "epoch": fence.epoch}
    wake(tx, statements.WAITING, token=token, execution=fence.execution_id)
    remove(tx, actor, "guard.released", statements.MINE, **where)


def require_released(tx: Transaction, token: str) -> None:
    """Let the transaction commit only if the guard is gone. It raises GuardUnknown otherwise."""
    tx.require(statements.IS_RELEASED, GuardUnknown(), token=token)


def replay(tx: Transaction, actor: str, selection: str, **parameters: Scalar) -> None:
    """Remove what a takeover in this transaction has made way for; what may have arrived since when is kept in mind."""
    tx.run(statements.NOTE_REPLAY.replace("{tokens}", selection), **parameters)
    remove(tx, actor, "guard.replayed", selection, **parameters)


def remove(tx: Transaction, actor: str, type_: str, selection: str, **parameters: Scalar) -> None:
    """Remove the guard whose token `selection` gives, if it gives one, with the rows that it protects, and tell history."""
    told = statements.REMOVED.replace("{tokens}", selection)
    append_selected(tx, actor, type_, told, many=False, **parameters)
    erase(tx, selection, **parameters)


def erase(tx: Transaction, selection: str, **parameters: Scalar) -> None:
    """The same for whoever has told history."""
    tx.run(statements.FREE_ROWS.replace("{tokens}", selection), **parameters)
    tx.run(statements.REMOVE.replace("{tokens}", selection), **parameters)

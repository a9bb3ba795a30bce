"""Retiring executions: the row, its journal and whatever it held go in one transaction (clauses runs.retirement,
runs.collection). What happened stays in the rows of its runs and in history."""

from collections.abc import Sequence

from moorage.awakeables import executions as awakeables
from moorage.blobs import references
from moorage.kernel import canonical
from moorage.messages.inbox import waits
from moorage.runs import control_statements as statements
from moorage.store.transaction import Transaction


def retire(tx: Transaction, executions: Sequence[str]) -> None:
    """Retire these executions, whatever they recorded."""
    tx.run(statements.RETIRE, executions=canonical.compact(list(executions)))
    collect(tx, executions)


def collect(tx: Transaction, executions: Sequence[str]) -> None:
    """Remove what belonged to those of these executions whose rows the transaction has removed.

    Awakeables that are pending end as rejected, journals are deleted and objects released.
    """
    ids = canonical.compact(list(executions))
    awakeables.retire(tx, statements.GONE, executions=ids)
    waits.forget(tx, statements.GONE, executions=ids)
    tx.run(statements.COLLECT, executions=ids)
    references.release_selected(tx, statements.GONE, executions=ids)

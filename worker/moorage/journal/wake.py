"""Waking an execution when what it waits for has ended (clauses runs.wake, awake.early).

Whatever ends something that a run may wait for plans `wake` into its own transaction. The execution then falls due for the
Clock a few seconds later, which repairs a lost poke; the poke itself goes out right after the commit (`Transaction.poke`).
"""

from typing import Final

from moorage.store.transaction import Answer, Scalar, Transaction

REPAIR_MS: Final = 5000
"""How long a poke may take before the Clock makes sure."""

# Makes the executions that `selection` names due. A live owner is poked all the same: it may be waiting in memory.
_WAKE = """
UPDATE executions SET
    wake_at = CASE WHEN owner IS NOT NULL AND expires_at > :now THEN wake_at
        ELSE CAST(:now AS INTEGER) + CAST(:repair AS INTEGER) END,
    claimable = CASE WHEN host = 'remote' AND (owner IS NULL OR expires_at <= :now) THEN 1 ELSE claimable END
WHERE execution_id IN ({executions})
RETURNING execution_id, host, runner, body
"""


def wake(tx: Transaction, selection: str, **parameters: Scalar) -> Answer:
    """Make the executions that `selection`, a SELECT of execution ids, gives due now, and poke them after the commit."""
    answer = tx.run(_WAKE.replace("{executions}", selection), repair=REPAIR_MS, **parameters)
    tx.poke(answer)
    return answer

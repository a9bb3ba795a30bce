"""Waking an execution when what it waits for has ended (clauses runs.wake, awake.early).

Whatever ends something that a run may wait for plans `wake` into its own transaction. The execution then falls due for the
Clock a few seconds later, which repairs a lost poke; the poke itself goes out right after the commit (`Transaction.poke`).
"""

from typing import Final

from moorage.store.transaction import Answer, Scalar, Transaction

REPAIR_MS: Final = 5000
"""How long a poke may take before the Clock makes sure."""

# Makes the executions that `selection` names due. A live owner is poked all the same: it may be waiting in memory. A host
# outside the Worker that let its lease run out is the Clock's to see after, no later than before. One whose run has ended
# waits for the next opening of its scope, and for nothing else.
_WAKE = """
UPDATE executions SET
    wake_at = CASE WHEN owner IS NOT NULL AND (host = 'remote' OR expires_at > :now) THEN wake_at
        ELSE min(coalesce(wake_at, CAST(:now AS INTEGER) + CAST(:repair AS INTEGER)),
            CAST(:now AS INTEGER) + CAST(:repair AS INTEGER)) END,
    claimable = CASE WHEN host = 'remote' AND owner IS NULL THEN 1 ELSE claimable END
WHERE execution_id IN ({executions})
    AND NOT EXISTS (SELECT 1 FROM runs AS r WHERE r.run_id = executions.run_id AND r.ended_at IS NOT NULL)
RETURNING execution_id, host, runner, body
"""


def wake(tx: Transaction, selection: str, **parameters: Scalar) -> Answer:
    """Make the executions that `selection`, a SELECT of execution ids, gives due now, and poke them after the commit."""
    answer = tx.run(_WAKE.replace("{executions}", selection), repair=REPAIR_MS, **parameters)
    tx.poke(answer)
    return answer

"""The awakeables of an execution, as those see them who open, rewind, retire and forget executions.

Every function plans into the caller's transaction. `selection` is a SELECT of execution ids at that place in it.

An awakeable of a run ends at the latest when its execution is retired. What is pending then ends as rejected, by
`moorage:runs` and with the tag Canceled: who resolves it later is told AwakeableRejected, so that nobody gets a success for
what no run will read. What has ended keeps answering as before, until the record of the run is removed (`forget`).
"""

from collections.abc import Sequence
from typing import Final

from moorage.awakeables import statements
from moorage.awakeables.model import Rejection
from moorage.awakeables.statements import RUNS
from moorage.blobs import references
from moorage.history.append import append_told
from moorage.kernel import canonical
from moorage.kernel.errors import AwakeableUnknown, FailureTag
from moorage.kernel.instants import Instant
from moorage.store.transaction import Answer, Reading, Scalar, Transaction

RUN_IS_OVER: Final = Rejection(FailureTag.CANCELED, "the run that minted it is over")
"""Why what is pending when an execution is retired ends."""

NAMED: Final = 10
"""How many pending awakeables a refusal names."""


def reconcile(tx: Transaction, selection: str, **parameters: Scalar) -> None:
    """Complete the registry from the journal, where the journal has recorded an end of which the registry does not know: a
    registry restored from an older copy, say (clause awake.reconcile)."""
    told = statements.RECONCILING.replace("{executions}", selection)
    append_told(tx, told, many=True, tag=None, **parameters)
    tx.run(statements.RECONCILE.replace("{executions}", selection), **parameters)


def retire(tx: Transaction, selection: str, **parameters: Scalar) -> None:
    """End what is pending of executions that are being retired, as the journal has recorded it where it has. It must stand
    before the journal is deleted."""
    told = statements.RETIRING.replace("{executions}", selection)
    append_told(tx, told, many=True, tag=RUN_IS_OVER.tag.value, **parameters)
    tx.run(
        statements.RETIRE.replace("{executions}", selection),
        state="rejected",
        payload=None,
        payload_sha256=None,
        payload_blob=None,
        payload_size=None,
        failure=canonical.dumps(RUN_IS_OVER.wire()),
        caller=RUNS,
        **parameters,
    )


def require_own(tx: Transaction, execution_id: str, awakeables: Sequence[str]) -> None:
    """Let the transaction commit only if the execution minted all of these; it aborts with AwakeableUnknown. What another
    one minted is not to be awaited: its payload would be read by whoever was told its id."""
    ids = canonical.compact(list(awakeables))
    tx.require(statements.ARE_OWN, AwakeableUnknown(), execution_id=execution_id, ids=ids)


def forget(tx: Transaction, selection: str, **parameters: Scalar) -> None:
    """Remove the awakeables of executions of which no run is on record any more, and release their payloads."""
    references.release_selected(tx, statements.HOLDERS.replace("{executions}", selection), **parameters)
    tx.run(statements.FORGET.replace("{executions}", selection), **parameters)


def pending_of(reading: Reading, execution_id: str, now: Instant) -> Answer:
    """The awakeables (`id`, `label`, `deadline`) that are pending before their deadline, the next ones first and at most
    NAMED: while there is one, its execution is not to be rewound (clause runs.rewind-unsafe)."""
    return reading.ask(statements.PENDING_OF, execution_id=execution_id, limit=NAMED, now=now)


def require_none_pending(tx: Transaction, execution_id: str, or_raise: Exception) -> None:
    """Let the transaction commit only while the execution has no awakeable that is pending before its deadline."""
    tx.require(statements.NONE_PENDING, or_raise, execution_id=execution_id)

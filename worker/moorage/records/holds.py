"""Holding a record back from retention while an Idempotency-Key may still ask for it (clause records.retention)."""

from collections.abc import Mapping

from moorage.idempotency.keys import Key, bound_until
from moorage.kernel import canonical
from moorage.records import retention_statements as statements
from moorage.store.transaction import Scalar, Transaction


def hold(tx: Transaction, key: Key | None, record: str) -> None:
    """Keep a record at least as long as the key may ask for it; without a key there is nothing to keep it for."""
    if key is not None:
        tx.run(statements.HOLD, ids=canonical.compact([record]), until=bound_until(tx, key))


def hold_chosen(tx: Transaction, key: Key, chosen: str, parameters: Mapping[str, Scalar]) -> None:
    """Keep the records that a SELECT of ids chooses as long as the key may ask for them."""
    until = bound_until(tx, key)
    tx.run(statements.HOLD_CHOSEN.replace("{chosen}", chosen), **parameters, until=until)

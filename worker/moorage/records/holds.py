"""Holding a record back from retention while an Idempotency-Key may still ask for it (clause records.retention)."""

from moorage.idempotency.keys import Key, bound_until
from moorage.kernel import canonical
from moorage.records import retention_statements as statements
from moorage.store.transaction import Transaction


def hold(tx: Transaction, key: Key | None, record: str) -> None:
    """Keep a record at least as long as the key may ask for it; without a key there is nothing to keep it for."""
    if key is not None:
        tx.run(statements.HOLD, ids=canonical.compact([record]), until=bound_until(tx, key))

"""The Database port, on every adapter."""

import pytest

from moorage.kernel.errors import LeaseFenced
from moorage.kernel.instants import Instant
from moorage.store.transaction import Transaction
from tests.contract.adapters import Store, dump

NOW = Instant(1_800_000_000_000)
PUT = "INSERT INTO leases (key, epoch) VALUES (:key, :epoch) RETURNING key, epoch"


@pytest.mark.clause("store.atomic")
async def test_a_broken_precondition_leaves_nothing(store: Store) -> None:
    before = await dump(store)
    tx = Transaction(NOW)
    tx.run(PUT, key="a", epoch=1)
    tx.require("SELECT 1 WHERE 0", LeaseFenced())
    with pytest.raises(LeaseFenced):
        await store.db().commit(tx)
    assert await dump(store) == before

"""What the databases say, and what it means: the messages are the platform's and SQLite's own."""

import pytest

from moorage.kernel.errors import (
    InternalError,
    MoorageError,
    StorageBindingUnavailable,
    StorageCapabilityMissing,
    StorageLimitExceeded,
)
from moorage.store.failures import storage_error

MEANINGS: list[tuple[str, type[MoorageError]]] = [
    ("D1_ERROR: no such table: leases: SQLITE_ERROR", StorageCapabilityMissing),
    ("no such column: colour", StorageCapabilityMissing),
    ("table records has no column named colour", StorageCapabilityMissing),
    ("D1_ERROR: too many SQL variables at offset 300: SQLITE_ERROR", StorageLimitExceeded),
    ("D1_ERROR: string or blob too big: SQLITE_TOOBIG", StorageLimitExceeded),
    ("too many terms in compound SELECT", StorageLimitExceeded),
    ("LIKE or GLOB pattern too complex", StorageLimitExceeded),
    ("Expression tree is too large (maximum depth 100)", StorageLimitExceeded),
    ("database or disk is full", StorageLimitExceeded),
    ("D1_ERROR: UNIQUE constraint failed: a.timeout: SQLITE_CONSTRAINT", InternalError),
    ("D1_ERROR: CHECK constraint failed: state IN ('overloaded'): SQLITE_CONSTRAINT", InternalError),
    ("D1_TYPE_ERROR: Type 'bigint' not supported for value '9007199254740992'", InternalError),
    ("cannot store TEXT value in INTEGER column leases.epoch", InternalError),
    ('near "SELEC": syntax error', InternalError),
    ("malformed JSON", InternalError),
    ("D1_ERROR: Network connection lost.", StorageBindingUnavailable),
    ("D1_ERROR: D1 DB is overloaded. Requests queued for too long.", StorageBindingUnavailable),
    ("D1_ERROR: D1 DB storage operation exceeded timeout which caused object to be reset.", StorageBindingUnavailable),
    ("D1_ERROR: Cannot resolve D1 DB due to transient issue on remote node.", StorageBindingUnavailable),
    ("database is locked", StorageBindingUnavailable),
    ("something that nobody has seen yet", StorageBindingUnavailable),
]


@pytest.mark.clause("store.transport", "kernel.failure-tag")
@pytest.mark.parametrize(("message", "meaning"), MEANINGS, ids=lambda one: one if isinstance(one, str) else "")
def test_a_message_has_one_meaning(message: str, meaning: type[MoorageError]) -> None:
    error = storage_error(message)
    assert type(error) is meaning
    assert message in error.detail

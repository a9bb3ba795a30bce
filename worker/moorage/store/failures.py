"""What a database's own messages mean: the one table, for every adapter.

The edge's database tells everything in the text of its error, and the host's has the same words.
"""

import re
from typing import Final

from moorage.kernel.errors import (
    InternalError,
    MoorageError,
    StorageBindingUnavailable,
    StorageCapabilityMissing,
    StorageLimitExceeded,
)

_MEANINGS: Final[tuple[tuple[type[MoorageError], re.Pattern[str]], ...]] = (
    (
        # The deployment lacks what the statement names.
        StorageCapabilityMissing,
        re.compile(r"no such (table|column|index|view|function)|has no column named"),
    ),
    (
        # A bound of the platform.
        StorageLimitExceeded,
        re.compile(
            r"too many SQL variables|variable number must be between|too big|TOOBIG|too many terms in compound SELECT"
            r"|LIKE or GLOB pattern too complex|Expression tree is too large|too many columns|query string is longer"
            r"|statement too long|database or disk is full|exceeded maximum DB size|SQLITE_FULL",
            re.IGNORECASE,
        ),
    ),
    (
        # The statement itself is at fault: it would fail again, and it has changed nothing.
        InternalError,
        re.compile(
            r"constraint failed|D1_TYPE_ERROR|syntax error|malformed JSON|bad JSON path|integer overflow"
            r"|datatype mismatch|cannot store|not authorized|SQLITE_AUTH|Wrong number of parameter bindings"
            r"|incomplete input|No SQL statements detected|SQLITE_ERROR|SQLITE_MISMATCH|SQLITE_CONSTRAINT"
        ),
    ),
    (
        # No answer, or none that says what happened.
        StorageBindingUnavailable,
        re.compile(
            r"network connection lost|overloaded|timed out|timeout|to be reset|transient issue|database is locked"
            r"|SQLITE_BUSY|SQLITE_IOERR|disk I/O error|storage caused object|isolate|internal error",
            re.IGNORECASE,
        ),
    ),
)


def storage_error(message: str) -> MoorageError:
    """The error that stands for a database's message. What is not in the table may have been applied or not, which is
    what StorageBindingUnavailable says."""
    for meaning, pattern in _MEANINGS:
        if pattern.search(message):
            return meaning(f"the database failed: {message}")
    return StorageBindingUnavailable(f"the database failed: {message}")

"""Loading a large backlog straight into the stopped edge's database, far quicker than publishing it would be."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from ops.bench.operations import COMMON, KIND

_CHUNK = 100_000

# What publishing leaves of a record: its history entry ...
_HISTORY = """
WITH RECURSIVE number (n) AS (SELECT ?1 UNION ALL SELECT n + 1 FROM number WHERE n < ?2)
INSERT INTO history (position, subject, revision, type, kind, actor, at, data, content_sha256)
SELECT n, printf('bulk-%012d', n), 1, 'record.published', ?3, 'bench', ?4, '{}', ?5 FROM number
"""

# ... and its row, with the values at the declared paths type and size in the slots that declaring gave them.
_RECORDS = """
WITH RECURSIVE number (n) AS (SELECT ?1 UNION ALL SELECT n + 1 FROM number WHERE n < ?2)
INSERT INTO records (seq, id, kind, body, body_sha256, metadata, priority, state, available, created_at, created_by,
    attempts, epoch, {type_slot}, {size_slot})
SELECT n, printf('bulk-%012d', n), ?3, printf('{{"size":%d,"type":"%s"}}', n % 1000, ?6), ?5, '{{}}', 0, 'ready', 1, ?4,
    'bench', 0, 0, 's' || ?6, n % 1000
FROM number
"""


def load_ready_records(database: Path, count: int) -> float:
    """Add `count` ready records of the bench's kind; the answer is the seconds it took."""
    started = time.monotonic()
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        slots = _slots(connection)
        records = _RECORDS.format(type_slot=slots["type"], size_slot=slots["size"])
        (first,) = connection.execute("SELECT coalesce(max(position), 0) + 1 FROM history").fetchone()
        now = int(time.time() * 1000)
        for start in range(first, first + count, _CHUNK):
            end = min(start + _CHUNK, first + count) - 1
            connection.execute("BEGIN")
            connection.execute(_HISTORY, (start, end, KIND, now, "0" * 64))
            connection.execute(records, (start, end, KIND, now, "0" * 64, COMMON))
            connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return time.monotonic() - started


def _slots(connection: sqlite3.Connection) -> dict[str, str]:
    """The slot column of each declared path."""
    rows = connection.execute(
        "SELECT path.value ->> 'path', path.value ->> 'slot' FROM kinds, json_each(kinds.paths) AS path WHERE name = ?1",
        (KIND,),
    )
    return {path: f"s{int(slot)}" for path, slot in rows}

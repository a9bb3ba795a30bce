"""What a database in a backup says: of itself, of the objects that it needs, and whether it is whole."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from moorage.history.seals import Link, read_ends
from moorage.history.verify import verify
from moorage.kernel.errors import MoorageError
from moorage.store import recovery, schema
from moorage.store.recovery import Identity
from moorage.store.sqlite import SqliteDatabase
from ops.setup import paths

# Whatever a row refers to in the bucket. References say so for all of them; the columns are asked as well, so that a
# reference that was lost is found before its bytes are.
_NEEDED: Final = """
SELECT sha256 FROM blob_references WHERE uploading_until IS NULL
UNION SELECT input_blob FROM executions WHERE input_blob IS NOT NULL
UNION SELECT result_blob FROM runs WHERE result_blob IS NOT NULL
UNION SELECT blob FROM journal WHERE blob IS NOT NULL
"""

# What is on its way in, and may or may not be there.
_ON_THE_WAY: Final = "SELECT sha256 FROM blob_references WHERE uploading_until IS NOT NULL"

# What holds of any history at any instant.
_GAPS: Final = """
SELECT count(*) AS entries, coalesce(max(position), 0) AS last, coalesce(min(position), 1) AS first,
    (SELECT count(*) FROM preconditions) AS left_behind
FROM history
"""

# Tables, indexes and triggers; what SQLite and D1 keep for themselves is not asked about.
_PARTS: Final = """
SELECT type, name FROM sqlite_schema
WHERE sql IS NOT NULL AND substr(name, 1, 3) NOT IN ('_cf', 'd1_') AND substr(name, 1, 7) <> 'sqlite_'
"""

_CHAIN_BATCH: Final = 5000


@dataclass(frozen=True)
class Contents:
    """What the database says of itself. `head` is the end of its chain as POSITION:LINK."""

    identity: Identity | None
    position: int
    head: str | None
    rows: dict[str, int]
    objects: frozenset[str]


class Snapshot(SqliteDatabase):
    """A database file that nobody else has open; `connection` is SQLite's own."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.connection = connection


@contextmanager
def opened(file: Path) -> Iterator[Snapshot]:
    """The database in a file. SQLite's own limits hold, not the edge's: what is stored is read, however it came there."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        yield Snapshot(connection)


async def look(snapshot: Snapshot) -> Contents:
    """What the database says. Raises ExecutionSchemaIncompatible for another schema than this executable's."""
    await schema.check(snapshot)
    connection = snapshot.connection
    ends = await read_ends(snapshot)
    rows = {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in sorted(schema.TABLES)}  # noqa: S608
    position = connection.execute(_GAPS).fetchone()["last"]
    head = None if ends.head is None else f"{ends.head.position}:{ends.head.link}"
    objects = frozenset(row[0] for row in connection.execute(_NEEDED))
    return Contents(await recovery.read(snapshot), position, head, rows, objects)


def on_the_way(snapshot: Snapshot) -> frozenset[str]:
    """The digests of uploads that had not ended."""
    return frozenset(row[0] for row in snapshot.connection.execute(_ON_THE_WAY))


async def faults(snapshot: Snapshot, noted: str | None = None) -> list[str]:
    """What is wrong with the database, in words: its file, its schema, its history and the chain over it.

    `noted` is an end of the chain as it was written down, as POSITION:LINK.
    """
    try:
        found = [row[0] for row in snapshot.connection.execute("PRAGMA integrity_check")]
        if found != ["ok"]:
            return [f"the database is damaged: {line}" for line in found[:5]]
        await schema.check(snapshot)
        missing = sorted(_expected() - {(row["type"], row["name"]) for row in snapshot.connection.execute(_PARTS)})
        counted = snapshot.connection.execute(_GAPS).fetchone()
    except (sqlite3.DatabaseError, MoorageError) as error:
        return [f"the database cannot be used: {error}"]
    wrong = [f"the database lacks the {kind} {name}" for kind, name in missing[:5]]
    if counted["entries"] != counted["last"] or counted["first"] != 1:
        wrong.append(f"history has {counted['entries']} entries, and its last position is {counted['last']}")
    if counted["left_behind"]:
        wrong.append("a transaction left its preconditions behind")
    broken = await _chain(snapshot, noted)
    return wrong if broken is None else [*wrong, broken]


@lru_cache(maxsize=1)
def _expected() -> frozenset[tuple[str, str]]:
    """What d1_schema/ makes. A trigger that got lost on the way would be missed by nobody until its work is."""
    with closing(sqlite3.connect(":memory:")) as fresh:
        for file in sorted((paths.ROOT / "d1_schema").glob("*.sql")):
            fresh.executescript(file.read_text(encoding="utf-8"))
        return frozenset((str(kind), str(name)) for kind, name in fresh.execute(_PARTS))


async def _chain(snapshot: Snapshot, noted: str | None) -> str | None:
    position, _, link = (noted or "").partition(":")
    head = Link(int(position), link) if position else None
    after = 0
    while True:
        found = await verify(snapshot, after, _CHAIN_BATCH, head)
        if found.broken is not None:
            return f"history is broken at position {found.broken.position}: {found.broken.reason}"
        if found.next is None:
            return None
        after = found.next

"""The adapters that the contract suite runs on: a fresh, migrated store on each (clause store.ports)."""

import sqlite3
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from moorage.store.directory import DirectoryBlobs, DirectoryFrontiers
from moorage.store.ports import Blobs, Database, Frontiers
from moorage.store.sqlite import SqliteDatabase, connect
from moorage.store.transaction import Row, Scalar

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]


class Store(Protocol):
    """One fresh store of a test: what the rooms see of it, and what only a test may see."""

    name: str
    blobs: Blobs
    frontiers: Frontiers

    def db(self) -> Database:
        """A new instance over the same store, as each request gets one."""

    async def sql(self, sql: str, *values: Scalar) -> list[Row]:
        """Run one statement past every port, to look at rows or to break them on purpose. Parameters are `?`."""

    async def sql_batch(self, statements: Sequence[str]) -> list[list[Row]]:
        """Several statements in one call."""

    async def damage_blob(self, sha256: str, content: bytes) -> None:
        """Put other bytes under the digest, as a broken disk would."""


def schema_statements() -> list[str]:
    """Every statement of every file in `d1_schema/`, in order."""
    return [statement for file in schema_files() for statement in split_sql(file.read_text())]


def schema_files() -> list[Path]:
    """The migrations in the order of their numbers."""
    return sorted((ROOT / "d1_schema").glob("[0-9]*.sql"))


def split_sql(text: str) -> Iterator[str]:
    """The statements of a migration file; SQLite itself says where one ends."""
    pending = ""
    for line in text.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending.strip()
            pending = ""
    if any(line.strip() and not line.startswith("--") for line in pending.splitlines()):
        raise ValueError(f"a statement without its end: {pending[:80]!r}")


class SqliteStore:
    """SQLite in memory and a directory."""

    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.connection = connect(":memory:")
        self.blobs: Blobs = DirectoryBlobs(folder)
        self.frontiers: Frontiers = DirectoryFrontiers(folder)

    def db(self) -> SqliteDatabase:
        return SqliteDatabase(self.connection)

    async def sql(self, sql: str, *values: Scalar) -> list[Row]:
        return [dict(row) for row in self.connection.execute(sql, values).fetchall()]

    async def sql_batch(self, statements: Sequence[str]) -> list[list[Row]]:
        return [await self.sql(sql) for sql in statements]

    async def damage_blob(self, sha256: str, content: bytes) -> None:
        (self.folder / "blobs" / sha256).write_bytes(content)


@asynccontextmanager
async def sqlite_store(folder: Path) -> AsyncIterator[SqliteStore]:
    """A fresh SQLite store with the schema applied."""
    store = SqliteStore(folder)
    await store.db().initialize(schema_statements())
    try:
        yield store
    finally:
        store.connection.close()


class HeldFrontiers:
    """Objects of recovery identities in memory, for a deployment on the host that needs no bucket else."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    async def keep(self, identity: str, content: bytes) -> None:
        self.objects[identity] = content

    async def read(self, identity: str) -> bytes | None:
        return self.objects.get(identity)

    async def identities(self) -> Sequence[str]:
        return sorted(self.objects)


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that never waits, as everything on SQLite does: for set-up outside an event loop."""
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    work.close()
    raise RuntimeError("it waits for something")


async def dump(store: Store) -> dict[str, list[Row]]:
    """Every row of every table, for comparing before and after."""
    names = await store.sql("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
    own = [row["name"] for row in names if not row["name"].startswith(("sqlite_", "_cf_", "d1_"))]
    rows = await store.sql_batch([f'SELECT * FROM "{name}"' for name in own])  # noqa: S608
    return dict(zip(own, rows, strict=True))

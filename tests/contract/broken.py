"""Adapters that are broken on purpose, each in one way: the suite has to find every one (clause store.negative-controls)."""

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from moorage.kernel.errors import BlobMissing, Conflict
from moorage.store.blobkeys import blob_key
from moorage.store.directory import DirectoryBlobs
from moorage.store.ports import BlobRange
from moorage.store.sqlite import SqliteDatabase
from moorage.store.transaction import Batch, Reading, Row, Statement, Transaction
from tests.contract.adapters import SqliteStore, schema_statements


class WithoutUniqueness(SqliteDatabase):
    """Passes over a row that breaks a uniqueness as if it had been stored."""

    def _step(self, statement: Statement) -> tuple[list[Row], int]:
        try:
            return super()._step(statement)
        except sqlite3.IntegrityError as error:
            if "UNIQUE" in str(error):
                return [], 0
            raise


class WithoutAtomicity(SqliteDatabase):
    """Commits each statement by itself."""

    def _all(self, batch: Batch, begin: str) -> list[tuple[list[Row], int]]:
        return [self._step(statement) for statement in batch]


class WithoutPreconditions(SqliteDatabase):
    """Leaves every precondition out, and with it every fence."""

    def _step(self, statement: Statement) -> tuple[list[Row], int]:
        if statement.sql.startswith("INSERT INTO preconditions"):
            return [], 0
        return super()._step(statement)


class WithPreconditionsInAnyOrder(SqliteDatabase):
    """Reports the last of the broken preconditions, not the first."""

    async def commit(self, transaction: Transaction) -> None:
        transaction.conflicts.reverse()
        await super().commit(transaction)


class WithSilentRetry(SqliteDatabase):
    """Tries a conflicting commit again before it tells."""

    async def commit(self, transaction: Transaction) -> None:
        try:
            await super().commit(transaction)
        except Conflict:
            await super().commit(transaction)


class WithSharedRows(SqliteDatabase):
    """Keeps the rows it has read and gives the same ones to the next reader."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._kept: dict[str, list[Row]] = {}

    async def read(self, reading: Reading) -> None:
        await super().read(reading)
        for statement in reading:
            statement.answer.fill(self._kept.setdefault(statement.sql, statement.answer.rows), 0)


class WithIntegers(SqliteDatabase):
    """Binds integers as integers, which the edge's database never does."""

    def _step(self, statement: Statement) -> tuple[list[Row], int]:
        cursor = self._connection.execute(statement.sql, statement.values)
        return [dict(row) for row in cursor.fetchall()], cursor.rowcount


class BlobsWithoutVerification(DirectoryBlobs):
    """Gives out whatever lies under the digest."""

    async def get(self, sha256: str, span: BlobRange | None = None) -> bytes:
        size = await self.size(sha256)
        return await super().get(sha256, span or BlobRange(0, size or 0))


class BlobsThatAreNeverMissing(DirectoryBlobs):
    """Takes a missing object for an empty one."""

    async def get(self, sha256: str, span: BlobRange | None = None) -> bytes:
        try:
            return await super().get(sha256, span)
        except BlobMissing:
            return b""


class BlobsUnderAnotherKey(DirectoryBlobs):
    """Puts a suffix behind the digest."""

    async def put(self, content: bytes) -> str:
        sha256 = await super().put(content)
        path = self._root / blob_key(sha256)
        path.rename(path.with_suffix(".bin"))
        return sha256


class BrokenStore(SqliteStore):
    """A SQLite store whose ports are of the given classes, with its schema applied."""

    def __init__(
        self,
        folder: Path,
        database: type[SqliteDatabase] = SqliteDatabase,
        blobs: type[DirectoryBlobs] = DirectoryBlobs,
        statements: Iterable[str] | None = None,
    ) -> None:
        super().__init__(folder)
        self.blobs = blobs(folder)
        self._database = database
        for statement in schema_statements() if statements is None else statements:
            self.connection.execute(statement)

    def db(self) -> SqliteDatabase:
        return self._database(self.connection)

"""The Database port on SQLite, for the host: unit tests, the reference, tools.

It is at least as strict as the edge's database: the same limits, every number bound as a double, whole doubles given
back as integers, one statement a step, nothing left behind by a failed batch.
"""

import sqlite3
import time
from pathlib import Path
from typing import Any

from moorage.kernel.limits import SQL_BYTES, SQL_PARAMETERS, SQL_VALUE_BYTES
from moorage.store.failures import storage_error
from moorage.store.ports import Cost
from moorage.store.transaction import Answer, Batch, Reading, Row, Scalar, Statement, Transaction

_LIMITS = {
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: SQL_PARAMETERS,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: SQL_BYTES,
    sqlite3.SQLITE_LIMIT_LENGTH: SQL_VALUE_BYTES,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 5,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COLUMN: 100,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 50,
}


def connect(path: Path | str) -> sqlite3.Connection:
    """Open a database with the edge's limits set. `":memory:"` is a fresh one."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA foreign_keys = ON")
    for category, bound in _LIMITS.items():
        connection.setlimit(category, int(bound))
    return connection


class SqliteDatabase:
    """One request's view of a SQLite connection. `cost.rows_read` stays 0: SQLite does not tell it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.cost = Cost()

    async def read(self, reading: Reading) -> None:
        self._send(reading, "BEGIN", None)

    async def commit(self, transaction: Transaction) -> None:
        self._send(transaction, "BEGIN IMMEDIATE", transaction)

    async def initialize(self, statements: list[str]) -> None:
        batch = Batch()
        batch.statements = [Statement(sql, (), Answer()) for sql in statements]
        self._send(batch, "BEGIN IMMEDIATE", None)

    def _send(self, batch: Batch, begin: str, foreseen: Transaction | None) -> None:
        if not len(batch):
            return
        started = time.perf_counter()
        before = self._connection.total_changes
        written = 0
        try:
            results = self._all(batch, begin)
            written = self._connection.total_changes - before
        except sqlite3.Error as error:
            conflict = foreseen.conflict_of(str(error)) if foreseen is not None else None
            raise (conflict or storage_error(str(error))) from None
        finally:
            self.cost.add(0, written, (time.perf_counter() - started) * 1000)
        for statement, (rows, changes) in zip(batch, results, strict=True):
            statement.answer.fill(rows, changes)

    def _all(self, batch: Batch, begin: str) -> list[tuple[list[Row], int]]:
        self._connection.execute(begin)
        try:
            results = [self._step(statement) for statement in batch]
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")
        return results

    def _step(self, statement: Statement) -> tuple[list[Row], int]:
        before = self._connection.total_changes
        cursor = self._connection.execute(statement.sql, [_as_double(value) for value in statement.values])
        rows = [{name: _as_whole(row[name]) for name in row.keys()} for row in cursor.fetchall()]  # noqa: SIM118
        return rows, self._connection.total_changes - before


def _as_double(value: Scalar) -> Scalar:
    return float(value) if isinstance(value, int) else value


def _as_whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53 else value

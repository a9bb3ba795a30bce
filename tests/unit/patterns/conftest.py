# ruff: noqa: S608 - the statements under test
"""A shelf of records on SQLite, with the real schema and the limits that D1 sets on every statement."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from moorage.catalog.paths import DeclaredPath, PathType, declare, slots
from moorage.records import patterns

SCHEMA = Path(__file__).parents[3] / "d1_schema" / "0001_moorage.sql"
SLOTS = [f"s{number}" for number in range(1, 17)]


class Shelf:
    """Records of one kind, the i-th body in the row with seq i, all claimable."""

    def __init__(self, types: Mapping[str, PathType]) -> None:
        self.paths: dict[str, DeclaredPath] = declare(types)
        self.database = sqlite3.connect(":memory:")
        self.database.executescript(SCHEMA.read_text())
        self.database.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 100)
        self.database.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 100)
        self.database.setlimit(sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 5)
        self.database.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 50)
        self.database.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 100_000)
        self.bodies: list[Any] = []

    def fill(self, bodies: Sequence[Any], priorities: Sequence[int] | None = None) -> "Shelf":
        self.database.execute("DELETE FROM records")
        self.bodies = list(bodies)
        columns = ", ".join(SLOTS)
        marks = ", ".join("?" for _ in SLOTS)
        rows = [
            (seq, f"rec_{seq}", priorities[seq] if priorities else 0, *map(as_bound, slots(body, self.paths)))
            for seq, body in enumerate(bodies)
        ]
        self.database.executemany(
            "INSERT INTO records (seq, id, kind, body, body_sha256, metadata, priority, state, available, created_at,"
            f" created_by, attempts, epoch, {columns})"
            f" VALUES (?, ?, 'k', '', '', '', ?, 'ready', 1, 0, '', 0, 0, {marks})",
            rows,
        )
        return self

    def parse(self, match: Any) -> patterns.Pattern:
        return patterns.parse(match, self.paths)

    def selected(self, match: Any) -> set[int]:
        """What SQL finds."""
        compiled = patterns.compile(self.parse(match))
        bound = {name: as_bound(value) for name, value in compiled.parameters.items()}
        rows = self.database.execute(f"SELECT r.seq, {compiled.where} FROM records AS r", bound).fetchall()
        assert {value for _, value in rows} <= {0, 1}, "a condition is never NULL"
        return {seq for seq, value in rows if value}

    def evaluated(self, match: Any) -> set[int]:
        """What the reference finds."""
        pattern = self.parse(match)
        return {seq for seq, body in enumerate(self.bodies) if patterns.evaluate(pattern, body)}

    def matching(self, match: Any) -> set[int]:
        """What both find."""
        found = self.selected(match)
        assert found == self.evaluated(match)
        return found

    def claimable(self, match: Any, limit: int) -> list[int]:
        compiled = patterns.compile(self.parse(match))
        bound = {"kind": "k", "limit": float(limit), **compiled.parameters}
        found = self.database.execute(patterns.claim_candidates(compiled), bound)
        return [int(record.removeprefix("rec_")) for (record,) in found]

    def close(self) -> None:
        self.database.close()


def as_bound(value: Any) -> Any:
    """As D1 binds it: every number is a REAL."""
    return float(value) if isinstance(value, int) else value


@pytest.fixture
def shelf() -> Iterator[Callable[..., Shelf]]:
    """Make a shelf: `shelf({"a": "any"}, [{"a": 1}])`."""
    made: list[Shelf] = []

    def make(types: Mapping[str, PathType], bodies: Sequence[Any] = ()) -> Shelf:
        made.append(Shelf(types).fill(bodies))
        return made[-1]

    yield make
    for each in made:
        each.close()

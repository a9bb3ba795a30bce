"""One operation, one transaction: a plan of statements that is data until it is sent.

A `Transaction` holds preconditions, changes and the answers it will give. It can be printed, counted, sent elsewhere and
failed at any statement by a test. Building one touches nothing (clause store.no-external-io). The database sends it as one
batch that commits whole or not at all (clause store.atomic).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from moorage.kernel.errors import RecordUnknown, StorageLimitExceeded
from moorage.kernel.instants import Instant
from moorage.kernel.limits import SQL_BYTES, SQL_PARAMETERS, SQL_VALUE_BYTES

Scalar = str | int | float | None
Row = dict[str, Any]

PRECONDITIONS = 16
"""Columns of the table `preconditions`: how many preconditions one transaction may have."""

_EXACT = 2**53
_NAME = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)")
_QUOTED = re.compile(r"'(?:[^']|'')*'")


class Answer:
    """The rows that a statement will have given once its batch is committed. Rows are the caller's own copies."""

    def __init__(self) -> None:
        self._rows: list[Row] | None = None
        self.changes = 0

    def fill(self, rows: list[Row], changes: int) -> None:
        """Called by the adapter, once, after the commit."""
        self._rows = rows
        self.changes = changes

    @property
    def rows(self) -> list[Row]:
        if self._rows is None:
            raise RuntimeError("the transaction has not been committed")
        return self._rows

    def first(self) -> Row | None:
        """The first row, or None."""
        return self.rows[0] if self.rows else None

    def one(self, or_raise: Exception | None = None) -> Row:
        """The only row. Raises `or_raise` when there is none."""
        if not self.rows:
            raise or_raise or RecordUnknown()
        return self.rows[0]


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement with positional parameters, and where its rows go."""

    sql: str
    values: tuple[Scalar, ...]
    answer: Answer = field(compare=False)


@dataclass(frozen=True, slots=True)
class Told:
    """What history is told in a transaction: the type of entries, and how many of each kind, or rows with their kinds."""

    type: str
    kinds: Mapping[str, int] | Answer


class Batch:
    """Statements that go to the database in one round trip."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []

    def __iter__(self) -> Iterator[Statement]:
        return iter(self.statements)

    def __len__(self) -> int:
        return len(self.statements)

    def describe(self) -> list[dict[str, Any]]:
        """The plan as plain data: what a test prints, counts or sends to another process."""
        return [{"sql": statement.sql, "values": list(statement.values)} for statement in self.statements]

    def _add(self, sql: str, parameters: Mapping[str, Any]) -> Answer:
        text, names = positional(sql)
        if len(names) > SQL_PARAMETERS:
            raise StorageLimitExceeded(f"{len(names)} bound values; the limit is {SQL_PARAMETERS}")
        values = tuple([_bound(name, parameters[name]) for name in names])
        answer = Answer()
        self.statements.append(Statement(text, values, answer))
        return answer


class Reading(Batch):
    """Questions that change nothing, and so may be sent again (clause store.transport)."""

    def ask(self, sql: str, **parameters: Scalar) -> Answer:
        return self._add(sql, parameters)


class Transaction(Batch):
    """Preconditions, changes and answers of one operation at the instant `now`, which every statement may name `:now`."""

    def __init__(self, now: Instant) -> None:
        super().__init__()
        self.now = now
        self.conflicts: list[Exception] = []
        self.refusals: dict[str, Exception] = {}
        self.told: list[Told] = []
        self.poked: list[Answer] = []
        self.summoned: list[Answer] = []
        self.entered: set[str] = set()
        """Types of the entries that it appends to history, as far as they are known before the commit."""

    def require(self, select: str, or_raise: Exception, **parameters: Scalar) -> None:
        """Abort the whole batch with `or_raise` unless `select` yields a row (clause store.conflict)."""
        ordinal = len(self.conflicts)
        if ordinal >= PRECONDITIONS:
            raise StorageLimitExceeded(f"a transaction has at most {PRECONDITIONS} preconditions")
        self.conflicts.append(or_raise)
        sql = f"INSERT INTO preconditions (p{ordinal}) SELECT 1 WHERE NOT EXISTS ({select})"
        self._add(sql, {"now": self.now, **parameters})

    def run(self, sql: str, **parameters: Scalar) -> Answer:
        """Add a change or a question; its rows (RETURNING) are in the answer after the commit."""
        return self._add(sql, {"now": self.now, **parameters})

    def poke(self, executions: Answer) -> None:
        """After the commit, tell the hosts of these rows (execution_id, host, runner, body) that there is work."""
        self.poked.append(executions)

    def summon(self, couriers: Answer) -> None:
        """After the commit, tell the Couriers of these rows (destination) that there is something to send."""
        self.summoned.append(couriers)

    def refuse(self, unique: str, or_raise: Exception) -> None:
        """Raise `or_raise` when the batch breaks that `unique` ("table.column") is unique, or that it is not NULL."""
        self.refusals[unique] = or_raise

    def conflict_of(self, message: str) -> Exception | None:
        """The error that the database's message stands for, if it is a conflict that this transaction foresaw."""
        broken = re.search(r"CHECK constraint failed: precondition_(\d+)", message)
        if broken and int(broken.group(1)) < len(self.conflicts):
            return self.conflicts[int(broken.group(1))]
        unique = re.search(r"(?:UNIQUE|NOT NULL) constraint failed: ([\w.]+(?:, [\w.]+)*)", message)
        if unique:
            return next((self.refusals[name] for name in unique.group(1).split(", ") if name in self.refusals), None)
        return None


@lru_cache(maxsize=1024)
def positional(sql: str) -> tuple[str, tuple[str, ...]]:
    """`:name` parameters as `?1…`, with the names in order of position; a name used twice is one position.

    Text in quotes is left alone. The platform binds by position only. Raises StorageLimitExceeded past SQL_BYTES.
    """
    if _utf8_bytes(sql) > SQL_BYTES:
        raise StorageLimitExceeded(f"a statement of more than {SQL_BYTES} bytes")
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in names:
            names.append(name)
        return f"?{names.index(name) + 1}"

    parts: list[str] = []
    start = 0
    for quoted in _QUOTED.finditer(sql):
        parts += [_NAME.sub(number, sql[start : quoted.start()]), quoted.group()]
        start = quoted.end()
    parts.append(_NAME.sub(number, sql[start:]))
    return "".join(parts), tuple(names)


def _bound(name: str, value: Any) -> Scalar:
    """The value as it is bound, within the platform's limits, which are the same on every adapter.

    Raises StorageLimitExceeded, which is a fault of the planner: client input is bounded before it comes here.
    """
    kind = type(value)
    if value is None or kind is float:
        return value  # type: ignore[no-any-return]
    if kind is not str and kind is not int:
        value = _plain(name, value)
    if type(value) is str:
        if _utf8_bytes(value) > SQL_VALUE_BYTES:
            raise StorageLimitExceeded(f"a bound value passes {SQL_VALUE_BYTES} bytes")
    elif not -_EXACT <= value <= _EXACT:
        raise StorageLimitExceeded("an integer past 2^53 cannot be bound exactly")
    return value  # type: ignore[no-any-return]


def _plain(name: str, value: Any) -> str | int:
    """A value of a type derived from text or from a whole number, as what it is."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    raise TypeError(f"parameter {name} is a {type(value).__name__}; statements take text, numbers and NULL")


def _utf8_bytes(text: str) -> int:
    """Bytes of the text. A lone surrogate has none, and the edge's database would store other characters for it."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise StorageLimitExceeded("a lone surrogate cannot be stored") from None

# ruff: noqa: S608 - SQL made of constants
"""Ways to keep records so that claims find them by the values at declared paths, each with the least to compare it by.

A design is a schema and the SQL of three operations on records of kind k with two declared paths, `type` (text) and `size`
(number): publish one, claim the oldest with a type, settle it. History is part of each, as it is part of every write.
"""

from dataclasses import dataclass, replace
from typing import Final

_COMMON: Final = """kind TEXT NOT NULL, priority INTEGER NOT NULL, state TEXT NOT NULL, available INTEGER NOT NULL,
    not_before INTEGER, epoch INTEGER NOT NULL, owner TEXT, expires_at INTEGER, ended_at INTEGER"""
_SLOTS: Final = ", ".join(f"s{number} ANY" for number in range(1, 17))
_BY_ID: Final = f"CREATE TABLE records (id TEXT NOT NULL PRIMARY KEY, seq INTEGER NOT NULL, {_COMMON}"
_BY_SEQ: Final = f"CREATE TABLE records (seq INTEGER NOT NULL PRIMARY KEY, id TEXT NOT NULL, {_COMMON}"
_HISTORY: Final = """CREATE TABLE history (position INTEGER NOT NULL PRIMARY KEY, subject TEXT NOT NULL,
    revision INTEGER NOT NULL, type TEXT NOT NULL, data TEXT NOT NULL) STRICT"""
_SUBJECTS: Final = "CREATE UNIQUE INDEX history_by_subject ON history (subject, revision)"
_READY: Final = "CREATE INDEX records_ready ON records (kind, priority DESC, seq) WHERE available = 1"
_LEASED: Final = "CREATE INDEX records_leased ON records (expires_at) WHERE state = 'claimed'"
_PARTIAL: Final = (
    _HISTORY,
    f"{_SUBJECTS} WHERE type <> 'record.published'",
    _READY,
    _LEASED,
    "CREATE INDEX records_resting ON records (kind, seq) WHERE available = 0 AND not_before IS NULL",
)
_BY_SLOT: Final = tuple(
    f"CREATE INDEX records_by_s{n} ON records (kind, s{n}, priority DESC, seq) WHERE available = 1 AND s{n} IS NOT NULL"
    for n in range(1, 17)
)

_PUBLISHED: Final = """INSERT INTO history
    SELECT coalesce((SELECT max(position) FROM history), 0) + 1, ?1, 1, 'record.published', '{}'"""
_APPEND: Final = """INSERT INTO history SELECT (SELECT max(position) FROM history) + 1, id,
    coalesce((SELECT max(revision) FROM history WHERE subject = id AND type <> 'record.published'), 1) + 1, '%s', '{}'
    FROM records WHERE %s"""
_INSERT: Final = """INSERT INTO records (id, seq, kind, priority, state, available, epoch, body%s)
    SELECT ?1, (SELECT max(position) FROM history), 'k', 0, 'ready', 1, 0, ?2%s"""
_TAKE: Final = """UPDATE records SET state = 'claimed', available = 0, epoch = epoch + 1, owner = ?2, expires_at = 2000
    WHERE id = (%s) RETURNING id"""
_TAKEN: Final = _APPEND % ("record.claimed", "state = 'claimed' AND expires_at = 2000 AND owner = ?1")
_SLOT_IS: Final = """SELECT id FROM records INDEXED BY records_by_s1 WHERE kind = 'k' AND available = 1
    AND s1 IS NOT NULL AND s1 = 's' || ?1 ORDER BY priority DESC, seq LIMIT 1"""
_SETTLE: Final = (
    _APPEND % ("record.settled", "id = ?1 AND state = 'claimed'"),
    """UPDATE records SET state = 'consumed', owner = NULL, expires_at = NULL, ended_at = 1000
    WHERE id = ?1 AND state = 'claimed'""",
)


@dataclass(frozen=True)
class Design:
    """A design by its SQL. `publish` binds id, body, type and size; `claim` type and owner; `owned` the owner alone,
    after the claim; `settle` the id. `loads` publish the records numbered ?1 to ?2 with the type `bulk`."""

    name: str
    schema: tuple[str, ...]
    publish: tuple[str, ...]
    claim: str
    settle: tuple[str, ...] = _SETTLE
    loads: tuple[str, ...] = ()
    owned: tuple[str, ...] = (_TAKEN,)


_NUMBERS: Final = "WITH RECURSIVE number (n) AS (SELECT ?1 UNION ALL SELECT n + 1 FROM number WHERE n < ?2)"
_LOAD_HISTORY: Final = f"""{_NUMBERS} INSERT INTO history
    SELECT n, printf('rec_%026d', n), 1, 'record.published', '{{}}' FROM number"""


def _load(columns: str = "", values: str = "") -> str:
    return f"""{_NUMBERS} INSERT INTO records (id, seq, kind, priority, state, available, epoch, body{columns})
        SELECT printf('rec_%026d', n), n, 'k', 0, 'ready', 1, 0,
        json_object('type', 'bulk', 'size', CAST(n % 1000 AS INTEGER)){values} FROM number"""


_SLOTTED: Final = (", s1, s2", ", 's' || ?3, ?4")
_SLOT_LOADS: Final = (_LOAD_HISTORY, _load(", s1, s2", ", 'sbulk', n % 1000"))

EVERYTHING_INDEXED: Final = Design(
    "slots, whole indexes",
    (
        f"{_BY_SEQ}, {_SLOTS}, body TEXT NOT NULL) STRICT",
        _HISTORY,
        _SUBJECTS,
        "CREATE UNIQUE INDEX records_by_id ON records (id)",
        "CREATE INDEX records_by_kind ON records (kind, seq)",
        _READY,
        _LEASED,
        *_BY_SLOT,
    ),
    (_PUBLISHED, _INSERT % _SLOTTED),
    _TAKE % _SLOT_IS,
    loads=_SLOT_LOADS,
)

PARTIAL: Final = Design(
    "slots, partial indexes (built)",
    (f"{_BY_ID}, {_SLOTS}, body TEXT NOT NULL) STRICT, WITHOUT ROWID", *_PARTIAL, *_BY_SLOT),
    (_PUBLISHED, _INSERT % _SLOTTED),
    _TAKE % _SLOT_IS,
    loads=_SLOT_LOADS,
)

_BY_STATE: Final = "CREATE INDEX records_resting ON records (kind, state, seq) WHERE available = 0 AND not_before IS NULL"
RESTING_BY_STATE: Final = replace(
    PARTIAL,
    name="the same, what rests also by its state",
    schema=(*(sql for sql in PARTIAL.schema if "records_resting" not in sql), _BY_STATE),
)

EXPRESSIONS: Final = Design(
    "expression indexes per kind",
    (
        f"{_BY_ID}, body TEXT NOT NULL) STRICT, WITHOUT ROWID",
        *_PARTIAL,
        "CREATE INDEX k_type ON records (body ->> '$.type', priority DESC, seq) WHERE kind = 'k' AND available = 1",
        "CREATE INDEX k_size ON records (body ->> '$.size', priority DESC, seq) WHERE kind = 'k' AND available = 1",
    ),
    (_PUBLISHED, _INSERT % ("", "")),
    _TAKE
    % """SELECT id FROM records INDEXED BY k_type WHERE kind = 'k' AND available = 1 AND body ->> '$.type' = ?1
        ORDER BY priority DESC, seq LIMIT 1""",
    loads=(_LOAD_HISTORY, _load()),
)

_FORGET: Final = """DELETE FROM found WHERE kind = 'k' AND path = '{path}'
    AND value = (SELECT {value} FROM records WHERE state = 'claimed' AND expires_at = 2000 AND owner = ?1)
    AND priority = (SELECT priority FROM records WHERE state = 'claimed' AND expires_at = 2000 AND owner = ?1)
    AND seq = (SELECT seq FROM records WHERE state = 'claimed' AND expires_at = 2000 AND owner = ?1)"""

NARROW: Final = Design(
    "a narrow table of values",
    (
        f"{_BY_ID}, body TEXT NOT NULL) STRICT, WITHOUT ROWID",
        *_PARTIAL,
        """CREATE TABLE found (kind TEXT, path TEXT, value ANY, priority INTEGER, seq INTEGER, id TEXT,
            PRIMARY KEY (kind, path, value, priority DESC, seq, id)) STRICT, WITHOUT ROWID""",
    ),
    (
        _PUBLISHED,
        _INSERT % ("", ""),
        """INSERT INTO found SELECT 'k', 'type', 's' || ?3, 0, seq, id FROM records WHERE id = ?1
            UNION ALL SELECT 'k', 'size', ?4, 0, seq, id FROM records WHERE id = ?1""",
    ),
    _TAKE
    % """SELECT id FROM found WHERE kind = 'k' AND path = 'type' AND value = 's' || ?1
        ORDER BY priority DESC, seq LIMIT 1""",
    owned=(
        _TAKEN,
        _FORGET.format(path="type", value="'s' || (body ->> '$.type')"),
        _FORGET.format(path="size", value="body ->> '$.size'"),
    ),
    loads=(
        _LOAD_HISTORY,
        _load(),
        f"{_NUMBERS} INSERT INTO found SELECT 'k', 'type', 'sbulk', 0, n, printf('rec_%026d', n) FROM number",
        f"{_NUMBERS} INSERT INTO found SELECT 'k', 'size', n % 1000, 0, n, printf('rec_%026d', n) FROM number",
    ),
)

DESIGNS: Final = (EVERYTHING_INDEXED, PARTIAL, RESTING_BY_STATE, EXPRESSIONS, NARROW)

"""The schema in `d1_schema/`: what it states of itself, and what the code believes of it."""

import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.kernel.limits import KIND_PATHS
from moorage.store import schema
from moorage.store.sqlite import connect
from moorage.store.transaction import PRECONDITIONS
from tests.contract.adapters import schema_files, schema_statements, split_sql

PINNED = Path(__file__).parent / "store" / "record_formats.json"
_IDEMPOTENT = re.compile(
    r"CREATE (TABLE|(UNIQUE )?INDEX|TRIGGER) IF NOT EXISTS|INSERT INTO .* ON CONFLICT .* DO NOTHING"
    r"|UPDATE moorage SET .* AND value = '\d+'",
    re.DOTALL,
)


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    """A database with the schema applied."""
    connection = connect(":memory:")
    for statement in schema_statements():
        connection.execute(statement)
    yield connection
    connection.close()


def fields(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """The stored fields of every table, each as `name TYPE`."""
    names = [row["name"] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    return {
        name: [f"{row['name']} {row['type']}" for row in connection.execute(f"PRAGMA table_info({name})")]
        for name in sorted(names)
    }


def format_fault(pinned: dict[str, dict[str, list[str]]], found: dict[str, list[str]], record_format: int) -> str | None:
    """What is wrong with the record format, or None.

    The newest pinned format is this executable's, and holds exactly the fields that the schema stores.
    """
    newest = max(int(number) for number in pinned)
    if newest != record_format:
        return f"formats up to {newest} are pinned, RECORD_FORMAT is {record_format}"
    before = pinned[str(newest)]
    changed = [table for table in sorted(found.keys() | before) if found.get(table) != before.get(table)]
    if changed:
        return f"the fields of {', '.join(changed)} changed; raise RECORD_FORMAT and pin the fields of format {newest + 1}"
    return None


@pytest.mark.clause("store.schema")
def test_the_code_knows_exactly_the_tables_that_exist(database: sqlite3.Connection) -> None:
    assert set(fields(database)) == schema.TABLES


@pytest.mark.clause("store.schema")
def test_the_schema_s_number_is_that_of_the_newest_file(database: sqlite3.Connection) -> None:
    numbers = [int(file.name.split("_")[0]) for file in schema_files()]
    assert numbers == list(range(1, schema.SCHEMA + 1))
    facts = {row["key"]: row["value"] for row in database.execute("SELECT key, value FROM moorage")}
    assert facts == {"schema": str(schema.SCHEMA), "record_format": str(schema.RECORD_FORMAT)}


@pytest.mark.clause("store.initialize")
@pytest.mark.parametrize("statement", schema_statements(), ids=lambda one: re.sub(r"\s+|--.*", " ", one)[-60:])
def test_every_statement_may_be_applied_twice(statement: str) -> None:
    code = re.sub(r"--.*", "", statement).strip()
    assert _IDEMPOTENT.match(code)


@pytest.mark.clause("store.schema")
def test_every_table_is_strict_and_told_of_in_the_essay(database: sqlite3.Connection) -> None:
    strict = {row["name"]: row["strict"] for row in database.execute("PRAGMA table_list") if row["name"] in schema.TABLES}
    assert strict == dict.fromkeys(schema.TABLES, 1)
    essay = [line for file in schema_files() for line in file.read_text().splitlines() if line.startswith("-- ")]
    told = set(re.findall(r"\w+", " ".join(essay)))
    assert schema.TABLES - told == set()


@pytest.mark.clause("store.record-format")
def test_the_stored_fields_are_the_pinned_ones(database: sqlite3.Connection) -> None:
    assert format_fault(json.loads(PINNED.read_text()), fields(database), schema.RECORD_FORMAT) is None


@pytest.mark.clause("store.record-format")
@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE records ADD COLUMN colour TEXT",
        "ALTER TABLE records DROP COLUMN failure",
        "ALTER TABLE records RENAME COLUMN metadata TO about",
        "CREATE TABLE more (a TEXT) STRICT",
        "DROP TABLE scopes",
    ],
)
def test_a_changed_field_fails_until_the_format_is_raised(database: sqlite3.Connection, change: str) -> None:
    pinned = json.loads(PINNED.read_text())
    database.execute(change)
    found = fields(database)
    assert "raise RECORD_FORMAT" in str(format_fault(pinned, found, schema.RECORD_FORMAT))
    following = schema.RECORD_FORMAT + 1
    assert "are pinned" in str(format_fault(pinned, found, following))
    assert format_fault({**pinned, str(following): found}, found, following) is None


def test_there_is_a_named_check_for_every_precondition(database: sqlite3.Connection) -> None:
    assert fields(database)["preconditions"] == [f"p{ordinal} INTEGER" for ordinal in range(PRECONDITIONS)]
    for ordinal in range(PRECONDITIONS):
        with pytest.raises(sqlite3.IntegrityError, match=rf"CHECK constraint failed: precondition_{ordinal}$"):
            database.execute(f"INSERT INTO preconditions (p{ordinal}) VALUES (1)")  # noqa: S608


def test_there_is_a_column_and_an_index_for_every_slot(database: sqlite3.Connection) -> None:
    slots = [field for field in fields(database)["records"] if re.fullmatch(r"s\d+ ANY", field)]
    assert slots == [f"s{number} ANY" for number in range(1, KIND_PATHS + 1)]
    for number in range(1, KIND_PATHS + 1):
        [index] = database.execute("SELECT sql FROM sqlite_schema WHERE name = ?", [f"records_by_s{number}"]).fetchall()
        assert index["sql"].endswith(
            f"ON records (kind, s{number}, priority DESC, seq) WHERE available = 1 AND s{number} IS NOT NULL"
        )


@pytest.mark.parametrize(
    "row",
    [
        "state = 'lost'",
        "state = 'consumed'",
        "available = 0",
        "available = 2",
        "state = 'claimed'",
        "state = 'dead', available = 0",
        "expires_at = 1",
        "seq = 'one'",
    ],
)
def test_a_record_cannot_be_in_a_state_that_contradicts_itself(database: sqlite3.Connection, row: str) -> None:
    database.execute(
        "INSERT INTO records (seq, id, kind, body, body_sha256, metadata, priority, state, available, created_at,"
        " created_by, attempts, epoch) VALUES (1, 'a', 'k', '{}', '', '{}', 0, 'ready', 1, 0, 'me', 0, 0)"
    )
    with pytest.raises(sqlite3.IntegrityError):
        database.execute(f"UPDATE records SET {row}")  # noqa: S608


def test_a_migration_is_split_where_its_statements_end() -> None:
    text = "-- one; two\nCREATE TABLE a (\n  b TEXT DEFAULT ';' -- c;\n) STRICT;\n\nINSERT INTO a VALUES ('x;y');\n"
    assert list(split_sql(text)) == [
        "-- one; two\nCREATE TABLE a (\n  b TEXT DEFAULT ';' -- c;\n) STRICT;",
        "INSERT INTO a VALUES ('x;y');",
    ]
    with pytest.raises(ValueError, match="without its end"):
        list(split_sql("SELECT 1"))

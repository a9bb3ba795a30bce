"""The Database port: one suite, every adapter (clause store.ports)."""

import asyncio
import hashlib
import math
from typing import Any

import pytest

from moorage.kernel.errors import (
    ExecutionSchemaIncompatible,
    InternalError,
    LeaseExpired,
    LeaseFenced,
    MoorageError,
    RecordExists,
    StorageCapabilityMissing,
    StorageLimitExceeded,
)
from moorage.kernel.instants import Instant
from moorage.kernel.limits import SQL_BYTES, SQL_PARAMETERS, SQL_VALUE_BYTES
from moorage.leases import lease
from moorage.store import schema
from moorage.store.ports import Database
from moorage.store.transaction import PRECONDITIONS, Reading, Row, Scalar, Transaction
from tests.contract.adapters import Store, dump, schema_statements

NOW = Instant(1_800_000_000_000)
PUT = "INSERT INTO leases (key, epoch) VALUES (:key, :epoch) RETURNING key, epoch"
NEVER = "SELECT 1 WHERE 0"
ALWAYS = "SELECT 1"


async def ask(db: Database, sql: str, **parameters: Scalar) -> list[Row]:
    """The rows of one question."""
    reading = Reading()
    answer = reading.ask(sql, **parameters)
    await db.read(reading)
    return answer.rows


def put(key: str) -> Transaction:
    """A plan that inserts one row."""
    tx = Transaction(NOW)
    tx.run(PUT, key=key, epoch=1)
    return tx


# --- atomic ---------------------------------------------------------------------------------------------------------


@pytest.mark.clause("store.atomic", "store.ports")
async def test_a_batch_commits_whole_and_answers_each_statement(store: Store) -> None:
    tx = Transaction(NOW)
    tx.require(ALWAYS, LeaseFenced())
    first = tx.run(PUT, key="a", epoch=1)
    second = tx.run("UPDATE leases SET epoch = epoch + 1 WHERE key = :key RETURNING epoch", key="a")
    seen = tx.run("SELECT count(*) AS n FROM leases")
    await store.db().commit(tx)
    assert first.rows == [{"key": "a", "epoch": 1}]
    assert second.one() == {"epoch": 2}
    assert seen.one() == {"n": 1}
    assert (first.changes, second.changes) == (1, 1)
    assert await store.sql("SELECT key, epoch FROM leases") == [{"key": "a", "epoch": 2}]


@pytest.mark.clause("store.atomic")
@pytest.mark.parametrize("place", ["before", "between", "after"])
async def test_a_broken_precondition_leaves_nothing_wherever_it_stands(store: Store, place: str) -> None:
    before = await dump(store)
    tx = Transaction(NOW)
    for step in ("before", "between", "after"):
        if step == place:
            tx.require(NEVER, LeaseFenced())
        if step != "after":
            tx.run(PUT, key=step, epoch=1)
    with pytest.raises(LeaseFenced):
        await store.db().commit(tx)
    assert await dump(store) == before


@pytest.mark.clause("store.atomic")
@pytest.mark.parametrize(
    "broken",
    [
        "INSERT INTO leases (key, epoch) VALUES ('x', 0)",
        "INSERT INTO leases (key, epoch) VALUES (NULL, 1)",
        "INSERT INTO leases (key, epoch) VALUES ('first', 1)",
        "INSERT INTO no_such_table VALUES (1)",
        "INSERT INTO leases (key, epoch) VALUES ('x', 'not a number')",
        "SELEC 1",
        "SELECT json('not json')",
    ],
)
async def test_a_statement_that_fails_takes_the_whole_batch_with_it(store: Store, broken: str) -> None:
    before = await dump(store)
    tx = put("first")
    tx.run(broken)
    tx.run(PUT, key="last", epoch=1)
    with pytest.raises(MoorageError):
        await store.db().commit(tx)
    assert await dump(store) == before


@pytest.mark.clause("store.atomic")
async def test_preconditions_leave_no_row_behind(store: Store) -> None:
    tx = Transaction(NOW)
    for _ in range(PRECONDITIONS):
        tx.require(ALWAYS, LeaseFenced())
    await store.db().commit(tx)
    assert await store.sql("SELECT * FROM preconditions") == []


@pytest.mark.clause("store.atomic", "leases.claim")
async def test_of_twenty_racing_compare_and_set_batches_one_wins(store: Store) -> None:
    async def attempt(number: int) -> bool:
        tx = Transaction(NOW)
        tx.require("SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM leases WHERE key = 'one')", LeaseFenced())
        tx.run(PUT, key="one", epoch=number)
        try:
            await store.db().commit(tx)
        except LeaseFenced:
            return False
        return True

    won = await asyncio.gather(*(attempt(number) for number in range(1, 21)))
    assert sum(won) == 1
    assert await store.sql("SELECT epoch FROM leases") == [{"epoch": won.index(True) + 1}]


# --- conflict -------------------------------------------------------------------------------------------------------


@pytest.mark.clause("store.conflict")
@pytest.mark.parametrize("which", range(PRECONDITIONS))
async def test_a_conflict_names_the_precondition_that_broke(store: Store, which: int) -> None:
    errors = [RecordExists(f"number {ordinal}") for ordinal in range(PRECONDITIONS)]
    tx = Transaction(NOW)
    for ordinal, error in enumerate(errors):
        tx.require(NEVER if ordinal == which else ALWAYS, error)
    with pytest.raises(RecordExists) as caught:
        await store.db().commit(tx)
    assert caught.value is errors[which]


@pytest.mark.clause("store.conflict")
async def test_of_several_broken_preconditions_the_first_is_named(store: Store) -> None:
    tx = Transaction(NOW)
    tx.require(ALWAYS, RecordExists())
    tx.require(NEVER, LeaseFenced())
    tx.require(NEVER, LeaseExpired())
    with pytest.raises(LeaseFenced):
        await store.db().commit(tx)


@pytest.mark.clause("store.conflict")
@pytest.mark.parametrize(
    ("table", "name", "again"),
    [
        ("leases", "leases.key", "INSERT INTO leases (key, epoch) VALUES ('a', 1)"),
        ("idempotency", "idempotency.subject", "INSERT INTO idempotency VALUES ('s', 'k', 'd', '{}', 1)"),
        ("record_parents", "record_parents.parent", "INSERT INTO record_parents VALUES ('c', 'p')"),
    ],
)
async def test_a_foreseen_uniqueness_raises_its_error(store: Store, table: str, name: str, again: str) -> None:
    await store.sql(again)
    before = await dump(store)
    error = RecordExists("foreseen")
    tx = Transaction(NOW)
    tx.refuse(name, error)
    tx.run("INSERT INTO leases (key, epoch) VALUES ('other', 1)")
    tx.run(again)
    with pytest.raises(RecordExists) as caught:
        await store.db().commit(tx)
    assert caught.value is error
    assert await dump(store) == before
    assert len(before[table]) == 1


@pytest.mark.clause("store.conflict")
async def test_a_uniqueness_that_nobody_foresaw_is_a_fault_of_the_planner(store: Store) -> None:
    await store.db().commit(put("a"))
    tx = put("a")
    tx.refuse("records.id", RecordExists())
    with pytest.raises(InternalError, match=r"UNIQUE constraint failed: leases\.key"):
        await store.db().commit(tx)


@pytest.mark.clause("store.conflict")
async def test_a_conflict_is_sent_once_and_never_again(store: Store) -> None:
    db = store.db()
    tx = put("a")
    tx.require(NEVER, LeaseFenced())
    with pytest.raises(LeaseFenced):
        await db.commit(tx)
    assert db.cost.trips == 1


# --- no input or output while planning ------------------------------------------------------------------------------


@pytest.mark.clause("store.no-external-io")
async def test_planning_touches_nothing_and_committing_waits_once(store: Store) -> None:
    db = store.db()
    before = await dump(store)
    tx = put("a")
    lease.fence(tx, lease.Hold("a", "me", 1))
    assert await dump(store) == before
    assert db.cost.trips == 0
    with pytest.raises(RuntimeError, match="has not been committed"):
        _ = tx.statements[0].answer.rows


@pytest.mark.clause("store.no-external-io")
def test_planning_needs_no_event_loop_and_no_database() -> None:
    tx = Transaction(NOW)
    lease.fence(tx, lease.Hold("a", "me", 1))
    tx.run(PUT, key="a", epoch=1)
    assert [sorted(step) for step in tx.describe()] == [["sql", "values"]] * 3


@pytest.mark.clause("store.no-external-io")
async def test_an_operation_awaits_nothing_between_its_first_statement_and_the_commit(store: Store) -> None:
    """The commit is the first thing that an operation waits for: whatever ran before it ran in one step."""
    real = store.db()
    steps: list[str] = []

    class Watched:
        cost = real.cost

        async def read(self, reading: Reading) -> None:
            raise AssertionError("acquiring a lease reads nothing first")

        async def commit(self, transaction: Transaction) -> None:
            steps.append("commit")
            await real.commit(transaction)

        async def initialize(self, statements: list[str]) -> None:
            raise AssertionError("never here")

    asyncio.get_running_loop().call_soon(steps.append, "the loop turned")
    await lease.acquire(Watched(), NOW, "a", "me", 30)
    assert steps[0] == "commit"


# --- copies ---------------------------------------------------------------------------------------------------------


@pytest.mark.clause("store.copies")
async def test_changing_what_was_read_changes_nothing(store: Store) -> None:
    await store.db().commit(put("a"))
    db = store.db()
    first = await ask(db, "SELECT key, epoch FROM leases")
    first[0]["epoch"] = 99
    first.clear()
    assert await ask(db, "SELECT key, epoch FROM leases") == [{"key": "a", "epoch": 1}]


@pytest.mark.clause("store.copies")
async def test_two_instances_see_one_store(store: Store) -> None:
    await store.db().commit(put("a"))
    assert await ask(store.db(), "SELECT key FROM leases") == [{"key": "a"}]


# --- values ---------------------------------------------------------------------------------------------------------

VALUES: list[Scalar] = [
    *(None, "", "text", "a\0b", "\0", "'); DROP TABLE leases; --", "😀 \u00e9 \u2028", "?1 :now"),
    *(0, 1, -1, 2**53, -(2**53), 1_800_000_000_000, 0.5, -0.25, 1e300, 5e-324, 0.1),
]


@pytest.mark.clause("store.ports")
@pytest.mark.parametrize("value", VALUES, ids=ascii)
async def test_a_value_comes_back_as_it_went(store: Store, value: Scalar) -> None:
    [row] = await ask(store.db(), "SELECT :value AS value", value=value)
    assert row == {"value": value}
    assert type(row["value"]) is type(value)


@pytest.mark.clause("store.ports")
@pytest.mark.parametrize(
    ("value", "kind"), [(5, "real"), (0.5, "real"), ("5", "text"), (None, "null"), (True, "real")], ids=ascii
)
async def test_every_number_is_bound_as_a_double(store: Store, value: Scalar, kind: str) -> None:
    assert await ask(store.db(), "SELECT typeof(:value) AS kind", value=value) == [{"kind": kind}]


@pytest.mark.clause("store.ports")
async def test_numbers_become_integers_in_integer_columns_and_stay_whole(store: Store) -> None:
    tx = Transaction(NOW)
    tx.run("INSERT INTO leases (key, epoch, owner, expires_at) VALUES ('a', :epoch, 'me', :now)", epoch=2**53)
    typed = tx.run("SELECT typeof(epoch) AS kind, epoch, expires_at, epoch / 2 AS half FROM leases")
    await store.db().commit(tx)
    assert typed.one() == {"kind": "integer", "epoch": 2**53, "expires_at": NOW, "half": 2**52}


@pytest.mark.clause("store.ports")
async def test_a_whole_double_past_two_to_the_53_stays_a_double(store: Store) -> None:
    [row] = await ask(store.db(), "SELECT 1e20 AS big, 2.0 AS two, -1e16 AS low")
    assert row == {"big": 1e20, "two": 2, "low": -1e16}
    assert [type(row[name]) for name in ("big", "two", "low")] == [float, int, float]


@pytest.mark.clause("store.ports")
async def test_not_a_number_is_stored_as_null(store: Store) -> None:
    assert await ask(store.db(), "SELECT :value IS NULL AS empty", value=math.nan) == [{"empty": 1}]


@pytest.mark.clause("store.ports")
async def test_a_list_travels_as_one_json_parameter_whose_integers_stay_integers(store: Store) -> None:
    sql = "SELECT key, value, typeof(value) AS kind FROM json_each(:list) ORDER BY key"
    rows = await ask(store.db(), sql, list='[1, 2.5, "x", null]')
    assert [row["kind"] for row in rows] == ["integer", "real", "text", "null"]


@pytest.mark.parametrize("value", [b"bytes", [1], {"a": 1}, object()], ids=["bytes", "list", "dict", "object"])
def test_other_values_are_refused_while_planning(value: Any) -> None:
    with pytest.raises(TypeError, match="parameter key"):
        Transaction(NOW).run(PUT, key=value, epoch=1)


@pytest.mark.clause("store.ports")
async def test_names_in_quotes_are_text_and_a_name_used_twice_is_bound_once(store: Store) -> None:
    sql = "SELECT ':now' AS quoted, :a AS a, 'it''s :b' AS more, :a || :b AS both"
    assert await ask(store.db(), sql, a="x", b="y") == [
        {"quoted": ":now", "a": "x", "more": "it's :b", "both": "xy"},
    ]


async def test_an_empty_batch_is_no_trip(store: Store) -> None:
    db = store.db()
    await db.read(Reading())
    await db.commit(Transaction(NOW))
    assert db.cost.trips == 0


# --- limits ---------------------------------------------------------------------------------------------------------


def many(count: int) -> tuple[str, dict[str, Scalar]]:
    """A question with that many parameters."""
    names = [f"p{number}" for number in range(count)]
    return f"SELECT {' + '.join(f'(:{name})' for name in names)} AS total", dict.fromkeys(names, 1)


@pytest.mark.clause("store.ports", "kernel.limits")
async def test_a_hundred_parameters_and_not_one_more(store: Store) -> None:
    sql, values = many(SQL_PARAMETERS - 1)
    assert await ask(store.db(), f"{sql}, :last AS last", **values, last=1) == [{"total": 99, "last": 1}]
    sql, values = many(SQL_PARAMETERS)
    with pytest.raises(StorageLimitExceeded):
        await ask(store.db(), f"{sql}, :last AS last", **values, last=1)


@pytest.mark.clause("store.ports", "kernel.limits")
async def test_a_statement_of_the_largest_size_and_not_one_more(store: Store) -> None:
    base = "SELECT 1 AS one --"
    longest = base + "x" * (SQL_BYTES - len(base))
    assert await ask(store.db(), longest) == [{"one": 1}]
    with pytest.raises(StorageLimitExceeded):
        await ask(store.db(), longest + "x")


@pytest.mark.clause("store.ports", "kernel.limits")
@pytest.mark.parametrize("letter", ["x", "é", "😀"])
async def test_a_value_of_the_largest_size_and_not_one_more(store: Store, letter: str) -> None:
    # The database counts the whole row against the bound, so a stored value stays a little below it.
    size = SQL_VALUE_BYTES - 1000
    largest = letter * (size // len(letter.encode()))
    await store.sql("DELETE FROM idempotency")
    tx = Transaction(NOW)
    tx.run("INSERT INTO idempotency VALUES ('s', 'k', :value, '{}', 1)", value=largest)
    await store.db().commit(tx)
    [row] = await ask(store.db(), "SELECT digest FROM idempotency")
    assert hashlib.sha256(row["digest"].encode()).digest() == hashlib.sha256(largest.encode()).digest()
    with pytest.raises(StorageLimitExceeded):
        await ask(store.db(), "SELECT length(:value) AS n", value=letter * (SQL_VALUE_BYTES // len(letter.encode()) + 1))


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 2**64])
async def test_an_integer_that_a_double_cannot_hold_is_refused(store: Store, value: int) -> None:
    with pytest.raises(StorageLimitExceeded):
        await ask(store.db(), "SELECT :value AS value", value=value)


PLATFORM_BOUNDS = {
    "compound": (" UNION ALL ".join(["SELECT 1"] * 5), " UNION ALL ".join(["SELECT 1"] * 6)),
    "like": (f"SELECT 'a' LIKE '{'a' * 50}'", f"SELECT 'a' LIKE '{'a' * 51}'"),
    "glob": (f"SELECT 'a' GLOB '{'a' * 50}'", f"SELECT 'a' GLOB '{'a' * 51}'"),
    "depth": (f"SELECT {' + '.join(['1'] * 100)}", f"SELECT {' + '.join(['1'] * 102)}"),
    "columns": (f"SELECT {', '.join(['1'] * 100)}", f"SELECT {', '.join(['1'] * 101)}"),
}


@pytest.mark.clause("store.ports", "kernel.limits")
@pytest.mark.parametrize("bound", PLATFORM_BOUNDS)
async def test_the_platform_s_own_bounds_are_the_same_everywhere(store: Store, bound: str) -> None:
    fits, too_much = PLATFORM_BOUNDS[bound]
    reading = Reading()
    reading.ask(fits)
    await store.db().read(reading)
    reading = Reading()
    reading.ask(too_much)
    with pytest.raises(StorageLimitExceeded):
        await store.db().read(reading)


@pytest.mark.clause("store.ports")
@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("SELECT * FROM no_such_table", StorageCapabilityMissing),
        ("SELECT no_such_column FROM leases", StorageCapabilityMissing),
        ("SELEC 1", InternalError),
        ("SELECT json('not json')", InternalError),
        ("SELECT abs(-9223372036854775808)", InternalError),
    ],
)
async def test_a_database_error_has_one_meaning_everywhere(store: Store, sql: str, error: type[MoorageError]) -> None:
    reading = Reading()
    reading.ask(sql)
    with pytest.raises(error):
        await store.db().read(reading)


# --- initialize and schema ------------------------------------------------------------------------------------------


@pytest.mark.clause("store.initialize")
async def test_initializing_twice_is_initializing_once(store: Store) -> None:
    await store.db().commit(put("kept"))
    structure = "SELECT type, name, sql FROM sqlite_schema ORDER BY type, name"
    before = (await dump(store), await store.sql(structure))
    await store.db().initialize(schema_statements())
    assert (await dump(store), await store.sql(structure)) == before


@pytest.mark.clause("store.initialize", "store.atomic")
async def test_an_initialization_that_fails_leaves_nothing(store: Store) -> None:
    before = await store.sql("SELECT name FROM sqlite_schema ORDER BY name")
    with pytest.raises(MoorageError):
        await store.db().initialize(["CREATE TABLE IF NOT EXISTS half (a TEXT) STRICT", "CREATE TABLE broken ("])
    assert await store.sql("SELECT name FROM sqlite_schema ORDER BY name") == before


@pytest.mark.clause("store.schema")
async def test_the_schema_in_d1_schema_is_the_one_that_is_supported(store: Store) -> None:
    assert await schema.check(store.db()) == {"schema": schema.SCHEMA, "record_format": schema.RECORD_FORMAT}


@pytest.mark.clause("store.schema")
@pytest.mark.parametrize("table", sorted(schema.TABLES))
async def test_a_missing_table_is_named_and_not_made_again(store: Store, table: str) -> None:
    await store.sql(f"DROP TABLE {table}")
    before = await store.sql("SELECT name FROM sqlite_schema ORDER BY name")
    with pytest.raises(ExecutionSchemaIncompatible, match=rf"lacks the tables {table};"):
        await schema.check(store.db())
    assert await store.sql("SELECT name FROM sqlite_schema ORDER BY name") == before


@pytest.mark.clause("store.schema", "store.record-format")
@pytest.mark.parametrize("fact", ["schema", "record_format"])
@pytest.mark.parametrize("value", ["0", "1", "3", "5", "1000000", "one", ""])
async def test_another_schema_or_format_is_refused_and_left_alone(store: Store, fact: str, value: str) -> None:
    await store.sql("UPDATE moorage SET value = ? WHERE key = ?", value, fact)
    before = await dump(store)
    with pytest.raises(ExecutionSchemaIncompatible, match=f"the database has {fact} {value}, this executable supports"):
        await schema.check(store.db())
    assert await dump(store) == before


@pytest.mark.clause("store.schema")
async def test_a_database_that_does_not_tell_its_schema_is_refused(store: Store) -> None:
    await store.sql("DELETE FROM moorage")
    with pytest.raises(ExecutionSchemaIncompatible, match="has schema unknown"):
        await schema.check(store.db())

"""A transaction as data: what it holds before anything is sent."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.kernel.errors import LeaseFenced, RecordExists, RecordUnknown, StorageLimitExceeded
from moorage.kernel.instants import Instant
from moorage.kernel.limits import SQL_BYTES, SQL_PARAMETERS, SQL_VALUE_BYTES
from moorage.store.transaction import PRECONDITIONS, Answer, Reading, Scalar, Transaction, positional

NOW = Instant(1_800_000_000_000)


@pytest.mark.parametrize(
    ("sql", "text", "names"),
    [
        ("SELECT :a", "SELECT ?1", ("a",)),
        ("SELECT :a, :b, :a", "SELECT ?1, ?2, ?1", ("a", "b")),
        ("SELECT ':a', :b", "SELECT ':a', ?1", ("b",)),
        ("SELECT 'it''s :a', :b", "SELECT 'it''s :a', ?1", ("b",)),
        ("SELECT x::y, a:b", "SELECT x::y, a:b", ()),
        ("SELECT :a||':b'||:c", "SELECT ?1||':b'||?2", ("a", "c")),
        ("SELECT '$.a:b', :ab, :a", "SELECT '$.a:b', ?1, ?2", ("ab", "a")),
    ],
)
def test_names_become_positions(sql: str, text: str, names: tuple[str, ...]) -> None:
    assert positional(sql) == (text, names)


@pytest.mark.clause("store.no-external-io")
def test_a_plan_is_plain_data() -> None:
    tx = Transaction(NOW)
    tx.require("SELECT 1 WHERE :a = 1", LeaseFenced(), a=1)
    tx.run("SELECT :now, :b, :c", b=True, c=None)
    assert tx.describe() == [
        {"sql": "INSERT INTO preconditions (p0) SELECT 1 WHERE NOT EXISTS (SELECT 1 WHERE ?1 = 1)", "values": [1]},
        {"sql": "SELECT ?1, ?2, ?3", "values": [NOW, 1, None]},
    ]
    assert [type(value) for value in tx.describe()[1]["values"]] == [int, int, type(None)]


def test_a_parameter_that_is_not_given_is_a_fault_while_planning() -> None:
    with pytest.raises(KeyError, match="missing"):
        Reading().ask("SELECT :missing")


def test_only_a_transaction_knows_now() -> None:
    with pytest.raises(KeyError, match="now"):
        Reading().ask("SELECT :now")


@pytest.mark.clause("kernel.limits")
def test_sixteen_preconditions_and_not_one_more() -> None:
    tx = Transaction(NOW)
    for _ in range(PRECONDITIONS):
        tx.require("SELECT 1", LeaseFenced())
    with pytest.raises(StorageLimitExceeded):
        tx.require("SELECT 1", LeaseFenced())


@pytest.mark.clause("store.conflict")
@pytest.mark.parametrize("prefix", ["", "D1_ERROR: "])
def test_a_message_is_mapped_to_the_error_that_was_foreseen(prefix: str) -> None:
    tx = Transaction(NOW)
    errors = [LeaseFenced(str(ordinal)) for ordinal in range(12)]
    for error in errors:
        tx.require("SELECT 1", error)
    taken = RecordExists()
    tx.refuse("records.id", taken)
    assert tx.conflict_of(f"{prefix}CHECK constraint failed: precondition_1: SQLITE_CONSTRAINT") is errors[1]
    assert tx.conflict_of(f"{prefix}CHECK constraint failed: precondition_11") is errors[11]
    assert tx.conflict_of(f"{prefix}CHECK constraint failed: precondition_12") is None
    assert tx.conflict_of(f"{prefix}UNIQUE constraint failed: records.id: SQLITE_CONSTRAINT") is taken
    assert tx.conflict_of(f"{prefix}UNIQUE constraint failed: other.a, records.id") is taken
    assert tx.conflict_of(f"{prefix}UNIQUE constraint failed: records.identity") is None
    assert tx.conflict_of(f"{prefix}UNIQUE constraint failed: other.records.id") is None
    assert tx.conflict_of(f"{prefix}CHECK constraint failed: available = 0 OR state = 'ready'") is None


@pytest.mark.clause("kernel.limits")
def test_the_platform_s_limits_at_the_bound_and_past_it() -> None:
    add("x" * SQL_BYTES)
    add(listed(SQL_PARAMETERS), *([1] * SQL_PARAMETERS))
    add(listed(3), "é" * (SQL_VALUE_BYTES // 2), 2**53, -(2**53))
    refused: list[tuple[str, list[Scalar]]] = [
        ("x" * (SQL_BYTES + 1), []),
        ("é" * (SQL_BYTES // 2 + 1), []),
        (listed(SQL_PARAMETERS + 1), [1] * (SQL_PARAMETERS + 1)),
        (listed(1), ["é" * (SQL_VALUE_BYTES // 2) + "x"]),
        (listed(1), ["lone \ud800"]),
        (listed(1), [2**53 + 1]),
        (listed(1), [-(2**53) - 1]),
    ]
    for sql, values in refused:
        with pytest.raises(StorageLimitExceeded):
            add(sql, *values)


class Word(str):
    """Text of a type of its own."""


@pytest.mark.parametrize(("value", "bound"), [(True, 1), (False, 0), (Word("a"), "a"), (1.5, 1.5), (None, None)])
def test_a_value_is_bound_as_what_it_is(value: Any, bound: Scalar) -> None:
    reading = Reading()
    reading.ask("SELECT :a", a=value)
    (found,) = reading.statements[0].values
    assert (found, type(found)) == (bound, type(bound))


def test_what_is_neither_text_nor_a_number_is_not_bound() -> None:
    with pytest.raises(TypeError, match="parameter a is a list"):
        Reading().ask("SELECT :a", a=[])  # type: ignore[arg-type]


def add(sql: str, *values: Scalar) -> None:
    """Put a statement with these values into a batch."""
    Reading().ask(sql, **{f"v{number}": value for number, value in enumerate(values)})


def listed(count: int) -> str:
    """A statement with so many parameters."""
    return f"SELECT {', '.join(f':v{number}' for number in range(count))}"


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=40), st.text(alphabet="abc_:' ?1", max_size=40))
def test_a_value_never_becomes_part_of_the_statement(value: str, other: str) -> None:
    reading = Reading()
    reading.ask("SELECT :a, :b", a=value, b=other)
    assert reading.describe() == [{"sql": "SELECT ?1, ?2", "values": [value, other]}]


def test_an_answer_says_what_is_missing() -> None:
    answer = Answer()
    with pytest.raises(RuntimeError, match="has not been committed"):
        answer.first()
    answer.fill([], 0)
    assert answer.first() is None
    with pytest.raises(RecordUnknown):
        answer.one()
    with pytest.raises(LeaseFenced):
        answer.one(LeaseFenced())

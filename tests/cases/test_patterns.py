"""Hostile and awkward patterns on SQLite under D1's limits: the pattern parts of cases C10, C11, C12, C13 and C22.

Each set is asked for three times, as a query's condition, as the reference evaluates it, and as a claim finds it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from moorage.kernel import canonical
from moorage.kernel.errors import JsonInvalid, PatternInvalid
from moorage.kernel.limits import PATTERN_OPERATORS, PATTERN_VALUES
from tests.unit.patterns.conftest import Shelf

Fill = Callable[[dict[str, Any], Sequence[Any]], Shelf]
pytestmark = pytest.mark.clause("records.pattern", "records.pattern-one-meaning")


@pytest.fixture
def fill() -> Iterator[Fill]:
    made: list[Shelf] = []

    def make(types: dict[str, Any], bodies: Sequence[Any]) -> Shelf:
        made.append(Shelf(types).fill(bodies))
        return made[-1]

    yield make
    for shelf in made:
        shelf.close()


def matched(shelf: Shelf, match: dict[str, Any]) -> set[int]:
    """The set that query, reference and claim all give; with its complement it is everything, once."""
    found = shelf.matching(match)
    assert shelf.claimable(match, 1_000) == sorted(found)
    assert shelf.matching({"$not": match}) == shelf.matching({"$nor": [match]}) == set(range(len(shelf.bodies))) - found
    return found


# --- C10: null, missing, and the opposite of a pattern --------------------------------------------------------------

NULLISH: list[Any] = [{"a": 1}, {"a": None}, {}, {"a": []}, {"a": [None]}, {"a": 0}, {"a": ""}, {"a": False}, {"a": {}}]
ONE, NULL, MISSING, EMPTY, NULL_INSIDE, ZERO, BLANK, FALSE, OBJECT = range(9)
ALL = set(range(9))


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ({"a": {"$exists": True}}, ALL - {MISSING}),
        ({"a": {"$exists": False}}, {MISSING}),
        ({"a": None}, {NULL}),
        ({"a": {"$eq": None}}, {NULL}),
        ({"a": {"$ne": None}}, ALL - {NULL}),
        ({"a": {"$ne": 1}}, ALL - {ONE}),
        ({"a": {"$in": [1]}}, {ONE}),
        ({"a": {"$in": [None]}}, {NULL}),
        ({"a": {"$in": [1, 1, 0]}}, {ONE, ZERO}),
        ({"a": {"$nin": [1, None]}}, ALL - {ONE, NULL}),
        ({"a": {"$in": []}}, set()),
        ({"a": {"$nin": []}}, ALL),
        ({"a": {"$lt": 5}}, {ONE, ZERO}),
        ({"a": {"$not": {"$lt": 5}}}, ALL - {ONE, ZERO}),
        ({"a": {"$gt": -1}}, {ONE, ZERO}),
        ({"a": {"$gte": ""}}, {BLANK}),
        ({"a": {"$lte": None}}, set()),
        ({"a": {"$gte": 0, "$lt": 1}}, {ZERO}),
        ({"$and": []}, ALL),
        ({"$or": []}, set()),
        ({"$nor": []}, ALL),
        ({"$not": {}}, set()),
        ({}, ALL),
        ({"a": {"$any": [None]}}, {NULL_INSIDE}),
        ({"a": {"$any": []}}, set()),
        ({"a": {"$all": []}}, {EMPTY, NULL_INSIDE}),
        ({"a": {"$all": [None, None]}}, {NULL_INSIDE}),
        ({"a": {"$size": 0}}, {EMPTY}),
        ({"a": {"$size": 1.0}}, {NULL_INSIDE}),
        ({"a": []}, {EMPTY}),
        ({"a": [None]}, {NULL_INSIDE}),
        ({"a": {}}, {OBJECT}),
        ({"a": {"$eq": {}}}, {OBJECT}),
        ({"a": False}, {FALSE}),
        ({"$or": [{"a": 1}, {"a": {"$exists": False}}]}, {ONE, MISSING}),
        ({"a": {"$in": [1, 0, ""]}, "$nor": [{"a": 0}]}, {ONE, BLANK}),
    ],
)
def test_null_missing_and_the_opposite(fill: Fill, match: dict[str, Any], expected: set[int]) -> None:
    assert matched(fill({"a": "any"}, NULLISH), match) == expected


# --- C11: true is not 1 and "1" is not 1 ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (True, {1}),
        (1, {2, 5}),
        ("1", {4}),
        ("true", {3}),
        (False, {6}),
        (0, {7}),
        ({"$in": [True, "1"]}, {1, 4}),
        ({"$gt": 0}, {2, 5}),
        ({"$gte": "1"}, {3, 4}),
        ({"$ne": True}, {2, 3, 4, 5, 6, 7, 8, 9}),
        ({"$any": [True]}, {9}),
        ({"$any": [1]}, set()),
    ],
)
def test_types_never_coerce(fill: Fill, operation: Any, expected: set[int]) -> None:
    bodies = [{"on": value} for value in (True, 1, "true", "1", 1.0, False, 0, None, [True])]
    assert matched(fill({"on": "any"}, bodies), {"on": operation}) == {number - 1 for number in expected}


# --- C12: keys and paths that are hostile to SQL and to JSON paths --------------------------------------------------

ODD_BODY = canonical.loads(
    r"""{"k":"v1","a'b":1,"a\"b":2,"a.b":3,"a":{"b":4},"x]":5,"$":6,"":7,"0":8,"*":9,"#":10,"é":11,"a\\b":12}""".encode()
)
ODD_PATHS: dict[str, Any] = {"k": "v1", "a'b": 1, 'a"b': 2, r"a\.b": 3, "a.b": 4, "x]": 5, "$": 6, "": 7, "0": 8}
ODD_PATHS |= {"*": 9, "#": 10, "é": 11, r"a\\b": 12}


@pytest.mark.clause("records.pattern-safe")
def test_each_odd_key_matches_its_own_value_and_nothing_else(fill: Fill) -> None:
    shelf = fill(dict.fromkeys(ODD_PATHS, "any"), [ODD_BODY, *[{"k": "v2"}] * 5])
    for path, value in ODD_PATHS.items():
        assert matched(shelf, {path: value}) == {0}
        for other in ODD_PATHS.values():
            if other != value:
                assert matched(shelf, {path: other}) == set()


@pytest.mark.clause("records.pattern-safe")
def test_wildcards_of_other_languages_are_plain_text(fill: Fill) -> None:
    shelf = fill({"k": "any"}, [ODD_BODY, *[{"k": "v2"}] * 5])
    for value in ("v%", "v_", "v?", "v*", "k') OR 1=1 --", 'k"); DROP TABLE records; --', "$.k", "k\x00", "%"):
        assert matched(shelf, {"k": value}) == set()
    assert shelf.database.execute("SELECT count(*) FROM records").fetchone() == (6,)


@pytest.mark.clause("records.pattern-safe")
@pytest.mark.parametrize(
    "path", ["k') OR 1=1 --", 'k"); DROP TABLE records; --', "$.k", "k\x00", "%", "k" * 10_000, ".".join("k" * 200)]
)
def test_a_hostile_path_is_refused_and_named(fill: Fill, path: str) -> None:
    shelf = fill({"k": "any"}, [ODD_BODY, *[{"k": "v2"}] * 5])
    with pytest.raises(PatternInvalid) as raised:
        shelf.parse({path: "v1"})
    assert repr(path)[1:6] in raised.value.detail
    assert "SELECT" not in raised.value.detail


# --- C13: large integers, overflow and -0 ---------------------------------------------------------------------------


@pytest.mark.clause("kernel.canonical-json")
def test_a_number_that_is_accepted_is_matched_by_its_own_value_only(fill: Fill) -> None:
    accepted = [canonical.loads(raw) for raw in (b'{"n":9007199254740992}', b'{"n":-0}', b'{"n":0.1}', b'{"n":1.0}')]
    shelf = fill({"n": "number"}, accepted)
    assert matched(shelf, canonical.loads(b'{"n":9007199254740992}')) == {0}
    assert matched(shelf, canonical.loads(b'{"n":0}')) == matched(shelf, {"n": -0.0}) == {1}
    assert matched(shelf, canonical.loads(b'{"n":0.1}')) == {2}
    assert matched(shelf, canonical.loads(b'{"n":1}')) == {3}
    assert matched(shelf, canonical.loads(b'{"n":{"$gt":0.1,"$lte":9007199254740992}}')) == {0, 3}
    for raw in (b'{"n":9007199254740993}', b'{"n":12345678901234567890123}', b'{"n":1e400}', b'{"n":NaN}'):
        with pytest.raises(JsonInvalid):
            canonical.loads(raw)


# --- C22: lists just above the number of bound values that one statement takes --------------------------------------


@pytest.fixture
def stock(fill: Fill) -> Shelf:
    return fill({"sku": "string", "n": "number"}, [{"sku": f"s{number}", "n": number} for number in range(1, 151)])


@pytest.mark.clause("records.pattern-safe")
@pytest.mark.parametrize("count", [0, 1, 95, 99, 100, 101, 150, PATTERN_VALUES])
def test_a_list_of_any_length_up_to_the_bound_gives_the_right_set(stock: Shelf, count: int) -> None:
    values = [f"s{number}" for number in range(1, count + 1)]
    expected = set(range(min(count, 150)))
    assert matched(stock, {"sku": {"$in": values}}) == expected
    assert matched(stock, {"sku": {"$nin": values}}) == set(range(150)) - expected
    assert matched(stock, {"n": {"$in": [float(number) for number in range(1, count + 1)]}}) == expected


@pytest.mark.clause("records.pattern-safe", "kernel.limits")
@pytest.mark.parametrize("count", [PATTERN_VALUES + 1, 1_000])
def test_a_longer_list_is_refused_with_the_bound_named(stock: Shelf, count: int) -> None:
    for operator in ("$in", "$nin"):
        with pytest.raises(PatternInvalid, match="500 values"):
            stock.parse({"sku": {operator: [f"s{number}" for number in range(count)]}})


def test_the_same_value_twice_changes_nothing(stock: Shelf) -> None:
    assert matched(stock, {"sku": {"$in": ["s7", "s7"]}}) == matched(stock, {"sku": {"$in": ["s7"]}}) == {6}


@pytest.mark.clause("records.pattern-safe")
def test_many_conditions_give_the_right_set_or_name_the_bound(stock: Shelf) -> None:
    assert matched(stock, {"$and": [{"n": {"$gt": number}} for number in range(40)]}) == set(range(39, 150))
    equalities = [{"sku": f"s{number}"} for number in range(1, 121)]
    assert stock.matching({"$or": equalities[: PATTERN_OPERATORS - 1]}) == set(range(PATTERN_OPERATORS - 1))
    with pytest.raises(PatternInvalid, match="64 operators"):
        stock.parse({"$or": equalities})

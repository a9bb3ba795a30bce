"""Every limit of a pattern at its bound and one past it, inside the database's own limits."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from moorage.kernel import canonical
from moorage.kernel.errors import JsonInvalid, PatternInvalid
from moorage.kernel.limits import PATTERN_BYTES, PATTERN_DEPTH, PATTERN_OPERATORS, PATTERN_VALUES, SQL_BYTES
from moorage.records import patterns
from tests.unit.patterns.conftest import Shelf

MakeShelf = Callable[..., Shelf]
pytestmark = pytest.mark.clause("records.pattern-safe", "kernel.limits")

SKUS = [{"sku": f"s{number}", "n": number} for number in range(1, 151)]


@pytest.fixture
def stock(shelf: MakeShelf) -> Shelf:
    return shelf({"sku": "string", "n": "number", "tags": "string[]"}, SKUS)


def test_one_value_past_the_bound_is_refused(stock: Shelf) -> None:
    for operator in ("$in", "$nin"):
        with pytest.raises(PatternInvalid, match="500 values"):
            stock.parse({"sku": {operator: ["s"] * (PATTERN_VALUES + 1)}})
    with pytest.raises(PatternInvalid, match="500 values"):
        stock.parse({"sku": {"$in": ["s"] * PATTERN_VALUES}, "n": 1})


@pytest.mark.parametrize("joint", ["$or", "$and", "$nor"])
def test_as_many_operators_as_the_bound_fit_in_one_statement(stock: Shelf, joint: str) -> None:
    terms = [{"sku": f"s{number}"} for number in range(1, PATTERN_OPERATORS)]
    expected = {"$or": set(range(63)), "$and": set(), "$nor": set(range(63, 150))}[joint]
    assert stock.matching({joint: terms}) == expected
    assert stock.claimable({joint: terms}, 100) == sorted(expected)[:100]
    with pytest.raises(PatternInvalid, match="64 operators"):
        stock.parse({joint: [*terms, {"n": 1}]})


@pytest.mark.parametrize(
    "operation", [{"$all": ["a", "b"]}, {"$any": ["a"]}, {"$nin": [["a"]]}, {"$size": 1}, {"$not": {"$all": ["q"]}}]
)
def test_the_longest_statement_stays_within_the_bound(stock: Shelf, operation: dict[str, Any]) -> None:
    terms = [{"tags": operation} for _ in range(63 if "$not" not in operation else 31)]
    match = {"$or": terms}
    compiled = patterns.compile(stock.parse(match))
    assert len(patterns.claim_candidates(compiled)) < SQL_BYTES / 2
    assert len(compiled.parameters) == 1
    stock.matching(match)
    stock.claimable(match, 1)


def nested(operator: str, levels: int) -> dict[str, Any]:
    match: dict[str, Any] = {"n": 1}
    for _ in range(levels):
        match = {operator: match if operator == "$not" else [match]}
    return match


@pytest.mark.parametrize("operator", ["$and", "$or", "$nor", "$not"])
def test_booleans_nest_to_the_bound_and_not_one_deeper(stock: Shelf, operator: str) -> None:
    assert stock.matching(nested(operator, PATTERN_DEPTH)) == {0}
    with pytest.raises(PatternInvalid, match="deeper than 8"):
        stock.parse(nested(operator, PATTERN_DEPTH + 1))


def test_not_at_a_path_counts_as_a_level(stock: Shelf) -> None:
    stock.parse({"$and": [{"n": {"$not": {"$gt": 1}}}]})
    match: dict[str, Any] = {"n": {"$not": {"$gt": 1}}}
    for _ in range(PATTERN_DEPTH):
        match = {"$and": [match]}
    with pytest.raises(PatternInvalid, match="deeper than 8"):
        stock.parse(match)


@pytest.mark.parametrize("levels", [50, 500, 5_000, 20_000])
def test_deeply_nested_patterns_are_refused_and_nothing_else_happens(stock: Shelf, levels: int) -> None:
    for raw in ('{"$not":' * levels + "{}" + "}" * levels, '{"n":' + "[" * levels + "]" * levels + "}"):
        with pytest.raises((JsonInvalid, PatternInvalid)):
            stock.parse(canonical.loads(raw.encode()))


def test_empty_terms_count_as_operators(stock: Shelf) -> None:
    assert stock.matching({"$and": [{}] * (PATTERN_OPERATORS - 1)}) == set(range(150))
    with pytest.raises(PatternInvalid, match="64 operators"):
        stock.parse({"$and": [{}] * PATTERN_OPERATORS})


def test_operands_in_all_are_bounded_in_bytes(stock: Shelf) -> None:
    value = "x" * (PATTERN_BYTES - 4)
    assert len(json.dumps([value])) == PATTERN_BYTES
    assert stock.matching({"sku": {"$in": [value]}}) == set()
    with pytest.raises(PatternInvalid, match="262144 bytes"):
        stock.parse({"sku": {"$in": [value + "x"]}})

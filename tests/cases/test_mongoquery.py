"""What the test suite of a public MongoDB-like evaluator (PyPI mongoquery 1.4.3) asks, asked of patterns (case F04).

The table holds that suite's facts on documents of our own: for each pattern what that library answers, and why patterns
answer otherwise where they do. Each reason is a heading of docs/patterns.md. Every fact goes to the evaluator, to the SQL
of a query and to a claim; the library itself is not needed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from moorage.kernel.errors import PatternInvalid
from tests.unit.patterns.conftest import Shelf

pytestmark = pytest.mark.clause("records.pattern", "records.pattern-one-meaning")

DIFFERENCES = Path(__file__).parents[2] / "docs" / "patterns.md"
NOTES = [{"note": "in time", "by": "road"}, {"note": "signed", "by": "desk"}]
LATER = [{"note": "in time", "by": "bank"}, {"note": "late", "by": "road"}]
CRATES: list[Any] = [
    {"id": 100, "type": "tool", "item": "saw", "n": 25, "price": 2.5, "marks": [5, 8, 9], "notes": NOTES},
    {"id": 101, "type": "toy", "item": "top", "n": 10, "price": 4.25, "marks": [5, 9], "notes": LATER},
]
SPARSE: list[Any] = [
    {"a": 5, "b": 5, "c": None},
    {"a": 3, "b": None, "c": 8},
    {"a": None, "b": 3, "c": 9},
    {"a": 1, "b": 2, "c": 3},
    {"a": 2, "c": 5},
    {"a": 3, "b": 2},
    {"a": 4},
    {"b": 2, "c": 4},
    {"b": 2},
    {"c": 6},
]
SHELVES: list[Any] = [
    {"code": "xyz", "tags": ["desk", "book", "bag", "lamp"], "lots": [{"size": "S", "n": 10}, {"size": "M", "n": 45}, {}]},
    {"code": "abc", "tags": ["lamp", "desk", "book"], "lots": [{"size": "6", "n": 100}, {"size": "6", "n": 50}, {}]},
    {"code": "efg", "tags": ["desk", "book"], "lots": [{"size": "S", "n": 10}, {"size": "M", "n": 100}, {}]},
    {"code": "ijk", "tags": ["wire", "desk"], "lots": [{"size": "M", "n": 100}]},
]
KEYS: list[Any] = [{"1": "foo"}, {"2": "bar"}]
NESTED: list[Any] = [{"1": {"banana": 3}}]
TEXTS: list[Any] = [{"a": "5"}, {"a": "567"}]
TURTLES: list[Any] = [{"turtle": True}, {"turtle": "swim"}]

REFUSED = None
ARRAYS = "A path and an equality never look inside an array"
LISTS = "`$in` and `$nin` compare the whole value"
OPERATORS = "Operators that are not there are refused"
SIZES = "`$size` takes a number"
OBJECTS = "An object is a value"
INSIDE = "What stands in a list is a value"


@dataclass(frozen=True)
class Fact:
    """A pattern over documents: which of them the library finds, and for a difference its reason and what we find."""

    documents: list[Any]
    match: dict[str, Any]
    theirs: set[int]
    reason: str = ""
    ours: set[int] | None = REFUSED

    @property
    def expected(self) -> set[int] | None:
        return self.ours if self.reason else self.theirs


BOTH, FIRST, SECOND, NONE = {0, 1}, {0}, {1}, set[int]()
SAME = [
    Fact(CRATES, {"type": "toy"}, SECOND),
    Fact(CRATES, {"type": "ham"}, NONE),
    Fact(CRATES, {"n": {"$eq": 25}}, FIRST),
    Fact(CRATES, {"n": {"$gt": 20}}, FIRST),
    Fact(CRATES, {"n": {"$gte": 10}}, BOTH),
    Fact(CRATES, {"n": {"$in": [10, 42]}}, SECOND),
    Fact(CRATES, {"n": {"$lt": 20}}, SECOND),
    Fact(CRATES, {"n": {"$lte": 10}}, SECOND),
    Fact(CRATES, {"n": {"$ne": 10}}, FIRST),
    Fact(CRATES, {"n": {"$nin": [10, 42]}}, FIRST),
    Fact(CRATES, {"n": {"$exists": True}}, BOTH),
    Fact(CRATES, {"foo": {"$exists": True}}, NONE),
    Fact(SPARSE, {"a": {"$exists": True}}, set(range(7))),
    Fact(SPARSE, {"b": {"$exists": False}}, {4, 6, 9}),
    Fact(SPARSE, {"c": {"$exists": False}}, {5, 6, 8}),
    Fact(CRATES, {"marks": [5, 8, 9]}, FIRST),
    Fact(SHELVES, {"tags": {"$all": ["lamp", "desk", "book"]}}, BOTH),
    Fact(SHELVES, {"lots": {"$size": 1}}, {3}),
    Fact(SHELVES, {"lots": {"$size": 3}}, {0, 1, 2}),
    Fact(SHELVES, {"lots": {"$size": 2}}, NONE),
    Fact(SHELVES, {"code": {"$size": 3}}, NONE),
    Fact(KEYS, {"3": {"$exists": True}}, NONE),
    Fact(KEYS, {"1": {"$exists": True}}, FIRST),
    Fact(KEYS, {"1": {"$exists": False}}, SECOND),
    Fact(NESTED, {"1.banana": {"$gt": 2}}, FIRST),
    Fact(NESTED, {"1.banana": {"$gt": 4}}, NONE),
    Fact(NESTED, {"2": {"banana": {"$gt": 2}}}, NONE),
    Fact(NESTED, {"1": {"banana": {"$gt": 4}}}, NONE),
    Fact(TURTLES, {"turtle": {"neck": True}}, NONE),
    Fact(TURTLES, {"turtle": {"value": "swim"}}, NONE),
    Fact(TEXTS, {"a": 5}, NONE),
    Fact(TEXTS, {"a": "5"}, FIRST),
]
OTHERWISE = [
    Fact(CRATES, {"notes.note": "in time"}, BOTH, ARRAYS, NONE),
    Fact(CRATES, {"notes.by": "bank"}, SECOND, ARRAYS, NONE),
    Fact(CRATES, {"notes.1.note": "signed"}, FIRST, ARRAYS, NONE),
    Fact(SHELVES, {"lots.n": {"$all": [50]}}, SECOND, ARRAYS, NONE),
    Fact(CRATES, {"marks": {"$in": [5, 6]}}, BOTH, LISTS, NONE),
    Fact(CRATES, {"n": {"$type": 16}}, BOTH, OPERATORS),
    Fact(CRATES, {"n": {"$type": "number"}}, BOTH, OPERATORS),
    Fact(CRATES, {"n": {"$mod": [4, 1]}}, FIRST, OPERATORS),
    Fact(SHELVES, {"code": {"$regex": "^abc"}}, SECOND, OPERATORS),
    Fact(SHELVES, {"code": {"$regex": "/^ABC/i"}}, SECOND, OPERATORS),
    Fact(CRATES, {"notes": {"$elemMatch": {"note": "in time", "by": "road"}}}, FIRST, OPERATORS),
    Fact(CRATES, {"marks": {"$size": {"$gt": 2}}}, FIRST, SIZES),
    Fact(SHELVES, {"lots": {"$all": [{"$elemMatch": {"size": "M", "n": {"$gt": 50}}}]}}, {2, 3}, INSIDE, NONE),
    Fact(NESTED, {"1": {"banana": {"$gt": 2}}}, FIRST, OBJECTS, NONE),
]


@pytest.fixture(scope="module")
def shelves() -> Iterator[dict[str, Shelf]]:
    made: dict[str, Shelf] = {}
    for fact in SAME + OTHERWISE:
        (path,) = fact.match
        if path not in made:
            made[path] = Shelf({path: "any"})
    yield made
    for shelf in made.values():
        shelf.close()


@pytest.mark.parametrize("fact", SAME + OTHERWISE, ids=lambda fact: str(fact.match))
def test_a_pattern_answers_as_the_library_does_or_as_is_written_down(shelves: dict[str, Shelf], fact: Fact) -> None:
    (path,) = fact.match
    shelf = shelves[path].fill(fact.documents)
    if fact.expected is None:
        with pytest.raises(PatternInvalid):
            shelf.parse(fact.match)
    else:
        assert shelf.matching(fact.match) == fact.expected
        assert shelf.claimable(fact.match, 100) == sorted(fact.expected)


def test_every_difference_is_a_heading_of_the_page_on_patterns() -> None:
    headings = [line.removeprefix("### ") for line in DIFFERENCES.read_text().splitlines() if line.startswith("### ")]
    assert {fact.reason for fact in OTHERWISE} == set(headings)
    assert len(headings) == len(set(headings))

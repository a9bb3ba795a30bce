"""What each operator matches, by type, and what is refused. The handed cases are in tests/cases/test_patterns.py."""

from collections.abc import Callable
from typing import Any

import pytest

from moorage.kernel.errors import PatternInvalid
from tests.unit.patterns.conftest import Shelf

MakeShelf = Callable[..., Shelf]
pytestmark = pytest.mark.clause("records.pattern", "records.pattern-one-meaning")


def test_instants_compare_as_instants_whatever_their_offset_and_fraction(shelf: MakeShelf) -> None:
    due = ["2026-11-29T16:35:00Z", "2026-11-29T17:35:00.000+01:00", "2026-11-29T16:35:00.000000001Z", None]
    found = shelf({"due": "instant"}, [{"due": each} for each in due])
    assert found.matching({"due": "2026-11-29T15:35:00-01:00"}) == {0, 1}
    assert found.matching({"due": {"$gt": "2026-11-29T16:35:00.0Z"}}) == {2}
    assert found.matching({"due": {"$lte": "2026-11-29T16:35:00Z"}}) == {0, 1}
    assert found.matching({"due": {"$in": ["2026-11-29T16:35:00z", None]}}) == {0, 1, 3}


def test_arrays_of_instants_compare_as_instants(shelf: MakeShelf) -> None:
    bodies = [{"at": ["2026-11-29T16:35:00Z"]}, {"at": ["2026-11-29T17:35:00+01:00", None]}, {"at": []}]
    found = shelf({"at": "instant[]"}, bodies)
    assert found.matching({"at": ["2026-11-29T16:35:00.0Z"]}) == {0}
    assert found.matching({"at": {"$any": ["2026-11-29T16:35:00.000Z"]}}) == {0, 1}
    assert found.matching({"at": {"$all": ["2026-11-29T16:35:00.000Z", None]}}) == {1}


def test_strings_order_by_code_point(shelf: MakeShelf) -> None:
    words = ["Z", "a", "é", "\uffff", "\U0001f600", "\x00", ""]
    found = shelf({"s": "string"}, [{"s": word} for word in words])
    for word in words:
        assert found.matching({"s": {"$lt": word}}) == {number for number, other in enumerate(words) if other < word}


def test_arrays_ask_for_any_all_and_size_and_for_the_whole(shelf: MakeShelf) -> None:
    tags = [["a", "b"], ["b", "a"], ["a"], [], ["a", "a"], None]
    found = shelf({"tags": "string[]"}, [{"tags": each} for each in tags])
    assert found.matching({"tags": {"$any": ["b", "c"]}}) == {0, 1}
    assert found.matching({"tags": {"$all": ["a", "b", "a"]}}) == {0, 1}
    assert found.matching({"tags": {"$all": ["a"], "$size": 1}}) == {2}
    assert found.matching({"tags": {"$size": 2}}) == {0, 1, 4}
    assert found.matching({"tags": ["a", "b"]}) == {0}
    assert found.matching({"tags": {"$in": [["a"], []]}}) == {2, 3}
    assert found.matching({"tags": {"$ne": ["a"]}}) == {0, 1, 3, 4, 5}


def test_objects_and_arrays_are_equal_by_value_not_by_spelling(shelf: MakeShelf) -> None:
    found = shelf({"a": "any"}, [{"a": {"x": 1, "y": [1.0, "1"]}}, {"a": {"y": [1, 1], "x": 1}}, {"a": [{"x": True}]}])
    assert found.matching({"a": {"y": [1, "1"], "x": 1.0}}) == {0}
    assert found.matching({"a": {"$any": [{"x": True}]}}) == {2}
    assert found.matching({"a": {"$any": [{"x": 1}]}}) == set()


def test_an_object_with_dollars_is_a_value_behind_eq(shelf: MakeShelf) -> None:
    found = shelf({"a": "any"}, [{"a": {"$gt": 1}}, {"a": 2}])
    assert found.matching({"a": {"$eq": {"$gt": 1}}}) == {0}
    assert found.matching({"a": {"$gt": 1}}) == {1}


@pytest.mark.parametrize(
    ("match", "named"),
    [
        ({"x": 1}, "'x'"),
        ({"$where": "1"}, "'$where'"),
        ({"n": {"$regex": "a"}}, "'$regex'"),
        ({"n": {"$gt": 1, "x": 2}}, "'n'"),
        ({"n": "1"}, "'n'"),
        ({"n": True}, "'n'"),
        ({"n": {"$in": [1, "1"]}}, "'n'"),
        ({"n": {"$in": 1}}, "'n'"),
        ({"n": {"$any": [1]}}, "'n'"),
        ({"n": {"$size": 1}}, "'n'"),
        ({"n": {"$exists": 1}}, "'n'"),
        ({"n": {"$not": 1}}, "'n'"),
        ({"n": {"$not": {}}}, "'n'"),
        ({"n": {}}, "'n'"),
        ({"s": 1}, "'s'"),
        ({"s": {"$gt": 1}}, "'s'"),
        ({"b": 1}, "'b'"),
        ({"b": {"$gt": False}}, "'b'"),
        ({"t": "a"}, "'t'"),
        ({"t": [1]}, "'t'"),
        ({"t": {"$any": "a"}}, "'t'"),
        ({"t": {"$any": [1]}}, "'t'"),
        ({"t": {"$gt": ["a"]}}, "'t'"),
        ({"t": {"$size": -1}}, "'t'"),
        ({"t": {"$size": 1.5}}, "'t'"),
        ({"t": {"$size": True}}, "'t'"),
        ({"i": "soon"}, "'i'"),
        ({"i": {"$lt": "2026-11-29"}}, "'i'"),
        ({"any": {"$lt": True}}, "'any'"),
        ({"any": {"$lt": []}}, "'any'"),
        ({"any": float("nan")}, "'any'"),
        ({"any": 2**53}, "'any'"),
        ({"$and": {}}, "$and"),
        ({"$or": [1]}, "number"),
        ({"$not": []}, "array"),
        ([], "array"),
        (None, "null"),
        ("n", "string"),
    ],
)
def test_what_is_no_pattern_is_refused_with_the_place_named(shelf: MakeShelf, match: Any, named: str) -> None:
    found = shelf({"n": "number", "s": "string", "b": "boolean", "t": "string[]", "i": "instant", "any": "any"})
    with pytest.raises(PatternInvalid) as raised:
        found.parse(match)
    assert named in raised.value.detail


def test_null_is_an_operand_of_every_type(shelf: MakeShelf) -> None:
    types = {"n": "number", "s": "string", "b": "boolean", "t": "string[]", "i": "instant", "any": "any"}
    found = shelf(types, [dict.fromkeys(types), {}])
    for path in types:
        assert found.matching({path: None}) == {0}
        assert found.matching({path: {"$in": [None]}}) == {0}
    for path in ("n", "s", "i", "any"):
        assert found.matching({path: {"$gte": None}}) == set()

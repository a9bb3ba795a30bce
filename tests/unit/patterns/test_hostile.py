"""Keys, paths, values and numbers that are hostile to SQL, to JSON paths and to doubles."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from moorage.catalog.paths import PATH_TYPES
from moorage.kernel import canonical
from moorage.kernel.errors import PatternInvalid, RequestInvalid
from moorage.records import patterns
from tests.unit.patterns.conftest import Shelf

MakeShelf = Callable[..., Shelf]

HOSTILE = [
    "k') OR 1=1 --",
    'k"); DROP TABLE records; --',
    "$.k",
    "k\x00",
    "%",
    "s1",
    "r.s1",
    ":m",
    "'",
    "''",
    "]",
    "[0]",
]


@pytest.mark.clause("records.pattern-safe", "records.pattern")
@pytest.mark.parametrize("path", [*HOSTILE, "k" * 10_000, ".".join("k" * 200)])
def test_an_undeclared_path_is_refused_however_it_is_written(shelf: MakeShelf, path: str) -> None:
    found = shelf({"k": "any"}, [{"k": "v1"}])
    with pytest.raises(PatternInvalid) as raised:
        found.parse({path: 1})
    assert len(raised.value.detail) < 700


@pytest.mark.clause("records.pattern-safe")
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_only_paths_and_only_values(shelf: MakeShelf, text: str) -> None:
    path = text.replace("\\", r"\\").replace(".", r"\.").replace("$\\.", r"$\.")
    found = shelf({path: "any", "tags": "any"}, [{text: text, "tags": [text]}, {"k": "v"}, {text: "v"}])
    assert found.matching({path: text}) == {0}
    assert found.matching({path: {"$in": [text, "w"]}}) == {0}
    assert found.matching({"tags": {"$any": [text]}}) == {0}
    assert found.matching({"tags": {"$all": [text]}}) == {0}
    assert found.matching({path: {"$ne": text}}) == {1, 2}
    assert found.claimable({path: text}, 5) == [0]


@pytest.mark.clause("records.pattern-safe")
@pytest.mark.parametrize("kind", PATH_TYPES)
def test_the_statement_holds_nothing_of_the_pattern_but_its_shape(shelf: MakeShelf, kind: Any) -> None:
    """Two patterns of one shape over other paths and operands make one text."""
    shapes = {"string": ("x'", "y"), "number": (1, 2.5), "boolean": (True, False), "any": ("a'b", "$[0]")}
    shapes |= {"instant": ("2026-11-29T16:35:00Z", "2027-01-01T00:00:00+02:00")}
    shapes |= {f"{name}[]": ([one], [two]) for name, (one, two) in list(shapes.items()) if name != "any"}
    one, two = shapes[kind]
    first, second = shelf({"p'": kind}), shelf({"q.r": kind})
    texts = [
        patterns.compile(found.parse({path: {"$ne": value}})).where
        for found, path, value in ((first, "p'", one), (second, "q.r", two))
    ]
    assert texts[0] == texts[1]
    assert re.fullmatch(r"\(r\.s1 IS NOT json_extract\(:m, '\$\[0\]'\)\)", texts[0])


@pytest.mark.clause("records.pattern-safe")
def test_the_parameter_has_the_given_name_and_is_bound_only_when_the_text_names_it(shelf: MakeShelf) -> None:
    found = shelf({"a": "any"})
    shapes: list[Any] = [{}, {"a": 1}, {"a": {"$exists": True}}, {"a": {"$lt": None}}, {"$or": []}, {"a": {"$in": []}}]
    for match in shapes:
        compiled = patterns.compile(found.parse(match), prefix="grant")
        assert set(re.findall(r":(\w+)", compiled.where)) == compiled.parameters.keys() <= {"grant"}


@pytest.mark.clause("records.undeclared")
def test_undeclared_fields_change_nothing(shelf: MakeShelf) -> None:
    noise = {"secret": "x" * 10_000, "deep": [[[{"a": "v1"}]]], "n": "not a number"}
    found = shelf({"k": "string"}, [{"k": "v1"}, {"k": "v1", **noise}, noise])
    assert found.matching({"k": "v1"}) == {0, 1}
    assert found.matching({"k": {"$exists": False}}) == {2}


NUMBERS = ["9007199254740991", "9007199254740992", "-9007199254740992", "1e20", "-0", "0.1", "1.0", "0.0", "1e18"]


@pytest.mark.clause("records.pattern", "kernel.canonical-json")
def test_numbers_match_by_value_in_equality_lists_and_ranges(shelf: MakeShelf) -> None:
    values = [canonical.loads(text.encode()) for text in NUMBERS]
    found = shelf({"n": "number"}, [{"n": value} for value in values])
    for value in values:
        same = {number for number, other in enumerate(values) if other == value}
        below = {number for number, other in enumerate(values) if other < value}
        assert found.matching({"n": value}) == found.matching({"n": {"$in": [value]}}) == same
        assert found.matching({"n": {"$lt": value}}) == below
        assert found.matching({"n": {"$gte": value}}) == set(range(len(values))) - below
        assert set(found.claimable({"n": value}, 20)) == same
    assert found.matching({"n": 0}) == {4, 7}


@pytest.mark.clause("records.pattern")
def test_neighbouring_doubles_are_told_apart_in_slots_and_inside_arrays(shelf: MakeShelf) -> None:
    base = [0.1, 1.2345678901234567e18, 1e300, 5e-324]
    values = [neighbour for value in base for neighbour in (value, math.nextafter(value, math.inf))]
    found = shelf({"n": "number", "ns": "number[]"}, [{"n": value, "ns": [value]} for value in values])
    for number, value in enumerate(values):
        assert found.matching({"n": value}) == {number}
        assert found.matching({"n": {"$in": [value]}}) == {number}
        assert found.matching({"ns": {"$any": [value]}}) == {number}
        assert found.matching({"ns": [value]}) == {number}


@pytest.mark.clause("records.pattern-safe")
def test_a_kind_cannot_declare_a_path_that_looks_like_an_operator(shelf: MakeShelf) -> None:
    for path in ("$and", "$eq", "$ref", "$where.x"):
        with pytest.raises(RequestInvalid):
            shelf({path: "any"})
    found = shelf({r"\$and": "any", r"\$ref.x": "any"}, [{"$and": 1, "$ref": {"x": 2}}, {}])
    assert found.matching({r"\$and": 1}) == found.matching({r"\$ref.x": 2}) == {0}

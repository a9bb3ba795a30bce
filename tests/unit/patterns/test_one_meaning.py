"""SQL and the reference evaluator give one answer for generated bodies, declared types and patterns."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.patterns.conftest import Shelf

TYPES: dict[str, Any] = {
    "any": "any",
    "odd.'\"$x": "any",
    "n": "number",
    "s": "string",
    "b": "boolean",
    "i": "instant",
    "ns": "number[]",
    "ss": "string[]",
    "bs": "boolean[]",
    "is": "instant[]",
}

ODD_TEXTS = ["", "a", "aa", "b", "1", "true", "n", "s", "é", "e\u0301", "\U0001f600", "\ufffd", "v%", "_"]
ODD_TEXTS += ["\x00", "a\x00", "a\x00b", "\x01", "\x02"]
ODD_NUMBERS = [0, 0.0, -0.0, 1, 1.0, -1, 0.1, 0.5, 2**53 - 1, float(2**53), 1e18, 1.2345678901234567e18, 1e20, 5e-324]
texts = st.sampled_from(ODD_TEXTS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
numbers = st.sampled_from([*ODD_NUMBERS, 1e300, -1e300]) | (
    st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
instants = st.sampled_from(
    [
        "2026-11-29T16:35:00Z",
        "2026-11-29T17:35:00+01:00",
        "2026-11-29T16:35:00.000Z",
        "2026-11-29t16:35:00.000000001z",
        "2026-11-29T16:35:00.5Z",
        "2026-11-29T15:35:00.500-01:00",
        "1969-12-31T23:59:59Z",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999999999Z",
    ]
)
scalars: dict[str, st.SearchStrategy[Any]] = {
    "number": numbers,
    "string": texts,
    "boolean": st.booleans(),
    "instant": instants,
}
anything = st.recursive(
    st.none() | st.booleans() | numbers | texts | instants,
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.sampled_from(["x", "y", "", "é"]), children, max_size=2)
    ),
    max_leaves=4,
)


def values(kind: str) -> st.SearchStrategy[Any]:
    if kind == "any":
        return anything
    if kind.endswith("[]"):
        return st.none() | st.lists(st.none() | scalars[kind[:-2]], max_size=4)
    return st.none() | scalars[kind]


bodies = st.fixed_dictionaries(
    {},
    optional={
        "any": anything,
        "odd": anything | st.fixed_dictionaries({}, optional={"'\"$x": anything}),
        **{path: values(kind) for path, kind in TYPES.items() if not kind.startswith("any")},
        "undeclared": anything,
    },
)


@st.composite
def operations(draw: st.DrawFn, path: str, seen: list[Any]) -> dict[str, Any]:
    """Operators on one path. Half of the operands are taken from the bodies, so that patterns do match."""
    kind = TYPES[path]
    value = values(kind) | st.sampled_from(seen) if seen else values(kind)
    choices: dict[str, st.SearchStrategy[Any]] = {
        "$eq": value,
        "$ne": value,
        "$in": st.lists(value, max_size=4),
        "$nin": st.lists(value, max_size=4),
        "$exists": st.booleans(),
    }
    if kind in ("number", "string", "instant", "any"):
        bound = st.none() | (numbers | texts if kind == "any" else scalars[kind])
        choices |= dict.fromkeys(["$gt", "$gte", "$lt", "$lte"], bound)
    if kind == "any" or kind.endswith("[]"):
        held = [item for found in seen if isinstance(found, list) for item in found]
        element = anything if kind == "any" else st.none() | scalars[kind[:-2]]
        element = element | st.sampled_from(held) if held else element
        choices |= {"$any": st.lists(element, max_size=3), "$all": st.lists(element, max_size=3)}
        choices["$size"] = st.integers(0, 4)
    names = draw(st.lists(st.sampled_from(sorted(choices)), min_size=1, max_size=3, unique=True))
    found = {name: draw(choices[name]) for name in names}
    return {"$not": found} if draw(st.integers(0, 4)) == 0 else found


def seen_at(path: str, shown: list[Any]) -> list[Any]:
    if path.startswith("odd"):
        inner = [body["odd"] for body in shown if isinstance(body.get("odd"), dict)]
        return [each["'\"$x"] for each in inner if "'\"$x" in each]
    return [body[path] for body in shown if path in body]


@st.composite
def matches(draw: st.DrawFn, shown: list[Any], depth: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in draw(st.lists(st.sampled_from(sorted(TYPES)), max_size=2, unique=True)):
        found[path] = draw(operations(path, seen_at(path, shown)))
    if depth < 2 and draw(st.booleans()):
        name = draw(st.sampled_from(["$and", "$or", "$nor", "$not"]))
        inner = matches(shown, depth + 1)
        found[name] = draw(inner if name == "$not" else st.lists(inner, max_size=2))
    return found


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Any], dict[str, Any]]:
    shown = draw(st.lists(bodies, min_size=1, max_size=8))
    return shown, draw(matches(shown))


@pytest.fixture(scope="module")
def typed() -> Iterator[Shelf]:
    shelf = Shelf(TYPES)
    yield shelf
    shelf.close()


@pytest.mark.clause("records.pattern-one-meaning", "records.pattern", "records.undeclared")
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(case=cases())
def test_sql_and_the_reference_agree_and_not_is_the_exact_complement(
    typed: Shelf, case: tuple[list[Any], dict[str, Any]]
) -> None:
    shown, match = case
    typed.fill(shown)
    found = typed.matching(match)
    others = set(range(len(shown))) - found
    assert typed.matching({"$not": match}) == others
    assert typed.matching({"$nor": [match]}) == others


@pytest.mark.clause("records.pattern-one-meaning", "records.claim")
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(case=cases(), limit=st.integers(1, 10), seed=st.randoms(use_true_random=False))
def test_a_claim_meets_the_same_records_in_claim_order(
    typed: Shelf, case: tuple[list[Any], dict[str, Any]], limit: int, seed: Any
) -> None:
    shown, match = case
    crowd = [seed.choice(shown) for _ in range(40)]
    priorities = [seed.choice([-1, 0, 0, 0, 7]) for _ in crowd]
    typed.fill(crowd, priorities)
    order = sorted(typed.evaluated(match), key=lambda seq: (-priorities[seq], seq))
    assert typed.claimable(match, limit) == order[:limit]

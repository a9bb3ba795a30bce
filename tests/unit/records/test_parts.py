"""The parts of records that need no database."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.catalog.access import Caller, Grant
from moorage.catalog.kinds import Kind, Retry
from moorage.catalog.paths import declare
from moorage.kernel import canonical
from moorage.kernel.instants import Instant
from moorage.records.model import Draft, Record, stored_json
from moorage.records.patterns import EVERYTHING, evaluate
from moorage.records.settle import digest_of
from moorage.records.visibility import narrowed
from moorage.store.chunks import CHUNK_BYTES, json_arrays

NOW = Instant(1_800_000_000_000)

numbers = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('abc"\\0123456789', max_size=20), inner, max_size=3),
    max_leaves=8,
)


@given(values)
@pytest.mark.clause("kernel.canonical-json", "records.publish")
def test_what_was_stored_is_read_back_as_it_came_in(value: object) -> None:
    text = canonical.dumps(value)
    read = stored_json(text)
    assert read == canonical.loads(text.encode())
    assert canonical.dumps(read) == text


def test_a_number_past_the_exact_ones_stays_a_double_and_text_stays_text() -> None:
    assert repr(stored_json('{"a":100000000000000000000,"b":9007199254740991,"c":"100000000000000000000"}')) == repr(
        {"a": 1e20, "b": 9007199254740991, "c": "100000000000000000000"}
    )
    assert repr(stored_json("[-9007199254740992,-100000000000000000000]")) == repr([-9007199254740992.0, -1e20])


@given(st.lists(st.integers(0, 5) | st.integers(CHUNK_BYTES // 3, CHUNK_BYTES // 2), max_size=12))
@pytest.mark.clause("kernel.limits")
def test_arrays_keep_every_element_in_order_and_stay_small(sizes: list[int]) -> None:
    elements = [json.dumps(f"{number}:" + "x" * size) for number, size in enumerate(sizes)]
    arrays = list(json_arrays(elements))
    assert [one for array in arrays for one in json.loads(array)] == [json.loads(one) for one in elements]
    assert all(len(array) <= CHUNK_BYTES + 1 for array in arrays)
    assert all(array != "[]" for array in arrays)


def test_an_array_is_measured_in_bytes_and_an_element_that_is_too_long_stands_alone() -> None:
    long = json.dumps("é" * CHUNK_BYTES, ensure_ascii=False)
    assert [len(json.loads(array)) for array in json_arrays(["1", long, "2", "3"])] == [1, 1, 2]
    assert list(json_arrays([])) == []


RESULT = Draft("mail", {"a": 1})


@pytest.mark.clause("records.settle-replay")
@pytest.mark.parametrize(
    ("other", "equal"),
    [
        (Draft("mail", {"a": 1.0}), True),
        (Draft("mail", {"a": 1}, parents=("anything",)), True),
        (Draft("mail", {"a": "1"}), False),
        (Draft("mail", {"a": True}), False),
        (Draft("post", {"a": 1}), False),
        (Draft("mail", {"a": 1}, metadata={"a": None}), False),
        (Draft("mail", {"a": 1}, priority=1), False),
        (Draft("mail", {"a": 1}, not_before=NOW), False),
        (Draft("mail", {"a": 1}, id="a"), False),
    ],
)
def test_a_settlement_is_the_same_when_its_results_mean_the_same(other: Draft, equal: bool) -> None:
    assert (digest_of([RESULT]) == digest_of([other])) == equal


def test_the_order_of_results_and_of_keys() -> None:
    second = Draft("mail", {"a": 2, "b": 3})
    assert digest_of([RESULT, second]) != digest_of([second, RESULT])
    assert digest_of([second]) == digest_of([Draft("mail", {"b": 3, "a": 2})])
    assert digest_of([]) != digest_of([Draft("mail", {})])


def kind(**types: str) -> Kind:
    paths = declare(types)  # type: ignore[arg-type]
    return Kind("mail", 1, paths, 30, 3, Retry(), None, NOW, NOW, "root")


def caller(*matches: dict[str, object] | None) -> Caller:
    return Caller("ann", tuple(Grant(frozenset({"read"}), ("mail",), match) for match in matches), "crd_ann")


@pytest.mark.clause("catalog.grants")
def test_narrowing_is_the_union_of_the_grants_that_fit() -> None:
    mail = kind(to="string")
    both = narrowed(caller({"to": "a"}, {"to": "b"}, {"gone": 1}), "read", mail)
    assert [evaluate(both, {"to": name}) for name in "abc"] == [True, True, False]
    assert narrowed(caller({"to": "a"}, None), "read", mail) == EVERYTHING
    assert not evaluate(narrowed(caller({"gone": 1}), "read", mail), {"to": "a"})
    assert not evaluate(narrowed(caller(None), "claim", mail), {"to": "a"})
    assert narrowed(Caller("root"), "claim", mail) == EVERYTHING


@pytest.mark.parametrize(
    ("state", "available", "shown"), [("ready", 0, NOW), ("ready", 1, None), ("claimed", 0, None), ("dead", 0, None)]
)
def test_not_before_is_shown_while_it_is_waited_for(state: str, available: int, shown: Instant | None) -> None:
    row = {
        "id": "a", "seq": 1, "kind": "mail", "body": "{}", "metadata": "{}", "parents": '["b","a"]', "state": state,
        "available": available, "created_at": NOW, "created_by": "root", "body_sha256": "", "priority": 0, "attempts": 0,
        "not_before": NOW, "ended_at": None, "failure": None, "ready_until": None,
    }  # fmt: skip
    assert Record.of(row).not_before == shown

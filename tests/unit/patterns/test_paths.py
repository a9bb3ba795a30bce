"""Declared paths: one text for each sequence of keys, and what a slot keeps of a body."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.catalog.paths import (
    MISSING,
    DeclaredPath,
    declare,
    encode_value,
    extract,
    parse_path,
    pointer,
    slots,
)
from moorage.kernel.errors import BodyInvalid, JsonInvalid, RequestInvalid
from moorage.kernel.limits import KIND_PATHS, PATH_BYTES, PATH_SEGMENTS, PATH_VALUE_BYTES

pytestmark = pytest.mark.clause("catalog.kind")


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("a", ("a",)),
        ("repository.private", ("repository", "private")),
        (r"a\.b", ("a.b",)),
        (r"a\\.b", ("a\\", "b")),
        (r"\\\.", ("\\.",)),
        ("", ("",)),
        (".", ("", "")),
        ("a..b", ("a", "", "b")),
        ("$", ("$",)),
        ("$.k", ("$", "k")),
        ("$1", ("$1",)),
        ("a.$ref", ("a", "$ref")),
        (r"\$ref", ("$ref",)),
        ("k') OR 1=1 --", ("k') OR 1=1 --",)),
        ("k\x00", ("k\x00",)),
    ],
)
def test_a_path_is_a_sequence_of_keys(text: str, segments: tuple[str, ...]) -> None:
    assert parse_path(text) == segments


@pytest.mark.parametrize("text", ["a\\", r"a\b", r"\$", r"\$1", r"a\$ref", "$ref", "$eq.x", "\ud800"])
def test_a_path_with_no_single_reading_is_refused(text: str) -> None:
    with pytest.raises(RequestInvalid, match="path "):
        parse_path(text)


@given(st.lists(st.text(st.sampled_from("a.\\$é"), max_size=4), min_size=1, max_size=4))
def test_every_sequence_of_keys_has_exactly_one_text(keys: list[str]) -> None:
    text = ".".join(key.replace("\\", "\\\\").replace(".", "\\.") for key in keys)
    text = "\\" + text if text[:1] == "$" and text[1:2].isalpha() and text[1:2].isascii() else text
    assert parse_path(text) == tuple(keys)


@pytest.mark.clause("kernel.limits")
def test_a_path_is_bounded_in_bytes_and_in_segments() -> None:
    assert parse_path("é" * (PATH_BYTES // 2)) == ("é" * (PATH_BYTES // 2),)
    assert len(parse_path("." * (PATH_SEGMENTS - 1))) == PATH_SEGMENTS
    for text in ("é" * (PATH_BYTES // 2) + "e", "." * PATH_SEGMENTS, "k" * 10_000, ".".join("k" * 200)):
        with pytest.raises(RequestInvalid):
            parse_path(text)


@pytest.mark.clause("kernel.limits")
def test_a_kind_has_sixteen_slots_and_redeclaring_moves_none() -> None:
    first = declare(dict.fromkeys("abc", "string"))
    assert [path.slot for path in first.values()] == [1, 2, 3]
    second = declare({"z": "number", "a": "string"}, first)
    assert {text: path.slot for text, path in second.items()} == {"a": 1, "b": 2, "c": 3, "z": 4}
    full = declare({str(number): "any" for number in range(KIND_PATHS)})
    assert sorted(path.slot for path in full.values()) == list(range(1, KIND_PATHS + 1))
    with pytest.raises(RequestInvalid):
        declare({"one more": "any"}, full)


def test_no_path_looks_into_an_array() -> None:
    body = {"a": [{"b": 1}], "0": ["x"], "s": "text", "o": {"": {"x": None}}}
    assert extract(body, ("a", "b")) is MISSING
    assert extract(body, ("a", "0")) is MISSING
    assert extract(body, ("0", "0")) is MISSING
    assert extract(body, ("s", "0")) is MISSING
    assert extract(body, ("o", "", "x")) is None
    assert extract(body, ("o", "", "y")) is MISSING
    assert extract([], ("a",)) is MISSING


@pytest.mark.parametrize(
    ("value", "kind", "encoded"),
    [
        (None, "string", "n"),
        (True, "boolean", "b1"),
        (False, "any", "b0"),
        (7, "number", 7),
        (7.0, "number", 7),
        (-0.0, "number", 0),
        (0.5, "any", 0.5),
        (1e20, "any", 1e20),
        ("x", "string", "sx"),
        ("", "any", "s"),
        ("2026-11-29T17:35:00+01:00", "instant", "i2026-11-29T16:35:00.000000000Z"),
        ("2026-11-29T17:35:00+01:00", "any", "s2026-11-29T17:35:00+01:00"),
        ([], "any", "a[]"),
        (["a", 1, 1.5, None, True, {"y": 1, "x": 2}], "any", 'a["sa","d1","d1.5","n","b1","o{\\"x\\":2,\\"y\\":1}"]'),
        (["2026-11-29T16:35:00Z"], "instant[]", 'a["i2026-11-29T16:35:00.000000000Z"]'),
        ({"b": 1.0, "a": {}}, "any", 'o{"a":{},"b":1}'),
    ],
)
def test_what_a_slot_keeps(value: Any, kind: Any, encoded: Any) -> None:
    found = encode_value(value, kind)
    assert (type(found), found) == (type(encoded), encoded)


@given(st.text(st.sampled_from("\x00\x01\x02ab"), max_size=5), st.text(st.sampled_from("\x00\x01\x02ab"), max_size=5))
def test_texts_without_nul_keep_their_order(one: str, other: str) -> None:
    first, second = encode_value(one, "string"), encode_value(other, "string")
    assert "\x00" not in str(first)
    assert (str(first) < str(second), first == second) == (one < other, one == other)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**53, -(2**53)])
def test_a_number_that_json_cannot_hold_has_no_encoding(value: Any) -> None:
    with pytest.raises(JsonInvalid):
        encode_value(value, "number")


WRONG: dict[str, list[Any]] = {
    "string": [1, True, [], {}, ["a"]],
    "number": ["1", True, [], {}],
    "boolean": [0, 1, "true", []],
    "instant": ["soon", "2026-11-29", "2026-11-29T16:35:00", "2026-02-30T00:00:00Z", 1, []],
    "string[]": ["a", [1], ["a", True], [["a"]], {}],
    "number[]": [1, ["1"], [True]],
    "boolean[]": [True, [1]],
    "instant[]": ["2026-11-29T16:35:00Z", ["soon"]],
}


@pytest.mark.clause("records.pattern")
@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind, values in WRONG.items() for value in values])
def test_another_type_than_declared_is_refused_with_its_pointer(kind: Any, value: Any) -> None:
    with pytest.raises(BodyInvalid) as raised:
        slots({"a/b": {"~": value}, "fine": 1}, declare({"a/b.~": kind, "fine": "number"}))
    assert raised.value.errors is not None
    assert [error["pointer"] for error in raised.value.errors] == ["/a~1b/~0"]
    assert kind in raised.value.detail
    assert pointer(("a/b", "~")) in raised.value.detail


@pytest.mark.clause("records.pattern")
def test_every_wrong_path_is_reported_and_null_is_of_every_type() -> None:
    paths = declare({"a": "string", "b": "number", "c": "any"})
    with pytest.raises(BodyInvalid) as raised:
        slots({"a": 1, "b": "x"}, paths)
    assert len(raised.value.errors or []) == 2
    assert slots({"a": None, "b": None}, paths) == ["n", "n", *[None] * 14]
    assert slots({"b": 2}, {"b": DeclaredPath("b", ("b",), "number", 16)}) == [*[None] * 15, 2]


@pytest.mark.clause("kernel.limits")
def test_a_value_is_bounded_in_bytes_as_canonical_json() -> None:
    paths = declare({"a": "any"})
    assert slots({"a": "é" * (PATH_VALUE_BYTES // 2 - 1)}, paths)[0] is not None
    assert slots({"a": ["x" * (PATH_VALUE_BYTES - 4)]}, paths)[0] is not None
    for value in ("é" * (PATH_VALUE_BYTES // 2 - 1) + "e", ["x" * (PATH_VALUE_BYTES - 3)]):
        with pytest.raises(BodyInvalid, match="4096"):
            slots({"a": value}, paths)

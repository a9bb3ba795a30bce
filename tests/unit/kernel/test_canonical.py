"""One strict way into JSON, one canonical way out, and the same value on both sides."""

import json
import math
import time
from decimal import Context, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.kernel import canonical
from moorage.kernel.errors import JsonInvalid, PayloadTooLarge
from moorage.kernel.limits import JSON_DEPTH, JSON_VALUES

pytestmark = pytest.mark.clause("kernel.canonical-json")

EXACT = 2**53 - 1
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers(-EXACT, EXACT) | st.floats(allow_nan=False, allow_infinity=False).map(
    lambda value: int(value) if value.is_integer() and abs(value) <= EXACT else value
)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(texts, children, max_size=4),
    max_leaves=12,
)


def same(left: Any, right: Any) -> bool:
    """Equality that tells True from 1 and 1 from 1.0."""
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return isinstance(right, dict) and left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    return type(left) is type(right) and bool(left == right)


@given(values)
def test_what_is_written_reads_back_as_the_same_value(value: Any) -> None:
    text = canonical.dumps(value)
    assert same(canonical.loads(text.encode()), value)
    assert canonical.dumps(canonical.loads(text.encode())) == text


@given(values, st.booleans(), st.sampled_from([None, 2]))
def test_every_spelling_of_a_value_has_one_canonical_text(value: Any, escaped: bool, indent: int | None) -> None:
    raw = json.dumps(value, ensure_ascii=escaped, indent=indent).encode()
    assert canonical.dumps(canonical.loads(raw)) == canonical.dumps(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        # Members are ordered by UTF-16 code units: an astral character stands before U+FB33.
        (
            {"€": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\x80": 6, "ö": 7},
            '{"\\r":2,"1":4,"\x80":6,"ö":7,"€":1,"\U0001f600":5,"\ufb33":3}',
        ),
        ('\x00\x08\t\n\x0b\x0c\r\x1f"\\/\x7fé\u2028', '"\\u0000\\b\\t\\n\\u000b\\f\\r\\u001f\\"\\\\/\x7fé\u2028"'),
        ([1e21, 1e20, 1e-6, 1e-7, 1e23], "[1e+21,100000000000000000000,0.000001,1e-7,1e+23]"),
        ([333333333.33333329, 4.5, 2e-3], "[333333333.3333333,4.5,0.002]"),
        ([5e-324, 1.7976931348623157e308, 9007199254740992.0], "[5e-324,1.7976931348623157e+308,9007199254740992]"),
        ([-0.0, 0.0, 0, 1.0, EXACT, -EXACT], "[0,0,0,1,9007199254740991,-9007199254740991]"),
        ({"b": [], "a": {}, "": None, "aa": True}, '{"":null,"a":{},"aa":true,"b":[]}'),
    ],
)  # fmt: skip
def test_canonical_text(value: Any, text: str) -> None:
    assert canonical.dumps(value) == text


def test_composed_and_decomposed_letters_stay_two_texts() -> None:
    assert canonical.dumps("\u00e9") != canonical.dumps("e\u0301")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 2**53, -(2**53), "\ud800", {"\ud800": 1}, {1: 2}])
def test_what_has_no_canonical_form_is_refused(value: Any) -> None:
    with pytest.raises(JsonInvalid, match="no canonical JSON"):
        canonical.dumps([value])


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("9007199254740992", 9007199254740992.0),
        ("-9007199254740992", -9007199254740992.0),
        ("9007199254740991", EXACT),
        ("-0", 0),
        ("-0.0", 0),
        ("0e999999999999", 0),
        ("0.1", 0.1),
        ("0.10000000000000001", 0.1),
        ("0.1000", 0.1),
        ("1.0", 1),
        ("1e2", 100),
        ("1e20", 1e20),
        ("100000000000000000000", 1e20),
        ("5e-324", 5e-324),
        ("123456789012345", 123456789012345),
    ],
)
def test_numbers_that_are_kept(raw: str, value: float) -> None:
    assert same(canonical.loads(raw.encode()), value)


@pytest.mark.parametrize(
    "raw",
    [
        "9007199254740993",
        "-9007199254740993",
        "12345678901234567890123",
        "123456789012345678",
        "1e400",
        "-1e400",
        "1e-400",
        "1e999999999999",
        "9007199254740992.5",
        "4503599627370497.3",
        "0.1234567890123456789",
        "1" * 5_000,
        "0." + "1" * 5_000,
    ],
)
def test_numbers_that_would_be_rounded_are_refused(raw: str) -> None:
    with pytest.raises(JsonInvalid, match="number"):
        canonical.loads(raw.encode())


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3) | st.integers().map(Decimal))
def test_an_accepted_number_is_never_rounded_in_silence(number: Decimal) -> None:
    try:
        value = canonical.loads(f"[{number:f}]".encode())[0]
    except JsonInvalid:
        return
    digits = len(number.as_tuple().digits)
    assert number in (Decimal(repr(value)), Context(prec=max(digits, 1)).create_decimal(value))
    assert float(canonical.dumps(value)) == float(number)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_printing_of_a_fraction_that_names_its_double_is_accepted(number: float) -> None:
    assert canonical.loads(repr(number).encode()) == number
    if not number.is_integer() and number != 0:
        assert canonical.loads(f"{number:.17g}".encode()) == number


@pytest.mark.parametrize(
    "raw",
    [
        *["NaN", "Infinity", "-Infinity", "01", "+1", ".5", "1.", "-", "0x1", "1_0", "nul", "True", "", " ", "1 2", "[1,]"],
        *["{'a':1}", '{"a":1,}', "{a:1}", '"\x01"', '"\\x"', "\ufeff1", "1\x00", "[1]\x0c", "//x\n1", '{"a"}'],
    ],
)
def test_what_is_not_json_is_refused(raw: str) -> None:
    with pytest.raises(JsonInvalid):
        canonical.loads(raw.encode())


@pytest.mark.parametrize(
    "raw", [b'"\xff"', b"\xed\xa0\x80", b'"\xed\xa0\x80"', '"é"'.encode("latin-1"), "1".encode("utf-16")]
)
def test_what_is_not_utf8_is_refused(raw: bytes) -> None:
    with pytest.raises(JsonInvalid):
        canonical.loads(raw)


@pytest.mark.parametrize("raw", [r'"\ud800"', r'"\udc00\ud800"', r'{"\ud83d":1}', r'["a\uDFFF"]', r'"\ud800x"'])
def test_a_lone_surrogate_is_refused_wherever_it_stands(raw: str) -> None:
    with pytest.raises(JsonInvalid):
        canonical.loads(raw.encode())


def test_a_pair_of_surrogates_is_one_character() -> None:
    assert canonical.loads(rb'"\ud83d\ude00 \uD800\uDC00"') == "\U0001f600 \U00010000"


@pytest.mark.parametrize(
    "raw",
    [
        '{"amount":1,"amount":9000}',
        '{"a":{"b":1,"b":2}}',
        '{"a":0,"a":-0}',
        '{"a":1,"a":1}',
        '[[{"x":[{"k":null,"j":1,"k":null}]}]]',
        r'{"a":1,"\u0061":2}',
        '{"":1,"":2}',
    ],
)
def test_a_key_that_stands_twice_is_refused_at_any_depth(raw: str) -> None:
    with pytest.raises(JsonInvalid, match="stands twice"):
        canonical.loads(raw.encode())


@given(values, texts, st.integers(0, 20))
def test_a_key_twice_is_refused_inside_any_value(value: Any, key: str, depth: int) -> None:
    name = json.dumps(key)
    raw = f"{{{name}:{json.dumps(value)},{name}:{json.dumps(value)}}}"
    with pytest.raises(JsonInvalid, match="stands twice"):
        canonical.loads(("[" * depth + raw + "]" * depth).encode())


def test_keys_that_mean_something_to_other_languages_are_plain_data() -> None:
    raw = '{"__proto__":{"x":1},"constructor":2}'
    assert canonical.dumps(canonical.loads(raw.encode())) == raw


@pytest.mark.clause("kernel.limits")
@pytest.mark.parametrize(("opening", "inner", "closing"), [("[", "", "]"), ('{"a":', "0", "}"), ('[{"a":', "[]", "}]")])
def test_nesting_to_the_bound_and_one_past_it(opening: str, inner: str, closing: str) -> None:
    levels = opening.count("[") + opening.count("{")
    inside = 1 if inner == "[]" else 0
    times = (JSON_DEPTH - inside) // levels
    raw = opening * times + inner + closing * times
    extra = JSON_DEPTH - inside - times * levels
    at_bound = "[" * extra + raw + "]" * extra
    value = canonical.loads(at_bound.encode())
    assert canonical.depth(value) == JSON_DEPTH
    assert canonical.dumps(value) == at_bound
    with pytest.raises(JsonInvalid, match="deeper than 64"):
        canonical.loads(f"[{at_bound}]".encode())


@pytest.mark.parametrize("levels", [500, 1_000, 5_000, 20_000, 200_000])
def test_any_depth_is_refused_and_survived(levels: int) -> None:
    for raw in ("[" * levels + "]" * levels, '{"a":' * levels + "0" + "}" * levels, "[" * levels, '{"a":' * levels):
        with pytest.raises(JsonInvalid):
            canonical.loads(raw.encode())
    assert canonical.loads(b"[1]") == [1]


@pytest.mark.clause("kernel.limits")
@pytest.mark.parametrize(("item", "cost"), [("0", 1), ("[]", 2), ("{}", 2), ('"a,[{"', 1), (r'"\",["', 1)])
def test_values_to_the_bound_and_one_past_it(item: str, cost: int) -> None:
    # The array's own bracket counts, and the first item has no comma.
    items = JSON_VALUES // cost
    assert len(canonical.loads(f"[{','.join([item] * items)}]".encode())) == items
    with pytest.raises(PayloadTooLarge, match=str(JSON_VALUES)):
        canonical.loads(f"[{','.join([item] * (items + 1))}]".encode())


@pytest.mark.parametrize(
    "text", ['"' + '\\"' * 3_000_000, '"' + "," * 3_000_000, '"' + ',\\"' * 2_000_000, '",' * 2_000_000]
)
def test_strings_that_never_end_are_refused_in_one_pass(text: str) -> None:
    began = time.process_time()
    with pytest.raises((JsonInvalid, PayloadTooLarge)):
        canonical.loads(b"[" + text.encode())
    assert time.process_time() - began < 5


@pytest.mark.parametrize(("value", "levels"), [(0, 0), ("[[", 0), ([], 1), ({}, 1), ([{}, [[]]], 3), ({"a": {"b": 1}}, 2)])
def test_depth_counts_what_is_inside_one_another(value: Any, levels: int) -> None:
    assert canonical.depth(value) == levels


@pytest.mark.parametrize(
    ("value", "name"),
    [(None, "null"), (True, "boolean"), (1, "number"), (1.5, "number"), ("", "string"), ([], "array"), ({}, "object")],
)
def test_json_names_of_types(value: Any, name: str) -> None:
    assert canonical.type_name(value) == name


def test_a_digest_is_of_the_canonical_bytes() -> None:
    one, other = canonical.loads(b'{"b":1.0,"a":"\\u00e9"}'), canonical.loads('{ "a": "é", "b": 1 }'.encode())
    assert canonical.digest(canonical.dumps(one)) == canonical.digest(canonical.dumps(other))
    assert canonical.digest("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert canonical.size("é\U0001f600") == 6

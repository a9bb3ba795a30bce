"""Each content type has one canonical payload."""

import base64
import json
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.awakeables.payloads import Payload, read
from moorage.kernel.content import CHARSETS
from moorage.kernel.errors import JsonInvalid, MoorageError, PayloadTooLarge, UnsupportedMediaType
from moorage.kernel.limits import AWAKE_PAYLOAD_BYTES, JSON_DEPTH, JSON_VALUES

pytestmark = pytest.mark.clause("awake.content-types")

FORM = "application/x-www-form-urlencoded"


def value(content_type: str | None, raw: bytes) -> Any:
    return json.loads(read(content_type, raw).text)


@pytest.mark.parametrize("content_type", [None, "", "application/json", FORM, "text/plain", "image/png", "nonsense"])
def test_an_empty_body_is_null(content_type: str | None) -> None:
    assert read(content_type, b"").text == "null"


@pytest.mark.parametrize(
    ("content_type", "raw", "expected"),
    [
        ("application/json", b' {"b": [1.0, null], "a": "x"} ', {"a": "x", "b": [1, None]}),
        ("APPLICATION/JSON; charset=UTF-8", b"null", None),
        ("application/cloudevents+json", b"[true]", [True]),
        ("application/problem+json;charset=us-ascii", b'"text"', "text"),
        (FORM, b"a=1&b=x+y&a=2%2B3&c", {"a": ["1", "2+3"], "b": ["x y"], "c": [""]}),
        (FORM, b"a%3Db=%26&=empty&a%20b=", {"a=b": ["&"], "": ["empty"], "a b": [""]}),
        (FORM, "name=é&other=%C3%A9".encode(), {"name": ["é"], "other": ["é"]}),
        (FORM + "; charset=iso-8859-1", b"name=%E9", {"name": ["é"]}),
        (FORM, b"a=1;b=2", {"a": ["1;b=2"]}),
        (FORM, b"&&", {}),
        ("text/plain", "déjà vu\r\n\x00".encode(), "déjà vu\r\n\x00"),
        ("text/plain; format=flowed; charset=latin-1", b"d\xe9j\xe0", "déjà"),
        ('text/csv; charset="utf-16-le"', "a,b".encode("utf-16-le"), "a,b"),
        ("text/json", b'{"a":1}', '{"a":1}'),
        ("text/plain", b" ", " "),
    ],
)
def test_the_canonical_payload(content_type: str, raw: bytes, expected: Any) -> None:
    assert value(content_type, raw) == expected


@pytest.mark.parametrize("content_type", ["application/octet-stream", "image/png", "multipart/form-data; boundary=x"])
def test_other_bytes_are_kept_with_their_type(content_type: str) -> None:
    raw = bytes(range(256))
    assert value(content_type, raw) == {"content_type": content_type, "base64": base64.b64encode(raw).decode()}


@pytest.mark.parametrize("content_type", [None, "", "  "])
def test_a_body_without_a_type_is_bytes(content_type: str | None) -> None:
    assert value(content_type, b"hi") == {"content_type": "application/octet-stream", "base64": "aGk="}


@pytest.mark.parametrize(
    "raw",
    [b"{", b" ", b"{}{}", b'{"a":1,"a":2}', b"NaN", b'"\\ud800"', b"\xff", b"\xef\xbb\xbf{}", b"01", b"1e400"],
)
def test_malformed_json_is_refused(raw: bytes) -> None:
    with pytest.raises(JsonInvalid):
        read("application/json", raw)


@pytest.mark.parametrize("count", [JSON_DEPTH + 1, 5_000, 500_000])
def test_deep_json_is_refused_safely(count: int) -> None:
    assert value("application/json", b"[" * JSON_DEPTH + b"]" * JSON_DEPTH)
    with pytest.raises(JsonInvalid):
        read("application/json", b"[" * count + b"]" * count)


@pytest.mark.parametrize(
    ("content_type", "raw"),
    [
        ("json", b"{}"),
        ("application/", b"{}"),
        ("application/json, text/plain", b"{}"),
        ("application/json; charset=utf-16", b"{}"),
        ("text/plain; charset=nonsense", b"hi"),
        ("text/plain; charset=", b"hi"),
        ("text/plain; charset=rot13", b"hi"),
        ("text/plain; charset=idna", b"hi"),
        ("text/plain; charset=unicode_escape", b"\\ud800"),
        ("text/plain", b"\xff\xfe"),
        ("text/plain; charset=ascii", b"\xe9"),
        ("text/plain; charset=utf-16-le", b"\x00\xd8"),
        (FORM, b"a=\xff"),
        (FORM, b"a=%FF"),
        ("text/plain; x=" + "y" * 2000, b"hi"),
    ],
)
def test_a_type_or_charset_that_cannot_be_read_is_refused(content_type: str, raw: bytes) -> None:
    with pytest.raises(UnsupportedMediaType):
        read(content_type, raw)


@pytest.mark.clause("kernel.limits")
def test_the_limit_holds_for_the_body_and_for_its_canonical_json() -> None:
    longest = b'"' + b"x" * (AWAKE_PAYLOAD_BYTES - 2) + b'"'
    assert len(read("application/json", longest).text) == AWAKE_PAYLOAD_BYTES
    assert len(read("text/plain", b"x" * (AWAKE_PAYLOAD_BYTES - 2)).text) == AWAKE_PAYLOAD_BYTES
    for content_type, raw in (
        ("application/json", longest + b" "),
        ("text/plain", b"x" * (AWAKE_PAYLOAD_BYTES - 1)),
        ("text/plain", b"\x00" * (AWAKE_PAYLOAD_BYTES // 2)),
        ("image/png", b"x" * (AWAKE_PAYLOAD_BYTES - 100)),
    ):
        with pytest.raises(PayloadTooLarge):
            read(content_type, raw)


def test_a_form_has_a_bounded_number_of_fields() -> None:
    assert len(value(FORM, b"a&" * (JSON_VALUES - 1) + b"a")["a"]) == JSON_VALUES
    with pytest.raises(PayloadTooLarge, match=str(JSON_VALUES)):
        read(FORM, b"a&" * JSON_VALUES + b"a")


@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8"))), min_size=1))
def test_every_form_reads_back(pairs: list[tuple[str, str]]) -> None:
    expected: dict[str, list[str]] = {}
    for name, field in pairs:
        expected.setdefault(name, []).append(field)
    assert value(FORM, urlencode(pairs).encode()) == expected


@given(st.sampled_from(sorted(CHARSETS)), st.text(st.characters(codec="ascii"), min_size=1))
def test_text_reads_back_in_every_charset(charset: str, text: str) -> None:
    if charset == "shift_jis":  # which has a yen sign and an overline in these two places
        text = text.replace("\\", "/").replace("~", "-")
    assert value(f"text/plain; charset={charset}", text.encode(charset)) == text


@given(st.none() | st.text(max_size=60), st.binary(max_size=200))
def test_whatever_comes_is_a_payload_or_a_named_refusal(content_type: str | None, raw: bytes) -> None:
    try:
        payload = read(content_type, raw)
    except MoorageError as error:
        assert error.status in (400, 415)  # noqa: PT017  a refusal is one of two outcomes
    else:
        assert payload == Payload.of(json.loads(payload.text))

"""CloudEvents 1.0 in every mode: what is read, what is refused, and that the CloudEvents SDK agrees, both ways."""

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event, to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from moorage.kernel import canonical
from moorage.kernel.errors import JsonInvalid, MoorageError, PayloadTooLarge, RequestInvalid, UnsupportedMediaType
from moorage.kernel.limits import (
    EVENT_ATTRIBUTE_CHARACTERS,
    EVENT_ATTRIBUTES,
    EVENT_BATCH,
    EVENT_DATA_BYTES,
    JSON_DEPTH,
)
from moorage.messages.inbox.accept import content_of
from moorage.messages.inbox.cloudevents import BATCH, JSON, STRUCTURED, is_batch, is_cloud_event, read, read_batch
from moorage.messages.inbox.model import EventDraft

LEAST = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order.paid"}
HEADERS = {f"ce-{name}": value for name, value in LEAST.items()}
TEXT = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=20)
NAMES = st.from_regex(r"ext[a-z0-9]{1,12}", fullmatch=True)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(2**53) + 1, 2**53 - 1), TEXT)
DATA = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))
OBJECTS = st.dictionaries(TEXT, DATA, max_size=4)


def of(event: Any) -> EventDraft:
    """The draft of an event in structured mode."""
    return read(STRUCTURED, {}, json.dumps(event).encode())


def shown(draft: EventDraft) -> dict[str, Any]:
    """The event as a client would be shown it."""
    value: dict[str, Any] = json.loads(content_of(draft))
    return value


def code_of(content_type: str | None, headers: Mapping[str, str], raw: bytes) -> str:
    """What reading a request comes to."""
    try:
        read(content_type, headers, raw)
    except MoorageError as error:
        return error.code
    return "read"


# --- held to the SDK ------------------------------------------------------------------------------------------------


@st.composite
def sdk_events(draw: st.DrawFn) -> CloudEvent:
    attributes: dict[str, Any] = {
        "id": draw(TEXT),
        "source": draw(st.sampled_from(["/shop", "https://shop.example/a?b=%20#c", "urn:shop:42"])),
        "type": draw(TEXT),
        "specversion": "1.0",
        "time": draw(st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1), timezones=st.just(UTC))),  # noqa: DTZ001
    }
    if draw(st.booleans()):
        attributes["subject"] = draw(TEXT)
    if draw(st.booleans()):
        attributes["dataschema"] = "https://shop.example/schema"
    attributes.update(draw(st.dictionaries(NAMES, TEXT, max_size=3)))
    return CloudEvent(attributes, draw(st.one_of(st.none(), OBJECTS)))


@pytest.mark.clause("inbox.accept")
@given(sdk_events())
def test_what_the_sdk_writes_is_read_alike_in_both_modes_and_read_back_by_it(event: CloudEvent) -> None:
    drafts = []
    for message in (to_structured_event(event), to_binary_event(event)):
        content_type = message.headers.get("content-type")
        drafts.append(read(content_type, message.headers, message.body))
    assert drafts[0] == drafts[1]
    told = content_of(drafts[0]).encode()
    back = from_http_event(HTTPMessage({"content-type": STRUCTURED}, told))
    assert back.get_data() == event.get_data()
    assert back.get_attributes() == event.get_attributes()
    again = to_binary_event(back)
    assert read(again.headers.get("content-type"), again.headers, again.body) == drafts[0]


@pytest.mark.clause("inbox.accept")
@pytest.mark.parametrize(
    ("content_type", "data", "kept"),
    [
        (None, {"a": 1}, {"data": {"a": 1}}),
        ("application/json", {"a": 1}, {"data": {"a": 1}}),
        ("application/vnd.shop+json; charset=utf-8", {"a": 1}, {"data": {"a": 1}}),
        ("text/plain", "äöü", {"data": "äöü"}),
        ("application/xml", "<a/>", {"data": "<a/>"}),
        ("application/octet-stream", b"\x00\xff", {"data_base64": "AP8="}),
        ("image/png", b"\x89PNG", {"data_base64": "iVBORw=="}),
        ("text/plain", None, {}),
    ],
)
def test_data_of_every_type_in_both_modes(content_type: str | None, data: Any, kept: dict[str, Any]) -> None:
    typed = {} if content_type is None else {"datacontenttype": content_type}
    event = CloudEvent({**LEAST, **typed, "time": datetime(2026, 11, 30, tzinfo=UTC)}, data)
    structured, binary = to_structured_event(event), to_binary_event(event)
    for message in (structured, binary):
        draft = read(message.headers.get("content-type"), message.headers, message.body)
        told = shown(draft)
        assert {name: told[name] for name in told if name.startswith("data") and name != "datacontenttype"} == kept
        assert told.get("datacontenttype") == content_type
        back = from_http_event(HTTPMessage({"content-type": STRUCTURED}, content_of(draft).encode()))
        assert back.get_data() == data


def test_the_sdk_reads_a_batch_event_by_event() -> None:
    events = [CloudEvent({**LEAST, "id": f"{n}", "time": datetime(2026, 11, 30, tzinfo=UTC)}, {"n": n}) for n in range(3)]
    raw = b"[" + b",".join(to_structured_event(event).body for event in events) + b"]"
    drafts = read_batch(BATCH, raw)
    assert [draft.delivery_id for draft in drafts] == ["0", "1", "2"]
    back = [from_http_event(HTTPMessage({"content-type": STRUCTURED}, content_of(one).encode())) for one in drafts]
    assert [event.get_data() for event in back] == [{"n": 0}, {"n": 1}, {"n": 2}]


# --- modes ----------------------------------------------------------------------------------------------------------


def test_the_mode_is_told_by_the_type_and_the_headers() -> None:
    raw = json.dumps(LEAST).encode()
    assert read(STRUCTURED, {}, raw) == read(f"{STRUCTURED}; charset=UTF-8", HEADERS, raw) == read(JSON, {}, raw)
    assert read("application/json", HEADERS, b'{"id":"data"}').data == '{"id":"data"}'
    assert read(None, HEADERS, b"").data is None
    assert read("", {name.upper(): value for name, value in HEADERS.items()}, b"1").data == "1"
    for content_type, headers, expected in (
        (None, {}, "UnsupportedMediaType"),
        ("text/plain", {}, "UnsupportedMediaType"),
        ("application/cloudevents+avro", HEADERS, "UnsupportedMediaType"),
        (BATCH, {}, "UnsupportedMediaType"),
        (f"{STRUCTURED}; charset=latin-1", {}, "UnsupportedMediaType"),
        ("application/json; charset=utf-16", HEADERS, "UnsupportedMediaType"),
    ):
        assert code_of(content_type, headers, raw) == expected, content_type
    assert is_batch("Application/CloudEvents-Batch+JSON; charset=utf-8")
    assert not is_batch(STRUCTURED)
    assert is_cloud_event(STRUCTURED, {})
    assert is_cloud_event(None, {"CE-SpecVersion": "1.0"})
    assert not is_cloud_event(JSON, {"ce-id": "1"})


def test_headers_are_unquoted_and_percent_decoded() -> None:
    headers = {**HEADERS, "ce-subject": "Euro%20%E2%82%AC%20%F0%9F%98%80", "ce-extone": '"a \\"b\\" 100%25"'}
    attributes = read(None, headers, b"").attributes
    assert attributes == {"subject": "Euro € 😀", "extone": 'a "b" 100%'}
    assert read(None, {**HEADERS, "ce-subject": "ä".encode().decode("latin-1")}, b"").attributes["subject"] == "ä"
    for bad in ("%E2%82", "%zz", "50%", "\xe4", "\u20ac", "%00", "%0A"):
        assert code_of(None, {**HEADERS, "ce-subject": bad}, b"") == "RequestInvalid", bad
    # What the edge gives for bytes that are no UTF-8: two ids would be one.
    assert code_of(None, {**HEADERS, "ce-id": "\ufffd".encode().decode("latin-1")}, b"") == "RequestInvalid"
    assert read(None, {**HEADERS, "ce-id": "%EF%BF%BD"}, b"").delivery_id == "\ufffd"
    assert code_of(None, {**HEADERS, "CE-ID": "2"}, b"") == "RequestInvalid"
    assert code_of(None, {**HEADERS, "ce-datacontenttype": "text/plain"}, b"") == "RequestInvalid"
    assert code_of(None, {**HEADERS, "ce-data": "1"}, b"") == "RequestInvalid"
    assert code_of(None, {**HEADERS, "ce-data_base64": "MQ=="}, b"") == "RequestInvalid"


def test_what_is_wrong_with_a_header_is_told_at_its_name() -> None:
    for name, value in (("specversion", "2"), ("id", ""), ("source", "not a uri"), ("type", "%00"), ("time", "noon")):
        with pytest.raises(RequestInvalid) as caught:
            read(None, {**HEADERS, f"ce-{name}": value}, b"")
        assert [one["pointer"] for one in caught.value.errors or ()] == [f"/headers/ce-{name}"]
    for content_type in ("text", "text/plain; " + "x" * 1024):
        with pytest.raises(RequestInvalid) as caught:
            read(content_type, HEADERS, b"x")
        assert [one["pointer"] for one in caught.value.errors or ()] == ["/headers/content-type"]


# --- what an event is -----------------------------------------------------------------------------------------------


@pytest.mark.clause("inbox.accept", "inbox.actor", "inbox.causation")
def test_what_the_attributes_mean() -> None:
    event = {
        **LEAST,
        "subject": "order-7",
        "correlationid": "c-1",
        "causationid": "evt_1",
        "actor": "operator:me",
        "extn": 7,
    }
    draft = of({**event, "exttrue": True, "extnull": None, "data": {"b": 1, "a": None}})
    assert draft == EventDraft(
        "/shop",
        "1",
        "order.paid",
        {"subject": "order-7", "correlationid": "c-1", "causationid": "evt_1", "extn": 7, "exttrue": True},
        '{"a":null,"b":1}',
        ("order-7", "c-1"),
        causation="evt_1",
    )
    assert of({**LEAST, "subject": "x", "correlationid": "x"}).keys == ("x",)
    assert of({**LEAST, "data": None}).data == "null"
    assert of({**LEAST, "data_base64": None}).data is None
    encoded = base64.b64encode(b'{"a":1}').decode()
    assert of({**LEAST, "datacontenttype": "application/json", "data_base64": encoded}).data == '{"a":1}'


_NO_TEXTS: list[Any] = ["", 1, None, {}]
REFUSED: list[Any] = [
    None,
    [],
    "event",
    *({name: value for name, value in LEAST.items() if name != left} for left in LEAST),
    *({**LEAST, name: value} for name in LEAST for value in _NO_TEXTS),
    {**LEAST, "specversion": "0.3"},
    {**LEAST, "specversion": "1.00"},
    {**LEAST, "Subject": "x"},
    {**LEAST, "ext_one": "x"},
    {**LEAST, "": "x"},
    {**LEAST, "ünder": "x"},
    {**LEAST, "ext": 1.5},
    {**LEAST, "ext": 2**31},
    {**LEAST, "ext": -(2**31) - 1},
    {**LEAST, "ext": {}},
    {**LEAST, "ext": ["x"]},
    {**LEAST, "ext": "a\u0000b"},
    {**LEAST, "subject": ""},
    {**LEAST, "subject": 7},
    {**LEAST, "subject": True},
    {**LEAST, "causationid": 7},
    {**LEAST, "correlationid": ""},
    {**LEAST, "source": "with space"},
    {**LEAST, "source": "%zz"},
    {**LEAST, "source": "/ü"},
    {**LEAST, "id": "a\nb"},
    {**LEAST, "time": "yesterday"},
    {**LEAST, "time": "2026-11-30"},
    {**LEAST, "time": "2026-11-30T00:00:00"},
    {**LEAST, "time": 5},
    {**LEAST, "dataschema": "relative"},
    {**LEAST, "datacontenttype": "json"},
    {**LEAST, "data": 1, "data_base64": "MQ=="},
    {**LEAST, "data": None, "data_base64": "MQ=="},
    {**LEAST, "data_base64": "not base64"},
    {**LEAST, "data_base64": "MQ"},
    {**LEAST, "data_base64": 1},
    {**LEAST, "datacontentencoding": "base64", "data_base64": {}},
]


@pytest.mark.clause("inbox.accept")
@pytest.mark.parametrize("event", REFUSED, ids=repr)
def test_what_is_no_event_is_refused(event: Any) -> None:
    with pytest.raises(RequestInvalid) as caught:
        of(event)
    assert caught.value.errors is None or len(caught.value.errors) == 1
    with pytest.raises(RequestInvalid):
        read_batch(BATCH, json.dumps([LEAST, event]).encode())


def test_errors_of_a_batch_point_to_the_event() -> None:
    with pytest.raises(RequestInvalid) as caught:
        read_batch(BATCH, json.dumps([LEAST, {**LEAST, "subject": ""}]).encode())
    assert caught.value.errors == [{"pointer": "/1/subject", "message": "must not be empty"}]
    with pytest.raises(RequestInvalid):
        read_batch(BATCH, json.dumps(LEAST).encode())
    assert read_batch(BATCH, b"[]") == []


# --- numbers, depth, duplicate keys (C13, C14, C27) ------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["structured", "binary", "batch"])
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ('{"n":9007199254740992}', '{"n":9007199254740992}'),
        ('{"n":9007199254740993}', JsonInvalid),
        ('{"n":12345678901234567890123}', JsonInvalid),
        ('{"n":1e400}', JsonInvalid),
        ('{"n":-0}', '{"n":0}'),
        ('{"n":0.1}', '{"n":0.1}'),
        ('{"n":1.0}', '{"n":1}'),
        ('{"n":1e-400}', JsonInvalid),
        ('{"n":NaN}', JsonInvalid),
        ('{"n":Infinity}', JsonInvalid),
        ('{"n":01}', JsonInvalid),
        ('{"n":+1}', JsonInvalid),
        ('{"amount":1,"amount":9000}', JsonInvalid),
        ('{"a":{"b":1,"b":2}}', JsonInvalid),
        ('{"a":0,"a":-0}', JsonInvalid),
        ('{"__proto__":{"x":1},"constructor":2}', '{"__proto__":{"x":1},"constructor":2}'),
        ('{"s":"\\ud800"}', JsonInvalid),
    ],
)
def test_one_strict_parser_reads_data(mode: str, data: str, expected: Any) -> None:
    event = (json.dumps(LEAST)[:-1] + f',"data":{data}}}').encode()

    def taken() -> EventDraft:
        if mode == "binary":
            return read("application/json", HEADERS, data.encode())
        return read(STRUCTURED, {}, event) if mode == "structured" else read_batch(BATCH, b"[" + event + b"]")[0]

    if isinstance(expected, str):
        assert taken().data == expected
    else:
        with pytest.raises(expected):
            taken()


def test_keys_of_the_event_itself_stand_once() -> None:
    assert code_of(STRUCTURED, {}, json.dumps(LEAST).encode()[:-1] + b',"id":"2"}') == "JsonInvalid"


@pytest.mark.parametrize("depth", [50, JSON_DEPTH - 1, JSON_DEPTH, JSON_DEPTH + 1, 500, 1000, 5000, 20_000])
def test_depth_is_bounded_with_the_event_around_it(depth: int) -> None:
    for data in ("[" * depth + "]" * depth, '{"a":' * depth + "0" + "}" * depth):
        whole = (json.dumps(LEAST)[:-1] + f',"data":{data}}}').encode()
        assert code_of(STRUCTURED, {}, whole) == ("read" if depth < JSON_DEPTH else "JsonInvalid")
        assert code_of(JSON, HEADERS, data.encode()) == ("read" if depth <= JSON_DEPTH else "JsonInvalid")


# --- bounds ---------------------------------------------------------------------------------------------------------


@pytest.mark.clause("kernel.limits")
def test_the_bounds_of_what_is_read() -> None:
    longest = "x" * EVENT_ATTRIBUTE_CHARACTERS
    of({**LEAST, "ext": longest, "id": longest, "subject": longest})
    most = {f"ext{n}": "x" for n in range(EVENT_ATTRIBUTES)}
    of({**LEAST, **most, "data_base64": "MQ=="})
    for past in ({**LEAST, "ext": longest + "x"}, {**LEAST, "id": longest + "x"}, {**LEAST, **most, "another": "x"}):
        with pytest.raises(RequestInvalid):
            of(past)
    content = bytes(EVENT_DATA_BYTES)
    kept = read("application/octet-stream", HEADERS, content)
    assert of({**LEAST, "datacontenttype": "application/octet-stream", **shown(kept)}) == kept
    text = json.dumps("x" * (EVENT_DATA_BYTES - 2)).encode()
    assert read(JSON, HEADERS, text).data == text.decode()
    for content_type, raw in (
        ("image/png", content + b"x"),
        (JSON, text + b" "),
        ("text/plain", b"x" * (EVENT_DATA_BYTES - 1)),
    ):
        with pytest.raises(PayloadTooLarge):
            read(content_type, HEADERS, raw)
    with pytest.raises(PayloadTooLarge):
        of({**LEAST, "data_base64": base64.b64encode(content + b"x").decode()})
    assert len(read_batch(BATCH, json.dumps([LEAST] * EVENT_BATCH).encode())) == EVENT_BATCH
    with pytest.raises(RequestInvalid):
        read_batch(BATCH, json.dumps([LEAST] * (EVENT_BATCH + 1)).encode())


@given(
    st.binary(max_size=60), st.sampled_from([None, STRUCTURED, JSON, "text/plain", "image/png", "nonsense"]), st.booleans()
)
def test_whatever_comes_is_read_or_refused(raw: bytes, content_type: str | None, headed: bool) -> None:
    assert code_of(content_type, HEADERS if headed else {}, raw) in {
        "read",
        "JsonInvalid",
        "RequestInvalid",
        "UnsupportedMediaType",
    }


def test_the_digest_is_that_of_the_canonical_event() -> None:
    draft = of({**LEAST, "subject": "s", "data": {"b": [1, "é"], "a": 0.1}, "zebra": "z"})
    assert content_of(draft) == canonical.dumps(shown(draft))
    assert content_of(replace(draft, data=None)) == canonical.dumps(shown(replace(draft, data=None)))


def test_types_that_are_not_taken_say_which_are() -> None:
    with pytest.raises(UnsupportedMediaType) as caught:
        read("text/plain", {}, b"x")
    assert STRUCTURED in caught.value.members["accepted"]

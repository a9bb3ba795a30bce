"""What a verified webhook becomes: its id, its type, its keys and its data (clauses inbox.accept, awake.content-types)."""

import json
from typing import Any
from urllib.parse import quote_plus, urlencode

import pytest
from cloudevents.core.bindings.http import to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from moorage.catalog.model import Scheme, SenderEventDeclaration
from moorage.catalog.senders import Sender
from moorage.kernel.errors import (
    JsonInvalid,
    MoorageError,
    PayloadTooLarge,
    RequestError,
    RequestInvalid,
    UnsupportedMediaType,
)
from moorage.kernel.instants import Instant
from moorage.kernel.limits import EVENT_DATA_BYTES
from moorage.messages.inbox.checks import check
from moorage.messages.inbox.model import EventDraft
from moorage.messages.inbox.webhooks import Webhook, at

pytestmark = pytest.mark.clause("inbox.accept")

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"


def sender(scheme: Scheme = "github", **event: Any) -> Sender:
    """A sender, with what it says of its events."""
    told = SenderEventDeclaration.model_validate(event) if event else None
    return Sender("shop", scheme, "s", 300, Instant(0), Instant(0), 1, told)


def read(raw: bytes, scheme: Scheme = "github", content_type: str | None = JSON, /, **told: Any) -> Webhook:
    """A webhook as it came; headers are told in lower case with `_` for `-`, `event` is the sender's."""
    event = told.pop("event", {})
    headers = {name.replace("_", "-"): value for name, value in told.items()}
    return Webhook.read(
        sender(scheme, **event), headers | ({} if content_type is None else {"Content-Type": content_type}), raw
    )


def event(raw: Any, scheme: Scheme = "github", content_type: str | None = JSON, /, **told: Any) -> EventDraft:
    """The event that a webhook is; `raw` is JSON unless it is bytes."""
    raw = raw if isinstance(raw, bytes) else json.dumps(raw).encode()
    return check(read(raw, scheme, content_type, **{"x_github_delivery": "d-1", **told}).event())


def data(raw: bytes, content_type: str | None) -> Any:
    text = event(raw, "github", content_type).data
    return None if text is None else json.loads(text)


def refused(raw: Any, scheme: Scheme, /, **told: Any) -> str:
    """Where the webhook is refused for its id."""
    with pytest.raises(RequestInvalid) as caught:
        event(raw, scheme, JSON, **{"x_github_delivery": "", **told})
    assert caught.value.errors is not None
    return str(caught.value.errors[0]["pointer"])


# --- ids and types by scheme ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "body", "headers", "ident", "type_"),
    [
        ("standard", {"type": "a.b"}, {"webhook_id": "m1", "webhook_timestamp": "1", "webhook_signature": "s"}, "m1", "a.b"),
        ("standard", [], {"svix_id": "m1", "svix_timestamp": "1", "svix_signature": "s"}, "m1", "webhook"),
        ("github", {"type": "x"}, {"x_github_delivery": " 72d3 ", "x_github_event": "issues"}, "72d3", "github.issues"),
        ("github", {"type": "x"}, {"x_github_delivery": "D"}, "D", "webhook"),
        ("github", {}, {"x_github_delivery": "D", "x_github_event": "a b"}, "D", "webhook"),
        ("stripe", {"id": "evt_1", "type": "charge.paid"}, {}, "evt_1", "charge.paid"),
        ("stripe", {"id": 17, "type": 4}, {}, "17", "webhook"),
        ("stripe", {"id": " e ", "type": ""}, {}, " e ", "webhook"),
        ("stripe", {"id": "e", "type": "x" * 1024}, {}, "e", "webhook"),
        ("slack", {"event_id": "Ev1", "event": {"type": "message"}}, {"x_slack_signature": "v0=ab"}, "Ev1", "slack.message"),
        ("slack", {"event_id": "Ev1", "type": "block_actions"}, {}, "Ev1", "slack.block_actions"),
        ("bearer", {"type": "t"}, {"webhook_id": "w", "idempotency_key": "i"}, "w", "t"),
        ("bearer", None, {"idempotency_key": "i"}, "i", "webhook"),
    ],
)
def test_each_scheme_has_its_own_id_and_type(
    scheme: Scheme, body: Any, headers: dict[str, str], ident: str, type_: str
) -> None:
    found = event(body, scheme, JSON, **headers)
    assert (found.source, found.delivery_id, found.type) == ("/webhooks/shop", ident, type_)
    assert found.data == json.dumps(body, sort_keys=True, separators=(",", ":"))
    assert (found.keys, found.scope, found.causation, found.event_id) == ((), None, None, None)


def test_a_slack_command_is_known_by_its_signature() -> None:
    raw = urlencode({"command": "/weather", "text": "94070"}).encode()
    first = event(raw, "slack", FORM, x_slack_signature="v0=ab")
    assert first.delivery_id.startswith("sha256:")
    assert first == event(raw, "slack", FORM, x_slack_signature="v0=AB")
    assert first.delivery_id != event(raw, "slack", FORM, x_slack_signature="v0=ac").delivery_id
    assert (first.type, json.loads(first.data or "")) == ("webhook", {"command": ["/weather"], "text": ["94070"]})


@pytest.mark.parametrize(
    ("scheme", "body", "headers", "where"),
    [
        ("github", {"id": "x"}, {}, "/headers/X-GitHub-Delivery"),
        ("github", {}, {"x_github_delivery": " \t "}, "/headers/X-GitHub-Delivery"),
        ("github", {}, {"x_github_delivery": "é"}, "/headers/x-github-delivery"),
        ("github", {}, {"x_github_delivery": "x" * 5000}, "/headers/x-github-delivery"),
        ("github", {}, {"x_github_delivery": "x" * 1025}, "/headers/x-github-delivery"),
        ("stripe", {}, {}, "/id"),
        ("stripe", {"id": ""}, {}, "/id"),
        ("stripe", {"id": None}, {}, "/id"),
        ("stripe", {"id": True}, {}, "/id"),
        ("stripe", {"id": 1.5}, {}, "/id"),
        ("stripe", {"id": {}}, {}, "/id"),
        ("stripe", [{"id": "x"}], {}, "/id"),
        ("stripe", "id", {}, "/id"),
        ("stripe", {"id": "a\nb"}, {}, "/id"),
        ("stripe", {"id": "x" * 1025}, {}, "/id"),
        ("bearer", {"id": "x"}, {}, "/headers/webhook-id"),
    ],
)
def test_a_delivery_without_an_id_is_refused_and_one_past_the_bound_is_not_cut(
    scheme: Scheme, body: Any, headers: dict[str, str], where: str
) -> None:
    assert refused(body, scheme, **headers) == where
    assert event({"id": "x" * 1024}, "stripe").delivery_id == "x" * 1024
    assert event({}, "github", JSON, x_github_delivery="x" * 1024).delivery_id == "x" * 1024


# --- what the sender says ---------------------------------------------------------------------------------------------


BODY = {"meta": {"id": "m-7", "kind": "paid", "n": 12}, "a/b": [{"~": "deep"}], "no": True, "empty": "", "t": "a\nb"}


@pytest.mark.parametrize(
    ("told", "ident"),
    [("/meta/id", "m-7"), ("/meta/n", "12"), ("/a~1b/0/~0", "deep"), ("header:X-Id", "h-1"), ("header:x-ID", "h-1")],
)
def test_the_id_stands_where_the_sender_says(told: str, ident: str) -> None:
    assert event(BODY, x_id=" h-1 ", event={"id": told}).delivery_id == ident


@pytest.mark.parametrize("told", ["/no", "/empty", "/nothing", "/meta", "/a~1b/1/x", "/a~1b/00/~0", "/t", "header:X-None"])
def test_an_id_that_is_not_where_the_sender_says_is_never_taken_from_elsewhere(told: str) -> None:
    where = "/id" if told == "/t" else told.replace("header:", "/headers/")
    assert refused(BODY, "github", x_github_delivery="d-1", event={"id": told}) == where


@pytest.mark.parametrize(
    ("told", "type_"),
    [("order.paid", "order.paid"), ("/meta/kind", "paid"), ("/no", "github.push"), ("/t", "github.push"),
     ("/meta/n", "github.push")],
)  # fmt: skip
def test_the_type_is_what_the_sender_says_or_else_the_schemes(told: str, type_: str) -> None:
    assert event(BODY, x_github_event="push", event={"type": told}).type == type_


@pytest.mark.clause("inbox.correlation")
def test_keys_are_the_texts_and_whole_numbers_at_the_senders_pointers() -> None:
    pointers = ["/meta/id", "/meta/n", "/no", "/empty", "/nothing/there", "/meta", "/a~1b/0/~0", "/meta/id"]
    found = event(BODY, event={"keys": pointers, "scope": "shop"})
    assert (found.keys, found.scope) == (("m-7", "12", "deep"), "shop")
    with pytest.raises(RequestInvalid):
        event({"k": "x" * 1025}, event={"keys": ["/k"]})
    assert event({"k": "x" * 1024}, event={"keys": ["/k"]}).keys == ("x" * 1024,)


def test_pointers_are_those_of_rfc_6901() -> None:
    document = {"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, 'k"l': 6, " ": 7, "m~n": 8, "~1": 9}
    expected = {
        "/foo": ["bar", "baz"], "/foo/0": "bar", "/": 0, "/a~1b": 1, "/c%d": 2, "/e^f": 3, "/g|h": 4, '/k"l': 6, "/ ": 7,
        "/m~0n": 8, "/~01": 9, "/foo/2": None, "/foo/-": None, "/foo/-1": None, "/foo/01": None, "/foo/0/0": None,
        "/foo/" + "9" * 30: None,
    }  # fmt: skip
    assert {pointer: at(document, pointer) for pointer in expected} == expected


# --- content ----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("awake.content-types")
@pytest.mark.parametrize(
    ("content_type", "raw", "value", "told"),
    [
        (JSON, b'{"b": 1.0,  "a":2}', {"a": 2, "b": 1}, JSON),
        ("application/vnd.example.v3+json; charset=utf-8", b"[1]", [1], "application/vnd.example.v3+json"),
        (FORM, b"payload=%7B%22sum%22%3A%221%2B1%22%2C%22zen%22%3A%22a+b%22%7D", {"sum": "1+1", "zen": "a b"}, JSON),
        (FORM + "; charset=utf-8", b"payload=%20%5B1%5D", [1], JSON),
        (FORM, b"payload=hello", {"payload": ["hello"]}, JSON),
        (FORM, b"payload=1", {"payload": ["1"]}, JSON),
        (FORM, b"payload=%7B%7D&payload=%7B%7D", {"payload": ["{}", "{}"]}, JSON),
        (FORM, b"payload=%7B%7D&a=1", {"a": ["1"], "payload": ["{}"]}, JSON),
        (FORM, b"a=1&a=2&b", {"a": ["1", "2"], "b": [""]}, JSON),
        ("text/plain; charset=latin-1", b"\xe9", "é", "text/plain"),
        (None, b'{"a":1}', {"content_type": "application/octet-stream", "base64": "eyJhIjoxfQ=="}, JSON),
        (
            "multipart/form-data; boundary=x",
            b"--x",
            {"content_type": "multipart/form-data; boundary=x", "base64": "LS14"},
            JSON,
        ),
        (JSON, b"null", None, JSON),
    ],
)
def test_each_content_type_has_one_value(content_type: str | None, raw: bytes, value: Any, told: str) -> None:
    found = event(raw, "github", content_type)
    assert json.loads(found.data or "") == value
    assert found.attributes == {"datacontenttype": told}


@pytest.mark.parametrize("content_type", [JSON, FORM, "text/plain", None, "nonsense"])
def test_an_empty_body_is_an_event_without_data(content_type: str | None) -> None:
    found = event(b"", "github", content_type)
    assert (found.data, found.attributes) == (None, {})


@pytest.mark.clause("awake.content-types")
@pytest.mark.parametrize(
    ("content_type", "raw", "error"),
    [
        (JSON, b"{", JsonInvalid),
        (JSON, b'{"a":1,"a":2}', JsonInvalid),
        (FORM, b"payload=%7B", JsonInvalid),
        (FORM, b"payload=" + quote_plus('{"a":1,"a":2}').encode(), JsonInvalid),
        (FORM, b"payload=" + b"%5B" * 100, JsonInvalid),
        (FORM, b"a=%ff", UnsupportedMediaType),
        ("text/plain; charset=no", b"x", UnsupportedMediaType),
        ("nonsense", b"x", UnsupportedMediaType),
        ("application/cloudevents-batch+json", b"[]", UnsupportedMediaType),
        ("application/cloudevents+json", b"{}", RequestInvalid),
        ("application/cloudevents+xml", b"<a/>", UnsupportedMediaType),
    ],
)
def test_what_is_no_content_is_refused(content_type: str, raw: bytes, error: type[MoorageError]) -> None:
    with pytest.raises(error):
        read(raw, "github", content_type)


@pytest.mark.clause("kernel.limits")
def test_a_body_is_bounded_as_sent_and_as_canonical_json() -> None:
    most = int(EVENT_DATA_BYTES)
    assert len(event(b'"' + b"x" * (most - 2) + b'"').data or "") == most
    for raw, content_type in (
        (b'"' + b"x" * (most - 1) + b'"', JSON),
        (b" " * (most - 1) + b"{}", JSON),
        (b"x" * (most - 1), "text/plain"),
        (b"x" * most, None),
    ):
        with pytest.raises(PayloadTooLarge):
            event(raw, "github", content_type)


# --- CloudEvents ------------------------------------------------------------------------------------------------------


CLOUD = CloudEvent(
    {"id": "c-1", "source": "/elsewhere", "type": "order.paid", "subject": "order-7", "correlationid": "w-9", "actor": "me"},
    {"n": 12},
)


@pytest.mark.parametrize("as_http", [to_structured_event, to_binary_event])
def test_a_cloud_event_is_taken_out_and_its_source_is_the_sender(as_http: Any) -> None:
    message = as_http(CLOUD)
    headers = dict(message.headers)
    raw = message.body.encode() if isinstance(message.body, str) else message.body
    found = check(Webhook.read(sender("bearer", keys=["/n"]), headers, raw).event())
    assert (found.source, found.delivery_id, found.type) == ("/webhooks/shop", "/elsewhere c-1", "order.paid")
    assert (found.keys, json.loads(found.data or "")) == (("order-7", "w-9", "12"), {"n": 12})
    assert found.attributes["originsource"] == "/elsewhere"
    assert "actor" not in found.attributes
    told = check(Webhook.read(sender("bearer", id="/n", type="mine"), headers, raw).event())
    assert (told.delivery_id, told.type) == ("12", "mine")
    for scheme, named in (("bearer", {"Webhook-Id": "w-1"}), ("github", {"X-GitHub-Delivery": "w-1"})):
        assert Webhook.read(sender(scheme), {**headers, **named}, raw).event().delivery_id == "w-1"  # type: ignore[arg-type]
    for scheme in ("github", "stripe"):
        assert Webhook.read(sender(scheme), headers, raw).event().delivery_id == "/elsewhere c-1"  # type: ignore[arg-type]


def test_cloud_events_of_two_sources_with_one_id_are_two_deliveries() -> None:
    events = [{"specversion": "1.0", "id": "1", "source": source, "type": "t"} for source in ("/a", "/b")]
    ids = [event(one, "bearer", "application/cloudevents+json").delivery_id for one in events]
    assert ids == ["/a 1", "/b 1"]


@pytest.mark.clause("inbox.causation")
def test_a_cause_of_the_sender_s_own_world_is_kept_and_is_none_here() -> None:
    cloud = {"specversion": "1.0", "id": "1", "source": "/a", "type": "t", "causationid": "evt_1"}
    found = event(cloud, "bearer", "application/cloudevents+json")
    assert (found.causation, found.attributes["causationid"]) == (None, "evt_1")


# --- Slack's challenge ------------------------------------------------------------------------------------------------


def test_slack_alone_is_answered_a_challenge() -> None:
    challenge = {
        "token": "t",
        "challenge": "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P",
        "type": "url_verification",
    }
    raw = json.dumps(challenge).encode()
    assert read(raw, "slack").challenge == challenge["challenge"]
    assert read(raw, "github").challenge is None
    altered: list[Any] = [
        {**challenge, "type": "event_callback"},
        {**challenge, "challenge": 1},
        {"type": "url_verification"},
    ]
    for other in [*altered, [], 1]:
        assert read(json.dumps(other).encode(), "slack").challenge is None


# --- anything ---------------------------------------------------------------------------------------------------------


NAMES = st.sampled_from(
    ["content-type", "webhook-id", "x-github-delivery", "x-github-event", "idempotency-key", "ce-specversion", "ce-id",
     "ce-source", "ce-type", "ce-x", "x-id"]
)  # fmt: skip
LATIN = st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0"), max_size=30)
TYPES = st.sampled_from([JSON, FORM, "text/plain", "application/cloudevents+json", "text/plain; charset=utf-16", "1.0"])
MEMBERS = st.sampled_from(["id", "type", "event", "event_id", "specversion", "a"])
JSONS = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MEMBERS, inner),
)
BODIES = st.one_of(
    st.binary(max_size=60),
    JSONS.map(lambda value: json.dumps(value).encode()),
    JSONS.map(lambda value: urlencode({"payload": json.dumps(value)}).encode()),
)


@given(
    st.sampled_from(["standard", "github", "stripe", "slack", "bearer"]),
    st.dictionaries(NAMES, LATIN | TYPES, max_size=6),
    BODIES,
    st.sampled_from([{}, {"id": "/id", "type": "/type", "keys": ["/a", "/event/id"]}, {"id": "header:X-Id", "type": "x"}]),
)
def test_whatever_comes_is_an_event_within_its_bounds_or_refused(
    scheme: Scheme, headers: dict[str, str], raw: bytes, told: dict[str, Any]
) -> None:
    try:
        found = check(Webhook.read(sender(scheme, **told), headers, raw).event())
    except RequestError:
        return
    assert found.source == "/webhooks/shop"
    assert found.delivery_id
    assert found.type

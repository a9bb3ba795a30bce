"""CloudEvents 1.0 over HTTP: one event in structured or binary mode, or a batch (clause inbox.accept).

Read here, and not by the CloudEvents SDK, because bytes from outside meet one strict parser only (`kernel.canonical`), which
keeps numbers as they were sent and refuses a key twice, and because every module that the Worker loads makes its start
longer. The tests hold this to the SDK in every mode, both ways.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from moorage.kernel import canonical
from moorage.kernel.errors import RequestInvalid, UnsupportedMediaType
from moorage.kernel.instants import normalize
from moorage.kernel.limits import EVENT_ATTRIBUTE_CHARACTERS, EVENT_BATCH, EVENT_DATA_BYTES, TEXT_CHARACTERS
from moorage.kernel.refusals import refused
from moorage.messages.inbox.checks import BINARY, check, check_source, too_large
from moorage.messages.inbox.model import EventDraft

STRUCTURED: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"
JSON: Final = "application/json"

CAUSE: Final = "causationid"
"""The extension that names the event's cause, by that one's own id here (clause inbox.causation)."""

CORRELATION: Final = "correlationid"
"""The extension that, like the subject, is a key by which an event is found."""

ACTOR: Final = "actor"
"""The extension that nobody outside may set: who sent an event is known from how it came (clause inbox.actor)."""

_TEXTS: Final = frozenset({"id", "source", "type", "subject", "time", "datacontenttype", "dataschema", CAUSE, CORRELATION})
"""Attributes that are texts, and not empty."""

_PREFIX: Final = "ce-"
_MEDIA_TYPE = re.compile(r"\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*((?:;.*)?)")
_CHARSET = re.compile(r';\s*charset\s*=\s*"?([^";\s]*)"?\s*(?:;|$)', re.IGNORECASE)
_NAME = re.compile(r"[a-z0-9]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:.+")
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_INT32 = 2**31
_REPLACED: Final = "\ufffd".encode().decode("latin-1")
"""What stands, in a header as it is given here, for bytes that were no UTF-8: what they were is lost by then."""
_UTF_8: Final = ("", "utf-8", "utf8", "us-ascii", "ascii")


def is_cloud_event(content_type: str | None, headers: Mapping[str, str]) -> bool:
    """Whether a request says of itself that it is a CloudEvent, or several, by its type or by its headers."""
    media_type, _ = _parsed(content_type)
    return media_type.startswith("application/cloudevents") or _PREFIX + "specversion" in _named(headers)


def read(content_type: str | None, headers: Mapping[str, str], raw: bytes) -> EventDraft:
    """The one event of a request: structured (`application/cloudevents+json`, or plain JSON that has a specversion), or
    binary, with `ce-` headers.

    Raises UnsupportedMediaType for a batch and every other type, JsonInvalid, PayloadTooLarge, and RequestInvalid with
    pointers for what is no event of CloudEvents 1.0 or passes a bound of `messages.checks`.
    """
    media_type, parameters = _parsed(content_type)
    if media_type == BATCH:
        raise UnsupportedMediaType("this route takes one event at a time", accepted=[STRUCTURED, JSON])
    if media_type.startswith("application/cloudevents"):
        if media_type != STRUCTURED:
            raise UnsupportedMediaType(f"of formats of events, {STRUCTURED} is taken", accepted=[STRUCTURED, BATCH, JSON])
        _refuse_charset(parameters)
        return structured(canonical.loads(raw))
    if _PREFIX + "specversion" in _named(headers):
        return binary(content_type, headers, raw)
    if media_type != JSON:
        raise UnsupportedMediaType("a request without ce- headers is an event in JSON", accepted=[STRUCTURED, BATCH, JSON])
    _refuse_charset(parameters)
    return structured(canonical.loads(raw))


def is_batch(content_type: str | None) -> bool:
    """Whether a request says that it is a batch."""
    return _parsed(content_type)[0] == BATCH


def read_batch(content_type: str | None, raw: bytes) -> list[EventDraft]:
    """The events of a batch, at most EVENT_BATCH. Raises what `read` does; pointers begin with the place in the batch."""
    _refuse_charset(_parsed(content_type)[1])
    events = canonical.loads(raw)
    if not isinstance(events, list):
        raise refused("", "must be an array of events", "a batch is an array of events")
    if len(events) > EVENT_BATCH:
        raise refused("", f"must have at most {EVENT_BATCH} events", f"a batch has at most {EVENT_BATCH} events")
    return [structured(event, f"/{place}") for place, event in enumerate(events)]


def structured(event: Any, pointer: str = "") -> EventDraft:
    """The event that a parsed JSON value is. Raises RequestInvalid at `pointer` and the member, PayloadTooLarge."""
    if not isinstance(event, dict):
        raise refused(pointer, "must be an object", "an event is an object")
    if "data" in event and BINARY in event:
        raise refused(f"{pointer}/{BINARY}", "stands beside data", "an event has data or data_base64, not both")
    attributes = {name: value for name, value in event.items() if name not in ("data", BINARY) and value is not None}
    draft = _draft(attributes, f"{pointer}/")
    if "data" in event:
        return check(replace(draft, data=canonical.dumps(event["data"])), pointer)
    if event.get(BINARY) is not None:
        return check(_with_bytes(draft, _decoded(event[BINARY], f"{pointer}/{BINARY}")), pointer)
    return check(draft, pointer)


def binary(content_type: str | None, headers: Mapping[str, str], raw: bytes) -> EventDraft:
    """The event whose attributes are the headers and whose data is the body. Raises as `read` does."""
    attributes: dict[str, Any] = {}
    for name, value in _named(headers).items():
        if name.startswith(_PREFIX):
            attributes[name.removeprefix(_PREFIX)] = _header(value, f"/headers/{name[:100]}")
    for name in ("data", "datacontenttype"):
        if name in attributes:
            raise refused(f"/headers/ce-{name}", "is no attribute", "data is the body, and its type the Content-Type")
    if content_type is not None and content_type.strip():
        attributes["datacontenttype"] = content_type.strip()
        if (problem := _problem_of_text("datacontenttype", attributes["datacontenttype"])) is not None:
            raise refused("/headers/content-type", problem)
    draft = _draft(attributes, f"/headers/{_PREFIX}")
    if not raw:
        return check(draft)
    if len(raw) > EVENT_DATA_BYTES:
        raise too_large()
    return check(_with_body(draft, raw))


def keys_of(attributes: Mapping[str, Any]) -> tuple[str, ...]:
    """By what an event is found: its subject and its correlation, each once."""
    found = (attributes.get(name) for name in ("subject", CORRELATION))
    return tuple(dict.fromkeys(key for key in found if isinstance(key, str) and key))


# --- attributes -----------------------------------------------------------------------------------------------------


def _draft(attributes: dict[str, Any], before: str) -> EventDraft:
    """The event without its data. What was not sent as an attribute of an event is refused, at its name behind `before`."""
    if attributes.get("specversion") != "1.0":
        raise refused(f"{before}specversion", 'must be "1.0"')
    for name in ("id", "source", "type"):
        if not isinstance(attributes.get(name), str):
            raise refused(f"{before}{name}", "must be a text that is not empty")
    for name, value in attributes.items():
        _check_attribute(name, value, before)
    check_source(attributes["source"], f"{before}source")
    others = {name: value for name, value in attributes.items() if name not in ("id", "source", "type", ACTOR)}
    cause = attributes.get(CAUSE)
    return EventDraft(
        source=attributes["source"],
        delivery_id=attributes["id"],
        type=attributes["type"],
        attributes={name: value for name, value in others.items() if name != "specversion"},
        keys=keys_of(attributes),
        causation=cause,
    )


def _check_attribute(name: str, value: Any, before: str) -> None:
    place = f"{before}{name[:100]}"
    if _NAME.fullmatch(name) is None or len(name) > TEXT_CHARACTERS:
        raise refused(place, "has a name that is not of lower-case letters and digits", "an attribute's name is malformed")
    problem: str | None = "must be a text, an integer or a boolean"
    if isinstance(value, str):
        problem = _problem_of_text(name, value)
    elif name in _TEXTS:
        problem = "must be a text"
    elif isinstance(value, int):
        problem = None if -_INT32 <= value < _INT32 else "must be an integer of 32 bits"
    if problem is not None:
        raise refused(place, problem)


def _problem_of_text(name: str, value: str) -> str | None:
    if name in _TEXTS and not value:
        return "must not be empty"
    if len(value) > EVENT_ATTRIBUTE_CHARACTERS:
        return f"must have at most {EVENT_ATTRIBUTE_CHARACTERS} characters"
    if _CONTROL.search(value) is not None:
        return "must not hold a control character"
    if name == "time" and not _is_instant(value):
        return "must be an RFC 3339 instant"
    if name == "datacontenttype" and _MEDIA_TYPE.fullmatch(value) is None:
        return "must be a media type"
    if name == "dataschema" and _URI.fullmatch(value) is None:
        return "must be a URI"
    return None


def _is_instant(value: str) -> bool:
    try:
        normalize(value)
    except RequestInvalid:
        return False
    return True


# --- headers --------------------------------------------------------------------------------------------------------


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers by their names in lower case. Raises RequestInvalid for an attribute that is there twice."""
    named: dict[str, str] = {}
    for name, value in headers.items():
        lower = name.lower()
        if lower.startswith(_PREFIX) and lower in named:
            raise refused(f"/headers/{lower[:100]}", "is given more than once")
        named[lower] = value
    return named


def _header(value: str, place: str) -> str:
    """An attribute's text: out of its quotes, where it has some, and percent-decoded (HTTP binding, 3.1.3.2)."""
    text = value.strip(" \t")
    if _REPLACED in text:
        # Taken as it is it would be the same for all such values: of two ids the second would count as repeated.
        raise refused(place, "is not UTF-8, percent-encoded")
    quoted = _QUOTED.fullmatch(text)
    if quoted is not None:
        text = re.sub(r"\\(.)", r"\1", quoted.group(1))
    if _ESCAPE.search(text) is not None:
        raise refused(place, "has a malformed percent-encoding")
    try:
        return unquote_to_bytes(text.encode("latin-1")).decode("utf-8")
    except UnicodeError:
        raise refused(place, "is not UTF-8, percent-encoded") from None


# --- data -----------------------------------------------------------------------------------------------------------


def _with_body(draft: EventDraft, raw: bytes) -> EventDraft:
    """JSON as its value, also where no type was told; text in UTF-8 as a string; everything else as its bytes."""
    media_type, parameters = _parsed(draft.attributes.get("datacontenttype"))
    if _is_json(media_type) or not media_type:
        _refuse_charset(parameters)
        return replace(draft, data=canonical.dumps(canonical.loads(raw)))
    if _is_text(media_type) and _charset(parameters) in _UTF_8:
        try:
            return replace(draft, data=canonical.dumps(raw.decode("utf-8")))
        except UnicodeDecodeError:
            raise UnsupportedMediaType("the body is not text in utf-8") from None
    return _with_bytes(draft, raw)


def _with_bytes(draft: EventDraft, content: bytes) -> EventDraft:
    """Bytes are kept in base64, unless their type says that they are JSON."""
    if len(content) > EVENT_DATA_BYTES:
        raise too_large()
    if _is_json(_parsed(draft.attributes.get("datacontenttype"))[0]):
        return replace(draft, data=canonical.dumps(canonical.loads(content)))
    return replace(draft, attributes={**draft.attributes, BINARY: base64.b64encode(content).decode("ascii")})


def _decoded(value: Any, place: str) -> bytes:
    if not isinstance(value, str):
        raise refused(place, "must be base64")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise refused(place, "must be base64") from None


def _parsed(content_type: str | None) -> tuple[str, str]:
    """A media type in lower case, and its parameters; nothing for a header that is missing or malformed."""
    match = _MEDIA_TYPE.fullmatch(content_type or "")
    return (match.group(1).lower(), match.group(2)) if match else ("", "")


def _is_json(media_type: str) -> bool:
    return media_type in (JSON, "text/json") or media_type.endswith("+json")


def _is_text(media_type: str) -> bool:
    return media_type.startswith("text/") or media_type.endswith(("/xml", "+xml", "/x-www-form-urlencoded"))


def _charset(parameters: str) -> str:
    named = _CHARSET.search(parameters)
    return named.group(1).lower() if named else ""


def _refuse_charset(parameters: str) -> None:
    if _charset(parameters) not in _UTF_8:
        raise UnsupportedMediaType("JSON is taken in UTF-8 only")

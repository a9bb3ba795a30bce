"""Webhooks as events: what a verified request of a sender becomes (clauses inbox.accept, inbox.actor, awake.senders).

The source is the sender's, the data is what the content type says, and the rest is as the sender declared it or, where it
says nothing, as its scheme has it:

| scheme | delivery id | type |
|---|---|---|
| standard | `webhook-id`, as signed | the body's `type` |
| github | `X-GitHub-Delivery` | `github.` and `X-GitHub-Event` |
| stripe | the body's `id` | the body's `type` |
| slack | the body's `event_id`, else the signature's SHA-256 | `slack.` and the `type` of the body's `event`, or its own |
| bearer | `webhook-id`, else `Idempotency-Key` | the body's `type` |

A type that is not there is `webhook`. A CloudEvent has the type that it brings, and is known by its own source and id where
the scheme has no id for it; the cause that it may name is of its sender's world, and means nothing here. A
delivery without an id is refused: it could not be told from its repetition.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from moorage.catalog import signatures
from moorage.catalog.model import IN_HEADER
from moorage.catalog.senders import Sender
from moorage.kernel import canonical, content
from moorage.kernel.limits import EVENT_DATA_BYTES, TEXT_CHARACTERS
from moorage.kernel.refusals import is_line, refused
from moorage.messages.inbox import cloudevents
from moorage.messages.inbox.checks import too_large
from moorage.messages.inbox.model import WEBHOOKS, EventDraft

UNTYPED: Final = "webhook"
CLOUD_SOURCE: Final = "originsource"
"""The extension that keeps the source which a CloudEvent named, since the event's own source is the sender."""

_ASCII = re.compile(rf"[\x20-\x7e]{{1,{int(TEXT_CHARACTERS)}}}")
_EVENT_NAME = re.compile(r"[!-~]{1,200}")
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")
_JSON_START = re.compile(r"[ \t\r\n]*[{\[]")


def check_size(size: int) -> None:
    """Raise PayloadTooLarge for a body past EVENT_DATA_BYTES, before anything is made of it."""
    if size > EVENT_DATA_BYTES:
        raise too_large()


def actor_of(sender: Sender) -> str:
    """The actor of the events that a sender's webhooks become (clause inbox.actor)."""
    return f"sender:{sender.name}"


@dataclass(frozen=True, slots=True)
class Webhook:
    """A verified request, read. `headers` have names in lower case; `attributes` are the event's, beside source, id and
    type; `data` is its data and `text` that as canonical JSON, None without; `cloud` is the CloudEvent that came."""

    sender: Sender
    headers: Mapping[str, str]
    attributes: Mapping[str, Any]
    data: Any
    text: str | None
    cloud: EventDraft | None = None

    @classmethod
    def read(cls, sender: Sender, headers: Mapping[str, str], raw: bytes) -> "Webhook":
        """What a request holds whose signature was verified.

        Raises JsonInvalid, UnsupportedMediaType, PayloadTooLarge, and RequestInvalid for what says that it is a CloudEvent
        and is none. Nothing is looked up or stored, so that the same id is new when it comes again in the right form.
        """
        check_size(len(raw))
        known = {name.lower(): value for name, value in headers.items()}
        content_type = known.get("content-type")
        if cloudevents.is_cloud_event(content_type, known):
            cloud = cloudevents.read(content_type, known, raw)
            data = None if cloud.data is None else canonical.stored(cloud.data)
            return cls(sender, known, {**cloud.attributes, CLOUD_SOURCE: cloud.source}, data, cloud.data, cloud)
        if not raw:
            return cls(sender, known, {}, None, None)
        value = content.read(content_type, raw)
        media_type = content.media_type_of(content_type)
        if media_type == content.FORM:
            value = _unfolded(value)
        told = media_type if content.is_json(media_type) or isinstance(value, str) else content.JSON
        return cls(sender, known, {"datacontenttype": told}, value, canonical.dumps(value))

    @property
    def challenge(self) -> str | None:
        """What Slack wants to hear back before it sends events to a URL; such a request is no event."""
        if self.sender.scheme != "slack" or self._text("/type") != "url_verification":
            return None
        return self._text("/challenge")

    def event(self) -> EventDraft:
        """The event that the webhook is. Raises RequestInvalid for one without a delivery id."""
        told, cloud = self.sender.event, self.cloud
        keys = list(cloud.keys) if cloud else []
        keys += [key for pointer in (told.keys if told else ()) if (key := self._name(pointer))]
        return EventDraft(
            source=WEBHOOKS + self.sender.name,
            delivery_id=self._delivery_id(),
            type=self._type(),
            attributes=self.attributes,
            data=self.text,
            keys=tuple(dict.fromkeys(keys)),
            scope=told.scope if told else None,
        )

    def _delivery_id(self) -> str:
        told = self.sender.event
        if told is not None and told.id is not None:
            if told.id.startswith(IN_HEADER):
                return self._in_header(told.id.removeprefix(IN_HEADER).lower()) or _missing(told.id)
            return self._name(told.id) or _missing(told.id)
        found = self._scheme_id()
        if not found and self.cloud is not None:
            return f"{self.cloud.source} {self.cloud.delivery_id}"
        return found or _missing(_ID_PLACES[self.sender.scheme])

    def _scheme_id(self) -> str | None:
        scheme = self.sender.scheme
        if scheme == "stripe":
            return None if self.cloud else self._name("/id")
        if scheme == "slack" and (event_id := self._name("/event_id")):
            return event_id
        if scheme == "bearer":
            return self._in_header("webhook-id") or self._in_header("idempotency-key")
        if scheme == "github":
            return self._in_header("x-github-delivery")
        return _checked("webhook-id", signatures.delivery_id(scheme, self.headers) or "")

    def _type(self) -> str:
        told, scheme = self.sender.event, self.sender.scheme
        if told is not None and told.type is not None:
            if not told.type.startswith("/"):
                return told.type
            if found := self._text(told.type):
                return found
        if self.cloud is not None:
            return self.cloud.type
        if scheme == "github":
            name = self.headers.get("x-github-event", "")
            return f"github.{name}" if _EVENT_NAME.fullmatch(name) else UNTYPED
        found = (self._text("/event/type") if scheme == "slack" else None) or self._text("/type")
        if found is None or len(found) > TEXT_CHARACTERS - 6:
            return UNTYPED
        return f"slack.{found}" if scheme == "slack" else found

    def _in_header(self, name: str) -> str | None:
        """A header's value as an id, without the spaces around it; None when it is not there."""
        return _checked(name, self.headers.get(name, "").strip(" \t"))

    def _text(self, pointer: str) -> str | None:
        """The text at a pointer, if there is one that can be a type."""
        found = at(self.data, pointer)
        return found if isinstance(found, str) and is_line(found) else None

    def _name(self, pointer: str) -> str | None:
        """What a text or whole number at a pointer names; it is bounded where the event is checked."""
        found = at(self.data, pointer)
        if isinstance(found, int) and not isinstance(found, bool):
            return str(found)
        return found if isinstance(found, str) and found else None


def at(value: Any, pointer: str) -> Any:
    """The value at a JSON Pointer (RFC 6901), or None where there is none."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and _INDEX.fullmatch(name) and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


_ID_PLACES: Final = {
    "standard": "header:webhook-id",
    "github": "header:X-GitHub-Delivery",
    "stripe": "/id",
    "slack": "/event_id",
    "bearer": "header:webhook-id",
}


def _checked(name: str, value: str) -> str | None:
    """An id out of a header: ASCII, since no other character of a header means the same to everybody."""
    if value and _ASCII.fullmatch(value) is None:
        raise refused(f"/headers/{name}", f"must have 1 to {TEXT_CHARACTERS} printable ASCII characters")
    return value or None


def _missing(place: str) -> NoReturn:
    pointer = f"/headers/{place.removeprefix(IN_HEADER)}" if place.startswith(IN_HEADER) else place
    raise refused(pointer, "names no delivery", f"there is no delivery id at {place}, which is a text or a whole number")


def _unfolded(fields: Mapping[str, list[str]]) -> Any:
    """The JSON that GitHub and Slack put into a form: the value of `payload` where there is no other field, if it begins as
    an object or array does. Every other form is its fields."""
    payload = fields.get("payload", [])
    if len(fields) > 1 or len(payload) != 1 or _JSON_START.match(payload[0]) is None:
        return fields
    return canonical.loads(payload[0].encode())

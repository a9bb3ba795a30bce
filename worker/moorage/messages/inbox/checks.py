"""The bounds of every event that comes in, whoever made it: a client, a webhook or a timer (clause kernel.limits)."""

import re
from typing import Final

from moorage.kernel import canonical
from moorage.kernel.errors import IdInvalid, PayloadTooLarge
from moorage.kernel.ids import check_client_id
from moorage.kernel.limits import (
    EVENT_ATTRIBUTES,
    EVENT_DATA_BYTES,
    EVENT_KEYS,
)
from moorage.kernel.refusals import check_line, refused
from moorage.messages.inbox.model import TIMERS, WEBHOOKS, EventDraft

EVENT_ID_PREFIX: Final = "evt_"
"""How every event's own id begins, also one that a client chose, so that it never is the id of something else."""

BINARY: Final = "data_base64"
"""The member in which an event's data stands that is no JSON and no text; it is kept among its attributes."""

_URI_REFERENCE = re.compile(r"(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+")


def check(draft: EventDraft, pointer: str = "") -> EventDraft:
    """The draft unchanged, if it is within the bounds of events.

    Raises RequestInvalid, at `pointer` and the field, for a source, id, type or key that is empty, longer than
    EVENT_ATTRIBUTE_CHARACTERS or holds a control character, for a source that is no URI reference (RFC 3986), for too many
    attributes or keys, and for a key twice; PayloadTooLarge for data past EVENT_DATA_BYTES; IdInvalid for an id of its own
    that does not begin with `evt_`.
    """
    for name, value in (("id", draft.delivery_id), ("type", draft.type)):
        check_line(value, f"{pointer}/{name}")
    check_source(draft.source, f"{pointer}/source")
    if len(draft.attributes) - (BINARY in draft.attributes) > EVENT_ATTRIBUTES:
        raise refused(
            pointer, f"has more than {EVENT_ATTRIBUTES} attributes", f"an event has at most {EVENT_ATTRIBUTES} attributes"
        )
    _check_keys(draft, pointer)
    if draft.data is not None and canonical.size(draft.data) > EVENT_DATA_BYTES:
        raise too_large()
    if draft.event_id is not None:
        check_client_id(draft.event_id, "an event's id")
        if not draft.event_id.startswith(EVENT_ID_PREFIX):
            raise IdInvalid(f"an event's own id begins with {EVENT_ID_PREFIX}")
    return draft


def check_source(source: str, pointer: str) -> None:
    """Raise RequestInvalid at `pointer` unless an event can have this source."""
    check_line(source, pointer)
    if _URI_REFERENCE.fullmatch(source) is None:
        raise refused(pointer, "must be a URI reference")


def check_open(source: str, pointer: str) -> None:
    """Raise RequestInvalid at `pointer` for a source that belongs to a sender of webhooks or to a timer: whoever else sent
    events under it could use up their delivery ids, and what they send would then count as repeated (clause
    inbox.accept)."""
    for below, whose in ((WEBHOOKS, "the senders'"), (TIMERS, "the timers'")):
        if source.startswith(below):
            raise refused(pointer, f"must not lie below {below}: those sources are {whose} own")


def _check_keys(draft: EventDraft, pointer: str) -> None:
    if len(draft.keys) > EVENT_KEYS:
        raise refused(f"{pointer}/keys", f"has more than {EVENT_KEYS} keys", f"an event has at most {EVENT_KEYS} keys")
    if len(set(draft.keys)) < len(draft.keys):
        raise refused(f"{pointer}/keys", "names a key twice", "an event has the same key twice")
    for key in draft.keys:
        check_line(key, f"{pointer}/keys")


def too_large() -> PayloadTooLarge:
    """The error for data past EVENT_DATA_BYTES."""
    return PayloadTooLarge(f"an event's data has at most {EVENT_DATA_BYTES} bytes", limit=int(EVENT_DATA_BYTES))

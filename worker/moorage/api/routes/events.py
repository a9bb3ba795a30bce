"""Events: what comes in from outside, accepted once and kept until it is routed."""

from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from fastapi import Path, Query
from pydantic import Field
from starlette.responses import Response

from moorage.api.answers import Answer, page
from moorage.api.fields import (
    Cursor,
    Default,
    JsonObject,
    Limit,
    PageShown,
    Sent,
    Shown,
    ShownInstant,
    fails,
    page_of,
)
from moorage.api.requests import ApiRequest
from moorage.api.routing import router
from moorage.idempotency.keys import Key
from moorage.kernel.errors import (
    CausationUnknown,
    CursorMismatch,
    EventConflict,
    EventScopeConflict,
    EventUnknown,
    IdempotencyConflict,
    JsonInvalid,
    PayloadTooLarge,
    RequestInvalid,
    ScopeUnknown,
    UnsupportedMediaType,
)
from moorage.kernel.limits import EVENT_ATTRIBUTE_CHARACTERS, EVENT_BATCH, ID_CHARACTERS, SCOPE_CHARACTERS
from moorage.kernel.refusals import refused
from moorage.messages.inbox import accept, cloudevents, events
from moorage.messages.inbox.accept import Accepted
from moorage.messages.inbox.checks import check_open
from moorage.messages.inbox.events import Wanted
from moorage.messages.inbox.model import Disposition, EventDraft

api = router("events")

EventId = Annotated[
    str, Path(max_length=int(ID_CHARACTERS), description="An event's own id here, as its acceptance told it.")
]
_Scope = Annotated[
    str | None,
    Query(min_length=1, max_length=int(ID_CHARACTERS), description="The declared scope that the events belong to."),
]
_Own = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=int(ID_CHARACTERS),
        description="An id of its own for the event, which begins with `evt_`; without one it gets one. Not for a batch.",
    ),
]
_Text: Final = int(EVENT_ATTRIBUTE_CHARACTERS)

_EVENT: dict[str, Any] = {
    "type": "object",
    "description": "An event of CloudEvents 1.0, with extensions as further members.",
    "required": ["specversion", "id", "source", "type"],
    "properties": {
        "specversion": {"const": "1.0"},
        "id": {"type": "string", "minLength": 1, "maxLength": _Text},
        "source": {"type": "string", "format": "uri-reference", "minLength": 1, "maxLength": _Text},
        "type": {"type": "string", "minLength": 1, "maxLength": _Text},
        "subject": {"type": "string", "minLength": 1, "maxLength": _Text},
        "time": {"type": "string", "format": "date-time"},
        "datacontenttype": {"type": "string"},
        "dataschema": {"type": "string", "format": "uri"},
        "data": {},
        "data_base64": {"type": "string", "contentEncoding": "base64"},
    },
}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "One event in structured mode, several in a batch, or in binary mode the data of one, whose "
        "attributes are then `ce-` headers.",
        "content": {
            cloudevents.STRUCTURED: {"schema": _EVENT},
            cloudevents.BATCH: {"schema": {"type": "array", "maxItems": int(EVENT_BATCH), "items": _EVENT}},
            cloudevents.JSON: {"schema": _EVENT},
        },
    }
}


class EventShown(Shown):
    """An accepted event. `event` is it as it was sent, in structured mode; the rest is what Moorage knows of it. `seq`
    orders all events by their acceptance. Until it is routed, `routed_at` and `disposition` are null."""

    event_id: str
    seq: int
    source: str
    id: str
    type: str
    keys: list[str]
    actor: str
    causation: str | None
    scope: str | None
    content_sha256: str
    accepted_at: ShownInstant
    routed_at: ShownInstant | None
    disposition: Disposition | None
    work: str | None
    event: JsonObject


class AcceptedShown(EventShown):
    """The event that stands. Not `added`: one with this source and id was accepted before and is what is told, whatever was
    sent now; `content_differs` is there, and true, when that was something else."""

    added: bool
    content_differs: bool | None = None


class AcceptedInShort(Shown):
    """The event that stands for one of a batch; or for one that was something else, where the credential may not read what
    stands: then its `type` is not told."""

    event_id: str
    seq: int
    source: str
    id: str
    type: str | None = None
    accepted_at: ShownInstant | None = None
    added: bool
    content_differs: bool | None = None


class BatchAccepted(Shown):
    """What stands for each event of a batch, in its order."""

    events: list[AcceptedInShort]


class ScopeSent(Sent):
    """The declared scope that the event belongs to."""

    scope: str = Field(min_length=1, max_length=int(ID_CHARACTERS))


@api.post(
    "/events",
    status_code=202,
    response_model=AcceptedShown | AcceptedInShort | BatchAccepted,
    responses=fails(
        JsonInvalid,
        ScopeUnknown,
        EventConflict,
        CausationUnknown,
        IdempotencyConflict,
        PayloadTooLarge,
        UnsupportedMediaType,
        RequestInvalid,
    ),
    openapi_extra=_BODY,
)
async def send_events(request: ApiRequest, scope: _Scope = None, event_id: _Own = None) -> Response:
    """Accept one event, or a batch of them, of CloudEvents 1.0; all or none.

    The answer comes after they are stored. What they wake is found right after that, and again until it is done, whatever
    dies in between.
    """
    content_type = request.headers.get("content-type")
    raw = await request.body()
    if cloudevents.is_batch(content_type):
        if event_id is not None:
            raise refused("/query/event_id", "names one event, and a batch may have several")
        drafts = [replace(draft, scope=scope) for draft in cloudevents.read_batch(content_type, raw)]
        for place, draft in enumerate(drafts):
            check_open(draft.source, f"/{place}/source")
        accepted = await _accept(request, drafts) if drafts else []
        return Answer({"events": [_short(request, one) for one in accepted]}, 202)
    draft = replace(cloudevents.read(content_type, request.headers, raw), scope=scope, event_id=event_id)
    check_open(draft.source, "/source")
    [one] = await _accept(request, [draft])
    return Answer(one.answer(request.caller), 202)


@api.get("/events", response_model=PageShown[EventShown], responses=fails(CursorMismatch))
async def list_events(
    request: ApiRequest,
    limit: Limit = Default,
    cursor: Cursor = None,
    type_: Annotated[
        str | None, Query(alias="type", min_length=1, max_length=_Text, description="Only events of this type.")
    ] = None,
    source: Annotated[str | None, Query(min_length=1, max_length=_Text, description="Only events of this source.")] = None,
    key: Annotated[str | None, Query(min_length=1, max_length=_Text, description="Only events that carry this key.")] = None,
    scope: Annotated[
        str | None, Query(min_length=1, max_length=int(ID_CHARACTERS), description="Only events of this scope.")
    ] = None,
    work: Annotated[
        str | None,
        Query(min_length=1, max_length=int(SCOPE_CHARACTERS), description="Only events that belong to this work."),
    ] = None,
    unrouted: Annotated[bool, Query(description="Only events that are not routed yet.")] = False,
    after: Annotated[int, Query(ge=0, le=2**53 - 1, description="Only events past this seq.")] = 0,
    order: Annotated[Literal["asc", "desc"], Query(description="The oldest first, or the newest.")] = "asc",
) -> Response:
    """Events by the order of their acceptance, with their data.

    A page may be short, or empty, and still have a next cursor. Without a grant to read every type, one is to be named.
    """
    wanted = Wanted(type_, source, key, scope, work, unrouted, after, newest_first=order == "desc")
    found = await events.list_events(request.db, request.caller, page_of(limit, cursor), wanted)
    return page(found, lambda one: one.answer())


@api.get("/events/{event_id}", response_model=EventShown, responses=fails(EventUnknown))
async def show_event(request: ApiRequest, event_id: EventId) -> Response:
    """One event, with its data and what became of it."""
    return Answer((await events.show(request.db, request.caller, event_id)).answer())


@api.put(
    "/events/{event_id}/scope", response_model=EventShown, responses=fails(EventUnknown, EventScopeConflict, ScopeUnknown)
)
async def set_scope(request: ApiRequest, event_id: EventId, sent: ScopeSent) -> Response:
    """Say which scope an event belongs to, once: the same again changes nothing, another is refused."""
    return Answer((await events.set_scope(request.db, request.caller, request.now, event_id, sent.scope)).answer())


async def _accept(request: ApiRequest, drafts: list[EventDraft]) -> list[Accepted]:
    accept.demand(request.caller, drafts)
    actor = accept.actor_of(request.caller.subject)
    accepted = await accept.accept(request.db, request.caller, request.now, drafts, actor=actor, key=_key(request, drafts))
    if any(one.added for one in accepted):
        request.wake(accept.kept_until(request.now), "upkeep")
    return accepted


def _key(request: ApiRequest, drafts: list[EventDraft]) -> Key | None:
    """An Idempotency-Key binds the events as they are understood, in whatever mode they come, and where they go."""
    if request.check_key() is None:
        return None
    return request.key([sorted(request.query_params.items()), [accept.content_of(draft) for draft in drafts]])


def _short(request: ApiRequest, one: Accepted) -> dict[str, Any]:
    told = one.answer(request.caller)
    return {name: told[name] for name in AcceptedInShort.model_fields if name in told and name != "accepted_at"}

"""Consumers' inboxes: what a consumer made of an event, once."""

from typing import Annotated, Any

from fastapi import Path
from pydantic import Field
from starlette.responses import Response

from moorage.api import shapes
from moorage.api.answers import Answer
from moorage.api.fields import JsonObject, Sent, Shown, ShownInstant, fails
from moorage.api.requests import ApiRequest
from moorage.api.routing import router
from moorage.api.shapes import RecordSent
from moorage.kernel.errors import (
    BodyInvalid,
    EventUnknown,
    KindConflict,
    KindFull,
    KindUnknown,
    ParentUnknown,
    RateLimited,
    RecordExists,
)
from moorage.kernel.limits import SETTLE_RESULTS
from moorage.messages.inbox import consumers

api = router("inbox")

Consumer = Annotated[str, Path(description="The consumer's name, granted as a kind of it would be.")]
EventId = Annotated[str, Path(description="The event's id, as the consumer was told it; of any system.")]


class OutcomeSent(Sent):
    """What a consumer made of an event, and what is to commit with it: `kv` holds values by namespace and key, where null
    deletes; `records` are published."""

    outcome: Any
    kv: dict[str, JsonObject] = Field(default_factory=dict)
    records: list[RecordSent] = Field(default_factory=list, max_length=int(SETTLE_RESULTS))


class OutcomeShown(Shown):
    """What a consumer made of an event."""

    consumer: str
    event_id: str
    outcome: Any
    recorded_at: ShownInstant


class OutcomeRecorded(OutcomeShown):
    """The outcome that stands. Not `added`: it was recorded before, and nothing of this request was done."""

    added: bool


@api.post(
    "/inbox/{consumer}/{event_id}",
    status_code=201,
    response_model=OutcomeRecorded,
    responses={
        200: {"model": OutcomeRecorded, "description": "An outcome was recorded before."},
        **fails(KindUnknown, BodyInvalid, ParentUnknown, RecordExists, KindConflict, KindFull, RateLimited),
    },
)
async def record_outcome(request: ApiRequest, consumer: Consumer, event_id: EventId, sent: OutcomeSent) -> Response:
    """Record what a consumer made of an event, with its changes, in one transaction; once.

    Asked again for the same event it answers the recorded outcome, whatever is asked now, and changes nothing.
    """
    drafts = [one.draft() for one in sent.records]
    made = await consumers.record(
        request.db, request.ports.kinds, request.caller, request.now, consumer, event_id, sent.outcome, sent.kv, drafts
    )
    request.wake(shapes.earliest_wait(made.published), "records")
    if made.added:
        request.wake(consumers.forgotten_at(made), "upkeep")
    return Answer({**made.answer(), "added": made.added}, 201 if made.added else 200)


@api.get("/inbox/{consumer}/{event_id}", response_model=OutcomeShown, responses=fails(EventUnknown))
async def show_outcome(request: ApiRequest, consumer: Consumer, event_id: EventId) -> Response:
    """What a consumer made of an event."""
    return Answer((await consumers.show(request.db, request.caller, consumer, event_id)).answer())

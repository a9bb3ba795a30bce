"""Dead letters: list, inspect, requeue."""

from typing import Annotated

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from moorage.api import shapes
from moorage.api.answers import Answer, page
from moorage.api.fields import (
    Cursor,
    Default,
    JsonObject,
    Limit,
    PageShown,
    Reason,
    RecordId,
    Sent,
    Shown,
    fails,
    page_of,
)
from moorage.api.requests import ApiRequest
from moorage.api.routing import router
from moorage.api.shapes import DeadLetterShown, RecordShown
from moorage.kernel.errors import (
    CursorMismatch,
    IdempotencyConflict,
    KindUnknown,
    PatternInvalid,
    RecordNotDead,
    RecordRemoved,
    RecordUnknown,
)
from moorage.kernel.limits import REQUEUE_BATCH
from moorage.records import dead_letters

api = router("dead letters")


class RequeueSent(Sent):
    """Why the record gets another chance; history keeps it."""

    reason: Reason


class RequeueMatchingSent(RequeueSent):
    """Which dead letters to requeue, oldest first."""

    kind: str
    match: JsonObject = Field(default_factory=dict)
    limit: int = Field(default=int(REQUEUE_BATCH), ge=1, le=int(REQUEUE_BATCH))


class RequeuedShown(Shown):
    """The records that are ready again."""

    records: list[RecordShown]


@api.get("/dead-letters", response_model=PageShown[DeadLetterShown], responses=fails(KindUnknown, CursorMismatch))
async def list_dead_letters(
    request: ApiRequest,
    limit: Limit = Default,
    cursor: Cursor = None,
    kind: Annotated[str | None, Query(description="Only records of this kind.")] = None,
) -> Response:
    """Dead letters in the order of their publication; of every kind only with a grant to read every kind."""
    found = await dead_letters.list_dead_letters(
        request.db, request.ports.kinds, request.caller, request.now, page_of(limit, cursor), kind
    )
    return page(found, shapes.dead_letter)


@api.get("/dead-letters/{record}", response_model=DeadLetterShown, responses=fails(RecordUnknown))
async def show_dead_letter(request: ApiRequest, record: RecordId) -> Response:
    """One dead letter, with the attempts that led there."""
    found = await dead_letters.show(request.db, request.ports.kinds, request.caller, request.now, record)
    return Answer(shapes.dead_letter(found))


@api.post(
    "/dead-letters/{record}/requeue",
    response_model=RecordShown,
    responses=fails(RecordUnknown, RecordRemoved, RecordNotDead, IdempotencyConflict),
)
async def requeue(request: ApiRequest, record: RecordId, sent: RequeueSent) -> Response:
    """Make a dead letter ready again, with all its attempts before it."""
    found = await dead_letters.requeue(
        request.db, request.ports.kinds, request.caller, request.now, record, sent.reason, request.key()
    )
    return Answer(shapes.record(found))


@api.post(
    "/dead-letters/requeue",
    response_model=RequeuedShown,
    responses=fails(KindUnknown, PatternInvalid, IdempotencyConflict),
)
async def requeue_matching(request: ApiRequest, sent: RequeueMatchingSent) -> Response:
    """Make dead letters that match ready again, in one transaction: those that the caller may read and operate on."""
    found = await dead_letters.requeue_matching(
        request.db,
        request.ports.kinds,
        request.caller,
        request.now,
        sent.kind,
        sent.match,
        sent.reason,
        sent.limit,
        request.key(),
    )
    return Answer({"records": [shapes.record(one) for one in found]})

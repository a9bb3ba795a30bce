"""Records: publish, read, query, lineage, history."""

from contextlib import suppress
from typing import Annotated

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from moorage.api import public, shapes
from moorage.api.answers import Answer, page
from moorage.api.fields import (
    Cursor,
    Default,
    JsonObject,
    Limit,
    PageShown,
    RecordId,
    Sent,
    Shown,
    fails,
    page_of,
)
from moorage.api.requests import ApiRequest
from moorage.api.routes.history import EntryShown, history_page
from moorage.api.routing import router
from moorage.api.shapes import RecordSent, RecordShown
from moorage.kernel.errors import (
    BodyInvalid,
    CursorMismatch,
    IdempotencyConflict,
    KindConflict,
    KindFull,
    KindUnknown,
    ParentUnknown,
    PatternInvalid,
    RateLimited,
    RecordExists,
    RecordRemoved,
    RecordUnknown,
)
from moorage.kernel.limits import CURSOR_CHARACTERS, LINEAGE_DEPTH, PAGE_ITEMS, PUBLISH_BATCH
from moorage.records import publish, query
from moorage.records.debounce import publish_debounced
from moorage.records.model import State
from moorage.records.page_statements import Order
from moorage.records.query import Direction

api = router("records")

_PUBLISH_FAILS = fails(
    KindUnknown, BodyInvalid, ParentUnknown, RecordExists, IdempotencyConflict, KindConflict, KindFull, RateLimited
)


class BatchSent(Sent):
    """Records to publish together, all or none."""

    records: list[RecordSent] = Field(min_length=1, max_length=int(PUBLISH_BATCH))


class BatchShown(Shown):
    """The published records, in the order given."""

    records: list[RecordShown]


class QuerySent(Sent):
    """Which records of a kind to list. Without `match` all, without `state` in any state."""

    kind: str
    match: JsonObject = Field(default_factory=dict)
    state: State | None = None
    order: Order = "asc"
    limit: int = Field(default=Default, ge=1, le=int(PAGE_ITEMS))
    cursor: str | None = Field(default=None, max_length=int(CURSOR_CHARACTERS))


class RelativeShown(Shown):
    """A record of a lineage, `depth` generations away."""

    depth: int
    record: RecordShown


class LineageShown(Shown):
    """Ancestors or descendants, nearest first; `truncated` when there were more than an answer holds."""

    items: list[RelativeShown]
    truncated: bool


@api.post("/records", status_code=201, response_model=RecordShown, responses=_PUBLISH_FAILS)
async def publish_record(request: ApiRequest, sent: RecordSent) -> Response:
    """Publish a record. The same Idempotency-Key with the same content answers the first record again.

    A public credential publishes from a browser; it is answered the record's id alone.
    """
    draft = sent.draft()
    public.check_draft(request.caller, draft, request.headers)
    context = (request.db, request.ports.kinds, request.caller, request.now)
    if draft.debounce is not None:
        published = await publish_debounced(*context, draft, request.key())
    else:
        [published] = await publish.publish(*context, [draft], request.key())
    request.wake(shapes.earliest_wait([published]), "records")
    if request.caller.public:
        return Answer({"id": published.id}, 201)
    return Answer(shapes.record(published), 201)


@api.post("/records/batch", status_code=201, response_model=BatchShown, responses=_PUBLISH_FAILS)
async def publish_batch(request: ApiRequest, sent: BatchSent) -> Response:
    """Publish records in one transaction, all or none."""
    drafts = [one.draft() for one in sent.records]
    published = await publish.publish(request.db, request.ports.kinds, request.caller, request.now, drafts, request.key())
    request.wake(shapes.earliest_wait(published), "records")
    return Answer({"records": [shapes.record(one) for one in published]}, 201)


@api.post(
    "/records/query",
    response_model=PageShown[RecordShown],
    responses=fails(KindUnknown, PatternInvalid, CursorMismatch),
)
async def query_records(request: ApiRequest, sent: QuerySent) -> Response:
    """A page of a kind's records that match a pattern, in the order of their publication.

    Its work is bounded: a page may hold fewer records than asked for, even none, and still have a `next_cursor`.
    """
    found = await query.query(
        request.db,
        request.ports.kinds,
        request.caller,
        request.now,
        sent.kind,
        sent.match,
        page_of(sent.limit, sent.cursor),
        sent.state,
        sent.order,
    )
    return page(found, shapes.record)


@api.get("/records/{record}", response_model=RecordShown, responses=fails(RecordUnknown, RecordRemoved))
async def show_record(request: ApiRequest, record: RecordId) -> Response:
    """One record."""
    found = await query.get(request.db, request.ports.kinds, request.caller, request.now, record)
    return Answer(shapes.record(found))


@api.get("/records/{record}/lineage", response_model=LineageShown, responses=fails(RecordUnknown, RecordRemoved))
async def show_lineage(
    request: ApiRequest,
    record: RecordId,
    direction: Annotated[Direction, Query(description="Which way to look.")] = "ancestors",
    depth: Annotated[int, Query(ge=1, le=int(LINEAGE_DEPTH), description="Generations.")] = int(LINEAGE_DEPTH),
) -> Response:
    """What a record came from, or what came from it. Records that the caller may not read are left out."""
    found, truncated = await query.lineage(
        request.db, request.ports.kinds, request.caller, request.now, record, direction, depth
    )
    items = [{"depth": one.depth, "record": shapes.record(one.record)} for one in found]
    return Answer({"items": items, "truncated": truncated})


@api.get(
    "/records/{record}/history",
    response_model=PageShown[EntryShown],
    responses=fails(RecordUnknown, CursorMismatch),
)
async def show_record_history(
    request: ApiRequest, record: RecordId, limit: Limit = Default, cursor: Cursor = None
) -> Response:
    """What happened to a record, oldest first. It can still be read when retention has removed the record."""
    with suppress(RecordRemoved):
        await query.get(request.db, request.ports.kinds, request.caller, request.now, record)
    return await history_page(request, page_of(limit, cursor), record)

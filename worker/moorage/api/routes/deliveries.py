"""Deliveries: what is told to destinations, asking for it again, and how far behind it is (clauses outbox.redeliver,
outbox.lag)."""

from typing import Annotated, Literal

from fastapi import Path, Query
from pydantic import Field
from starlette.responses import Response

from moorage.api.answers import Answer, page
from moorage.api.fields import (
    Cursor,
    Default,
    Limit,
    PageShown,
    Reason,
    Sent,
    SentInstant,
    Shown,
    ShownInstant,
    fails,
    page_of,
)
from moorage.api.requests import ApiRequest
from moorage.api.routing import router
from moorage.kernel.errors import CursorMismatch, DeliveryConflict, DeliveryUnknown, IdempotencyConflict
from moorage.kernel.limits import ID_CHARACTERS, REDELIVER_BATCH
from moorage.messages.outbox import delivery_list, redeliver
from moorage.messages.outbox.deliveries import State
from moorage.messages.outbox.delivery_list import Order, Wanted
from moorage.messages.outbox.redeliver import Chosen, Over

api = router("deliveries")

DeliveryId = Annotated[str, Path(max_length=int(ID_CHARACTERS), description="A delivery's id.")]
_State = Annotated[State | None, Query(description="Only those in this state.")]
_Subscription = Annotated[str | None, Query(max_length=int(ID_CHARACTERS), description="Only those of this subscription.")]
_Destination = Annotated[str | None, Query(max_length=int(ID_CHARACTERS), description="Only those to this destination.")]
_Event = Annotated[str | None, Query(max_length=int(ID_CHARACTERS), description="Only those of this event.")]
_Order = Annotated[Order, Query(description="In the order in which they were made, or the newest first.")]
_Named = Annotated[str, Field(min_length=1, max_length=int(ID_CHARACTERS))]


class AgainSent(Sent):
    """Why the delivery is made again."""

    reason: Reason | None = None


class RedeliverSent(Sent):
    """Which deliveries are made again: those in a state, the dead unless it is given; of a subscription; to a destination;
    made at `since` or later; past the delivery `after`. History keeps the reason."""

    state: Over = "dead"
    subscription: _Named | None = None
    destination: _Named | None = None
    since: SentInstant | None = None
    after: _Named | None = None
    limit: int = Field(default=int(REDELIVER_BATCH), ge=1, le=int(REDELIVER_BATCH))
    reason: Reason


class CancelSent(Sent):
    """Why the delivery is given up."""

    reason: Reason | None = None


class DeliveryHead(Shown):
    """A delivery. `event_id` and its bytes stay the same over all attempts and generations; `attempts` counts those of this
    generation, and `generation` how often somebody asked for it."""

    delivery_id: str
    subscription: str
    destination: str
    event_id: str
    type: str
    aggregate_id: str
    generation: int
    state: State
    attempts: int
    next_attempt_at: ShownInstant | None
    leased_until: ShownInstant | None
    occurred_at: ShownInstant
    created_at: ShownInstant
    first_attempt_at: ShownInstant | None
    ended_at: ShownInstant | None
    last_status: int | None
    last_error: str | None = Field(description="What stood against the last attempt; credentials in it are masked.")


class DeliveryShown(DeliveryHead):
    """A delivery with its body: the text that is sent, and signed, byte for byte."""

    body: str


class RedeliveredShown(Shown):
    """The deliveries that are made again. `next_after` is where to go on; null when everything was looked at."""

    deliveries: list[DeliveryHead]
    next_after: str | None


class DelayShown(Shown):
    """How long after they happened the newest events were first sent."""

    mean: float
    longest: float


class DestinationSummary(Shown):
    """How deliveries to a destination stand; counts end at the limit `deliveries_counted`. `attempts` is the most that one
    pending delivery took so far."""

    destination: str
    pending: int
    oldest_pending_at: ShownInstant | None
    oldest_pending_seconds: float | None
    attempts: int
    dead: int
    publication_delay_seconds: DelayShown | None
    circuit: Literal["closed", "open", "half_open", "disabled"]
    blocked_until: ShownInstant | None
    reason: str | None


class SummaryShown(Shown):
    """How far the outbox is behind, in seconds since the oldest event that was not told yet, and each destination."""

    lag_seconds: float
    items: list[DestinationSummary]
    next_cursor: str | None


@api.get("/deliveries", response_model=PageShown[DeliveryHead], responses=fails(CursorMismatch))
async def list_deliveries(
    request: ApiRequest,
    limit: Limit = Default,
    cursor: Cursor = None,
    state: _State = None,
    subscription: _Subscription = None,
    destination: _Destination = None,
    event_id: _Event = None,
    order: _Order = "asc",
) -> Response:
    """Deliveries, without their bodies. A page may be short and still have a next one."""
    wanted = Wanted(state, subscription, destination, event_id, order)
    found = await delivery_list.list_deliveries(request.db, request.caller, page_of(limit, cursor), wanted)
    return page(found, lambda one: one.answer())


@api.get("/deliveries/summary", response_model=SummaryShown, responses=fails(CursorMismatch))
async def summarize_deliveries(request: ApiRequest, limit: Limit = Default, cursor: Cursor = None) -> Response:
    """How far the outbox is behind, and how deliveries to each destination stand: what to watch, and to be woken by."""
    found = await delivery_list.summarize(request.db, request.caller, request.now, page_of(limit, cursor))
    return Answer(found.answer())


@api.post("/deliveries/redeliver", response_model=RedeliveredShown, responses=fails(IdempotencyConflict))
async def redeliver_many(request: ApiRequest, sent: RedeliverSent) -> Response:
    """Make deliveries again that are over, the oldest first, in one transaction: the same events, one generation higher."""
    chosen = Chosen(sent.state, sent.subscription, sent.destination, sent.since, sent.after, sent.limit)
    key = request.key()
    again = await redeliver.redeliver_many(request.db, request.caller, request.now, chosen, sent.reason, key)
    if again.deliveries:
        request.wake(request.now, "messages")
    return Answer({"deliveries": [one.answer() for one in again.deliveries], "next_after": again.next_after})


@api.get("/deliveries/{delivery}", response_model=DeliveryShown, responses=fails(DeliveryUnknown))
async def show_delivery(request: ApiRequest, delivery: DeliveryId) -> Response:
    """One delivery with its body."""
    return Answer((await redeliver.show(request.db, request.caller, delivery)).whole())


@api.post(
    "/deliveries/{delivery}/redeliver",
    response_model=DeliveryHead,
    responses=fails(DeliveryUnknown, DeliveryConflict, IdempotencyConflict),
)
async def redeliver_one(request: ApiRequest, delivery: DeliveryId, sent: AgainSent) -> Response:
    """Make a delivery again that is over, however it ended: the same event and bytes, one generation higher."""
    key = request.key()
    made = await redeliver.redeliver(request.db, request.caller, request.now, delivery, sent.reason, key)
    request.wake(request.now, "messages")
    return Answer(made.answer())


@api.post("/deliveries/{delivery}/cancel", response_model=DeliveryHead, responses=fails(DeliveryUnknown, DeliveryConflict))
async def cancel_delivery(request: ApiRequest, delivery: DeliveryId, sent: CancelSent) -> Response:
    """Give a delivery up that is pending or dead. An attempt that is under way at this moment may still arrive."""
    canceled = await redeliver.cancel(request.db, request.caller, request.now, delivery, sent.reason)
    return Answer(canceled.answer())

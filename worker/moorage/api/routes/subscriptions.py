"""Subscriptions: which entries of history are told to which destination (clause outbox.deliver)."""

from typing import Annotated, Literal

from fastapi import Path
from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from starlette.responses import Response

from moorage.api.answers import Answer, page
from moorage.api.fields import (
    Cursor,
    Default,
    JsonObject,
    Limit,
    PageShown,
    Reason,
    Sent,
    Shown,
    ShownInstant,
    fails,
    page_of,
)
from moorage.api.requests import ApiRequest
from moorage.api.routing import router
from moorage.kernel.errors import (
    CursorMismatch,
    DestinationUnknown,
    IdempotencyConflict,
    KindUnknown,
    PatternInvalid,
    SubscriptionUnknown,
)
from moorage.kernel.limits import ID_CHARACTERS, SUBSCRIPTION_TYPES
from moorage.messages.outbox import subscriptions
from moorage.messages.outbox.subscriptions import Declaration, State

api = router("subscriptions")

SubscriptionName = Annotated[str, Path(max_length=int(ID_CHARACTERS), description="A subscription's name.")]
_Names = Annotated[list[str], Field(max_length=int(SUBSCRIPTION_TYPES))]
_Position = Annotated[int, Field(ge=0, le=2**53 - 1)]


def _start(value: object, read: ValidatorFunctionWrapHandler) -> object:
    """One sentence for all that is neither, at the member itself: pydantic's are one for each, beneath it."""
    try:
        return read(value)
    except ValidationError:
        raise ValueError("must be `now` or a position of history, 0 or more") from None


_From = Annotated[_Position | Literal["now"] | None, WrapValidator(_start)]


class SubscriptionSent(Sent):
    """What is told to whom. `types` are types of entries of history, `record.published`, or prefixes as `record.*` or `*`;
    `kinds` keeps only entries of these kinds. `filter` is a pattern: over the bodies of records where every type is one of
    records and there is exactly one kind, over what the entries' own `data` holds otherwise. `from` is where to begin:
    `now`, or past a position of history; left out, a new one begins now and one that is there goes on where it stands."""

    types: _Names
    kinds: _Names = Field(default_factory=list)
    destination: str = Field(min_length=1, max_length=int(ID_CHARACTERS))
    filter: JsonObject | None = None
    paused: bool = False
    from_: _From = Field(default=None, alias="from")


class PauseSent(Sent):
    """Why it is paused."""

    reason: Reason | None = None


class SubscriptionShown(Shown):
    """A subscription. `position` is the last entry of history that it looked at, and `behind` how many there are past it."""

    name: str
    state: State
    reason: str | None
    destination: str
    types: list[str]
    kinds: list[str]
    filter: JsonObject | None
    position: int
    behind: int
    created_by: str
    created_at: ShownInstant
    updated_at: ShownInstant


@api.put(
    "/subscriptions/{name}",
    response_model=SubscriptionShown,
    responses=fails(DestinationUnknown, KindUnknown, PatternInvalid),
)
async def put_subscription(request: ApiRequest, name: SubscriptionName, sent: SubscriptionSent) -> Response:
    """Declare a subscription, or declare it anew. Each entry that is committed from then on, and that it means, becomes one
    delivery to its destination."""
    declared = Declaration(sent.destination, tuple(sent.types), tuple(sent.kinds), sent.filter, sent.paused, sent.from_)
    put = await subscriptions.put(request.db, request.ports.kinds, request.caller, request.now, name, declared)
    _listen(request, put)
    return Answer(put.answer())


@api.get("/subscriptions", response_model=PageShown[SubscriptionShown], responses=fails(CursorMismatch))
async def list_subscriptions(request: ApiRequest, limit: Limit = Default, cursor: Cursor = None) -> Response:
    """The subscriptions by name."""
    found = await subscriptions.list_subscriptions(request.db, request.caller, page_of(limit, cursor))
    return page(found, lambda one: one.answer())


@api.get("/subscriptions/{name}", response_model=SubscriptionShown, responses=fails(SubscriptionUnknown))
async def show_subscription(request: ApiRequest, name: SubscriptionName) -> Response:
    """One subscription."""
    return Answer((await subscriptions.show(request.db, request.caller, name)).answer())


@api.delete("/subscriptions/{name}", status_code=204, responses=fails(SubscriptionUnknown, IdempotencyConflict))
async def delete_subscription(request: ApiRequest, name: SubscriptionName) -> Response:
    """Tell nothing more. What was told already is still delivered."""
    await subscriptions.delete(request.db, request.caller, request.now, name, request.key({}))
    return Response(status_code=204)


@api.post("/subscriptions/{name}/pause", response_model=SubscriptionShown, responses=fails(SubscriptionUnknown))
async def pause_subscription(request: ApiRequest, name: SubscriptionName, sent: PauseSent) -> Response:
    """Tell nothing more until it is resumed. What was told already is still delivered."""
    paused = await subscriptions.pause(request.db, request.caller, request.now, name, sent.reason)
    return Answer(paused.answer())


@api.post("/subscriptions/{name}/resume", response_model=SubscriptionShown, responses=fails(SubscriptionUnknown))
async def resume_subscription(request: ApiRequest, name: SubscriptionName) -> Response:
    """Go on with the first entry that was not looked at."""
    resumed = await subscriptions.resume(request.db, request.caller, request.now, name)
    _listen(request, resumed)
    return Answer(resumed.answer())


def _listen(request: ApiRequest, subscription: subscriptions.Subscription) -> None:
    """What was committed before it is told as soon as the Clock looks."""
    if subscription.state == "active" and subscription.behind:
        request.wake(request.now, "messages")

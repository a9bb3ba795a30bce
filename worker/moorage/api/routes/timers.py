"""Timers: events that are accepted at an instant."""

from typing import Annotated, Any, Self

from fastapi import Path, Query
from pydantic import Field, model_validator
from starlette.responses import Response

from moorage.api.answers import Answer, nothing, page
from moorage.api.fields import Cursor, Default, Limit, PageShown, Sent, SentInstant, Shown, ShownInstant, fails, page_of
from moorage.api.requests import ApiRequest
from moorage.api.routing import router
from moorage.kernel import canonical
from moorage.kernel.errors import CursorMismatch, EventIdentityUsed, IdempotencyConflict, TimerConflict, TimerUnknown
from moorage.kernel.limits import EVENT_ATTRIBUTE_CHARACTERS, EVENT_KEYS, EVERY_SECONDS
from moorage.timers import listing, put
from moorage.timers.model import Template, Wish

api = router("timers")

TimerId = Annotated[str, Path(description="The timer's id, of the client's choice.")]
AtRevision = Annotated[int, Query(ge=1, le=2**53 - 1, description="The revision that the timer has.")]
_Attribute = Annotated[str, Field(min_length=1, max_length=int(EVENT_ATTRIBUTE_CHARACTERS))]
_Seconds = Annotated[float, Field(ge=0, le=10**12)]


class EventOfTimer(Sent):
    """The event that a timer sends. Without an `id` the timer's id and revision make one, and without a `source` it is
    `/timers/<id>`. Waits find it by its subject and its keys."""

    type: _Attribute
    source: _Attribute | None = None
    id: _Attribute | None = None
    subject: _Attribute | None = None
    keys: list[_Attribute] = Field(default_factory=list, max_length=int(EVENT_KEYS))
    data: Any = None


class TimerSent(Sent):
    """A timer to set: `fire_at` is its instant, or `delay_seconds` how long from now, to the millisecond; one of them. It
    repeats `every_seconds`. With `revision` only if the timer has that one now; 0 is a timer that is not there."""

    fire_at: SentInstant | None = None
    delay_seconds: _Seconds | None = None
    every_seconds: float | None = Field(default=None, ge=1, le=int(EVERY_SECONDS))
    event: EventOfTimer
    revision: int | None = Field(default=None, ge=0, le=2**53 - 1)

    @model_validator(mode="after")
    def _has_one_instant(self) -> Self:
        if (self.fire_at is None) == (self.delay_seconds is None):
            raise ValueError("a timer has either fire_at or delay_seconds")
        return self

    def wish(self) -> Wish:
        """What the room takes."""
        event = self.event
        data = canonical.dumps(event.data) if "data" in event.model_fields_set else None
        template = Template(event.type, event.source, event.id, event.subject, tuple(event.keys), data)
        return Wish(template, self.fire_at, _milliseconds(self.delay_seconds), _milliseconds(self.every_seconds))


class EventShownOfTimer(Shown):
    """The event that a timer sends; one that repeats adds `@` and the due instant to its id. A list leaves the data out."""

    source: str
    type: str
    id: str
    subject: str | None
    keys: list[str]
    data: Any = None


class FailingShown(Shown):
    """Why the Clock has set something aside: it failed so many times, the last time with this error, and is tried again."""

    attempts: int
    error: str
    retry_at: ShownInstant


class TimerShown(Shown):
    """A timer that will fire at `fire_at`. Its revision counts what happened under its id, and never goes back. `failing` is
    null unless it is due and could not be fired."""

    id: str
    revision: int
    fire_at: ShownInstant
    every_seconds: float | None
    event: EventShownOfTimer
    created_by: str
    created_at: ShownInstant
    updated_at: ShownInstant
    failing: FailingShown | None = None


@api.put(
    "/timers/{timer}",
    response_model=TimerShown,
    responses=fails(TimerConflict, EventIdentityUsed, IdempotencyConflict),
)
async def put_timer(request: ApiRequest, timer: TimerId, sent: TimerSent) -> Response:
    """Set a timer, or set it anew: at its instant its event is accepted, once, as if it had been sent then.

    An instant that is past is due at once. The same again changes nothing; with an Idempotency-Key also once it has fired.
    """
    stored = await put.put(request.db, request.caller, request.now, timer, sent.wish(), sent.revision, request.key())
    request.wake(stored.fire_at, "time")
    return Answer(stored.answer())


@api.get("/timers", response_model=PageShown[TimerShown], responses=fails(CursorMismatch))
async def list_timers(request: ApiRequest, limit: Limit = Default, cursor: Cursor = None) -> Response:
    """The timers that will fire, by id, for operators."""
    found = await listing.list_timers(request.db, request.caller, page_of(limit, cursor))
    return page(found, lambda one: one.answer(with_data=False))


@api.get("/timers/{timer}", response_model=TimerShown, responses=fails(TimerUnknown))
async def show_timer(request: ApiRequest, timer: TimerId) -> Response:
    """A timer that will fire."""
    return Answer((await put.show(request.db, request.caller, timer)).answer())


@api.delete(
    "/timers/{timer}",
    status_code=204,
    response_class=Response,
    responses=fails(TimerUnknown, TimerConflict, IdempotencyConflict),
)
async def delete_timer(request: ApiRequest, timer: TimerId, revision: AtRevision) -> Response:
    """Delete a timer, if it has this revision."""
    key = request.key({"revision": revision})
    await put.delete(request.db, request.caller, request.now, timer, revision, key)
    return nothing()


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)

"""Timers: events that are accepted at an instant."""

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import Any, Final

from pydantic import Field

from moorage.client.keys import fresh_key
from moorage.client.models import Answered, Moment, Page, rfc3339
from moorage.client.paging import every, page_of, segment
from moorage.client.wire import Wire
from moorage.kernel.limits import PAGE_ITEMS

NOTHING: Final = object()
"""Stands for an event without data; None is data."""


class TimerEvent(Answered):
    """The event that a timer sends; one that repeats adds `@` and the due instant to its id. A list leaves the data out."""

    source: str
    type: str
    id: str
    subject: str | None = None
    keys: list[str] = Field(default_factory=list)
    data: Any = None


class Failing(Answered):
    """Why the Clock has set something aside: it failed so many times, the last time with this error, and is tried again."""

    attempts: int
    error: str
    retry_at: Moment


class Timer(Answered):
    """A timer that will fire at `fire_at`. Its revision counts what happened under its id, and never goes back. `failing` is
    None unless it is due and could not be fired."""

    id: str
    revision: int
    fire_at: Moment
    every_seconds: float | None = None
    event: TimerEvent
    created_by: str
    created_at: Moment
    updated_at: Moment
    failing: Failing | None = None


class Timers:
    """The operations on timers. Each raises Problem and Unanswered."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def put(
        self,
        timer: str,
        type: str,  # noqa: A002 - as the event's attribute is called
        *,
        at: datetime | None = None,
        delay_seconds: float | None = None,
        every_seconds: float | None = None,
        data: Any = NOTHING,
        source: str | None = None,
        event_id: str | None = None,
        subject: str | None = None,
        keys: Sequence[str] = (),
        revision: int | None = None,
    ) -> Timer:
        """Set a timer, or set it anew: at an instant, or so many seconds from now; with `revision` only if it has that one,
        0 for a timer that is not there. Where an answer was lost it is asked again, and sets the timer once."""
        told = {"type": type, "source": source, "id": event_id, "subject": subject}
        event: dict[str, Any] = {name: value for name, value in told.items() if value is not None}
        if keys:
            event["keys"] = list(keys)
        if data is not NOTHING:
            event["data"] = data
        wished = {
            "fire_at": None if at is None else rfc3339(at),
            "delay_seconds": delay_seconds,
            "every_seconds": every_seconds,
            "revision": revision,
        }
        sent = {**{name: value for name, value in wished.items() if value is not None}, "event": event}
        answer = await self._wire.call("PUT", f"/timers/{segment(timer)}", sent, key=fresh_key())
        return Timer.model_validate(answer)

    async def get(self, timer: str) -> Timer:
        """A timer that will fire."""
        return Timer.model_validate(await self._wire.call("GET", f"/timers/{segment(timer)}"))

    async def delete(self, timer: str, revision: int) -> None:
        """Delete a timer, if it has this revision. Where an answer was lost it is asked again, and deletes once."""
        await self._wire.call("DELETE", f"/timers/{segment(timer)}", query={"revision": revision}, key=fresh_key())

    async def page(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Timer]:
        """A page of timers by id, for operators."""
        return page_of(Timer, await self._wire.call("GET", "/timers", query={"limit": limit, "cursor": cursor}))

    def iterate(self) -> AsyncGenerator[Timer, None]:
        """Every timer."""
        return every(lambda cursor: self.page(limit=int(PAGE_ITEMS), cursor=cursor))

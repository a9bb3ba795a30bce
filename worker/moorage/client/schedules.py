"""Schedules: bodies that are started, or records that are published, again and again."""

from collections.abc import AsyncGenerator, Mapping
from datetime import datetime
from typing import Any, Literal

from moorage.client.keys import fresh_key, key_or_fresh
from moorage.client.models import Answered, Moment, Page, rfc3339
from moorage.client.paging import every, page_of, segment
from moorage.client.timers import Failing
from moorage.client.wire import Wire
from moorage.kernel.limits import PAGE_ITEMS

Overlap = Literal["skip", "coalesce", "enqueue"]
CatchUp = Literal["all", "last", "none"]


class Current(Answered):
    """What a schedule started last, and whether that has ended."""

    trigger_id: str
    ended: bool
    run_id: str | None
    record: str | None


class Schedule(Answered):
    """A schedule. `next_at` is None while it is paused; `queued` windows wait for their turn. `failing` is None unless the
    Clock could not see to a window that has begun."""

    name: str
    cron: str | None = None
    every_seconds: float | None = None
    timezone: str
    overlap: Overlap
    catch_up: CatchUp
    catch_up_seconds: float
    target: dict[str, Any]
    paused: bool
    next_at: Moment | None
    current: Current | None
    queued: int
    created_by: str
    created_at: Moment
    updated_at: Moment
    failing: Failing | None = None


class Window(Answered):
    """A window that is to come; `local` is its start as clocks in the zone show it."""

    window_start: Moment
    window_end: Moment
    local: str
    trigger_id: str | None = None


class Trigger(Answered):
    """What became of a window. `error` has the `code` of what kept it from starting, or the `reason` why it was skipped."""

    trigger_id: str
    schedule: str
    window_start: Moment
    window_end: Moment
    state: Literal["queued", "started", "skipped", "coalesced", "failed"]
    run_id: str | None
    record: str | None
    backfill: bool
    created_at: Moment
    started_at: Moment | None
    error: dict[str, Any] | None


class Backfilled(Answered):
    """How many windows a range has, and how many of them wait for their turn now."""

    windows: int
    queued: int


class Schedules:
    """The operations on schedules. Each raises Problem and Unanswered."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def put(
        self,
        name: str,
        target: Mapping[str, Any],
        *,
        cron: str | None = None,
        every_seconds: float | None = None,
        timezone: str = "UTC",
        overlap: Overlap = "skip",
        catch_up: CatchUp = "last",
        catch_up_seconds: float | None = None,
        paused: bool = False,
    ) -> Schedule:
        """Declare a schedule, or declare it anew. `target` is `{"body", "input"?, "scope"?}` or `{"record": {"kind", "body",
        "metadata"?, "priority"?}}`; exactly one of `cron` and `every_seconds`."""
        sent: dict[str, Any] = {
            "cron": cron,
            "every_seconds": every_seconds,
            "timezone": timezone,
            "overlap": overlap,
            "catch_up": catch_up,
            "catch_up_seconds": catch_up_seconds,
            "target": dict(target),
            "paused": paused,
        }
        told = {one: value for one, value in sent.items() if value is not None}
        return Schedule.model_validate(await self._wire.call("PUT", self._path(name), told))

    async def page(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Schedule]:
        """A page of schedules by name; it may be short and have a next cursor."""
        return page_of(Schedule, await self._wire.call("GET", "/schedules", query={"limit": limit, "cursor": cursor}))

    def iterate(self) -> AsyncGenerator[Schedule, None]:
        """Every schedule."""
        return every(lambda cursor: self.page(limit=int(PAGE_ITEMS), cursor=cursor))

    async def get(self, name: str) -> Schedule:
        """One schedule."""
        return Schedule.model_validate(await self._wire.call("GET", self._path(name)))

    async def delete(self, name: str) -> None:
        """Delete a schedule. What it started goes on; what waited does not."""
        await self._wire.call("DELETE", self._path(name), key=fresh_key())

    async def pause(self, name: str) -> Schedule:
        """Pause a schedule: its windows pass, and those that wait go on waiting."""
        return Schedule.model_validate(await self._wire.call("POST", self._path(name, "pause"), repeatable=True))

    async def resume(self, name: str) -> Schedule:
        """Let a paused schedule go on, from the next window on."""
        return Schedule.model_validate(await self._wire.call("POST", self._path(name, "resume"), repeatable=True))

    async def trigger(self, name: str, *, key: str | None = None) -> Trigger:
        """Let a window come now; its start is the instant, and the overlap policy holds for it."""
        answer = await self._wire.call("POST", self._path(name, "trigger"), key=key_or_fresh(key))
        return Trigger.model_validate(answer)

    async def backfill(self, name: str, start: datetime, end: datetime, *, key: str | None = None) -> Backfilled:
        """Let the windows of a past range come that started nothing yet, in order and one after the other."""
        sent = {"start": rfc3339(start), "end": rfc3339(end)}
        answer = await self._wire.call("POST", self._path(name, "backfill"), sent, key=key_or_fresh(key))
        return Backfilled.model_validate(answer)

    async def next(self, name: str, count: int | None = None, after: datetime | None = None) -> list[Window]:
        """The windows that are to come, as if the schedule were not paused."""
        query = {"count": count, "after": None if after is None else rfc3339(after)}
        answer = await self._wire.call("GET", self._path(name, "next"), query=query)
        return [Window.model_validate(one) for one in answer["items"]]

    async def preview(
        self,
        *,
        cron: str | None = None,
        every_seconds: float | None = None,
        timezone: str = "UTC",
        count: int | None = None,
        after: datetime | None = None,
    ) -> list[Window]:
        """The windows that a schedule would have; nothing is stored."""
        sent = {"cron": cron, "every_seconds": every_seconds, "timezone": timezone, "count": count}
        sent["after"] = None if after is None else rfc3339(after)
        told = {one: value for one, value in sent.items() if value is not None}
        answer = await self._wire.call("POST", "/schedules/preview", told, repeatable=True)
        return [Window.model_validate(one) for one in answer["items"]]

    async def triggers_page(self, name: str, *, limit: int | None = None, cursor: str | None = None) -> Page[Trigger]:
        """A page of what became of the schedule's windows, the latest first."""
        query = {"limit": limit, "cursor": cursor}
        return page_of(Trigger, await self._wire.call("GET", self._path(name, "triggers"), query=query))

    def triggers(self, name: str) -> AsyncGenerator[Trigger, None]:
        """What became of all its windows, the latest first."""
        return every(lambda cursor: self.triggers_page(name, limit=int(PAGE_ITEMS), cursor=cursor))

    def _path(self, name: str, act: str | None = None) -> str:
        return f"/schedules/{segment(name)}" + ("" if act is None else f"/{act}")

"""Windows that are to come, of a schedule or of a declaration that is not stored (clause schedules.dst)."""

from typing import Any

from moorage.catalog.access import Caller
from moorage.kernel.instants import Instant, render
from moorage.kernel.limits import SCHEDULE_PREVIEW
from moorage.kernel.refusals import refused
from moorage.schedules import declare
from moorage.schedules.cadence import Cadence, cadence_of, local, take
from moorage.schedules.model import Window
from moorage.store.ports import Database


async def of_schedule(
    db: Database, caller: Caller, now: Instant, name: str, after: Instant | None, count: int
) -> list[dict[str, Any]]:
    """The next windows of a schedule past `after`, now unless it is given, as if it were not paused.

    Raises ScheduleUnknown, RequestInvalid past SCHEDULE_PREVIEW.
    """
    schedule = await declare.show(db, caller, now, name)
    return windows(schedule.cadence, schedule.timezone, now if after is None else after, count, name)


def of_declaration(
    now: Instant, cron: str | None, every_ms: int | None, timezone: str, after: Instant | None, count: int
) -> list[dict[str, Any]]:
    """The windows that a schedule would have that was declared at `after`, now unless it is given. Raises RequestInvalid."""
    start = now if after is None else after
    return windows(cadence_of(cron, every_ms, timezone, start), timezone, start, count)


def windows(cadence: Cadence, timezone: str, after: Instant, count: int, name: str | None = None) -> list[dict[str, Any]]:
    """The first `count` windows past an instant, as a client is shown them."""
    if not 1 <= count <= SCHEDULE_PREVIEW:
        raise refused("/count", f"must lie between 1 and {SCHEDULE_PREVIEW}")
    starts = take(cadence, after, count + 1)
    found = [Window(one, starts[place + 1] if place + 1 < len(starts) else one) for place, one in enumerate(starts[:count])]
    return [
        {
            "window_start": render(one.start),
            "window_end": render(one.end),
            "local": local(one.start, timezone),
            **({} if name is None else {"trigger_id": one.trigger_id(name)}),
        }
        for one in found
    ]

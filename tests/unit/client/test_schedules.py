"""Schedules through the client."""

from datetime import datetime, timedelta

import pytest

from moorage.client import Moorage, Problem
from tests.unit.client.conftest import World

TICK = {"record": {"kind": "doc", "body": {"n": 1}}}


@pytest.mark.clause("schedules.window")
async def test_a_schedule_is_declared_looked_at_paused_filled_and_deleted(moorage: Moorage, world: World) -> None:
    made = await moorage.schedules.put("s", TICK, every_seconds=60, overlap="enqueue", catch_up_seconds=10)
    assert (made.every_seconds, made.cron, made.catch_up_seconds, made.queued) == (60, None, 10, 0)
    assert await moorage.schedules.get("s") == made
    assert [one.name async for one in moorage.schedules.iterate()] == ["s"]
    await world.house.advance(120)
    found = [one async for one in moorage.schedules.triggers("s")]
    assert [one.state for one in found] == ["started", "started"]
    assert found[0].window_start - found[1].window_start == timedelta(seconds=60)
    assert (await moorage.records.get(found[0].record or "")).metadata["trigger_id"] == found[0].trigger_id
    assert (await moorage.schedules.pause("s")).next_at is None
    await world.house.advance(1)
    by_hand = await moorage.schedules.trigger("s", key="k")
    assert await moorage.schedules.trigger("s", key="k") == by_hand
    assert (by_hand.state, by_hand.window_start) == ("started", found[0].window_start + timedelta(seconds=1))
    first: datetime = made.created_at
    filled = await moorage.schedules.backfill("s", first - timedelta(seconds=180), first)
    assert (filled.windows, filled.queued) == (3, 3)
    resumed = await moorage.schedules.resume("s")
    assert resumed.next_at is not None
    [one] = await moorage.schedules.next("s", 1)
    assert (one.window_start, one.trigger_id) == (resumed.next_at, f"s@{one.wire()['window_start']}")
    [later] = await moorage.schedules.next("s", 1, one.window_start)
    assert later.window_start == one.window_end
    await moorage.schedules.delete("s")
    with pytest.raises(Problem) as caught:
        await moorage.schedules.get("s")
    assert caught.value.code == "ScheduleUnknown"


async def test_a_preview_needs_no_schedule(moorage: Moorage) -> None:
    after = datetime.fromisoformat("2027-03-27T12:00:00+00:00")
    found = await moorage.schedules.preview(cron="30 2 * * *", timezone="Europe/Paris", count=2, after=after)
    assert [one.local for one in found] == ["2027-03-28T03:00:00+02:00", "2027-03-29T02:30:00+02:00"]
    assert len(await moorage.schedules.preview(every_seconds=5)) == 10

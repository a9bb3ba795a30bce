"""Timers, values and inboxes through the client, against the application itself."""

from datetime import UTC, datetime

import pytest

from moorage.client import Draft, Moorage, Problem
from tests.unit.client.conftest import World


@pytest.mark.clause("timers.fire")
async def test_timers_are_set_seen_and_deleted(moorage: Moorage, world: World) -> None:
    made = await moorage.timers.put("t", "ping", delay_seconds=1.5, data=None, subject="s", keys=["k"], every_seconds=60)
    assert (made.revision, made.event.id, made.event.keys, made.every_seconds) == (1, "t:1", ["k"], 60)
    assert "data" in made.wire()["event"]
    assert await moorage.timers.get("t") == made
    assert made.wire() == await moorage.wire.call("GET", "/timers/t")
    at = datetime(2030, 1, 1, tzinfo=UTC)
    late = await moorage.timers.put("late", "ping", at=at, source="/s", event_id="e")
    assert (late.fire_at, late.event.source, late.event.id, "data" in late.wire()["event"]) == (at, "/s", "e", False)
    assert [one.id async for one in moorage.timers.iterate()] == ["late", "t"]
    await world.house.advance(2)
    fired = await moorage.timers.get("t")
    assert (fired.revision, (fired.fire_at - made.fire_at).total_seconds()) == (2, 60)
    with pytest.raises(Problem) as caught:
        await moorage.timers.put("t", "ping", delay_seconds=1, revision=1)
    assert caught.value.code == "TimerConflict"
    await moorage.timers.delete("t", 2)
    with pytest.raises(Problem):
        await moorage.timers.get("t")


@pytest.mark.clause("kv.ops")
async def test_values_are_put_got_listed_and_deleted(moorage: Moorage) -> None:
    made = await moorage.kv.put("ns", "k", {"n": None})
    assert (made.value, made.revision) == ({"n": None}, 1)
    assert (await moorage.kv.get("ns", "k")).wire() == made.wire()
    await moorage.kv.put("ns", "k", None, revision=1)
    await moorage.kv.put("ns", "other", 1, revision=0)
    assert [(one.key, one.value) async for one in moorage.kv.iterate("ns")] == [("k", None), ("other", 1)]
    assert [one.key for one in (await moorage.kv.page("ns", "o")).items] == ["other"]
    with pytest.raises(Problem) as caught:
        await moorage.kv.delete("ns", "k", revision=1)
    assert caught.value.code == "KeyConflict"
    for _ in range(2):
        await moorage.kv.delete("ns", "k")


@pytest.mark.clause("inbox.consumer")
async def test_an_outcome_is_recorded_once(moorage: Moorage) -> None:
    kv = {"ns": {"k": 1, "gone": None}}
    made = await moorage.inbox.record("billing", "evt-1", {"n": 1}, kv=kv, records=[Draft("doc", {"n": 1}, id="mine")])
    assert (made.outcome, made.added) == ({"n": 1}, True)
    again = await moorage.inbox.record("billing", "evt-1", 2)
    assert (again.outcome, again.added, again.recorded_at) == ({"n": 1}, False, made.recorded_at)
    assert (await moorage.inbox.get("billing", "evt-1")).outcome == {"n": 1}
    assert ((await moorage.kv.get("ns", "k")).value, (await moorage.records.get("mine")).body) == (1, {"n": 1})

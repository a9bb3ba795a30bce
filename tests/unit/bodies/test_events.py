"""Waiting for events in a body: what it is given, and what a replay finds again."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from moorage.bodies import Arrival, Event, Run, StepFailed, TimedOut, body, each
from moorage.kernel.errors import CapabilityUnwired, PatternInvalid, RequestInvalid
from moorage.kernel.instants import after, render
from moorage.kernel.limits import EVENT_LOOK_BACK_SECONDS, EVENT_WAIT_SECONDS
from moorage.runs.model import CAPABILITIES
from tests.unit.bodies.clock import START
from tests.unit.bodies.world import World


class Payment(BaseModel):
    amount: int


@pytest.mark.clause("waits.match")
async def test_a_body_gets_the_event_that_it_waits_for() -> None:
    got: list[Event] = []

    @body("waits", effects=["paid", "after"])
    async def waits(run: Run) -> int:
        event = await run.wait_event("paid", keys=["order-7"], types=["paid"], match={"amount": {"$gt": 1}}, returns=Payment)
        got.append(event)
        paid: Payment = event.data
        await run.step("after", lambda: 1)
        return paid.amount

    world = World(waits)
    assert await world.run("waits") == "suspended"
    assert world.row.awaiting == [{"label": "paid", "kind": "event", "keys": ["order-7"], "types": ["paid"]}]
    for keys, type_, amount in ((("order-8",), "paid", 5), (("order-7",), "lost", 5), (("order-7",), "paid", 1)):
        world.memory.arrive(*keys, type_=type_, data={"amount": amount})
        assert await world.again() == "suspended"
    world.memory.arrive("order-7", data={"amount": 1250}, subject="order-7")
    assert await world.again() == "success"
    assert world.row.result == 1250
    [event] = got
    assert (event.id, event.source, event.type) == ("d4", "/shop", "paid")
    assert (event.keys, event.subject) == (("order-7",), "order-7")
    assert (event.event_id, event.time, event.accepted_at) == ("evt_4", None, datetime.fromtimestamp(START / 1000, UTC))
    bare = Event("evt_1", "d1", "/shop", "paid", (), event.accepted_at, {"subject": "s"}, {"n": 1})
    assert bare.cloud_event == {
        "specversion": "1.0",
        "id": "d1",
        "source": "/shop",
        "type": "paid",
        "subject": "s",
        "data": {"n": 1},
    }


@pytest.mark.clause("waits.match")
@pytest.mark.parametrize("span", [30, timedelta(seconds=30), 0.5])
async def test_a_wait_that_times_out_says_so_and_a_replay_reads_the_same(span: Any) -> None:
    @body("waits", effects=["paid", "after"])
    async def waits(run: Run) -> Any:
        told: list[str | None] = []
        try:
            await run.wait_event("paid", keys=["k"], timeout=span)
        except TimedOut as error:
            told = [error.code, error.tag.value, error.deadline]
        await run.sleep(100)
        return [told, (await run.wait_event("paid", keys=["k"], timeout=span).outcome()).state]

    world = World(waits)
    row = await world.to_the_end("waits")
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    assert row.result == [["EventTimedOut", "TimedOut", render(after(START, seconds))], "timed_out"]


@pytest.mark.clause("waits.match", "runs.fan-out-join")
async def test_waits_side_by_side_get_an_event_each_and_a_loser_waits_no_more() -> None:
    @body("waits", effects=[each("paid"), "other"])
    async def waits(run: Run) -> Any:
        both = await run.gather(*(run.wait_event("paid", keys=["k"], input=n) for n in range(2)))
        won = await run.first(run.wait_event("other", keys=["x"]), run.wait_event("paid", keys=["k"], input=2))
        return [sorted(one.data for one in both), won.branch, won.value.data]

    world = World(waits)
    world.memory.arrive("k", data=1)
    assert await world.run("waits") == "suspended"
    world.memory.arrive("k", data=2)
    assert await world.again() == "suspended"
    assert [one["label"] for one in world.row.awaiting] == ["other", "paid"]
    world.memory.arrive("k", data=3)
    assert await world.again() == "success"
    assert world.row.result == [[1, 2], 1, 3]
    assert world.entries("canceled") == ["other"]


@pytest.mark.clause("waits.match")
async def test_a_look_back_bounds_what_came_before() -> None:
    @body("waits", effects=["a", "b"])
    async def waits(run: Run) -> Any:
        first = await run.wait_event("a", keys=["k"], timeout=0, look_back=timedelta(minutes=1)).outcome()
        return [first.state, (await run.wait_event("b", keys=["k"], timeout=0)).data]

    world = World(waits)
    world.memory.arrive("k", data=1)
    world.clock.advance_to(after(world.clock.now(), 61))
    assert await world.run("waits") == "success"
    assert world.row.result == ["timed_out", 1]
    assert Arrival("timed_out").event is None


@pytest.mark.clause("waits.match", "kernel.limits")
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({}, RequestInvalid),
        ({"keys": "order-7"}, TypeError),
        ({"keys": [7]}, TypeError),
        ({"types": {None, "t"}}, TypeError),
        ({"keys": ["k", "k"]}, RequestInvalid),
        ({"keys": ["k"], "match": {"$nope": 1}}, PatternInvalid),
        ({"keys": ["k"], "match": {"n": 2**53}}, PatternInvalid),
        ({"keys": ["k"], "timeout": -1}, ValueError),
        ({"keys": ["k"], "timeout": float("nan")}, ValueError),
        ({"keys": ["k"], "timeout": True}, ValueError),
        ({"keys": ["k"], "timeout": int(EVENT_WAIT_SECONDS) + 1}, ValueError),
        ({"keys": ["k"], "look_back": int(EVENT_LOOK_BACK_SECONDS) + 1}, ValueError),
    ],
)
async def test_what_is_no_wait_is_refused_before_anything_is_asked(wrong: dict[str, Any], error: type[Exception]) -> None:
    met: list[Exception] = []

    @body("waits", effects=["paid"])
    async def waits(run: Run) -> None:
        try:
            await run.wait_event("paid", **wrong)
        except Exception as one:
            met.append(one)
        run.wait_event("paid", keys=["k"], timeout=int(EVENT_WAIT_SECONDS), look_back=int(EVENT_LOOK_BACK_SECONDS))

    world = World(waits)
    await world.run("waits")
    assert isinstance(met[0], error)
    assert world.row.entries == {}


@pytest.mark.clause("waits.match", "runs.effect-boundary")
async def test_a_set_of_keys_is_the_same_wait_in_every_process() -> None:
    class Backwards(set[str]):
        """A set as another process may have it."""

        def __iter__(self) -> Iterator[str]:
            return iter(sorted(super().__iter__(), reverse=True))

    @body("waits", effects=["paid"])
    async def waits(run: Run) -> list[Any]:
        sets: list[Iterable[str]] = [{"a", "b", "c"}, Backwards("abc"), ["a", "b", "c"]]
        found = [run.wait_event("paid", keys=keys, types=keys) for keys in sets]
        return [len({one.key for one in found}), found[1].filter.keys]

    world = World(waits)
    assert await world.run("waits") == "success"
    assert world.row.result == [1, ["a", "b", "c"]]


@pytest.mark.clause("runs.unwired")
async def test_a_house_without_events_says_so() -> None:
    @body("waits", effects=["paid"])
    async def waits(run: Run) -> str:
        try:
            await run.wait_event("paid", keys=["k"])
        except CapabilityUnwired as error:
            return error.code
        except StepFailed:
            return "?"
        return "!"

    world = World(waits)
    assert await world.run("waits", capabilities=CAPABILITIES - {"events"}) == "success"
    assert world.row.result == "CapabilityUnwired"

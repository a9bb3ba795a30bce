"""Timers over HTTP."""

from typing import Any

import httpx
import pytest

from moorage.kernel.instants import after, render
from tests.unit.api.conftest import START, House, client_of
from tests.unit.api.test_requests import problem

pytestmark = pytest.mark.clause("timers.fire")

EVENT = {"type": "ping"}
LAST = "9999-12-31T23:59:59.999Z"


async def put(root: httpx.AsyncClient, timer: str = "t", **sent: Any) -> httpx.Response:
    return await root.put(f"/timers/{timer}", json={"event": EVENT, **sent})


async def test_a_timer_is_set_shown_listed_and_deleted(root: httpx.AsyncClient, house: House) -> None:
    event = {"type": "ping", "source": "/billing", "id": "e-1", "subject": "s", "keys": ["k"], "data": {"n": [1, None]}}
    answer = await root.put(
        "/timers/t", json={"fire_at": "2027-01-01T01:00:00.0015+01:00", "every_seconds": 1.5, "event": event}
    )
    assert answer.status_code == 200, answer.text
    made = answer.json()
    assert made == {
        "id": "t",
        "revision": 1,
        "fire_at": "2027-01-01T00:00:00.001Z",
        "every_seconds": 1.5,
        "event": event,
        "created_by": "root",
        "created_at": render(START),
        "updated_at": render(START),
        "failing": None,
    }
    assert (made["fire_at"], "time") in [(render(due), shard) for due, shard in house.dues]
    assert (await root.get("/timers/t")).json() == made
    [listed] = (await root.get("/timers")).json()["items"]
    assert listed == {**made, "event": {name: one for name, one in event.items() if name != "data"}}
    problem(await root.delete("/timers/t"), 422, "RequestInvalid")
    problem(await root.delete("/timers/t?revision=2"), 409, "TimerConflict")
    assert (await root.delete("/timers/t?revision=1")).status_code == 204
    problem(await root.delete("/timers/t?revision=1"), 404, "TimerUnknown")
    problem(await root.get("/timers/t"), 404, "TimerUnknown")
    assert (await put(root, delay_seconds=0, revision=0)).json()["revision"] == 3
    problem(await put(root, delay_seconds=1, revision=0), 409, "TimerConflict")
    assert (await put(root, delay_seconds=1, revision=3)).json()["revision"] == 4


async def test_null_is_data_and_no_data_is_none(root: httpx.AsyncClient) -> None:
    for event in ({"type": "t", "data": None}, {"type": "t"}, {"type": "t", "data": False}):
        sent = {"delay_seconds": 1, "event": event}
        assert ((await root.put("/timers/t", json=sent)).json()["event"].get("data", "none")) == event.get("data", "none")


@pytest.mark.clause("timers.late")
async def test_delays_longer_than_24_days_and_delays_that_are_none(root: httpx.AsyncClient, house: House) -> None:
    """Case C08, as far as timers go: the Clock is asked for each instant exactly, and for no earlier one."""
    delays = {"s": 1, "a": 2_147_483.647, "b": 2_147_483.648, "c": 25 * 86400, "d": 50 * 86400, "e": 400 * 86400}
    for name, seconds in delays.items():
        answer = await put(root, name, delay_seconds=seconds)
        assert answer.json()["fire_at"] == render(after(START, seconds)), name
    far = await put(root, "far", fire_at=LAST)
    assert far.json()["fire_at"] == LAST == (await root.get("/timers/far")).json()["fire_at"]
    before = "\n".join(house.connection.iterdump())
    for bad in ("-1", "1e21", '"soon"', "null", "true", '"NaN"', "1e15", "[]", "-0.001", "253402300800"):
        raw = f'{{"event":{{"type":"ping"}},"delay_seconds":{bad}}}'
        answer = await root.put("/timers/bad", content=raw, headers={"content-type": "application/json"})
        problem(answer, 422, "RequestInvalid")
    for bad in ("NaN", "Infinity", "1e999"):
        raw = f'{{"event":{{"type":"ping"}},"delay_seconds":{bad}}}'
        answer = await root.put("/timers/bad", content=raw, headers={"content-type": "application/json"})
        problem(answer, 400, "JsonInvalid")
    for sent in (
        {},
        {"fire_at": LAST, "delay_seconds": 1},
        {"fire_at": "10000-01-01T00:00:00Z"},
        {"fire_at": "1969-12-31T23:59:59Z"},
        {"fire_at": 5},
        {"fire_at": None},
        {"delay_seconds": 1, "every_seconds": 0.999},
        {"delay_seconds": 1, "every_seconds": 1e21},
        {"delay_seconds": 1, "every_seconds": 366 * 86400 + 1},
    ):
        problem(await put(root, "bad", **sent), 422, "RequestInvalid")
    assert "\n".join(house.connection.iterdump()) == before
    assert (await put(root, "now", delay_seconds=0)).json()["fire_at"] == render(START)
    fired = (await house.advance(60)).fired
    assert fired.get("timer_fired") == 2
    fired = (await house.advance(60)).fired
    assert "timer_fired" not in fired
    shown = {one["id"]: one["fire_at"] for one in (await root.get("/timers")).json()["items"]}
    left = {name: render(after(START, delays[name])) for name in "abcde"}
    assert shown == {**left, "far": LAST}
    moved = await house.advance(400 * 86400)
    assert moved.fired.get("timer_fired") == 5
    assert 5 <= moved.firing.trips < 200, "the Clock spins"
    rows = house.connection.execute("SELECT subject FROM history WHERE type = 'timer.fired'").fetchall()
    assert sorted(row["subject"] for row in rows) == sorted(f"timer:{name}" for name in [*delays, "now"])


async def test_a_year_of_seconds_is_no_spin(root: httpx.AsyncClient, house: House) -> None:
    """A timer at the last instant leaves the Clock with nothing to do, and with an instant that it can be armed for."""
    await put(root, "far", fire_at=LAST)
    assert (LAST, "time") in [(render(due), shard) for due, shard in house.dues]
    fired = (await house.advance(1)).fired
    assert fired == {}


async def test_an_idempotency_key_answers_what_fired(root: httpx.AsyncClient, house: House) -> None:
    headers = {"idempotency-key": "k"}
    sent = {"delay_seconds": 1, "event": EVENT}
    first = await root.put("/timers/t", json=sent, headers=headers)
    await house.advance(2)
    again = await root.put("/timers/t", json=sent, headers=headers)
    assert (again.status_code, again.json()) == (200, first.json())
    fired = (await house.advance(5)).fired
    assert "timer_fired" not in fired
    problem(await root.put("/timers/u", json=sent, headers=headers), 409, "IdempotencyConflict")


async def test_whoever_may_not_publish_the_type_is_refused(root: httpx.AsyncClient, house: House, app: Any) -> None:
    grants = [{"actions": ["publish"], "kinds": ["pong"]}]
    token = (await root.post("/credentials", json={"subject": "ann", "grants": grants})).json()["token"]
    await put(root, delay_seconds=1)
    async with client_of(app, token) as ann:
        problem(await put(ann, "u", delay_seconds=1), 403, "Forbidden")
        problem(await ann.put("/timers/t", json={"delay_seconds": 1, "event": {"type": "pong"}}), 403, "Forbidden")
        problem(await ann.get("/timers/t"), 404, "TimerUnknown")
        problem(await ann.get("/timers"), 403, "Forbidden")
        made = await ann.put("/timers/u", json={"delay_seconds": 1, "event": {"type": "pong"}})
        assert made.json()["created_by"] == "ann"
        assert (await ann.get("/timers/u")).status_code == 200
        assert (await ann.delete("/timers/u?revision=1")).status_code == 204

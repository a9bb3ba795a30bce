"""Timers and schedules that fail when they are fired: set aside, and tried at their own instants once they are set anew."""

import sqlite3
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from moorage.api.assembly import due_works
from moorage.kernel.instants import after, render
from moorage.timers import clock
from tests.unit.api.conftest import House

pytestmark = pytest.mark.clause("timers.alarm")

_FAILURES = 13
"""After so many the next try is an hour away."""


async def fired(house: House, seconds: float = 0) -> Mapping[str, int]:
    """Let time pass, and the Clock fire what can be fired."""
    house.now = after(house.now, seconds)
    drained = await clock.drain(house.database, house.now, due_works(house.blobs, bodies=house.bodies))
    assert drained.interrupted is None
    return drained.fired


async def fail(house: House, trigger: str) -> None:
    """Nothing can be fired as long as the trigger of the database stands: it is tried until that is an hour apart."""
    house.connection.execute(f"CREATE TRIGGER broken BEFORE {trigger} BEGIN SELECT raise(ABORT, 'broken'); END")
    for _ in range(_FAILURES):
        await fired(house, 3600)
    [(attempts, retry_at)] = house.connection.execute("SELECT attempts, retry_at FROM due_failures").fetchall()
    assert (attempts, retry_at) == (_FAILURES, house.now + 3_600_000)
    house.connection.execute("DROP TRIGGER broken")


async def failing(root: httpx.AsyncClient, path: str) -> dict[str, Any] | None:
    """What is told of it to who looks at it, which is what the list tells."""
    shown = (await root.get(path)).json()["failing"]
    assert [one["failing"] for one in (await root.get(path.rpartition("/")[0])).json()["items"]] == [shown]
    told: dict[str, Any] | None = shown
    return told


def told_now(house: House) -> dict[str, Any]:
    return {"attempts": _FAILURES, "error": "StorageBindingUnavailable", "retry_at": render(after(house.now, 3600))}


def left(connection: sqlite3.Connection) -> int:
    found: int = connection.execute("SELECT count(*) FROM due_failures").fetchone()[0]
    return found


@pytest.mark.parametrize("anew", ["set again", "deleted and set"])
@pytest.mark.clause("timers.fire")
async def test_a_timer_that_failed_and_is_set_anew_fires_at_its_instant(
    root: httpx.AsyncClient, house: House, anew: str
) -> None:
    sent = {"delay_seconds": 10, "event": {"type": "ping", "data": 1}}
    made = (await root.put("/timers/t", json={**sent, "every_seconds": 60})).json()
    assert await failing(root, "/timers/t") is None
    await fail(house, "INSERT ON events")
    assert await failing(root, "/timers/t") == told_now(house)
    if anew == "deleted and set":
        assert (await root.delete("/timers/t", params={"revision": made["revision"]})).status_code == 204
    assert (await root.put("/timers/t", json=sent)).status_code == 200
    assert await failing(root, "/timers/t") is None
    assert "timer_fired" not in await fired(house, 9.999)
    assert (await fired(house, 0.001))["timer_fired"] == 1
    assert "timer_fired" not in await fired(house, 3600)
    assert left(house.connection) == 0


@pytest.mark.parametrize("anew", ["declared anew", "deleted and declared", "paused and resumed"])
@pytest.mark.clause("schedules.window")
async def test_a_schedule_that_failed_and_is_declared_anew_comes_at_its_next_window(
    root: httpx.AsyncClient, house: House, anew: str
) -> None:
    await root.put("/kinds/tick", json={"paths": {}})
    sent = {"every_seconds": 60, "target": {"record": {"kind": "tick", "body": {}}}}
    assert (await root.put("/schedules/s", json=sent)).status_code == 201
    assert await failing(root, "/schedules/s") is None
    await fail(house, "INSERT ON schedule_triggers")
    assert await failing(root, "/schedules/s") == told_now(house)
    if anew == "paused and resumed":
        for act in ("pause", "resume"):
            assert (await root.post(f"/schedules/s/{act}")).status_code == 200
    else:
        if anew == "deleted and declared":
            assert (await root.delete("/schedules/s")).status_code == 204
        assert (await root.put("/schedules/s", json={**sent, "every_seconds": 50})).status_code < 300
    assert await failing(root, "/schedules/s") is None
    assert (await fired(house, 60))["schedule_fired"] == 1
    await fired(house, 3600)
    assert left(house.connection) == 0


@pytest.mark.clause("schedules.window")
async def test_a_window_that_waits_and_failed_has_its_turn_once_its_schedule_is_declared_anew(
    root: httpx.AsyncClient, house: House
) -> None:
    await root.put("/kinds/tick", json={"paths": {}})
    sent = {"every_seconds": 60, "target": {"record": {"kind": "tick", "body": {}}}}
    assert (await root.put("/schedules/s", json=sent)).status_code == 201
    ranged = {"start": render(after(house.now, -60)), "end": render(house.now)}
    assert (await root.post("/schedules/s/backfill", json=ranged)).json() == {"windows": 1, "queued": 1}
    house.connection.execute("UPDATE schedules SET next_at = NULL")
    await fail(house, "INSERT ON records")
    assert await failing(root, "/schedules/s") == told_now(house)
    house.woken.clear()
    assert (await root.put("/schedules/s", json={**sent, "catch_up": "all"})).status_code == 200
    assert house.woken[0] == house.now
    assert (await fired(house))["schedule_resumed"] == 1
    await fired(house, 3600)
    assert left(house.connection) == 0

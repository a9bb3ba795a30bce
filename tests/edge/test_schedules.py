"""Schedules on the real edge: alarms fire them, runs that end let the next window start, and a day passes without them."""

import sqlite3
import time
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from typing import Any

import httpx
import pytest

from ops.local.edge import LocalEdge
from tests.edge.client import client, declare, good, problem
from tests.edge.conftest import EdgeFactory
from tests.edge.runs import BODIES

pytestmark = pytest.mark.edge

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def clocked(edge_factory: EdgeFactory) -> LocalEdge:
    """Moorage with the trial bodies and no test clock."""
    return edge_factory(bodies=BODIES, vars={"MOORAGE_ALLOW_LOCAL_DESTINATIONS": "1"})


def eventually(look: Callable[[], Any], seconds: float = 60) -> Any:
    """What `look` gives once it gives something: real alarms take real time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"nothing within {seconds} s")


def triggers(api: httpx.Client, name: str) -> list[dict[str, Any]]:
    """What became of its windows, the first one first."""
    found: list[dict[str, Any]] = good(api.get(f"/schedules/{name}/triggers", params={"limit": 500}))["items"]
    return found[::-1]


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def started(api: httpx.Client, name: str, count: int) -> list[dict[str, Any]]:
    """The first windows that started something, once there are so many."""
    found = [one for one in triggers(api, name) if one["state"] == "started"]
    return found[:count] if len(found) >= count else []


@pytest.mark.clause("schedules.window", "timers.alarm")
def test_a_schedule_starts_a_body_by_its_own_alarm(clocked: LocalEdge) -> None:
    with client(clocked) as api:
        sent = {"every_seconds": 1, "overlap": "enqueue", "target": {"body": "trial.row", "input": {"steps": 2}}}
        good(api.put("/schedules/rows", json=sent))
        found = eventually(lambda: started(api, "rows", 2))
        good(api.post("/schedules/rows/pause"))
        for one in found:
            assert 0 <= seconds(one["created_at"]) - seconds(one["window_start"]) < 1.5
            run = good(api.get(f"/runs/{one['run_id']}", params={"wait_seconds": 10}))
            assert [run["status"], run["result"], run["metadata"]["trigger_id"]] == ["success", 2, one["trigger_id"]]
        wrong = {"every_seconds": 1, "target": {"body": "trial.row", "input": {"steps": "x"}}}
        assert problem(api.put("/schedules/wrong", json=wrong), 422)["code"] == "InputInvalid"


@pytest.mark.clause("schedules.window")
def test_the_window_that_waits_starts_as_soon_as_what_is_before_it_has_ended(clocked: LocalEdge) -> None:
    with client(clocked) as api:
        sleeping = {"body": "trial.sleep", "input": {"seconds": 3600}}
        good(api.put("/schedules/line", json={"cron": "0 0 1 1 *", "overlap": "enqueue", "target": sleeping}))
        first = good(api.post("/schedules/line/trigger"))
        second = good(api.post("/schedules/line/trigger"))
        assert [first["state"], second["state"]] == ["started", "queued"]
        eventually(lambda: good(api.get(f"/runs/{first['run_id']}"))["status"] == "waiting")
        good(api.post(f"/runs/{first['run_id']}/stop", json={}))
        ended = eventually(lambda: good(api.get(f"/runs/{first['run_id']}")).get("ended_at"))
        started = eventually(lambda: triggers(api, "line")[1]["started_at"])
        assert 0 <= seconds(started) - seconds(ended) < 3
        good(api.delete("/schedules/line"))
        kind = declare(api, "piece", {"n": "number"})
        piece = {"record": {"kind": kind, "body": {"n": 1}}}
        good(api.put("/schedules/pieces", json={"cron": "0 0 1 1 *", "overlap": "coalesce", "target": piece}))
        record = good(api.post("/schedules/pieces/trigger"))["record"]
        assert good(api.post("/schedules/pieces/trigger"))["state"] == "queued"
        good(api.post("/claims", json={"kind": kind, "worker": "w"}))
        settled = good(api.post(f"/claims/{record}/settle", json={"epoch": 1}))["receipt"]["settled_at"]
        started = eventually(lambda: triggers(api, "pieces")[1]["started_at"])
        assert 0 <= seconds(started) - seconds(settled) < 3
        good(api.delete("/schedules/pieces"))


@pytest.mark.clause("schedules.dst")
def test_zones_are_read_in_the_worker(clocked: LocalEdge) -> None:
    with client(clocked) as api:
        sent = {"cron": "15 2 * * *", "timezone": "Australia/Lord_Howe", "after": "2027-10-02T12:00:00+10:30", "count": 2}
        found = good(api.post("/schedules/preview", json=sent))["items"]
        assert [one["local"] for one in found] == ["2027-10-03T02:30:00+11:00", "2027-10-04T02:15:00+11:00"]
        problem(api.post("/schedules/preview", json={**sent, "timezone": "Lord_Howe"}), 422)


@pytest.mark.clause("schedules.window", "timers.late")
def test_records_are_published_for_every_window_of_a_day_without_the_edge(clocked: LocalEdge) -> None:
    with client(clocked) as api:
        kind = declare(api, "tick", {"n": "number"})
        target = {"record": {"kind": kind, "body": {"n": 1}}}
        hourly = {"every_seconds": 3600, "overlap": "enqueue", "target": target}
        good(api.put("/schedules/all", json={**hourly, "catch_up": "all", "catch_up_seconds": 2 * 86_400}))
        good(api.put("/schedules/last", json={**hourly, "catch_up": "last"}))
    clocked.stop()
    with sqlite3.connect(clocked.d1_path()) as database:
        moved = "UPDATE schedules SET anchor = anchor - ?1, next_at = next_at - ?1 WHERE name IN ('all', 'last')"
        database.execute(moved, (DAY_MS,))
    database.close()
    clocked.start()
    with client(clocked) as api:
        found = eventually(lambda: started(api, "all", 24), 30)
        assert [one["state"] for one in found] == ["started"] * 24
        starts = [seconds(one["window_start"]) for one in found]
        assert [later - earlier for earlier, later in pairwise(starts)] == [3600] * 23
        skipped, last = eventually(lambda: triggers(api, "last")[1:] and triggers(api, "last"))
        assert [skipped["state"], skipped["error"]["windows"], last["state"]] == ["skipped", 23, "started"]
        records = good(api.post("/records/query", json={"kind": kind, "match": {"n": 1}, "limit": 100}))["items"]
        told = [one["metadata"]["trigger_id"] for one in records]
        assert sorted(told) == sorted([*(one["trigger_id"] for one in found), last["trigger_id"]])

"""Schedules on the nights when clocks change, far ahead, and under hostile names (cases C07, C08, C18)."""

import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import quote

import httpx
import pytest

from moorage.api.app import build_app
from moorage.api.assembly import due_works
from moorage.kernel.instants import Instant, parse, render
from moorage.schedules.cadence import local
from moorage.store.sqlite import connect
from moorage.timers import clock
from tests.contract.adapters import schema_files
from tests.unit.api.conftest import House, client_of


@dataclass(frozen=True)
class Night:
    """A cadence, the instant from which it is looked at, and when windows begin by then, as clocks there show it."""

    cron: str
    zone: str
    start: str
    expected: tuple[str, ...]


NIGHTS = {
    "1 skipped": Night(
        "30 2 * * *",
        "Europe/Paris",
        "2027-03-27T12:00:00+01:00",
        ("2027-03-28T03:00:00+02:00", "2027-03-29T02:30:00+02:00"),
    ),
    "2 repeated": Night(
        "30 2 * * *",
        "Europe/Paris",
        "2027-10-30T12:00:00+02:00",
        ("2027-10-31T02:30:00+02:00", "2027-11-01T02:30:00+01:00"),
    ),
    "3 repeated in New York": Night(
        "30 1 * * *",
        "America/New_York",
        "2027-11-06T12:00:00-04:00",
        ("2027-11-07T01:30:00-04:00", "2027-11-08T01:30:00-05:00"),
    ),
    "4 half an hour": Night(
        "15 2 * * *",
        "Australia/Lord_Howe",
        "2027-10-02T12:00:00+10:30",
        ("2027-10-03T02:30:00+11:00", "2027-10-04T02:15:00+11:00"),
    ),
    "5 real time, repeated": Night(
        "*/30 * * * *",
        "Europe/Paris",
        "2027-10-31T01:45:00+02:00",
        (
            "2027-10-31T02:00:00+02:00",
            "2027-10-31T02:30:00+02:00",
            "2027-10-31T02:00:00+01:00",
            "2027-10-31T02:30:00+01:00",
            "2027-10-31T03:00:00+01:00",
        ),
    ),
    "5 real time, skipped": Night(
        "*/30 * * * *",
        "Europe/Paris",
        "2027-03-28T01:15:00+01:00",
        ("2027-03-28T01:30:00+01:00", "2027-03-28T03:00:00+02:00", "2027-03-28T03:30:00+02:00"),
    ),
    "6 spring": Night(
        "0 18 * * *",
        "Europe/London",
        "2027-03-27T19:00:00+00:00",
        ("2027-03-28T18:00:00+01:00", "2027-03-29T18:00:00+01:00"),
    ),
    "6 autumn": Night(
        "0 18 * * *",
        "Europe/London",
        "2027-10-30T19:00:00+01:00",
        ("2027-10-31T18:00:00+00:00", "2027-11-01T18:00:00+00:00"),
    ),
}

RECORD = {"record": {"kind": "tick", "body": {}}}


def built() -> sqlite3.Connection:
    connection = connect(":memory:")
    for file in schema_files():
        connection.executescript(file.read_text())
    return connection


@pytest.fixture
def house() -> House:
    return House(built()).initialized()


@pytest.fixture
async def api(house: House) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(build_app(house.ports())) as client:
        assert (await client.put("/kinds/tick", json={"paths": {}})).is_success
        yield client


@pytest.mark.clause("schedules.dst")
@pytest.mark.parametrize("name", NIGHTS)
async def test_on_the_nights_when_clocks_change(house: House, api: httpx.AsyncClient, name: str) -> None:
    night = NIGHTS[name]
    house.now = parse(night.start)
    cadence = {"cron": night.cron, "timezone": night.zone}
    sent = {**cadence, "overlap": "enqueue", "target": RECORD}
    assert (await api.put("/schedules/night", json=sent)).status_code == 201
    ask = {**cadence, "after": night.start, "count": len(night.expected)}
    preview = (await api.post("/schedules/preview", json=ask)).json()["items"]
    own = (await api.get("/schedules/night/next", params={"count": len(night.expected)})).json()["items"]
    assert [one["local"] for one in preview] == [one["local"] for one in own] == list(night.expected)
    assert [render(parse(one)) for one in night.expected] == [one["window_start"] for one in preview]
    await house.advance((parse(night.expected[-1]) - house.now) / 1000)
    fired = (await api.get("/schedules/night/triggers")).json()["items"][::-1]
    assert [local(parse(one["window_start"]), night.zone) for one in fired] == list(night.expected)
    assert [one["created_at"] for one in fired] == [one["window_start"] for one in fired]
    assert [one["window_end"] for one in fired[:-1]] == [one["window_start"] for one in fired[1:]]


@pytest.mark.clause("schedules.window", "timers.alarm")
async def test_a_schedule_far_ahead_waits_without_spinning(house: House, api: httpx.AsyncClient) -> None:
    house.now = parse("2027-02-02T00:00:00Z")
    made = await api.put("/schedules/monthly", json={"cron": "0 0 1 * *", "target": RECORD})
    assert made.json()["next_at"] == "2027-03-01T00:00:00.000Z"
    assert (parse("2027-03-01T00:00:00Z"), "time") in house.dues
    works = [work for work in due_works(house.blobs) if work.shard == "time"]
    drained = await clock.drain(house.database, house.now, works)
    assert [drained.fired, drained.next_due, drained.cost.trips] == [{}, parse("2027-03-01T00:00:00Z"), 1]
    await house.advance(60)
    assert (await api.get("/schedules/monthly/triggers")).json()["items"] == []
    await house.advance((parse("2027-03-01T00:00:00Z") - house.now) / 1000 - 0.001)
    assert (await api.get("/schedules/monthly/triggers")).json()["items"] == []
    await house.advance(0.001)
    assert len((await api.get("/schedules/monthly/triggers")).json()["items"]) == 1


NAMES = ["a/b", "a%2Fb", "../x", "a b", "a+b", "a#b", "a?b=1", "é", "a;b", "a\\b", "%", "%ZZ", "a\x00b", "x" * 2000]
DOTS = [".", ".."]
"""Clients take these out of a path before they send it."""

FINE = ["cancel", "A", "a", "pause", "next", "preview", "triggers", "a:b@c~d", "x" * 200]


@pytest.mark.clause("kernel.ids", "schedules.window")
async def test_a_name_means_exactly_its_schedule_or_is_refused(house: House, api: httpx.AsyncClient) -> None:
    for name in NAMES:
        path = f"/schedules/{quote(name, safe='')}"
        answer = await api.put(path, json={"every_seconds": 60, "target": RECORD})
        assert answer.status_code in (400, 404, 405), (name, answer.text)
        if answer.status_code == 400:
            assert "letters, digits" in answer.json()["detail"] or "1 to 200 characters" in answer.json()["detail"]
        assert (await api.get(path)).status_code in (400, 404)
    for name in DOTS:
        answer = await api.put(f"/schedules/{name}", json={"every_seconds": 60, "target": RECORD})
        assert answer.status_code in (400, 404, 405)
    assert (await api.get("/schedules")).json()["items"] == []
    for number, name in enumerate(FINE):
        path = f"/schedules/{quote(name, safe='')}"
        assert (await api.put(path, json={"every_seconds": 60 + number, "target": RECORD})).status_code == 201
    for number, name in enumerate(FINE):
        path = f"/schedules/{quote(name, safe='')}"
        shown = (await api.get(path)).json()
        assert [shown["name"], shown["every_seconds"]] == [name, 60 + number]
        assert (await api.post(f"{path}/pause")).json()["name"] == name
        assert (await api.post(f"{path}/trigger")).json()["trigger_id"] == f"{name}@{render(house.now)}"
    for name in FINE:
        assert (await api.delete(f"/schedules/{quote(name, safe='')}")).status_code == 204
        assert (await api.get(f"/schedules/{quote(name, safe='')}")).status_code == 404
    assert (await api.put("/schedules/%ZZ", json={"every_seconds": 60, "target": RECORD})).status_code in (400, 404)
    assert house.now > Instant(0)

"""Schedules over HTTP, with bodies that run beside the application and a clock that only the test moves."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from moorage.api.app import build_app
from moorage.api.assembly import due_works
from moorage.api.ringing import RingingDatabase
from moorage.bodies import Run, body
from moorage.kernel.instants import Instant, after, parse, render
from moorage.kernel.limits import (
    CATCH_UP_SECONDS,
    CATCH_UP_WINDOWS,
    CONFIG_BYTES,
    EVERY_SECONDS,
    SCHEDULE_BACKFILL,
    SCHEDULE_PREVIEW,
    SCHEDULE_QUEUE,
    TRIGGER_RETENTION_SECONDS,
)
from moorage.schedules.retention import WindowRetention
from moorage.store.directory import DirectoryBlobs
from moorage.store.sqlite import connect
from moorage.timers import clock
from tests.unit.api.conftest import House, client_of
from tests.unit.api.executing import Executing

HOUR = 3600
DAY = 86_400
HOURLY = {"cron": "0 * * * *"}
NOON = parse("2027-05-01T12:30:00Z")


@body("echo")
async def echo(run: Run, value: Any) -> Any:
    return value


@body("waits", effects=["approval"])
async def waits(run: Run) -> Any:
    return await (await run.awakeable("approval", ttl=90 * DAY))


@pytest.fixture
async def house(schema: str, tmp_path: Path) -> House:
    connection = connect(":memory:")
    connection.executescript(schema)
    return House(connection, blobs=DirectoryBlobs(tmp_path), now=NOON).initialized()


@pytest.fixture
def executing(house: House) -> Executing:
    return Executing(house, [echo, waits])


@pytest.fixture
async def api(executing: Executing) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(build_app(executing.ports())) as client:
        yield client
    await executing.host.close()


async def rest(house: House) -> None:
    """Until no body is at work."""
    for _ in range(30):
        await house.runners.settle()
        await asyncio.sleep(0)


async def put(api: httpx.AsyncClient, name: str = "s", target: Any = None, **more: Any) -> dict[str, Any]:
    sent = {"target": target or {"body": "echo", "input": 1}, **({} if "every_seconds" in more else HOURLY), **more}
    answer = await api.put(f"/schedules/{name}", json=sent)
    assert answer.status_code in (200, 201), answer.text
    told: dict[str, Any] = answer.json()
    return told


async def pass_time(house: House, seconds: float) -> dict[str, int]:
    """The Clock is never late, and what it starts has an hour of its time."""
    counted: Counter[str] = Counter()
    until = after(house.now, seconds)
    while house.now < until:
        fired = (await house.advance(min(HOUR, (until - house.now) / 1000))).fired
        await rest(house)
        counted.update({name: count for name, count in fired.items() if name.startswith("schedule")})
    return dict(counted)


async def come_late(house: House, seconds: float) -> None:
    """The Clock does nothing for so long, and then whatever is due."""
    house.now = after(house.now, seconds)
    await drain(house)


async def drain(house: House) -> None:
    def database() -> RingingDatabase:
        return RingingDatabase(house.database(), house.bells.ring, house.runners.poke)

    drained = await clock.drain(database, house.now, due_works(house.blobs, bodies=house.bodies), budget=5000)
    assert not drained.failed
    await rest(house)


async def triggers(api: httpx.AsyncClient, name: str = "s") -> list[dict[str, Any]]:
    """What became of its windows, the first one first."""
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        query = {"limit": "500", **({} if cursor is None else {"cursor": cursor})}
        page = (await api.get(f"/schedules/{name}/triggers", params=query)).json()
        found += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return found[::-1]


async def states(api: httpx.AsyncClient, name: str = "s") -> list[tuple[str, str]]:
    return [(one["window_start"][11:16], one["state"]) for one in await triggers(api, name)]


async def finish(api: httpx.AsyncClient, house: House, run_id: str) -> None:
    """Let a run that waits go on to its end."""
    await house.runners.settle()
    told = (await api.get(f"/runs/{run_id}")).json()
    answer = await api.post(f"/runs/{run_id}/stop", json={"scope": "run", "reason": "enough"})
    assert answer.status_code == 200, (answer.text, told)
    await rest(house)
    assert (await api.get(f"/runs/{run_id}")).json()["status"] == "canceled"


WAITING: dict[str, Any] = {"body": "waits"}
RECORD: dict[str, Any] = {"record": {"kind": "tick", "body": {"n": 1}, "metadata": {"mine": True}, "priority": 3}}


async def declare_kind(api: httpx.AsyncClient) -> None:
    assert (await api.put("/kinds/tick", json={"paths": {"n": "number"}})).status_code in (200, 201)


@pytest.mark.clause("schedules.window")
async def test_each_window_starts_a_run_that_knows_it(api: httpx.AsyncClient, house: House) -> None:
    made = await put(api)
    assert made["next_at"] == "2027-05-01T13:00:00.000Z"
    assert (parse(made["next_at"]), "time") in house.dues
    assert await pass_time(house, 3 * HOUR) == {"schedule_fired": 3}
    first, *_, last = await triggers(api)
    assert [first["trigger_id"], first["state"]] == ["s@2027-05-01T13:00:00.000Z", "started"]
    assert [last["window_start"], last["window_end"]] == ["2027-05-01T15:00:00.000Z", "2027-05-01T16:00:00.000Z"]
    run = (await api.get(f"/runs/{last['run_id']}")).json()
    assert [run["status"], run["result"], run["created_by"]] == ["success", 1, "root"]
    window = {name: last[name] for name in ("trigger_id", "window_start", "window_end")}
    assert run["metadata"] == {"schedule": "s", **window}
    shown = (await api.get("/schedules/s")).json()
    assert shown["current"] == {"trigger_id": last["trigger_id"], "ended": True, "run_id": last["run_id"], "record": None}
    told = (await api.get("/history", params={"subject": "schedule:s"})).json()["items"]
    assert [one["type"] for one in told] == ["schedule.declared", *["schedule.fired"] * 3]
    assert told[-1]["data"] == {"trigger_id": last["trigger_id"], "state": "started", "run_id": last["run_id"]}


@pytest.mark.clause("schedules.window")
async def test_each_window_publishes_a_record_that_knows_it(api: httpx.AsyncClient, house: House) -> None:
    await declare_kind(api)
    await put(api, target=RECORD, every_seconds=600.5)
    await pass_time(house, 1201)
    [first, last] = await triggers(api)
    assert [parse(one["window_start"]) - NOON for one in (first, last)] == [600_500, 1_201_000]
    record = (await api.get(f"/records/{first['record']}")).json()
    assert [record["body"], record["priority"], record["created_by"]] == [{"n": 1}, 3, "root"]
    window = {name: first[name] for name in ("trigger_id", "window_start", "window_end")}
    assert record["metadata"] == {"mine": True, "schedule": "s", **window}
    # The first record is ready still.
    assert [first["state"], last["state"]] == ["started", "skipped"]


@pytest.mark.clause("schedules.window")
async def test_records_that_are_to_queue_are_published_at_once(api: httpx.AsyncClient, house: House) -> None:
    await declare_kind(api)
    await put(api, target=RECORD, overlap="enqueue")
    await pass_time(house, 3 * HOUR)
    assert [one["state"] for one in await triggers(api)] == ["started"] * 3
    assert len({one["record"] for one in await triggers(api)}) == 3


@pytest.mark.clause("schedules.window")
async def test_skip_lets_a_window_pass_while_the_one_before_goes_on(api: httpx.AsyncClient, house: House) -> None:
    await put(api, target=WAITING, overlap="skip")
    await pass_time(house, 2 * HOUR)
    [first, second] = await triggers(api)
    assert [second["state"], second["error"], second["run_id"]] == ["skipped", {"reason": "overlap"}, None]
    await finish(api, house, first["run_id"])
    await pass_time(house, HOUR)
    assert await states(api) == [("13:00", "started"), ("14:00", "skipped"), ("15:00", "started")]


@pytest.mark.clause("schedules.window")
async def test_coalesce_holds_the_latest_window_alone(api: httpx.AsyncClient, house: House) -> None:
    await put(api, target=WAITING, overlap="coalesce")
    await pass_time(house, 4 * HOUR)
    assert [state for _, state in await states(api)] == ["started", "coalesced", "coalesced", "queued"]
    assert (await api.get("/schedules/s")).json()["queued"] == 1
    house.dues.clear()
    await finish(api, house, (await triggers(api))[0]["run_id"])
    assert (house.now, "time") in house.dues
    assert await pass_time(house, 1) == {"schedule_resumed": 1}
    held = (await triggers(api))[-1]
    assert [held["window_start"], held["state"], held["started_at"]] == [
        "2027-05-01T16:00:00.000Z",
        "started",
        render(Instant(house.now - 1000)),
    ]
    assert (await api.get("/schedules/s")).json()["queued"] == 0


@pytest.mark.clause("schedules.window")
async def test_a_window_by_hand_leaves_the_next_one_alone(api: httpx.AsyncClient, house: House) -> None:
    made = await put(api)
    house.now = Instant(parse(made["next_at"]) - 1)
    found = [(await api.post("/schedules/s/trigger")).json()["window_start"] for _ in range(2)]
    assert [parse(one) - house.now for one in found] == [0, 2]


ENDINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "settled": ("/claims/{id}/settle", {"epoch": 1}),
    "settled with others": ("/claims/settle", {"items": [{"record": "{id}", "epoch": 1}]}),
    "dead at once": ("/claims/{id}/fail", {"epoch": 1, "error": {"tag": "Permanent", "message": "no"}, "dead_letter": True}),
    "canceled": ("/records/{id}/cancel", {"reason": "enough"}),
}


@pytest.mark.clause("schedules.window")
@pytest.mark.parametrize("ending", ENDINGS)
async def test_the_end_of_a_record_gives_the_window_that_waits_its_turn(
    api: httpx.AsyncClient, house: House, ending: str
) -> None:
    await declare_kind(api)
    await put(api, target=RECORD, overlap="coalesce")
    await pass_time(house, 2 * HOUR)
    assert [state for _, state in await states(api)] == ["started", "queued"]
    other = (await api.post("/records", json={"kind": "tick", "body": {"n": 2}, "metadata": {"schedule": "s"}})).json()["id"]
    record = (await triggers(api))[0]["record"]
    assert (await api.post("/claims", json={"kind": "tick", "worker": "w", "limit": 2})).status_code == 200
    path, sent = ENDINGS[ending]
    house.dues.clear()
    for one, hinted in ((other, False), (record, True)):
        text = json.dumps(sent).replace("{id}", one)
        answer = await api.post(path.format(id=one), content=text, headers={"content-type": "application/json"})
        assert answer.status_code == 200, answer.text
        assert ((house.now, "time") in house.dues) is hinted, "and at no cost for any other record"
    assert (await house.advance(1)).fired["schedule_resumed"] == 1
    assert [state for _, state in await states(api)] == ["started", "started"]


@pytest.mark.clause("schedules.window")
async def test_enqueue_starts_every_window_in_order(api: httpx.AsyncClient, house: House) -> None:
    await put(api, target=WAITING, overlap="enqueue")
    await pass_time(house, 3 * HOUR)
    for number in range(3):
        found = await triggers(api)
        assert [one["state"] for one in found] == ["started"] * (number + 1) + ["queued"] * (2 - number)
        await finish(api, house, found[number]["run_id"])
        await drain(house)


async def test_a_full_line_skips(api: httpx.AsyncClient, house: House) -> None:
    await put(api, target=WAITING, overlap="enqueue", every_seconds=1, catch_up="all", catch_up_seconds=DAY)
    await pass_time(house, 2)
    rows = [(f"s@{number}", number) for number in range(int(SCHEDULE_QUEUE) - 1)]
    house.connection.executemany(
        "INSERT INTO schedule_triggers (schedule, window_start, window_end, trigger_id, state, created_at) "
        "VALUES ('s', ?2, ?2, ?1, 'queued', 1)",
        rows,
    )
    await pass_time(house, 1)
    [*_, last] = await triggers(api)
    assert [last["state"], last["error"]] == ["skipped", {"reason": "queue_full"}]


LATE = [
    ("all", DAY, 5 * HOUR, ["started"] * 5),
    ("all", 2 * HOUR, 5 * HOUR, ["skipped", *["started"] * 2]),
    ("last", DAY, 5 * HOUR, ["skipped", "started"]),
    ("last", 0, 5 * HOUR, ["skipped"]),
    ("none", DAY, 5 * HOUR, ["skipped"]),
    ("none", DAY, HOUR / 2 + 120, ["started"]),
    ("none", DAY, HOUR / 2 + 121, ["skipped"]),
    ("last", 0, HOUR / 2 + 120, ["started"]),
    ("last", HOUR / 2, HOUR, ["started"]),
    ("last", HOUR / 2 - 1, HOUR, ["skipped"]),
]


@pytest.mark.clause("schedules.window", "timers.late")
@pytest.mark.parametrize(("policy", "reach", "away", "expected"), LATE)
async def test_what_was_missed_is_caught_up_with_as_declared(
    api: httpx.AsyncClient, house: House, policy: str, reach: float, away: float, expected: list[str]
) -> None:
    await put(api, catch_up=policy, catch_up_seconds=reach, overlap="enqueue")
    await come_late(house, away)
    while (await api.get("/schedules/s")).json()["queued"]:
        await drain(house)
    found = await triggers(api)
    assert [one["state"] for one in found] == expected
    nexts = (await api.get("/schedules/s")).json()["next_at"]
    assert house.now < parse(nexts) <= house.now + HOUR * 1000
    if found[0]["state"] == "skipped":
        until = found[1]["window_start"] if len(found) > 1 else nexts
        count = (parse(until) - parse(found[0]["window_start"])) // (HOUR * 1000)
        assert found[0]["error"] == {"reason": "missed", "until": until, "windows": count}


async def test_no_more_than_so_many_windows_are_caught_up_with(api: httpx.AsyncClient, house: House) -> None:
    await put(api, every_seconds=60, catch_up="all", catch_up_seconds=2 * DAY, overlap="skip")
    house.now = after(house.now, DAY)
    await drain(house)
    first, *others = await triggers(api)
    assert first["error"]["windows"] == DAY // 60 - int(CATCH_UP_WINDOWS)
    assert len(others) == CATCH_UP_WINDOWS


@pytest.mark.clause("schedules.window")
async def test_a_pause_lets_windows_pass_and_keeps_those_that_wait(api: httpx.AsyncClient, house: House) -> None:
    await put(api, target=WAITING, overlap="enqueue")
    await pass_time(house, 2 * HOUR)
    paused = (await api.post("/schedules/s/pause")).json()
    assert [paused["paused"], paused["next_at"], paused["queued"]] == [True, None, 1]
    assert (await api.post("/schedules/s/pause")).json() == paused
    await finish(api, house, (await triggers(api))[0]["run_id"])
    assert await pass_time(house, 5 * HOUR) == {}
    assert [state for _, state in await states(api)] == ["started", "queued"]
    resumed = (await api.post("/schedules/s/resume")).json()
    assert resumed["next_at"] == "2027-05-01T20:00:00.000Z"
    assert (house.now, "time") in house.dues
    await drain(house)
    assert await states(api) == [("13:00", "started"), ("14:00", "started")]
    await finish(api, house, (await triggers(api))[1]["run_id"])
    await pass_time(house, HOUR)
    assert (await states(api))[-1] == ("20:00", "started")


@pytest.mark.clause("schedules.window")
async def test_a_window_by_hand_comes_once_for_its_key(api: httpx.AsyncClient, house: House) -> None:
    await put(api, paused=True)
    key = {"Idempotency-Key": "now"}
    made = await api.post("/schedules/s/trigger", headers=key)
    again = await api.post("/schedules/s/trigger", headers=key)
    assert [made.status_code, again.status_code] == [201, 200]
    assert made.json() == again.json()
    assert made.json()["trigger_id"] == f"s@{render(house.now)}"
    found = [await api.post("/schedules/s/trigger") for _ in range(3)]
    assert [one.status_code for one in found] == [201] * 3
    following = [render(Instant(house.now + n)) for n in range(4)]
    assert [one["window_start"] for one in await triggers(api)] == following, "each of the next free millisecond"
    assert (await api.post("/schedules/s/trigger", headers=key)).json() == made.json()
    await rest(house)
    assert (await api.get(f"/runs/{made.json()['run_id']}")).json()["status"] == "success"
    assert (await api.get("/schedules/s")).json()["next_at"] is None


@pytest.mark.clause("schedules.window")
async def test_a_window_that_came_by_hand_does_not_come_again(api: httpx.AsyncClient, house: House) -> None:
    await put(api)
    house.now = parse("2027-05-01T13:00:00Z")
    made = (await api.post("/schedules/s/trigger")).json()
    assert made["trigger_id"] == "s@2027-05-01T13:00:00.000Z"
    await drain(house)
    assert [one["run_id"] for one in await triggers(api)] == [made["run_id"]]
    assert (await api.get("/schedules/s")).json()["next_at"] == "2027-05-01T14:00:00.000Z"


@pytest.mark.clause("schedules.window")
async def test_a_backfill_starts_what_nothing_was_started_for(api: httpx.AsyncClient, house: House) -> None:
    await put(api, target=WAITING, overlap="skip")
    await pass_time(house, 2 * HOUR)
    [first, second] = await triggers(api)
    assert [first["state"], second["state"]] == ["started", "skipped"]
    sent = {"start": "2027-05-01T11:00:00Z", "end": render(house.now)}
    key = {"Idempotency-Key": "fill"}
    made = await api.post("/schedules/s/backfill", json=sent, headers=key)
    assert [made.status_code, made.json()] == [202, {"windows": 4, "queued": 3}]
    assert (await api.post("/schedules/s/backfill", json=sent, headers=key)).json() == made.json()
    assert (await api.post("/schedules/s/backfill", json=sent)).json() == {"windows": 4, "queued": 0}
    started = [first["trigger_id"]]
    run = first["run_id"]
    for _ in range(3):
        await finish(api, house, run)
        await drain(house)
        shown = (await api.get("/schedules/s")).json()
        run = shown["current"]["run_id"]
        started.append(shown["current"]["trigger_id"])
    assert [one[13:18] for one in started] == ["13:00", "11:00", "12:00", "14:00"]
    assert [one["backfill"] for one in await triggers(api)] == [True, True, False, True]


async def test_records_are_backfilled_without_waiting(api: httpx.AsyncClient, house: House) -> None:
    await declare_kind(api)
    await put(api, target=RECORD, overlap="coalesce")
    await pass_time(house, HOUR)
    sent = {"start": "2027-05-01T00:00:00Z", "end": "2027-05-01T12:30:00Z"}
    assert (await api.post("/schedules/s/backfill", json=sent)).json() == {"windows": 13, "queued": 13}
    await drain(house)
    assert [one["state"] for one in await triggers(api)] == ["started"] * 14


@pytest.mark.clause("schedules.window")
async def test_a_backfilled_record_takes_no_place_of_one_that_has_not_ended(api: httpx.AsyncClient, house: House) -> None:
    await declare_kind(api)
    await put(api, target=RECORD, overlap="skip")
    await pass_time(house, HOUR)
    [live] = await triggers(api)
    sent = {"start": "2027-05-01T10:00:00Z", "end": "2027-05-01T12:30:00Z"}
    assert (await api.post("/schedules/s/backfill", json=sent)).json() == {"windows": 3, "queued": 3}
    await drain(house)
    assert (await api.get("/schedules/s")).json()["current"]["record"] == live["record"]
    assert (
        await api.post("/claims", json={"kind": "tick", "worker": "w", "limit": 9, "lease_seconds": 7200})
    ).status_code == 200
    for one in await triggers(api):
        if one["backfill"]:
            assert (await api.post(f"/claims/{one['record']}/settle", json={"epoch": 1})).status_code == 200
    await pass_time(house, HOUR)
    assert (await states(api))[-2:] == [("13:00", "started"), ("14:00", "skipped")]


async def test_a_backfill_has_bounds(api: httpx.AsyncClient, house: House) -> None:
    await put(api, target=WAITING, every_seconds=60)
    most = int(SCHEDULE_BACKFILL)

    async def fill(windows: int, end: Instant = NOON) -> httpx.Response:
        start = render(Instant(NOON - windows * 60_000))
        return await api.post("/schedules/s/backfill", json={"start": start, "end": render(end)})

    assert (await fill(most + 1)).status_code == 422
    assert (await fill(1, Instant(NOON + 1))).status_code == 422
    assert (await fill(0)).status_code == 422
    assert (await fill(most)).json() == {"windows": most, "queued": most}
    assert (await fill(most)).json() == {"windows": most, "queued": 0}
    house.now = after(house.now, 61)
    full = await api.post("/schedules/s/backfill", json={"start": render(NOON), "end": render(Instant(NOON + 1))})
    assert [full.status_code, full.json()["code"]] == [409, "ScheduleConflict"]


@pytest.mark.clause("schedules.window")
async def test_the_same_declaration_changes_nothing_and_another_counts_from_now(
    api: httpx.AsyncClient, house: House
) -> None:
    made = await put(api, every_seconds=3000)
    house.now = after(house.now, 100)
    assert await put(api, every_seconds=3000) == made
    other = await put(api, every_seconds=3000, overlap="enqueue")
    assert [other["next_at"], other["created_at"]] == [made["next_at"], made["created_at"]]
    changed = await put(api, every_seconds=50)
    assert parse(changed["next_at"]) == house.now + 50_000
    told = (await api.get("/history", params={"subject": "schedule:s"})).json()["items"]
    assert [one["type"] for one in told] == ["schedule.declared"] * 3


@pytest.mark.clause("schedules.window")
async def test_a_schedule_made_anew_starts_no_window_twice(api: httpx.AsyncClient, house: House) -> None:
    await put(api, target=WAITING, overlap="enqueue")
    await pass_time(house, 2 * HOUR)
    assert (await api.delete("/schedules/s")).status_code == 204
    assert (await api.get("/schedules/s")).status_code == 404
    assert (await api.delete("/schedules/s")).status_code == 404
    assert await pass_time(house, 2 * HOUR) == {}
    await put(api)
    assert [one["error"] for one in await triggers(api)] == [None, {"reason": "deleted"}]
    sent = {"start": "2027-05-01T13:00:00Z", "end": render(house.now)}
    assert (await api.post("/schedules/s/backfill", json=sent)).json() == {"windows": 4, "queued": 3}


async def test_what_cannot_be_started_is_noted_and_the_schedule_goes_on(api: httpx.AsyncClient, house: House) -> None:
    await declare_kind(api)
    await put(api, target=RECORD, overlap="enqueue")
    strict = {"paths": {"n": "number"}, "schema": {"properties": {"n": {"minimum": 5}}}}
    assert (await api.put("/kinds/tick", json=strict)).status_code == 200
    await pass_time(house, HOUR)
    assert (await api.put("/kinds/tick", json={**strict, "schema": None})).status_code == 200
    await pass_time(house, HOUR)
    assert [(one["state"], one["error"]) for one in await triggers(api)] == [
        ("failed", {"code": "BodyInvalid"}),
        ("started", None),
    ]


@pytest.mark.clause("schedules.window", "catalog.grants")
async def test_a_schedule_acts_as_whoever_declared_it(executing: Executing, api: httpx.AsyncClient, house: House) -> None:
    sent = {"subject": "planner", "grants": [{"actions": ["execute"], "kinds": ["echo"]}]}
    made = (await api.post("/credentials", json=sent)).json()
    async with client_of(build_app(executing.ports()), made["token"]) as planner:
        await put(planner)
        assert (await planner.put("/schedules/x", json={**HOURLY, "target": WAITING})).status_code == 403
        await pass_time(house, HOUR)
        [first] = await triggers(planner)
    assert (await api.get(f"/runs/{first['run_id']}")).json()["created_by"] == "planner"
    assert (await api.delete(f"/credentials/{made['id']}")).status_code in (200, 204)
    await pass_time(house, HOUR)
    assert (await triggers(api))[-1]["error"] == {"code": "Unauthenticated"}
    await put(api)
    await pass_time(house, HOUR)
    assert [one["state"] for one in await triggers(api)] == ["started", "failed", "started"]


@pytest.mark.clause("catalog.grants")
async def test_who_may_look_and_who_may_change(executing: Executing, api: httpx.AsyncClient, house: House) -> None:
    await declare_kind(api)
    await put(api, "runs")
    await put(api, "records", target=RECORD)
    cases = {
        "execute": ("runs", True),
        "read": ("runs", False),
        "publish": ("records", True),
        "watch": (None, False),
    }
    for action, (seen, changes) in cases.items():
        sent = {"subject": f"with-{action}", "grants": [{"actions": [action], "kinds": ["echo", "tick"]}]}
        token = (await api.post("/credentials", json=sent)).json()["token"]
        async with client_of(build_app(executing.ports()), token) as client:
            shown = [one["name"] for one in (await client.get("/schedules")).json()["items"]]
            expected = ["records", "runs"] if action == "read" else [] if seen is None else [seen]
            assert shown == expected, action
            for name in ("runs", "records"):
                visible = name in expected
                got = [(await client.get(f"/schedules/{name}{rest}")).status_code for rest in ("", "/next", "/triggers")]
                assert got == [200 if visible else 404] * 3
                allowed = 404 if not visible else 200 if changes else 403
                for act in ("pause", "resume"):
                    assert (await client.post(f"/schedules/{name}/{act}")).status_code == allowed
                sent = {"start": "2027-05-01T11:00:00Z", "end": "2027-05-01T11:01:00Z"}
                filled = await client.post(f"/schedules/{name}/backfill", json=sent)
                assert filled.status_code == (202 if allowed == 200 else allowed)
                if not visible or not changes:
                    assert (await client.post(f"/schedules/{name}/trigger")).status_code == allowed
                    assert (await client.delete(f"/schedules/{name}")).status_code == allowed
                    taken = await client.put(f"/schedules/{name}", json={**HOURLY, "target": {"body": "echo"}})
                    assert taken.status_code in (403, 404)


async def test_a_narrowed_grant_declares_what_lies_inside_and_changes_nothing_else(
    executing: Executing, api: httpx.AsyncClient
) -> None:
    await declare_kind(api)
    await put(api, "other", target=RECORD)
    sent = {"subject": "narrow", "grants": [{"actions": ["publish", "read"], "kinds": ["tick"], "match": {"n": {"$lt": 5}}}]}
    token = (await api.post("/credentials", json=sent)).json()["token"]
    async with client_of(build_app(executing.ports()), token) as narrow:
        await put(narrow, "mine", target={"record": {"kind": "tick", "body": {"n": 4}}})
        outside = {**HOURLY, "target": {"record": {"kind": "tick", "body": {"n": 5}}}}
        assert (await narrow.put("/schedules/mine", json=outside)).status_code == 403
        assert [one["name"] for one in (await narrow.get("/schedules")).json()["items"]] == ["mine"]
        assert (await narrow.delete("/schedules/other")).status_code == 404
        assert (await narrow.delete("/schedules/mine")).status_code == 204


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"cron": "soon"}, "/cron"),
    ({"cron": "* * * * *", "every_seconds": 5}, "/cron"),
    ({}, "/cron"),
    ({"every_seconds": 0.999}, "/every_seconds"),
    ({"every_seconds": int(EVERY_SECONDS) + 1}, "/every_seconds"),
    ({"every_seconds": True}, "/every_seconds"),
    ({"cron": "* * * * *", "timezone": "Mars/Phobos"}, "/timezone"),
    ({"cron": "* * * * *", "overlap": "replace"}, "/overlap"),
    ({"cron": "* * * * *", "catch_up": "some"}, "/catch_up"),
    ({"cron": "* * * * *", "catch_up_seconds": int(CATCH_UP_SECONDS) + 1}, "/catch_up_seconds"),
    ({"cron": "* * * * *", "catch_up_seconds": -1}, "/catch_up_seconds"),
    ({"cron": "* * * * *", "target": {}}, "/target"),
    ({"cron": "* * * * *", "target": 1}, "/target"),
    ({"cron": "* * * * *", "target": {"body": "echo", "record": {"kind": "tick", "body": {}}}}, "/target/body"),
    ({"cron": "* * * * *", "target": {"body": "echo", "scop": "a"}}, "/target/scop"),
    ({"cron": "* * * * *", "target": {"record": {"kind": "tick", "body": []}}}, "/target/record/body"),
    ({"cron": "* * * * *", "target": {"record": {"kind": "tick"}}}, "/target/record/body"),
    ({"cron": "* * * * *", "target": {"record": {"kind": "artifact", "body": {}}}}, "/kind"),
    ({"cron": "* * * * *", "target": {"body": "echo", "input": "x" * 70_000}}, "/target"),
]


@pytest.mark.parametrize(("sent", "pointer"), WRONG)
async def test_a_declaration_that_is_none_is_refused(api: httpx.AsyncClient, sent: dict[str, Any], pointer: str) -> None:
    answer = await api.put("/schedules/s", json={"target": {"body": "echo"}, **sent})
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"].startswith(pointer), answer.text
    assert (await api.get("/schedules/s")).status_code == 404


async def test_what_it_would_start_is_looked_at_first(api: httpx.AsyncClient) -> None:
    await declare_kind(api)
    for target, code in [
        ({"body": "nobody"}, "BodyUnknown"),
        ({"record": {"kind": "none", "body": {}}}, "KindUnknown"),
        ({"record": {"kind": "tick", "body": {"n": "x"}}}, "BodyInvalid"),
        ({"body": "echo", "scope": "a//b"}, "IdInvalid"),
        ({"body": "echo", "scope": "a+1"}, "IdInvalid"),
    ]:
        answer = await api.put("/schedules/s", json={**HOURLY, "target": target})
        assert answer.json()["code"] == code, answer.text


@pytest.mark.clause("schedules.window")
async def test_a_preview_stores_nothing_and_agrees_with_the_schedule(api: httpx.AsyncClient) -> None:
    most = int(SCHEDULE_PREVIEW)
    sent = {**HOURLY, "timezone": "Asia/Kolkata", "target": WAITING}
    told = (await api.post("/schedules/preview", json={**sent, "count": most})).json()["items"]
    assert len(told) == most
    assert told[0] == {
        "window_start": "2027-05-01T13:30:00.000Z",
        "window_end": "2027-05-01T14:30:00.000Z",
        "local": "2027-05-01T19:00:00+05:30",
    }
    assert (await api.post("/schedules/preview", json={**sent, "count": most + 1})).status_code == 422
    assert (await api.get("/schedules")).json()["items"] == []
    await put(api, timezone="Asia/Kolkata", paused=True)
    own = (await api.get("/schedules/s/next", params={"count": most})).json()["items"]
    assert [one.pop("trigger_id") for one in own] == [f"s@{one['window_start']}" for one in told]
    assert own == told
    ending = {"every_seconds": HOUR, "timezone": "Asia/Tokyo", "after": "9999-12-31T13:00:00Z", "count": 3}
    last = (await api.post("/schedules/preview", json=ending)).json()["items"]
    assert [one["local"] for one in last[:2]] == ["9999-12-31T23:00:00+09:00", "9999-12-31T15:00:00+00:00"]
    later = (await api.get("/schedules/s/next", params={"count": 1, "after": told[4]["window_start"]})).json()["items"]
    assert later[0]["window_start"] == told[5]["window_start"]
    assert (await api.get("/schedules/s/next", params={"count": most + 1})).status_code == 422
    assert (await api.get("/schedules/s/next", params={"after": "soon"})).status_code == 422


async def test_old_windows_are_forgotten(api: httpx.AsyncClient, house: House) -> None:
    await put(api, paused=True)
    old = house.now - int(TRIGGER_RETENTION_SECONDS) * 1000
    gone = "gone"  # a schedule that was deleted since
    house.connection.executemany(
        "INSERT INTO schedule_triggers (schedule, window_start, window_end, trigger_id, state, created_at) "
        "VALUES (?1, ?2, ?2, 'x' || ?2, ?3, ?2)",
        [(name, old + n, state) for name in ("s", gone) for n, state in ((0, "started"), (1, "skipped"), (2, "queued"))],
    )

    def left() -> list[tuple[str, int]]:
        rows = house.connection.execute("SELECT schedule, window_start - ? FROM schedule_triggers ORDER BY 1, 2", [old])
        return [tuple(row) for row in rows]

    forget = WindowRetention().fire
    assert await forget(house.database(), Instant(house.now - 1), "sweep") == 0
    assert await forget(house.database(), house.now, "sweep") == 2
    assert left() == [(name, n) for name in (gone, "s") for n in (1, 2)], "each when its own time has come"
    assert (await house.advance(HOUR / 2)).fired["schedule_forgotten"] == 2
    assert left() == [(gone, 2), ("s", 2)], "what waits stays"
    told = (await api.get("/history", params={"subject": f"schedule:{gone}"})).json()["items"]
    assert [(one["type"], one["data"]) for one in told] == [("schedule.forgotten", {"windows": 1})] * 2


async def test_a_run_that_its_scope_refuses_is_on_record(api: httpx.AsyncClient, house: House) -> None:
    await put(api, "one", target={**WAITING, "scope": "shared"})
    await put(api, "two", target={"body": "echo", "scope": "shared"})
    await pass_time(house, HOUR)
    [refused] = await triggers(api, "two")
    assert refused["state"] == "started"
    run = (await api.get(f"/runs/{refused['run_id']}")).json()
    assert run["status"] == "failed"
    assert run["error"]["code"] in ("ExecutionPinMismatch", "ExecutionBusy")


@pytest.mark.clause("schedules.window", "kernel.canonical-json")
async def test_whole_numbers_past_2_53_are_started_as_they_were_declared(api: httpx.AsyncClient, house: House) -> None:
    await declare_kind(api)
    large = {"n": 2**53, "m": [1e300]}
    assert (await api.put("/scopes/shared", json={"config": large})).status_code == 200
    await put(api, "run", target={"body": "echo", "input": large, "scope": "shared"})
    await put(api, "record", target={"record": {"kind": "tick", "body": large, "metadata": {"mine": large}}})
    await pass_time(house, HOUR)
    [started], [published] = await triggers(api, "run"), await triggers(api, "record")
    assert (await api.get(f"/runs/{started['run_id']}")).json()["result"] == large
    record = (await api.get(f"/records/{published['record']}")).json()
    assert (record["body"], record["metadata"]["mine"]) == (large, large)
    told = await api.post("/runs", json={"body": "echo", "input": 1, "scope": "shared", "metadata": large})
    assert told.status_code == 202, told.text


async def test_bounds_are_inclusive(api: httpx.AsyncClient) -> None:
    await put(api, every_seconds=int(EVERY_SECONDS), catch_up_seconds=int(CATCH_UP_SECONDS))
    room = int(CONFIG_BYTES) - len('{"body":"echo","input":""}')
    await put(api, target={"body": "echo", "input": "x" * room})
    answer = await api.put("/schedules/s", json={**HOURLY, "target": {"body": "echo", "input": "x" * (room + 1)}})
    assert [answer.status_code, answer.json()["errors"][0]["pointer"]] == [422, "/target"]


async def test_an_input_too_large_for_its_row_goes_through_the_bucket(api: httpx.AsyncClient, house: House) -> None:
    await put(api, target={"body": "echo", "input": "x" * 60_000})
    await pass_time(house, HOUR)
    [only] = await triggers(api)
    assert (await api.get(f"/runs/{only['run_id']}")).json()["result"] == "x" * 60_000

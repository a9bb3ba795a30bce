"""Requests that wait for a run's end, on the host."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from moorage.api import ending
from moorage.api.app import build_app
from moorage.api.lives import HostLives
from moorage.bodies import Run, body
from moorage.client import Moorage, RunFailed
from moorage.kernel.errors import StorageBindingUnavailable
from moorage.runs import record
from moorage.store.directory import DirectoryBlobs
from moorage.store.sqlite import connect
from tests.unit.api.conftest import ROOT, House, client_of
from tests.unit.api.executing import Executing
from tests.unit.api.test_requests import problem

SOON = 20
"""Seconds that nothing here takes, on the busiest machine, and less than anybody waits."""


@body("doubled", effects=["double"])
async def doubled(run: Run, number: int) -> int:
    return await run.step("double", lambda: number * 2)


@body("asks", effects=["answer"])
async def asks(run: Run) -> Any:
    handle = await run.awakeable("answer", ttl=3600)
    run.metadata["token"] = handle.token
    return await handle


@body("breaks")
async def breaks(run: Run) -> None:
    raise ValueError("it broke")


@pytest.fixture
def house(schema: str, tmp_path: Path) -> House:
    connection = connect(":memory:")
    connection.executescript(schema)
    return House(connection, blobs=DirectoryBlobs(tmp_path)).initialized()


@pytest.fixture
async def executing(house: House) -> AsyncIterator[Executing]:
    one = Executing(house, [doubled, asks, breaks])
    yield one
    await one.host.close()


@pytest.fixture
async def api(executing: Executing) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(build_app(executing.ports())) as client:
        yield client


@pytest.fixture
async def moorage(executing: Executing) -> AsyncIterator[Moorage]:
    transport = httpx.ASGITransport(app=build_app(executing.ports()))
    async with Moorage("http://moorage.test", ROOT, transport=transport) as made:
        yield made


def lives(executing: Executing) -> HostLives:
    found = executing.ports().lives
    assert isinstance(found, HostLives)
    return found


async def start(api: httpx.AsyncClient, name: str, given: Any = None, **query: Any) -> dict[str, Any]:
    answer = await api.post("/runs", json={"body": name, "input": given}, params=query)
    assert answer.status_code == 202, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def suspended(api: httpx.AsyncClient) -> tuple[str, str]:
    """A run that waits for an answer, and the token that gives it."""
    run = (await start(api, "asks"))["run_id"]
    while (shown := (await api.get(f"/runs/{run}")).json())["status"] != "suspended":  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return run, shown["metadata"]["token"]


async def parked(executing: Executing, number: int) -> None:
    """Until so many wait."""
    async with asyncio.timeout(SOON):
        while lives(executing).ends.waiting < number:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_a_run_is_started_and_awaited_in_one_request(api: httpx.AsyncClient) -> None:
    told = await start(api, "doubled", 21, wait_seconds=25)
    assert (told["status"], told["run"]["result"]) == ("success", 42)
    assert told["run"] == (await api.get(f"/runs/{told['run_id']}")).json()
    assert (await start(api, "breaks", wait_seconds=25))["run"]["error"]["tag"] == "Permanent"
    assert (await start(api, "doubled", 21)).keys() == {"run_id", "execution_id", "status"}


async def test_the_same_start_again_waits_for_the_same_run_and_may_wait_for_another_time(api: httpx.AsyncClient) -> None:
    headers, sent = {"idempotency-key": "mine"}, {"body": "doubled", "input": 4}
    first = await api.post("/runs", json=sent, headers=headers)
    again = await api.post("/runs", json=sent, headers=headers, params={"wait_seconds": 25})
    assert (first.status_code, again.status_code) == (202, 200)
    assert (again.json()["run_id"], again.json()["run"]["result"]) == (first.json()["run_id"], 8)


@pytest.fixture
def unlooked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who waits looks by itself: what is heard is told, and what is over is over in time."""
    monkeypatch.setattr(ending, "LOOKS_SECONDS", (600,))


@pytest.mark.usefixtures("unlooked")
async def test_all_who_wait_for_a_suspended_run_are_answered_at_its_end(
    api: httpx.AsyncClient, executing: Executing
) -> None:
    run, token = await suspended(api)
    waits = [asyncio.create_task(api.get(f"/runs/{run}", params={"wait_seconds": 25})) for _ in range(50)]
    await parked(executing, 50)
    assert (await api.post(f"/awake/{token}", json={"ok": True})).is_success
    answers = await asyncio.wait_for(asyncio.gather(*waits), SOON)
    assert {(one.status_code, one.json()["status"], one.json()["result"]["ok"]) for one in answers} == {
        (200, "success", True)
    }
    assert lives(executing).ends.waiting == 0


@pytest.mark.usefixtures("unlooked")
async def test_after_its_time_a_wait_answers_how_the_run_stands(api: httpx.AsyncClient) -> None:
    run, _ = await suspended(api)
    began = time.monotonic()
    answer = await asyncio.wait_for(api.get(f"/runs/{run}", params={"wait_seconds": 0.2}), SOON)
    assert (answer.status_code, answer.json()["status"]) == (200, "suspended")
    assert time.monotonic() - began >= 0.2
    told: dict[str, Any] = {}
    for seconds in (0.2, 2, 20):
        told = await start(api, "asks", wait_seconds=seconds)
        assert told["status"] == told["run"]["status"]
        if told["status"] == "suspended":  # it gets there by itself, and not always at once
            break
    assert (told["status"], told["run"]["status"], told["run"]["awaiting"][0]["label"]) == (
        "suspended",
        "suspended",
        "answer",
    )


async def test_an_end_of_which_nobody_told_is_seen_by_looking(
    api: httpx.AsyncClient, house: House, executing: Executing
) -> None:
    run, _ = await suspended(api)
    waiting = asyncio.create_task(api.get(f"/runs/{run}", params={"wait_seconds": 25}))
    await parked(executing, 1)
    house.connection.execute("UPDATE runs SET status = 'canceled', ended_at = ? WHERE run_id = ?", (house.now, run))
    answer = await asyncio.wait_for(waiting, SOON)
    assert answer.json()["status"] == "canceled"


async def test_a_hint_that_is_no_end_is_looked_after_once(api: httpx.AsyncClient, executing: Executing) -> None:
    """A run is read before the wait, after the hint, and when the time is over."""
    run, _ = await suspended(api)
    for seconds in (0.3, 1.5):
        lives(executing).changed(run, "here")
        statements: list[str] = []
        executing.house.connection.set_trace_callback(statements.append)
        await api.get(f"/runs/{run}", params={"wait_seconds": seconds})
        executing.house.connection.set_trace_callback(None)
        looks = sum("FROM runs AS r WHERE r.run_id" in one for one in statements)
        if looks == 3:
            return
        assert looks == 2  # the time was over before the look after the hint
    raise AssertionError("the hint was not looked after")


async def test_a_run_that_had_ended_costs_what_it_costs_without_a_wait(api: httpx.AsyncClient) -> None:
    run = (await start(api, "doubled", 1, wait_seconds=25))["run_id"]
    plain = await api.get(f"/runs/{run}")
    waited = await api.get(f"/runs/{run}", params={"wait_seconds": 25})
    assert waited.json() == plain.json()
    assert cost(waited) == cost(plain)
    assert cost(plain) == "trips=1 read=0 written=0"  # on the host rows are not counted


def cost(answer: httpx.Response) -> str:
    """What an answer tells of the round trips and the rows that it cost."""
    return answer.headers["server-timing"].split('"')[1]


async def test_who_may_not_see_a_run_does_not_wait_for_it(api: httpx.AsyncClient) -> None:
    run, _ = await suspended(api)
    made = (await api.post("/credentials", json={"subject": "ann", "grants": []})).json()
    headers = {"authorization": f"Bearer {made['token']}"}
    for one in (run, "run_nothing"):
        answer = await asyncio.wait_for(api.get(f"/runs/{one}", params={"wait_seconds": 25}, headers=headers), SOON)
        problem(answer, 404, "RunUnknown")


async def test_a_credential_that_is_revoked_meanwhile_sees_no_more(api: httpx.AsyncClient, executing: Executing) -> None:
    run, token = await suspended(api)
    grants = [{"actions": ["read"], "kinds": ["asks"]}]
    made = (await api.post("/credentials", json={"subject": "ann", "grants": grants})).json()
    headers = {"authorization": f"Bearer {made['token']}"}
    waiting = asyncio.create_task(api.get(f"/runs/{run}", params={"wait_seconds": 25}, headers=headers))
    await parked(executing, 1)
    await api.delete(f"/credentials/{made['id']}")
    await api.post(f"/awake/{token}", json=1)
    problem(await asyncio.wait_for(waiting, SOON), 401, "Unauthenticated")


async def test_a_started_run_is_told_of_even_when_the_waiting_fails(
    api: httpx.AsyncClient, executing: Executing, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any, **__: Any) -> Any:
        raise StorageBindingUnavailable

    monkeypatch.setattr(record, "show", fail)
    told = await start(api, "doubled", 1, wait_seconds=25)
    assert (told["status"], "run" in told) == ("running", False)


@pytest.mark.parametrize("seconds", ["26", "-1", "nan", "inf", "soon", "25.001"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_wait_out_of_bounds_is_refused(api: httpx.AsyncClient, method: str, seconds: str) -> None:
    run = (await start(api, "doubled", 1))["run_id"]
    path, sent = (f"/runs/{run}", None) if method == "GET" else ("/runs", {"body": "doubled", "input": 1})
    answer = await api.request(method, path, params={"wait_seconds": seconds}, json=sent)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/query/wait_seconds")


async def test_the_client_waits(moorage: Moorage, api: httpx.AsyncClient) -> None:
    assert await moorage.runs.call("doubled", 3) == 6
    with pytest.raises(RunFailed, match="it broke"):
        await moorage.runs.call("breaks")
    started = await moorage.runs.start("doubled", 4, wait=60)
    assert started.run is not None
    assert (started.status, started.run.result) == ("success", 8)
    asked = await moorage.runs.start("asks", wait=0.05)
    assert asked.run is not None
    assert not asked.run.ended
    assert not (await moorage.runs.wait(asked.run_id, seconds=0.1)).ended
    waiting = asyncio.create_task(moorage.runs.wait(asked.run_id))
    while "token" not in (shown := (await api.get(f"/runs/{asked.run_id}")).json())["metadata"]:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await api.post(f"/awake/{shown['metadata']['token']}", json="yes")
    assert (await asyncio.wait_for(waiting, SOON)).result == "yes"
    assert (await moorage.runs.start("doubled", 4)).run is None

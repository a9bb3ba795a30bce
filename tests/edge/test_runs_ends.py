"""Waiting for runs to end on the real edge: in one request, in two, many at once, and of runs that are hosted elsewhere."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from ops.local.edge import LocalEdge
from tests.edge.client import crowd, good
from tests.edge.conftest import EdgeFactory
from tests.edge.party import Party, party
from tests.edge.runs import BODIES, VARS
from tests.edge.timing import tries

pytestmark = pytest.mark.edge

SOON = 0.1
"""Seconds from a run's end to the answer of whoever waits for it."""


@pytest.fixture(scope="module")
def shop(edge_factory: EdgeFactory) -> Iterator[LocalEdge]:
    """Moorage with the trial bodies."""
    edge = edge_factory(bodies=BODIES, vars=VARS)
    yield edge
    edge.stop()


@pytest.fixture
async def web(shop: LocalEdge) -> AsyncIterator[httpx.AsyncClient]:
    async with crowd(shop, connections=60) as one:
        yield one


@pytest.fixture(scope="module")
def other() -> Iterator[Party]:
    with party() as one:
        yield one


async def start(web: httpx.AsyncClient, body: str, given: Any, **query: Any) -> dict[str, Any]:
    told: dict[str, Any] = good(await web.post("/runs", json={"body": body, "input": given}, params=query))
    return told


async def awaited(web: httpx.AsyncClient, run: str, seconds: float = 25) -> tuple[dict[str, Any], float]:
    """The run as one request that waits shows it, and when the answer came."""
    shown: dict[str, Any] = good(await web.get(f"/runs/{run}", params={"wait_seconds": seconds}))
    return shown, time.monotonic()


async def suspended(web: httpx.AsyncClient, other: Party) -> tuple[str, str]:
    """A run that waits for an answer, and the token that gives it."""
    run = (await start(web, "trial.wait", {"party": other.url}))["run_id"]
    token = await asyncio.to_thread(other.token, run)
    while good(await web.get(f"/runs/{run}"))["status"] != "suspended":  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return run, token


async def test_a_run_is_started_and_awaited_in_one_request_or_two(web: httpx.AsyncClient) -> None:
    for _ in range(5):
        for one in tries(1):  # nothing is looked for: the end is told
            began = time.monotonic()
            told = await start(web, "trial.row", {}, wait_seconds=25)
            assert (told["status"], told["run"]["result"]) == ("success", 1)
            run = (await start(web, "trial.row", {}))["run_id"]
            shown, at = await awaited(web, run)
            assert (shown["status"], shown["result"]) == ("success", 1)
            one.took = at - began
    scoped = {"body": "trial.row", "input": {}, "scope": "shop/waited"}
    assert good(await web.post("/runs", json=scoped, params={"wait_seconds": 25}))["run"]["result"] == 1


async def test_many_who_wait_for_a_suspended_run_are_answered_as_it_ends(web: httpx.AsyncClient, other: Party) -> None:
    for one in tries(SOON + 0.02):
        run, token = await suspended(web, other)
        waiting = asyncio.create_task(awaited(web, run))
        await asyncio.sleep(1.5)  # the first look is over
        assert not waiting.done()
        one.took = await ended(web, token, waiting)
    print(f"one who waits is answered {one.took * 1000:.0f} ms after what ends the run was asked for")
    for one in tries(SOON + 0.02 * 50):
        run, token = await suspended(web, other)
        many = [asyncio.create_task(awaited(web, run)) for _ in range(50)]
        await asyncio.sleep(0.5)
        one.took = await ended(web, token, *many)
    print(f"the last of 50 who wait is answered after {one.took * 1000:.0f} ms")


async def ended(web: httpx.AsyncClient, token: str, *waits: "asyncio.Task[tuple[dict[str, Any], float]]") -> float:
    """Seconds from asking for what ends a run to the last answer of those who wait for it."""
    began = time.monotonic()
    good(await web.post(f"/awake/{token}", json={"ok": True}))
    answers = await asyncio.gather(*waits)
    assert {(shown["status"], shown["result"]["ok"]) for shown, _ in answers} == {("success", True)}
    return max(at for _, at in answers) - began


async def test_a_wait_whose_time_is_over_tells_how_the_run_stands(web: httpx.AsyncClient, other: Party) -> None:
    run, _ = await suspended(web, other)
    for one in tries(1):
        began = time.monotonic()
        shown, at = await awaited(web, run, 0.5)
        assert shown["status"] == "suspended"
        one.took = at - began
        assert one.took >= 0.5
    told = await start(web, "trial.sleep", {"seconds": 3600}, wait_seconds=0.5)
    if told["run"]["status"] == "running":  # it gets there by itself, and not always at once
        told = await start(web, "trial.sleep", {"seconds": 3600}, wait_seconds=10)
    assert (told["status"], told["run"]["status"]) == ("waiting", "waiting")


async def test_a_stop_is_an_end_too(web: httpx.AsyncClient) -> None:
    for one in tries(0.5):
        run = (await start(web, "trial.sleep", {"seconds": 3600}))["run_id"]
        waiting = asyncio.create_task(awaited(web, run))
        await asyncio.sleep(0.5)
        began = time.monotonic()
        good(await web.post(f"/runs/{run}/stop", json={}))
        shown, at = await waiting
        assert shown["status"] == "canceled"
        one.took = at - began


async def test_a_run_whose_host_is_elsewhere_is_waited_for_as_well(web: httpx.AsyncClient) -> None:
    good(await web.put("/bodies/ends.remote", json={"build": {"implementation": "a" * 64}, "effects": []}))
    close = {"op": "close", "status": "success", "result": 7}
    for one in tries(SOON + 0.1):
        held = good(await web.post("/executions", json={"body": "ends.remote", "input": None, "holder": "host-1"}))
        waits = [asyncio.create_task(awaited(web, held["run_id"])) for _ in range(3)]
        await asyncio.sleep(1.5)
        began = time.monotonic()
        path = f"/executions/{held['execution_id']}/journal"
        good(await web.post(path, json={"epoch": held["lease"]["epoch"], "operations": [close]}))
        answers = await asyncio.gather(*waits)
        assert {shown["result"] for shown, _ in answers} == {7}
        one.took = max(at for _, at in answers) - began


async def test_who_leaves_takes_nothing_along(web: httpx.AsyncClient, other: Party) -> None:
    impatient = httpx.Timeout(60, read=0.1)
    for one in tries(SOON + 0.02):
        run, token = await suspended(web, other)
        for _ in range(5):
            with pytest.raises(httpx.ReadTimeout):
                await web.get(f"/runs/{run}", params={"wait_seconds": 25}, timeout=impatient)
        waiting = asyncio.create_task(awaited(web, run))
        await asyncio.sleep(0.3)
        one.took = await ended(web, token, waiting)
    assert (await start(web, "trial.row", {}, wait_seconds=25))["run"]["result"] == 1

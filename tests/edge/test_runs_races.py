"""Many runs at once on the real edge: tokens resolved in every order, waits longer than a lease, a thousand that sleep."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from ops.local.edge import LocalEdge
from tests.edge.client import SECONDS, bearer, crowd, good
from tests.edge.conftest import EdgeFactory
from tests.edge.party import Answer, Party, party
from tests.edge.runs import BODIES, ENDED, VARS, Desk, desk
from tests.edge.timing import tries

pytestmark = pytest.mark.edge

PAYLOAD = {"ok": True, "n": 1}
_TICKS_A_SECOND = 100


@pytest.fixture(scope="module")
def shop(edge_factory: EdgeFactory) -> Iterator[LocalEdge]:
    """Moorage with the trial bodies."""
    edge = edge_factory(bodies=BODIES, vars=VARS)
    yield edge
    edge.stop()


@pytest.fixture
def runs(shop: LocalEdge) -> Iterator[Desk]:
    with desk(shop) as one:
        yield one


@pytest.fixture
def other() -> Iterator[Party]:
    with party() as one:
        yield one


async def start_all(edge: LocalEdge, body: str, inputs: list[Any]) -> list[str]:
    async with crowd(edge) as api:
        sent = ({"body": body, "input": given} for given in inputs)
        answers = await asyncio.gather(*(api.post("/runs", json=one) for one in sent))
    return [good(answer)["run_id"] for answer in answers]


async def ended(edge: LocalEdge, runs: list[str], seconds: float) -> list[dict[str, Any]]:
    """The runs once all have ended. Asking takes the isolate's time: one question stands for all until they are over."""
    limit = time.monotonic() + seconds
    async with crowd(edge) as api:
        for status in ("running", "suspended", "waiting"):
            while good(await api.get("/runs", params={"status": status, "limit": 1}))["items"]:
                assert time.monotonic() < limit, f"some of {len(runs)} are still {status}"
                await asyncio.sleep(0.1)
        shown = [good(answer) for answer in await asyncio.gather(*(api.get(f"/runs/{run}") for run in runs))]
    assert {one["status"] for one in shown} <= ENDED, shown[:3]
    return shown


class FastParty:
    """Resolves each token before it answers the request that handed it over, in the same instant, or 50 ms after."""

    def __init__(self, edge: LocalEdge, order: str) -> None:
        self._order = order
        self._api = httpx.Client(base_url=edge.url, headers=bearer(edge.root_token), timeout=SECONDS)
        self.statuses: list[int] = []
        self.resolved_at: dict[str, float] = {}

    def hand(self, told: dict[str, Any]) -> Answer:
        if self._order == "before":
            self._resolve(told, 0)
        else:
            seconds = 0.0 if self._order == "same" else 0.05
            threading.Thread(target=self._resolve, args=(told, seconds), daemon=True).start()
        return 200, {}, {}

    def _resolve(self, told: dict[str, Any], seconds: float) -> None:
        time.sleep(seconds)
        answer = self._api.post(f"/awake/{told['token']}", json=PAYLOAD)
        self.statuses.append(answer.status_code)
        self.resolved_at[told["run"]] = time.monotonic()


@pytest.mark.clause("awake.early")
@pytest.mark.parametrize("order", ["before", "same", "after"])
async def test_a_token_resolved_in_any_order_resumes_its_run(shop: LocalEdge, other: Party, order: str) -> None:
    fast = FastParty(shop, order)
    other.on("/hand", fast.hand)
    began = time.monotonic()
    started = await start_all(shop, "trial.wait", [{"party": other.url}] * 200)
    shown = await ended(shop, started, 60)
    took = time.monotonic() - began
    assert [one["result"] for one in shown] == [PAYLOAD] * 200
    while len(fast.resolved_at) < 200:  # noqa: ASYNC110 - a run may end before who resolved its token has heard so
        await asyncio.sleep(0.01)
    assert fast.statuses == [200] * 200
    assert {one["attempt"] for one in shown} <= {1, 2}  # the second is the resumption
    with desk(shop) as runs:
        assert good(runs.api.get("/runs", params={"status": "suspended"}))["items"] == []
        for one in tries(2):
            run = runs.start("trial.wait", {"party": other.url})
            runs.until(run)
            over = time.monotonic()
            while run not in fast.resolved_at:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            one.took = over - fast.resolved_at[run]
    print(f"200 runs, tokens resolved {order}: {took:.1f} s in all; one alone resumed within {one.took * 1000:.0f} ms")


@pytest.mark.clause("runs.waiting-state", "runs.resume-at")
async def test_runs_that_wait_longer_than_a_lease_resume_once_at_their_instant(shop: LocalEdge) -> None:
    started = await start_all(shop, "trial.sleep", [{"seconds": 600}] * 100)
    with desk(shop) as runs:
        for run in started:
            assert runs.until(run, {"waiting"})["next_attempt_at"] is not None
        runs.advance(400)
        assert {runs.show(run)["status"] for run in started} == {"waiting"}
        began = time.monotonic()
        runs.advance(210)
        print(f"100 runs due at one instant: the clock answered after {time.monotonic() - began:.2f} s")
    shown = await ended(shop, started, 30)
    assert {(one["status"], one["result"]) for one in shown} == {("success", "slept")}


def lasts(edge: LocalEdge, runs: Desk, run: str) -> float:
    """Seconds until the lease of a run's execution runs out."""
    now = datetime.fromisoformat(good(runs.api.get("/testing/clock"))["now"]).timestamp()
    with closing(sqlite3.connect(edge.d1_path(), timeout=30)) as database:
        ((until,),) = database.execute("SELECT expires_at FROM executions WHERE run_id = ?", (run,)).fetchall()
    return float(until / 1000 - now)


@pytest.mark.clause("runs.owner-lease", "runs.live-owner")
def test_a_run_at_work_longer_than_its_lease_stays_its_owners(shop: LocalEdge, runs: Desk, other: Party) -> None:
    run = runs.start("trial.ask", {"url": f"{other.url}/hang/long", "timeout": 600})
    while not other.asked["/hang/long"]:
        time.sleep(0.01)
    for _ in range(4):
        runs.advance(15)
        while lasts(shop, runs, run) < 19:
            time.sleep(0.1)  # the keeper comes by every half second, in real time
    other.let_go()
    shown = runs.until(run)
    assert (shown["status"], shown["attempt"]) == ("success", 1)
    assert other.asked["/hang/long"] == 1


@pytest.mark.timeout(600)
async def test_a_thousand_suspended_runs_cost_nothing_and_all_end(shop: LocalEdge, other: Party) -> None:
    with desk(shop) as runs:
        alone = await _trips_of_a_while(runs)
    began = time.monotonic()
    started = await start_all(shop, "trial.wait", [{"party": other.url}] * 1000)
    async with crowd(shop) as api:
        for _ in range(1200):
            handed = len(other.bodies.get("/hand", ()))
            if handed >= 1000 and not good(await api.get("/runs", params={"status": "running", "limit": 1}))["items"]:
                break
            await asyncio.sleep(0.1)
    print(f"1,000 runs started and suspended: {time.monotonic() - began:.1f} s")
    await asyncio.sleep(12)  # what they told history is sealed meanwhile
    with desk(shop) as runs:
        before = _cpu_seconds(shop.workerd_pid())
        beside = await _trips_of_a_while(runs)
        spent = _cpu_seconds(shop.workerd_pid()) - before
    print(f"beside 1,000 suspended runs: {beside} round trips in 15 s, {alone} without them; {spent * 1000:.0f} ms of CPU")
    assert beside <= alone + 2
    began = time.monotonic()
    async with crowd(shop) as api:
        tokens = [told["token"] for told in other.bodies["/hand"]]
        for answer in await asyncio.gather(*(api.post(f"/awake/{token}", json=PAYLOAD) for token in tokens)):
            good(answer)
    shown = await ended(shop, started, 120)
    print(f"1,000 runs resolved and ended: {time.monotonic() - began:.1f} s")
    assert {one["status"] for one in shown} == {"success"}


def _cpu_seconds(pid: int) -> float:
    fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


async def _trips_of_a_while(runs: Desk) -> int:
    """Round trips to the database from one small run to the next, 15 seconds later, with the sealing of their history."""
    counts: list[int] = []
    for _ in range(2):
        run = runs.start("trial.sent", None)
        await asyncio.sleep(15 if not counts else 2)
        counts.append(runs.show(run)["result"])
    return int(counts[1] - counts[0])

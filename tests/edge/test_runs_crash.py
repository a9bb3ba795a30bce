"""A run's host dies: what was recorded is not done again, and the run goes on under the next owner."""

import time
from collections.abc import Iterator

import httpx
import pytest

from ops.local.edge import LocalEdge
from tests.edge.conftest import EdgeFactory
from tests.edge.party import Party, party
from tests.edge.runs import BODIES, VARS, desk

pytestmark = [pytest.mark.edge, pytest.mark.crash]


@pytest.fixture(scope="module")
def shop(edge_factory: EdgeFactory) -> Iterator[LocalEdge]:
    """Moorage with the trial bodies."""
    edge = edge_factory(bodies=BODIES, vars=VARS)
    yield edge
    edge.stop()


@pytest.fixture
def other() -> Iterator[Party]:
    with party() as one:
        yield one


def back(edge: LocalEdge) -> None:
    """Wait until a killed workerd answers again."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            if httpx.get(f"{edge.url}/health", timeout=60).is_success:
                return
        except httpx.HTTPError:
            time.sleep(0.1)
    raise AssertionError("workerd did not come back")


@pytest.mark.clause("runs.claim-takeover", "runs.unclosed-execution", "runs.live-owner", "runs.idempotency-key")
def test_a_run_whose_host_was_killed_is_taken_over_when_its_lease_lapses(shop: LocalEdge, other: Party) -> None:
    with desk(shop) as runs:
        run = runs.start("trial.crash", {"party": other.url})
        while not other.asked["/hang/second"]:
            time.sleep(0.01)
    shop.kill_workerd()
    other.let_go()
    back(shop)
    with desk(shop) as runs:
        assert runs.show(run)["status"] == "running"
        time.sleep(0.5)
        assert other.asked["/hang/second"] == 1  # a live lease is nobody else's
        runs.advance(31)
        while other.asked["/hang/second"] < 2:
            time.sleep(0.01)
        other.let_go()
        shown = runs.until(run)
    assert (shown["status"], shown["attempt"]) == ("success", 2)
    assert other.asked["/count/first"] == 1
    assert len(set(other.keys["/hang/second"])) == 1


@pytest.mark.clause("awake.restart", "runs.wake")
def test_what_was_suspended_or_waiting_outlives_a_crash(shop: LocalEdge, other: Party) -> None:
    with desk(shop) as runs:
        suspended = runs.start("trial.wait", {"party": other.url})
        waiting = runs.start("trial.sleep", {"seconds": 600})
        runs.until(suspended, {"suspended"})
        runs.until(waiting, {"waiting"})
    shop.kill_workerd()
    back(shop)
    with desk(shop) as runs:
        assert runs.api.post(f"/awake/{other.token(suspended)}", json=7).status_code == 200
        assert runs.until(suspended)["result"] == 7
        runs.advance(590)
        assert runs.show(waiting)["status"] == "waiting"
        runs.advance(11)
        assert runs.until(waiting)["result"] == "slept"


def test_a_start_that_died_before_its_runner_had_it_is_made_good_by_the_clock(shop: LocalEdge, other: Party) -> None:
    with desk(shop) as runs:
        run = runs.start("trial.crash", {"party": other.url})
    shop.kill_workerd()
    other.let_go()
    back(shop)
    with desk(shop) as runs:
        runs.advance(31)
        other.let_go()
        end = time.monotonic() + 20
        while runs.show(run)["status"] == "running" and time.monotonic() < end:
            other.let_go()
            time.sleep(0.05)
        assert runs.show(run)["status"] == "success"
    assert other.asked["/count/first"] <= 2
    assert len(set(other.keys["/count/first"])) == 1

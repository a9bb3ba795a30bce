"""Bodies on the real edge: steps, waits, retries, stops, and what they cost."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from ops.local.edge import LocalEdge
from tests.edge.client import fresh, good
from tests.edge.conftest import EdgeFactory
from tests.edge.party import Party, party
from tests.edge.runs import BODIES, VARS, Desk, desk
from tests.edge.timing import tries

pytestmark = pytest.mark.edge


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


@pytest.fixture(scope="module")
def other() -> Iterator[Party]:
    with party() as one:
        yield one


@pytest.mark.clause("runs.bodies", "runs.step-output")
def test_a_run_of_a_body_runs_to_its_end(runs: Desk) -> None:
    names = {one["name"] for one in good(runs.api.get("/bodies"))["items"]}
    assert {"trial.row", "trial.wait"} <= names
    shown = runs.done("trial.row", {"steps": 3, "size": 2})
    assert (shown["status"], shown["result"], shown["attempt"]) == ("success", 6, 1)
    assert runs.steps(shown["run_id"])["work"]["status"] == "success"


def test_a_run_under_a_declared_scope_has_a_runner_of_its_own_and_ends_too(runs: Desk) -> None:
    for scope in ("shop/1", "shop/2"):
        assert runs.until(runs.start("trial.row", {}, scope))["result"] == 1


@pytest.mark.clause("awake.journal", "runs.entry-key")
def test_a_run_suspends_on_an_awakeable_and_resumes_with_the_payload(runs: Desk, other: Party) -> None:
    for one in tries(2):
        run = runs.start("trial.wait", {"party": other.url, "steps": 3})
        shown = runs.until(run, {"suspended"})
        assert shown["awaiting"][0]["label"] == "token"
        good(runs.api.post(f"/awake/{other.token(run)}", json={"ok": True, "n": 1}))
        began = time.monotonic()
        assert runs.until(run)["result"] == {"ok": True, "n": 1}
        one.took = time.monotonic() - began
        assert [told["run"] for told in other.bodies["/hand"]].count(run) == 1


@pytest.mark.clause("runs.not-before", "runs.waiting-state", "runs.resume-at", "runs.retry-after", "runs.idempotency-key")
def test_a_retry_waits_for_its_instant_and_is_made_once(runs: Desk, other: Party) -> None:
    url = f"{other.url}/flaky/late?fails=1&after=60"
    run = runs.start("trial.ask", {"url": url, "attempts": 3})
    shown = runs.until(run, {"waiting"})
    assert shown["next_attempt_at"] is not None
    runs.advance(50)
    assert runs.show(run)["status"] == "waiting"
    assert other.asked["/flaky/late"] == 1
    runs.advance(11)
    assert runs.until(run)["result"] == {"times": 2}
    first, second = other.keys["/flaky/late"]
    assert first == second != ""


@pytest.mark.clause("runs.default-policy")
def test_a_short_retry_is_made_in_the_same_process(runs: Desk, other: Party) -> None:
    run = runs.start("trial.ask", {"url": f"{other.url}/flaky/soon?fails=2", "attempts": 5, "delay": 0.05})
    shown = runs.until(run)
    assert (shown["result"], shown["attempt"]) == ({"times": 3}, 1)


@pytest.mark.parametrize("what", ["sleep", "fetch", "wait"])
@pytest.mark.clause("runs.stop-route", "runs.poll")
def test_a_stop_takes_effect_within_half_a_second(runs: Desk, other: Party, what: str) -> None:
    for one in tries(0.5):
        if what == "sleep":
            run = runs.start("trial.sleep", {"seconds": 3600})
            runs.until(run, {"waiting"})
        elif what == "wait":
            run = runs.start("trial.wait", {"party": other.url})
            runs.until(run, {"suspended"})
        else:
            path = f"/hang/{fresh('stop')}"
            run = runs.start("trial.ask", {"url": f"{other.url}{path}"})
            while not other.asked[path]:
                time.sleep(0.01)
        left, began = len(other.left), time.monotonic()
        runs.stop(run)
        assert runs.until(run)["status"] == "canceled"
        one.took = time.monotonic() - began
        if what == "fetch":
            # The request is given up on the wire as well.
            while len(other.left) == left:
                assert time.monotonic() - began < 30
                time.sleep(0.01)
            one.took = max(one.took, other.left[-1] - began - 0.2)


@pytest.mark.parametrize("seconds", [2_147_483.647, 2_147_483.648, 25 * 86400, 50 * 86400, 400 * 86400, 10 * 366 * 86400])
@pytest.mark.clause("runs.resume-at")
def test_a_sleep_past_what_timers_take_waits_for_its_instant(runs: Desk, seconds: float) -> None:
    before = good(runs.api.get("/testing/clock"))["now"]
    run = runs.start("trial.sleep", {"seconds": seconds})
    shown = runs.until(run, {"waiting"})
    after = good(runs.api.get("/testing/clock"))["now"]
    due = _milliseconds(shown["next_attempt_at"])
    assert _milliseconds(before) <= due - round(seconds * 1000) <= _milliseconds(after)
    time.sleep(0.5)
    assert runs.show(run)["status"] == "waiting"
    runs.stop(run)


@pytest.mark.parametrize("seconds", ["soon", None, 1e21, 8000 * 365 * 86400, True])
def test_a_sleep_that_is_no_delay_fails_the_run(runs: Desk, seconds: Any) -> None:
    if seconds is True:
        assert runs.done("trial.sleep", {"seconds": 0})["status"] == "success"
        assert runs.done("trial.sleep", {"seconds": -1})["status"] == "success"
        return
    shown = runs.done("trial.sleep", {"seconds": seconds})
    assert (shown["status"], shown["error"]["tag"]) == ("failed", "Permanent")


@pytest.mark.clause("blobs.inline-cutoff")
@pytest.mark.parametrize("size", [900 * 1024, 5 * 1024 * 1024])
def test_a_large_value_is_recorded_whole(runs: Desk, size: int) -> None:
    shown = runs.done("trial.row", {"steps": 2, "size": size})
    assert shown["result"] == 2 * size
    assert runs.steps(shown["run_id"])["work"]["output"]["bytes"] == size + 2


@pytest.mark.clause("runs.fan-out-join")
def test_two_hundred_branches_join(runs: Desk) -> None:
    for one in tries(10):
        began = time.monotonic()
        shown = runs.done("trial.fan", {"steps": 200})
        assert shown["result"] == sum(range(200))
        one.took = time.monotonic() - began
        print(f"a gather of 200 branches: {one.took:.2f} s")


def test_a_parent_awaits_its_children(runs: Desk) -> None:
    shown = runs.done("trial.parent", {"steps": 5})
    assert shown["result"] == [1, 2, 3, 4, 5]


@pytest.mark.clause("runs.step-output")
def test_a_step_costs_one_round_trip(runs: Desk) -> None:
    began = time.monotonic()
    sent = {"body": "trial.count", "input": {"steps": 50}}
    told = good(runs.api.post("/runs", json=sent, params={"wait_seconds": 25}))
    trips, took = told["run"]["result"], time.monotonic() - began
    # The keeper looks for stops every half second, who waits every second at most, and each of the Clocks may come by.
    assert 50 <= trips <= 56 + 4 * took, (trips, took)
    print(f"50 steps: {trips} round trips in {took:.2f} s")


def test_two_thousand_steps_are_replayed_within_a_second(runs: Desk, other: Party) -> None:
    for one in tries(1):
        run = runs.start("trial.wait", {"party": other.url, "steps": 2000})
        runs.until(run, {"suspended"}, seconds=120)
        began = time.monotonic()
        good(runs.api.post(f"/awake/{other.token(run)}", json=1))
        assert runs.until(run)["result"] == 1
        one.took = time.monotonic() - began
        print(f"2,000 steps replayed: {one.took:.2f} s")


def _milliseconds(instant: str) -> int:
    from datetime import datetime

    return round(datetime.fromisoformat(instant.replace("Z", "+00:00")).timestamp() * 1000)


@pytest.fixture(scope="module")
def outside(edge_factory: EdgeFactory) -> Iterator[LocalEdge]:
    """Moorage as it is deployed: hosts of this network are nobody's destination."""
    edge = edge_factory(bodies=BODIES, vars={"MOORAGE_TEST_CLOCK": "1"})
    yield edge
    edge.stop()


@pytest.mark.clause("catalog.destinations")
@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "2130706433", "169.254.169.254", "10.0.0.1", "a.internal"]
)
def test_a_body_reaches_no_host_of_this_network(outside: LocalEdge, other: Party, host: str) -> None:
    asked = other.asked.total()
    port = other.url.rpartition(":")[2]
    with desk(outside) as runs:
        shown = runs.done("trial.ask", {"url": f"http://{host}:{port}/count/inside", "attempts": 1})
    assert shown["status"] == "failed"
    assert shown["error"]["step"] == "ask"
    assert "inside this network" in shown["error"]["message"]
    assert other.asked.total() == asked


def test_a_redirect_is_not_followed(runs: Desk, other: Party) -> None:
    other.on("/moved", lambda told: (302, {"location": f"{other.url}/count/moved"}, {}))
    shown = runs.done("trial.ask", {"url": f"{other.url}/moved"})
    assert shown["status"] == "failed"
    assert other.asked["/count/moved"] == 0


def test_an_answer_that_does_not_come_counts_as_transient(runs: Desk, other: Party) -> None:
    shown = runs.done("trial.ask", {"url": f"{other.url}/hang/silent", "timeout": 0.3})
    assert (shown["status"], shown["error"]["tag"]) == ("failed", "Transient")
    refused = runs.done("trial.ask", {"url": "http://127.0.0.1:1/"})
    assert (refused["status"], refused["error"]["tag"]) == ("failed", "Transient")

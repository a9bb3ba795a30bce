"""Guards on the real edge: whoever dies with a request under way leaves it guarded, and nothing but evidence lets it go."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from moorage.guards.model import new_holder
from moorage.kernel.instants import Instant
from moorage.kernel.limits import OWNER_LEASE_SECONDS
from ops.local.edge import LocalEdge
from ops.setup import paths
from tests.edge.client import fresh, good, problem
from tests.edge.conftest import EdgeFactory
from tests.edge.guard_host import PREFIX
from tests.edge.party import Party, party
from tests.edge.runs import BODIES, ENDED, VARS, Desk, desk
from tests.edge.test_runs_crash import back

pytestmark = [pytest.mark.edge, pytest.mark.crash]

LAPSE = int(OWNER_LEASE_SECONDS) + 1
WINDOW = 86_400
BUILD = {"implementation": "a" * 64}
ENTRY = {"label": "pay-91", "input_sha256": "b" * 64}


@pytest.fixture(scope="module")
def other() -> Iterator[Party]:
    with party() as one:
        yield one


@pytest.fixture(scope="module")
def shop(edge_factory: EdgeFactory, other: Party) -> Iterator[LocalEdge]:
    """Moorage with the guarded bodies, a bank that drops repeated keys and a printer that does not."""
    edge = edge_factory(bodies=BODIES, vars=VARS)
    with desk(edge) as runs:
        promises: dict[str, dict[str, Any]] = {"bank": {"dedup_window_seconds": WINDOW}, "press": {"publication": True}}
        for name in ("bank", "press", "printer"):
            sent = {"url": other.url, "methods": ["POST"], **promises.get(name, {})}
            good(runs.api.put(f"/destinations/{name}", json=sent))
        good(runs.api.put("/bodies/pay", json={"build": BUILD, "effects": [ENTRY["label"]]}))
    yield edge
    edge.stop()


@pytest.fixture
def runs(shop: LocalEdge) -> Iterator[Desk]:
    with desk(shop) as one:
        yield one


def guard_of(runs: Desk, **wanted: str) -> dict[str, Any]:
    """The one open guard of a scope or an execution."""
    [found] = good(runs.api.get("/guards", params=wanted))["items"]
    return dict(found)


def guards(runs: Desk, **wanted: str) -> list[dict[str, Any]]:
    return list(good(runs.api.get("/guards", params=wanted))["items"])


def until(asked: Any, what: str, seconds: float = 30) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not asked():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def reconcile(runs: Desk, token: str, evidence: str, operator: str = "op-2") -> Any:
    return runs.api.post(f"/guards/{token}/reconcile", json={"evidence": evidence, "operator": operator})


def ended(runs: Desk, other: Party, run: str) -> dict[str, Any]:
    """The run once it has ended, whose request is answered as soon as it hangs."""

    def has_ended() -> bool:
        other.let_go()
        return runs.show(run)["status"] in ENDED

    until(has_ended, f"{run} did not end")
    return runs.show(run)


# --- a killed isolate -----------------------------------------------------------------------------------------------------


@pytest.mark.clause("guards.crash-held", "guards.blocked", "guards.holder-gone", "guards.class")
@pytest.mark.parametrize(
    ("destination", "class_"), [("bank", "replay-safe"), ("printer", "unknown"), ("press", "receipt-required")]
)
def test_a_killed_isolate_leaves_its_guard_held_until_an_operator_releases_it(
    shop: LocalEdge, other: Party, destination: str, class_: str
) -> None:
    path, scope = f"/hang/{fresh(destination)}", fresh("scope")
    given = {"destination": destination, "path": path}
    with desk(shop) as runs:
        run = runs.start("guarded.pay", given, scope)
        until(lambda: other.asked[path], "no request came")
        guard = guard_of(runs, scope=scope)
        assert (guard["class"], guard["run_id"], guard["entry_key"]["label"]) == (class_, run, "pay")
        assert guard["idempotency_key"] == other.keys[path][0]
        held = problem(reconcile(runs, guard["token"], f"receipt:{guard['idempotency_key']}:r-1"), 409)
        assert held["code"] == "ExecutionGuardHeld"
    shop.kill_workerd()
    other.let_go()
    back(shop)
    with desk(shop) as runs:
        for _ in range(10):
            runs.advance(LAPSE)
            assert guard_of(runs, scope=scope)["token"] == guard["token"]
        assert runs.show(run)["status"] == "running"
        blocked = problem(runs.api.post("/runs", json={"body": "guarded.pay", "input": given, "scope": scope}), 409)
        assert (blocked["code"], blocked["retryable"]) == ("ExecutionGuardBlocked", True)
        assert (blocked["token"], blocked["evidence_class"]) == (guard["token"], class_)
        assert ("command" in blocked) == (class_ != "replay-safe")
        if class_ != "replay-safe":
            assert blocked["command"].startswith("moorage storage reconcile-guard --project")
        assert "may be in flight" in blocked["detail"]
        assert other.asked[path] == 1
        evidence = "idempotency:{}" if class_ == "replay-safe" else "receipt:{}:r-1"
        good(reconcile(runs, guard["token"], evidence.format(guard["idempotency_key"])))
        if class_ == "replay-safe":
            until(lambda: other.asked[path] == 2, "it was not sent again")
        shown = ended(runs, other, run)
        assert shown["status"] == "success"
        assert set(other.keys[path]) == {guard["idempotency_key"]}
        told = {"answer": {"times": 2}, "receipt": None} if class_ == "replay-safe" else {"answer": None, "receipt": "r-1"}
        assert shown["result"] == told
        assert other.asked[path] == (2 if class_ == "replay-safe" else 1)
        assert guards(runs, scope=scope) == []


@pytest.mark.clause("guards.release", "guards.crash-held")
def test_in_doubt_the_worker_lets_go_of_the_run_which_says_what_it_waits_for(runs: Desk, other: Party) -> None:
    path = f"/hang/{fresh('silent')}"
    run = runs.start("guarded.pay", {"destination": "printer", "path": path, "timeout": 0.5})
    shown = runs.until(run, {"suspended"})
    guard = guard_of(runs, execution=shown["execution_id"])
    assert shown["awaiting"] == [{"label": "pay", "kind": "guard", "guard": guard["token"]}]
    runs.advance(10 * LAPSE)
    assert runs.show(run)["status"] == "suspended"
    good(reconcile(runs, guard["token"], f"receipt:{guard['idempotency_key']}:r-7"))
    assert runs.until(run)["result"] == {"answer": None, "receipt": "r-7"}
    assert other.asked[path] == 1
    other.let_go()


@pytest.mark.clause("guards.callback-limits")
def test_a_callback_in_the_worker_sets_metadata_and_nothing_else(runs: Desk) -> None:
    shown = runs.done("guarded.limits", "nothing")
    assert (shown["status"], shown["result"], shown["metadata"]) == ("success", "sent", {"seen": True})
    for what in ("step", "entity"):
        run = runs.start("guarded.limits", what)
        shown = runs.until(run, {"suspended"})
        guard = guard_of(runs, execution=shown["execution_id"])
        assert "inside the callback" in str(runs.steps(run)["send"]["error"])
        good(reconcile(runs, guard["token"], f"receipt:{guard['idempotency_key']}:r-1"))
        assert runs.until(run)["status"] in ("success", "failed")


# --- a host elsewhere -----------------------------------------------------------------------------------------------------


class HostProcess:
    """A process that hosts the guarded bodies."""

    def __init__(self, edge: LocalEdge, runs: Desk, grace: float = 0.3) -> None:
        command = [sys.executable, "-m", "tests.edge.guard_host", edge.url, edge.root_token, str(grace)]
        environment = os.environ | {"PYTHONPATH": f"{paths.ROOT}:{paths.ROOT / 'worker'}"}
        self.process = subprocess.Popen(command, cwd=paths.ROOT, env=environment)
        until(lambda: self._offers(runs), "the host did not offer its bodies", 60)

    def _offers(self, runs: Desk) -> bool:
        assert self.process.poll() is None, "the host ended"
        return f"{PREFIX}guarded.pay" in {one["name"] for one in good(runs.api.get("/bodies"))["items"]}

    def end(self, number: signal.Signals) -> None:
        """Signal it, and wait for its end."""
        self.process.send_signal(number)
        self.process.wait(30)


@pytest.fixture
def hosts(shop: LocalEdge, runs: Desk) -> Iterator[Any]:
    """Starts hosts, and ends them with the test."""
    started: list[HostProcess] = []

    def start() -> HostProcess:
        started.append(HostProcess(shop, runs))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.end(signal.SIGKILL)


def begun(runs: Desk, other: Party, destination: str) -> tuple[str, str, str, dict[str, Any]]:
    """A run of a host elsewhere whose request hangs: its id, its scope, the path, and the guard."""
    path, scope = f"/hang/{fresh(destination)}", fresh("scope")
    run = runs.start(f"{PREFIX}guarded.pay", {"destination": destination, "path": path}, scope)
    until(lambda: other.asked[path], "no request came")
    return run, scope, path, guard_of(runs, scope=scope)


def holder_of(runs: Desk, guard: dict[str, Any]) -> dict[str, Any]:
    items = good(runs.api.get("/holders", params={"limit": 500}))["items"]
    [found] = [one for one in items if one["id"] == guard["holder"]]
    return dict(found)


@pytest.mark.clause("guards.holder-gone", "guards.crash-held", "guards.blocked")
@pytest.mark.parametrize("destination", ["bank", "printer"])
def test_a_host_that_is_killed_during_the_request_leaves_its_guard(
    runs: Desk, other: Party, hosts: Any, destination: str
) -> None:
    first = hosts()
    run, scope, path, guard = begun(runs, other, destination)
    first.end(signal.SIGKILL)
    other.let_go()
    hosts()
    runs.advance(LAPSE)
    runs.advance(10 * LAPSE)
    assert holder_of(runs, guard)["exited_at"] is None
    assert guard_of(runs, scope=scope)["token"] == guard["token"]
    given = {"destination": destination, "path": path}
    opening = {"body": f"{PREFIX}guarded.pay", "input": given, "scope": scope}
    assert problem(runs.api.post("/runs", json=opening), 409)["code"] == "ExecutionGuardBlocked"
    assert other.asked[path] == 1
    good(reconcile(runs, guard["token"], f"receipt:{guard['idempotency_key']}:r-9"))
    shown = runs.show(run)
    if shown["status"] == "partial_failure":
        run = good(runs.api.post("/runs", json=opening))["run_id"]
    assert runs.until(run)["result"] == {"answer": None, "receipt": "r-9"}
    assert other.asked[path] == 1


@pytest.mark.clause("guards.replay", "guards.holder-gone", "guards.holder-identity", "guards.window")
def test_what_a_host_left_in_flight_as_it_stopped_in_order_is_sent_again_under_its_key(
    runs: Desk, other: Party, hosts: Any
) -> None:
    first = hosts()
    run, scope, path, guard = begun(runs, other, "bank")
    kept_run, kept_scope, kept_path, kept = begun(runs, other, "printer")
    first.end(signal.SIGTERM)
    assert first.process.returncode == 0
    assert holder_of(runs, guard)["exited_at"] is not None
    hosts()
    # Both are let go of; what nobody drops a repeated key of stays where it is.
    runs.advance(LAPSE)
    until(lambda: other.asked[path] == 2, f"it was not sent again: {runs.show(run)}")
    assert ended(runs, other, run)["result"] == {"answer": {"times": 2}, "receipt": None}
    assert other.keys[path] == [guard["idempotency_key"]] * 2
    assert guards(runs, scope=scope) == []
    runs.advance(LAPSE)
    assert guard_of(runs, scope=kept_scope)["token"] == kept["token"]
    assert other.asked[kept_path] == 1
    types = [entry["type"] for entry in history(runs, guard["token"])]
    assert types == ["guard.admitted", "guard.replayed"]
    good(reconcile(runs, kept["token"], f"receipt:{kept['idempotency_key']}:r-3"))
    assert runs.until(kept_run)["result"] == {"answer": None, "receipt": "r-3"}


def history(runs: Desk, subject: str) -> list[dict[str, Any]]:
    return list(good(runs.api.get("/history", params={"subject": subject}))["items"])


# --- C25, as a holder that speaks HTTP ------------------------------------------------------------------------------------


class Silent:
    """A holder that opens a guard for an effect, and falls silent."""

    def __init__(self, runs: Desk, scope: str, destination: str | None = "printer") -> None:
        self.runs = runs
        self.scope = scope
        self.holder = new_holder(Instant(int(time.time() * 1000)))
        good(runs.api.post("/holders", json={"id": self.holder, "name": "H"}))
        self.execution = good(self.open())
        # The first list of an execution also asks whose that is.
        good(self.apply({"op": "set_metadata", "metadata": {}}))
        told = {} if destination is None else {"destination": destination}
        claims = {"op": "claim", **ENTRY, "kind": "step", "position": "0"}
        self.admission = self.apply(claims, {"op": "admit_guard", **ENTRY, "holder": self.holder, **told})
        self.admitted = good(self.admission)["outcomes"][1]
        self.key, self.token = self.admitted["idempotency_key"], self.admitted["token"]

    def open(self) -> Any:
        """Open an execution of the scope, or the one that is there."""
        sent = {"body": "pay", "input": None, "holder": "h", "scope": self.scope, "build": BUILD}
        return self.runs.api.post("/executions", json=sent)

    def apply(self, *operations: dict[str, Any]) -> Any:
        path = f"/executions/{self.execution['execution_id']}/journal"
        return self.runs.api.post(path, json={"epoch": self.execution["lease"]["epoch"], "operations": list(operations)})

    def returns(self) -> Any:
        """Release the guard and record the value."""
        release = {"op": "release_guard", "token": self.token, "holder": self.holder}
        return self.apply(release, {"op": "record", **ENTRY, "value": {"charge": "ch_1"}})


def trips(answer: Any) -> int:
    found = re.search(r"trips=(\d+)", answer.headers["server-timing"])
    assert found is not None
    return int(found[1])


@pytest.mark.clause("guards.acquire", "guards.release")
def test_a_guarded_effect_takes_two_round_trips(runs: Desk) -> None:
    holder = Silent(runs, fresh("scope"))
    done = holder.returns()
    good(done)
    assert (trips(holder.admission), trips(done)) == (1, 1)
    assert guards(runs, scope=holder.scope) == []


@pytest.mark.clause("guards.callback-limits", "guards.blocked")
def test_while_a_callback_is_under_way_its_execution_changes_nothing_but_metadata(runs: Desk) -> None:
    holder = Silent(runs, fresh("scope"))
    good(holder.apply({"op": "set_metadata", "metadata": {"seen": True}}))
    closing = {"op": "close", "status": "success", "result": 1}
    blocked = problem(holder.apply(closing), 409)
    assert (blocked["code"], blocked["token"]) == ("ExecutionGuardBlocked", holder.token)
    again = holder.apply({"op": "claim", "label": "x", "kind": "step", "position": "1"}, {**_admit(holder), "label": "x"})
    assert problem(again, 409)["code"] == "GuardedElsewhere"
    good(holder.returns())
    good(holder.apply(closing))


def _admit(holder: Silent) -> dict[str, Any]:
    return {"op": "admit_guard", "holder": holder.holder, "destination": "printer"}


@pytest.mark.clause(
    "guards.blocked", "guards.manual", "guards.evidence", "guards.audit", "guards.release", "guards.live-holder"
)
def test_an_effect_that_may_already_be_in_flight(runs: Desk) -> None:
    holder = Silent(runs, fresh("scope"))
    assert problem(holder.open(), 409)["code"] == "ExecutionBusy"
    runs.advance(LAPSE)
    # a) Another worker asks to run the same effect. b) Nothing happens for ten lease lengths.
    for _ in range(10):
        blocked = problem(holder.open(), 409)
        assert (blocked["code"], blocked["token"], blocked["retryable"]) == ("ExecutionGuardBlocked", holder.token, True)
        assert "may be in flight" in blocked["detail"]
        runs.advance(LAPSE)
    # c) No evidence, and empty evidence; d) what says nothing of this effect.
    path = f"/guards/{holder.token}/reconcile"
    for sent in ({"operator": "op-2"}, {"evidence": "", "operator": "op-2"}, {"seen": "charge ch_1", "by": "op-2"}):
        problem(runs.api.post(path, json=sent), 422)
    for evidence in (f"idempotency:{holder.key}", "receipt:another:ch_1", "charge ch_1", f"receipt:{holder.key}:"):
        assert problem(reconcile(runs, holder.token, evidence), 422)["code"] == "ExecutionGuardEvidenceMismatch"
    assert guard_of(runs, scope=holder.scope)["token"] == holder.token
    # e) The holder wakes up, and releases under its old epoch.
    assert problem(holder.returns(), 409)["code"] in ("LeaseExpired", "LeaseFenced")
    # h) Rewinds, restarts and cleanups pass it by.
    run, execution = holder.execution["run_id"], holder.execution["execution_id"]
    for force in (False, True):
        rewind = runs.api.post(f"/executions/{execution}/rewind", json={"reason": "again", "force": force})
        assert problem(rewind, 409)["code"] == "ExecutionGuardBlocked"
    assert problem(runs.api.post(f"/runs/{run}/restart", json={"reason": "again"}), 409)["code"] == "ExecutionGuardBlocked"
    runs.advance(40 * 86_400)
    assert guard_of(runs, scope=holder.scope)["token"] == holder.token
    # d) Evidence. Who gave it, and what it was, is written down.
    evidence = f"receipt:{holder.key}:ch_1"
    audit = good(reconcile(runs, holder.token, evidence))["audit"]
    [row] = good(runs.api.get("/audit", params={"token": holder.token}))["items"]
    assert (row["id"], row["evidence"], row["operator"], row["actor"]) == (audit, evidence, "op-2", "root")
    told = history(runs, holder.token)[-1]
    assert (told["type"], told["data"]["evidence"], told["data"]["operator"]) == ("guard.reconciled", evidence, "op-2")
    # f) Again; e) and the holder once more.
    assert problem(reconcile(runs, holder.token, evidence), 409)["code"] == "GuardReleased"
    problem(holder.returns(), 409)
    [entry] = good(holder.open())["entries"]
    assert (entry["state"], entry["value"]) == ("done", {"receipt": "ch_1", "reconciled": True})


@pytest.mark.clause("guards.manual", "guards.audit")
def test_of_operators_with_different_findings_exactly_one_releases(runs: Desk) -> None:
    holders = [Silent(runs, fresh("scope")) for _ in range(10)]
    runs.advance(LAPSE)
    with ThreadPoolExecutor(4) as pool:
        for holder in holders:
            sent = [(f"receipt:{holder.key}:ch_{n}", f"op-{n}") for n in range(4)]
            answers = list(pool.map(lambda one, token=holder.token: reconcile(runs, token, *one), sent))
            assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]
            [winner] = [n for n, answer in enumerate(answers) if answer.is_success]
            [row] = good(runs.api.get("/audit", params={"token": holder.token}))["items"]
            assert (row["evidence"], row["operator"]) == sent[winner]
            [entry] = good(holder.open())["entries"]
            assert entry["value"] == {"receipt": f"ch_{winner}", "reconciled": True}

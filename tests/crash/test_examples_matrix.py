"""Each worked body is killed at every write to its journal and around every request, and ends as if it had not been.

Several run side by side, three of each: a gate holds each of them at a point of its own, and one SIGKILL of workerd finds
them all there. Then workerd starts on the same state, the driven clock passes the lease, and the Clock hands them on.
"""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import pytest

from moorage.journal.model import EntryKey, idempotency_key
from moorage.kernel.limits import OWNER_LEASE_SECONDS
from ops.bench.workflows import with_prelude
from ops.bundle import build_bundle, with_bodies
from ops.local.edge import LocalEdge
from ops.setup import paths
from tests.crash.gate import Gate
from tests.crash.ledger import faults, opened
from tests.crash.remote_host import PREFIX
from tests.edge.client import client, good
from tests.edge.edges import EdgeFactory
from tests.examples.upstream import REGIONS, Answer, Upstream

pytestmark = [pytest.mark.edge, pytest.mark.crash, pytest.mark.timeout(600)]

EXAMPLES: Final = ("order", "import", "report")
KINDS: Final = {"order": "order.closed", "import": "feed.item", "report": "report.summary"}
ENDS: Final = frozenset({"success", "failed", "partial_failure", "canceled"})
PATIENCE_SECONDS: Final = 60.0
STALLED_SECONDS: Final = 4.0
"""More than the import waits for its server."""

SIDE_BY_SIDE: Final = 3
"""Runs of each example, each held one point further than the one before."""

_LATER: Final = Answer(429, {}, {"Retry-After": "2"}, effect=False)
"""More than a running body sits out, so that the import is suspended and woken on its way."""


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


@pytest.fixture(scope="module")
def gate() -> Iterator[Gate]:
    with Gate() as made:
        yield made


@pytest.fixture(scope="module")
def edge(edge_factory: EdgeFactory, gate: Gate, upstream: Upstream) -> Iterator[LocalEdge]:
    """Moorage with the examples, whose database stops at the gate."""
    folder = paths.ROOT / "build" / "test-bundles"
    folder.mkdir(parents=True, exist_ok=True)
    project = with_bodies(paths.ROOT, paths.ROOT / "examples", folder / "crash-project")
    project = with_prelude(project, Path(__file__).parent / "worker" / "gating.py")
    bundle = build_bundle(project, folder / "bundle-crash").path
    variables = {"MOORAGE_TEST_CLOCK": "1", "MOORAGE_ALLOW_LOCAL_DESTINATIONS": "1", "MOORAGE_GATE": gate.url}
    made = edge_factory(project / "wrangler.toml", bundle=bundle, vars=variables)
    with client(made) as api:
        for kind in KINDS.values():
            good(api.put(f"/kinds/{kind}", json={}))
    yield made
    made.stop()


@dataclass(frozen=True)
class Going:
    """A run of an example: `tag` is what its requests carry."""

    example: str
    tag: str
    run_id: str
    execution_id: str


class Play:
    """One round of the examples, each from its start to its end; `prefix` stands before the names of the bodies. The gate
    holds one of each example at each of these points; 0 is none."""

    def __init__(self, upstream: Upstream, gate: Gate, points: Sequence[int], prefix: str = "") -> None:
        self.upstream = upstream
        self.gate = gate
        self.prefix = prefix
        self.points = {f"{prefix}{example}-{point}": (example, point) for example in EXAMPLES for point in points}
        self.going: dict[str, Going] = {}
        self._answered: set[str] = set()

    def start(self, api: httpx.Client) -> None:
        """Arm the gate, start them, and tell it which is which."""
        self.gate.arm({tag: point for tag, (_, point) in self.points.items()})
        for tag, (example, _) in self.points.items():
            self.upstream.next_answers[tag, "/feed"].append(_LATER)
            self.open(api, example, tag)

    def open(self, api: httpx.Client, example: str, tag: str) -> None:
        """Open a run under the scope that is its tag, the first or a later one."""
        sent = {"body": f"{self.prefix}{example}", "input": self._input(example, tag), "scope": tag}
        told = good(api.post("/runs", json=sent))
        self.gate.name(told["execution_id"], tag)
        self.going[tag] = Going(example, tag, told["run_id"], told["execution_id"])

    def _input(self, example: str, tag: str) -> dict[str, Any]:
        base = self.upstream.base(tag)
        if example == "order":
            return {"id": tag, "shop": base, "sku": "lamp", "quantity": 1, "amount_cents": 50_000}
        if example == "import":
            return {"feed": base}
        return {"night": "2026-11-29", "books": base, "regions": [*REGIONS, "atlantis"]}

    def look(self, api: httpx.Client) -> dict[str, dict[str, Any]]:
        """How each stands; whoever was asked for an approval gives it once the order waits for it."""
        held = self.gate.held()
        found = {tag: good(api.get(f"/runs/{one.run_id}")) for tag, one in self.going.items() if tag not in held}
        for tag, run in found.items():
            asked = [seen for seen in self.upstream.of(tag) if seen.path == "/approvals"]
            if run["status"] == "suspended" and asked and tag not in self._answered:
                path = urlsplit(asked[0].body["url"]).path
                good(api.post(path, json={"approved": True, "by": "the test"}))
                self._answered.add(tag)
        return found

    def until_held(self, api: httpx.Client) -> dict[str, str]:
        """Until each of them is held by the gate or has ended: who is held, and at what. How many points a run has is not
        the same each time: branches may share a write, or not."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = self.look(api)
            if all(run["status"] in ENDS for run in found.values()):
                return dict(self.gate.held())
            assert time.monotonic() < deadline, (self.gate.held(), found)
            self.gate.wait(found, 0.1)

    def until_ended(self, api: httpx.Client) -> dict[str, dict[str, Any]]:
        """Until each has ended: how. A run that its host left behind is opened again under its scope; where nothing moves,
        a host that is gone has taken something with its last request, and its lease is let lapse."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        passed, moved = 0, time.monotonic()
        while True:
            found = self.look(api)
            for tag, run in found.items():
                if run["status"] == "partial_failure":
                    self.open(api, self.going[tag].example, tag)
            if all(run["status"] in ENDS - {"partial_failure"} for run in found.values()):
                return found
            now = sum(len(self.gate.passed(tag)) for tag in self.going)
            if now != passed:
                passed, moved = now, time.monotonic()
            elif self.prefix and time.monotonic() - moved > STALLED_SECONDS:
                lapse(api)
                moved = time.monotonic()
            assert time.monotonic() < deadline, found
            time.sleep(0.1)

    def outcomes(self, ended: Mapping[str, Mapping[str, Any]]) -> dict[str, "Outcome"]:
        """What came of each: its result, who was asked for what. Every request came under one key, or under no other."""
        found = {}
        for tag, run in ended.items():
            assert run["status"] == "success", (run, self.gate.passed(tag))
            told = json.loads(json.dumps(run["result"]).replace(tag, "TAG"))
            keys = self.upstream.keys(tag)
            assert all(len(counts) == 1 and "" not in counts for counts in keys.values()), keys
            found[tag] = Outcome(told, frozenset(keys))
        return found


@dataclass(frozen=True)
class Outcome:
    """What is the same for every run of an example, however often it was killed."""

    result: Any
    requests: frozenset[str]


def recorded(edge: LocalEdge, going: Mapping[str, Going]) -> set[str]:
    """The idempotency keys of the entries that are done, read from the database's own file."""
    executions = {one.execution_id for one in going.values()}
    with opened(edge.d1_path()) as database:
        database.execute("PRAGMA query_only = 1")
        rows = database.execute("SELECT execution_id, label, input_sha256 FROM journal WHERE state = 'done'").fetchall()
    return {idempotency_key(one, EntryKey(label, given)) for one, label, given in rows if one in executions}


def published(edge: LocalEdge) -> Counter[str]:
    """How many records there are of each kind."""
    with opened(edge.d1_path()) as database:
        database.execute("PRAGMA query_only = 1")
        return Counter(dict(database.execute("SELECT kind, count(*) FROM records GROUP BY kind").fetchall()))


def lapse(api: httpx.Client) -> None:
    """Let every lease run out."""
    good(api.post("/testing/clock", json={"advance_seconds": int(OWNER_LEASE_SECONDS) + 1}))


def kill(edge: LocalEdge, api: httpx.Client) -> None:
    """SIGKILL workerd, and return once another one answers."""
    edge.kill_workerd()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            if api.get("/health").is_success:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < deadline, "the edge did not come back"
        time.sleep(0.05)


def play_all(
    edge: LocalEdge, api: httpx.Client, upstream: Upstream, gate: Gate, prefix: str, kill: Callable[[], None]
) -> int:
    """Play the examples undisturbed, and then killed by `kill` at each point: one past how many points there were tried."""
    upstream.arrived, upstream.done = gate.arrived, gate.done
    before = published(edge)
    play = Play(upstream, gate, [0], prefix)
    play.start(api)
    outcomes = play.outcomes(play.until_ended(api))
    expected = {play.going[tag].example: outcome for tag, outcome in outcomes.items()}
    records = published(edge) - before
    assert min(len(gate.passed(tag)) for tag in play.going) > 10

    number, held = 1, {"": "the first round"}
    while held:
        before = published(edge)
        play = Play(upstream, gate, range(number, number + SIDE_BY_SIDE), prefix)
        play.start(api)
        held = play.until_held(api)
        kill()
        done = recorded(edge, play.going)
        sent = Counter(one.key for one in upstream.seen)
        gate.open()
        lapse(api)
        for tag, outcome in play.outcomes(play.until_ended(api)).items():
            assert outcome == expected[play.going[tag].example], (tag, held)
        again = {key: count for key in done if (count := sum(one.key == key for one in upstream.seen)) > sent[key]}
        assert again == {}, (again, held)
        assert published(edge) - before == Counter({kind: SIDE_BY_SIDE * many for kind, many in records.items()}), held
        number += SIDE_BY_SIDE
    return number


class HostProcess:
    """A process that hosts the examples outside the Worker."""

    def __init__(self, edge: LocalEdge) -> None:
        self._edge = edge
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, api: httpx.Client) -> None:
        """Start it, and return once its bodies can be started."""
        command = [sys.executable, "-m", "tests.crash.remote_host", self._edge.url, self._edge.root_token]
        environment = os.environ | {"PYTHONPATH": f"{paths.ROOT}:{paths.ROOT / 'worker'}"}
        self._process = subprocess.Popen(command, cwd=paths.ROOT, env=environment)
        deadline = time.monotonic() + PATIENCE_SECONDS
        wanted = {f"{PREFIX}{name}" for name in EXAMPLES}
        while not wanted <= {one["name"] for one in good(api.get("/bodies"))["items"]}:
            assert time.monotonic() < deadline, "the host did not offer its bodies"
            assert self._process.poll() is None, "the host ended"
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def replace(self, api: httpx.Client) -> None:
        """SIGKILL it, and start another one."""
        self.kill()
        self.start(api)


@pytest.mark.clause(
    "runs.step-output", "runs.idempotency-key", "runs.claim-takeover", "runs.bodies", "runs.effect-boundary", "runs.wake"
)
def test_every_example_ends_the_same_wherever_workerd_is_killed(edge: LocalEdge, upstream: Upstream, gate: Gate) -> None:
    with client(edge) as api:
        assert play_all(edge, api, upstream, gate, "", lambda: kill(edge, api)) > 20


@pytest.mark.clause(
    "runs.substrate", "runs.step-output", "runs.idempotency-key", "runs.orphan-reap", "runs.unclosed-execution"
)
def test_every_example_ends_the_same_wherever_its_host_is_killed(edge: LocalEdge, upstream: Upstream, gate: Gate) -> None:
    with client(edge) as api, ExitStack() as stack:
        gate.holds_takes = False
        host = HostProcess(edge)
        stack.callback(host.kill)
        host.start(api)
        assert play_all(edge, api, upstream, gate, PREFIX, lambda: host.replace(api)) > 20


@pytest.mark.clause("history.append", "store.atomic")
def test_nothing_is_wrong_with_the_database_afterwards(edge: LocalEdge) -> None:
    edge.kill()
    assert faults(edge.d1_path()) == {}

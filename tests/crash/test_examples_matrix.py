"""Each worked body is killed at every write to its journal and around every request, and ends as if it had not been.

The three run side by side: a gate holds each of them at its point of the same number, and one SIGKILL of workerd finds all
three there. Then workerd starts on the same state, the driven clock passes the lease, and the Clock hands them to a Runner.
"""

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import pytest

from moorage.journal.model import EntryKey, idempotency_key
from moorage.kernel.limits import OWNER_LEASE_SECONDS
from ops.bundle import build_bundle, with_bodies
from ops.local.edge import LocalEdge
from ops.setup import paths
from tests.crash.gate import Gate
from tests.crash.ledger import faults, opened
from tests.edge.client import client, good
from tests.edge.edges import EdgeFactory
from tests.examples.upstream import REGIONS, Answer, Upstream

pytestmark = [pytest.mark.edge, pytest.mark.crash, pytest.mark.timeout(600)]

EXAMPLES: Final = ("order", "import", "report")
KINDS: Final = {"order": "order.closed", "import": "feed.item", "report": "report.summary"}
ENDS: Final = frozenset({"success", "failed", "partial_failure", "canceled"})
PATIENCE_SECONDS: Final = 40.0
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
    shutil.copy2(Path(__file__).parent / "worker" / "entry.py", project / "worker" / "entry.py")
    shutil.copy2(paths.ROOT / "package-lock.json", project / "package-lock.json")
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
    """One round of the examples named, each from its start to its end."""

    def __init__(self, edge: LocalEdge, upstream: Upstream, gate: Gate, number: int) -> None:
        self.edge = edge
        self.upstream = upstream
        self.gate = gate
        self.number = number
        self.going: dict[str, Going] = {}
        self._answered: set[str] = set()

    def start(self, api: httpx.Client, examples: list[str]) -> None:
        """Start them, in the order of their names, and tell the gate which is which."""
        for example in examples:
            tag = f"{example}-{self.number}"
            self.upstream.next_answers[tag, "/feed"].append(_LATER)
            sent = {"body": example, "input": self._input(example, tag), "scope": tag}
            told = good(api.post("/runs", json=sent, headers={"idempotency-key": tag}))
            self.gate.name(told["execution_id"], tag)
            self.going[example] = Going(example, tag, told["run_id"], told["execution_id"])

    def _input(self, example: str, tag: str) -> dict[str, Any]:
        base = self.upstream.base(tag)
        if example == "order":
            return {"id": tag, "shop": base, "sku": "lamp", "quantity": 1, "amount_cents": 50_000}
        if example == "import":
            return {"feed": base}
        return {"night": "2026-11-29", "books": base, "regions": [*REGIONS, "atlantis"]}

    def look(self, api: httpx.Client) -> dict[str, dict[str, Any]]:
        """How each stands; whoever was asked for an approval gives it once the order waits for it."""
        found = {name: good(api.get(f"/runs/{one.run_id}")) for name, one in self.going.items()}
        for name, one in self.going.items():
            asked = [seen for seen in self.upstream.of(one.tag) if seen.path == "/approvals"]
            if found[name]["status"] == "suspended" and asked and one.tag not in self._answered:
                path = urlsplit(asked[0].body["url"]).path
                good(api.post(path, json={"approved": True, "by": "the test"}))
                self._answered.add(one.tag)
        return found

    def until_held(self, api: httpx.Client) -> None:
        """Until the gate holds each of them."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        tags = [one.tag for one in self.going.values()]
        while not self.gate.wait(tags, 0.05):
            found = self.look(api)
            for name, one in self.going.items():
                state = found[name]
                assert state["status"] not in ENDS, (name, state, self.gate.passed(one.tag))
            assert time.monotonic() < deadline, (found, self.gate.held())

    def until_ended(self, api: httpx.Client) -> dict[str, dict[str, Any]]:
        """Until each has ended: how."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = self.look(api)
            if all(one["status"] in ENDS for one in found.values()):
                return found
            assert time.monotonic() < deadline, found
            time.sleep(0.05)

    def outcome(self, name: str, run: Mapping[str, Any]) -> "Outcome":
        """What came of an example: its result, who was asked for what, and what was published."""
        tag = self.going[name].tag
        assert run["status"] == "success", (run, self.gate.passed(tag))
        told = json.loads(json.dumps(run["result"]).replace(tag, "TAG"))
        keys = self.upstream.keys(tag)
        assert all(len(found) == 1 and "" not in found for found in keys.values()), keys
        return Outcome(told, frozenset(keys))


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


@pytest.mark.clause(
    "runs.step-output", "runs.idempotency-key", "runs.claim-takeover", "runs.bodies", "runs.effect-boundary", "runs.wake"
)
def test_every_example_ends_the_same_wherever_it_is_killed(edge: LocalEdge, upstream: Upstream, gate: Gate) -> None:
    with client(edge) as api:
        gate.arm(0)
        play = Play(edge, upstream, gate, 0)
        play.start(api, list(EXAMPLES))
        ended = play.until_ended(api)
        expected = {name: play.outcome(name, ended[name]) for name in EXAMPLES}
        points = {name: len(gate.passed(play.going[name].tag)) for name in EXAMPLES}
        records = published(edge)
        assert min(points.values()) > 10, points

        for number in range(1, max(points.values()) + 1):
            names = [name for name in EXAMPLES if points[name] >= number]
            before = published(edge)
            gate.arm(number)
            play = Play(edge, upstream, gate, number)
            play.start(api, names)
            play.until_held(api)
            held = dict(gate.held())
            kill(edge, api)
            done = recorded(edge, play.going)
            sent = Counter(one.key for one in upstream.seen)
            gate.open()
            good(api.post("/testing/clock", json={"advance_seconds": int(OWNER_LEASE_SECONDS) + 1}))
            ended = play.until_ended(api)
            for name in names:
                assert play.outcome(name, ended[name]) == expected[name], (name, held)
            again = {key: count for key in done if (count := sum(one.key == key for one in upstream.seen)) > sent[key]}
            assert again == {}, (again, held)
            wanted = Counter({KINDS[name]: records[KINDS[name]] for name in names})
            assert published(edge) - before == wanted, held
    edge.kill()
    assert faults(edge.d1_path()) == {}

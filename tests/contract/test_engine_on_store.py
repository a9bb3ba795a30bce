"""The conformance suite on the substrate beside the database, on every adapter."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

import pytest

from moorage.awakeables import resolve
from moorage.awakeables.payloads import Payload
from moorage.bodies import Registry, Run, body, each
from moorage.bodies.host import Host
from moorage.catalog import destinations
from moorage.catalog.access import Caller
from moorage.catalog.kinds import Kinds
from moorage.catalog.model import DestinationDeclaration
from moorage.guards import listing, reconcile
from moorage.guards.model import Guard
from moorage.journal.model import Value
from moorage.kernel import canonical
from moorage.kernel.pages import PageRequest
from moorage.messages.inbox import accept, routing
from moorage.messages.inbox.model import EventDraft
from moorage.runs import admission, record, stop
from moorage.runs.model import Execution, Trace
from moorage.runs.substrate import LocalSubstrate
from moorage.runs.take import Tokens, take
from moorage.store.ports import Cost, Database
from moorage.store.transaction import Transaction
from tests.conformance.guarded import GuardedConformance
from tests.conformance.suite import Conformance
from tests.contract.adapters import Store
from tests.unit.bodies.clock import Clock

T = TypeVar("T")

ROOT = Caller("root")
URL = "https://moor.test"


class LocalShore:
    """A store, with the substrate on it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = Clock()
        self.costs: list[Cost] = []
        self.sent = 0
        self.keys: tuple[str, ...] = ("a key",)
        self.substrate = self._substrate()

    def _substrate(self) -> LocalSubstrate:
        return LocalSubstrate(self.db, self.store.blobs, self.clock.now, Kinds(), self.keys, URL)

    def have(self, *keys: str) -> None:
        """Let the deployment have other derivation keys from now on."""
        self.keys = keys
        self.substrate = self._substrate()

    def db(self) -> Database:
        """A database of its own for each call; `costs` has what each has cost."""
        made = self.store.db()
        self.costs.append(made.cost)
        return made

    async def open(self, registry: Registry, name: str, given: Any, scope: str | None = None) -> Execution:
        start = admission.Start(scope, Value.of(canonical.dumps(given)), "root", None, Trace("1" * 32, "2" * 16))
        info = registry.info(name)
        admitted = await admission.admit(
            self.store.db(), self.store.blobs, ROOT, self.clock.now(), info, start, handoff=False
        )
        taken = await self.take(registry, admitted.execution_id)
        assert taken is not None
        return taken

    async def take(self, registry: Registry, execution_id: str) -> Execution | None:
        now, builds = self.clock.now(), registry.builds()
        return await take(self.db(), self.store.blobs, now, execution_id, "host", builds, Tokens(self.keys, URL))

    async def show(self, run_id: str) -> Mapping[str, Any]:
        shown = await record.show(self.store.db(), self.store.blobs, ROOT, run_id)
        result = shown.result
        return {
            "status": shown.status,
            "result": None if result is None else canonical.loads((result.text or "null").encode()),
            "error": shown.error,
            "metadata": shown.metadata,
            "next_attempt_at": shown.next_attempt_at,
        }

    async def resolve(self, token: str, payload: Any) -> None:
        await resolve.resolve(self.db(), ROOT, self.clock.now(), token, Payload.of(payload), self.store.blobs)

    async def send(self, key: str, data: Any, route: bool) -> None:
        self.sent += 1
        draft = EventDraft("/shore", f"d{self.sent}", "paid", {}, canonical.dumps(data), (key,))
        tx = Transaction(self.clock.now())
        accepted = accept.plan(tx, draft, actor="subject:shore")
        await self.store.db().commit(tx)
        if route:
            await routing.route(self.store.db(), self.clock.now(), accepted.one()["seq"])

    async def stop(self, run_id: str) -> None:
        await stop.stop(self.store.db(), ROOT, self.clock.now(), run_id)

    async def declare(self, name: str, window: int | None) -> None:
        told = {"url": f"https://{name}.test/v1", "dedup_window_seconds": window}
        declared = DestinationDeclaration.model_validate(told)
        await destinations.put(self.store.db(), ROOT, self.clock.now(), name, declared)

    async def guards(self) -> Sequence[Guard]:
        page = await listing.list_guards(self.store.db(), ROOT, self.clock.now(), PageRequest(100), listing.Wanted())
        return page.items

    async def reconcile(self, token: str, evidence: str) -> None:
        await reconcile.reconcile(self.store.db(), ROOT, self.clock.now(), token, evidence, "night@example.com")


@pytest.fixture
def shore(store: Store, request: pytest.FixtureRequest) -> LocalShore:
    """The substrate on each adapter. On D1 a round trip is dear, so that only some of the kills are played."""
    if request.instance is not None and "d1" in request.node.callspec.id.split("-"):
        request.instance.stride = 5
    return LocalShore(store)


class TestLocal(Conformance, GuardedConformance):
    """The suites on it."""


# --- awakeables, and what they cost --------------------------------------------------------------------------------


@body("asks", effects=[each("ask")])
async def asks(run: Run, questions: int) -> list[Any]:
    handles = [await run.awakeable("ask", ttl=3600, input=number) for number in range(questions)]
    tokens.update({handle.id: handle.token for handle in handles})
    return [await handle for handle in handles]


tokens: dict[str, str] = {}


class Wharf:
    """A host on a shore; what each part of a run has cost in round trips."""

    def __init__(self, shore: LocalShore, registry: Registry) -> None:
        self.shore = shore
        self.registry = registry
        tokens.clear()

    async def drive(self, execution: Execution) -> str:
        host = Host(self.registry, self.shore.substrate, now=self.shore.clock.now, sleep=self.shore.clock.sleep)
        with self.shore.clock.working():
            return await host.run(execution)

    async def counted(self, work: Awaitable[T]) -> tuple[T, int]:
        before = len(self.shore.costs)
        found = await work
        return found, sum(cost.trips for cost in self.shore.costs[before:])

    async def take(self, execution_id: str) -> Execution:
        taken = await self.shore.take(self.registry, execution_id)
        assert taken is not None
        return taken


@pytest.mark.clause("awake.mint", "runs.wake")
@pytest.mark.parametrize("questions", [1, 3])
async def test_from_a_signal_to_the_end_a_run_takes_three_round_trips(shore: LocalShore, questions: int) -> None:
    wharf = Wharf(shore, Registry([asks]))
    execution = await shore.open(wharf.registry, "asks", questions)
    assert await wharf.drive(execution) == "suspended"
    first = dict(tokens)
    for token in list(first.values())[1:]:
        await shore.resolve(token, "early")
    _, trips = await wharf.counted(shore.resolve(next(iter(first.values())), "yes"))
    assert trips == 1
    taken, trips = await wharf.counted(wharf.take(execution.execution_id))
    assert trips == 1
    ended, trips = await wharf.counted(wharf.drive(taken))
    assert (ended, tokens) == ("success", first)
    # The first wait was recorded before the run was let go of; each later one is asked for when it is met.
    assert trips == 1 + questions - 1
    shown = await shore.show(execution.run_id)
    assert shown["result"] == ["yes", *["early"] * (questions - 1)]


@pytest.mark.clause("awake.mint", "runs.resumable-remains")
async def test_a_lost_token_ends_the_run_that_asks_for_it_and_no_other(shore: LocalShore) -> None:
    @body("catches", effects=["ask", "after"])
    async def catches(run: Run) -> Any:
        try:
            handle = await run.awakeable("ask", ttl=3600)
            return await handle
        except Exception:
            await run.step("after", lambda: 1)
            return "caught"

    wharf = Wharf(shore, Registry([catches]))
    execution = await shore.open(wharf.registry, "catches", None)
    assert await wharf.drive(execution) == "suspended"
    [key] = [entry.key for entry in (await wharf.take(execution.execution_id)).entries if entry.kind == "awakeable"]
    shore.clock.advance_to(shore.clock.now() + 31_000)
    shore.have("another key")
    taken = await wharf.take(execution.execution_id)
    assert taken.minted == {}
    assert await wharf.drive(taken) == "failed"
    shown = await shore.show(execution.run_id)
    assert (shown["status"], shown["error"]["code"]) == ("failed", "AwakeableTokenLost")
    assert "MOORAGE_DERIVATION_KEYS" in shown["error"]["message"]
    [row] = await shore.store.sql("SELECT execution_id, owner FROM executions")
    assert row == {"execution_id": execution.execution_id, "owner": None}
    shore.have("another key", "a key")
    again = await shore.open(wharf.registry, "catches", None, scope=execution.scope)
    assert again.execution_id == execution.execution_id
    await shore.resolve(again.minted[key].token, "yes")
    assert await wharf.drive(again) == "success"
    assert (await shore.show(again.run_id))["result"] == "yes"

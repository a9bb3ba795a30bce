"""The conformance suite on the substrate beside the database, on every adapter."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from moorage.awakeables import resolve
from moorage.awakeables.payloads import Payload
from moorage.bodies import Registry
from moorage.catalog import destinations
from moorage.catalog.access import Caller
from moorage.catalog.kinds import Kinds
from moorage.catalog.model import DestinationDeclaration
from moorage.guards import listing, reconcile
from moorage.guards.model import Guard
from moorage.journal.model import Value
from moorage.kernel import canonical
from moorage.kernel.pages import PageRequest
from moorage.runs import admission, record, stop
from moorage.runs.protocol import Execution, Trace
from moorage.runs.substrate import LocalSubstrate
from moorage.runs.take import take
from tests.conformance.guarded import GuardedConformance
from tests.conformance.suite import Conformance
from tests.contract.adapters import Store
from tests.unit.bodies.memory import Clock

ROOT = Caller("root")


class LocalShore:
    """A store, with the substrate on it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = Clock()
        self.substrate = LocalSubstrate(store.db, store.blobs, self.clock.now, Kinds(), ("a key",), "https://moor.test")

    async def open(self, registry: Registry, name: str, given: Any) -> Execution:
        start = admission.Start(None, Value.of(canonical.dumps(given)), "root", None, Trace("1" * 32, "2" * 16))
        info = registry.info(name)
        admitted = await admission.admit(
            self.store.db(), self.store.blobs, ROOT, self.clock.now(), info, start, handoff=False
        )
        taken = await self.take(registry, admitted.execution_id)
        assert taken is not None
        return taken

    async def take(self, registry: Registry, execution_id: str) -> Execution | None:
        return await take(self.store.db(), self.store.blobs, self.clock.now(), execution_id, "host", registry.builds())

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
        await resolve.resolve(self.store.db(), ROOT, self.clock.now(), token, Payload.of(payload), self.store.blobs)

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
    if "d1" in request.node.callspec.id.split("-"):
        request.instance.stride = 5
    return LocalShore(store)


class TestLocal(Conformance, GuardedConformance):
    """The suites on it."""

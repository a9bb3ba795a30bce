"""What every operation of these suites works in: a store with somebody who may do everything, and one declared kind."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from moorage.awakeables import mint
from moorage.awakeables import model as awakeables
from moorage.catalog import declare, destinations
from moorage.catalog.access import Caller
from moorage.catalog.kinds import Kinds
from moorage.catalog.model import DestinationDeclaration, KindDeclaration
from moorage.idempotency.keys import Key, key_for
from moorage.kernel.errors import (
    FailureTag,
)
from moorage.kernel.instants import Instant
from moorage.leases import lease
from moorage.records import claim, fail, publish
from moorage.records.model import ClaimRef, Draft, Failure
from moorage.store.ports import Database
from tests.contract.adapters import Store
from tests.contract.executions import an_execution

NOW = Instant(1_800_000_000_000)
KIND = "parcels"


@dataclass(slots=True)
class World:
    """A store with somebody who may do everything, and one declared kind."""

    store: Store
    caller: Caller = field(default_factory=lambda: Caller("root", bearer=b"the root token"))
    kinds: Kinds = field(default_factory=Kinds)

    async def declare(self, db: Database | None = None) -> Any:
        declaration = KindDeclaration.model_validate({"paths": {"weight": "number"}})
        return await declare.declare(db or self.store.db(), self.caller, NOW, self.kinds, KIND, declaration)

    async def publish(self, db: Database | None = None, key: Key | None = None, record: str | None = None) -> Any:
        drafts = [Draft(KIND, {"weight": 3, "to": "somebody"}, id=record)]
        return await publish.publish(db or self.store.db(), self.kinds, self.caller, NOW, drafts, key)

    async def claim(self, db: Database | None = None, key: Key | None = None) -> Any:
        return await claim.claim(
            db or self.store.db(), self.kinds, self.caller, NOW, KIND, {"weight": {"$gte": 1}}, "worker", key=key
        )

    async def claimed(self) -> ClaimRef:
        """A published record under a lease."""
        await self.declare()
        await self.publish()
        [taken] = await self.claim()
        return ClaimRef(taken.record.id, taken.lease.epoch)

    async def dead(self) -> str:
        """A dead letter."""
        ref = await self.claimed()
        failure = Failure(FailureTag.PERMANENT, "no")
        await fail.fail(self.store.db(), self.kinds, self.caller, NOW, ref, failure, dead_letter=True)
        return ref.record

    async def minted(self) -> str:
        """The token of a pending awakeable."""
        made = await mint.mint(self.store.db(), self.caller, NOW, awakeables.Draft(60))
        return made.token

    async def minted_in_a_run(self) -> str:
        """The token of a pending awakeable that an execution waits for."""
        await an_execution(self.store, "exe_1")
        token = await self.minted()
        await self.store.sql("UPDATE awakeables SET execution_id = 'exe_1'")
        return token

    def key(self, content: Any) -> Key:
        """An idempotency key, the same for the same content."""
        key = key_for(self.caller.subject, "one-key", "POST /route", content)
        assert key is not None
        return key

    async def held(self) -> lease.Hold:
        """A lease held by somebody."""
        taken = await lease.acquire(self.store.db(), NOW, "key", "somebody", 60)
        return lease.Hold("key", "somebody", taken.epoch)


Arrange = Callable[[World], Awaitable[Any]]

Act = Callable[[World, Database, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Operation:
    """`act` on what `arrange` made.

    `again` is what asking again gets once the first was applied: an error's class, or None for the same answer with
    nothing done twice. `renews` says that asking again is a new piece of work.
    """

    name: str
    arrange: Arrange
    act: Act
    again: type[Exception] | None = None
    renews: bool = False


async def nothing(_world: World) -> None:
    """No preparation."""


async def declared(world: World) -> None:
    """The kind."""
    await world.declare()


async def published(world: World) -> None:
    """The kind with one ready record."""
    await world.declare()
    await world.publish()


DESTINATION = DestinationDeclaration.model_validate({"url": "https://example.com/hook", "methods": ["POST"]})
RESULT = Draft(KIND, {"weight": 1})


async def put_destination(world: World, db: Database, _: Any) -> Any:
    return await destinations.put(db, world.caller, NOW, "place", DESTINATION)

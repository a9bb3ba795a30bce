"""The Worker's side of runs on the host: bodies of this process, executed beside the application, on one SQLite."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from moorage.api.ports import Ports
from moorage.api.ringing import RingingDatabase
from moorage.api.runners import HostRunners
from moorage.bodies import Body, Registry
from moorage.bodies.host import Host
from moorage.runs import take
from moorage.runs.model import BodyInfo, Execution
from moorage.runs.substrate import LocalSubstrate
from tests.unit.api.conftest import ROOT, House

OWNER = "runner:here"
TOKENS = take.Tokens((ROOT,), "http://moorage.test")


class OwnBodies:
    """A registry as requests see it."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def get(self, name: str) -> BodyInfo | None:
        return self._registry.info(name) if name in self._registry else None

    def infos(self) -> Sequence[BodyInfo]:
        return self._registry.infos()

    def check_input(self, name: str, value: Any) -> None:
        self._registry.check_input(name, value)


@dataclass
class Executing:
    """A Runner in this event loop, for every execution of the Worker."""

    house: House
    bodies: Sequence[Body]
    registry: Registry = field(init=False)
    host: Host = field(init=False)
    _ports: Ports | None = None

    def __post_init__(self) -> None:
        self.registry = Registry(self.bodies)
        house = self.house
        house.bodies = OwnBodies(self.registry)
        house.runners = HostRunners(self, house.bells.ring)
        substrate = LocalSubstrate(
            self.database,
            house.blobs,  # type: ignore[arg-type]
            lambda: house.now,
            self.ports().kinds,
            (ROOT,),
            "http://moorage.test",
            OwnBodies(self.registry).get,
        )
        self.host = Host(self.registry, substrate, take=self._take, now=lambda: house.now)

    def database(self) -> RingingDatabase:
        return RingingDatabase(self.house.database(), self.house.bells.ring, self.house.runners.poke, self.ports().ended)

    def ports(self) -> Ports:
        if self._ports is None:
            self._ports = self.house.ports(bodies=OwnBodies(self.registry))
        return self._ports

    async def begin(self, execution: Execution) -> None:
        await self.host.run(execution)

    async def look(self, execution_id: str) -> None:
        task = self.host.wake(execution_id)
        if task is not None:
            await asyncio.wait([task])

    async def _take(self, execution_id: str) -> Execution | None:
        builds = self.registry.builds()
        assert self.house.blobs is not None
        return await take.take(self.database(), self.house.blobs, self.house.now, execution_id, OWNER, builds, TOKENS)

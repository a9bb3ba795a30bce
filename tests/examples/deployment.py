"""A whole deployment in this process: the application, a host of bodies on the real substrate, SQLite, and a clock that runs
like the machine's and that tests may move ahead."""

import time
from pathlib import Path
from typing import Any

import httpx

from moorage.api.app import build_app
from moorage.api.assembly import assemble, due_works
from moorage.api.ports import Moved, Ports, Settings
from moorage.api.ringing import RingingDatabase
from moorage.api.runners import HostRunners
from moorage.bodies.host import Host
from moorage.bodies.registry import Registry
from moorage.client import Moorage
from moorage.kernel.errors import BodyUnknown
from moorage.kernel.instants import Instant
from moorage.runs.model import BodyInfo, Execution
from moorage.runs.substrate import LocalSubstrate
from moorage.runs.take import Tokens, take
from moorage.store import recovery
from moorage.store.directory import DirectoryBlobs, DirectoryFrontiers
from moorage.store.sqlite import SqliteDatabase, connect
from moorage.timers import clock
from tests.contract.adapters import at_once

ROOT = "root-token-for-tests"
URL = "http://moorage.test"
OWNER = "runner:here"
SCHEMA = Path(__file__).parents[2] / "d1_schema"


class Bodies:
    """A registry as the API asks for bodies."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def get(self, name: str) -> BodyInfo | None:
        try:
            return self._registry.info(name)
        except BodyUnknown:
            return None

    def infos(self) -> list[BodyInfo]:
        return self._registry.infos()

    def check_input(self, name: str, value: Any) -> None:
        self._registry.check_input(name, value)


class Deployment:
    """The deployment with the bodies of one package; `moorage` is a client of it with the root credential."""

    def __init__(self, bodies: Registry, blobs: Path) -> None:
        self._connection = connect(":memory:")
        for file in sorted(SCHEMA.glob("*.sql")):
            self._connection.executescript(file.read_text())
        self._offset = 0
        self.blobs = DirectoryBlobs(blobs)
        self.frontiers = DirectoryFrontiers(blobs)
        at_once(recovery.initialize(self.database(), self.frontiers, self.now(), "moorage"))
        self.registry = bodies
        self.runners = HostRunners(self)
        self.ports = self._ports()
        self.transport = httpx.ASGITransport(app=build_app(self.ports))
        self.moorage = Moorage(URL, ROOT, transport=self.transport)
        self.upstream = httpx.AsyncHTTPTransport()
        self.host = self._host()

    def database(self) -> SqliteDatabase:
        return SqliteDatabase(self._connection)

    def now(self) -> Instant:
        return Instant(time.time_ns() // 1_000_000 + self._offset)

    def _ports(self) -> Ports:
        return assemble(
            database=self.database,
            blobs=self.blobs,
            now=self.now,
            root_token=ROOT,
            wake=lambda due, shard: None,
            settings=Settings(secrets=(ROOT,), derivation_keys=("a key of the test's own",)),
            test_clock=self,
            runners=self.runners,
            bodies=Bodies(self.registry),
            frontiers=self.frontiers,
        )

    def _host(self) -> Host:
        keys = self.ports.settings.derivation_keys
        bodies = Bodies(self.registry)
        substrate = LocalSubstrate(self.database, self.blobs, self.now, self.ports.kinds, keys, URL, bodies.get)
        return Host(self.registry, substrate, take=self._take, now=self.now, transport=self.upstream)

    async def _take(self, execution_id: str) -> Execution | None:
        tokens = Tokens(self.ports.settings.derivation_keys, URL)
        return await take(self.database(), self.blobs, self.now(), execution_id, OWNER, self.registry.builds(), tokens)

    # --- what runners ask of a holder ---------------------------------------------------------------------------------

    async def begin(self, execution: Execution) -> None:
        await self.host.start(execution)

    async def look(self, execution_id: str) -> None:
        task = self.host.wake(execution_id)
        if task is not None:
            await task

    # --- time ---------------------------------------------------------------------------------------------------------

    async def read(self) -> tuple[Instant, float]:
        return self.now(), self._offset / 1000

    async def advance(self, seconds: float) -> Moved:
        before = self.now()
        self._offset += round(seconds * 1000)
        now = self.now()
        drained = await clock.advance(
            lambda: RingingDatabase(self.database(), self.ports.bells.ring, self.runners.poke),
            before,
            now,
            due_works(self.blobs),
        )
        return Moved(now, drained.fired, drained.cost)

    async def close(self) -> None:
        await self.host.close()
        await self.moorage.close()
        await self.upstream.aclose()

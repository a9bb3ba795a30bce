"""The suite of every substrate, over HTTP against the application on SQLite: everything but the platform is real."""

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from moorage.api.app import build_app
from moorage.api.ports import Moved, Ports
from moorage.bodies.host import Host
from moorage.client import Host as RemoteHost
from moorage.client import Moorage
from moorage.kernel.instants import Instant
from moorage.runs.model import Execution
from moorage.runs.substrate_port import Substrate
from moorage.store.directory import DirectoryBlobs
from moorage.store.sqlite import connect
from tests.contract import conformance
from tests.contract.adapters import schema_files
from tests.unit.api.conftest import ROOT, House


class OverHttp:
    """Hosts that speak HTTP to one deployment."""

    def __init__(self, moorage: Moorage) -> None:
        self.moorage = moorage
        self.host_outside = RemoteHost(moorage, conformance.conformance, name="conformance")

    @property
    def substrate(self) -> Substrate:
        return self.host_outside.substrate

    def host(self, substrate: Substrate) -> Host:
        return Host(self.host_outside.registry, substrate, now=self.now)

    def now(self) -> Instant:
        return self.host_outside.clock.now()

    async def open(self, scope: str) -> Execution:
        return await self.host_outside.open(conformance.BODY, conformance.GIVEN, scope=scope)

    async def take(self, execution_id: str) -> Execution | None:
        return await self.host_outside.take(execution_id)

    async def run(self, run_id: str) -> dict[str, Any]:
        return (await self.moorage.runs.get(run_id)).wire()

    async def steps(self, run_id: str) -> list[dict[str, Any]]:
        return [step.wire() for step in await self.moorage.runs.steps(run_id)]

    async def advance(self, seconds: float) -> None:
        await self.moorage.wire.call("POST", "/testing/clock", {"advance_seconds": seconds})

    async def resolve(self, token: str) -> None:
        await self.moorage.awakeables.resolve(token, conformance.RESULT["approved"])

    async def pay(self, key: str) -> None:
        data = {"amount": conformance.RESULT["paid"]}
        event = await self.moorage.events.send(conformance.PAID, data, source="/conformance", id=key, subject=key)
        while event.routed_at is None:
            await asyncio.sleep(0.01)  # it is routed beside the request, on an edge that nobody here can drive
            event = await self.moorage.events.get(event.event_id)

    async def records(self) -> list[dict[str, Any]]:
        return [record.body async for record in self.moorage.records.iterate(conformance.KIND)]


class Ticking(House):
    """A deployment whose clock also goes by itself."""

    began = 0.0

    def tick(self) -> Instant:
        return Instant(self.now + self._passed())

    def ports(self, **changes: Any) -> Ports:
        self.began = self.began or time.monotonic()
        return super().ports(now=self.tick, **changes)

    async def advance(self, seconds: float) -> Moved:
        self.now, self.began = self.tick(), time.monotonic()
        return await super().advance(seconds)

    def _passed(self) -> int:
        return int((time.monotonic() - self.began) * 1000)


@pytest.mark.clause(
    "runs.substrate", "runs.step-output", "runs.idempotency-key", "runs.no-double-spend", "runs.unclosed-execution"
)
async def test_a_host_killed_anywhere_is_followed_by_another(tmp_path: Path) -> None:
    connection = connect(":memory:")
    connection.executescript("\n".join(file.read_text() for file in schema_files()))
    house = Ticking(connection, blobs=DirectoryBlobs(tmp_path)).initialized()
    transport = httpx.ASGITransport(app=build_app(house.ports()))
    async with Moorage("http://moorage.test", ROOT, transport=transport) as moorage:
        await moorage.kinds.put(conformance.KIND, {})
        assert await conformance.check_every_place(OverHttp(moorage), lambda name: name) > 20
    connection.close()

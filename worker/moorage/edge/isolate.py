"""What one isolate keeps between events, and the Clock as an event reaches it.

Requests and Durable Objects of one isolate share it; in another isolate there is another one. It holds nothing that an event
may wait for: caches, the test clock's offset, when the Clock is known to ring.
"""

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyodide.ffi import JsException

from moorage.api.assembly import assemble
from moorage.api.listening import Listening
from moorage.api.ports import Moved, Poke
from moorage.edge import settings, storage
from moorage.edge.arming import KnownAlarms
from moorage.edge.bell import BellStubs
from moorage.edge.clocks import KEEPER, ClockStubs
from moorage.edge.convert import message_of
from moorage.edge.couriers import CourierStubs
from moorage.edge.runners import RunnerStubs
from moorage.edge.worker_bodies import REGISTRY, WorkerBodies
from moorage.kernel.errors import DeploymentError, MoorageError, StorageBindingUnavailable
from moorage.kernel.instants import Instant
from moorage.store.ports import Cost
from moorage.timers.bell import Quiet, Ring
from moorage.timers.clock import upcoming
from moorage.timers.due import Shard

_log = logging.getLogger("moorage")

_SETTLE_SECONDS: Final = 10.0
"""How long the test clock's answer waits for runs, and for deliveries, that it made due."""


class Isolate:
    """What one isolate keeps between requests: caches, the test clock's offset, when the Clock is known to ring."""

    registry = REGISTRY

    def __init__(self, env: Any) -> None:
        variables = settings.read(env)
        self.has_test_clock = variables.test_clock
        self.asked_clock = False
        self.alarms = KnownAlarms()
        self._offset: int | None = None if variables.test_clock else 0
        self.quiet = Quiet(time.monotonic)
        self.unheard: dict[str, float] = {}
        self.listening = Listening(lambda: time.monotonic() * 1000)
        self.ports = assemble(
            database=lambda: storage.database(env),
            blobs=storage.blobs(env),
            now=self.now,
            root_token=variables.root_token,
            wake=lambda due, shard: None,
            settings=variables.settings,
            secret=lambda name: settings.text(env, name),
            bodies=WorkerBodies(),
            frontiers=storage.frontiers(env),
        )

    @property
    def offset(self) -> int | None:
        """The test clock's offset in milliseconds; None until somebody has asked for it."""
        return self._offset

    @offset.setter
    def offset(self, milliseconds: int) -> None:
        if milliseconds != self._offset:
            self.alarms.forget()
        self._offset = milliseconds

    def now(self) -> Instant:
        """The product's now."""
        return Instant(int(time.time() * 1000) + (self.offset or 0))

    def rings_before(self, due: Instant, shard: Shard) -> bool:
        """Whether the Clock of the shard is known to ring before `due`, so that it need not be told."""
        return self.alarms.ring_before(due, shard, self.now())


_isolate: Isolate | None = None


def the_isolate(env: Any) -> Isolate:
    """This isolate, made by its first event."""
    global _isolate
    if _isolate is None:
        _isolate = Isolate(env)
    return _isolate


@dataclass(frozen=True, slots=True)
class ClockStub:
    """The Clock with its shards as a request sees it, and its test clock. A stub lives as long as its request."""

    env: Any
    isolate: Isolate

    @property
    def _clocks(self) -> ClockStubs:
        return ClockStubs(self.env, self.isolate.alarms)

    async def wake(self, due: Instant, shard: Shard) -> None:
        """Tell the Clock of the shard. A failure is logged only: the cron tick repairs it."""
        await self._clocks.wake(due, shard)

    async def tick(self) -> None:
        """Make good whatever alarm was lost, of any shard: one reading says where something is due. A failure is logged
        only."""
        ports = self.isolate.ports
        dues: Mapping[Shard, Instant] | None = None
        try:
            await self.know_offset()
            dues = await upcoming(ports.database(), self.isolate.now(), ports.works)
        except DeploymentError as error:
            _log.warning("what is due could not be read: %s", error.code)
            return
        except MoorageError as error:
            # A class whose statement fails: each Clock looks past its own.
            _log.warning("what is due cannot be read at once: %s", error.code)
        await self._clocks.repair(dues, self.isolate.now())

    async def read(self) -> tuple[Instant, float]:
        """The product's now, and its offset in seconds."""
        self.isolate.offset = offset = await self._clocks.offset()
        return self.isolate.now(), offset / 1000

    async def advance(self, seconds: float) -> Moved:
        """Move the product's clock. Raises StorageBindingUnavailable when not everything could fire."""
        try:
            told = json.loads(await self._clocks.of(KEEPER).advance(round(seconds * 1000)))
        except JsException as error:
            raise StorageBindingUnavailable(f"the clock failed: {message_of(error)}") from None
        self.isolate.offset = told["offset"]
        bells = BellStubs(self.env, self.isolate.quiet, lambda ringing: None)
        rings = {kind: Ring(**ring) for kind, ring in told["rings"].items()}
        runners = RunnerStubs(self.env, lambda: told["offset"], rings.update, lambda poking: None)
        await runners.poke_now([Poke(**poke) for poke in told["pokes"]], _SETTLE_SECONDS)
        await CourierStubs(self.env, lambda: told["offset"]).tell(told["couriers"], _SETTLE_SECONDS)
        await bells.ring_now(rings)
        if told["error"] is not None:
            raise StorageBindingUnavailable("the clock moved, but the storage failed before everything had fired")
        return Moved(Instant(told["now"]), told["fired"], Cost(**told["firing"]), Cost(**told["routing"]))

    async def know_offset(self) -> None:
        """Learn the offset once in the life of the isolate."""
        if self.isolate.offset is None:
            self.isolate.offset = await self._clocks.offset()

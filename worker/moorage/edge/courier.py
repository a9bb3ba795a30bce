"""The Courier as a Durable Object, one for each destination (clause outbox.deliver).

It knows its destination from whoever calls it, and the product's clock too: every call brings the offset. What keeps it
awake while it sends is what keeps a Runner awake: see `driving`.
"""

import json
import logging
import random
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from workers import DurableObject

from moorage.api.ringing import RingingDatabase
from moorage.edge import storage
from moorage.edge.bell import BellStubs
from moorage.edge.driving import Awake
from moorage.edge.isolate import ClockStub, Isolate, the_isolate
from moorage.edge.transport import FetchTransport
from moorage.kernel.instants import Instant
from moorage.messages.outbox import courier
from moorage.messages.outbox.sending import Sender
from moorage.store.ports import Database

_log = logging.getLogger("moorage.courier")

_LONGEST_SETTLE: Final = 60.0


class Courier(DurableObject):
    """The Courier. Methods take and give JSON text, and never raise: a caller would see a traceback."""

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        self._storage = getattr(ctx, "_ctx", ctx).storage
        self._post: _Post | None = None

    async def tell(self, told: str) -> str:
        """There is something to send to the `destination`; answers before it is sent."""
        try:
            self._the_post(json.loads(told)).tell()
        except Exception as error:
            _log.exception("a courier was told what it cannot do")
            return json.dumps({"error": type(error).__name__})
        return "{}"

    async def settle(self, told: str) -> str:
        """Answer once nothing is being sent, or after `seconds`."""
        message = json.loads(told)
        rested = await self._the_post(message).awake.settle(min(float(message["seconds"]), _LONGEST_SETTLE))
        return json.dumps({"rested": rested})

    async def alarm(self, info: Any = None) -> None:
        """Stay while something is sent. After a crash there is nothing: the Clock knows when its leases are over."""
        if self._post is not None:
            await self._post.awake.alarm()

    def _the_post(self, message: Mapping[str, Any]) -> "_Post":
        isolate = the_isolate(self.env)
        if isolate.has_test_clock:
            isolate.offset = message["offset"]
        if self._post is None:
            self._post = _Post(self.env, isolate, message["destination"], self._set_alarm)
        return self._post

    async def _set_alarm(self) -> None:
        await self._storage.setAlarm(int(time.time() * 1000))


class _Post:
    """All that works in one Courier."""

    def __init__(self, env: Any, isolate: Isolate, destination: str, set_alarm: Callable[[], Any]) -> None:
        self._env = env
        self._isolate = isolate
        self._clock = ClockStub(env, isolate)
        self._bells = BellStubs(env, isolate.quiet, self._later)
        settings = isolate.ports.settings
        sender = Sender(FetchTransport(allow_local=settings.allow_local), isolate.ports.secret, settings.allow_local)
        admit = isolate.ports.admit_effects
        self._courier = courier.Courier(destination, self._database, isolate.now, sender, random.random, self._wake, admit)
        self.awake = Awake(self._courier, set_alarm)

    def tell(self) -> None:
        """There is something to send."""
        self.awake.begin()
        self._courier.tell()

    def _database(self) -> Database:
        behind = storage.database(self._env)
        return RingingDatabase(behind, self._bells.ring, lambda executions: None, entered=self._entered)

    def _entered(self, types: Collection[str]) -> None:
        """Whoever is subscribed to history is told."""
        isolate = self._isolate
        tell = lambda: self._wake(isolate.now())  # noqa: E731
        isolate.listening.entered(types, isolate.ports.database, tell, self._later)

    def _wake(self, due: Instant) -> None:
        if not self._isolate.rings_before(due, courier.DeliveriesDue.shard):
            self._later(self._clock.wake(due, courier.DeliveriesDue.shard))

    def _later(self, work: Any) -> None:
        self.awake.later(work)

"""The Runner: a Durable Object that executes bodies (clauses runs.bodies, runs.owner).

Executions are shared among Runners by `runs.placement`; each knows its name from whoever calls it. It holds no truth: what
it has in memory it holds under leases, and when it is gone the Clock finds them lapsed. `driving` says what keeps it awake.

Its clock is the product's. It has no way to know of a test clock by itself, so every call brings the offset.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from workers import DurableObject

from moorage.api.ports import Ended
from moorage.api.ringing import RingingDatabase
from moorage.bodies import guard
from moorage.bodies.host import Host
from moorage.edge import storage
from moorage.edge.bell import BellStubs
from moorage.edge.driving import Driver
from moorage.edge.isolate import ClockStub, Isolate, the_isolate
from moorage.edge.live import Live, LiveStubs
from moorage.edge.runners import OWNER, RunnerStubs
from moorage.edge.spans import spans_of
from moorage.edge.transport import FetchTransport
from moorage.history.seals import due_after
from moorage.kernel.errors import MoorageError, StorageCapabilityMissing
from moorage.kernel.instants import Instant
from moorage.kernel.limits import WAIT_SECONDS
from moorage.runs.model import Execution
from moorage.runs.substrate import LocalSubstrate
from moorage.runs.take import Tokens, take
from moorage.runs.wire import execution_of
from moorage.store.ports import Database
from moorage.store.transaction import Transaction
from moorage.timers.due import Shard

_log = logging.getLogger("moorage.runner")

TAKES_AT_ONCE: Final = 16
"""Executions that one Runner takes at the same time: the database takes one after the other anyway."""

_LONGEST_SLEEP: Final = 3600.0
"""The platform's timers take 2^31 milliseconds at most, and one that is given more rings at once."""


class Runner(DurableObject):
    """The Runner. Methods take and give JSON text, and never raise: a caller would see a traceback."""

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        # What start-up took away and gave back has taken the guards with it.
        guard.install()
        self._storage = getattr(ctx, "_ctx", ctx).storage
        self._crew: _Crew | None = None
        self._live = Live(lambda: storage.database(self.env))

    async def fetch(self, request: Any) -> Any:
        """Serve somebody who watches a run."""
        return await self._live.fetch(request)

    async def changed(self, run_id: str) -> bool:
        """The record of a run has changed; answers whether somebody watches it."""
        return self._live.changed(run_id)

    async def until_ended(self, told: str) -> bool:
        """Wait until a run is said to have ended, for so many `seconds`; answers whether it was said."""
        message = json.loads(told)
        seconds = min(float(message["seconds"]), float(WAIT_SECONDS))
        return await self._live.ends.wait(message["run_id"], seconds, again=message["again"])

    async def start(self, told: str) -> str:
        """Execute what was admitted and is handed over, `execution`; answers before it has ended."""
        return self._do(told, lambda crew, message: crew.driver.start(execution_of(message["execution"])))

    async def poke(self, told: str) -> str:
        """Take these `executions` if there is something to do, and let those that are held look again."""
        return self._do(told, lambda crew, message: crew.poke(message["executions"]))

    async def settle(self, told: str) -> str:
        """Answer once nothing is executed, or after `seconds`."""
        message = json.loads(told)
        rested = await self._the_crew(message).driver.settle(min(float(message["seconds"]), 60.0))
        return json.dumps({"rested": rested})

    async def alarm(self, info: Any = None) -> None:
        """Stay while something is executed. After a crash there is nothing: the Clock knows what was held."""
        if self._crew is not None:
            await self._crew.driver.alarm()

    def _do(self, told: str, work: "Callable[[_Crew, Mapping[str, Any]], None]") -> str:
        try:
            message = json.loads(told)
            work(self._the_crew(message), message)
        except Exception as error:
            _log.exception("a runner was told what it cannot do")
            return json.dumps({"error": type(error).__name__})
        return "{}"

    def _the_crew(self, message: Mapping[str, Any]) -> "_Crew":
        isolate = the_isolate(self.env)
        if isolate.has_test_clock:
            isolate.offset = message["offset"]
        if self._crew is None:
            self._crew = _Crew(self.env, isolate, message["runner"], self._live, self._set_alarm)
        return self._crew

    async def _set_alarm(self) -> None:
        await self._storage.setAlarm(int(time.time() * 1000))


class _Crew:
    """All that works in one Runner.

    Its host never leaves: the platform evicts and kills without a word, so that what was in flight then stays guarded.
    """

    def __init__(self, env: Any, isolate: Isolate, name: str, live: Live, set_alarm: Callable[[], Any]) -> None:
        self._env = env
        self._isolate = isolate
        self._name = name
        self._ends = live.ends
        self._owner = f"{OWNER}{name}"
        self._clock = ClockStub(env, isolate)
        ports = isolate.ports
        if ports.blobs is None:
            raise StorageCapabilityMissing("runs need the bucket")
        self._blobs = ports.blobs
        self._bells = BellStubs(env, isolate.quiet, self._later)
        self._runners = RunnerStubs(env, lambda: isolate.offset or 0, self._bells.ring, self._later)
        self._lives = LiveStubs(env, lambda: isolate.offset or 0, isolate.unheard, self._later)
        self._spans = spans_of(env, ports.settings.otlp, self._later)
        self._substrate = LocalSubstrate(
            self._database,
            ports.blobs,
            isolate.now,
            ports.kinds,
            ports.settings.derivation_keys,
            ports.settings.url,
            ports.bodies.get,
            self._wake,
        )
        self._tokens = Tokens(ports.settings.derivation_keys, ports.settings.url)
        self._taking = asyncio.Semaphore(TAKES_AT_ONCE)
        self._host = Host(
            isolate.registry,
            self._substrate,
            take=self._take,
            now=isolate.now,
            sleep=_sleep,
            observer=live.hub,
            transport=FetchTransport(allow_local=ports.settings.allow_local),
            name=self._owner,
            secret=ports.secret,
        )
        self.driver = Driver(self._host, set_alarm)

    def poke(self, executions: Sequence[str]) -> None:
        """Take these, and let those that are in hand look for what ended and for a stop."""
        if in_hand := self.driver.poke(executions):
            self.driver.later(self._look_for_stops(in_hand))

    async def _look_for_stops(self, executions: Sequence[str]) -> None:
        """At once, where the keeper would come to it: a stop is one reason for a poke."""
        held = self._host.held
        try:
            stops = await self._substrate.stops([held[id_].fence for id_ in executions if id_ in held])
        except MoorageError as error:
            _log.warning("stops could not be looked for: %s", error.code)
            return
        for id_ in stops:
            self._host.stop(id_)

    async def _take(self, execution_id: str, /) -> Execution | None:
        builds = self._isolate.registry.builds()
        await self._isolate.ports.admit_effects()
        async with self._taking:
            now = self._isolate.now()
            return await take(self._database(), self._blobs, now, execution_id, self._owner, builds, self._tokens)

    def _database(self) -> Database:
        database = storage.database(self._env)
        return _Committing(database, self._bells.ring, self._runners.poke, self._ended, self._entered, self._committed)

    def _ended(self, runs: Sequence[Ended]) -> None:
        """Runs have ended: the host's own, of which its hub is told, and others that these superseded or stopped."""
        for run in runs:
            if run.runner == self._name:
                self._ends.tell(run.run_id)
            else:
                self._lives.changed(run.run_id, run.runner)
            self._spans.ended(run.run_id)
            if run.scheduled:
                self._wake(self._isolate.now(), "time")

    def _entered(self, types: Collection[str]) -> None:
        """Whoever is subscribed to history is told."""
        isolate = self._isolate
        tell = lambda: self._wake(isolate.now(), "messages")  # noqa: E731
        isolate.listening.entered(types, isolate.ports.database, tell, self._later)

    def _committed(self) -> None:
        """What was stored may be told in history, which will be sealed, or have woken somebody, of which the Clock makes
        sure: both soon, and all of a span at one instant."""
        self._wake(due_after(self._isolate.now()), "upkeep")

    def _wake(self, due: Instant, shard: Shard) -> None:
        if not self._isolate.rings_before(due, shard):
            self._later(self._clock.wake(due, shard))

    def _later(self, work: Any) -> None:
        self.driver.later(work)


class _Committing(RingingDatabase):
    """A RingingDatabase that says when something was committed."""

    def __init__(
        self, behind: Database, ring: Any, poke: Any, ended: Any, entered: Any, committed: Callable[[], None]
    ) -> None:
        super().__init__(behind, ring, poke, ended, entered)
        self._committed = committed

    async def commit(self, transaction: Transaction) -> None:
        await super().commit(transaction)
        self._committed()


async def _sleep(seconds: float) -> None:
    """Sleep, an hour at most: whoever sleeps looks at the clock again."""
    await asyncio.sleep(min(seconds, _LONGEST_SLEEP))

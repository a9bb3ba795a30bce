"""The Clock: a Durable Object whose alarm fires whatever is due (clauses timers.alarm, timers.late).

There is one for each shard of the classes of due work, by the shard's name, which it keeps from its first call on: an alarm
comes without one. It holds no truth. What is due stands in the database; here is an alarm, armed for the earliest of it.
Every commit that makes an earlier instant due tells it, what one fires it tells to the others, and a cron tick drains and
arms anew, so a lost alarm costs at most a minute.

Where the deployment has a test clock, one shard keeps its offset and moves it for all: a move fires every class in the order
of the due instants, as one Clock would, and the other shards wait for its end before they look at what is due.

Its calls interleave at every await: see `arming` for the alarm, and the lock for drains.
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from workers import DurableObject

from moorage.api.assembly import due_works
from moorage.api.ports import Ended, Poke
from moorage.api.ringing import RingingDatabase
from moorage.api.routing_events import ACCEPTED, Routing
from moorage.edge import settings
from moorage.edge.arming import Alarm, KnownAlarms
from moorage.edge.bell import BellStubs
from moorage.edge.clocks import KEEPER, ClockStubs
from moorage.edge.convert import absent
from moorage.edge.couriers import CourierStubs
from moorage.edge.live import LiveStubs
from moorage.edge.runners import RunnerStubs
from moorage.edge.settings import TEST_CLOCK, text
from moorage.edge.spans import spans_of
from moorage.edge.storage import blobs, database
from moorage.edge.worker_bodies import WorkerBodies
from moorage.kernel.errors import MoorageError
from moorage.kernel.instants import Instant, parse
from moorage.messages.inbox.routing import route_unrouted
from moorage.messages.outbox.fan_out import NEVER_TOLD
from moorage.store.ports import Cost, Database
from moorage.timers import clock
from moorage.timers.bell import Quiet, Ring
from moorage.timers.clock import Drained
from moorage.timers.due import SHARDS, DueWork, Shard

_log = logging.getLogger("moorage.clock")

_SHARD: Final = "shard"
_OFFSET: Final = "offset_ms"
_RETRY_MS: Final = 5000
_LATE_MS: Final = 60_000
_LAST_OFFSET: Final = parse("9000-01-01T00:00:00Z")
"""The test clock goes no further: instants end with the year 9999, and time goes on from there."""


class Clock(DurableObject):
    """The Clock. Methods take and give milliseconds and JSON text, and never raise: a caller would see a traceback."""

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        self._storage = getattr(ctx, "_ctx", ctx).storage
        self._has_offset = text(env, TEST_CLOCK) == "1"
        self._offset: int | None = None if self._has_offset else 0
        self._shard: Shard | None = None
        self._known = KnownAlarms()
        self._clocks = ClockStubs(env, self._known)
        self._moving = asyncio.Lock()
        self._alarm = Alarm(_Stored(self._storage), _real_now)
        self._draining = asyncio.Lock()
        self._rings: dict[str, Ring] = {}
        self._pokes: dict[str, Poke] = {}
        self._summoned: set[str] = set()
        self._routing = Routing(lambda: time.monotonic() * 1000)
        self._accepted = False
        self._appended = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def wake(self, due: int, shard: Shard) -> int:
        """Make sure that the alarm rings by the instant `due`; answers the instant for which it is armed."""
        await self._be(shard)
        offset = await self._know_offset()
        return await self._alarm.arm(due - offset) + offset

    async def alarm(self, info: Any = None) -> None:
        """The alarm rang: fire what is due and arm for what comes next, whatever happens."""
        self._alarm.rang()
        shard = await self._known_shard()
        if shard is None:
            _log.warning("an alarm of a clock that is none of the shards'")
            return
        await self._drain(shard)

    async def tick(self, shard: Shard) -> None:
        """The cron tick: the same, in case an alarm was lost."""
        await self._be(shard)
        await self._drain(shard)

    async def read(self) -> int:
        """The test clock's offset in milliseconds, of the shard that keeps it."""
        return await self._stored_offset()

    async def rested(self) -> int:
        """The same, once a move that is under way has fired all that it makes due."""
        async with self._moving:
            return await self._stored_offset()

    async def advance(self, milliseconds: int) -> str:
        """Move the test clock; everything that becomes due fires in order before this answers.

        Answers JSON: `now`, `offset`, `fired`, `error`, the code of the storage's failure or null, what `firing` and
        `routing` cost, and `rings`, `pokes` and `couriers`, which whoever asked passes on once it knows the new time.
        """
        await self._be(KEEPER)
        async with self._moving, self._draining:
            offset = await self._stored_offset()
            start = Instant(_real_now() + offset)
            moved = self._learn_offset(min(offset + milliseconds, _LAST_OFFSET - _real_now()))
            await self._storage.put(_OFFSET, moved)
            end = Instant(_real_now() + moved)
            drained = await self._guarded(lambda: clock.advance(self._database, start, end, self._works()))
            routing = await self._route_accepted(end)
        if drained is None or drained.interrupted is not None:
            await self._arm_after(drained)
        await self._tell(end, SHARDS)
        rings = {kind: asdict(ring) for kind, ring in self._take_rings().items()}
        failed = drained is None or drained.interrupted is not None
        return json.dumps(
            {
                "now": end,
                "offset": self._offset,
                "fired": {} if drained is None else drained.fired,
                "error": "StorageBindingUnavailable" if failed else None,
                "firing": asdict(Cost() if drained is None else drained.cost),
                "routing": asdict(routing),
                "rings": rings,
                "pokes": [asdict(poke) for poke in self._take_pokes()],
                "couriers": self._take_summoned(),
            }
        )

    async def _drain(self, shard: Shard) -> None:
        async with self._draining:
            drained = await self._guarded(lambda: self._drain_own(shard))
        await self._arm_after(drained)
        await self._pass_on()
        if self._take_appended() or (drained is not None and drained.fired):
            await self._tell(self._now(), [other for other in SHARDS if other != shard])

    async def _pass_on(self) -> None:
        """Tell whoever waits for what was committed."""
        runners = RunnerStubs(self.env, lambda: self._offset or 0, self._note, lambda poking: None)
        await runners.poke_now(self._take_pokes())
        await CourierStubs(self.env, lambda: self._offset or 0).tell(self._take_summoned())
        await BellStubs(self.env, Quiet(time.monotonic), lambda ringing: None).ring_now(self._take_rings())

    async def _drain_own(self, shard: Shard) -> Drained:
        now = Instant(_real_now() + await self._know_offset(at_rest=True))
        works = [work for work in self._works() if work.shard == shard]
        drained = await clock.drain(self._database, now, works, current=self._now)
        if drained.lateness > _LATE_MS:
            _log.warning("the clock of %s was %d s late", shard, drained.lateness // 1000)
        return drained

    async def _tell(self, now: Instant, shards: Sequence[Shard]) -> None:
        """Arm the Clocks of these shards, this one among them or not, for what was made due there. A failure is logged only:
        the tick repairs it."""
        works = [work for work in self._works() if work.shard in shards]
        try:
            dues = await clock.upcoming(database(self.env), now, works)
        except MoorageError as error:
            _log.warning("what is due elsewhere could not be read: %s", error.code)
            return
        if self._shard is not None and self._shard in dues:
            await self._alarm.arm(dues[self._shard] - (self._offset or 0))
        await self._clocks.wake_all({shard: due for shard, due in dues.items() if shard != self._shard}, now)

    def _works(self) -> list[DueWork]:
        told = settings.read(self.env).settings
        return due_works(blobs(self.env), told.project, WorkerBodies(), told.runners)

    async def _guarded(self, work: Callable[[], Awaitable[Drained]]) -> Drained | None:
        """What was drained, or None when that failed as a whole. An alarm that raises is lost after six times."""
        try:
            drained = await work()
        except Exception:
            _log.exception("the clock could not drain")
            return None
        for failure in drained.failed:
            error = failure.error
            told = error.code if isinstance(error, MoorageError) else type(error).__name__
            _log.warning("%s %s failed the %s. time: %s", failure.work, failure.item, failure.attempts, told)
        for name, broken in drained.broken.items():
            _log.error("what is due of %s cannot be read: %s", name, broken.code)
        if drained.interrupted is not None:
            _log.warning("the clock was interrupted: %s", drained.interrupted.code)
        return drained

    async def _arm_after(self, drained: Drained | None) -> None:
        if drained is None:
            await self._alarm.arm(_real_now() + _RETRY_MS)
        elif drained.next_due is not None:
            await self._alarm.arm(drained.next_due - (self._offset or 0))

    async def _be(self, shard: Shard) -> None:
        """Keep the shard, so that an alarm knows it: before any alarm is set."""
        if await self._known_shard() is None:
            self._shard = shard
            await self._storage.put(_SHARD, shard)

    async def _known_shard(self) -> Shard | None:
        if self._shard is None:
            stored = await self._storage.get(_SHARD)
            self._shard = self._shard if absent(stored) else stored
        return self._shard

    async def _know_offset(self, at_rest: bool = False) -> int:
        """The test clock's offset: that of the shard which keeps it, asked each time, for nobody tells when it moves."""
        if not self._has_offset:
            return 0
        if self._shard == KEEPER:
            return await self._stored_offset()
        return self._learn_offset(await self._clocks.offset(at_rest))

    def _learn_offset(self, offset: int) -> int:
        if offset != self._offset:
            self._known.forget()
        self._offset = offset
        return offset

    async def _stored_offset(self) -> int:
        if self._offset is None:
            stored = await self._storage.get(_OFFSET)
            if self._offset is None:
                self._offset = 0 if absent(stored) else int(stored)
        return self._offset

    def _now(self) -> Instant:
        return Instant(_real_now() + (self._offset or 0))

    def _database(self) -> Database:
        behind, summon = database(self.env), self._summoned.update
        return RingingDatabase(behind, self._note, self._note_pokes, self._tell_ends, self._entered, summon)

    def _entered(self, types: Collection[str]) -> None:
        """What was fired may have accepted events: they are routed beside the draining, or at the end of a move of the test
        clock. Whatever it was, it may be told to who is subscribed, but for what became of deliveries."""
        self._appended = self._appended or not all(type_.startswith(NEVER_TOLD) for type_ in types)
        if self._moving.locked():
            self._accepted = self._accepted or ACCEPTED in types
        else:
            self._routing.entered(types, self._database, self._now, lambda routing: self._beside(self._routed(routing)))

    async def _routed(self, routing: Coroutine[Any, Any, None]) -> None:
        """Route beside the draining, which may have ended before: what that makes due is told to this Clock too."""
        await routing
        await self._pass_on()
        await self._tell(self._now(), SHARDS)

    async def _route_accepted(self, now: Instant) -> Cost:
        db = self._database()
        try:
            while self._accepted and await route_unrouted(db, now):
                pass
        except MoorageError as error:
            _log.warning("events are left to their clock to be routed: %s", error.code)
        self._accepted = False
        return db.cost

    def _note(self, rings: Mapping[str, Ring]) -> None:
        for kind, ring in rings.items():
            self._rings[kind] = self._rings.get(kind, Ring()) + ring

    def _note_pokes(self, executions: Sequence[Poke]) -> None:
        self._pokes.update((poke.execution_id, poke) for poke in executions)

    def _tell_ends(self, runs: Sequence[Ended]) -> None:
        """Tell those who watch the runs that time has ended, and the collector of spans, beside the draining."""
        lives = LiveStubs(self.env, lambda: self._offset or 0, {}, self._beside)
        spans = spans_of(self.env, settings.read(self.env).settings.otlp, self._beside)
        for run in runs:
            lives.changed(run.run_id, run.runner)
            spans.ended(run.run_id)

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _take_appended(self) -> bool:
        """Whether history was told of anything, also where nobody knows whether that was committed."""
        appended, self._appended = self._appended, False
        return appended

    def _take_pokes(self) -> list[Poke]:
        """The executions that were woken by what was fired, each once."""
        pokes, self._pokes = self._pokes, {}
        return list(pokes.values())

    def _take_summoned(self) -> list[str]:
        """The destinations to whose Couriers there is something to tell."""
        summoned, self._summoned = self._summoned, set()
        return sorted(summoned)

    def _take_rings(self) -> dict[str, Ring]:
        """What is to be rung for what was fired: once for each kind."""
        rings, self._rings = self._rings, {}
        return rings


class _Stored:
    """The alarm in the object's storage."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage

    async def get(self) -> int | None:
        found = await self._storage.getAlarm()
        return None if absent(found) else int(found)

    async def set(self, at: int) -> None:
        await self._storage.setAlarm(at)


def _real_now() -> int:
    return int(time.time() * 1000)

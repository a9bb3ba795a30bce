"""The Clock: a Durable Object whose alarm fires whatever is due (clauses timers.alarm, timers.late).

It holds no truth. What is due stands in the database; here is an alarm, armed for the earliest of it, and where the
deployment has a test clock, that clock's offset. Every commit that makes an earlier instant due tells it, and a cron tick
drains and arms anew, so a lost alarm costs at most a minute.

Its calls interleave at every await: see `arming` for the alarm, and the lock for drains.
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from workers import DurableObject

from moorage.api.assembly import due_works
from moorage.api.ports import Ended, Poke
from moorage.api.ringing import RingingDatabase
from moorage.edge import settings
from moorage.edge.arming import Alarm
from moorage.edge.bell import BellStubs
from moorage.edge.convert import absent
from moorage.edge.live import LiveStubs
from moorage.edge.runners import RunnerStubs
from moorage.edge.settings import TEST_CLOCK, text
from moorage.edge.spans import spans_of
from moorage.edge.storage import blobs, database
from moorage.kernel.errors import MoorageError
from moorage.kernel.instants import Instant, parse
from moorage.store.ports import Database
from moorage.timers import clock
from moorage.timers.bell import Quiet, Ring
from moorage.timers.clock import Drained

NAME: Final = "clock"
"""The name of the one Clock."""

_log = logging.getLogger("moorage.clock")

_OFFSET: Final = "offset_ms"
_RETRY_MS: Final = 5000
_LAST_OFFSET: Final = parse("9000-01-01T00:00:00Z")
"""The test clock goes no further: instants end with the year 9999, and time goes on from there."""


class Clock(DurableObject):
    """The Clock. Methods take and give milliseconds and JSON text, and never raise: a caller would see a traceback."""

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        self._storage = getattr(ctx, "_ctx", ctx).storage
        self._has_offset = text(env, TEST_CLOCK) == "1"
        self._offset: int | None = None if self._has_offset else 0
        self._alarm = Alarm(_Stored(self._storage), _real_now)
        self._draining = asyncio.Lock()
        self._rings: dict[str, Ring] = {}
        self._pokes: dict[str, Poke] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def wake(self, due: int) -> int:
        """Make sure that the alarm rings by the instant `due`; answers the instant for which it is armed."""
        offset = await self._know_offset()
        return await self._alarm.arm(due - offset) + offset

    async def alarm(self, info: Any = None) -> None:
        """The alarm rang: fire what is due and arm for what comes next, whatever happens."""
        self._alarm.rang()
        await self._drain()

    async def tick(self) -> None:
        """The cron tick: the same, in case an alarm was lost."""
        await self._drain()

    async def read(self) -> int:
        """The test clock's offset in milliseconds."""
        return await self._know_offset()

    async def advance(self, milliseconds: int) -> str:
        """Move the test clock; everything that becomes due fires in order before this answers.

        Answers JSON: `now`, `offset`, `fired`, `error`, the code of the storage's failure or null, and `rings` and `pokes`,
        which whoever asked passes on once it knows the new time.
        """
        async with self._draining:
            offset = await self._know_offset()
            start = Instant(_real_now() + offset)
            self._offset = min(offset + milliseconds, _LAST_OFFSET - _real_now())
            await self._storage.put(_OFFSET, self._offset)
            end = Instant(_real_now() + self._offset)
            drained = await self._guarded(lambda: clock.advance(self._database, start, end, due_works(blobs(self.env))))
        await self._arm_after(drained)
        rings = {kind: asdict(ring) for kind, ring in self._take_rings().items()}
        failed = drained is None or drained.interrupted is not None
        return json.dumps(
            {
                "now": end,
                "offset": self._offset,
                "fired": {} if drained is None else drained.fired,
                "error": "StorageBindingUnavailable" if failed else None,
                "rings": rings,
                "pokes": [asdict(poke) for poke in self._take_pokes()],
            }
        )

    async def _drain(self) -> None:
        async with self._draining:
            offset = await self._know_offset()
            now = Instant(_real_now() + offset)
            drained = await self._guarded(lambda: clock.drain(self._database, now, due_works(blobs(self.env))))
        await self._arm_after(drained)
        runners = RunnerStubs(self.env, lambda: self._offset or 0, self._note, lambda poking: None)
        await runners.poke_now(self._take_pokes())
        await BellStubs(self.env, Quiet(time.monotonic), lambda ringing: None).ring_now(self._take_rings())

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
        if drained.interrupted is not None:
            _log.warning("the clock was interrupted: %s", drained.interrupted.code)
        return drained

    async def _arm_after(self, drained: Drained | None) -> None:
        if drained is None:
            await self._alarm.arm(_real_now() + _RETRY_MS)
        elif drained.next_due is not None:
            await self._alarm.arm(drained.next_due - (self._offset or 0))

    async def _know_offset(self) -> int:
        if self._offset is None:
            stored = await self._storage.get(_OFFSET)
            if self._offset is None:
                self._offset = 0 if absent(stored) else int(stored)
        return self._offset

    def _database(self) -> Database:
        return RingingDatabase(database(self.env), self._note, self._note_pokes, self._tell_ends)

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

    def _take_pokes(self) -> list[Poke]:
        """The executions that were woken by what was fired, each once."""
        pokes, self._pokes = self._pokes, {}
        return list(pokes.values())

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

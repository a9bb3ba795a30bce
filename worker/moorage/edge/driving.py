"""Driving executions inside one Durable Object: what is begun, what keeps the object awake, when it is at rest.

Work begins in the call that asks for it. The object's alarm only keeps it awake: work that takes longer than a moment
sets it, and its handler stays until there is none left, because an object with no event in progress may be evicted. To
begin the work in the alarm itself would be simpler, and costs a write and a round through the alarm's scheduler for each
start: one-step runs took twice as long. An object that is evicted or killed all the same loses nothing: the Clock finds what
it held when the lease lapses, so an alarm that finds nothing in memory has nothing to do.

Calls interleave at every await, so what is looked at and changed is never apart by one. Nothing here touches the platform.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, Protocol

from moorage.runs.protocol import Execution

MOMENT_SECONDS: Final = 1.0
"""How long work may take before the alarm is set to keep the object awake; it is not evicted sooner."""

KEEP_SECONDS: Final = 600.0
"""How long one alarm's handler stays; the platform ends one after fifteen minutes."""

TAKES_AT_ONCE: Final = 16
"""Executions that are being taken at the same time."""

_log = logging.getLogger("moorage.runner")


class Holder(Protocol):
    """What holds executions in memory: `moorage.bodies.host.Host`."""

    def run(self, execution: Execution) -> Coroutine[Any, Any, None]:
        """Execute until it has ended or was let go."""

    def holds(self, execution_id: str) -> bool:
        """Whether it is held at this moment."""

    def wake(self, execution_id: str) -> None:
        """Look again at one that is held: something ended, or a stop was asked for."""


class Driver:
    """The executions of one Durable Object.

    `take` takes an execution that is due, or answers None; `set_alarm` lets the alarm ring now. `sleep` is asyncio's.
    """

    def __init__(
        self,
        holder: Holder,
        take: Callable[[str], Awaitable[Execution | None]],
        set_alarm: Callable[[], Awaitable[Any]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._holder = holder
        self._take = take
        self._set_alarm = set_alarm
        self._sleep = sleep
        self._tasks: set[asyncio.Task[None]] = set()
        self._held: dict[str, bool] = {}
        self._slots = asyncio.Semaphore(TAKES_AT_ONCE)
        self._stretch = 0
        self._watching = False
        self._keeping = False
        self._rest = asyncio.Event()
        self._rest.set()

    @property
    def busy(self) -> bool:
        """Whether anything is being taken or executed."""
        return bool(self._held)

    def start(self, execution: Execution) -> None:
        """Execute what was handed over. What is held already is not begun again."""
        if execution.execution_id not in self._held:
            self._begin(execution.execution_id, self._holder.run(execution))

    def poke(self, executions: Iterable[str]) -> None:
        """Take these, and let those that are held look again."""
        for id_ in executions:
            if id_ not in self._held:
                self._begin(id_, self._take_and_run(id_))
                continue
            # Whatever it is doing it may have read before this came, and let go after.
            self._held[id_] = True
            if self._holder.holds(id_):
                self._holder.wake(id_)

    async def settle(self, seconds: float) -> bool:
        """Wait until nothing is held, for so long at most; answers whether that is so."""
        try:
            async with asyncio.timeout(seconds):
                await self._rest.wait()
        except TimeoutError:
            return False
        return True

    async def alarm(self) -> None:
        """Stay while there is work, so that the object does; never raises."""
        self._keeping = True
        rested = await self.settle(KEEP_SECONDS)
        self._keeping = False
        if not rested:
            await self._keep()

    def _begin(self, id_: str, work: Coroutine[Any, Any, None]) -> None:
        if not self._held:
            self._rest.clear()
            self._stretch += 1
            if not self._watching:
                self._watching = True
                self.later(self._watch())
        self._held[id_] = False
        self.later(self._end(id_, work))

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside, held until it is over: nobody else would hold it."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self, id_: str, work: Coroutine[Any, Any, None]) -> None:
        """See the work of one execution to its end, whatever that is, and look once more if it was poked meanwhile."""
        try:
            await work
            while self._held[id_]:
                self._held[id_] = False
                await self._take_and_run(id_)
        except asyncio.CancelledError:
            _log.warning("%s was given up", id_)
        except Exception:
            _log.exception("%s failed; the clock will find it", id_)
        finally:
            del self._held[id_]
            if not self._held:
                self._rest.set()

    async def _take_and_run(self, id_: str) -> None:
        async with self._slots:
            execution = await self._take(id_)
        if execution is not None:
            await self._holder.run(execution)

    async def _watch(self) -> None:
        """Set the alarm when there was work all through a moment. One watcher is enough, however often it comes and goes."""
        while self._held:
            stretch = self._stretch
            await self._sleep(MOMENT_SECONDS)
            if self._held and self._stretch == stretch and not self._keeping:
                await self._keep()
        self._watching = False

    async def _keep(self) -> None:
        self._keeping = True
        try:
            await self._set_alarm()
        except Exception as error:
            self._keeping = False
            _log.warning("the alarm could not be set: %s", type(error).__name__)

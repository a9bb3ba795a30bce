"""Keeping one Durable Object awake while it works, and driving executions inside one: what is begun, when it is at rest.

Work begins in the call that asks for it. The object's alarm only keeps it awake: work that takes longer than a moment
sets it, and its handler stays until there is none left, because an object with no event in progress may be evicted. To
begin the work in the alarm itself would be simpler, and costs a write and a round through the alarm's scheduler for each
start: one-step runs took twice as long. An object that is evicted or killed all the same loses nothing: the Clock finds what
it held when the lease lapses, so an alarm that finds nothing in memory has nothing to do.

Calls interleave at every await, so what is looked at and changed is never apart by one. Nothing here touches the platform.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from functools import partial
from typing import Any, Final, Protocol

from moorage.bodies.tasks import begin
from moorage.runs.model import Execution

MOMENT_SECONDS: Final = 1.0
"""How long work may take before the alarm is set to keep the object awake; it is not evicted sooner."""

KEEP_SECONDS: Final = 600.0
"""How long one alarm's handler stays; the platform ends one after fifteen minutes."""

_log = logging.getLogger("moorage.runner")


class Busy(Protocol):
    """What is at work in memory."""

    @property
    def busy(self) -> bool: ...

    async def settled(self) -> None: ...


class Holder(Busy, Protocol):
    """What holds executions in memory: `moorage.bodies.host.Host`, and see there."""

    @property
    def held(self) -> Collection[str]: ...

    @property
    def driven(self) -> Collection[str]: ...

    def start(self, execution: Execution) -> "asyncio.Task[Any]": ...

    def wake(self, execution_id: str) -> "asyncio.Task[Any] | None": ...


class Awake:
    """Keeps one Durable Object awake while its `work` is busy. `set_alarm` lets its alarm ring now, `sleep` is asyncio's."""

    def __init__(
        self,
        work: Busy,
        set_alarm: Callable[[], Awaitable[Any]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._work = work
        self._set_alarm = set_alarm
        self._sleep = sleep
        self._tasks: set[asyncio.Task[None]] = set()
        self._stretch = 0
        self._watching = False
        self._keeping = False

    async def settle(self, seconds: float) -> bool:
        """Wait until nothing is in hand, for so long at most; answers whether that is so."""
        try:
            async with asyncio.timeout(seconds):
                await self._work.settled()
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

    def later(self, beside: Coroutine[Any, Any, None]) -> None:
        """Run something beside, held until it is over: nobody else would hold it."""
        task = begin(beside)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def begin(self) -> None:
        """Something is about to be begun."""
        if not self._work.busy:
            self._stretch += 1
        if not self._watching:
            self._watching = True
            self.later(self._watch())

    async def _watch(self) -> None:
        """Set the alarm when there was work all through a moment. One watcher is enough, however often it comes and goes."""
        try:
            while True:
                stretch = self._stretch
                await self._sleep(MOMENT_SECONDS)
                if not self._work.busy:
                    return
                if self._stretch == stretch and not self._keeping:
                    await self._keep()
        finally:
            self._watching = False

    async def _keep(self) -> None:
        self._keeping = True
        try:
            await self._set_alarm()
        except Exception as error:
            self._keeping = False
            _log.warning("the alarm could not be set: %s", type(error).__name__)


class Driver(Awake):
    """The executions of one Durable Object, and what keeps it awake for them."""

    def __init__(
        self,
        holder: Holder,
        set_alarm: Callable[[], Awaitable[Any]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(holder, set_alarm, sleep)
        self._holder = holder

    def start(self, execution: Execution) -> None:
        """Execute what was handed over."""
        self.begin()
        self._holder.start(execution)

    def poke(self, executions: Iterable[str]) -> list[str]:
        """Take these, and let those that are in hand look again; answers which are."""
        self.begin()
        in_hand = []
        for id_ in executions:
            if id_ in self._holder.held:
                in_hand.append(id_)
            was_driven = id_ in self._holder.driven
            known = self._holder.wake(id_)
            if was_driven and known is not None and id_ not in self._holder.held:
                # Perhaps it is only now being let go of, and nobody would hear: then there is something to take after.
                known.add_done_callback(partial(self._after, id_))
        return in_hand

    def _after(self, id_: str, _done: Any) -> None:
        if id_ not in self._holder.held:
            self.begin()
            self._holder.wake(id_)

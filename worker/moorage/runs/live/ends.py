"""Who waits for a run's end, in the one place where all of its ends are heard: the Runner that keeps its live view.

It holds no truth: a wake-up is a hint to read the record, and whoever waits looks again by itself after a while, so that an
end of which nobody told is seen too. Of a run that nobody waits for its id is remembered for a while, for whoever read the
record just before it ended and comes to wait just after.
"""

import asyncio
from typing import Final

REMEMBERED: Final = 1000
"""Ended runs that are remembered."""

LOOKS_SECONDS: Final = (1, 2, 4, 8, 10)
"""How long one wait goes on until the record is read again, the first one and those that follow. It begins with as long as
hints may be left out that nobody heard before."""


class Ends:
    """The ends of the runs of one process, and who waits for them."""

    def __init__(self) -> None:
        self._lately: dict[str, None] = {}
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(len(some) for some in self._waiting.values())

    def tell(self, run_id: str) -> None:
        """A run has ended, or may have: let all who wait for it look. Never waits and never raises."""
        self._lately.pop(run_id, None)
        self._lately[run_id] = None
        if len(self._lately) > REMEMBERED:
            del self._lately[next(iter(self._lately))]
        for one in self._waiting.get(run_id, ()):
            if not one.done():
                one.set_result(None)

    async def wait(self, run_id: str, seconds: float, *, again: bool = False) -> bool:
        """Wait until a run is said to have ended: False when nobody said so within `seconds`. `again` says that what was
        heard before now is known: the record was read after it."""
        if run_id in self._lately and not again:
            return True
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(run_id, set())
        waiting.add(woken)
        try:
            async with asyncio.timeout(seconds):
                await woken
        except TimeoutError:
            return False
        finally:
            waiting.discard(woken)
            if not waiting and self._waiting.get(run_id) is waiting:
                del self._waiting[run_id]
        return True

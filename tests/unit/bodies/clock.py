"""A clock that tests drive: it moves only when everything waits for it."""

import asyncio
import itertools
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from moorage.kernel.instants import Instant, after

T = TypeVar("T")

MOVES = 20_000
"""How often one drive moves the clock at most."""

START = Instant(1_772_366_400_000)
"""2026-03-01T12:00:00Z, a Sunday."""


class Clock:
    """A clock that moves only when everything waits for it, and nothing real is under way (`working`)."""

    def __init__(self, now: Instant = START) -> None:
        self.instant = now
        self.busy = 0
        self._done = 0
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    def now(self) -> Instant:
        return self.instant

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        entry = (after(self.instant, seconds), next(self._numbers), future)
        self._sleepers.append(entry)
        try:
            await future
        finally:
            if entry in self._sleepers:
                self._sleepers.remove(entry)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Something real happens in here."""
        self.busy += 1
        try:
            yield
        finally:
            self.busy -= 1
            self._done += 1

    def advance_to(self, instant: int) -> None:
        self.instant = Instant(max(self.instant, instant))
        for due in sorted(one for one in self._sleepers if one[0] <= self.instant):
            self._sleepers.remove(due)
            if not due[2].done():
                due[2].set_result(None)

    async def drive(self, work: Awaitable[T], *, until: float = 10 * 366 * 86400) -> T:
        """Await work, moving the clock whenever nothing else can happen."""
        task = asyncio.ensure_future(work)
        last = after(self.instant, until)
        moves = 0
        while moves < MOVES:
            if task.done():
                return task.result()
            done = self._done
            for _ in range(12):
                await asyncio.sleep(0)
            if task.done() or done != self._done:
                # What really ended meanwhile has its consequences still before it.
                continue
            if self.busy:
                # A real round trip is under way: it takes no time of this clock.
                await asyncio.sleep(0.0005)
            elif self._sleepers and (earliest := min(self._sleepers)[0]) <= last:
                self.advance_to(earliest)
                moves += 1
            else:
                # What was left to be recorded is flushed after two real milliseconds.
                await asyncio.sleep(0.003)
                moves += 1
        raise AssertionError("the work does not end")

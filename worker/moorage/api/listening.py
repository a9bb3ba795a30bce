"""Telling the Clock that history has grown, where anybody listens to it (clause outbox.lag).

Entries are the outbox, and whoever subscribes to them is told within moments: each commit that appends one lets the Clock of
the messages look. Where nobody subscribes that would be a call for nothing after every commit, so one isolate asks the
database whether anybody does, at most once in LISTENING_SECONDS and never within a request's own time. Where nobody did a
moment ago it asks again when that is too old to be relied on, for what was committed meanwhile: somebody may have subscribed
in another isolate. A hint that is lost costs lateness until the next cron tick, never an event: what was told stands in the
database.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, Final

from moorage.kernel.errors import MoorageError
from moorage.messages.outbox.outbox_statements import LISTENS
from moorage.store.ports import Database
from moorage.store.transaction import Reading

LISTENING_SECONDS: Final = 5.0
"""How old an isolate's knowledge may be whether anybody listens."""

GATHER_SECONDS: Final = 0.1
"""How long commits are gathered for one call of the Clock."""

_LOST_SECONDS: Final = 1.0
"""A call that was not made by then was lost with the event that was to make it."""

_BEGINS: Final = ("subscription.", "run.notify_requested")
"""Entries after which somebody listens."""

Sleep = Callable[[float], Awaitable[None]]


class Listening:
    """What one isolate knows of it. `ticks` are milliseconds on any steady scale."""

    def __init__(self, ticks: Callable[[], float], sleep: Sleep = asyncio.sleep) -> None:
        self._ticks = ticks
        self._sleep = sleep
        self._known: bool | None = None
        self._known_at = 0.0
        self._telling_until = 0.0

    def entered(
        self,
        types: Collection[str],
        database: Callable[[], Database],
        tell: Callable[[], None],
        later: Callable[[Coroutine[Any, Any, None]], Any],
    ) -> None:
        """Entries of these types were committed: `tell` the Clock soon, in what `later` runs beside the request, if anybody
        listens; or when what is known is old, if nobody did. Returns at once and never fails."""
        if any(type_.startswith(_BEGINS) for type_ in types):
            if self._known is False:
                self._telling_until = 0.0
            self._learn(True)
        now = self._ticks()
        if now < self._telling_until:
            return
        still = 0.0 if self._known is not False else max(0.0, LISTENING_SECONDS - (now - self._known_at) / 1000)
        seconds = max(GATHER_SECONDS, still)
        self._telling_until = now + (seconds + _LOST_SECONDS) * 1000
        later(self._tell(seconds, database, tell))

    async def _tell(self, seconds: float, database: Callable[[], Database], tell: Callable[[], None]) -> None:
        await self._sleep(seconds)
        self._telling_until = 0.0
        if self._known is None or self._is_old(self._ticks()):
            try:
                self._learn(await _listens(database()))
            except MoorageError:
                return
        if self._known:
            tell()

    def _learn(self, listens: bool) -> None:
        self._known = listens
        self._known_at = self._ticks()

    def _is_old(self, now: float) -> bool:
        return now - self._known_at >= LISTENING_SECONDS * 1000


async def _listens(db: Database) -> bool:
    reading = Reading()
    found = reading.ask(LISTENS)
    await db.read(reading)
    return bool(found.one()["listens"])

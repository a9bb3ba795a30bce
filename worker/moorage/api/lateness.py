"""How late the Clock is, and how far the outbox is behind, as GET /health tells it (clauses timers.alarm, outbox.lag).

The route is open to everybody, so what it reads is bounded: one isolate asks the database at most once in LATENESS_SECONDS,
and then a handful of rows of each class of due work.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from moorage.kernel.errors import MoorageError
from moorage.kernel.instants import Instant
from moorage.messages.outbox.delivery_list import lag_of
from moorage.messages.outbox.outbox_statements import OLDEST_UNTOLD
from moorage.store.ports import Database
from moorage.store.transaction import Reading
from moorage.timers.clock import Standing, standings
from moorage.timers.due import DueWork, Shard

LATENESS_SECONDS: Final = 3
"""How old an answer may be."""


@dataclass(frozen=True, slots=True)
class Seen:
    """How the shards stood at an instant, and how many seconds the outbox was behind."""

    at: Instant
    shards: Mapping[Shard, Standing]
    outbox: float


class Lateness:
    """What one isolate knows of how the shards of the Clock stand. `ticks` are milliseconds on any steady scale."""

    def __init__(self, works: Sequence[DueWork], ticks: Callable[[], float]) -> None:
        self._works = works
        self._ticks = ticks
        self._read_at: float | None = None
        self._known: Seen | None = None

    async def read(self, database: Callable[[], Database], now: Instant) -> Seen | None:
        """How each shard stands, or None where the database cannot tell."""
        ticks = self._ticks()
        if self._read_at is None or ticks - self._read_at >= LATENESS_SECONDS * 1000:
            # Before the reading: whoever asks meanwhile is told what was known, and reads nothing.
            self._read_at = ticks
            try:
                self._known = await self._ask(database(), now)
            except MoorageError:
                self._known = None
        return self._known

    async def _ask(self, db: Database, now: Instant) -> Seen:
        reading = Reading()
        untold = reading.ask(OLDEST_UNTOLD)
        shards = await standings(db, now, self._works, reading)
        return Seen(now, shards, lag_of(untold.first(), now))

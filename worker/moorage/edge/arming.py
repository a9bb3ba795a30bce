"""Arming one alarm from many interleaved calls, so that it rings for the earliest of what they ask (timers.alarm); and what
one who tells several Clocks knows of their alarms.

Calls of one Durable Object interleave at every await, and its storage does not put them in order. So the instant for
which the alarm is armed is kept in an attribute, and is looked at and set with no await in between; setting the alarm is
then asked of the storage in that same order.

Nothing here touches the platform: storage and clock are given.
"""

from collections.abc import Callable
from typing import Final, Protocol

from moorage.kernel.instants import Instant
from moorage.timers.due import Shard

LOST_MS: Final = 5000
"""An alarm that should have rung this long ago is taken for lost."""

FARTHEST_MS: Final = 86_400_000
"""An alarm is set no further ahead than this. The platform counts in types of its own, one of which ends after 24 days and
another in the year 2262; whoever rings before its time finds nothing due and arms anew."""

SOON_MS: Final = 200
"""An alarm that rings this soon may have rung already."""


class AlarmStorage(Protocol):
    """Where the platform keeps an object's one alarm, in milliseconds of real time."""

    async def get(self) -> int | None:
        """The instant of the alarm, or None."""

    async def set(self, at: int) -> None:
        """Replace the alarm. Takes effect in the order of the calls, not of their ends."""


class Alarm:
    """The alarm of one Durable Object instance."""

    def __init__(self, storage: AlarmStorage, now: Callable[[], int]) -> None:
        self._storage = storage
        self._now = now
        self._at: int | None = None

    @property
    def at(self) -> int | None:
        """When the alarm rings, as far as this instance knows; one long overdue is not relied upon."""
        if self._at is None or self._at < self._now() - LOST_MS:
            return None
        return self._at

    def rang(self) -> None:
        """The alarm has rung, and is armed no more."""
        self._at = None

    async def arm(self, at: int) -> int:
        """Make sure that the alarm rings by `at`, at once if that is past, and in FARTHEST_MS at the latest; answers when it
        rings."""
        # The platform takes no alarm before 1970, where a test clock's past may lie.
        at = min(max(at, 1), self._now() + FARTHEST_MS)
        if self.at is None:
            stored = await self._storage.get()
            if self.at is None:
                self._at = stored
        known = self.at
        if known is None or at < known:
            self._at = at
            await self._storage.set(at)
            return at
        return known


class KnownAlarms:
    """When the Clock of each shard is known to ring, by what it answered last, so that it need not be told again.

    A mistake costs lateness until the next cron tick, never work.
    """

    def __init__(self) -> None:
        self._ring_at: dict[Shard, int] = {}

    def ring_before(self, due: Instant, shard: Shard, now: Instant) -> bool:
        """Whether the Clock is known to ring before `due`, and not just now: it then sees what is due as it arms anew."""
        at = self._ring_at.get(shard)
        return at is not None and now + SOON_MS < at <= due

    def learn(self, shard: Shard, rings_at: int) -> None:
        """The Clock has said when it rings."""
        self._ring_at[shard] = rings_at

    def forget(self) -> None:
        """The test clock was moved: alarms ring in real time, and so at other instants than was said."""
        self._ring_at.clear()

"""Arming one alarm from many interleaved calls, so that it rings for the earliest of what they ask (timers.alarm).

Calls of one Durable Object interleave at every await, and its storage does not put them in order. So the instant for
which the alarm is armed is kept in an attribute, and is looked at and set with no await in between; setting the alarm is
then asked of the storage in that same order.

Nothing here touches the platform: storage and clock are given.
"""

from collections.abc import Callable
from typing import Final, Protocol

LOST_MS: Final = 5000
"""An alarm that should have rung this long ago is taken for lost."""


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
        """Make sure that the alarm rings by `at`, at once if that is past; answers when it rings."""
        at = max(at, 1)  # the platform takes no alarm before 1970, where a test clock's past may lie
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

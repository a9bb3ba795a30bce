"""Where the client's waiting comes from, so that tests can drive it."""

import asyncio
import time
from typing import Protocol


class Timing(Protocol):
    """A monotonic clock in seconds, and waiting by it."""

    def now(self) -> float:
        """Seconds since some fixed instant; never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""


class RealTime:
    """The machine's own clock."""

    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

"""When a delivery that was not taken is tried again (clause outbox.deliver)."""

from collections.abc import Callable
from typing import Final

from moorage.kernel.limits import DELIVERY_DELAY_SECONDS

FIRST_SECONDS: Final = 5.0
"""The delay after the first attempt, before jitter. It doubles with each further one, up to DELIVERY_DELAY_SECONDS."""

PLAIN: Final = 3
"""How many attempts of a delivery are followed by no more than what the destination asks for."""


def delay(attempt: int, random: Callable[[], float]) -> float:
    """Seconds until the next attempt, after the attempt of this number, from 1.

    Between half of the doubled delay and all of it: those that failed together do not come back together. `random` gives
    a number from 0 to 1.
    """
    # Past so many doublings the longest delay has been reached.
    full = min(FIRST_SECONDS * float(1 << min(attempt - 1, 32)), float(DELIVERY_DELAY_SECONDS))
    return full * (1 + random()) / 2


def asked_for(seconds: float, attempt: int, random: Callable[[], float]) -> float:
    """The same where its destination asked for so many seconds: at least those, and past PLAIN attempts what is its own, or
    a destination that asks for a minute each time would have used all attempts up within half an hour."""
    return seconds if attempt <= PLAIN else max(seconds, delay(attempt - PLAIN, random))

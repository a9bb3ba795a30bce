"""When a delivery that failed is tried again, where its destination did not say (clause outbox.deliver)."""

from collections.abc import Callable
from typing import Final

from moorage.kernel.limits import DELIVERY_DELAY_SECONDS

FIRST_SECONDS: Final = 5.0
"""The delay after the first attempt, before jitter. It doubles with each further one, up to DELIVERY_DELAY_SECONDS."""


def delay(attempt: int, random: Callable[[], float]) -> float:
    """Seconds until the next attempt, after the attempt of this number, from 1.

    Between half of the doubled delay and all of it: those that failed together do not come back together. `random` gives
    a number from 0 to 1.
    """
    # Past so many doublings the longest delay has been reached.
    full = min(FIRST_SECONDS * float(1 << min(attempt - 1, 32)), float(DELIVERY_DELAY_SECONDS))
    return full * (1 + random()) / 2

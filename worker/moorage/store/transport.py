"""The transport rule: what may be sent again when no answer came (clause store.transport)."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from moorage.kernel.errors import StorageBindingUnavailable

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for answers: `attempts` of at most `seconds` each for what may be sent again, one of
    `write_seconds` for a write; `pause` seconds before the second attempt, twice that before the third."""

    attempts: int = 3
    seconds: float = 15.0
    write_seconds: float = 30.0
    pause: float = 0.05


PATIENCE: Final = Patience()


async def resend(send: Callable[[], Awaitable[Result]], patience: Patience = PATIENCE) -> Result:
    """Send until an answer comes. Only for what changes nothing, or changes the same thing to the same again.

    An error that is an answer is raised at once. Raises StorageBindingUnavailable after the last attempt.
    """
    for attempt in range(1, patience.attempts):
        try:
            return await once(send, patience.seconds)
        except StorageBindingUnavailable:
            await asyncio.sleep(patience.pause * attempt)
    return await once(send, patience.seconds)


async def once(send: Callable[[], Awaitable[Result]], seconds: float) -> Result:
    """Send one time. Raises StorageBindingUnavailable when no answer came in `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            return await send()
    except TimeoutError:
        raise StorageBindingUnavailable(f"no answer within {seconds:g} s; a write may or may not be applied") from None

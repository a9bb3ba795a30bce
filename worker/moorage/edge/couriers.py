"""The Couriers as the Clock reaches them (clause outbox.deliver)."""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from typing import Any

from moorage.edge.convert import raw

_log = logging.getLogger("moorage.couriers")


class CourierStubs:
    """Stubs live as long as the event they were made in. `offset` is the test clock's, in milliseconds."""

    def __init__(self, env: Any, offset: Callable[[], int]) -> None:
        self._env = env
        self._offset = offset

    async def tell(self, destinations: Iterable[str], settle_seconds: float = 0.0) -> None:
        """Tell each that there is something to send, and let it come to rest, for so long at most. A failure is logged
        only: the Clock tells it again."""
        await asyncio.gather(*(self._tell(destination, settle_seconds) for destination in destinations))

    async def _tell(self, destination: str, settle_seconds: float) -> None:
        told = {"destination": destination, "offset": self._offset()}
        try:
            namespace = raw(getattr(self._env, "COURIER", None), "COURIER")
            stub = namespace.get(namespace.idFromName(destination))
            await stub.tell(json.dumps(told))
            if settle_seconds:
                await stub.settle(json.dumps({**told, "seconds": settle_seconds}))
        except Exception as error:
            _log.warning("a courier could not be told: %s", type(error).__name__)

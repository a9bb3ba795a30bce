"""Routing events right after they were accepted, beside the request (clause inbox.two-checkpoints).

An event is safe once its acceptance is committed, and the answer waits for nothing else. What it wakes is found after that:
a commit that accepted events lets this isolate route whatever is unrouted, one pass at a time. Whatever dies in between, the
Clock of the messages routes it, UNROUTED_MS after its acceptance.
"""

import logging
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Final

from moorage.kernel.errors import MoorageError
from moorage.kernel.instants import Instant
from moorage.messages.inbox.routing import route_unrouted
from moorage.store.ports import Database

log = logging.getLogger("moorage.routing")

ACCEPTED: Final = "event.accepted"
"""The entry of history after which something is to be routed."""

_LOST_SECONDS: Final = 2.0
"""A pass that has not ended by then was lost with the request beside which it ran."""

Later = Callable[[Coroutine[Any, Any, None]], Any]


class Routing:
    """The passes of one isolate. `seconds` are of any steady scale."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._until = 0.0
        self._again = False

    def entered(
        self, types: Collection[str], database: Callable[[], Database], now: Callable[[], Instant], later: Later
    ) -> None:
        """Entries of these types were committed: route, in what `later` runs beside the request, if events are among them.
        Returns at once and never fails."""
        if ACCEPTED not in types:
            return
        if self._seconds() < self._until:
            self._again = True
            return
        self._until = self._seconds() + _LOST_SECONDS
        later(self._route(database, now))

    async def _route(self, database: Callable[[], Database], now: Callable[[], Instant]) -> None:
        try:
            while True:
                self._again = False
                more = await route_unrouted(database(), now())
                if not more and not self._again:
                    return
                self._until = self._seconds() + _LOST_SECONDS
        except MoorageError as error:
            log.warning("events are left to the Clock to be routed: %s", error.code)
        finally:
            self._until = 0.0

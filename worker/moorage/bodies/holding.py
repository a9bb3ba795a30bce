"""Who executes: an identity that a host draws as it starts (clauses guards.holder-identity, guards.holder-gone).

A guard names it, and only itself may say that it is gone: once nothing that it sent is under way. A host that is killed says
nothing, and what it had in flight stays guarded.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from moorage.guards.model import new_holder
from moorage.kernel.errors import MoorageError, StorageBindingUnavailable
from moorage.kernel.instants import Instant
from moorage.runs.substrate_port import Substrate

log = logging.getLogger("moorage.bodies")

Sleep = Callable[[float], Awaitable[None]]

_TRIES: Final = 5
_FIRST_PAUSE: Final = 0.1


class Holder:
    """The identity of one host. It is registered before its first guard, and draws another id once it has left."""

    def __init__(self, substrate: Substrate, now: Callable[[], Instant], sleep: Sleep, name: str) -> None:
        self.id = new_holder(now())
        self._substrate = substrate
        self._now = now
        self._sleep = sleep
        self._name = name
        self._registered = False
        self._registering = asyncio.Lock()
        self._callbacks: set[asyncio.Task[Any]] = set()

    @property
    def registered(self) -> bool:
        """Whether a guard may name it."""
        return self._registered

    @property
    def in_flight(self) -> int:
        """How many callbacks have not returned, those of executions that were lost among them."""
        return len(self._callbacks)

    async def register(self) -> str:
        """The id, registered. Raises what the house refuses it with, StorageBindingUnavailable after several tries."""
        async with self._registering:
            if not self._registered:
                await self._persistently(lambda: self._substrate.register_holder(self.id, self._name))
                self._registered = True
        return self.id

    def began(self, callback: "asyncio.Task[Any]") -> None:
        """A callback is under way, until its task is done."""
        self._callbacks.add(callback)
        callback.add_done_callback(self._callbacks.discard)

    async def leave(self, reason: str) -> bool:
        """Record that it has stopped; whether it is gone. One that has a callback under way is not: it may be sending."""
        if not self._registered:
            return True
        if self._callbacks:
            log.warning("holder %s has %d callbacks under way: its exit is not recorded", self.id, len(self._callbacks))
            return False
        try:
            await self._persistently(lambda: self._substrate.exit_holder(self.id, reason))
        except MoorageError as error:
            log.warning("the exit of holder %s could not be recorded: %s", self.id, error)
            return False
        self.id, self._registered = new_holder(self._now()), False
        return True

    async def _persistently(self, call: Callable[[], Awaitable[None]]) -> None:
        pause = _FIRST_PAUSE
        for _ in range(_TRIES - 1):
            try:
                await call()
                return
            except StorageBindingUnavailable:
                await self._sleep(pause)
                pause *= 2
        await call()

"""The Clocks as an event reaches them: one Durable Object for each shard.

Stubs live as long as the event they were made in.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from pyodide.ffi import JsException

from moorage.edge.arming import KnownAlarms
from moorage.edge.convert import message_of, raw
from moorage.kernel.errors import StorageBindingUnavailable
from moorage.kernel.instants import Instant
from moorage.timers.due import SHARDS, Shard

_log = logging.getLogger("moorage")

KEEPER: Final[Shard] = "time"
"""The shard that keeps the test clock's offset, which the others ask for."""


class ClockStubs:
    """`known` is what the caller's isolate, or object, has heard of their alarms."""

    def __init__(self, env: Any, known: KnownAlarms) -> None:
        self._env = env
        self._known = known

    def of(self, shard: Shard) -> Any:
        """The Durable Object of a shard. Raises StorageCapabilityMissing without a binding."""
        namespace = raw(getattr(self._env, "CLOCK", None), "CLOCK")
        return namespace.get(namespace.idFromName(shard))

    async def wake(self, due: Instant, shard: Shard) -> None:
        """Tell one Clock. A failure is logged only: the cron tick repairs it."""
        try:
            self._known.learn(shard, int(await self.of(shard).wake(due, shard)))
        except Exception as error:
            _log.warning("the clock of %s could not be told: %s", shard, type(error).__name__)

    async def wake_all(self, dues: Mapping[Shard, Instant], now: Instant) -> None:
        """Tell each of what is due, unless it is known to ring before."""
        unknown = {shard: due for shard, due in dues.items() if not self._known.ring_before(due, shard, now)}
        await asyncio.gather(*(self.wake(due, shard) for shard, due in unknown.items()))

    async def repair(self, dues: Mapping[Shard, Instant] | None, now: Instant) -> None:
        """Let each shard with something due drain, and the others arm for what comes, in case an alarm was lost.

        Where nobody knows what is due, all look for themselves.
        """
        due_now = SHARDS if dues is None else [shard for shard, due in dues.items() if due <= now]
        later = {} if dues is None else {shard: due for shard, due in dues.items() if due > now}
        await asyncio.gather(*map(self._tick, due_now), *(self.wake(due, shard) for shard, due in later.items()))

    async def offset(self, at_rest: bool = False) -> int:
        """The test clock's offset in milliseconds; `at_rest` waits until a move of it has fired all that it made due.

        Raises StorageBindingUnavailable.
        """
        keeper = self.of(KEEPER)
        try:
            return int(await (keeper.rested() if at_rest else keeper.read()))
        except JsException as error:
            raise StorageBindingUnavailable(f"the clock failed: {message_of(error)}") from None

    async def _tick(self, shard: Shard) -> None:
        try:
            await self.of(shard).tick(shard)
        except Exception as error:
            _log.warning("the clock of %s could not be reached: %s", shard, type(error).__name__)

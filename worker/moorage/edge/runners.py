"""The Runners as a request, the Clock or another Runner reaches them. Stubs live as long as the event they were made in."""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from moorage.api.ports import Poke
from moorage.api.runners import remote_rings
from moorage.edge.convert import raw
from moorage.runs.model import Execution
from moorage.runs.wire import execution_wire
from moorage.timers.bell import Ring

_log = logging.getLogger("moorage.runners")

OWNER: Final = "runner:"
"""What the name of a Runner has before it where it owns an execution."""

POKED_AT_ONCE: Final = 200
"""Executions that one call to a Runner names."""


class RunnerStubs:
    """Calls carry the product's clock, as its offset in milliseconds from real time, since a Runner has none of its own."""

    def __init__(
        self,
        env: Any,
        offset: Callable[[], int],
        ring: Callable[[Mapping[str, Ring]], None],
        later: Callable[[Coroutine[Any, Any, None]], Any],
    ) -> None:
        self._env = env
        self._offset = offset
        self._ring = ring
        self._later = later

    def start(self, execution: Execution) -> None:
        """Hand over after the answer is given."""
        runner = execution.lease.owner.removeprefix(OWNER)
        self._later(self._call(runner, "start", {"execution": execution_wire(execution)}))

    def poke(self, executions: Sequence[Poke]) -> None:
        """Poke after the answer is given."""
        if rings := remote_rings(executions):
            self._ring(rings)
        for runner, ids in by_runner(executions).items():
            self._later(self._poke(runner, ids))

    async def poke_now(self, executions: Sequence[Poke], settle_seconds: float = 0.0) -> None:
        """Poke, and let each Runner come to rest, for so long at most. A failure is logged only: the Clock makes it good."""
        if rings := remote_rings(executions):
            self._ring(rings)
        pokes = by_runner(executions).items()
        await asyncio.gather(*(self._poke(runner, ids, settle_seconds) for runner, ids in pokes))

    async def _poke(self, runner: str, ids: Sequence[str], settle_seconds: float = 0.0) -> None:
        for first in range(0, len(ids), POKED_AT_ONCE):
            await self._call(runner, "poke", {"executions": ids[first : first + POKED_AT_ONCE]})
        if settle_seconds:
            await self._call(runner, "settle", {"seconds": settle_seconds})

    async def _call(self, runner: str, method: str, told: Mapping[str, Any]) -> None:
        try:
            namespace = raw(getattr(self._env, "RUNNER", None), "RUNNER")
            stub = namespace.get(namespace.idFromName(runner))
            await getattr(stub, method)(json.dumps({"runner": runner, "offset": self._offset(), **told}))
        except Exception as error:
            _log.warning("a runner could not be told: %s", type(error).__name__)


def by_runner(executions: Sequence[Poke]) -> dict[str, list[str]]:
    """The ids of the executions that the Worker executes, by Runner."""
    grouped: dict[str, list[str]] = {}
    for one in executions:
        if one.host == "worker":
            grouped.setdefault(one.runner, []).append(one.execution_id)
    return grouped

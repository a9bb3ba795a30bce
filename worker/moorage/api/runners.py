"""Runners inside one event loop, and the names of the Bells in which hosts outside the Worker wait."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from moorage.api.ports import Poke
from moorage.runs.model import Execution
from moorage.timers.bell import Ring

OWN: Final = "_"
"""What the names of the runtime's own Bells begin with; no client's kind does."""

_EXECUTION: Final = f"{OWN}execution."
_BODY: Final = f"{OWN}bodies."


def execution_bell(execution_id: str) -> str:
    """The Bell in which the host that holds an execution waits for something to end, or for a stop."""
    return f"{_EXECUTION}{execution_id}"


def body_bell(body: str) -> str:
    """The Bell in which hosts wait for an execution of a body that they may take."""
    return f"{_BODY}{body}"


def body_of(bell: str) -> str | None:
    """The body of a `body_bell`, or None for any other Bell."""
    return bell.removeprefix(_BODY) if bell.startswith(_BODY) else None


def remote_rings(executions: Iterable[Poke]) -> dict[str, Ring]:
    """What is rung for the executions among these whose hosts are outside the Worker."""
    rings: dict[str, Ring] = {}
    for one in executions:
        if one.host == "remote":
            for name in (execution_bell(one.execution_id), body_bell(one.body)):
                rings[name] = rings.get(name, Ring()) + Ring(ready=1)
    return rings


class Holder(Protocol):
    """What executes: a host of bodies."""

    async def begin(self, execution: Execution) -> None:
        """Execute until it ends or is let go."""

    async def look(self, execution_id: str) -> None:
        """Take the execution, or look again at one that is held."""


class HostRunners:
    """Runners inside one event loop: for the host, where there is no platform in between. Without a `holder` nothing runs.

    `ring` rings in the Bells of hosts outside the Worker. `started` and `poked` say what was told, for tests.
    """

    def __init__(
        self, holder: Holder | None = None, ring: Callable[[Mapping[str, Ring]], None] = lambda rings: None
    ) -> None:
        self._holder = holder
        self._ring = ring
        self._tasks: set[asyncio.Task[None]] = set()
        self.started: list[Execution] = []
        self.poked: list[Poke] = []

    def start(self, execution: Execution) -> None:
        self.started.append(execution)
        if self._holder is not None:
            self._hold(self._holder.begin(execution))

    def poke(self, executions: Sequence[Poke]) -> None:
        self.poked.extend(executions)
        if rings := remote_rings(executions):
            self._ring(rings)
        if self._holder is not None:
            for one in executions:
                if one.host == "worker":
                    self._hold(self._holder.look(one.execution_id))

    async def settle(self) -> None:
        """Wait until nothing executes, what was started meanwhile included."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def _hold(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

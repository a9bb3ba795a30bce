"""Who keeps the hubs of runs, as requests see it: a request is admitted and hands whoever watches over.

On the platform that is the run's Runner, a Durable Object, to which the edge passes the connection; on the host it is a hub
of this process.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from moorage.kernel.errors import CapabilityUnwired
from moorage.runs.live.ends import Ends
from moorage.runs.live.hub import Hub
from moorage.runs.live.model import Version
from moorage.runs.live.watching import events


@dataclass(frozen=True, slots=True)
class Watching:
    """Who watches what: a run, the Runner that keeps its hub, and where the client stands already.

    `credential` is asked again now and then whether it still may; None is root, which always may. `seconds` bounds it.
    """

    run_id: str
    runner: str
    after: Version | None
    credential: str | None
    seconds: float


class Feed(Protocol):
    """Server-sent events as they come; `native` is the platform's own stream of them, where there is one."""

    def native(self) -> Any:
        """The stream, to be handed on as it is."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...


class Socket(Protocol):
    """A socket that was opened and is served elsewhere."""

    def native(self) -> Any:
        """The platform's socket."""


class Lives(Protocol):
    """The hubs of runs. What has gone wrong is raised before anything is answered."""

    async def events(self, watching: Watching) -> Feed:
        """Watch by server-sent events. Raises RunUnknown, StorageBindingUnavailable, StorageCapabilityMissing."""

    async def socket(self, watching: Watching) -> Socket:
        """Watch by a socket. Raises also CapabilityUnwired where there are none."""

    async def ended(self, run_id: str, runner: str, seconds: float, *, again: bool) -> bool:
        """Wait until a run is said to have ended, as `Ends.wait` does. Never fails: the record tells."""

    def changed(self, run_id: str, runner: str) -> None:
        """Hint that the record of a run has changed. Returns at once and never fails."""


class HostLives:
    """The hub of this process, for the host. `allowed` says whether a credential is still alive."""

    def __init__(self, hub: Hub, ticks: Callable[[], float], allowed: Callable[[str], Awaitable[bool]]) -> None:
        self.hub = hub
        self.ends = Ends()
        self._ticks = ticks
        self._allowed = allowed

    async def events(self, watching: Watching) -> Feed:
        subscription = await self.hub.subscribe(watching.run_id, watching.after)

        async def allowed() -> bool:
            return watching.credential is None or await self._allowed(watching.credential)

        return _Pieces(events(subscription, self._ticks, allowed, watching.seconds))

    async def socket(self, watching: Watching) -> Socket:
        raise CapabilityUnwired("this server has no sockets; ask with Accept: text/event-stream")

    async def ended(self, run_id: str, runner: str, seconds: float, *, again: bool) -> bool:
        return await self.ends.wait(run_id, seconds, again=again)

    def changed(self, run_id: str, runner: str) -> None:
        self.hub.changed(run_id)
        self.ends.tell(run_id)


class _Pieces:
    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces

    def native(self) -> Any:
        raise CapabilityUnwired

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._pieces

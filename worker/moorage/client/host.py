"""A host of bodies outside the Worker: it executes here what is durable there (clause runs.substrate).

    host = Host(moorage, order, "my_package.bodies")
    await host.run("order", {"pieces": 3})      # open an execution and drive it here, through all its waits
    await host.serve(concurrency=8)             # take executions of its bodies until SIGTERM or Ctrl-C

The engine is the Worker's, and so are the body files: only the substrate is another. Nothing is kept here that a crash could
lose.
"""

import asyncio
import importlib
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Self

import httpx

from moorage.bodies.declare import Body
from moorage.bodies.engine import End
from moorage.bodies.host import Host as Core
from moorage.bodies.registry import Registry
from moorage.bodies.retry import Retry
from moorage.client.keys import key_or_fresh
from moorage.client.paging import segment
from moorage.client.problems import Problem
from moorage.client.runs import RunFailed, schedule
from moorage.client.substrate import HttpSubstrate
from moorage.journal.model import Fence, Lease
from moorage.kernel.errors import ExecutionGuardBlocked, ExecutionUnknown, ExecutionWoken, MoorageError
from moorage.kernel.instants import Instant
from moorage.kernel.limits import OWNER_LEASE_SECONDS, WAIT_SECONDS
from moorage.runs.model import Execution
from moorage.runs.observing import Observer
from moorage.runs.operations import Suspend

if TYPE_CHECKING:
    from moorage.client.moorage import Moorage

log = logging.getLogger("moorage.client")

_FIRST_TROUBLE: Final = 0.5
_LONGEST_TROUBLE: Final = 15.0
_PAUSE: Final = 1.0
"""Between two looks at an execution that another host holds."""


class ServerClock:
    """The deployment's clock as its leases tell it: a lease that was granted or renewed ends OWNER_LEASE_SECONDS later.

    It is behind by at most the time that the last such answer took.
    """

    def __init__(self, own: Callable[[], float] = time.time) -> None:
        self._own = own
        self._offset = 0.0

    def now(self) -> Instant:
        """Now, there."""
        return Instant(int((self._own() + self._offset) * 1000))

    def learn(self, lease: Lease) -> None:
        """Take a lease that has just been told."""
        self._offset = lease.expires_at / 1000 - int(OWNER_LEASE_SECONDS) - self._own()


class _Hearing(HttpSubstrate):
    """The substrate, with an ear for the clock."""

    clock: ServerClock

    async def renew(self, fences: Any) -> dict[str, Lease]:
        leases = await super().renew(fences)
        for lease in leases.values():
            self.clock.learn(lease)
        return leases


class Host:
    """A host of bodies: of those that `bodies` are, or that the modules and packages among them declare.

    `substrate` is what it speaks to, `registry` its bodies, `clock` the deployment's clock.

    `name` is what a lease says of its owner, by default the machine's name and the process. When it is told to stop it lets
    what it has in hand come to a wait or an end for `grace_seconds`, and gives up the rest for another host. `observer`
    hears of every change, and `transport` is what `run.fetch` sends with: by default the network. `secret` gives the value
    of a binding that a destination names: by default the environment's variable of that name.

    Guards name the host's identity. `serve` and `aclose` say that it is gone, once nothing that it sent is under way; a host
    that is killed says nothing, and what it had in flight stays guarded (clause guards.holder-gone).
    """

    def __init__(
        self,
        moorage: "Moorage",
        *bodies: Body | ModuleType | str,
        name: str | None = None,
        grace_seconds: float = 30.0,
        observer: Observer | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        secret: Callable[[str], str | None] | None = None,
    ) -> None:
        self.registry = _registry(bodies)
        self.name = name or _own_name()
        self.grace_seconds = grace_seconds
        self.clock = ServerClock()
        self._moorage = moorage
        self.substrate = _Hearing(moorage.wire)
        self.substrate.clock = self.clock
        self._network = httpx.AsyncHTTPTransport()
        self._core = Core(
            self.registry,
            self.substrate,
            take=self.take,
            now=self.clock.now,
            observer=observer,
            transport=transport or self._network,
            name=self.name,
            secret=secret or os.environ.get,
        )
        self._stopping = asyncio.Event()
        self._abandoning = asyncio.Event()

    @property
    def held(self) -> Mapping[str, Execution]:
        """The executions in hand, by id."""
        return self._core.held

    def stop(self) -> None:
        """Take nothing more, let what is in hand come to a wait or an end for `grace_seconds`, and let `serve` return. A
        second call gives up the rest at once."""
        if self._stopping.is_set():
            self._abandoning.set()
        self._stopping.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Give up what is in hand, and say that this host is gone. `serve` does it by itself as it returns."""
        await self._let_go()

    # --- one run ------------------------------------------------------------------------------------------------------

    async def run(
        self,
        body: str,
        input: Any = None,  # noqa: A002  as everywhere in the interface
        *,
        scope: str | None = None,
        key: str | None = None,
        retry: Retry | Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Any:
        """Open an execution of one of the bodies, drive it here until its run has ended, and answer the result.

        Under a scope whose execution is pending it goes on with that. `retry` is the schedule of steps that name none, and
        `more` goes into the request: `metadata`, for instance.
        Raises RunFailed when the run ends in another way, ExecutionBusy and ExecutionPinMismatch when the scope is held or
        bound to something else, and what a request raises.
        """
        opened = await self.open(body, input, scope=scope, key=key, retry=retry, **more)
        run_id = opened.run_id
        execution: Execution | None = opened
        while execution is not None:
            ended = await self._core.run(execution)
            if ended in ("success", "failed", "canceled"):
                break
            execution = await self._again(execution.execution_id, run_id)
        run = await self._moorage.runs.wait(run_id)
        if run.status != "success":
            raise RunFailed(run)
        return run.result

    async def open(
        self,
        body: str,
        input: Any = None,  # noqa: A002
        *,
        scope: str | None = None,
        key: str | None = None,
        retry: Retry | Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Execution:
        """Open an execution, or resume the one that is pending under the scope, and hold it. Raises what `run` raises."""
        sent: dict[str, Any] = {"body": body, "input": input, "holder": self.name, "build": self._build(body), **more}
        if scope is not None:
            sent["scope"] = scope
        if retry is not None:
            sent["retry"] = schedule(retry)
        return self._heard(await self.substrate.open(sent, key_or_fresh(key)))

    async def take(self, execution_id: str) -> Execution | None:
        """Take an execution that is due, and hold it; None when it is not to be had."""
        taken = await self.substrate.take(self._wanted(execution_id=execution_id))
        return self._heard(taken[0]) if taken else None

    async def _again(self, execution_id: str, run_id: str) -> Execution | None:
        """The execution when it is due and nobody else has taken it; None once the run has ended."""
        while True:
            try:
                told = await self.substrate.wait(execution_id, float(WAIT_SECONDS))
            except ExecutionUnknown:
                return None
            if told["run_id"] != run_id or told["status"] in ("success", "failed", "partial_failure", "canceled"):
                return None
            if told.get("lease"):
                await self._moorage.wire.timing.sleep(_PAUSE)
            elif told["due"]:
                try:
                    if (taken := await self.take(execution_id)) is not None:
                        return taken
                except ExecutionGuardBlocked as guarded:
                    log.warning("execution %s cannot be taken: %s", execution_id, guarded)
                    await self._moorage.wire.timing.sleep(_LONGEST_TROUBLE)

    # --- many ---------------------------------------------------------------------------------------------------------

    async def serve(self, concurrency: int = 8, *, offer: bool = True) -> None:
        """Offer the bodies and execute what is started of them, `concurrency` at a time, until SIGTERM, Ctrl-C or `stop`.

        Raises Problem when offering or taking is refused for good: a missing grant, a body of the Worker of that name.
        """
        with _signals(self.stop):
            if offer:
                await self.offer()
            try:
                await self._serve(concurrency)
                await self._end()
            finally:
                await self._let_go()

    async def offer(self) -> None:
        """Register the bodies, so that runs of them can be started by name."""
        for info in self.registry.infos("remote"):
            build = info.build.wire()
            del build["body"]
            sent = {
                "build": build,
                "effects": list(info.effects),
                "description": info.description,
                "input_schema": info.input_schema,
                "result_schema": info.result_schema,
            }
            await self._moorage.wire.call("PUT", f"/bodies/{segment(info.name)}", sent)

    async def _serve(self, concurrency: int) -> None:
        driving: set[asyncio.Task[End]] = set()
        trouble = _FIRST_TROUBLE
        while not self._stopping.is_set():
            room = concurrency - len(driving)
            if room <= 0:
                await self._unless_stopped(asyncio.wait(driving, return_when=asyncio.FIRST_COMPLETED))
                driving = {task for task in driving if not task.done()}
                continue
            try:
                taken = await self._taken(room)
            except MoorageError as error:
                if _is_final(error):
                    raise
                log.warning("nothing could be taken: %s", error)
                await self._unless_stopped(self._moorage.wire.timing.sleep(trouble))
                trouble = min(2 * trouble, _LONGEST_TROUBLE)
                continue
            trouble = _FIRST_TROUBLE
            driving = {task for task in driving if not task.done()}
            driving |= {self._core.start(self._heard(execution)) for execution in taken}

    async def _taken(self, room: int) -> list[Execution]:
        """What there is to take, or nothing after a while without anything. Only the waiting is broken off by a stop: nobody
        could tell the deployment that whoever asked to take has left."""
        wanted = self._wanted(limit=min(room, 10))
        taken = await self.substrate.take(wanted)
        if not taken:
            await self._unless_stopped(self.substrate.due(wanted["bodies"], float(WAIT_SECONDS)))
        return taken

    async def _end(self) -> None:
        settled = asyncio.ensure_future(self._core.settled())
        try:
            await _first_of(settled, asyncio.wait_for(self._abandoning.wait(), self.grace_seconds))
        finally:
            settled.cancel()

    async def _let_go(self) -> None:
        """Let go of what is still in hand. Its run waits for another host, which begins where the journal ends; or for what
        was in flight, which others send again only once this host is gone."""
        left = [(execution.fence, self._core.in_flight(name)) for name, execution in self._core.held.items()]
        await self._core.close()
        await self._give_up(left)
        await self._core.leave("stopped")
        await self._network.aclose()

    async def _give_up(self, left: Iterable[tuple[Fence, Sequence[Mapping[str, Any]]]]) -> None:
        for fence, in_flight in left:
            for _ in range(3):
                now = self.clock.now()
                suspend = Suspend("suspended", None, in_flight) if in_flight else Suspend("waiting", now)
                try:
                    await self.substrate.apply(fence, [suspend])
                except ExecutionWoken:
                    with suppress(MoorageError):
                        await self.substrate.refresh(fence)
                    continue
                except MoorageError as error:
                    log.info("execution %s was not given up: %s", fence.execution_id, error)
                break

    # --- taking -------------------------------------------------------------------------------------------------------

    def _wanted(self, **more: Any) -> dict[str, Any]:
        return {
            "bodies": [{"body": one.name, **self._build(one.name)} for one in self.registry],
            "holder": self.name,
            **more,
        }

    def _build(self, body: str) -> dict[str, Any]:
        build = self.registry.build(body).wire()
        return {name: told for name, told in build.items() if name != "body"}

    def _heard(self, execution: Execution) -> Execution:
        self.clock.learn(execution.lease)
        return execution

    async def _unless_stopped(self, waiting: Any) -> None:
        """Wait for it, at most until a stop. Raises what it raises."""
        task = asyncio.ensure_future(waiting)
        try:
            await _first_of(task, self._stopping.wait())
            if task.done():
                task.result()
        finally:
            task.cancel()


async def _first_of(one: "asyncio.Future[Any]", other: Any) -> None:
    """Return when either has ended; the other is then waited for no more, and `one` goes on."""
    beside = asyncio.ensure_future(other)
    try:
        await asyncio.wait({one, beside}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        beside.cancel()
        with suppress(TimeoutError, asyncio.CancelledError):
            await beside


def _registry(bodies: Iterable[Body | ModuleType | str]) -> Registry:
    """The bodies that were given, and those that modules and packages among them declare."""
    found: dict[int, Body] = {}
    for given in bodies:
        for one in [given] if isinstance(given, Body) else _declared(given):
            found[id(one)] = one
    return Registry(found.values())


def _declared(given: ModuleType | str) -> list[Body]:
    name = given if isinstance(given, str) else given.__name__
    module = importlib.import_module(name)
    if hasattr(module, "__path__"):
        return list(Registry.of(name))
    return [one for one in vars(module).values() if isinstance(one, Body)]


def _own_name() -> str:
    machine = "".join(char if char.isascii() and char.isalnum() else "-" for char in socket.gethostname())
    return f"{machine[:100] or 'host'}:{os.getpid()}"


def _is_final(error: MoorageError) -> bool:
    """Whether asking the same again would be answered the same."""
    cause = error.__cause__
    return isinstance(cause, Problem) and cause.final


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """Let SIGTERM and Ctrl-C stop, where the loop can listen to them."""
    loop = asyncio.get_running_loop()
    heard: list[signal.Signals] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, stop)
            heard.append(number)
    try:
        yield
    finally:
        for number in heard:
            loop.remove_signal_handler(number)

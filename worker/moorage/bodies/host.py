"""Holding executions: driving each, and keeping all of them with one keeper (clauses runs.owner-lease, runs.poll).

The Runner's Durable Object and hosts outside the Worker are this class around their own substrate. Whoever loses an
execution lets go of it at once and sends nothing more; whoever is stopped, shut down or woken hears of it here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, Protocol

import httpx

from moorage.bodies import last_resort
from moorage.bodies.commits import Sleep
from moorage.bodies.core import World
from moorage.bodies.engine import End, Engine, within
from moorage.bodies.holding import Holder
from moorage.bodies.observe import Spans
from moorage.bodies.registry import Registry
from moorage.bodies.tasks import begin
from moorage.kernel.errors import BodyUnknown, LeaseExpired, LeaseFenced, MoorageError
from moorage.kernel.instants import Instant, after
from moorage.kernel.limits import OWNER_RENEW_SECONDS, STOP_POLL_MS
from moorage.runs.model import Execution, Stop
from moorage.runs.observing import Observer
from moorage.runs.substrate_port import Substrate

log = logging.getLogger("moorage.bodies")

CLOSE_SECONDS: Final = 1
"""How long a host that is closed waits for an execution that does not let go of itself, before it is cut off."""

AGAIN: Final = 20
"""How often an execution that was woken while it was let go of is taken up again in one go."""


class Take(Protocol):
    """How a host takes an execution that is due; None: there is nothing to take, or somebody else has it."""

    def __call__(self, execution_id: str, /) -> Awaitable[Execution | None]:
        """One round trip."""


class _Held:
    """An execution in hand, and when its lease is renewed next."""

    __slots__ = ("engine", "execution", "expires_at", "renew_at")

    def __init__(self, engine: Engine, now: Instant) -> None:
        self.engine = engine
        self.execution = engine.execution
        self.expires_at = engine.execution.lease.expires_at
        # A lease that was handed over is short, and where many were at once a renewal takes its time: at the first look.
        own = self.expires_at > after(now, OWNER_RENEW_SECONDS)
        self.renew_at = after(now, OWNER_RENEW_SECONDS) if own else now


class Host:
    """Drives executions of the bodies of a registry. One keeper renews all leases and looks for all stops.

    `take` is asked when an execution that is not in hand is woken. `now` and `sleep` are the clock; `observer` hears of
    changes, `spans` of runs that were let go of, and `transport` is what `run.fetch` sends with: without one there is none.
    `name` tells people which host it is; guards name its identity, drawn here (`leave` says that it is gone). `secret` gives
    the value of a binding by name, for the destinations that have one.
    """

    def __init__(
        self,
        registry: Registry,
        substrate: Substrate,
        *,
        take: Take | None = None,
        now: Callable[[], Instant],
        sleep: Sleep = asyncio.sleep,
        observer: Observer | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        spans: Spans | None = None,
        name: str = "host",
        secret: Callable[[str], str | None] = lambda _name: None,
    ) -> None:
        self.registry = registry
        self._substrate = substrate
        self._take = take
        self._now = now
        self.holder = Holder(substrate, now, sleep, name)
        self._world = World(substrate, now, sleep, self.holder, observer, spans, transport, secret)
        self._held: dict[str, _Held] = {}
        self._tasks: dict[str, asyncio.Task[End]] = {}
        self._missed: set[str] = set()
        self._closing = False
        self._keeper: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether anything is in hand, or about to be."""
        return bool(self._held or self._tasks)

    @property
    def held(self) -> Mapping[str, Execution]:
        """The executions in hand, by id."""
        return {name: held.execution for name, held in self._held.items()}

    @property
    def driven(self) -> Collection[str]:
        """The executions that something is done about: in hand, being taken, or just being let go of."""
        return self._tasks.keys()

    # --- taking up, waking, stopping ----------------------------------------------------------------------------------

    async def run(self, execution: Execution) -> End:
        """Drive an execution until it is let go of: ended, suspended, or lost. Raises nothing that its body does.

        What was woken or stopped in the instant in which it was let go of is taken up again.
        """
        ended, again = await self._drive(execution)
        for _ in range(AGAIN):
            if not again or (taken := await self._taken(execution.execution_id)) is None:
                break
            ended, again = await self._drive(taken)
        return ended

    def start(self, execution: Execution) -> "asyncio.Task[End]":
        """The same in a task of its own. An execution that is in hand already is not started again."""
        name = execution.execution_id
        running = self._tasks.get(name)
        if running is None:
            running = self._spawn(name, self.run(execution))
        return running

    def wake(self, execution_id: str) -> "asyncio.Task[End] | None":
        """Something happened to an execution: one in hand looks what, another one is taken, if it is to be had."""
        held = self._held.get(execution_id)
        if held is not None:
            held.engine.wake()
            return self._tasks.get(execution_id)
        if (task := self._tasks.get(execution_id)) is not None:
            # It is being taken, or has just been let go of: whatever that saw, somebody looks once more.
            self._missed.add(execution_id)
            return task
        if self._take is None:
            return None
        return self._spawn(execution_id, self._take_and_run(execution_id))

    def stop(self, execution_id: str) -> bool:
        """Stop an execution in hand: whatever it does is canceled, and its run closes as canceled."""
        held = self._held.get(execution_id)
        if held is not None:
            held.engine.stop()
        return held is not None

    async def close(self) -> None:
        """Let go of everything at once, recording nothing more: leases lapse, and others take over."""
        self._closing = True
        for held in list(self._held.values()):
            held.engine.lose(LeaseFenced("the host is shutting down"))
        tasks = list(self._tasks.values())
        for task in tasks:
            await within(task, CLOSE_SECONDS, self._world.sleep)
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._keeper is not None:
            self._keeper.cancel()

    def in_flight(self, execution_id: str) -> list[dict[str, Any]]:
        """The guards of an execution in hand, as people see them among what a run awaits."""
        held = self._held.get(execution_id)
        return [] if held is None else held.engine.guarded(held.engine.standing)

    async def leave(self, reason: str) -> bool:
        """After `close`: record that this host is gone, so that what it had in flight may be replayed where that is safe.

        Whether it is: one whose callbacks would not end stays a holder, and so does one that is never told to leave.
        """
        return await self.holder.leave(reason)

    async def settled(self) -> None:
        """Until nothing is in hand."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    # --- one execution ------------------------------------------------------------------------------------------------

    def _spawn(self, name: str, work: Any) -> "asyncio.Task[End]":
        task: asyncio.Task[End] = begin(work, f"execution {name}")
        self._tasks[name] = task
        task.add_done_callback(lambda done: self._forget(name, done))
        return task

    def _forget(self, name: str, task: "asyncio.Task[End]") -> None:
        self._tasks.pop(name, None)
        missed = name in self._missed
        self._missed.discard(name)
        if missed and self._take is not None and not self._closing:
            self._spawn(name, self._take_and_run(name))
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("driving execution %s failed", name, exc_info=error)

    async def _take_and_run(self, execution_id: str) -> End:
        taken = await self._taken(execution_id)
        return "lost" if taken is None else await self.run(taken)

    async def _taken(self, execution_id: str) -> Execution | None:
        if self._take is None:
            return None
        try:
            return await self._take(execution_id)
        except MoorageError as error:
            # The Clock comes back to it.
            log.warning("execution %s could not be taken: %s", execution_id, error)
            return None

    async def _drive(self, execution: Execution) -> tuple[End, bool]:
        """How it was let go of, and whether something asked for it in that very instant."""
        try:
            body = self.registry.get(execution.body)
        except BodyUnknown:
            log.warning("execution %s is of the body %r, which this host has not", execution.execution_id, execution.body)
            return "lost", False
        if self.registry.build(body.name) != execution.pins.build:
            log.warning("execution %s is bound to another build of %r", execution.execution_id, body.name)
            return "lost", False
        try:
            engine = Engine(body, execution, self._world)
            self._held[execution.execution_id] = _Held(engine, self._now())
            self._keep()
            ended = await engine.drive()
        except MoorageError as error:
            log.warning("execution %s was let go of: %s", execution.execution_id, error)
            return "lost", False
        except Exception as error:
            return await last_resort.close(self._world, execution, error), False
        finally:
            self._held.pop(execution.execution_id, None)
        return ended, ended in ("waiting", "suspended") and (engine.woken or engine.stopping)

    # --- the keeper ---------------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        if self._keeper is None or self._keeper.done():
            self._keeper = begin(self._keeping(), "keeper")

    async def _keeping(self) -> None:
        """Renew what is due, look for stops, and sleep until the next of it, until a look finds nothing in hand.

        A keeper that ended with each short run would be begun anew with the next one.
        """
        while self._held:
            await self._world.sleep(STOP_POLL_MS / 1000)
            for look in (self._renew, self._look_for_stops):
                try:
                    await look()
                except MoorageError as error:
                    log.warning("the keeper could not look: %s", error)
                except Exception:
                    # The keeper is shared: one fault in it must not cost every other execution its lease.
                    log.exception("the keeper failed, and goes on")

    async def _look_for_stops(self) -> None:
        held = dict(self._held)
        if not held:
            return
        found: dict[str, Stop] = await self._substrate.stops([one.execution.fence for one in held.values()])
        for name in found:
            if name in held:
                held[name].engine.stop()

    async def _renew(self) -> None:
        now = self._now()
        due = {name: one for name, one in self._held.items() if one.renew_at <= now}
        if not due:
            return
        try:
            leases = await self._substrate.renew([one.execution.fence for one in due.values()])
        except MoorageError:
            for one in due.values():
                if one.expires_at <= self._now():
                    one.engine.lose(LeaseExpired("the lease ran out before it could be renewed"))
            raise
        for name, one in due.items():
            lease = leases.get(name)
            if lease is None:
                one.engine.lose(LeaseFenced("the lease could not be renewed: it is somebody else's"))
            else:
                one.expires_at = lease.expires_at
                one.renew_at = after(now, OWNER_RENEW_SECONDS)

"""What the API needs from whatever runs it: storage, a clock, a way to wake the Clock, and settings.

The edge makes `Ports` from a Worker's bindings, tests make them from SQLite.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from moorage.api.lateness import Lateness
from moorage.api.lives import Lives
from moorage.api.routing_events import Routing
from moorage.catalog.credentials import Credentials
from moorage.catalog.kinds import Kinds
from moorage.kernel.instants import Instant
from moorage.runs.configuration import Configurations
from moorage.runs.hosting import Fences
from moorage.runs.model import BodyInfo, Execution
from moorage.runs.tracing import NoSpans, Spans
from moorage.store import recovery, schema
from moorage.store.ports import Blobs, Cost, Database, Frontiers
from moorage.timers.bell import Bells
from moorage.timers.due import DueWork, Shard

Wake = Callable[[Instant, Shard], None]
"""Told, after a commit, the earliest instant at which what it stored becomes due, and the shard that fires it. Returns at
once and never fails."""


@dataclass(frozen=True, slots=True)
class Otlp:
    """A collector of OpenTelemetry traces over HTTP: its URL for traces, and headers that may hold a credential."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    service: str = "moorage"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the deployment's variables say.

    `allowed_origins` are origins that browsers may call from; `*` is every one. `secrets` are what the log must never show;
    `allow_local` lets destinations be on this network, for development. Artifacts are shredded when nobody has attached them
    in `attach_seconds`, unless their upload says otherwise; None keeps them. `runners` is among how many Runners the
    executions are shared whose scope nobody named. Tokens of runs are derived from `derivation_keys`: the first mints, all
    are tried on replay. `otlp` says where spans of runs are sent, if anywhere. `url` is the deployment's own address,
    without a slash at its end; runs name their awakeables' URLs by it, and by their path alone where it is empty. `project`
    is whose storage this is, `profile` which kind of storage it takes itself to have, and `missing` names bindings that it
    has not.
    """

    allowed_origins: frozenset[str] = frozenset()
    runtime: str = "host"
    secrets: tuple[str, ...] = field(default=(), repr=False)
    root_access: bool = True
    allow_local: bool = False
    attach_seconds: int | None = None
    runners: int = 32
    derivation_keys: tuple[str, ...] = field(default=(), repr=False)
    otlp: Otlp | None = None
    url: str = ""
    project: str = "moorage"
    profile: str = recovery.PROFILE
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move of the test clock did: the new now, how many of what fired, and what firing cost and the routing of the
    events that were accepted on the way."""

    now: Instant
    fired: Mapping[str, int]
    firing: Cost = field(default_factory=Cost)
    routing: Cost = field(default_factory=Cost)


class TestClock(Protocol):
    """The product's clock where `MOORAGE_TEST_CLOCK=1`."""

    async def read(self) -> tuple[Instant, float]:
        """The product's now, and its offset from real time in seconds."""

    async def advance(self, seconds: float) -> Moved:
        """Move the clock forward and fire everything that became due, in order."""


@dataclass(frozen=True, slots=True)
class Poke:
    """An execution for which a commit made work: `host` is worker or remote, `runner` the Runner of one in the Worker."""

    execution_id: str
    host: str
    runner: str
    body: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that a commit ended, the Runner that keeps its live view, and whether a schedule may have waited for it."""

    run_id: str
    runner: str
    scheduled: bool = False


class Runners(Protocol):
    """Whoever executes bodies, as requests and the Clock see them (clause runs.substrate).

    Both return at once and never fail. What is lost on the way the Clock makes good, by `executions.wake_at`.
    """

    def start(self, execution: Execution) -> None:
        """Hand over an execution of the Worker to the Runner that its lease was granted to as it was admitted."""

    def poke(self, executions: Sequence[Poke]) -> None:
        """Tell the hosts of these executions that there is work: something ended, a stop was asked for, a retry is due."""


class Bodies(Protocol):
    """The bodies that the Worker itself executes: `moorage.bodies.registry.Registry`."""

    def get(self, name: str) -> BodyInfo | None:
        """One of them, or None."""

    def infos(self) -> Sequence[BodyInfo]:
        """All of them, by name."""

    def check_input(self, name: str, value: Any) -> None:
        """Raise InputInvalid, with JSON pointers, unless the value is what the body takes."""


class NoBodies:
    """A deployment without bodies of its own."""

    def get(self, name: str) -> BodyInfo | None:
        return None

    def infos(self) -> Sequence[BodyInfo]:
        return ()

    def check_input(self, name: str, value: Any) -> None:
        return None


class SchemaGate:
    """Remembers, for the life of the isolate, that the database's schema is this executable's (clause store.schema)."""

    def __init__(self) -> None:
        self._passed = False

    async def pass_through(self, database: Callable[[], Database]) -> None:
        """Raises ExecutionSchemaIncompatible until the database has the right schema; asks it until then."""
        if not self._passed:
            await schema.check(database())
            self._passed = True


class Beside:
    """What requests of this process leave to be done beside them, held until it is."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Future[None]] = set()

    def __call__(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


@dataclass(frozen=True, slots=True)
class Ports:
    """`database` gives a fresh Database for each request, `secret` the binding of a name; `ticks` are milliseconds on any
    steady scale."""

    database: Callable[[], Database]
    blobs: Blobs | None
    now: Callable[[], Instant]
    kinds: Kinds
    credentials: Credentials
    wake: Wake
    bells: Bells
    runners: Runners
    lives: Lives
    bodies: Bodies = field(default_factory=NoBodies)
    fences: Fences = field(default_factory=Fences)
    configurations: Configurations = field(default_factory=Configurations)
    settings: Settings = Settings()
    secret: Callable[[str], str | None] = lambda name: None
    test_clock: TestClock | None = None
    spans: Spans = field(default_factory=NoSpans)
    gate: SchemaGate = field(default_factory=SchemaGate)
    frontiers: Frontiers | None = None
    binding: recovery.Gate = field(default_factory=recovery.Gate)
    ticks: Callable[[], float] = lambda: time.perf_counter() * 1000
    works: Sequence[DueWork] = ()
    entered: Callable[[Collection[str]], None] = lambda types: None
    """Told, after each commit that appends to history, the types of what was appended. Returns at once and never fails."""
    later: Callable[[Coroutine[Any, Any, None]], Any] = field(default_factory=Beside)
    """Runs what a request leaves to be done beside it, at the latest for as long as the platform lets it."""
    routing: Routing = field(default_factory=lambda: Routing(time.perf_counter))
    lateness: Lateness = field(default_factory=lambda: Lateness((), time.perf_counter))

    async def admit_effects(self) -> None:
        """Raise unless work that has effects may be admitted (clauses store.incomplete, store.recovery-identity).

        Costs nothing once it was admitted in this isolate. Raises StorageProfileUnsupported, StorageCapabilityMissing,
        ExecutionRecoveryMismatch.
        """
        told = self.settings
        await self.binding.require(self.database, self.frontiers, told.project, told.profile, told.missing)

    def ended(self, runs: Sequence[Ended]) -> None:
        """Tell those who watch these runs, the collector of spans, and the Clock where a schedule may have waited for one.
        Returns at once and never fails."""
        for run in runs:
            self.lives.changed(run.run_id, run.runner)
            self.spans.ended(run.run_id)
            if run.scheduled:
                self.wake(self.now(), "time")

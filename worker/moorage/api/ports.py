"""What the API needs from whatever runs it: storage, a clock, a way to wake the Clock, and settings.

The edge makes `Ports` from a Worker's bindings, tests make them from SQLite.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from moorage.catalog.credentials import Credentials
from moorage.catalog.kinds import Kinds
from moorage.kernel.instants import Instant
from moorage.store import schema
from moorage.store.ports import Blobs, Database
from moorage.timers.bell import Bells

Wake = Callable[[Instant], None]
"""Told, after a commit, the earliest instant at which what it stored becomes due. Returns at once and never fails."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the deployment's variables say.

    `allowed_origins` are origins that browsers may call from; `*` is every one. `secrets` are what the log must never show;
    `allow_local` lets destinations be on this network, for development. Artifacts are shredded when nobody has attached them
    in `attach_seconds`, unless their upload says otherwise; None keeps them.
    """

    allowed_origins: frozenset[str] = frozenset()
    runtime: str = "host"
    secrets: tuple[str, ...] = field(default=(), repr=False)
    root_access: bool = True
    allow_local: bool = False
    attach_seconds: int | None = None


class TestClock(Protocol):
    """The product's clock where `MOORAGE_TEST_CLOCK=1`."""

    async def read(self) -> tuple[Instant, float]:
        """The product's now, and its offset from real time in seconds."""

    async def advance(self, seconds: float) -> tuple[Instant, Mapping[str, int]]:
        """Move the clock forward and fire everything that became due, in order; answers now and how many of what."""


class SchemaGate:
    """Remembers, for the life of the isolate, that the database's schema is this executable's (clause store.schema)."""

    def __init__(self) -> None:
        self._passed = False

    async def pass_through(self, database: Callable[[], Database]) -> None:
        """Raises ExecutionSchemaIncompatible until the database has the right schema; asks it until then."""
        if not self._passed:
            await schema.check(database())
            self._passed = True


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
    settings: Settings = Settings()
    secret: Callable[[str], str | None] = lambda name: None
    test_clock: TestClock | None = None
    gate: SchemaGate = field(default_factory=SchemaGate)
    ticks: Callable[[], float] = lambda: time.perf_counter() * 1000

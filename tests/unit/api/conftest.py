"""The application on SQLite, with a clock that tests drive."""

import sqlite3
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from moorage.api.app import Application, build_app
from moorage.api.assembly import assemble, due_works, look_for
from moorage.api.ports import Bodies, Moved, Ports, Settings
from moorage.api.ringing import RingingDatabase
from moorage.api.runners import HostRunners
from moorage.kernel.instants import Instant, after
from moorage.store import recovery
from moorage.store.ports import Blobs, Frontiers
from moorage.store.sqlite import SqliteDatabase, connect
from moorage.timers import clock
from moorage.timers.bell import HostBells
from moorage.timers.due import Due, Shard
from tests.contract.adapters import HeldFrontiers, at_once

ROOT = "root-token-for-tests"
ORIGIN = "https://app.example.test"
START = Instant(1_796_000_000_000)


@dataclass
class House:
    """One deployment on the host: its database, its clock, what was told to the Clock, and a client of it."""

    connection: sqlite3.Connection
    now: Instant = START
    woken: list[Instant] = field(default_factory=list)
    dues: list[Due] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)
    blobs: Blobs | None = None
    frontiers: Frontiers | None = field(default_factory=HeldFrontiers)
    bodies: Bodies | None = None
    bells: HostBells = field(init=False)
    runners: HostRunners = field(init=False)

    def __post_init__(self) -> None:
        self.bells = HostBells(time.monotonic, lambda kind: look_for(self.database(), kind))
        self.runners = HostRunners(ring=self.bells.ring)

    def initialized(self) -> "House":
        """The same, its storage bound as `moorage storage initialize` binds it."""
        assert self.frontiers is not None
        at_once(recovery.initialize(self.database(), self.frontiers, self.now, "moorage"))
        return self

    def database(self) -> SqliteDatabase:
        return SqliteDatabase(self.connection)

    def wake(self, due: Instant, shard: Shard) -> None:
        self.woken.append(due)
        self.dues.append((due, shard))

    def ports(self, **changes: Any) -> Ports:
        settings = Settings(allowed_origins=frozenset({ORIGIN}), secrets=(ROOT,), derivation_keys=(ROOT,))
        wanted: dict[str, Any] = {
            "database": self.database,
            "blobs": self.blobs,
            "now": lambda: self.now,
            "root_token": ROOT,
            "wake": self.wake,
            "settings": settings,
            "secret": self.secrets.get,
            "test_clock": self,
            "bells": self.bells,
            "runners": self.runners,
            "frontiers": self.frontiers,
        }
        return assemble(**{**wanted, **changes})

    async def read(self) -> tuple[Instant, float]:
        return self.now, (self.now - START) / 1000

    async def advance(self, seconds: float) -> Moved:
        before, self.now = self.now, after(self.now, seconds)
        drained = await clock.advance(
            lambda: RingingDatabase(self.database(), self.bells.ring, self.runners.poke),
            before,
            self.now,
            due_works(self.blobs, bodies=self.bodies),
        )
        return Moved(self.now, drained.fired, drained.cost)


def client_of(app: Application, token: str | None = ROOT) -> httpx.AsyncClient:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=True)
    return httpx.AsyncClient(transport=transport, base_url="http://moorage.test", headers=headers)


@pytest.fixture(scope="session")
def schema() -> str:
    folder = Path(__file__).parents[3] / "d1_schema"
    return "\n".join(file.read_text() for file in sorted(folder.glob("*.sql")))


@pytest.fixture
def house(schema: str) -> House:
    connection = connect(":memory:")
    connection.executescript(schema)
    return House(connection).initialized()


@pytest.fixture
def app(house: House) -> Application:
    return build_app(house.ports())


@pytest.fixture
async def root(app: Application) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app) as client:
        yield client


@pytest.fixture
async def nobody(app: Application) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app, None) as client:
        yield client

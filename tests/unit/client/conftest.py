"""The client against the application on SQLite, both on one clock that tests drive."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import httpx
import pytest

from moorage.api.app import build_app
from moorage.client import Moorage, Patience
from tests.unit.api.conftest import ROOT, START, House, house, schema

__all__ = ["ROOT", "house", "schema"]

TURNS = 2000


@dataclass
class Driven:
    """A clock for the client that moves only when a test moves it, and wakes who sleeps by it, in order."""

    seconds: float = 0.0
    sleepers: list[tuple[float, asyncio.Future[None]]] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (self.seconds + seconds, waiting)
        self.sleepers.append(entry)
        try:
            await waiting
        finally:
            self.sleepers.remove(entry)

    def next_due(self) -> float | None:
        return min((due for due, waiting in self.sleepers if not waiting.done()), default=None)


@dataclass
class World:
    """The house, the client's clock, and moving both."""

    house: House
    clock: Driven

    async def advance(self, seconds: float) -> None:
        """Let time pass for the client and the deployment alike, waking each sleeper at its instant."""
        end = self.clock.seconds + seconds
        await settled()
        while (due := self.clock.next_due()) is not None and due <= end:
            await self._move(due)
            for at, waiting in list(self.clock.sleepers):
                if at <= due and not waiting.done():
                    waiting.set_result(None)
            await settled()
        await self._move(end)
        await settled()

    async def leap(self, seconds: float) -> None:
        """Let much time pass at once, as when the machine slept: each sleeper wakes late, and once."""
        await self._move(self.clock.seconds + seconds)
        await self.advance(0)

    async def _move(self, to: float) -> None:
        self.clock.seconds = max(self.clock.seconds, to)
        ahead = self.clock.seconds - (self.house.now - START) / 1000
        if ahead > 0:
            await self.house.advance(ahead)

    async def until(self, holds: Callable[[], object]) -> None:
        """Let tasks run, without any time passing, until something holds."""
        for _ in range(TURNS):
            if holds():
                return
            await asyncio.sleep(0)
        raise AssertionError("it never held")


async def settled() -> None:
    """Let every task run until it waits; a request on the host takes a few dozen turns."""
    for _ in range(150):
        await asyncio.sleep(0)


class Impatient:
    """Sleeps not at all, and remembers how long it was asked to."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> float:
        return sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


@pytest.fixture
def world(house: House) -> World:
    return World(house, Driven())


@pytest.fixture
def transport(house: House) -> httpx.ASGITransport:
    return httpx.ASGITransport(app=build_app(house.ports()), raise_app_exceptions=True)


@pytest.fixture
async def moorage(world: World, transport: httpx.ASGITransport) -> AsyncIterator[Moorage]:
    async with Moorage("http://moorage.test", ROOT, transport=transport, timing=world.clock) as client:
        await client.kinds.put("doc", {"paths": {"n": "number", "t": "string"}, "claim": {"max_attempts": 2}})
        yield client


@pytest.fixture
def impatient() -> Impatient:
    return Impatient()


@pytest.fixture
async def remote(impatient: Impatient) -> AsyncIterator[Moorage]:
    """A client of a deployment that tests play with respx; its waits are certain and take no time."""
    patience = Patience(tries=4, first_seconds=1, longest_seconds=3, longest_retry_after=30)
    async with Moorage("https://moorage.example", "token", patience=patience, timing=impatient) as client:
        object.__setattr__(client.wire, "chance", lambda: 0.0)
        yield client


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MOORAGE_URL", "MOORAGE_TOKEN"):
        monkeypatch.delenv(name, raising=False)

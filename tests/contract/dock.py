"""What the tests of sending work with: deliveries in a store, a Courier, and a subscriber that answers as a test says."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from moorage.api.ringing import RingingDatabase
from moorage.catalog import destinations
from moorage.catalog.access import Caller
from moorage.catalog.model import DestinationDeclaration
from moorage.kernel.instants import Instant, after, render
from moorage.messages.outbox.courier import Courier, DeliveriesDue
from moorage.messages.outbox.sending import Sender
from moorage.store.ports import Database
from moorage.timers import clock
from tests.contract.adapters import Store

START = Instant(1_800_000_000_000)
ROOT = Caller("root")
SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
URL = "https://there.example.com/hook"

INSERT = """
INSERT INTO deliveries (delivery_id, subscription, destination, event_id, type, aggregate_id, position, generation, state,
    attempts, epoch, next_attempt_at, occurred_at, created_at, body)
SELECT 'dlv_' || printf('%06d', value), 'all', ?, 'dom_' || printf('%016d', value), 'record.published', 'rec_' || value,
    value, 1, 'pending', 0, 0, ?, ?, ?, json_object('n', value, 'text', 'ünï') FROM json_each(?)
"""

Answering = Callable[["Got"], Awaitable[httpx.Response] | httpx.Response]


@dataclass(frozen=True)
class Got:
    """A request as the subscriber got it."""

    headers: httpx.Headers
    content: bytes
    at: Instant
    url: str
    method: str

    @property
    def id(self) -> str:
        return str(self.headers["webhook-id"])

    @property
    def attempt(self) -> int:
        return int(self.headers["moorage-attempt"])


class Subscriber(httpx.AsyncBaseTransport):
    """Whoever answers deliveries. `answer` says how; it counts how many are under way at once."""

    def __init__(self, now: Callable[[], Instant]) -> None:
        self._now = now
        self.got: list[Got] = []
        self.answer: Answering = lambda got: httpx.Response(204)
        self.under_way = 0
        self.most = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        got = Got(request.headers, request.content, self._now(), str(request.url), request.method)
        self.got.append(got)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(0)
            answered = self.answer(got)
            return answered if isinstance(answered, httpx.Response) else await answered
        finally:
            self.under_way -= 1

    def ids(self) -> list[str]:
        return [got.id for got in self.got]


@dataclass
class Dock:
    """One destination `there` in a store, seen at the instant `now`. `draw` stands for randomness."""

    store: Store
    now: Instant = START
    draw: float = 1.0
    secrets: dict[str, str] = field(default_factory=lambda: {"HOOK": SECRET})
    woken: list[Instant] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.subscriber = Subscriber(lambda: self.now)
        self.courier = self.new_courier()

    def new_courier(self, *, allow_local: bool = False) -> Courier:
        """A Courier as after a crash: it has nothing under way."""
        sender = Sender(self.subscriber, self.secrets.get, allow_local)
        return Courier("there", self.database, lambda: self.now, sender, lambda: self.draw, self.woken.append)

    def database(self) -> Database:
        return RingingDatabase(self.store.db(), lambda rings: None, lambda pokes: None)

    async def declare(self, secret: str | None = "env:HOOK", url: str = URL, **delivery: Any) -> None:  # noqa: S107 - a name
        told = DestinationDeclaration.model_validate({"url": url, "secret": secret, "delivery": delivery})
        await destinations.put(self.store.db(), ROOT, self.now, "there", told)

    async def insert(self, *positions: int) -> None:
        numbers = json.dumps(list(positions))
        await self.store.sql(INSERT, "there", self.now, self.now, self.now, numbers)

    async def send(self) -> None:
        """Let the Courier do what it can at this instant."""
        self.courier.tell()
        await self.courier.settled()

    async def clock(self) -> int:
        """Fire what is due of deliveries as the Clock does, and let the Courier do it; answers how often it was told."""
        told: list[str] = []
        noop: Callable[[Any], None] = lambda ignored: None  # noqa: E731
        ringing = lambda: RingingDatabase(self.store.db(), noop, noop, summon=told.extend)  # noqa: E731
        await clock.drain(ringing, self.now, [DeliveriesDue()])
        if told:
            await self.send()
        return len(told)

    async def due(self) -> Instant | None:
        """When the Clock is to look again."""
        return await clock.next_due(self.store.db(), self.now, [DeliveriesDue()])

    def wait(self, seconds: float) -> None:
        self.now = after(self.now, seconds)

    async def rows(self) -> list[dict[str, Any]]:
        return await self.store.sql("SELECT * FROM deliveries ORDER BY position")

    async def row(self, position: int = 1) -> dict[str, Any]:
        return next(row for row in await self.rows() if row["position"] == position)

    async def states(self) -> list[str]:
        return [row["state"] for row in await self.rows()]

    async def health(self) -> dict[str, Any]:
        rows = await self.store.sql("SELECT * FROM couriers WHERE destination = 'there'")
        return rows[0] if rows else {"state": "closed", "failures": 0, "blocked_until": None}


def at(seconds: float) -> str:
    """The instant so many seconds after the start, as it is written."""
    return render(after(START, seconds))

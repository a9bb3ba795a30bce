"""Watches on the real edge: nothing lost, nothing twice, in order, whatever breaks; and a hundred of them at once."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import httpx
import pytest

from ops.local.edge import LocalEdge
from tests.edge.client import client, crowd, declare, fresh, good
from tests.edge.conftest import EdgeFactory

pytestmark = pytest.mark.edge

WATCHERS = 100


@dataclass(frozen=True)
class Event:
    """One event of a stream, and when it came."""

    id: int
    type: str
    data: dict[str, Any]
    came: float


async def events(api: httpx.AsyncClient, kind: str, last: int | None = None, **query: Any) -> AsyncIterator[Event]:
    """One stream's events until it ends or is broken."""
    headers = {} if last is None else {"last-event-id": str(last)}
    fields: dict[str, str] = {}
    async with api.stream("GET", "/watch", params={"kind": kind, **query}, headers=headers) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
                continue
            if "data" in fields:
                data = json.loads(fields["data"])
                assert (int(fields["id"]), fields["event"]) == (data["position"], data["type"])
                yield Event(int(fields["id"]), fields["event"], data, time.monotonic())
            fields.clear()


async def follow(api: httpx.AsyncClient, kind: str, found: list[Event], until: int, **query: Any) -> None:
    """What a client does: read, and connect again where the stream ended, until so many events have come."""
    end = time.monotonic() + 60
    while len(found) < until:
        assert time.monotonic() < end, f"{len(found)} of {until} events"
        try:
            async for event in events(api, kind, found[-1].id if found else None, **query):
                found.append(event)
                if len(found) == until:
                    return
        except httpx.TransportError:
            await asyncio.sleep(0.2)


def expected(edge: LocalEdge, kind: str) -> list[int]:
    """The positions of everything that happened to a kind's records."""
    positions: list[int] = []
    after = 0
    with client(edge) as api:
        while True:
            page = good(api.get("/history", params={"after": after, "limit": 500}))["items"]
            if not page:
                return positions
            positions += [one["position"] for one in page if one["kind"] == kind and one["type"].startswith("record.")]
            after = page[-1]["position"]


def kind_of(edge: LocalEdge) -> str:
    with client(edge) as api:
        return declare(api, fresh("watched"), {"n": "number"})


async def publish(api: httpx.AsyncClient, kind: str, n: int) -> None:
    good(await api.post("/records", json={"kind": kind, "body": {"n": n}}))


@pytest.mark.clause("history.watch")
async def test_events_come_at_once_and_the_stream_ends_in_order(edge: LocalEdge) -> None:
    kind = kind_of(edge)
    async with crowd(edge) as api:
        found: list[Event] = []

        async def watch() -> None:
            found.extend([event async for event in events(api, kind, max_seconds=8)])

        watching = asyncio.create_task(watch())
        await asyncio.sleep(0.5)
        sent: list[float] = []
        for n in range(10):
            sent.append(time.monotonic())
            await publish(api, kind, n)
            await asyncio.sleep(0.1)
        await asyncio.wait_for(watching, 60)
    assert [event.data["record"]["body"]["n"] for event in found] == list(range(10))
    late = [(event.came - begun) * 1000 for event, begun in zip(found, sent, strict=True)]
    print(f"\nan event comes {median(late):.0f} ms after its publish was sent (at most {max(late):.0f})")
    assert median(late) < 500


@pytest.mark.clause("history.watch")
async def test_a_hundred_watchers_each_see_everything_in_order(edge: LocalEdge) -> None:
    kind = kind_of(edge)
    async with crowd(edge, WATCHERS + 10) as api:
        found: list[list[Event]] = [[] for _ in range(WATCHERS)]
        tasks = [asyncio.create_task(follow(api, kind, one, 60)) for one in found]
        await asyncio.sleep(1)
        await asyncio.gather(*(publish(api, kind, n) for n in range(60)))
        await asyncio.gather(*tasks)
    positions = expected(edge, kind)
    assert len(positions) == 60
    assert all([event.id for event in one] == positions for one in found)


@pytest.mark.clause("history.watch")
async def test_clients_that_come_and_go_while_many_commit_lose_and_double_nothing(edge: LocalEdge) -> None:
    kind = kind_of(edge)
    async with crowd(edge, 40) as api:
        streams: list[list[Event]] = [[] for _ in range(4)]
        polled: list[dict[str, Any]] = []

        async def poll() -> None:
            after = 0
            while len(polled) < 150:
                params: dict[str, str | int] = {"kind": kind, "after": after, "wait_seconds": 5}
                page = good(await api.get("/watch", params=params, headers={"accept": "application/json"}))
                polled.extend(page["items"])
                after = page["next"]

        async def life(n: int) -> None:
            await publish(api, kind, n)
            answer = await api.post("/claims", json={"kind": kind, "worker": "w", "wait_seconds": 10})
            (claim,) = good(answer)["claims"]
            path = f"/claims/{claim['record']['id']}/settle"
            good(await api.post(path, json={"epoch": claim["lease"]["epoch"]}))

        short = [asyncio.create_task(follow(api, kind, one, 150, max_seconds=0.5)) for one in streams]
        await asyncio.gather(poll(), *short, *(life(n) for n in range(50)))
    positions = expected(edge, kind)
    assert len(positions) == 150
    assert [item["position"] for item in polled] == positions
    assert all([event.id for event in one] == positions for one in streams)


@pytest.mark.clause("history.watch")
async def test_a_slow_client_holds_up_nobody_and_gets_everything(edge: LocalEdge) -> None:
    kind = kind_of(edge)
    async with crowd(edge) as api:
        body = {"n": 1, "text": "x" * 20_000}
        batch = {"records": [{"kind": kind, "body": body}] * 50}
        slow: list[int] = []
        quick: list[Event] = []
        good(await api.post("/records/batch", json=batch))
        async for event in events(api, kind):
            slow.append(event.id)
            if len(slow) == 1:
                for _ in range(11):
                    good(await api.post("/records/batch", json=batch))
                await follow(api, kind, quick, 600)
            elif len(slow) == 600:
                break
    assert slow == [event.id for event in quick]


@pytest.fixture
def own(edge_factory: EdgeFactory) -> Iterator[LocalEdge]:
    """An edge that may be killed."""
    edge = edge_factory()
    yield edge
    edge.stop()


async def back(api: httpx.AsyncClient) -> None:
    """Wait until workerd, which is started again by itself, answers."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            if (await api.get("/health")).is_success:
                return
        except httpx.TransportError:
            await asyncio.sleep(0.2)
    raise AssertionError("workerd did not come back")


@pytest.mark.crash
@pytest.mark.clause("history.watch")
async def test_a_watch_goes_on_across_a_kill_without_loss_or_doubles(own: LocalEdge) -> None:
    kind = kind_of(own)
    async with crowd(own, 30) as api:
        found: list[Event] = []
        watching = asyncio.create_task(follow(api, kind, found, 60))

        async def publish_all(first: int, count: int) -> None:
            await asyncio.gather(*(publish(api, kind, n) for n in range(first, first + count)))

        await publish_all(0, 20)
        killed = asyncio.gather(publish_all(20, 20), return_exceptions=True)
        await asyncio.sleep(0.03)
        own.kill_workerd()
        await killed
        await back(api)
        survived = len(await asyncio.to_thread(expected, own, kind))
        assert 20 <= survived <= 40
        await publish_all(40, 60 - survived)
        await asyncio.wait_for(watching, 60)
    assert [event.id for event in found] == expected(own, kind)

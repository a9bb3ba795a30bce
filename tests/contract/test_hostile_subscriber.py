"""A subscriber that is down for a day, then slow, then asks for time in every way: it gets every event all the same.

Every event arrives at least once, with the same identity and the same bytes however often, and never are more under way than
the destination allows. The clock is driven; nothing here waits for a day.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from moorage.kernel.instants import Instant, after
from moorage.kernel.limits import DELIVERY_RETRY_AFTER_SECONDS
from moorage.messages.outbox.circuit import LONGEST_SECONDS
from tests.contract.adapters import sqlite_store
from tests.contract.dock import START, Dock, Got
from tests.unit.messages.test_sending import SHAPES

pytestmark = pytest.mark.clause("outbox.deliver")

DAY = 86_400
CONCURRENCY = 4


@pytest.fixture
async def dock(tmp_path: Path) -> AsyncIterator[Dock]:
    async with sqlite_store(tmp_path) as store:
        one = Dock(store)
        await one.declare(concurrency=CONCURRENCY, timeout_seconds=1)
        yield one


async def until(dock: Dock, end: Instant) -> None:
    """Let the Clock do what is due, at each instant at which something is, up to an instant."""
    while True:
        await dock.clock()
        upcoming = await dock.due()
        if upcoming is None or upcoming > end:
            dock.now = end
            return
        assert upcoming > dock.now, "the clock spins"
        dock.now = upcoming


def down(got: Got) -> httpx.Response:
    raise httpx.ConnectError("connection refused")


async def slow(got: Got) -> httpx.Response:
    await asyncio.sleep(0.002)
    return httpx.Response(200)


async def too_slow(got: Got) -> httpx.Response:
    await asyncio.sleep(60)
    raise AssertionError


def same_each_time(dock: Dock) -> None:
    bodies = defaultdict(set)
    for got in dock.subscriber.got:
        bodies[got.id].add(got.content)
    assert all(len(told) == 1 for told in bodies.values())
    assert dock.subscriber.most <= CONCURRENCY


async def test_down_for_a_day_then_slow(dock: Dock) -> None:
    dock.subscriber.answer = down
    for hour in range(24):
        await dock.insert(*range(hour * 5 + 1, hour * 5 + 6))
        await until(dock, after(START, (hour + 1) * DAY / 24))
    # A circuit that is open costs a probe now and then, and no delivery its attempts.
    probes = len(dock.subscriber.got)
    assert probes < DAY / LONGEST_SECONDS + 20
    rows = await dock.rows()
    assert {row["state"] for row in rows} == {"pending"}
    assert max(row["attempts"] for row in rows) < 24
    assert {row["last_error"] for row in rows} <= {None, "ConnectError: connection refused"}
    # Then nobody hears of anything for a second, and then it takes its time.
    dock.subscriber.answer = too_slow
    await until(dock, after(dock.now, LONGEST_SECONDS))
    assert (await dock.health())["reason"] == "no answer within 1 s"
    dock.subscriber.answer = slow
    await dock.declare(concurrency=CONCURRENCY)
    taken = len(dock.subscriber.got)
    await until(dock, after(dock.now, DAY))
    assert set(await dock.states()) == {"delivered"}
    assert len(dock.subscriber.got) - taken == 120
    assert dock.subscriber.most == CONCURRENCY
    assert len(set(dock.subscriber.ids())) == 120
    same_each_time(dock)


@pytest.mark.clause("runs.retry-after")
async def test_then_it_asks_for_time_in_every_shape(dock: Dock) -> None:
    """Case C06: each shape once, on the first attempt of a delivery, and what comes after it is looked at."""
    asked: dict[str, tuple[Instant, float]] = {}
    shapes = {f"dom_{n + 1:016d}": shape for n, shape in enumerate(SHAPES)}
    noon = Instant(1_772_366_400_000)  # 2026-03-01T12:00:00Z, to which the dates among the shapes belong

    def answer(got: Got) -> httpx.Response:
        if got.id in asked:
            return httpx.Response(200)
        lines, seconds = shapes[got.id]
        asked[got.id] = (got.at, seconds)
        return httpx.Response(429, headers=[("rEtRy-AfTeR", line) for line in lines])

    dock.subscriber.answer = answer
    dock.now = noon
    for number, id_ in enumerate(shapes, 1):
        # Dates are relative to noon, so each shape has a noon of its own: nothing is due in between.
        await dock.store.sql("UPDATE couriers SET blocked_until = NULL, poke_at = NULL, failures = 0, state = 'closed'")
        dock.now = noon
        await dock.insert(number)
        await dock.clock()
        assert id_ in asked
        await until(dock, after(noon, 2 * int(DELIVERY_RETRY_AFTER_SECONDS)))
    for id_, (first, seconds) in asked.items():
        attempts = [got.at for got in dock.subscriber.got if got.id == id_]
        assert attempts[0] == first
        assert len(attempts) == 2, id_
        waited = (attempts[1] - first) / 1000
        # What asks for nothing, or is no Retry-After, leaves the destination its own delay: never none, and never years.
        assert waited == (seconds or 5), shapes[id_]
    assert set(await dock.states()) == {"delivered"}
    assert [row["attempts"] for row in await dock.rows()] == [2] * len(SHAPES)
    same_each_time(dock)

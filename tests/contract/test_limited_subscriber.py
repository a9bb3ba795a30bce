"""A subscriber that takes only so many at a time and asks for time otherwise: it gets every event, and none is given up."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from moorage.kernel.instants import Instant, after
from moorage.messages.outbox.leasing import LATELY_SECONDS
from tests.contract.adapters import sqlite_store
from tests.contract.dock import Dock, Got


@pytest.fixture
async def dock(tmp_path: Path) -> AsyncIterator[Dock]:
    """SQLite alone: how many are sent is up to the Courier, which is the same on every adapter."""
    async with sqlite_store(tmp_path) as store:
        yield Dock(store)


async def work_off(dock: Dock) -> None:
    """Let the Clock do what is due, at each instant at which something is, until nothing is."""
    while True:
        await dock.clock()
        upcoming = await dock.due()
        if upcoming is None:
            return
        assert upcoming > dock.now, "the clock spins"
        dock.now = upcoming


@pytest.mark.clause("outbox.deliver")
async def test_whoever_takes_one_at_a_time_gets_all_of_them(dock: Dock) -> None:
    """Refusals cost attempts. Whoever takes one delivery every two seconds gets them all before any has used its own up."""
    await dock.declare(concurrency=16, max_attempts=8)
    taken = Instant(0)

    async def slow(got: Got) -> httpx.Response:
        await asyncio.sleep(0.002)
        return httpx.Response(200)

    def answer(got: Got) -> httpx.Response:
        nonlocal taken
        if got.at < after(taken, 2):
            return httpx.Response(429, headers={"retry-after": "2"})
        taken = got.at
        return httpx.Response(200)

    dock.subscriber.answer = answer
    await dock.insert(*range(1, 41))
    await work_off(dock)
    assert set(await dock.states()) == {"delivered"}
    assert dock.subscriber.most <= 16
    assert len(dock.subscriber.got) < 3 * 40
    # What it takes at once is sent at once again.
    dock.subscriber.answer, dock.subscriber.most = slow, 0
    await dock.insert(*range(41, 241))
    await work_off(dock)
    assert set(await dock.states()) == {"delivered"}
    assert dock.subscriber.most == 16


@pytest.mark.clause("outbox.deliver")
@pytest.mark.parametrize("seconds", [1, 60])
async def test_whoever_asks_for_time_for_a_day_is_told_of_everything_after_it(dock: Dock, seconds: int) -> None:
    """It costs no more of a delivery's attempts than being down would."""
    await dock.declare()
    await dock.insert(1, 2)
    over = after(dock.now, 86_400)
    dock.subscriber.answer = lambda got: (
        httpx.Response(200) if got.at >= over else httpx.Response(503, headers={"retry-after": str(seconds)})
    )
    await work_off(dock)
    assert await dock.states() == ["delivered"] * 2
    assert len(dock.subscriber.got) <= 2 * 24
    waits = sorted(got.at for got in dock.subscriber.got)
    assert all(later == earlier or later - earlier >= seconds * 1000 for earlier, later in pairwise(waits))


@pytest.mark.clause("outbox.deliver")
async def test_a_courier_that_begins_anew_does_not_burst_where_time_was_asked_for(dock: Dock) -> None:
    """What a crash or a deploy makes forgotten is how much was taken since, not that it was asked for."""
    await dock.declare(concurrency=16, max_attempts=8)
    dock.subscriber.answer = lambda got: httpx.Response(429, headers={"retry-after": "60"})
    await dock.insert(*range(1, 41))
    await dock.clock()
    waves = []
    for _ in range(3):
        dock.wait(60)
        dock.courier = dock.new_courier()
        before = len(dock.subscriber.got)
        await dock.clock()
        waves.append(len(dock.subscriber.got) - before)
    assert waves == [1, 1, 1]
    # Long after it, it is like any other.
    dock.subscriber.answer, dock.subscriber.most = lambda got: httpx.Response(204), 0
    dock.wait(60 + LATELY_SECONDS + 1)
    dock.courier = dock.new_courier()
    await dock.clock()
    assert (set(await dock.states()), dock.subscriber.most) == ({"delivered"}, 16)

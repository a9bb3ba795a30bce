"""Routing with pages of a few waits, by several at once and through faults: whatever fits is woken, each by one event, and
no execution takes an event twice (clauses inbox.two-checkpoints, waits.match)."""

import asyncio
import json
import random
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from moorage.kernel.errors import EventMatched, StorageBindingUnavailable
from moorage.kernel.instants import after
from moorage.messages.inbox import routing
from moorage.messages.inbox.matching import Filter
from moorage.runs.model import Execution
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Transaction
from tests.contract.adapters import sqlite_store
from tests.contract.quay import Quay, wait

UNROUTED = "SELECT seq FROM events WHERE routed_at IS NULL ORDER BY seq"


class Failing:
    """A database that does not answer now and then: before a reading, and before or after a commit."""

    def __init__(self, db: Database, draw: random.Random) -> None:
        self._db, self._draw = db, draw
        self.cost, self.initialize = db.cost, db.initialize

    async def read(self, reading: Reading) -> None:
        self._fail()
        await self._db.read(reading)
        await asyncio.sleep(0)

    async def commit(self, transaction: Transaction) -> None:
        self._fail()
        await asyncio.sleep(0)
        await self._db.commit(transaction)
        self._fail()

    def _fail(self) -> None:
        if self._draw.random() < 0.2:
            raise StorageBindingUnavailable


async def store_a_wait(quay: Quay, draw: random.Random, execution: Execution, number: int) -> None:
    keys = draw.sample("abc", draw.choice([0, 1, 1, 2]))
    types = [] if keys and draw.random() < 0.6 else draw.choice([["x"], ["x", "y"]])
    match = {"n": {"$gt": draw.choice([1, 3])}} if draw.random() < 0.4 else None
    look_back = draw.choice([0.0, 3600.0])
    await quay.apply(execution.fence, wait(f"w{number}", keys=keys, types=types, match=match, look_back=look_back))


async def route_some(quay: Quay, draw: random.Random) -> None:
    """Several route at once, each until something fails."""
    unrouted = [row["seq"] for row in await quay.store.sql(UNROUTED)]

    async def until_it_fails(work: Awaitable[Any]) -> None:
        with suppress(StorageBindingUnavailable, EventMatched):
            await work

    def db() -> Database:
        return Failing(quay.store.db(), draw)

    together: list[Awaitable[Any]] = [routing.route_unrouted(db(), quay.now) for _ in range(draw.randrange(3))]
    if unrouted:
        together += [routing.route(db(), quay.now, draw.choice(unrouted)) for _ in range(draw.randrange(3))]
    await asyncio.gather(*map(until_it_fails, together))


async def check(quay: Quay) -> None:
    """Every wait has the event that it may have, and no active one is left that could have had one."""
    events = {row["seq"]: row for row in await quay.rows("events")}
    waits = await quay.rows("event_waits")
    taken = [(row["execution_id"], row["event"]) for row in waits if row["state"] == "woken"]
    assert len(taken) == len(set(taken)) > 20
    for row in waits:
        filter_ = Filter(tuple(json.loads(row["keys"])), tuple(json.loads(row["types"])), row["match"])
        fitting = {
            seq
            for seq, event in events.items()
            if seq > row["after"] and filter_.fits(event["type"], json.loads(event["keys"]), event["data"])
        }
        if row["state"] == "woken":
            assert row["event"] in fitting
        else:
            assert fitting <= {event for execution, event in taken if execution == row["execution_id"]}, row["label"]
    active = {(row["execution_id"], row["label"]) for row in waits if row["state"] == "active"}
    assert {(row["execution_id"], row["label"]) for row in await quay.rows("event_wait_terms")} == active
    told = await quay.store.sql("SELECT subject FROM history WHERE type = 'event.routed'")
    assert len(told) == len({row["subject"] for row in told}) == len(events)


@pytest.mark.clause("inbox.two-checkpoints", "waits.match")
@pytest.mark.parametrize("seed", range(4))
async def test_pages_of_a_few_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    draw = random.Random(seed)
    for bound, sizes in (("WAITS", [2, 3, 5]), ("EXECUTIONS", [1, 2, 4]), ("PASS", [1, 3, 6])):
        monkeypatch.setattr(routing, bound, draw.choice(sizes))
    async with sqlite_store(tmp_path) as store:
        quay = Quay(store)
        executions = [await quay.opened(scope=f"job-{n}") for n in range(20)]
        for number in range(120):
            quay.now = after(quay.now, 0.001)
            what = draw.random()
            if what < 0.6:
                await store_a_wait(quay, draw, draw.choice(executions), number)
            elif what < 0.9:
                keys = draw.sample("abc", draw.choice([0, 1, 2]))
                await quay.send(*keys, type_=draw.choice("xy"), data={"n": draw.randrange(5)})
            else:
                await route_some(quay, draw)
        for _ in range(500):
            if not await store.sql(UNROUTED):
                break
            await route_some(quay, draw)
        await check(quay)

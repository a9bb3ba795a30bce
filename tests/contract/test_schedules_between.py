"""Whatever comes between a look at a schedule and what the look leads to wins, and no window starts anything twice."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moorage.catalog.access import Caller
from moorage.catalog.kinds import Kinds
from moorage.kernel.errors import ScheduleUnknown
from moorage.kernel.instants import Instant
from moorage.schedules import declare, manual
from moorage.schedules.due import ScheduleQueue, Schedules
from moorage.schedules.model import BodyTarget, Declaration
from moorage.schedules.starting import Means
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Transaction
from moorage.timers import clock
from moorage.timers.due import DueWork
from tests.contract.adapters import SqliteStore, Store, dump, sqlite_store
from tests.contract.operations_of_time import DECLARED, FIRST_WINDOW, HOURLY, OneBody
from tests.contract.operations_world import NOW
from tests.contract.test_timers_machine import Between

pytestmark = pytest.mark.clause("schedules.window")

ROOT = Caller("root")
LATER = Instant(FIRST_WINDOW + 1000)
OTHER = replace(HOURLY, target=BodyTarget("order", 2))

Act = Callable[[Store], Awaitable[Any]]


def means(store: Store) -> Means:
    return Means(Kinds(), OneBody(), store.blobs)


async def put(store: Store, declaration: Declaration = HOURLY, now: Instant = NOW) -> None:
    await declare.put(store.db(), means(store), ROOT, now, "s", declaration)


async def redeclare(store: Store) -> None:
    await put(store, OTHER, LATER)


async def pause(store: Store) -> None:
    await declare.set_paused(store.db(), ROOT, LATER, "s", True)


async def delete(store: Store) -> None:
    await declare.delete(store.db(), ROOT, LATER, "s")


async def make_anew(store: Store) -> None:
    await delete(store)
    await put(store, HOURLY, LATER)


async def fill_in(store: Store) -> None:
    await manual.backfill(store.db(), ROOT, LATER, "s", FIRST_WINDOW, LATER)


async def fire_too(store: Store) -> None:
    assert await Schedules(means(store)).fire(store.db(), LATER, DECLARED) == 1


async def take_turn_too(store: Store) -> None:
    assert await ScheduleQueue(means(store)).fire(store.db(), LATER, DECLARED) == 1


async def runs(store: Store) -> list[Any]:
    return await store.sql("SELECT json_extract(input, '$') AS input FROM executions ORDER BY execution_id")


@pytest.fixture
async def store(tmp_path: Path) -> Any:
    async with sqlite_store(tmp_path) as made:
        await put(made)
        yield made


@pytest.mark.parametrize("act", [redeclare, pause, delete, make_anew, fill_in, fire_too])
async def test_what_comes_between_a_look_and_a_window_wins(store: SqliteStore, act: Act) -> None:
    after: list[Any] = []

    async def acting() -> None:
        await act(store)
        after.append(await dump(store))

    assert await Schedules(means(store)).fire(Between(store.db(), acting), LATER, DECLARED) == 0
    assert await dump(store) == after[0], "and the stale look has changed nothing"
    assert len(await runs(store)) == (1 if act is fire_too else 0)


@pytest.mark.parametrize("act", [redeclare, pause, delete, make_anew, take_turn_too])
async def test_what_comes_between_a_look_and_a_turn_wins(store: SqliteStore, act: Act) -> None:
    await fill_in(store)
    after: list[Any] = []

    async def acting() -> None:
        await act(store)
        after.append(await dump(store))

    assert await ScheduleQueue(means(store)).fire(Between(store.db(), acting), LATER, DECLARED) == 0
    assert await dump(store) == after[0]
    assert len(await runs(store)) == (1 if act is take_turn_too else 0)


class Far:
    """A database that answers after others had their turn; `most` is how many waited for it at once."""

    def __init__(self, behind: Database) -> None:
        self._behind = behind
        self._waiting = 0
        self.most = 0
        self.cost = behind.cost

    async def _travel(self) -> None:
        self._waiting += 1
        self.most = max(self.most, self._waiting)
        for _ in range(5):
            await asyncio.sleep(0)
        self._waiting -= 1

    async def read(self, reading: Reading) -> None:
        await self._travel()
        await self._behind.read(reading)

    async def commit(self, transaction: Transaction) -> None:
        await self._travel()
        await self._behind.commit(transaction)

    async def initialize(self, statements: list[str]) -> None:
        await self._behind.initialize(statements)


@pytest.mark.clause("timers.alarm")
async def test_schedules_of_one_instant_come_beside_one_another_and_each_window_once(store: SqliteStore) -> None:
    shared = replace(HOURLY, target=BodyTarget("order", 1, "shop"))
    for number in range(20):
        declared = shared if number % 2 else HOURLY
        await declare.put(store.db(), means(store), ROOT, NOW, f"many{number}", declared)
    far = Far(store.db())
    works: list[DueWork] = [Schedules(means(store)), ScheduleQueue(means(store))]
    drained = await clock.drain(lambda: far, FIRST_WINDOW, works)
    assert (drained.fired, drained.failed, far.most) == ({"schedule_fired": 21}, [], clock.FIRED_AT_ONCE)
    told = await store.sql("SELECT state, count(*) AS number FROM schedule_triggers GROUP BY state")
    assert told == [{"state": "started", "number": 21}]
    # Those of one scope join what is under way there, or are on record as refused.
    open_ = await store.sql("SELECT count(*) AS number FROM executions WHERE scope = 'shop'")
    assert open_ == [{"number": 1}]


async def test_what_was_declared_between_is_what_comes(store: SqliteStore) -> None:
    stale = Between(store.db(), lambda: redeclare(store))
    assert await Schedules(means(store)).fire(stale, LATER, DECLARED) == 0
    assert await Schedules(means(store)).fire(store.db(), LATER, f"s@{LATER}") == 1
    assert await runs(store) == [{"input": 2}]


async def test_a_window_by_hand_between_a_look_and_a_deletion_is_told_of(store: SqliteStore) -> None:
    """Whoever asks for a window of a schedule that goes meanwhile is told so, and nothing was started."""
    stale = Between(store.db(), lambda: delete(store))
    with pytest.raises(ScheduleUnknown):
        await manual.trigger(stale, means(store), ROOT, LATER, "s")
    assert await runs(store) == []

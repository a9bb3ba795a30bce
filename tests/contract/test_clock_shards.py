"""The Clock's shards: each looks at its own classes alone, and whatever overlaps or comes late, an item fires once."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from moorage.api.assembly import due_works
from moorage.awakeables.due import AwakeableDeadlines
from moorage.history.query import entries
from moorage.kernel.instants import Instant
from moorage.records.due import RecordLeases
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Transaction
from moorage.timers.clock import (
    ASIDE_COUNTED,
    BROKEN_RETRY_SECONDS,
    BUDGET,
    Standing,
    advance,
    by_shard,
    drain,
    standings,
    upcoming,
)
from moorage.timers.due import SHARDS, DueWork, Shard
from tests.contract.adapters import Store, sqlite_store
from tests.contract.remote import D1Store

NOW = Instant(1_800_000_000_000)
DAY: Final = 86_400_000


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Store]:
    """SQLite alone, for what takes many transactions."""
    async with sqlite_store(tmp_path) as store:
        yield store


@dataclass
class Bells:
    """A class of due work: rows of `leases` whose owner is the class are deleted once they have run out."""

    name: str
    shard: Shard = "time"
    parallel: bool = False

    def __post_init__(self) -> None:
        self.log: list[tuple[str, int]] = []
        waiting = (
            f"FROM leases WHERE owner = '{self.name}' AND NOT EXISTS "  # noqa: S608  the name is the test's own
            f"(SELECT 1 FROM due_failures WHERE work = '{self.name}' AND item = leases.key)"
        )
        self.earliest = f"SELECT expires_at AS due {waiting} ORDER BY expires_at LIMIT 1"
        self.page = (
            f"SELECT key AS item, expires_at AS due {waiting} AND expires_at <= :now "
            "ORDER BY expires_at, key LIMIT CAST(:limit AS INTEGER)"
        )

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        tx = Transaction(now)
        rung = tx.run("DELETE FROM leases WHERE key = :key AND expires_at <= :now RETURNING expires_at", key=item)
        await db.commit(tx)
        self.log += [(item, now - row["expires_at"]) for row in rung.rows]
        return len(rung.rows)


async def hang(store: Store, name: str, number: int, first: int, step: int = 0) -> None:
    """So many items, due from `first` on, one each `step` milliseconds."""
    await store.sql(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ? - 1) "
        "INSERT INTO leases (key, epoch, owner, expires_at) SELECT ? || i, 1, ?, ? + i * ? FROM n",
        number, name, name, first, step,
    )  # fmt: skip


async def put_aside(store: Store, name: str, number: int, first: int) -> None:
    """So many items that failed, tried again from `first` on, one each second."""
    await store.sql(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ? - 1) "
        "INSERT INTO due_failures SELECT ?, 'item' || i, 1, ? + i * 1000, 'KeyError' FROM n",
        number, name, first,
    )  # fmt: skip


async def mint(store: Store, number: int) -> None:
    """So many awakeables, with deadlines within five milliseconds."""
    await store.sql(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
        "INSERT INTO awakeables (id, token_sha256, state, metadata, created_at, created_by, deadline) "
        "SELECT 'awk_' || i, 'sha' || i, 'pending', '{}', 0, 'root', ? - i % 5 FROM n",
        number, NOW,
    )  # fmt: skip


class Interleaving:
    """A database that lets others come between any two of its calls."""

    def __init__(self, inner: Database, chance: random.Random) -> None:
        self.inner = inner
        self.cost = inner.cost
        self._chance = chance

    async def _pause(self) -> None:
        for _ in range(self._chance.randrange(4)):
            await asyncio.sleep(0)

    async def read(self, reading: Reading) -> None:
        await self._pause()
        await self.inner.read(reading)
        await self._pause()

    async def commit(self, transaction: Transaction) -> None:
        await self._pause()
        await self.inner.commit(transaction)
        await self._pause()

    async def initialize(self, statements: list[str]) -> None:
        await self.inner.initialize(statements)


@pytest.mark.clause("timers.alarm")
def test_every_class_has_a_shard_and_a_name_of_its_own() -> None:
    works = due_works()
    assert {work.shard for work in works} <= set(SHARDS)
    assert sum(map(len, by_shard(works).values())) == len(works)
    assert max(Counter(work.name for work in works).values()) == 1
    names = {shard: {work.name for work in own} for shard, own in by_shard(works).items()}
    assert {"lease_expired", "record_due", "record_stale", "session_expired"} <= names["records"]
    assert {"awakeable_timed_out", "run_due"} <= names["runs"]
    assert {"history_sealed", "retention_swept", "idempotency_expired"} <= names["upkeep"]


@pytest.mark.clause("timers.alarm")
async def test_each_shard_is_told_of_its_own_earliest_instant_in_one_round_trip(store: Store) -> None:
    works: list[DueWork] = [Bells("a", "time"), Bells("b", "time"), Bells("c", "runs"), Bells("d", "upkeep")]
    await hang(store, "a", 3, NOW + 30)
    await hang(store, "b", 1, NOW + 20)
    await hang(store, "c", 1, NOW - 5000)
    await put_aside(store, "c", 2, NOW + 1)
    await put_aside(store, "gone", 2, NOW - 1)
    db = store.db()
    assert await upcoming(db, NOW, works) == {"time": NOW + 20, "runs": NOW - 5000}
    assert db.cost.trips == 1
    told = await standings(store.db(), NOW, works)
    assert told == {
        "time": Standing(Instant(NOW + 20), 0),
        "runs": Standing(Instant(NOW - 5000), 2),
        "upkeep": Standing(None, 0),
    }
    assert {shard: one.lateness(NOW) for shard, one in told.items()} == {"time": 0, "runs": 5000, "upkeep": 0}


@pytest.mark.edge
@pytest.mark.clause("timers.alarm")
async def test_a_look_reads_a_handful_of_rows_whatever_waits_and_whatever_other_shards_have(d1_store: D1Store) -> None:
    mine, theirs = AwakeableDeadlines(), RecordLeases()
    await mint(d1_store, 3000)
    await put_aside(d1_store, mine.name, 5000, NOW - 4_900_000)
    await put_aside(d1_store, theirs.name, 5000, NOW - 4_900_000)
    db = d1_store.db()
    assert await upcoming(db, NOW, [mine, theirs]) == {"runs": NOW - 4_900_000, "records": NOW - 4_900_000}
    assert db.cost.rows_read < 20
    told = await standings(d1_store.db(), NOW, [mine, theirs])
    assert [one.set_aside for one in told.values()] == [ASIDE_COUNTED, ASIDE_COUNTED]
    drained = await drain(d1_store.db, NOW, [mine], budget=10)
    assert drained.next_due == NOW + 1
    # A page of the class, twice a page of those set aside, and a few for each item that is let go.
    assert drained.cost.rows_read < 600
    await d1_store.sql("DELETE FROM due_failures")
    costs = []
    for _ in range(3):
        drained = await drain(d1_store.db, NOW, [mine], budget=12)
        assert drained.fired == {mine.name: 12}
        costs.append(drained.cost.rows_read)
        await d1_store.sql("DELETE FROM awakeables WHERE id IN (SELECT id FROM awakeables LIMIT 900)")
    assert max(costs) - min(costs) < 10


class Torn(Bells):
    """A class that cannot read one of its rows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.page = self.page.replace("SELECT key AS item", "SELECT json_extract(key, '$') AS item")


@pytest.mark.clause("timers.alarm")
async def test_a_row_that_a_class_cannot_read_holds_up_no_other_class(store: Store) -> None:
    await hang(store, "torn", 1, NOW - 100)
    await hang(store, "sound", 3, NOW)
    torn, sound = Torn("torn"), Bells("sound")
    drained = await drain(store.db, NOW, [torn, sound])
    assert (drained.fired, list(drained.broken), drained.interrupted) == ({"sound": 3}, ["torn"], None)
    assert drained.next_due == NOW + BROKEN_RETRY_SECONDS * 1000
    alone = await drain(store.db, NOW, [torn])
    assert alone.interrupted is not None
    assert (alone.fired, alone.failed) == ({}, [])


@pytest.mark.clause("timers.alarm")
async def test_a_class_that_has_something_due_but_lists_nothing_does_not_keep_the_alarm_ringing(store: Store) -> None:
    bells = Bells("a")
    bells.page = bells.page.replace("WHERE", "WHERE 0 AND", 1)
    await hang(store, "a", 1, NOW - 5)
    drained = await drain(store.db, NOW, [bells])
    assert (drained.fired, drained.next_due, drained.cost.trips) == ({}, NOW + 1000, 1)


@pytest.mark.clause("timers.alarm", "timers.late")
@pytest.mark.parametrize("seed", range(5))
async def test_drains_that_overlap_fire_each_item_once(host: Store, seed: int) -> None:
    """A shard's own drain twice, as two instances of its object would, and a move of the test clock beside them."""
    chance = random.Random(seed)
    await mint(host, 150)
    works = [AwakeableDeadlines()]

    def db() -> Database:
        return Interleaving(host.db(), chance)

    later = Instant(NOW + 100)
    drains = [drain(db, later, works) for _ in range(3)]
    together = await asyncio.gather(*drains, advance(db, NOW, later, works))
    assert [one.failed for one in together] == [[], [], [], []]
    assert sum(one.fired.get("awakeable_timed_out", 0) for one in together) == 150
    told = await entries(host.db(), 0, 1000)
    assert len(told) == len({entry.subject for entry in told}) == 150


@pytest.mark.clause("timers.alarm")
async def test_ten_thousand_due_at_one_instant_fire_once_each_in_bounded_drains(host: Store) -> None:
    bells = Bells("a", parallel=True)
    await hang(host, "a", 10_000, NOW)
    due: Instant | None = NOW
    drains = 0
    while due is not None:
        drained = await drain(host.db, due, [bells])
        assert drained.fired.get("a", 0) <= BUDGET
        drains, due = drains + 1, drained.next_due
    assert len(bells.log) == len({item for item, _ in bells.log}) == 10_000
    assert drains == 10_000 // BUDGET


@pytest.mark.clause("timers.late")
async def test_after_a_day_of_downtime_everything_fires_once_in_order_and_tells_how_late(host: Store) -> None:
    a, b = Bells("a"), Bells("b")
    await hang(host, "a", 1440, NOW, 60_000)
    await hang(host, "b", 288, NOW + 1, 300_000)
    now, lateness = Instant(NOW + DAY), []
    assert (await standings(host.db(), now, [a, b]))["time"].lateness(now) == DAY
    due: Instant | None = now
    while due is not None:
        drained = await drain(host.db, due, [a, b])
        lateness.append(drained.lateness)
        due = drained.next_due
    assert (len(a.log), len(b.log)) == (1440, 288)
    assert len({item for item, _ in a.log + b.log}) == 1728
    assert lateness[0] == DAY
    assert lateness == sorted(lateness, reverse=True)
    assert (await standings(host.db(), now, [a, b]))["time"].lateness(now) == 0


@pytest.mark.clause("timers.alarm", "timers.late")
@pytest.mark.parametrize("seed", range(3))
async def test_whenever_drains_come_nothing_fires_early_or_twice(host: Store, seed: int) -> None:
    chance = random.Random(seed)
    bells = Bells("a", parallel=True)
    for number in range(60):
        await hang(host, "a" + "x" * number, 1, NOW + chance.choice([number, 2**31 * number, chance.randrange(DAY)]))
        await host.sql("UPDATE leases SET owner = 'a'")
    instants = sorted(NOW + chance.randrange(2**31 * 62) for _ in range(40))
    for at in [*instants, NOW + 2**31 * 62]:
        await drain(host.db, Instant(at), [bells])
        [left] = await host.sql("SELECT count(*) AS overdue FROM leases WHERE expires_at <= ?", at)
        assert left["overdue"] == 0
    assert len(bells.log) == len({item for item, _ in bells.log}) == 60
    assert min(late for _, late in bells.log) >= 0

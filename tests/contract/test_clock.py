"""The Clock on every adapter: what is due fires once, in order, and poison stops nothing."""

import asyncio
from collections.abc import Callable
from typing import Final

import pytest

from moorage.awakeables.due import AwakeableDeadlines
from moorage.awakeables.mint import mint
from moorage.awakeables.model import Draft
from moorage.catalog.access import Caller
from moorage.history.query import entries
from moorage.idempotency.due import SWEEP_KEYS, ExpiredKeys
from moorage.idempotency.keys import Key, remember
from moorage.kernel.errors import AwakeableUnknown, StorageBindingUnavailable
from moorage.kernel.instants import Instant
from moorage.kernel.limits import DRAIN_BATCH, IDEMPOTENCY_SECONDS
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Transaction
from moorage.timers import clock
from moorage.timers.clock import BUDGET, LONGEST_RETRY_MS, STORAGE_RETRY_SECONDS, StillDue, advance, drain, next_due
from moorage.timers.due import DueWork
from tests.contract.adapters import Store

ROOT = Caller("root", bearer=b"the root token")
NOW = Instant(1_800_000_000_000)

Log = list[tuple[str, str, int]]
Effect = Callable[[Database, Instant, str], None]


class Bells:
    """A class of due work for tests: rows of `leases` whose owner is the class ring once, at their expires_at."""

    shard: Final = "time"

    def __init__(self, name: str, log: Log) -> None:
        self.name = name
        self.log = log
        self.poison: dict[str, Exception] = {}
        self.deaf: set[str] = set()
        self.echoes: dict[str, int] = {}
        waiting = (
            f"FROM leases WHERE owner = '{name}' AND NOT EXISTS "  # noqa: S608  the name is the test's own
            f"(SELECT 1 FROM due_failures WHERE work = '{name}' AND item = leases.key)"
        )
        self.earliest = f"SELECT expires_at AS due {waiting} ORDER BY expires_at LIMIT 1"
        self.page = (
            f"SELECT key AS item, expires_at AS due {waiting} AND expires_at <= :now "
            "ORDER BY expires_at, key LIMIT CAST(:limit AS INTEGER)"
        )

    async def hang(self, db: Database, key: str, due: int) -> None:
        tx = Transaction(NOW)
        tx.run("INSERT INTO leases (key, epoch, owner, expires_at) VALUES (:key, 1, :owner, :due)",
               key=key, owner=self.name, due=due)  # fmt: skip
        await db.commit(tx)

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        if item in self.poison:
            raise self.poison[item]
        if item in self.deaf:
            return 0
        tx = Transaction(now)
        rung = tx.run("DELETE FROM leases WHERE key = :key AND expires_at <= :now RETURNING expires_at", key=item)
        await db.commit(tx)
        for _ in rung.rows:
            self.log.append((self.name, item, now))
            if item in self.echoes:
                await self.hang(db, f"{item}'", now + self.echoes[item])
        return len(rung.rows)


async def aside(store: Store) -> list[tuple[str, int, int, str]]:
    rows = await store.sql("SELECT item, attempts, retry_at, error FROM due_failures ORDER BY work, item")
    return [(row["item"], row["attempts"], row["retry_at"], row["error"]) for row in rows]


@pytest.mark.clause("timers.alarm")
async def test_due_items_of_all_classes_fire_in_the_order_of_their_instants(store: Store) -> None:
    log: Log = []
    a, b = Bells("a", log), Bells("b", log)
    for bells, key, due in ((a, "a5", 5), (b, "b1", 1), (a, "a3", 3), (b, "b3", 3), (b, "b2", 2), (a, "a9", 9)):
        await bells.hang(store.db(), key, NOW + due)
    drained = await drain(store.db, Instant(NOW + 5), [a, b])
    assert [item for _, item, _ in log] == ["b1", "b2", "a3", "b3", "a5"]
    assert (drained.fired, drained.next_due, drained.lateness) == ({"a": 2, "b": 3}, NOW + 9, 4)


@pytest.mark.clause("timers.late")
async def test_what_fires_in_a_long_drain_is_of_the_instant_at_which_it_fires(store: Store) -> None:
    """Whatever else is written meanwhile is no older than what the drain has written before, nor the other way round."""
    log: Log = []
    bells = Bells("a", log)
    for number in range(3):
        await bells.hang(store.db(), f"a{number}", NOW + number)
    passed = iter([5, 4000, 20_000])
    drained = await drain(store.db, Instant(NOW + 10), [bells], current=lambda: Instant(NOW + next(passed)))
    assert log == [("a", "a0", NOW + 10), ("a", "a1", NOW + 4000), ("a", "a2", NOW + 20_000)]
    assert (drained.fired, drained.lateness) == ({"a": 3}, 19_998)


@pytest.mark.clause("timers.alarm")
async def test_the_order_holds_where_one_class_has_more_due_than_a_batch(store: Store) -> None:
    log: Log = []
    a, b = Bells("a", log), Bells("b", log)
    for number in range(DRAIN_BATCH + 10):
        await a.hang(store.db(), f"a{number}", NOW + 2 * number)
    await b.hang(store.db(), "b", NOW + 2 * DRAIN_BATCH + 1)
    await drain(store.db, Instant(NOW + 10_000), [a, b])
    assert [item for _, item, _ in log[DRAIN_BATCH : DRAIN_BATCH + 3]] == ["a100", "b", "a101"]


@pytest.mark.clause("timers.alarm")
async def test_nothing_fires_early_and_the_alarm_is_armed_for_the_earliest(store: Store) -> None:
    log: Log = []
    a, b = Bells("a", log), Bells("b", log)
    assert (await drain(store.db, NOW, [a, b])).next_due is None
    await a.hang(store.db(), "later", NOW + 100)
    await b.hang(store.db(), "soon", NOW + 1)
    drained = await drain(store.db, NOW, [a, b])
    assert (drained.fired, drained.next_due, log) == ({}, NOW + 1, [])
    assert await next_due(store.db(), NOW, [a, b]) == NOW + 1
    assert drained.cost.trips == 1


@pytest.mark.clause("timers.late")
async def test_what_was_due_while_the_clock_was_down_fires_once(store: Store) -> None:
    log: Log = []
    bells = Bells("a", log)
    await bells.hang(store.db(), "overdue", NOW)
    days = Instant(NOW + 3 * 86_400_000)
    drained = await asyncio.gather(*[drain(store.db, days, [bells]) for _ in range(5)])
    again = await drain(store.db, days, [bells])
    assert log == [("a", "overdue", days)]
    assert sum(one.fired.get("a", 0) for one in drained) == 1
    assert max(one.lateness for one in drained) == days - NOW
    assert again.fired == {}


@pytest.mark.clause("timers.alarm")
async def test_a_thousand_due_at_one_instant_are_drained_in_bounded_batches(store: Store) -> None:
    tx = Transaction(NOW)
    tx.run(
        "INSERT INTO awakeables (id, token_sha256, state, metadata, created_at, created_by, deadline) "
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) "
        "SELECT 'awk_' || i, 'sha' || i, 'pending', '{}', 0, 'root', :now FROM n"
    )
    await store.db().commit(tx)
    fired, alarms = 0, 0
    due: Instant | None = NOW
    while due is not None:
        drained = await drain(store.db, due, [AwakeableDeadlines()])
        count = drained.fired.get("awakeable_timed_out", 0)
        assert count <= BUDGET
        assert drained.cost.trips <= count + count // DRAIN_BATCH + 1
        fired, alarms = fired + count, alarms + 1
        if drained.next_due is not None:
            assert drained.next_due == due + 1
        due = drained.next_due
    assert (fired, alarms) == (1000, 1000 // BUDGET)
    ended = await entries(store.db(), 0, 2000)
    assert len({entry.subject for entry in ended}) == len(ended) == 1000


@pytest.mark.clause("timers.alarm")
async def test_a_poison_item_is_set_aside_ever_longer_and_blocks_nothing(store: Store) -> None:
    log: Log = []
    bells = Bells("a", log)
    bells.poison["bad"] = ZeroDivisionError("the secret is hunter2")
    await bells.hang(store.db(), "bad", NOW - 10)
    for number in range(3):
        await bells.hang(store.db(), f"good{number}", NOW)
    first = await drain(store.db, NOW, [bells])
    assert (first.fired, first.next_due) == ({"a": 3}, NOW + 1000)
    assert [(failure.item, failure.attempts) for failure in first.failed] == [("bad", 1)]
    assert await aside(store) == [("bad", 1, NOW + 1000, "ZeroDivisionError")]
    instant, delays = NOW, []
    for attempt in range(2, 40):
        retry_at = (await aside(store))[0][2]
        assert (await drain(store.db, Instant(retry_at - 1), [bells])).failed == []
        instant = Instant(retry_at)
        assert [failure.attempts for failure in (await drain(store.db, instant, [bells])).failed] == [attempt]
        delays.append((await aside(store))[0][2] - instant)
    assert delays[:5] == [2000, 4000, 8000, 16000, 32000]
    assert set(delays[-20:]) == {LONGEST_RETRY_MS}
    bells.poison.clear()
    healed = await drain(store.db, Instant(instant + LONGEST_RETRY_MS), [bells])
    assert (healed.fired, healed.next_due, healed.lateness) == ({"a": 1}, None, 0)
    assert await aside(store) == []


@pytest.mark.clause("timers.alarm")
async def test_more_poison_than_a_batch_does_not_starve_the_rest(store: Store) -> None:
    log: Log = []
    bells = Bells("a", log)
    for number in range(DRAIN_BATCH + 5):
        key = f"bad{number}"
        bells.poison[key] = AwakeableUnknown()
        await bells.hang(store.db(), key, NOW - 1)
    await bells.hang(store.db(), "good", NOW)
    drained = await drain(store.db, NOW, [bells], budget=1000)
    assert drained.fired == {"a": 1}
    assert {error for _, _, _, error in await aside(store)} == {"AwakeableUnknown"}


@pytest.mark.clause("timers.alarm")
async def test_a_set_aside_item_that_is_over_is_let_go(store: Store) -> None:
    log: Log = []
    bells = Bells("a", log)
    bells.poison["bad"] = RuntimeError()
    await bells.hang(store.db(), "bad", NOW)
    await drain(store.db, NOW, [bells])
    bells.poison.clear()
    await store.sql("DELETE FROM leases")
    drained = await drain(store.db, Instant(NOW + 1000), [bells])
    assert (drained.fired, drained.failed, drained.next_due) == ({}, [], None)
    assert await aside(store) == []


@pytest.mark.clause("timers.alarm")
async def test_a_failure_of_a_class_that_is_gone_wakes_nobody(store: Store) -> None:
    await store.sql("INSERT INTO due_failures VALUES ('of_yore', 'item', 1, 5, 'KeyError')")
    assert (await drain(store.db, NOW, [Bells("a", [])])).next_due is None


@pytest.mark.clause("timers.alarm")
async def test_an_item_that_is_listed_but_never_fires_cannot_keep_the_clock_running(store: Store) -> None:
    log: Log = []
    bells = Bells("a", log)
    bells.deaf.add("deaf")
    await bells.hang(store.db(), "deaf", NOW)
    await bells.hang(store.db(), "good", NOW)
    drained = await drain(store.db, NOW, [bells])
    assert [(failure.item, type(failure.error)) for failure in drained.failed] == [("deaf", StillDue)]
    assert (drained.fired, drained.next_due) == ({"a": 1}, NOW + 1000)


@pytest.mark.clause("timers.alarm")
async def test_firing_on_a_stale_picture_changes_nothing(store: Store) -> None:
    work = AwakeableDeadlines()
    new = await mint(store.db(), ROOT, NOW, Draft(1))
    before = await store.sql("SELECT * FROM awakeables")
    assert await work.fire(store.db(), Instant(NOW + 999), new.awakeable.id) == 0
    assert await work.fire(store.db(), Instant(NOW + 1000), "awk_unknown") == 0
    assert await store.sql("SELECT * FROM awakeables") == before
    assert await work.fire(store.db(), Instant(NOW + 1000), new.awakeable.id) == 1
    assert await work.fire(store.db(), Instant(NOW + 1000), new.awakeable.id) == 0
    assert len(await entries(store.db(), 0, 10)) == 2


class FailingAfter:
    """A database that stops answering after some commits: a broken storage, not a broken item."""

    def __init__(self, inner: Database, commits: int) -> None:
        self.inner = inner
        self.commits = commits
        self.cost = inner.cost

    async def read(self, reading: Reading) -> None:
        await self.inner.read(reading)

    async def commit(self, transaction: Transaction) -> None:
        if self.commits == 0:
            raise StorageBindingUnavailable
        self.commits -= 1
        await self.inner.commit(transaction)

    async def initialize(self, statements: list[str]) -> None:
        await self.inner.initialize(statements)


@pytest.mark.clause("timers.alarm")
async def test_when_the_storage_fails_the_drain_ends_and_says_when_to_come_back(store: Store) -> None:
    for _ in range(5):
        await mint(store.db(), ROOT, NOW, Draft(1))
    later = Instant(NOW + 1000)
    works = [AwakeableDeadlines()]
    broken = await drain(lambda: FailingAfter(store.db(), 2), later, works)
    assert (broken.fired, broken.failed) == ({"awakeable_timed_out": 2}, [])
    assert isinstance(broken.interrupted, StorageBindingUnavailable)
    assert broken.next_due == later + STORAGE_RETRY_SECONDS * 1000
    assert await aside(store) == []
    assert (await drain(store.db, broken.next_due, works)).fired == {"awakeable_timed_out": 3}


@pytest.mark.clause("timers.alarm")
async def test_a_storage_error_of_one_item_alone_sets_that_item_aside(store: Store) -> None:
    bells = Bells("a", [])
    bells.poison["bad"] = StorageBindingUnavailable()
    await bells.hang(store.db(), "bad", NOW)
    await bells.hang(store.db(), "good", NOW)
    drained = await drain(store.db, NOW, [bells])
    assert (drained.fired, drained.interrupted) == ({"a": 1}, None)
    assert await aside(store) == [("bad", 1, NOW + 1000, "StorageBindingUnavailable")]


async def test_the_test_clock_fires_everything_at_its_own_instant_with_what_follows_from_it(store: Store) -> None:
    log: Log = []
    a, b = Bells("a", log), Bells("b", log)
    await a.hang(store.db(), "overdue", NOW - 500)
    await a.hang(store.db(), "a", NOW + 1000)
    await b.hang(store.db(), "b", NOW + 2500)
    await b.hang(store.db(), "after", NOW + 100_001)
    a.echoes = {"a": 1000, "a'": 1000}
    drained = await advance(store.db, NOW, Instant(NOW + 100_000), [a, b])
    assert log == [
        ("a", "overdue", NOW),
        ("a", "a", NOW + 1000),
        ("a", "a'", NOW + 2000),
        ("b", "b", NOW + 2500),
        ("a", "a''", NOW + 3000),
    ]
    assert (drained.fired, drained.next_due) == ({"a": 4, "b": 1}, NOW + 100_001)


async def test_the_test_clock_gets_past_poison(store: Store) -> None:
    bells = Bells("a", [])
    bells.poison["bad"] = RuntimeError()
    await bells.hang(store.db(), "bad", NOW)
    await bells.hang(store.db(), "good", NOW + 60_000)
    drained = await advance(store.db, NOW, Instant(NOW + 60_000), [bells])
    assert drained.fired == {"a": 1}
    assert [failure.attempts for failure in drained.failed] == [1, 2, 3, 4, 5, 6]


async def test_expired_idempotency_keys_are_forgotten_in_bulk_and_live_ones_kept(store: Store) -> None:
    work: DueWork = ExpiredKeys()
    for number in range(7):
        tx = Transaction(Instant(NOW + 1 + number * 1000))
        remember(tx, Key("subject", f"key{number}", "digest"), {})
        await store.db().commit(tx)
    await store.sql(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
        "INSERT INTO idempotency SELECT 'many', 'k' || i, 'digest', '{}', 1000 FROM n",
        SWEEP_KEYS + 10,
    )
    assert await next_due(store.db(), NOW, [work]) == 600_000
    assert (await drain(store.db, Instant(599_999), [work])).fired == {}
    assert (await drain(store.db, Instant(600_000), [work])).fired == {"idempotency_expired": SWEEP_KEYS + 10}
    sweep = await next_due(store.db(), NOW, [work])
    assert sweep is not None
    assert sweep % 600_000 == 0
    assert 0 <= sweep - (NOW + 1 + IDEMPOTENCY_SECONDS * 1000) < 600_000
    live = Key("subject", "live", "digest")
    tx = Transaction(sweep)
    remember(tx, live, {})
    await store.db().commit(tx)
    drained = await drain(store.db, sweep, [work])
    assert drained.fired == {"idempotency_expired": 7}
    assert [row["key"] for row in await store.sql("SELECT key FROM idempotency")] == ["live"]


async def test_every_class_of_due_work_reads_a_handful_of_rows_however_much_waits(store: Store) -> None:
    await store.sql(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) "
        "INSERT INTO awakeables (id, token_sha256, state, metadata, created_at, created_by, deadline) "
        "SELECT 'awk_' || i, 'sha' || i, 'pending', '{}', 0, 'root', ? + i FROM n",
        NOW,
    )
    db = store.db()
    assert await clock.next_due(db, NOW, [AwakeableDeadlines(), ExpiredKeys()]) == NOW + 1
    assert db.cost.rows_read <= 10
    assert db.cost.trips == 1

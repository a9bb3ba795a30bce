"""The outbox in detail: batches, large bodies, filters over data, what is never told, and one that fails beside others."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage.history.append import Event, append_many
from moorage.kernel.errors import PatternInvalid
from moorage.kernel.limits import FAN_OUT_BATCH
from moorage.kernel.pages import PageRequest
from moorage.messages.outbox import delivery_list, redeliver, subscriptions
from moorage.messages.outbox.fan_out import OutboxFanOut
from moorage.messages.outbox.subscriptions import Declaration
from moorage.records import publish
from moorage.records.model import Draft
from moorage.store.transaction import Transaction
from moorage.timers import clock
from tests.contract.adapters import Store, sqlite_store
from tests.contract.faults import Fault
from tests.contract.outbox_model import START, Play


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Store]:
    """SQLite alone, for what is the same on every adapter."""
    async with sqlite_store(tmp_path) as one:
        yield one


async def entered(play: Play, *events: Event) -> None:
    """Append entries to history."""
    tx = Transaction(play.now)
    append_many(tx, "somebody", events)
    await play.store.db().commit(tx)


async def told(play: Play, name: str = "one") -> list[str]:
    """What a subscription has told of, in order."""
    rows = await play.store.sql("SELECT aggregate_id FROM deliveries WHERE subscription = ? ORDER BY position", name)
    return [row["aggregate_id"] for row in rows]


@pytest.mark.clause("outbox.atomic")
async def test_a_long_history_is_looked_at_in_batches_and_each_costs_what_it_tells(store: Store) -> None:
    play = await Play.begin(store)
    await play.declare("one", Declaration("there", ("timer.*",)))
    count = 2 * FAN_OUT_BATCH + 1
    await entered(play, *(Event(f"s{number:04d}", "timer.made") for number in range(count)))
    looked = []
    db = store.db()
    while number := await OutboxFanOut().look_further(db, play.now, "one"):
        looked.append(number)
    assert looked == [FAN_OUT_BATCH, FAN_OUT_BATCH, 1]
    assert await told(play) == [f"s{number:04d}" for number in range(count)]
    assert db.cost.trips == 2 * len(looked) + 1
    # A row and its entries in the indexes: by id, by event, what is due, and in which order.
    assert db.cost.rows_written <= 5 * count
    assert db.cost.rows_read <= 8 * count


@pytest.mark.clause("outbox.atomic")
async def test_where_bodies_are_large_fewer_entries_are_looked_at(store: Store) -> None:
    play = await Play.begin(store)
    filtered = Declaration("there", ("record.published",), ("parcels",), {"weight": {"$gte": 2}})
    await play.declare("one", filtered)
    drafts = [Draft("parcels", {"weight": 1 + number % 3, "x": "y" * 450_000}, id=f"r{number}") for number in range(7)]
    for draft in drafts:
        await publish.publish(store.db(), play.kinds, play.caller, play.now, [draft])
        await entered(play, Event("else", "timer.made"))
    looked = []
    while number := await OutboxFanOut().look_further(store.db(), play.now, "one"):
        looked.append(number)
    assert sum(looked) == 14
    assert len(looked) > 2
    assert await told(play) == [f"r{number}" for number in range(7) if number % 3]


async def test_a_filter_over_what_entries_tell_may_name_any_path(host: Store) -> None:
    play = await Play.begin(host)
    match = {"status": {"$in": ["failed", "canceled"]}, "error.tag": {"$ne": "Transient"}}
    await play.declare("one", Declaration("there", ("run.closed", "guard.*"), (), match))
    datas: list[dict[str, Any]] = [
        {"status": "failed"},
        {"status": "success"},
        {"status": "failed", "error": {"tag": "Transient"}},
        {"status": "canceled", "error": {"tag": "Permanent"}},
        {},
    ]
    await entered(play, *(Event(f"run{number}", "run.closed", data) for number, data in enumerate(datas)))
    await OutboxFanOut().look_further(host.db(), play.now, "one")
    assert await told(play) == ["run0", "run3"]
    for bad in ({"a\\b": 1}, {"$or": 1}, {"a": {"$huh": 1}}):
        with pytest.raises(PatternInvalid):
            await play.declare("one", Declaration("there", ("*",), (), bad))


async def test_a_filter_may_name_a_number_that_is_written_with_the_digits_of_an_integer(host: Store) -> None:
    play = await Play.begin(host)
    await play.declare("one", Declaration("there", ("*",), (), {"n": {"$gte": 1.2345678901234567e20}}))
    await entered(
        play, *(Event(f"run{number}", "x", {"n": n}) for number, n in enumerate((1e19, 1.2345678901234567e20, 1e21)))
    )
    await OutboxFanOut().look_further(host.db(), play.now, "one")
    assert await told(play) == ["run1", "run2"]


async def test_an_entry_whose_record_is_gone_fits_no_filter(host: Store) -> None:
    play = await Play.begin(host)
    await play.declare("one", Declaration("there", ("record.published",), ("parcels",), {}))
    await play.declare("two", Declaration("there", ("record.published",), ("parcels",)))
    await play.publish("parcels", [1, 2], Fault.NONE)
    await host.sql("DELETE FROM records WHERE s1 = 1")
    for name in ("one", "two"):
        await OutboxFanOut().look_further(host.db(), play.now, name)
    assert [len(await told(play, name)) for name in ("one", "two")] == [1, 2]


@pytest.mark.clause("outbox.deliver")
async def test_what_happens_to_deliveries_is_told_to_nobody(host: Store) -> None:
    play = await Play.begin(host)
    await play.declare("one", Declaration("there", ("*",)))
    await play.publish("parcels", [1], Fault.NONE)
    await OutboxFanOut().look_further(host.db(), play.now, "one")
    [row] = await host.sql("SELECT delivery_id FROM deliveries")
    await redeliver.cancel(host.db(), play.caller, play.now, row["delivery_id"])
    await redeliver.redeliver(host.db(), play.caller, play.now, row["delivery_id"])
    assert await OutboxFanOut().look_further(host.db(), play.now, "one") == 2
    assert await OutboxFanOut().look_further(host.db(), play.now, "one") == 0
    assert len(await told(play)) == 1


@pytest.mark.clause("outbox.lag", "timers.alarm")
async def test_the_clock_looks_for_all_and_one_that_fails_holds_up_none(host: Store) -> None:
    play = await Play.begin(host)
    for name in ("one", "two"):
        await play.declare(name, Declaration("there", ("record.published",)))
    await play.publish("parcels", [1], Fault.NONE)
    await host.sql("UPDATE subscriptions SET filter = 'no JSON' WHERE name = 'one'")
    later = type(START)(START + 3000)
    drained = await clock.drain(host.db, later, [OutboxFanOut()])
    assert (drained.fired, [failure.item for failure in drained.failed]) == ({"outbox_fan_out": 1}, [f"one@{play.now}"])
    assert [len(await told(play, name)) for name in ("one", "two")] == [0, 1]
    assert await delivery_list.lag(host.db(), later) == 3.0, "one that is set aside is behind all the same"
    await host.sql("UPDATE subscriptions SET filter = NULL")
    assert drained.next_due is not None
    drained = await clock.drain(host.db, drained.next_due, [OutboxFanOut()])
    assert drained.next_due is None
    assert [len(await told(play, name)) for name in ("one", "two")] == [1, 1]
    assert await delivery_list.lag(host.db(), later) == 0.0


async def test_bytes_are_fixed_when_the_delivery_is_made(host: Store) -> None:
    play = await Play.begin(host)
    await play.declare("one", Declaration("there", ("record.published",)))
    await play.declare("two", Declaration("there", ("record.*",)))
    await play.publish("parcels", [1], Fault.NONE)
    await OutboxFanOut("shop").look_further(host.db(), play.now, "one")
    await OutboxFanOut("shop").look_further(host.db(), type(START)(START + 9), "two")
    one, two = await host.sql("SELECT * FROM deliveries ORDER BY subscription")
    assert one["body"] == two["body"], "an event is the same to everybody"
    assert json.dumps(json.loads(one["body"]), sort_keys=True, separators=(",", ":")) == one["body"]
    shown = await subscriptions.show(host.db(), play.caller, "one")
    assert shown.behind == 0


async def two_subscriptions(store: Store, count: int) -> Play:
    """Deliveries of `count` publications to each of two."""
    play = await Play.begin(store)
    for name in ("one", "two"):
        await play.declare(name, Declaration("there", ("record.published",)))
    for _ in range(count):
        await play.publish("parcels", [1], Fault.NONE)
    for name in ("one", "two"):
        await OutboxFanOut().look_further(store.db(), play.now, name)
    return play


@pytest.mark.clause("outbox.redeliver")
@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_a_page_looks_at_so_many_and_may_be_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: Any) -> None:
    monkeypatch.setattr(delivery_list, "QUERY_EXAMINED", 4)
    async with sqlite_store(tmp_path) as store:
        play = await two_subscriptions(store, 9)
        wanted = delivery_list.Wanted(subscription="one", order=order)
        found: list[str] = []
        sizes, cursor = [], None
        while True:
            page = await delivery_list.list_deliveries(store.db(), play.caller, PageRequest(3, cursor), wanted)
            sizes.append(len(page.items))
            found += [one.delivery_id for one in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert max(sizes) <= 3
        assert len(found) == len(set(found)) == 9
        assert found == sorted(found, reverse=order == "desc")


@pytest.mark.clause("outbox.redeliver")
@pytest.mark.parametrize("state", ["dead", "delivered"])
async def test_asking_for_many_again_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: Any
) -> None:
    monkeypatch.setattr(redeliver, "QUERY_EXAMINED", 4)
    async with sqlite_store(tmp_path) as store:
        play = await two_subscriptions(store, 9)
        await store.sql("UPDATE deliveries SET state = ?, next_attempt_at = NULL, ended_at = 1", state)
        made: list[str] = []
        after: str | None = None
        while True:
            chosen = redeliver.Chosen(state=state, subscription="two", after=after, limit=3)
            again = await redeliver.redeliver_many(store.db(), play.caller, play.now, chosen, "they are back")
            made += [one.delivery_id for one in again.deliveries]
            after = again.next_after
            if after is None:
                break
        assert len(made) == len(set(made)) == 9
        rows = await store.sql("SELECT subscription, state, generation FROM deliveries GROUP BY 1, 2, 3 ORDER BY 1")
        assert [tuple(row.values()) for row in rows] == [("one", state, 1), ("two", "pending", 2)]
        [entries] = await store.sql("SELECT count(*) AS n FROM history WHERE type = 'delivery.redelivered'")
        assert entries["n"] == 9

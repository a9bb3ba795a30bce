"""C21: cleaning up must not take what is still alive. Retention is an hour; everything began three hours ago."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage.history.query import entries
from moorage.kernel.errors import RecordRemoved
from moorage.kernel.instants import after
from moorage.kernel.limits import DELIVERY_RETENTION_SECONDS
from moorage.messages.outbox.delivery_retention import DeliveryRetention
from moorage.messages.outbox.redeliver import redeliver
from moorage.messages.outbox.subscriptions import Declaration
from moorage.records.model import Draft
from moorage.timers import clock
from tests.contract.adapters import sqlite_store
from tests.contract.desk import KIND, Desk, ref
from tests.contract.faults import Fault
from tests.contract.outbox_model import START, Play

HOUR = 3600


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with sqlite_store(tmp_path) as store:
        made = Desk(store)
        await made.declare(retention=HOUR)
        yield made
        # After every case an ordinary publish, claim and settle still works.
        record = await made.publish({"to": "ordinary"}, priority=1_000_000)
        held = await made.claim_one()
        assert held.record.id == record.id
        await made.settle(ref(held))
        await made.history_agrees()


@pytest.mark.clause("records.retention", "leases.renew", "records.idempotent")
async def test_c21_only_what_ended_an_hour_ago_is_removed(desk: Desk) -> None:
    await desk.publish({"to": "A"}, id="A")
    a = await desk.claim_one(match={"to": "A"}, seconds=HOUR)
    await desk.publish({"to": "B"}, id="B", not_before=after(desk.now, 48 * HOUR))
    await desk.publish({"to": "C"}, id="C")
    await desk.settle(ref(await desk.claim_one(match={"to": "C"})))
    await desk.publish({"to": "D"}, id="D")
    key = desk.key("I", "content")
    keyed = [Draft(KIND, {"to": "I"}, id="I")]
    await desk.publish_all(keyed, key)
    await desk.settle(ref(await desk.claim_one(match={"to": "I"})))
    await desk.publish({"to": "P"}, id="P")
    await desk.settle(ref(await desk.claim_one(match={"to": "P"})), Draft(KIND, {"to": "child"}, id="child"))
    for _ in range(6):
        desk.pass_time(HOUR / 2 - 100)
        await desk.renew(ref(a), HOUR)
    desk.pass_time(0)
    await desk.settle(ref(await desk.claim_one(match={"to": "D"})))
    desk.pass_time(600)

    # C has gone, and P, whose child is still to be worked on, is put off.
    assert await desk.fire() == {"retention_swept": 2}
    rows = await desk.store.sql("SELECT id FROM records ORDER BY id")
    assert [row["id"] for row in rows] == ["A", "B", "D", "I", "P", "child"]
    assert (await desk.settle(ref(a))).record.state == "consumed"
    assert [one.id for one in await desk.publish_all(keyed, key)] == ["I"]
    assert (await desk.get("B")).not_before is not None
    assert [one.record.id for one in (await desk.lineage("child"))[0]] == ["P"]

    # Reading C gives one answer; what happened to it is told without a gap.
    for _ in range(3):
        with pytest.raises(RecordRemoved):
            await desk.get("C")
    assert await desk.types("C") == ["published", "claimed", "settled", "removed"]
    told = await entries(desk.store.db(), 0, 500)
    assert [entry.position for entry in told] == list(range(1, len(told) + 1))
    assert {"published", "removed"} <= {entry.type.removeprefix("record.") for entry in told if entry.subject == "C"}


@pytest.mark.clause("records.retention")
async def test_c21_age_counts_from_the_end_and_not_from_the_creation(desk: Desk) -> None:
    await desk.publish(id="D")
    desk.pass_time(3 * HOUR)
    await desk.settle(ref(await desk.claim_one()))
    desk.pass_time(HOUR - 1)
    assert await desk.fire() == {}
    desk.pass_time(61)
    assert await desk.fire() == {"retention_swept": 1}


@pytest.mark.clause("outbox.deliver", "outbox.redeliver")
async def test_c21_a_delivery_that_is_still_being_tried_goes_on(tmp_path: Path) -> None:
    """C21 J: what was delivered or given up goes a week after that; what is pending or dead stays, however old it is."""
    async with sqlite_store(tmp_path) as store:
        play = await Play.begin(store)
        await play.declare("one", Declaration("there", ("record.published",), start=0))
        await play.publish("parcels", [1, 2, 3, 4, 5], Fault.NONE)
        await play.fan_out("one", Fault.NONE)
        rows = await store.sql("SELECT delivery_id FROM deliveries ORDER BY delivery_id")
        tried, leased, dead, made, canceled = [row["delivery_id"] for row in rows]
        week = int(DELIVERY_RETENTION_SECONDS)
        await store.sql("UPDATE deliveries SET attempts = 20 WHERE delivery_id = ?", tried)
        await store.sql("UPDATE deliveries SET leased_until = 9000000000000 WHERE delivery_id = ?", leased)
        for id_, state, at in ((dead, "dead", START), (made, "delivered", START), (canceled, "canceled", after(START, 5))):
            ended = "UPDATE deliveries SET state = ?, next_attempt_at = NULL, ended_at = ? WHERE delivery_id = ?"
            await store.sql(ended, state, at, id_)
        retention = [DeliveryRetention()]
        drained = await clock.drain(store.db, after(START, week - 1), retention)
        assert drained.fired == {}
        drained = await clock.drain(store.db, after(START, week), retention)
        assert drained.fired == {"delivery_removed": 1}, "age counts from the end"
        drained = await clock.drain(store.db, after(START, 10 * week), retention)
        assert drained.fired == {"delivery_removed": 1}
        assert drained.next_due is None
        left = [row["delivery_id"] for row in await store.sql("SELECT delivery_id FROM deliveries ORDER BY delivery_id")]
        assert left == [tried, leased, dead]
        again = await redeliver(store.db(), play.caller, after(START, 10 * week), dead)
        assert (again.state, again.generation) == ("pending", 2)

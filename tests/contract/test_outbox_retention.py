"""A record stays while a delivery of what happened to it is pending: `data_ref` is to lead somewhere when it arrives."""

import pytest

from moorage.catalog import destinations
from moorage.catalog.model import DestinationDeclaration
from moorage.messages.outbox import redeliver, subscriptions
from moorage.messages.outbox.fan_out import OutboxFanOut
from moorage.messages.outbox.subscriptions import Declaration
from moorage.records.model import Draft
from tests.contract.adapters import Store
from tests.contract.desk import KIND, Desk, ref

HOUR = 3600


@pytest.fixture
async def desk(store: Store) -> Desk:
    """KIND keeps its records for an hour, and `there` is told of each publication."""
    made = Desk(store)
    await made.declare(retention=HOUR)
    told = DestinationDeclaration.model_validate({"url": "https://there.example.com/"})
    await destinations.put(made.db(), made.caller, made.now, "there", told)
    declared = Declaration("there", ("record.published",), (KIND,))
    await subscriptions.put(made.db(), made.kinds, made.caller, made.now, "all", declared)
    return made


@pytest.mark.clause("records.retention", "outbox.deliver")
async def test_what_is_still_to_be_told_of_stays(desk: Desk) -> None:
    await desk.publish_all([Draft(KIND, {}, id="told"), Draft(KIND, {}, id="untold")])
    await OutboxFanOut("shop").look_further(desk.db(), desk.now, "all")
    await desk.publish(id="never")  # whom nobody has looked at yet is not held
    for held in await desk.claim(limit=3):
        await desk.settle(ref(held))
    ids = {row["aggregate_id"]: row["delivery_id"] for row in await desk.store.sql("SELECT * FROM deliveries")}
    await redeliver.cancel(desk.db(), desk.caller, desk.now, ids["told"])
    desk.pass_time(HOUR + 60)
    await desk.fire()
    assert [row["id"] for row in await desk.store.sql("SELECT id FROM records")] == ["untold"]
    await redeliver.cancel(desk.db(), desk.caller, desk.now, ids["untold"])
    desk.pass_time(24 * HOUR)
    await desk.fire()
    assert await desk.store.sql("SELECT id FROM records") == []

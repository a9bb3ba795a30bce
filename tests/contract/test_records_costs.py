"""What an operation costs: one round trip where the budget says one, and rows that do not grow with the backlog."""

from itertools import product
from typing import Any

import pytest

from moorage.kernel.instants import after
from moorage.records import settle
from moorage.records.due import RecordDelays, RecordLeases
from moorage.records.model import ClaimRef, Draft
from moorage.store.transaction import Transaction
from tests.contract.adapters import Store
from tests.contract.desk import KIND, Desk, grant, ref


@pytest.fixture
async def desk(store: Store) -> Desk:
    made = Desk(store)
    await made.declare()
    await made.publish(id="first")
    return made


async def every_write(desk: Desk) -> dict[str, Any]:
    """Each operation once, with what it cost."""
    costs: dict[str, Any] = {}

    async def spend(name: str, work: Any) -> Any:
        answer = await work
        costs[name] = desk.cost
        return answer

    await spend("publish", desk.publish(id="one"))
    await spend("publish a batch", desk.publish_all([Draft(KIND, {"size": number}) for number in range(20)]))
    await spend("publish with parents", desk.publish(parents=("first", "one")))
    await spend("publish by key", desk.publish_all([Draft(KIND, {})], desk.key("k", "c")))
    await spend("claim", desk.claim({"size": 1}))
    await spend("claim by range", desk.claim({"size": {"$gt": 17}}))
    await spend("claim nothing", desk.claim({"size": 1, "to": "nobody"}))
    held = await spend("claim many", desk.claim(limit=5))
    await spend("renew", desk.renew(ref(held[0]), 100))
    await spend("release", desk.release(ref(held[0])))
    await spend("settle", desk.settle(ref(held[1])))
    await spend("settle with results", desk.settle(ref(held[2]), Draft(KIND, {}), Draft(KIND, {})))
    await spend("fail", desk.fail(ref(held[3])))
    await spend("dead-letter", desk.fail(ref(held[4]), dead=True))
    await spend("requeue by pattern", desk.requeue_matching({}))
    return costs


@pytest.mark.clause("records.publish", "records.claim", "records.settle", "records.fail")
async def test_every_hot_operation_is_one_round_trip(desk: Desk) -> None:
    costs = await every_write(desk)
    assert {name: cost.trips for name, cost in costs.items()} == dict.fromkeys(costs, 1)


@pytest.mark.clause("catalog.grants")
async def test_a_narrowed_credential_pays_the_same_and_a_look_at_what_it_holds(desk: Desk) -> None:
    """Only a record's body tells whether it is within a narrowed grant."""
    await desk.publish({"to": "mine"})
    mine = grant("publish", "claim", kinds=[KIND], match={"to": "mine"})
    narrow = desk.seen_by(await desk.credential("ann", mine))
    await narrow.publish({"to": "mine"})
    assert narrow.cost.trips == 1
    held = await narrow.claim_one()
    assert narrow.cost.trips == 1
    await narrow.settle(ref(held), Draft(KIND, {"to": "mine"}))
    assert narrow.cost.trips == 2


@pytest.mark.clause("catalog.grants")
async def test_a_credential_for_some_kinds_pays_the_same(desk: Desk) -> None:
    some = desk.seen_by(await desk.credential("ann", grant("publish", "claim", kinds=["a", KIND])))
    costs = []
    for end in (some.release, some.fail, some.settle):
        held = ref(await some.claim_one())
        await some.renew(held)
        costs.append(some.cost.trips)
        await end(held)
        costs.append(some.cost.trips)
        some.pass_time(5)
        await some.fire()
    assert costs == [1] * 6


@pytest.mark.edge
@pytest.mark.clause("records.claim", "records.publish")
async def test_no_operation_reads_more_rows_when_more_records_lie_there(d1_store: Any) -> None:
    desk = Desk(d1_store)
    await desk.declare()
    await desk.publish(id="first")
    small = await every_write(desk)
    for _ in range(4):
        await desk.publish_all([Draft(KIND, {"size": 1000 + number, "to": "bulk"}) for number in range(500)])
    for held in await desk.claim({"to": "bulk"}, limit=100):
        await desk.settle(ref(held))
    await desk.claim({"to": "bulk"}, limit=100)
    again = Desk(d1_store)
    again.kinds = desk.kinds
    again.now = after(desk.now, 1)
    large = await every_write_again(again)
    grown = {name: (small[name].rows_read, large[name].rows_read) for name in large}
    assert all(after_ <= before + 25 for before, after_ in grown.values()), grown
    assert large["claim"].rows_read <= 20
    assert large["claim nothing"].rows_read <= 20


@pytest.mark.edge
@pytest.mark.clause("records.publish")
async def test_a_publication_writes_three_rows_and_one_for_each_path_that_it_has(d1_store: Any) -> None:
    """The record, its history and its place among what is available; D1 charges for no index beyond its paths."""
    desk = Desk(d1_store)
    await desk.declare()
    parts: list[dict[str, Any]] = [{}, {"to": "a"}, {"to": "a", "size": 1}, {"to": "a", "size": 1, "tags": [], "any": None}]
    for priority, body in product((0, 7), parts):
        await desk.publish({**body, "text": "not declared"}, priority=priority)
        assert desk.cost.rows_written == 3 + len(body)
    await desk.publish({}, id="chosen-by-the-client")
    assert desk.cost.rows_written == 3
    await desk.publish_all([Draft(KIND, {"to": "a", "size": number}) for number in range(50)])
    assert desk.cost.rows_written == 50 * 5
    await desk.publish({"to": "a", "size": 1}, not_before=after(desk.now, 60))
    assert desk.cost.rows_written == 4, "what waits stands in two indexes, for the Clock and for pages, and in no path's"


@pytest.mark.edge
@pytest.mark.clause("records.claim", "records.settle")
async def test_a_records_life_writes_few_rows(d1_store: Any) -> None:
    desk = Desk(d1_store)
    await desk.declare()
    await desk.publish({"to": "a"})
    held = await desk.claim_one(match={"to": "a"})
    assert desk.cost.rows_written == 5
    assert desk.cost.rows_read <= 20
    await desk.settle(ref(held))
    assert desk.cost.rows_written == 4


async def every_write_again(desk: Desk) -> dict[str, Any]:
    """The operations whose cost must not grow, in a store that `every_write` has filled before."""
    costs: dict[str, Any] = {}

    async def spend(name: str, work: Any) -> Any:
        answer = await work
        costs[name] = desk.cost
        return answer

    await spend("publish", desk.publish({"size": 7, "to": "rare"}))
    await spend("publish with parents", desk.publish(parents=("first", "one")))
    [held] = await spend("claim", desk.claim({"to": "rare", "size": {"$gt": 0}}))
    await spend("claim nothing", desk.claim({"to": "bulk", "size": 7}))
    await spend("renew", desk.renew(ref(held), 100))
    await spend("release", desk.release(ref(held)))
    [held] = await desk.claim({"to": "rare"})
    await spend("fail", desk.fail(ref(held), retry=0))
    [held] = await desk.claim({"to": "rare"})
    await spend("settle", desk.settle(ref(held)))
    return costs


@pytest.mark.clause("store.atomic")
async def test_no_write_has_more_preconditions_than_a_transaction_may_have(desk: Desk) -> None:
    """The largest plans: results with ids of their own, in several kinds, from a credential."""
    await desk.declare("other", {})
    caller = await desk.credential("ann", grant("publish", "claim", "read"))
    ann = desk.seen_by(caller)
    held = await ann.claim_one()
    sent: list[Transaction] = []

    class Watching:
        cost = desk.cost

        async def commit(self, tx: Transaction) -> None:
            sent.append(tx)
            await desk.store.db().commit(tx)

        async def read(self, reading: Any) -> None:
            await desk.store.db().read(reading)

    results = [Draft(KIND, {}, id="r1"), Draft("other", {}, id="r2")]
    await settle.settle(Watching(), ann.kinds, caller, ann.now, ref(held), results)  # type: ignore[arg-type]
    assert len(sent) == 1
    assert len(sent[0].conflicts) <= 8
    assert len(sent[0]) < 20


@pytest.mark.clause("timers.alarm")
async def test_firing_an_item_is_one_round_trip(desk: Desk) -> None:
    held = await desk.claim_one(seconds=1)
    waiting = await desk.publish(not_before=after(desk.now, 1))
    desk.pass_time(1)
    for work, name in ((RecordLeases(), held.record.id), (RecordDelays(), waiting.id)):
        db = desk.db()
        assert await work.fire(db, desk.now, f"{name}@{desk.now}") == 1
        assert db.cost.trips == 1
    assert ClaimRef(held.record.id, 1) == ref(held)

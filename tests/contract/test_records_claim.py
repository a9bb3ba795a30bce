"""Claiming: who gets which record, in which order, and never twice."""

import asyncio

import pytest

from moorage.kernel.errors import IdInvalid, KindUnknown, PatternInvalid, RequestInvalid
from moorage.kernel.instants import after
from moorage.kernel.limits import CLAIM_BATCH, LEASE_SECONDS
from moorage.records.model import Draft
from tests.contract.adapters import Store, dump
from tests.contract.desk import KIND, POLICY, Desk, ref


@pytest.fixture
async def desk(store: Store) -> Desk:
    made = Desk(store)
    await made.declare()
    return made


@pytest.mark.clause("records.claim", "leases.claim")
async def test_a_claim_gives_the_record_its_lease_and_a_larger_epoch(desk: Desk) -> None:
    published = await desk.publish()
    held = await desk.claim_one(worker="ann")
    assert held.record.id == published.id
    assert (held.record.state, held.record.attempts) == ("claimed", 1)
    assert (held.lease.epoch, held.lease.owner, held.lease.attempt) == (1, "ann", 1)
    assert held.lease.expires_at == after(desk.now, POLICY["lease_seconds"])
    assert await desk.get(published.id) == held.record
    await desk.release(ref(held))
    assert (await desk.claim_one(seconds=1.5)).lease.expires_at == after(desk.now, 1.5)
    assert (await desk.row(published.id))["epoch"] == 2
    await desk.history_agrees()


@pytest.mark.clause("records.claim")
async def test_the_order_is_priority_and_then_age(desk: Desk) -> None:
    wished = [0, 5, -1, 5, 1_000_000, 0, -1_000_000]
    ids = [(await desk.publish(priority=priority)).id for priority in wished]
    order = sorted(range(len(wished)), key=lambda place: (-wished[place], place))
    first = await desk.claim(limit=3)
    rest = [await desk.claim_one() for _ in range(4)]
    assert [one.record.id for one in [*first, *rest]] == [ids[place] for place in order]
    assert await desk.claim(limit=100) == []


@pytest.mark.clause("records.claim", "records.pattern-one-meaning")
@pytest.mark.parametrize(
    ("match", "sizes"),
    [
        ({}, [1, 2, 3, 4, 5]),
        ({"size": 3}, [3]),
        ({"size": {"$gt": 3}}, [4, 5]),
        ({"size": {"$gte": 2, "$lt": 4}}, [2, 3]),
        ({"size": {"$in": [5, 1, 5, 9]}}, [1, 5]),
        ({"to": "even", "size": {"$gt": 2}}, [4]),
        ({"$or": [{"size": 1}, {"to": "even"}]}, [1, 2, 4]),
        ({"$not": {"to": "even"}}, [1, 3, 5]),
        ({"tags": {"$any": ["t3"]}}, [3]),
        ({"size": {"$in": []}}, []),
        ({"size": {"$nin": []}}, [1, 2, 3, 4, 5]),
    ],
)
async def test_a_claim_takes_what_a_query_finds_and_nothing_else(
    desk: Desk, match: dict[str, object], sizes: list[int]
) -> None:
    for size in range(1, 6):
        await desk.publish({"size": size, "to": "odd" if size % 2 else "even", "tags": [f"t{size}"]})
    assert [record.body["size"] for record in (await desk.query(match)).items] == sizes
    assert [one.record.body["size"] for one in await desk.claim(match, limit=100)] == sizes
    assert await desk.claim(match, limit=100) == []


@pytest.mark.clause("records.claim")
async def test_the_limit_takes_the_oldest_that_match(desk: Desk) -> None:
    for size in range(6):
        await desk.publish({"size": size, "to": "even" if size % 2 == 0 else "odd"})
    assert [one.record.body["size"] for one in await desk.claim({"to": "even"}, limit=2)] == [0, 2]
    assert [one.record.body["size"] for one in await desk.claim({"size": {"$gt": 0}}, limit=2)] == [1, 3]


@pytest.mark.clause("records.claim", "kernel.limits")
async def test_a_claim_takes_one_to_a_hundred(desk: Desk) -> None:
    await desk.publish_all([Draft(KIND, {"size": number}) for number in range(120)])
    assert len(await desk.claim(limit=CLAIM_BATCH)) == CLAIM_BATCH
    for limit in (0, -1, CLAIM_BATCH + 1):
        with pytest.raises(RequestInvalid):
            await desk.claim(limit=limit)
    assert len(await desk.claim(limit=CLAIM_BATCH)) == 20
    await desk.history_agrees()


@pytest.mark.clause("kernel.limits")
async def test_a_lease_lasts_a_millisecond_to_half_a_day(desk: Desk) -> None:
    await desk.publish_all([Draft(KIND, {}), Draft(KIND, {})])
    assert (await desk.claim_one(seconds=0.001)).lease.expires_at == desk.now + 1
    assert (await desk.claim_one(seconds=LEASE_SECONDS)).lease.expires_at == after(desk.now, LEASE_SECONDS)
    before = await dump(desk.store)
    for seconds in (0, -1, 0.0009, LEASE_SECONDS + 0.001, float("nan"), float("inf")):
        with pytest.raises(RequestInvalid):
            await desk.claim(seconds=seconds)
    assert await dump(desk.store) == before


@pytest.mark.clause("records.claim", "records.pattern")
async def test_a_claim_that_makes_no_sense_changes_nothing(desk: Desk) -> None:
    await desk.publish()
    before = await dump(desk.store)
    with pytest.raises(KindUnknown):
        await desk.claim(kind="nowhere")
    with pytest.raises(PatternInvalid):
        await desk.claim({"undeclared": 1})
    with pytest.raises(PatternInvalid):
        await desk.claim({"size": "1"})
    for worker in ("", "a b", "é", "a/b", ".", "x" * 201, "w\x00"):
        with pytest.raises(IdInvalid):
            await desk.claim(worker=worker)
    assert await dump(desk.store) == before


@pytest.mark.clause("records.claim", "store.atomic")
async def test_two_claimers_at_once_share_nothing(desk: Desk) -> None:
    for _ in range(10):
        await desk.publish()
        ann, ben = desk.seen_by(desk.caller), desk.seen_by(desk.caller)
        one, two = await asyncio.gather(ann.claim(worker="ann"), ben.claim(worker="ben"))
        assert len(one) + len(two) == 1
    await desk.history_agrees()


@pytest.mark.clause("records.claim", "leases.claim")
async def test_a_hundred_claimers_on_a_hundred_records_get_one_each(desk: Desk) -> None:
    published = await desk.publish_all([Draft(KIND, {"size": number}) for number in range(100)])
    desks = [desk.seen_by(desk.caller) for _ in range(100)]
    claims = await asyncio.gather(*(one.claim(worker=f"w{number}") for number, one in enumerate(desks)))
    assert [len(taken) for taken in claims] == [1] * 100
    assert {taken[0].record.id for taken in claims} == {record.id for record in published}
    assert await desk.claim() == []
    await desk.history_agrees()


@pytest.mark.clause("records.claim")
async def test_a_hundred_claimers_of_ten_on_a_hundred_records_share_them(desk: Desk) -> None:
    await desk.publish_all([Draft(KIND, {"size": number}) for number in range(100)])
    desks = [desk.seen_by(desk.caller) for _ in range(30)]
    claims = await asyncio.gather(*(one.claim({"size": {"$gte": 0}}, limit=10) for one in desks))
    taken = [one.record.id for some in claims for one in some]
    assert (len(taken), len(set(taken))) == (100, 100)


@pytest.mark.clause("records.claim")
async def test_no_claim_before_not_before_and_one_at_it(desk: Desk) -> None:
    published = await desk.publish(not_before=after(desk.now, 10))
    assert await desk.next_due() == after(desk.now, 10)
    desk.pass_time(9.999)
    assert await desk.fire() == {}
    assert await desk.claim() == []
    desk.pass_time(0.001)
    assert await desk.fire() == {"record_due": 1}
    assert (await desk.claim_one()).record.id == published.id
    assert await desk.claim() == []
    assert await desk.types(published.id) == ["published", "due", "claimed"]
    await desk.history_agrees()


@pytest.mark.clause("records.claim")
async def test_kinds_do_not_mix(desk: Desk) -> None:
    await desk.declare("other", {"to": "string"})
    await desk.publish(kind="other")
    assert await desk.claim({"to": "a@example.test"}) == []
    assert len(await desk.claim({"to": "a@example.test"}, kind="other")) == 1

"""Renewing and settling many claims at once: each item is what the single call is, with its own outcome."""

import asyncio
from typing import Any

import pytest

from moorage.kernel.errors import (
    BodyInvalid,
    IdempotencyConflict,
    KindUnknown,
    LeaseExpired,
    LeaseFenced,
    RecordExists,
    RecordUnknown,
    RequestInvalid,
    SettlementConflict,
    StorageBindingUnavailable,
)
from moorage.kernel.instants import after
from moorage.records import batches
from moorage.records.batches import Ending, Renewal
from moorage.records.model import Claim, ClaimRef, Draft, RecordLease, Settlement
from tests.contract.adapters import Store, dump
from tests.contract.desk import KIND, Desk, grant, ref
from tests.contract.faults import Fault, FaultyDatabase, Plan


@pytest.fixture
async def desk(store: Store) -> Desk:
    made = Desk(store)
    await made.declare()
    await made.publish_all([Draft(KIND, {"size": number}) for number in range(8)])
    return made


async def renew(desk: Desk, *items: Renewal) -> list[Any]:
    return list(await batches.renew_many(desk.db(), desk.kinds, desk.caller, desk.now, items))


async def settle(desk: Desk, *items: Ending) -> list[Any]:
    return list(await batches.settle_many(desk.db(), desk.kinds, desk.caller, desk.now, items))


def kinds_of(outcomes: list[Any]) -> list[type]:
    return [type(one) for one in outcomes]


async def some_of_each(desk: Desk) -> tuple[list[Claim], list[ClaimRef]]:
    """Live claims, and after them what a claim is refused for: run out, fenced, unknown, nobody's epoch."""
    short = await desk.claim(limit=2, seconds=5)
    desk.pass_time(5)
    held = await desk.claim(limit=4)
    other = held.pop()
    refused = [ref(short[0]), ClaimRef(other.record.id, 9), ClaimRef("rec_none", 1), ClaimRef(short[1].record.id, 2**60)]
    return held, refused


# --- renewing -------------------------------------------------------------------------------------------------------


@pytest.mark.clause("leases.renew", "leases.fence")
async def test_each_lease_is_renewed_or_refused_by_itself_in_one_round_trip(desk: Desk) -> None:
    held, refused = await some_of_each(desk)
    outcomes = await renew(
        desk,
        Renewal(refused[0]),
        Renewal(ref(held[0]), 100),
        *map(Renewal, refused[1:]),
        *(Renewal(ref(h)) for h in held[1:]),
    )
    assert desk.cost.trips == 1
    assert kinds_of(outcomes) == [
        LeaseExpired, RecordLease, LeaseFenced, RecordUnknown, LeaseFenced, RecordLease, RecordLease,
    ]  # fmt: skip
    assert outcomes[1].expires_at == after(desk.now, 100)
    assert outcomes[5] == held[1].lease
    await desk.history_agrees()
    assert await desk.types(held[0].record.id) == ["published", "claimed", "renewed"]
    assert await desk.types(refused[0].record) == ["published", "claimed"]


@pytest.mark.clause("leases.renew")
async def test_a_batch_and_single_calls_leave_the_same(desk: Desk) -> None:
    one, two = await desk.claim(limit=2)
    single = await desk.renew(ref(one), 77)
    [many] = await renew(desk, Renewal(ref(two), 77))
    assert (single.expires_at, single.owner, single.attempt) == (many.expires_at, many.owner, many.attempt)
    stories = [[(entry.type, entry.data) for entry in await desk.told(held.record.id)] for held in (one, two)]
    assert stories[0] == stories[1]


# --- settling -------------------------------------------------------------------------------------------------------


@pytest.mark.clause("records.settle", "leases.fence")
async def test_each_claim_is_settled_or_refused_by_itself(desk: Desk) -> None:
    held, refused = await some_of_each(desk)
    results = (Draft(KIND, {"to": "x"}), Draft(KIND, {"to": "y"}, id="mine"))
    outcomes = await settle(desk, *map(Ending, refused), Ending(ref(held[0]), results), Ending(ref(held[1])))
    assert desk.cost.trips == 3
    assert kinds_of(outcomes) == [LeaseExpired, LeaseFenced, RecordUnknown, LeaseFenced, Settlement, Settlement]
    assert (await desk.get(held[0].record.id)).state == "consumed"
    assert (await desk.get("mine")).parents == [held[0].record.id]
    assert (await desk.get(held[2].record.id)).state == "claimed"
    await desk.history_agrees()


@pytest.mark.clause("records.settle", "records.settle-replay")
async def test_all_that_may_be_settled_is_one_round_trip_and_a_replay_gives_the_receipts(desk: Desk) -> None:
    held = await desk.claim(limit=5)
    items = [Ending(ref(one), (Draft(KIND, {"size": place}),)) for place, one in enumerate(held)]
    first = await settle(desk, *items)
    assert desk.cost.trips == 1
    before = await dump(desk.store)
    assert await settle(desk, *items) == first
    assert await dump(desk.store) == before
    again = await settle(desk, items[0], Ending(ref(held[1])), *items[2:])
    assert again[0] == first[0]
    assert isinstance(again[1], SettlementConflict)
    single = await desk.settle(ref(held[2]), *items[2].results)
    assert single == first[2]
    later = ref(await desk.claim_one())
    mixed = await settle(desk, items[3], Ending(later))
    assert (mixed[0], kinds_of(mixed)) == (first[3], [Settlement, Settlement])


@pytest.mark.clause("records.settle-replay", "store.transport")
async def test_a_batch_whose_answer_was_lost_is_answered_as_it_was_made(desk: Desk) -> None:
    held = await desk.claim(limit=3)
    items = [Ending(ref(one), (Draft(KIND, {"size": place}),)) for place, one in enumerate(held)]
    lost = FaultyDatabase(desk.db(), Plan(commits=[Fault.FAIL_AFTER]))
    with pytest.raises(StorageBindingUnavailable):
        await batches.settle_many(lost, desk.kinds, desk.caller, desk.now, items)
    before = await dump(desk.store)
    outcomes = await settle(desk, *items)
    assert kinds_of(outcomes) == [Settlement] * 3
    assert await dump(desk.store) == before


@pytest.mark.clause("records.settle")
async def test_results_that_are_wrong_are_their_own_item_s_refusal(desk: Desk) -> None:
    held = await desk.claim(limit=6)
    await desk.publish(id="used")
    endings = [
        Ending(ref(held[0]), (Draft(KIND, {"size": "no number"}),)),
        Ending(ref(held[1]), (Draft("unheard", {}),)),
        Ending(ref(held[2]), (Draft(KIND, {}, id="used"),)),
        Ending(ref(held[3]), (Draft(KIND, {}, id="twice"),)),
        Ending(ref(held[4]), (Draft(KIND, {}, id="twice"),)),
        Ending(ref(held[5]), (Draft(KIND, {}),)),
    ]
    outcomes = await settle(desk, *endings)
    assert kinds_of(outcomes) == [BodyInvalid, KindUnknown, RecordExists, Settlement, RecordExists, Settlement]
    states = [(await desk.get(one.record.id)).state for one in held]
    assert states == ["claimed", "claimed", "claimed", "consumed", "claimed", "consumed"]
    await desk.history_agrees()


@pytest.mark.clause("catalog.grants")
async def test_what_a_caller_may_not_see_is_unknown_to_it(desk: Desk) -> None:
    held = await desk.claim_one()
    await desk.declare("other", {})
    stranger = desk.seen_by(await desk.credential("ann", grant("claim", kinds=["other"])))
    assert kinds_of(await renew(stranger, Renewal(ref(held)))) == [RecordUnknown]
    assert kinds_of(await settle(stranger, Ending(ref(held)))) == [RecordUnknown]
    claimer = desk.seen_by(await desk.credential("bob", grant("claim", kinds=[KIND])))
    assert kinds_of(await renew(claimer, Renewal(ref(held)))) == [LeaseFenced]


async def test_a_batch_is_bounded_and_names_each_record_once(desk: Desk) -> None:
    held = ref(await desk.claim_one())
    for items in ([], [Ending(held), Ending(held)], [Ending(ClaimRef(f"r{n}", 1)) for n in range(101)]):
        with pytest.raises(RequestInvalid):
            await settle(desk, *items)
    with pytest.raises(RequestInvalid):
        await renew(desk, Renewal(held), Renewal(held))
    many = tuple(Draft(KIND, {}) for _ in range(100))
    with pytest.raises(RequestInvalid, match="500"):
        await settle(desk, *(Ending(ClaimRef(f"r{n}", 1), many) for n in range(6)))


@pytest.mark.clause("records.settle", "leases.fence")
async def test_two_batches_over_the_same_claims_at_once_settle_each_once(desk: Desk) -> None:
    held = await desk.claim(limit=8)
    ones = [Ending(ref(one), (Draft(KIND, {"to": "a"}),)) for one in held[:5]]
    others = [Ending(ref(one), (Draft(KIND, {"to": "b"}),)) for one in held[3:]]
    first, second = await asyncio.gather(settle(desk, *ones), settle(desk, *others))
    both = [*first[3:], *second[:2]]
    assert sorted(type(one).__name__ for one in both) == ["Settlement"] * 2 + ["SettlementConflict"] * 2
    assert all(isinstance(one, Settlement) for one in [*first[:3], *second[2:]])
    [row] = await desk.store.sql("SELECT count(*) AS n FROM record_parents")
    assert row["n"] == 8
    await desk.history_agrees()


# --- keys -----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("records.idempotent")
async def test_a_key_is_bound_to_what_a_batch_asked_with_it(desk: Desk) -> None:
    held = await desk.claim(limit=3)
    endings = [Ending(ref(one)) for one in held[:2]]
    key, other = desk.key("k", "both"), desk.key("k", "other")
    first = await batches.settle_many(desk.db(), desk.kinds, desk.caller, desk.now, endings, key)
    again = await batches.settle_many(desk.db(), desk.kinds, desk.caller, desk.now, endings, key)
    assert again == first
    with pytest.raises(IdempotencyConflict):
        await batches.settle_many(desk.db(), desk.kinds, desk.caller, desk.now, [Ending(ref(held[2]))], other)
    with pytest.raises(IdempotencyConflict):
        await batches.renew_many(desk.db(), desk.kinds, desk.caller, desk.now, [Renewal(ref(held[2]))], other)
    assert (await desk.get(held[2].record.id)).state == "claimed"

"""What a holder may do with a claim, and what nobody else may: renew, release, settle, fail."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

import pytest

from moorage.catalog.access import ACTIONS, Grant
from moorage.kernel.errors import (
    BodyInvalid,
    KindUnknown,
    LeaseExpired,
    LeaseFenced,
    PayloadTooLarge,
    RecordExists,
    RecordUnknown,
    RequestInvalid,
    SettlementConflict,
)
from moorage.kernel.instants import after, render
from moorage.kernel.limits import LEASE_SECONDS, SETTLE_RESULTS
from moorage.records.model import ClaimRef, Draft
from tests.contract.adapters import Store, dump
from tests.contract.desk import KIND, Desk, ref

RESULT = Draft(KIND, {"to": "result"})
WRITES: dict[str, Callable[[Desk, ClaimRef], Awaitable[Any]]] = {
    "renew": lambda desk, held: desk.renew(held),
    "release": lambda desk, held: desk.release(held),
    "settle": lambda desk, held: desk.settle(held, RESULT),
    "fail": lambda desk, held: desk.fail(held),
    "dead-letter": lambda desk, held: desk.fail(held, dead=True),
}
each_write = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())


@pytest.fixture
async def desk(store: Store) -> Desk:
    made = Desk(store)
    await made.declare()
    await made.publish()
    return made


async def refused(desk: Desk, write: Callable[[Desk, ClaimRef], Awaitable[Any]], held: ClaimRef, error: Any) -> None:
    """The write raises `error` and changes nothing."""
    await all_refused(desk, [held], error, [write])


async def all_refused(
    desk: Desk,
    claims: Sequence[ClaimRef],
    error: Any,
    writes: Iterable[Callable[[Desk, ClaimRef], Awaitable[Any]]] = WRITES.values(),
) -> None:
    """Each write under each claim raises `error` and changes nothing."""
    before = await dump(desk.store)
    for held in claims:
        for write in writes:
            with pytest.raises(error):
                await write(desk, held)
    assert await dump(desk.store) == before


async def settle_with(*arguments: Any) -> Any:
    """Settle with results; desk and claim come last."""
    *results, desk, held = arguments
    return await desk.settle(held, *results)


# --- The fence ---


@pytest.mark.clause("leases.fence")
async def test_a_record_that_is_not_there_is_unknown(desk: Desk) -> None:
    await all_refused(desk, [ClaimRef("rec_nobody", 1)], RecordUnknown)


@pytest.mark.clause("leases.fence")
async def test_an_epoch_that_is_not_the_claims_is_fenced(desk: Desk) -> None:
    [record] = (await desk.query()).items
    await all_refused(desk, [ClaimRef(record.id, epoch) for epoch in (0, 1)], LeaseFenced)
    await desk.release(ref(await desk.claim_one()))
    held = await desk.claim_one()
    assert held.lease.epoch == 2
    wrong = (0, -1, 1, 3, 2**53 - 1, 2**53, 10**30, -(10**30))
    await all_refused(desk, [ClaimRef(held.record.id, epoch) for epoch in wrong], LeaseFenced)


@pytest.mark.clause("leases.fence")
async def test_another_subject_is_fenced_even_with_the_right_epoch(desk: Desk) -> None:
    held = await desk.claim_one()
    other = desk.seen_by(await desk.credential("ben", Grant(ACTIONS)))
    await all_refused(other, [ref(held)], LeaseFenced)


@pytest.mark.clause("leases.fence", "leases.renew", "kernel.instants")
async def test_at_its_expiry_instant_a_lease_is_over(desk: Desk) -> None:
    """Before the Clock comes, once it has given the record back, and once the record has died of it."""
    for _ in range(3):
        held = await desk.claim_one(seconds=5)
        desk.pass_time(5)
        await all_refused(desk, [ref(held)], LeaseExpired)
        assert await desk.fire() == {"lease_expired": 1}
        await all_refused(desk, [ref(held)], LeaseExpired)
    [record] = (await desk.query()).items
    assert record.state == "dead"


@each_write
@pytest.mark.clause("leases.fence")
async def test_a_millisecond_before_its_expiry_a_lease_holds(desk: Desk, write: Any) -> None:
    held = await desk.claim_one(seconds=5)
    desk.pass_time(4.999)
    assert await desk.fire() == {}
    await write(desk, ref(held))
    await desk.history_agrees()


@pytest.mark.clause("leases.fence")
async def test_an_expired_holder_is_fenced_once_another_claims(desk: Desk) -> None:
    first = await desk.claim_one(seconds=5)
    desk.pass_time(5)
    await desk.fire()
    await desk.claim_one(worker="ben")
    await all_refused(desk, [ref(first)], LeaseFenced)


@pytest.mark.clause("leases.fence")
@pytest.mark.parametrize("end", ["release", "fail", "dead-letter", "requeue"])
async def test_a_claim_that_was_ended_is_fenced(desk: Desk, end: str) -> None:
    """Also when an earlier attempt left its expiry as the record's last failure."""
    await desk.claim_one(seconds=1)
    desk.pass_time(1)
    await desk.fire()
    held = await desk.claim_one()
    await WRITES["dead-letter" if end == "requeue" else end](desk, ref(held))
    if end == "requeue":
        await desk.requeue(held.record.id)
    await all_refused(desk, [ref(held)], LeaseFenced)


# --- Renew and release ---


@pytest.mark.clause("leases.renew")
async def test_renewing_extends_and_never_shortens(desk: Desk) -> None:
    held = await desk.claim_one(seconds=10)
    desk.pass_time(4)
    longer = await desk.renew(ref(held), 20)
    assert (longer.expires_at, longer.epoch, longer.owner, longer.attempt) == (after(desk.now, 20), 1, "ann", 1)
    assert (await desk.renew(ref(held), 1)).expires_at == longer.expires_at
    assert (await desk.renew(ref(held))).expires_at == after(desk.now, 30)
    assert (await desk.renew(ref(held), LEASE_SECONDS)).expires_at == after(desk.now, LEASE_SECONDS)
    before = await dump(desk.store)
    for seconds in (0, -5, LEASE_SECONDS + 1, float("nan")):
        with pytest.raises(RequestInvalid):
            await desk.renew(ref(held), seconds)
    assert await dump(desk.store) == before
    await desk.history_agrees()


@pytest.mark.clause("leases.renew", "records.recover")
async def test_a_renewed_lease_is_not_expired_at_its_first_end(desk: Desk) -> None:
    held = await desk.claim_one(seconds=2)
    for _ in range(10):
        desk.pass_time(1)
        assert await desk.fire() == {}
        await desk.renew(ref(held), 2)
    assert (await desk.get(held.record.id)).attempts == 1
    assert await desk.claim(worker="ben") == []
    await desk.history_agrees()


@pytest.mark.clause("leases.renew", "records.claim")
async def test_a_released_record_is_claimable_at_once_and_the_attempt_does_not_count(desk: Desk) -> None:
    for turn in range(5):
        held = await desk.claim_one()
        assert (held.lease.epoch, held.lease.attempt) == (turn + 1, 1)
        await desk.release(ref(held))
    [record] = (await desk.query()).items
    assert (record.state, record.attempts, record.not_before) == ("ready", 0, None)
    await desk.history_agrees()


# --- Settle ---


@pytest.mark.clause("records.settle", "records.lineage")
async def test_settling_consumes_and_publishes_results_with_the_record_as_their_parent(desk: Desk) -> None:
    await desk.declare("parcel", {"weight": "number"})
    held = await desk.claim_one()
    later = after(desk.now, 60)
    done = await desk.settle(
        ref(held),
        RESULT,
        Draft("parcel", {"weight": 2}, metadata={"m": 1}, priority=3),
        Draft(KIND, {}, not_before=later, parents=("rec_ignored",), id="chosen"),
    )
    assert (done.record.state, done.record.ended_at, done.record.failure) == ("consumed", desk.now, None)
    assert done.record == await desk.get(held.record.id)
    assert [record.parents for record in done.results] == [[held.record.id]] * 3
    assert [record.kind for record in done.results] == [KIND, "parcel", KIND]
    assert (done.results[1].metadata, done.results[1].priority) == ({"m": 1}, 3)
    assert (done.results[2].id, done.results[2].not_before) == ("chosen", later)
    for record in done.results:
        assert await desk.get(record.id) == record
    assert done.receipt["record"] == held.record.id
    assert done.receipt["results"] == [record.id for record in done.results]
    assert done.receipt["settled_at"] == render(desk.now)
    assert await desk.claim({"to": "a@example.test"}) == []
    [settled] = [entry for entry in await desk.told(held.record.id) if entry.type == "record.settled"]
    assert settled.data == {"epoch": 1, "results": done.receipt["results"]}
    assert (settled.kind, settled.content_sha256) == (KIND, held.record.body_sha256)
    await desk.history_agrees()


@pytest.mark.clause("records.settle-replay")
async def test_the_same_settlement_again_answers_the_first_receipt(desk: Desk) -> None:
    held = await desk.claim_one(seconds=5)
    first = await desk.settle(ref(held), RESULT, Draft(KIND, {"size": 1}))
    before = await dump(desk.store)
    desk.pass_time(3600)
    again = await desk.settle(ref(held), RESULT, Draft(KIND, {"size": 1.0}))
    assert again == first
    assert await dump(desk.store) == before


@pytest.mark.clause("records.settle-replay")
async def test_a_replay_shows_the_results_as_they_are_now(desk: Desk) -> None:
    held = await desk.claim_one()
    first = await desk.settle(ref(held), RESULT)
    await desk.claim_one()
    again = await desk.settle(ref(held), RESULT)
    assert (again.receipt, again.results[0].id, again.results[0].state) == (
        first.receipt, first.results[0].id, "claimed",
    )  # fmt: skip


@pytest.mark.clause("records.settle-replay")
@pytest.mark.parametrize(
    "other",
    [
        (),
        (RESULT, RESULT),
        (Draft(KIND, {"to": "other"}),),
        (Draft(KIND, {"to": "result"}, metadata={"a": 1}),),
        (Draft(KIND, {"to": "result"}, priority=1),),
        (Draft(KIND, {"to": "result"}, id="chosen"),),
    ],
    ids=["none", "two", "body", "metadata", "priority", "id"],
)
async def test_another_settlement_of_the_same_claim_conflicts(desk: Desk, other: tuple[Draft, ...]) -> None:
    held = await desk.claim_one()
    await desk.settle(ref(held), RESULT)
    await refused(desk, lambda one, claim: one.settle(claim, *other), ref(held), SettlementConflict)


@pytest.mark.clause("records.settle-replay", "leases.fence")
async def test_only_the_claim_that_settled_may_replay(desk: Desk) -> None:
    held = await desk.claim_one()
    await desk.settle(ref(held), RESULT)
    write = WRITES["settle"]
    await refused(desk, write, ClaimRef(held.record.id, held.lease.epoch + 1), LeaseFenced)
    other = desk.seen_by(await desk.credential("ben", Grant(ACTIONS)))
    await refused(other, write, ref(held), LeaseFenced)
    for name in ("renew", "release", "fail", "dead-letter"):
        await refused(desk, WRITES[name], ref(held), LeaseFenced)


@pytest.mark.clause("records.settle", "store.atomic")
async def test_a_settlement_with_a_bad_result_changes_nothing_and_may_be_mended(desk: Desk) -> None:
    await desk.publish(id="taken", priority=-1)
    held = await desk.claim_one()
    for bad, error in (
        (Draft(KIND, {"size": "x"}), BodyInvalid),
        (Draft("nowhere", {}), KindUnknown),
        (Draft(KIND, {}, id="taken"), RecordExists),
        (Draft(KIND, {"text": "x" * 1024 * 1024}), PayloadTooLarge),
    ):
        await refused(desk, partial(settle_with, RESULT, bad), ref(held), error)
    assert (await desk.settle(ref(held), RESULT)).record.state == "consumed"


@pytest.mark.clause("kernel.limits")
async def test_a_settlement_has_at_most_a_hundred_results(desk: Desk) -> None:
    held = await desk.claim_one()
    with pytest.raises(RequestInvalid):
        await desk.settle(ref(held), *[RESULT] * (SETTLE_RESULTS + 1))
    assert len((await desk.settle(ref(held), *[RESULT] * SETTLE_RESULTS)).results) == SETTLE_RESULTS
    await desk.history_agrees()


@pytest.mark.clause("records.settle", "store.atomic")
async def test_equal_settlements_at_once_are_one_and_others_conflict(desk: Desk) -> None:
    held = await desk.claim_one()
    desks = [desk.seen_by(desk.caller) for _ in range(20)]
    results = [RESULT if number % 2 else Draft(KIND, {"to": "other"}) for number in range(20)]
    answers = await asyncio.gather(
        *(one.settle(ref(held), result) for one, result in zip(desks, results, strict=True)), return_exceptions=True
    )
    receipts = [answer.receipt for answer in answers if not isinstance(answer, BaseException)]
    assert len(receipts) == 10
    assert all(receipt == receipts[0] for receipt in receipts)
    assert all(isinstance(answer, SettlementConflict) for answer in answers if isinstance(answer, BaseException))
    assert (await desk.types(held.record.id)).count("settled") == 1


@pytest.mark.clause("records.settle", "catalog.kind")
async def test_a_settlement_follows_a_kind_that_was_redeclared_elsewhere(desk: Desk) -> None:
    held = await desk.claim_one()
    other = Desk(desk.store)
    await other.declare(paths={"to": "string", "size": "number", "tags": "string[]", "any": "any", "later": "string"})
    done = await desk.settle(ref(held), Draft(KIND, {"later": "y"}))
    assert [one.id for one in (await other.query({"later": "y"})).items] == [done.results[0].id]


@pytest.mark.clause("leases.fence", "store.atomic")
async def test_ends_that_race_have_one_winner(desk: Desk) -> None:
    held = await desk.claim_one()
    desks = [desk.seen_by(desk.caller) for _ in WRITES]
    writes = [name for name in WRITES if name != "renew"]
    answers = await asyncio.gather(
        *(WRITES[name](one, ref(held)) for name, one in zip(writes, desks, strict=False)), return_exceptions=True
    )
    won = [name for name, answer in zip(writes, answers, strict=True) if not isinstance(answer, BaseException)]
    assert len(won) == 1
    assert all(isinstance(answer, LeaseFenced) for answer in answers if isinstance(answer, BaseException))
    await desk.history_agrees()

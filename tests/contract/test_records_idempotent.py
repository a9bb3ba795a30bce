"""Idempotency keys: the same request again is the first one's answer, whoever wins the race."""

import asyncio

import pytest

from moorage.kernel.errors import IdempotencyConflict, IdInvalid, LeaseFenced, RecordNotDead, StorageBindingUnavailable
from moorage.kernel.limits import IDEMPOTENCY_SECONDS
from moorage.records import publish
from moorage.records.model import ClaimRef, Draft
from tests.contract.adapters import Store, dump
from tests.contract.desk import KIND, Desk, grant, ref
from tests.contract.faults import Fault, FaultyDatabase, Plan

DRAFTS = [Draft(KIND, {"to": "a"}), Draft(KIND, {"to": "b"})]


@pytest.fixture
async def desk(store: Store) -> Desk:
    made = Desk(store)
    await made.declare()
    return made


@pytest.mark.clause("records.idempotent")
async def test_the_same_key_and_content_is_one_publication(desk: Desk) -> None:
    first = await desk.publish_all(DRAFTS, desk.key("k", "content"))
    before = await dump(desk.store)
    assert await desk.publish_all(DRAFTS, desk.key("k", "content")) == first
    assert await dump(desk.store) == before


@pytest.mark.clause("records.idempotent")
async def test_a_replay_answers_the_records_as_they_are_now(desk: Desk) -> None:
    [first] = await desk.publish_all(DRAFTS[:1], desk.key("k", "content"))
    await desk.settle(ref(await desk.claim_one()))
    [again] = await desk.publish_all(DRAFTS[:1], desk.key("k", "content"))
    assert (again.id, again.state) == (first.id, "consumed")


@pytest.mark.clause("records.idempotent")
async def test_the_same_key_with_other_content_conflicts(desk: Desk) -> None:
    await desk.publish_all(DRAFTS, desk.key("k", "content"))
    before = await dump(desk.store)
    with pytest.raises(IdempotencyConflict):
        await desk.publish_all(DRAFTS[:1], desk.key("k", "other content"))
    assert await dump(desk.store) == before
    assert len(await desk.publish_all(DRAFTS[:1], desk.key("another", "other content"))) == 1


@pytest.mark.clause("records.idempotent")
async def test_a_key_belongs_to_its_subject(desk: Desk) -> None:
    [first] = await desk.publish_all(DRAFTS[:1], desk.key("k", "content"))
    other = desk.seen_by(await desk.credential("ben", grant("publish")))
    [second] = await other.publish_all(DRAFTS[:1], other.key("k", "content"))
    assert first.id != second.id


@pytest.mark.clause("records.idempotent", "store.atomic")
async def test_twenty_equal_requests_at_once_are_one_publication(desk: Desk) -> None:
    desks = [desk.seen_by(desk.caller) for _ in range(20)]
    answers = await asyncio.gather(*(one.publish_all(DRAFTS, one.key("k", "content")) for one in desks))
    assert {tuple(record.id for record in answer) for answer in answers} == {tuple(one.id for one in answers[0])}
    [count] = await desk.store.sql("SELECT count(*) AS records FROM records")
    assert count["records"] == 2
    await desk.history_agrees()


@pytest.mark.clause("records.idempotent")
async def test_twenty_requests_at_once_with_a_clients_id_are_one_publication(desk: Desk) -> None:
    drafts = [Draft(KIND, {"to": "a"}, id="mine")]
    desks = [desk.seen_by(desk.caller) for _ in range(20)]
    answers = await asyncio.gather(*(one.publish_all(drafts, one.key("k", "content")) for one in desks))
    assert {answer[0].seq for answer in answers} == {answers[0][0].seq}


@pytest.mark.clause("records.idempotent", "kernel.instants")
async def test_a_key_is_forgotten_after_a_day(desk: Desk) -> None:
    [first] = await desk.publish_all(DRAFTS[:1], desk.key("k", "content"))
    desk.pass_time(IDEMPOTENCY_SECONDS - 0.001)
    [same] = await desk.publish_all(DRAFTS[:1], desk.key("k", "content"))
    desk.pass_time(0.001)
    [fresh] = await desk.publish_all(DRAFTS[:1], desk.key("k", "other content"))
    assert same.id == first.id != fresh.id


@pytest.mark.clause("records.idempotent")
async def test_a_refused_request_does_not_use_up_its_key(desk: Desk) -> None:
    await desk.publish(id="taken")
    for _ in range(2):
        with pytest.raises(Exception, match="an id was used before"):
            await desk.publish_all([Draft(KIND, {}, id="taken")], desk.key("k", "content"))
    assert await desk.publish_all(DRAFTS, desk.key("k", "good content"))


@pytest.mark.clause("records.idempotent", "store.transport")
async def test_a_lost_answer_is_found_again_by_the_key(desk: Desk) -> None:
    key = desk.key("k", "content")
    db = FaultyDatabase(desk.db(), Plan(commits=[Fault.FAIL_AFTER]))
    with pytest.raises(StorageBindingUnavailable):
        await publish.publish(db, desk.kinds, desk.caller, desk.now, DRAFTS, key)
    again = await desk.publish_all(DRAFTS, key)
    assert [record.id for record in (await desk.query()).items] == [record.id for record in again]


@pytest.mark.clause("records.idempotent", "records.claim")
async def test_a_claim_under_a_key_is_made_once_and_answered_as_it_stands(desk: Desk) -> None:
    await desk.publish_all(DRAFTS)
    key = desk.key("c", "claim")
    first = await desk.claim(limit=2, key=key)
    assert await desk.claim(limit=2, key=key) == first
    await desk.renew(ref(first[0]), 300)
    settlement = await desk.settle(ref(first[1]))
    [held, settled] = await desk.claim(limit=2, key=key)
    assert (held.record.id, held.lease.epoch) == (first[0].record.id, first[0].lease.epoch)
    assert held.lease.expires_at > first[0].lease.expires_at
    assert (settled.record, settled.lease) == (settlement.record, first[1].lease)
    assert (await desk.settle(ref(settled))).receipt == settlement.receipt
    with pytest.raises(IdempotencyConflict):
        await desk.claim(limit=2, key=desk.key("c", "other"))
    assert await desk.claim(key=desk.key("empty", "claim")) == []


@pytest.mark.clause("records.idempotent")
async def test_a_claim_under_a_key_never_shows_what_another_claim_holds(desk: Desk) -> None:
    await desk.publish_all(DRAFTS[:1])
    key = desk.key("c", "claim")
    first = await desk.claim_one(key=key)
    await desk.release(ref(first))
    second = await desk.claim_one(worker="ben")
    assert await desk.claim(key=key) == []
    assert (await desk.get(second.record.id)).state == "claimed"


@pytest.mark.clause("records.idempotent", "leases.fence", "records.dead-letter")
async def test_ends_under_a_key_may_be_asked_for_again(desk: Desk) -> None:
    """Without a key, asking again after a lost answer is fenced: somebody else may hold the record by now."""
    await desk.publish_all(DRAFTS[:1])
    held = ref(await desk.claim_one())
    await desk.release(held, desk.key("release", held.epoch))
    again = ref(await desk.claim_one())
    await desk.release(held, desk.key("release", held.epoch))
    assert (await desk.get(held.record)).state == "claimed"
    failed = await desk.fail(again, dead=True, key=desk.key("fail", again.epoch))
    before = await dump(desk.store)
    assert await desk.fail(again, dead=True, key=desk.key("fail", again.epoch)) == failed
    with pytest.raises(IdempotencyConflict):
        await desk.fail(again, key=desk.key("fail", "another failure"))
    with pytest.raises(LeaseFenced):
        await desk.fail(again, dead=True)
    assert await dump(desk.store) == before
    requeued = await desk.requeue(held.record, key=desk.key("requeue", held.record))
    assert await desk.requeue(held.record, key=desk.key("requeue", held.record)) == requeued
    with pytest.raises(RecordNotDead):
        await desk.requeue(held.record)
    assert (await desk.types(held.record))[-3:] == ["failed", "dead_lettered", "requeued"]
    await desk.history_agrees()


@pytest.mark.clause("records.idempotent", "leases.fence")
async def test_a_refused_end_does_not_use_up_its_key(desk: Desk) -> None:
    await desk.publish_all(DRAFTS[:1])
    held = ref(await desk.claim_one())
    key = desk.key("fail", "content")
    with pytest.raises(LeaseFenced):
        await desk.fail(ClaimRef(held.record, held.epoch + 1), key=key)
    assert (await desk.fail(held, key=key)).state == "ready"


@pytest.mark.clause("records.idempotent", "leases.renew")
async def test_a_renewal_under_a_key_is_made_once(desk: Desk) -> None:
    await desk.publish_all(DRAFTS[:1])
    held = ref(await desk.claim_one(seconds=10))
    first = await desk.renew(held, 20, desk.key("renew", 20))
    desk.pass_time(5)
    before = await dump(desk.store)
    assert await desk.renew(held, 20, desk.key("renew", 20)) == first
    with pytest.raises(IdempotencyConflict):
        await desk.renew(held, 30, desk.key("renew", 30))
    assert await dump(desk.store) == before
    assert (await desk.renew(held, 20)).expires_at > first.expires_at
    await desk.settle(held)
    assert await desk.renew(held, 20, desk.key("renew", 20)) == first


@pytest.mark.clause("records.idempotent", "records.settle-replay")
async def test_a_settlement_under_a_key_is_made_once(desk: Desk) -> None:
    await desk.publish_all(DRAFTS[:1])
    held = ref(await desk.claim_one())
    first = await desk.settle(held, Draft(KIND, {"to": "c"}), key=desk.key("settle", "content"))
    before = await dump(desk.store)
    assert await desk.settle(held, Draft(KIND, {"to": "c"}), key=desk.key("settle", "content")) == first
    assert await desk.settle(held, Draft(KIND, {"to": "c"})) == first
    with pytest.raises(IdempotencyConflict):
        await desk.settle(held, key=desk.key("settle", "other content"))
    assert await dump(desk.store) == before


@pytest.mark.clause("records.idempotent", "records.dead-letter")
async def test_a_requeue_by_pattern_under_a_key_is_made_once(desk: Desk) -> None:
    await desk.publish_all(DRAFTS * 2)
    for held in await desk.claim(limit=4):
        await desk.fail(ref(held), dead=True)
    first = await desk.requeue_matching({"to": "a"}, limit=1, key=desk.key("requeue", 1))
    again = await desk.requeue_matching({"to": "a"}, limit=1, key=desk.key("requeue", 1))
    assert again == first
    assert len(first) == 1
    before = await dump(desk.store)
    with pytest.raises(IdempotencyConflict):
        await desk.requeue_matching({}, key=desk.key("requeue", "all"))
    assert await dump(desk.store) == before
    assert len(await desk.requeue_matching({})) == 3
    assert await desk.requeue_matching({}, key=desk.key("none", "")) == []
    await desk.cancel(first[0].id)
    assert await desk.requeue_matching({}, key=desk.key("none", "")) == []
    await desk.history_agrees()


@pytest.mark.clause("kernel.ids")
@pytest.mark.parametrize("bad", ["", "x" * 201, "é", "a\x00b", "a\nb"])
async def test_a_key_is_printable_text_of_bounded_length(desk: Desk, bad: str) -> None:
    with pytest.raises(IdInvalid):
        desk.key(bad, "content")

"""Cancelling: a record ends as dead before anyone settles it, and whoever holds it is fenced."""

import asyncio

import pytest

from moorage.kernel.errors import (
    Forbidden,
    IdempotencyConflict,
    LeaseFenced,
    MoorageError,
    RecordEnded,
    RecordUnknown,
    RequestInvalid,
)
from moorage.kernel.instants import after
from moorage.kernel.limits import TEXT_CHARACTERS
from tests.contract.adapters import Store, dump
from tests.contract.desk import KIND, Desk, grant, ref


@pytest.fixture
async def desk(store: Store) -> Desk:
    made = Desk(store)
    await made.declare()
    return made


CANCELED = {"tag": "Canceled", "message": "not wanted"}


@pytest.mark.clause("records.dead-letter", "history.append")
async def test_a_ready_or_waiting_record_is_dead_and_never_claimed(desk: Desk) -> None:
    await desk.publish(id="ready")
    await desk.publish(id="waiting", not_before=after(desk.now, 60))
    for name in ("ready", "waiting"):
        canceled = await desk.cancel(name)
        assert (canceled.state, canceled.failure, canceled.ended_at) == ("dead", CANCELED, desk.now)
        assert (canceled.attempts, canceled.not_before) == (0, None)
        assert await desk.get(name) == canceled
        entry = (await desk.told(name))[-1]
        assert (entry.type, entry.data) == (
            "record.canceled",
            {"attempts": 0, "epoch": 0, "reason": "not wanted", "state": "ready"},
        )
    desk.pass_time(61)
    assert await desk.fire() == {}
    assert await desk.claim(limit=10) == []
    assert [letter.record.id for letter in (await desk.letters()).items] == ["ready", "waiting"]
    await desk.history_agrees()


@pytest.mark.clause("leases.fence", "records.dead-letter")
@pytest.mark.parametrize("write", ["renew", "release", "settle", "fail"])
async def test_the_holder_of_a_canceled_record_is_fenced(desk: Desk, write: str) -> None:
    await desk.publish(id="held")
    held = await desk.claim_one()
    canceled = await desk.cancel("held")
    assert (canceled.state, canceled.attempts) == ("dead", 1)
    before = await dump(desk.store)
    with pytest.raises(LeaseFenced):
        await getattr(desk, write)(ref(held))
    desk.pass_time(31)
    with pytest.raises(LeaseFenced):
        await getattr(desk, write)(ref(held))
    assert await desk.fire() == {}
    assert await dump(desk.store) == before
    await desk.history_agrees()


@pytest.mark.clause("records.dead-letter")
async def test_a_canceled_record_can_be_requeued(desk: Desk) -> None:
    await desk.publish(id="held")
    held = await desk.claim_one()
    await desk.cancel("held")
    assert (await desk.requeue("held")).attempts == 0
    again = await desk.claim_one()
    assert again.lease.epoch == held.lease.epoch + 1
    with pytest.raises(LeaseFenced):
        await desk.settle(ref(held))
    await desk.settle(ref(again))
    await desk.history_agrees()


@pytest.mark.clause("records.dead-letter")
async def test_what_has_ended_is_not_canceled(desk: Desk) -> None:
    await desk.publish(id="settled")
    await desk.settle(ref(await desk.claim_one()))
    await desk.publish(id="dead")
    await desk.fail(ref(await desk.claim_one()), dead=True)
    await desk.publish(id="canceled")
    await desk.cancel("canceled")
    before = await dump(desk.store)
    for name in ("settled", "dead", "canceled"):
        with pytest.raises(RecordEnded):
            await desk.cancel(name)
    with pytest.raises(RecordUnknown):
        await desk.cancel("nobody")
    for reason in ("", "x" * (TEXT_CHARACTERS + 1)):
        with pytest.raises(RequestInvalid):
            await desk.cancel("settled", reason)
    assert await dump(desk.store) == before


@pytest.mark.clause("records.idempotent")
async def test_a_key_answers_the_canceled_record_again(desk: Desk) -> None:
    await desk.publish(id="a")
    first = await desk.cancel("a", key=desk.key("k", "cancel"))
    assert await desk.cancel("a", key=desk.key("k", "cancel")) == first
    with pytest.raises(IdempotencyConflict):
        await desk.cancel("a", "another", key=desk.key("k", "another"))
    assert (await desk.types("a")).count("canceled") == 1


@pytest.mark.clause("catalog.grants")
async def test_operators_cancel_and_creators_cancel_their_own(desk: Desk) -> None:
    mine, his = {"to": "mine"}, {"to": "his"}
    ann = desk.seen_by(await desk.credential("ann", grant("publish", kinds=[KIND], match=mine)))
    operator = desk.seen_by(await desk.credential("ope", grant("operate", kinds=[KIND], match=mine)))
    reader = desk.seen_by(await desk.credential("rea", grant("read", kinds=[KIND])))
    await ann.publish(mine, id="own")
    await desk.publish(mine, id="mine")
    await desk.publish(his, id="his")
    for who, name, refusal in (
        (ann, "mine", RecordUnknown),
        (ann, "his", RecordUnknown),
        (operator, "his", RecordUnknown),
        (reader, "own", Forbidden),
        (reader, "nobody", RecordUnknown),
    ):
        with pytest.raises(refusal):
            await who.cancel(name)
    assert (await ann.cancel("own")).state == "dead"
    assert (await operator.cancel("mine")).state == "dead"
    assert (await desk.get("his")).state == "ready"
    stranger = desk.seen_by(await desk.credential("str", grant("read", "publish", "claim", kinds=[KIND])))
    with pytest.raises(Forbidden):
        await stranger.cancel("his")


@pytest.mark.clause("leases.fence", "store.atomic")
async def test_a_cancel_and_a_settle_at_once_have_one_winner(desk: Desk) -> None:
    for number in range(10):
        await desk.publish(id=f"r{number}")
        held = await desk.claim_one()
        outcomes = await asyncio.gather(desk.cancel(f"r{number}"), desk.settle(ref(held)), return_exceptions=True)
        lost = [one for one in outcomes if isinstance(one, MoorageError)]
        assert len(lost) == 1
        state = (await desk.get(f"r{number}")).state
        assert (type(lost[0]), state) in ((RecordEnded, "consumed"), (LeaseFenced, "dead"))
    await desk.history_agrees()

"""A subject's claims under another of its credentials: each credential is held to its own grants."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from moorage.catalog.access import Caller, Grant
from moorage.kernel.errors import Forbidden, IdempotencyConflict, LeaseFenced, RecordUnknown
from moorage.records import batches
from moorage.records.batches import Ending, Renewal
from moorage.records.debounce import publish_debounced
from moorage.records.model import ClaimRef, Debounce, Draft, Settlement
from moorage.records.sessions import Turn, open_session
from tests.contract.adapters import Store, dump
from tests.contract.desk import KIND, Desk, grant, ref

HIS = {"to": "his"}
MINE = {"to": "mine"}
EVERYTHING = grant("publish", "read", "claim", "operate")


@pytest.fixture
async def desk(store: Store) -> Desk:
    made = Desk(store)
    await made.declare()
    await made.declare("other", {"to": "string"})
    return made


async def renew_many(desk: Desk, held: ClaimRef) -> Any:
    return (await batches.renew_many(desk.db(), desk.kinds, desk.caller, desk.now, [Renewal(held, 60)]))[0]


async def settle_many(desk: Desk, held: ClaimRef) -> Any:
    return (await batches.settle_many(desk.db(), desk.kinds, desk.caller, desk.now, [Ending(held)]))[0]


WRITES: dict[str, Callable[[Desk, ClaimRef], Awaitable[Any]]] = {
    "renew": lambda desk, held: desk.renew(held),
    "release": lambda desk, held: desk.release(held),
    "settle": lambda desk, held: desk.settle(held),
    "fail": lambda desk, held: desk.fail(held),
    "renew many": renew_many,
    "settle many": settle_many,
}

UNKNOWN: dict[str, list[Grant]] = {
    "nothing": [],
    "other actions": [grant("publish", "operate", "watch")],
    "another kind": [grant("claim", "read", kinds=["other", "mails", "m"])],
    "another prefix": [grant("claim", kinds=["mail.*", "ot*"])],
    "other records": [grant("claim", "read", kinds=[KIND], match=MINE)],
    "other records of all kinds": [grant("claim", "read", match=MINE)],
    "other records of every name": [grant("claim", "read", kinds=["*"], match=MINE)],
    "a kind beside other records": [grant("claim", kinds=["other"]), grant("claim", kinds=[KIND], match=MINE)],
    "reads it, claims others": [grant("read"), grant("claim", kinds=[KIND], match=MINE)],
}
FORBIDDEN: dict[str, list[Grant]] = {
    "reads all": [grant("read")],
    "reads the kind": [grant("read", kinds=[KIND]), grant("claim", kinds=["other"])],
    "reads the record": [grant("read", match=HIS), grant("claim", kinds=["other"], match=MINE)],
}
ADMITTED: dict[str, list[Grant]] = {
    "all kinds": [grant("claim")],
    "admin": [grant("admin")],
    "its kind": [grant("claim", kinds=["other", KIND])],
    "a prefix": [grant("claim", kinds=["x*", "ma*"])],
    "every name": [grant("claim", kinds=["*"])],
    "the record": [grant("claim", match=HIS)],
    "the record among others": [grant("claim", kinds=["other"], match=MINE), grant("claim", kinds=["m*"])],
}


async def second(desk: Desk, grants: list[Grant], subject: str = "ann") -> Desk:
    """The desk of another credential of the subject."""
    made = await desk.credential(f"{subject}-second", *grants)
    return desk.seen_by(Caller(subject, made.grants, made.credential))


async def holding(desk: Desk) -> tuple[Desk, ClaimRef]:
    first = desk.seen_by(await desk.credential("ann", EVERYTHING))
    await first.publish(HIS, id="his")
    return first, ref(await first.claim_one())


async def outcome(work: Awaitable[Any]) -> type:
    """What a write came to: batches answer an item's refusal, the others raise it."""
    try:
        return type(await work)
    except (RecordUnknown, Forbidden, LeaseFenced) as error:
        return type(error)


@pytest.mark.clause("catalog.grants", "leases.fence")
@pytest.mark.parametrize("grants", UNKNOWN)
@pytest.mark.parametrize("write", WRITES)
async def test_a_claim_outside_the_grants_of_a_credential_is_unknown_to_it(desk: Desk, write: str, grants: str) -> None:
    first, held = await holding(desk)
    other = await second(desk, UNKNOWN[grants])
    before = await dump(desk.store)
    assert await outcome(WRITES[write](other, held)) is RecordUnknown
    assert await outcome(WRITES[write](other, ClaimRef("his", held.epoch + 1))) is RecordUnknown
    assert await dump(desk.store) == before
    assert (await first.settle(held)).record.state == "consumed"
    assert await outcome(WRITES[write](other, held)) is RecordUnknown


@pytest.mark.clause("catalog.grants", "leases.fence")
@pytest.mark.parametrize("grants", FORBIDDEN)
@pytest.mark.parametrize("write", WRITES)
async def test_a_claim_that_a_credential_may_only_read_is_forbidden_to_it(desk: Desk, write: str, grants: str) -> None:
    _, held = await holding(desk)
    other = await second(desk, FORBIDDEN[grants])
    before = await dump(desk.store)
    assert await outcome(WRITES[write](other, held)) is Forbidden
    assert await dump(desk.store) == before


@pytest.mark.clause("catalog.grants", "leases.fence")
@pytest.mark.parametrize("grants", ADMITTED)
@pytest.mark.parametrize("write", WRITES)
async def test_a_claim_within_the_grants_of_a_credential_is_its_subjects(desk: Desk, write: str, grants: str) -> None:
    _, held = await holding(desk)
    other = await second(desk, ADMITTED[grants])
    assert await outcome(WRITES[write](other, ClaimRef("his", held.epoch + 1))) is LeaseFenced
    assert await outcome(WRITES[write](other, held)) not in (RecordUnknown, Forbidden, LeaseFenced)


@pytest.mark.clause("catalog.grants", "leases.fence")
async def test_a_batch_refuses_what_is_outside_the_grants_and_does_the_rest(desk: Desk) -> None:
    first = desk.seen_by(await desk.credential("ann", EVERYTHING))
    await first.publish(HIS, id="his")
    await first.publish(MINE, id="mine")
    await first.publish(HIS, kind="other", id="other")
    held = [ref(one) for one in [*await first.claim(limit=2), *await first.claim(kind="other")]]
    narrow = await second(desk, [grant("claim", match=MINE)])
    some = desk.seen_by(Caller("ann", (grant("claim", kinds=["oth*"]),), narrow.caller.credential))
    for who, does in ((narrow, {"mine"}), (some, {"other"})):
        renewed = await batches.renew_many(who.db(), who.kinds, who.caller, who.now, [Renewal(one) for one in held])
        assert {one.record for one, lease in zip(held, renewed, strict=True) if not isinstance(lease, Exception)} == does
        assert {type(one) for one in renewed if isinstance(one, Exception)} == {RecordUnknown}
        settled = await batches.settle_many(who.db(), who.kinds, who.caller, who.now, [Ending(one) for one in held])
        assert {one.record.id for one in settled if not isinstance(one, Exception)} == does
    assert (await desk.get("his")).state == "claimed"


@pytest.mark.clause("catalog.grants", "records.idempotent")
async def test_what_a_key_made_is_shown_as_far_as_the_credential_that_asks_may_see_it(desk: Desk) -> None:
    first = desk.seen_by(await desk.credential("ann", EVERYTHING))
    await first.publish(HIS, id="his")
    await first.publish(MINE, id="mine")
    narrow = await second(desk, [grant("publish", "read", "claim", "operate", kinds=[KIND], match=MINE)])
    held = await first.claim(limit=2, key=first.key("claim", ""))
    assert len(await first.claim(limit=2, key=first.key("claim", ""))) == 2
    assert [one.record.id for one in await narrow.claim(limit=2, key=first.key("claim", ""))] == ["mine"]
    for one in held:
        await first.fail(ref(one), dead=True, key=first.key(f"fail {one.record.id}", ""))
    [his] = [ref(one) for one in held if one.record.id == "his"]
    with pytest.raises(RecordUnknown):
        await narrow.fail(his, dead=True, key=first.key("fail his", ""))
    some = desk.seen_by(Caller("ann", (grant("claim", kinds=["other"]),), narrow.caller.credential))
    with pytest.raises(RecordUnknown):
        await some.fail(his, dead=True, key=first.key("fail his", ""))
    assert len(await first.requeue_matching({}, key=first.key("requeue", ""))) == 2
    assert [one.id for one in await narrow.requeue_matching({}, key=first.key("requeue", ""))] == ["mine"]


@pytest.mark.clause("catalog.grants", "records.claim-replay")
async def test_a_numbered_claim_is_answered_again_as_far_as_the_credential_may_see_it(desk: Desk) -> None:
    first = desk.seen_by(await desk.credential("ann", EVERYTHING))
    await first.publish(HIS, id="his")
    await first.publish(MINE, id="mine")
    session = await open_session(first.db(), first.caller, first.now)
    turn = Turn(session.id, "c", 1, "asked")
    assert len(await first.claim(limit=2, turn=turn)) == 2
    narrow = await second(desk, [grant("claim", match=MINE)])
    assert [one.record.id for one in await narrow.claim(limit=2, turn=turn)] == ["mine"]


@pytest.mark.clause("catalog.grants", "records.settle-replay")
async def test_a_settlement_is_answered_again_without_results_that_may_not_be_published(desk: Desk) -> None:
    """Whoever asks again must be able to plan the same results, so the test has to move one away."""
    first, held = await holding(desk)
    result = Draft(KIND, HIS)
    done = await first.settle(held, result)
    await desk.store.sql("UPDATE records SET kind = 'other' WHERE id = ?", done.results[0].id)
    other = await second(desk, [grant("claim", "publish", kinds=[KIND])])
    again = await other.settle(held, result)
    assert (again.receipt, again.results) == (done.receipt, [])
    [item] = await batches.settle_many(other.db(), other.kinds, other.caller, other.now, [Ending(held, (result,))])
    assert isinstance(item, Settlement)
    assert (item.receipt, item.results) == (done.receipt, [])


@pytest.mark.clause("catalog.grants", "records.idempotent", "records.publish")
async def test_a_debounced_record_that_became_anothers_is_not_shown_again(desk: Desk) -> None:
    first = desk.seen_by(await desk.credential("ann", EVERYTHING))
    narrow = await second(desk, [grant("publish", kinds=[KIND], match=MINE)])
    key = first.key("k", "")

    async def publish(who: Desk, body: dict[str, Any], again: Any = None) -> Any:
        draft = Draft(KIND, body, debounce=Debounce("burst", 5, 60))
        return await publish_debounced(who.db(), who.kinds, who.caller, who.now, draft, again)

    shown = await publish(narrow, MINE, key)
    assert (await publish(narrow, MINE, key)).id == shown.id
    await publish(first, HIS)
    with pytest.raises(IdempotencyConflict):
        await publish(narrow, MINE, key)


@pytest.mark.clause("catalog.grants", "records.dead-letter")
async def test_requeuing_by_pattern_takes_a_grant_to_read_what_it_answers(desk: Desk) -> None:
    await desk.publish(HIS, id="his")
    await desk.publish(MINE, id="mine")
    for held in await desk.claim(limit=2):
        await desk.fail(ref(held), dead=True)
    blind = desk.seen_by(await desk.credential("bli", grant("operate")))
    before = await dump(desk.store)
    with pytest.raises(Forbidden):
        await blind.requeue_matching({})
    assert await dump(desk.store) == before
    half = desk.seen_by(await desk.credential("hal", grant("operate"), grant("read", match=MINE)))
    assert [record.id for record in await half.requeue_matching({})] == ["mine"]
    assert (await desk.get("his")).state == "dead"

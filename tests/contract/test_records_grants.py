"""What a credential may not see answers as absent, in every operation; what it may see and not do is forbidden."""

from typing import Any

import pytest

from moorage.kernel.errors import (
    BodyInvalid,
    Forbidden,
    KindUnknown,
    LeaseExpired,
    LeaseFenced,
    ParentUnknown,
    RecordUnknown,
    Unauthenticated,
)
from moorage.kernel.pages import PageRequest
from moorage.records.model import ClaimRef, Draft
from tests.contract.adapters import Store, dump
from tests.contract.desk import KIND, Desk, grant, ref

MINE = {"to": "mine"}
HIS = {"to": "his"}


@pytest.fixture
async def desk(store: Store) -> Desk:
    made = Desk(store)
    await made.declare()
    await made.declare("other", {"to": "string"})
    return made


@pytest.fixture
async def narrow(desk: Desk) -> Desk:
    """A credential for everything on records of KIND whose `to` is mine."""
    grants = grant("publish", "read", "claim", "operate", kinds=[KIND], match={"to": "mine"})
    return desk.seen_by(await desk.credential("ann", grants))


@pytest.mark.clause("catalog.grants")
async def test_a_kind_without_any_grant_is_unknown(desk: Desk, narrow: Desk) -> None:
    await desk.publish(kind="other")
    for attempt in (
        narrow.publish(MINE, kind="other"),
        narrow.query(kind="other"),
        narrow.claim(kind="other"),
        narrow.letters("other"),
        narrow.requeue_matching({}, kind="other"),
        narrow.publish(MINE, kind="nowhere"),
        narrow.claim(kind="x" * 3_000_000),
    ):
        with pytest.raises(KindUnknown):
            await attempt


@pytest.mark.clause("catalog.grants")
async def test_an_action_without_a_grant_is_forbidden(desk: Desk) -> None:
    reader = desk.seen_by(await desk.credential("rea", grant("read", kinds=["ma*"])))
    record = await desk.publish()
    assert (await reader.get(record.id)).id == record.id
    for attempt in (
        reader.publish(),
        reader.claim(),
        reader.requeue(record.id),
        reader.requeue_matching({}),
        reader.letters(None),
    ):
        with pytest.raises(Forbidden):
            await attempt
    worker = desk.seen_by(await desk.credential("wor", grant("claim", kinds=[KIND])))
    with pytest.raises(Forbidden):
        await worker.query()
    with pytest.raises(RecordUnknown):
        await worker.get(record.id)
    assert len(await worker.claim()) == 1


@pytest.mark.clause("catalog.grants", "records.publish")
async def test_a_narrowed_publisher_publishes_what_matches(narrow: Desk) -> None:
    before = await dump(narrow.store)
    for body in (HIS, {}, {"to": None}):
        with pytest.raises(Forbidden):
            await narrow.publish(body)
    with pytest.raises(BodyInvalid):
        await narrow.publish({"to": 1})
    with pytest.raises(Forbidden):
        await narrow.publish_all([Draft(KIND, MINE), Draft(KIND, HIS)])
    assert await dump(narrow.store) == before
    assert (await narrow.publish(MINE)).created_by == "ann"


@pytest.mark.clause("catalog.grants", "records.publish")
async def test_a_body_that_breaks_the_declaration_is_told_before_the_grant_is_asked(desk: Desk) -> None:
    await desk.declare("dated", {"at": "instant"})
    when = grant("publish", kinds=["dated"], match={"at": {"$gt": "2026-01-01T00:00:00Z"}})
    dated = desk.seen_by(await desk.credential("dat", when))
    with pytest.raises(BodyInvalid) as refused:
        await dated.publish({"at": "no instant"}, kind="dated")
    assert [error["pointer"] for error in refused.value.errors or []] == ["/body/at"]


@pytest.mark.clause("catalog.grants", "records.pattern-one-meaning")
async def test_a_narrowed_reader_sees_what_matches(desk: Desk, narrow: Desk) -> None:
    mine, his = await desk.publish(MINE), await desk.publish(HIS)
    assert await narrow.get(mine.id) == mine
    with pytest.raises(RecordUnknown):
        await narrow.get(his.id)
    assert (await narrow.query()).items == [mine]
    assert (await narrow.query(HIS)).items == []
    assert (await narrow.query({"$not": MINE})).items == []
    page = await narrow.query(page=PageRequest(1))
    assert (page.items, page.next_cursor) == ([mine], None)


@pytest.mark.clause("catalog.grants", "records.claim")
async def test_a_narrowed_claimer_claims_what_matches(desk: Desk, narrow: Desk) -> None:
    await desk.publish(HIS, priority=9)
    mine = await desk.publish(MINE)
    assert [one.record.id for one in await narrow.claim(limit=10)] == [mine.id]
    assert await narrow.claim(HIS) == []
    assert len(await desk.claim(limit=10)) == 1


@pytest.mark.clause("catalog.grants", "records.lineage")
async def test_lineage_shows_what_the_reader_may_read(desk: Desk, narrow: Desk) -> None:
    await desk.publish(MINE, id="a")
    await desk.publish(HIS, id="b", parents=("a",))
    await desk.publish(MINE, id="c", parents=("b",))
    await desk.publish(MINE, kind="other", id="d", parents=("c",))
    for start, direction, seen in (("c", "ancestors", [(2, "a")]), ("a", "descendants", [(2, "c")])):
        found, cut = await narrow.lineage(start, direction)  # type: ignore[arg-type]
        assert ([(one.depth, one.record.id) for one in found], cut) == (seen, False)
    for unseen in ("b", "d"):
        with pytest.raises(RecordUnknown):
            await narrow.lineage(unseen)


@pytest.mark.clause("catalog.grants", "records.lineage")
async def test_a_parent_that_may_not_be_read_is_unknown(desk: Desk, narrow: Desk) -> None:
    mine, his = await desk.publish(MINE), await desk.publish(HIS)
    with pytest.raises(ParentUnknown) as hidden:
        await narrow.publish(MINE, parents=(mine.id, his.id))
    with pytest.raises(ParentUnknown) as absent:
        await narrow.publish(MINE, parents=(mine.id, "rec_nobody"))
    assert hidden.value.detail.replace(his.id, "ID") == absent.value.detail.replace("rec_nobody", "ID")
    assert (await narrow.publish(MINE, parents=(mine.id,))).parents == [mine.id]


@pytest.mark.clause("catalog.grants", "leases.fence")
@pytest.mark.parametrize("write", ["renew", "release", "settle", "fail"])
async def test_a_fenced_write_does_not_tell_of_a_record_that_may_not_be_seen(desk: Desk, narrow: Desk, write: str) -> None:
    """A client's ids can be guessed: 404 and 409 would tell apart what exists."""
    await desk.publish(HIS, id="his")
    await desk.publish(kind="other", id="other")
    await desk.publish(MINE, id="mine")
    attempt: Any = getattr(narrow, write)
    for name in ("his", "other", "nobody"):
        with pytest.raises(RecordUnknown):
            await attempt(ClaimRef(name, 1))
    with pytest.raises(LeaseFenced):
        await attempt(ClaimRef("mine", 1))
    held = await narrow.claim_one(seconds=1)
    narrow.pass_time(1)
    with pytest.raises(LeaseExpired):
        await attempt(ref(held))


@pytest.mark.clause("catalog.grants", "records.dead-letter")
async def test_a_narrowed_operator_sees_and_requeues_what_matches(desk: Desk, narrow: Desk) -> None:
    mine, his = await desk.publish(MINE), await desk.publish(HIS)
    for held in await desk.claim(limit=2):
        await desk.fail(ref(held), dead=True)
    assert [letter.record.id for letter in (await narrow.letters()).items] == [mine.id]
    with pytest.raises(Forbidden):
        await narrow.letters(None)
    for unseen in (narrow.letter(his.id), narrow.requeue(his.id)):
        with pytest.raises(RecordUnknown):
            await unseen
    assert [record.id for record in await narrow.requeue_matching({})] == [mine.id]
    assert (await desk.get(his.id)).state == "dead"


@pytest.mark.clause("catalog.grants")
async def test_what_may_be_read_and_not_operated_on_is_unknown_to_the_operation(desk: Desk) -> None:
    grants = [grant("read", kinds=[KIND]), grant("operate", kinds=[KIND], match=MINE)]
    operator = desk.seen_by(await desk.credential("ope", *grants))
    his = await desk.publish(HIS)
    await desk.fail(ref(await desk.claim_one()), dead=True)
    assert (await operator.letter(his.id)).record.id == his.id
    with pytest.raises(RecordUnknown):
        await operator.requeue(his.id)


@pytest.mark.clause("catalog.grants")
async def test_a_grant_whose_pattern_does_not_fit_the_kind_grants_nothing_there(desk: Desk) -> None:
    odd = grant("read", "claim", "publish", kinds=[KIND], match={"undeclared": 1})
    lost = desk.seen_by(await desk.credential("los", odd))
    record = await desk.publish({"undeclared": 1})
    assert (await lost.query()).items == []
    assert await lost.claim() == []
    with pytest.raises(RecordUnknown):
        await lost.get(record.id)
    with pytest.raises(Forbidden):
        await lost.publish({"undeclared": 1})


@pytest.mark.clause("catalog.grants")
async def test_grants_add_up(desk: Desk) -> None:
    grants = [grant("claim", kinds=[KIND], match=MINE), grant("claim", kinds=["ma*"], match={"size": {"$gt": 5}})]
    both = desk.seen_by(await desk.credential("bot", *grants))
    wanted = [await desk.publish(body) for body in (MINE, {"size": 6}, {"to": "his", "size": 9})]
    await desk.publish({"to": "his", "size": 5})
    assert [one.record.id for one in await both.claim(limit=10)] == [record.id for record in wanted]


@pytest.mark.clause("catalog.grants")
async def test_numbers_past_the_exact_ones_keep_their_meaning_for_a_narrowed_reader(desk: Desk) -> None:
    large = desk.seen_by(await desk.credential("lar", grant("read", kinds=[KIND], match={"size": {"$gt": 1e19}})))
    record = await desk.publish({"size": 1e20})
    await desk.publish({"size": 1e18})
    assert await large.get(record.id) == record
    assert (await large.query()).items == [record]


@pytest.mark.clause("catalog.credentials", "catalog.grants")
async def test_a_revoked_or_expired_credential_writes_nothing_from_that_moment(desk: Desk, narrow: Desk) -> None:
    await desk.publish(MINE)
    await desk.publish(MINE)
    held = await narrow.claim_one()
    [letter] = await desk.claim()
    await desk.fail(ref(letter), dead=True)
    for end in ("revoked_at", "expires_at"):
        await desk.store.sql(f"UPDATE credentials SET {end} = {desk.now}")  # noqa: S608
        before = await dump(desk.store)
        for attempt in (
            narrow.publish(MINE),
            narrow.claim(),
            narrow.renew(ref(held)),
            narrow.release(ref(held)),
            narrow.settle(ref(held)),
            narrow.fail(ref(held)),
            narrow.requeue(letter.record.id),
            narrow.requeue_matching({}),
        ):
            with pytest.raises(Unauthenticated):
                await attempt
        assert await dump(desk.store) == before
        await desk.store.sql(f"UPDATE credentials SET {end} = NULL")  # noqa: S608
    assert (await narrow.settle(ref(held))).record.state == "consumed"

"""Dead letters: listed with their attempts, requeued one by one and by pattern."""

import pytest

from moorage.kernel.errors import CursorMismatch, KindUnknown, RecordNotDead, RecordUnknown, RequestInvalid
from moorage.kernel.limits import REQUEUE_BATCH, TEXT_CHARACTERS
from moorage.kernel.pages import PageRequest
from moorage.records.model import Draft
from tests.contract.adapters import Store, dump
from tests.contract.desk import BOOM, KIND, START, Desk, ref


@pytest.fixture
async def desk(store: Store) -> Desk:
    made = Desk(store)
    await made.declare()
    return made


async def die(desk: Desk, count: int = 1, kind: str = KIND) -> list[str]:
    """Publish records and let each fail for good."""
    published = await desk.publish_all([Draft(kind, {"size": number}) for number in range(count)])
    for held in await desk.claim(limit=count, kind=kind):
        await desk.fail(ref(held), dead=True)
    return [record.id for record in published]


@pytest.mark.clause("records.dead-letter")
async def test_a_dead_letter_shows_its_attempts_and_why_it_died(desk: Desk) -> None:
    record = await desk.publish()
    await desk.fail(ref(await desk.claim_one(worker="ann")), retry=0)
    desk.pass_time(1)
    await desk.release(ref(await desk.claim_one(worker="undecided")))
    await desk.claim_one(worker="ben", seconds=2)
    desk.pass_time(2)
    await desk.fire()
    held = await desk.claim_one(worker="cid")
    await desk.renew(ref(held), 100)
    await desk.fail(ref(held))
    letter = await desk.letter(record.id)
    assert (letter.record.state, letter.record.failure) == ("dead", {"tag": "Transient", "message": "boom"})
    assert [(one.attempt, one.epoch, one.owner, one.claimed_at) for one in letter.attempts] == [
        (1, 1, "ann", START),
        (2, 3, "ben", START + 1000),
        (3, 4, "cid", START + 3000),
    ]
    assert (await desk.letters()).items == [letter]
    assert (await desk.letters(None)).items == [letter]


@pytest.mark.clause("records.dead-letter")
async def test_what_is_not_dead_is_no_dead_letter(desk: Desk) -> None:
    record = await desk.publish()
    for name in (record.id, "rec_nobody"):
        with pytest.raises(RecordUnknown):
            await desk.letter(name)
    with pytest.raises(RecordNotDead):
        await desk.requeue(record.id)
    with pytest.raises(RecordUnknown):
        await desk.requeue("rec_nobody")
    with pytest.raises(KindUnknown):
        await desk.letters("nowhere")


@pytest.mark.clause("records.dead-letter", "history.append")
async def test_a_requeued_record_starts_anew_and_history_keeps_both(desk: Desk) -> None:
    [dead] = await die(desk)
    desk.pass_time(1)
    requeued = await desk.requeue(dead, "mended the printer")
    assert (requeued.state, requeued.attempts, requeued.failure, requeued.ended_at) == ("ready", 0, None, None)
    assert requeued == await desk.get(dead)
    entry = (await desk.told(dead))[-1]
    assert entry.type == "record.requeued"
    assert entry.data == {
        "attempts": 1,
        "failure": {"message": "boom", "tag": "Transient"},
        "reason": "mended the printer",
    }
    with pytest.raises(RecordNotDead):
        await desk.requeue(dead)
    held = await desk.claim_one()
    assert (held.lease.attempt, held.lease.epoch) == (1, 2)
    await desk.fail(ref(held), BOOM, dead=True)
    assert [one.epoch for one in (await desk.letter(dead)).attempts] == [2]
    await desk.history_agrees()


@pytest.mark.clause("records.dead-letter")
async def test_requeuing_by_pattern_takes_the_oldest_that_match(desk: Desk) -> None:
    dead = await die(desk, 6)
    requeued = await desk.requeue_matching({"size": {"$gte": 2}}, limit=2)
    assert [record.id for record in requeued] == dead[2:4]
    assert [letter.record.id for letter in (await desk.letters()).items] == dead[:2] + dead[4:]
    assert await desk.requeue_matching({"size": 99}) == []
    assert [record.id for record in await desk.requeue_matching({})] == dead[:2] + dead[4:]
    assert await desk.requeue_matching({}) == []
    await desk.history_agrees()


@pytest.mark.clause("records.dead-letter", "kernel.limits")
async def test_a_requeue_has_bounds(desk: Desk) -> None:
    [dead] = await die(desk)
    before = await dump(desk.store)
    for reason in ("", "x" * (TEXT_CHARACTERS + 1)):
        with pytest.raises(RequestInvalid):
            await desk.requeue(dead, reason)
    for limit in (0, REQUEUE_BATCH + 1):
        with pytest.raises(RequestInvalid):
            await desk.requeue_matching({}, limit=limit)
    assert await dump(desk.store) == before
    reason = "'\"\\\n😀".ljust(TEXT_CHARACTERS, "x")
    await desk.requeue(dead, reason)
    assert (await desk.told(dead))[-1].data["reason"] == reason


async def pages(desk: Desk, kind: str | None, cursor: str | None = None) -> list[str]:
    """The ids on all the pages of three, from a cursor on."""
    page = await desk.letters(kind, PageRequest(3, cursor))
    shown = [letter.record.id for letter in page.items]
    return shown if page.next_cursor is None else shown + await pages(desk, kind, page.next_cursor)


@pytest.mark.clause("records.dead-letter")
async def test_pages_of_dead_letters_neither_lose_nor_repeat(desk: Desk) -> None:
    await desk.declare("other", {"size": "number"})
    dead = await die(desk, 7)
    others = await die(desk, 3, "other")
    assert await pages(desk, KIND) == dead
    assert await pages(desk, "other") == others
    assert await pages(desk, None) == dead + others
    first = await desk.letters(KIND, PageRequest(3))
    late = await die(desk, 1)
    await desk.requeue(dead[0])
    rest = await pages(desk, KIND, first.next_cursor)
    assert [letter.record.id for letter in first.items] + rest == dead + late
    cursor = (await desk.letters(KIND, PageRequest(3))).next_cursor
    with pytest.raises(CursorMismatch):
        await desk.letters(None, PageRequest(3, cursor))

"""Debounced publication: of a burst under one key exactly one record results, the last one's body in it."""

import asyncio
from typing import Any

import pytest

from moorage.kernel.errors import BodyInvalid, RequestInvalid, StorageBindingUnavailable
from moorage.kernel.instants import after
from moorage.records import debounce, evidence
from moorage.records.model import Debounce, Draft, Record
from tests.contract.adapters import Store, dump
from tests.contract.desk import KIND, Desk, grant, ref
from tests.contract.faults import Fault, FaultyDatabase, Plan


@pytest.fixture
async def desk(store: Store) -> Desk:
    made = Desk(store)
    await made.declare()
    return made


def draft(body: dict[str, Any], seconds: float = 10, most: float = 25, key: str = "k", **more: Any) -> Draft:
    return Draft(KIND, body, debounce=Debounce(key, seconds, most), **more)


async def say(desk: Desk, body: dict[str, Any], **how: Any) -> Record:
    return await debounce.publish_debounced(desk.db(), desk.kinds, desk.caller, desk.now, draft(body, **how))


@pytest.mark.clause("records.publish", "history.append")
async def test_a_later_record_takes_the_place_of_the_one_that_waits(desk: Desk) -> None:
    first = await say(desk, {"size": 1, "to": "a"})
    assert first.not_before == after(desk.now, 10)
    assert await desk.get(first.id) == first
    desk.pass_time(6)
    second = await say(desk, {"size": 2}, priority=4, metadata={"m": 1})
    assert (second.id, second.seq, second.body, second.metadata, second.priority) == (
        first.id, first.seq, {"size": 2}, {"m": 1}, 4,
    )  # fmt: skip
    assert second.not_before == after(desk.now, 10)
    assert await desk.get(first.id) == second
    assert (await desk.query({"to": "a"})).items == []
    desk.pass_time(9)
    assert await desk.claim() == []
    desk.pass_time(1)
    await desk.fire()
    assert [one.record.body for one in await desk.claim({"size": 2}, limit=9)] == [{"size": 2}]
    assert await desk.types(first.id) == ["published", "debounced", "due", "claimed"]
    await desk.history_agrees()


@pytest.mark.clause("records.publish")
async def test_it_is_never_pushed_beyond_the_first_one_s_bound(desk: Desk) -> None:
    first = await say(desk, {"size": 0})
    bound = after(desk.now, 25)
    last = first
    for size in range(1, 4):
        desk.pass_time(8)
        last = await say(desk, {"size": size}, most=80_000)
    assert (last.id, last.not_before) == (first.id, bound)
    desk.pass_time(1)
    assert (await desk.fire())["record_due"] == 1
    another = await say(desk, {"size": 9})
    assert another.id != first.id
    assert [row["n"] for row in await desk.store.sql("SELECT count(*) AS n FROM records")] == [2]


@pytest.mark.clause("records.publish")
async def test_keys_kinds_and_publishers_are_apart(desk: Desk) -> None:
    await desk.declare("other", {})
    ann = desk.seen_by(await desk.credential("ann", grant("publish")))
    told = [
        await say(desk, {}),
        await say(desk, {}, key="l"),
        await say(ann, {}),
        await debounce.publish_debounced(
            desk.db(), desk.kinds, desk.caller, desk.now, Draft("other", {}, debounce=Debounce("k", 1, 2))
        ),
    ]
    assert len({one.id for one in told}) == 4


@pytest.mark.clause("records.publish")
async def test_a_burst_at_once_is_one_record(desk: Desk) -> None:
    told = await asyncio.gather(*(say(desk, {"size": number}) for number in range(5)))
    assert len({one.id for one in told}) == 1
    [row] = await desk.store.sql("SELECT count(*) AS n FROM records")
    assert row["n"] == 1
    await desk.history_agrees()


@pytest.mark.clause("records.publish", "records.idempotent")
async def test_a_replacement_whose_answer_was_lost_is_made_once(desk: Desk) -> None:
    first = await say(desk, {"size": 1})
    key = desk.key("one", {"size": 2})
    lost = FaultyDatabase(desk.db(), Plan(commits=[Fault.FAIL_AFTER]))
    with pytest.raises(StorageBindingUnavailable):
        await debounce.publish_debounced(lost, desk.kinds, desk.caller, desk.now, draft({"size": 2}), key)
    before = await dump(desk.store)
    again = await debounce.publish_debounced(desk.db(), desk.kinds, desk.caller, desk.now, draft({"size": 2}), key)
    assert (again.id, again.body) == (first.id, {"size": 2})
    assert await dump(desk.store) == before


@pytest.mark.clause("records.fail")
async def test_a_failed_attempt_waits_beside_a_new_record_of_the_same_key(desk: Desk) -> None:
    first = await say(desk, {})
    desk.pass_time(10)
    await desk.fire()
    held = await desk.claim_one()
    second = await say(desk, {"size": 2})
    failed = await desk.fail(ref(held), retry=100)
    assert (failed.id, failed.not_before) == (first.id, after(desk.now, 100))
    assert (await say(desk, {"size": 3})).id == second.id


@pytest.mark.clause("records.publish")
async def test_a_large_body_and_a_time_to_live_follow_the_replacement(desk: Desk) -> None:
    await desk.declare("short", {}, {"ttl_seconds": 100})

    async def one(body: dict[str, Any]) -> Record:
        wish = Draft("short", body, debounce=Debounce("k", 10, 15))
        return await debounce.publish_debounced(desk.db(), desk.kinds, desk.caller, desk.now, wish)

    assert (await one({})).ready_until == after(desk.now, 110)
    desk.pass_time(10)
    large = {"text": '"' * 400_000}
    told = await one(large)
    assert (told.body, told.not_before, told.ready_until) == (large, after(desk.now, 5), after(desk.now, 105))


async def test_what_cannot_be_debounced_is_refused(desk: Desk) -> None:
    with pytest.raises(RequestInvalid):
        await desk.publish_all([draft({})])
    for wrong in (draft({}, id="x"), draft({}, parents=("p",)), draft({}, seconds=0), draft({}, seconds=9, most=8)):
        with pytest.raises(RequestInvalid):
            await debounce.publish_debounced(desk.db(), desk.kinds, desk.caller, desk.now, wrong)
    await say(desk, {"size": 1})
    with pytest.raises(BodyInvalid):
        await say(desk, {"size": "x"})


@pytest.mark.clause("history.seal")
async def test_what_was_replaced_is_held_against_its_last_entry(desk: Desk) -> None:
    record = await say(desk, {"size": 1})
    await say(desk, {"size": 2})
    plain = await desk.publish({"size": 3})
    assert await evidence.compare(desk.db(), await evidence.published(desk.db(), 0, 100)) is None
    for one, body in ((record, '{"size":1}'), (plain, '{"size":4}')):
        [row] = await desk.store.sql("SELECT body FROM records WHERE id = ?", one.id)
        await desk.store.sql("UPDATE records SET body = ? WHERE id = ?", body, one.id)
        assert await evidence.compare(desk.db(), await evidence.published(desk.db(), 0, 100)) is not None
        await desk.store.sql("UPDATE records SET body = ? WHERE id = ?", row["body"], one.id)

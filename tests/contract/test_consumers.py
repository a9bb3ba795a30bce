"""Consumers' inboxes: an outcome for an event once, together with what it does, on each adapter."""

import asyncio
from typing import Any

import pytest

from moorage.history.query import entries
from moorage.kernel import canonical
from moorage.kernel.errors import (
    EventUnknown,
    Forbidden,
    IdInvalid,
    KeyUnknown,
    KindUnknown,
    PayloadTooLarge,
    RecordExists,
    RequestInvalid,
    Unauthenticated,
)
from moorage.kernel.instants import Instant
from moorage.kernel.limits import (
    ID_CHARACTERS,
    INBOX_OUTCOME_BYTES,
    INBOX_RETENTION_SECONDS,
    KV_CHANGES,
    KV_VALUE_BYTES,
    SETTLE_RESULTS,
)
from moorage.kv import values
from moorage.messages.inbox import consumers
from moorage.messages.inbox.consumers import InboxRetention, Outcome
from moorage.records.model import Draft
from moorage.timers import clock
from tests.contract.adapters import Store, dump
from tests.contract.desk import KIND, Desk, grant

pytestmark = pytest.mark.clause("inbox.consumer")


@pytest.fixture
async def desk(store: Store) -> Desk:
    made = Desk(store)
    await made.declare()
    return made


async def record(
    desk: Desk,
    outcome: Any,
    event: str = "evt-1",
    consumer: str = "billing",
    kv: dict[str, dict[str, Any]] | None = None,
    drafts: list[Draft] | None = None,
) -> Outcome:
    return await consumers.record(
        desk.db(), desk.kinds, desk.caller, desk.now, consumer, event, outcome, kv or {}, drafts or []
    )


def draft(name: str | None = None, kind: str = KIND) -> Draft:
    return Draft(kind, {"to": "a"}, id=name)


async def test_an_outcome_is_recorded_once_with_its_effects(desk: Desk) -> None:
    await values.put(desk.db(), desk.caller, desk.now, "state", "old", 1)
    first = await record(desk, {"n": 1}, kv={"state": {"seen": 1, "old": None}}, drafts=[draft("mine")])
    assert (first.added, first.outcome, [one.id for one in first.published]) == (True, {"n": 1}, ["mine"])
    before = await dump(desk.store)
    desk.pass_time(60)
    for again in (
        record(desk, {"n": 1}, kv={"state": {"seen": 1, "old": None}}, drafts=[draft("mine")]),
        record(desk, {"n": 2}, kv={"state": {"seen": 2, "more": 1}}, drafts=[draft(), draft()]),
        record(desk, None, drafts=[draft(kind="undeclared")]),
        record(desk, "x" * (int(INBOX_OUTCOME_BYTES) + 1)),
        record(desk, 0, kv={"state": {"": 1}}),
    ):
        found = await again
        assert (found.added, found.outcome, found.recorded_at) == (False, {"n": 1}, first.recorded_at)
    assert await dump(desk.store) == before
    assert (await values.get(desk.db(), desk.caller, "state", "seen")).value == 1
    with pytest.raises(KeyUnknown):
        await values.get(desk.db(), desk.caller, "state", "old")
    shown = await consumers.show(desk.db(), desk.caller, "billing", "evt-1")
    assert (shown.outcome, shown.recorded_at) == ({"n": 1}, first.recorded_at)
    [told] = await entries(desk.store.db(), 0, 10, "inbox:billing/evt-1")
    assert (told.type, told.content_sha256) == ("inbox.recorded", canonical.digest('{"n":1}'))


async def test_every_consumer_and_every_event_is_its_own(desk: Desk) -> None:
    for place, (consumer, event) in enumerate((("a", "e"), ("b", "e"), ("a", "f"), ("a", "a"))):
        assert (await record(desk, place, event, consumer)).added
    assert (await record(desk, 9, "f", "a")).outcome == 2
    for consumer, event in (("b", "f"), ("e", "a")):
        with pytest.raises(EventUnknown):
            await consumers.show(desk.db(), desk.caller, consumer, event)


async def test_of_deliveries_at_once_one_takes_effect(desk: Desk) -> None:
    made = await asyncio.gather(*(record(desk, n, drafts=[draft()], kv={"s": {f"k{n}": n}}) for n in range(10)))
    [won] = [one for one in made if one.added]
    assert {one.outcome for one in made} == {won.outcome}
    assert [row["key"] for row in await desk.store.sql("SELECT key FROM kv")] == [f"k{won.outcome}"]
    assert len(await desk.store.sql("SELECT id FROM records")) == 1


async def test_what_cannot_be_done_records_nothing(desk: Desk) -> None:
    await desk.publish_all([draft("taken")])
    before = await dump(desk.store)
    many = {f"k{n}": n for n in range(int(KV_CHANGES) + 1)}
    for error, act in (
        (RecordExists, record(desk, 1, kv={"s": {"k": 1}}, drafts=[draft("taken")])),
        (KindUnknown, record(desk, 1, kv={"s": {"k": 1}}, drafts=[draft(kind="undeclared")])),
        (PayloadTooLarge, record(desk, "x" * (int(INBOX_OUTCOME_BYTES) - 1))),
        (PayloadTooLarge, record(desk, 1, kv={"s": {"k": "x" * int(KV_VALUE_BYTES)}})),
        (RequestInvalid, record(desk, 1, kv={"s": many})),
        (RequestInvalid, record(desk, 1, drafts=[draft()] * (int(SETTLE_RESULTS) + 1))),
        (RequestInvalid, record(desk, 1, drafts=[draft(kind="artifact")])),
        (IdInvalid, record(desk, 1, kv={"": {"k": 1}})),
        (IdInvalid, record(desk, 1, event="")),
        (IdInvalid, record(desk, 1, event="a/b")),
        (IdInvalid, record(desk, 1, consumer="c" * (int(ID_CHARACTERS) + 1))),
    ):
        with pytest.raises(error):
            await act
    assert await dump(desk.store) == before
    most = [draft()] * int(SETTLE_RESULTS)
    del many["k0"]
    made = await record(desk, "x" * (int(INBOX_OUTCOME_BYTES) - 2), kv={"s": many}, drafts=most)
    assert (made.added, len(made.published)) == (True, len(most))


async def test_a_consumer_is_granted_as_a_kind_of_its_name(desk: Desk) -> None:
    ann = desk.seen_by(await desk.credential("ann", grant("publish", kinds=["billing", "s"])))
    reader = desk.seen_by(await desk.credential("reader", grant("read", kinds=["billing"])))
    narrow = desk.seen_by(await desk.credential("narrow", grant("publish", "read", match={"to": "a"})))
    with pytest.raises(Forbidden):
        await record(ann, 1, kv={"other": {"k": 1}})
    with pytest.raises(KindUnknown):
        await record(ann, 1, drafts=[draft()])
    assert (await record(ann, 1, kv={"s": {"k": 1}})).added
    assert (await record(ann, 2, kv={"other": {"k": 1}})).outcome == 1
    assert (await consumers.show(reader.db(), reader.caller, "billing", "evt-1")).outcome == 1
    assert (await consumers.show(ann.db(), ann.caller, "billing", "evt-1")).outcome == 1
    for refused in (
        record(ann, 1, consumer="shipping"),
        record(reader, 1),
        record(narrow, 1),
        consumers.show(narrow.db(), narrow.caller, "billing", "evt-1"),
    ):
        with pytest.raises(Forbidden):
            await refused
    await desk.store.sql("UPDATE credentials SET revoked_at = 1")
    with pytest.raises(Unauthenticated):
        await record(ann, 1)


async def test_outcomes_are_forgotten_when_their_time_is_over(desk: Desk) -> None:
    desk.now = Instant(desk.now // 600_000 * 600_000 + 1000)
    made = await record(desk, 1)
    due = consumers.forgotten_at(made)
    assert due % 600_000 == 0
    assert 0 <= due - made.recorded_at - int(INBOX_RETENTION_SECONDS) * 1000 < 600_000
    works = [InboxRetention()]
    assert await clock.next_due(desk.db(), desk.now, works) == due
    desk.now = Instant(due - 1)
    await record(desk, 2, "evt-2")
    assert (await clock.drain(desk.db, desk.now, works)).fired == {}
    desk.now = due
    drained = await clock.drain(desk.db, desk.now, works)
    assert (drained.fired, drained.failed) == ({"inbox_retention": 1}, [])
    assert drained.next_due is not None
    assert drained.next_due > due
    assert (await record(desk, 3)).added
    assert not (await record(desk, 4, "evt-2")).added
    [told] = await entries(desk.store.db(), 0, 10, "inbox:")
    assert (told.type, told.data) == ("inbox.forgotten", {"forgotten": 1})

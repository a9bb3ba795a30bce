"""Timers: set, fired once in one transaction, set anew and deleted, on each adapter."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from moorage.history.query import entries
from moorage.idempotency.keys import Key
from moorage.kernel.errors import (
    EventIdentityUsed,
    Forbidden,
    IdempotencyConflict,
    IdInvalid,
    PayloadTooLarge,
    RequestInvalid,
    TimerConflict,
    TimerNotDue,
    TimerUnknown,
    Unauthenticated,
)
from moorage.kernel.instants import LATEST, Instant, after, render
from moorage.kernel.limits import EVENT_DATA_BYTES, EVENT_KEYS, EVERY_SECONDS, ID_CHARACTERS
from moorage.kernel.pages import PageRequest
from moorage.messages.inbox import accept
from moorage.messages.inbox.model import EventDraft
from moorage.store.transaction import Transaction
from moorage.timers import clock, fire, listing, put
from moorage.timers.fire import Timers
from moorage.timers.model import Template, Timer, Wish
from tests.contract.adapters import Store, dump
from tests.contract.desk import Desk, grant

pytestmark = pytest.mark.clause("timers.fire")

HOUR = 3_600_000


@pytest.fixture
def desk(store: Store) -> Desk:
    return Desk(store)


async def set_(
    desk: Desk,
    timer: str = "t",
    delay: int | None = 1000,
    revision: int | None = None,
    key: Key | None = None,
    at: int | None = None,
    every: int | None = None,
    **event: Any,
) -> Timer:
    """Set a timer `delay` ms from now, or at an instant."""
    wish = Wish(
        Template(**{"type": "ping", **event}),
        None if at is None else Instant(at),
        None if at is not None else delay,
        every,
    )
    return await put.put(desk.db(), desk.caller, desk.now, timer, wish, revision, key)


async def drain(desk: Desk, milliseconds: int = 0) -> Mapping[str, int]:
    """Let time pass and the Clock fire."""
    desk.now = Instant(desk.now + milliseconds)
    drained = await clock.drain(desk.db, desk.now, [Timers()])
    assert not drained.failed
    return drained.fired


async def events(desk: Desk) -> list[dict[str, Any]]:
    return await desk.store.sql("SELECT * FROM events ORDER BY seq")


async def told(desk: Desk, timer: str = "t") -> list[tuple[str, int]]:
    found = await entries(desk.store.db(), 0, 50, f"timer:{timer}")
    return [(one.type, one.revision) for one in found]


async def test_a_timer_accepts_its_event_at_its_instant_once(desk: Desk) -> None:
    start = desk.now
    timer = await set_(desk, delay=1500, data='{"n":1}', subject="order-7", keys=("a", "order-7"))
    assert desk.cost.trips == 1
    assert (timer.revision, timer.fire_at, timer.source, timer.delivery_id) == (1, start + 1500, "/timers/t", "t:1")
    assert await put.show(desk.db(), desk.caller, "t") == timer
    assert await drain(desk, 1499) == {}
    assert await events(desk) == []
    assert await drain(desk, 1) == {"timer_fired": 1}
    assert await drain(desk, HOUR) == {}
    [event] = await events(desk)
    assert (event["source"], event["delivery_id"], event["type"], event["actor"]) == ("/timers/t", "t:1", "ping", "clock")
    assert (event["accepted_at"], event["data"], event["keys"]) == (start + 1500, '{"n":1}', '["order-7","a"]')
    assert f'"time":"{render(Instant(start + 1500))}"' in event["envelope"]
    with pytest.raises(TimerUnknown):
        await put.show(desk.db(), desk.caller, "t")
    assert await told(desk) == [("timer.set", 1), ("timer.fired", 2)]
    [_, last] = await entries(desk.store.db(), 0, 50, "timer:t")
    assert last.data == {"due": render(Instant(start + 1500)), "event": event["event_id"], "added": True}
    terms = await desk.store.sql("SELECT term FROM event_terms ORDER BY term")
    assert [row["term"] for row in terms] == ["k:a", "k:order-7", "t:ping"]


@pytest.mark.clause("timers.late")
async def test_a_timer_that_is_late_fires_once_as_of_its_instant(desk: Desk) -> None:
    start = desk.now
    await set_(desk, "one", 1000)
    await set_(desk, "many", 1000, every=HOUR)
    await set_(desk, "past", at=5)
    assert await drain(desk, 3 * HOUR + 1000) == {"timer_fired": 6}
    found = [(row["delivery_id"], row["accepted_at"]) for row in await events(desk)]
    due = [render(Instant(start + 1000 + n * HOUR)) for n in range(4)]
    assert {name for name, _ in found} == {"one:1", "past:1", *(f"many:1@{instant}" for instant in due)}
    assert {instant for _, instant in found} == {desk.now}
    times = [row["envelope"] for row in await events(desk) if row["delivery_id"].startswith("many")]
    assert [instant in envelope for instant, envelope in zip(due, times, strict=True)] == [True] * 4
    again = await put.show(desk.db(), desk.caller, "many")
    assert (again.fire_at, again.revision) == (start + 1000 + 4 * HOUR, 5)
    assert await drain(desk) == {}


async def test_an_early_and_a_stale_firing_fail_and_change_nothing(desk: Desk) -> None:
    first = await set_(desk, delay=1000)
    second = await set_(desk, delay=2000)
    before = await dump(desk.store)
    for late, revision in ((0, 2), (1999, 2), (2000, first.revision), (2000, 3)):
        with pytest.raises(TimerNotDue):
            await fire.fire_timer(desk.db(), Instant(desk.now + late), "t", revision)
    with pytest.raises(TimerNotDue):
        await fire.fire_timer(desk.db(), desk.now, "unknown", 1)
    assert await Timers().fire(desk.db(), Instant(desk.now + 1999), "t@2") == 0
    assert await dump(desk.store) == before
    await fire.fire_timer(desk.db(), Instant(desk.now + 2000), "t", second.revision)
    with pytest.raises(TimerNotDue):
        await fire.fire_timer(desk.db(), Instant(desk.now + 2000), "t", second.revision)
    assert len(await events(desk)) == 1


async def test_of_firings_at_once_one_takes_effect(desk: Desk) -> None:
    await set_(desk, delay=0)
    await set_(desk, "r", 0, every=1000)
    tried = await asyncio.gather(
        *(fire.fire_timer(desk.db(), desk.now, name, 1) for name in ("t", "r") for _ in range(5)), return_exceptions=True
    )
    assert sum(one is None for one in tried) == 2
    assert sum(isinstance(one, TimerNotDue) for one in tried) == 8
    assert len(await events(desk)) == 2


async def test_revisions_grow_on_over_firing_deletion_and_making_anew(desk: Desk) -> None:
    assert (await set_(desk, revision=0)).revision == 1
    with pytest.raises(TimerConflict):
        await set_(desk, delay=7, revision=0)
    await put.delete(desk.db(), desk.caller, desk.now, "t", 1)
    assert (await set_(desk, revision=0)).revision == 3
    for stale in (1, 2, 4):
        with pytest.raises(TimerConflict):
            await put.delete(desk.db(), desk.caller, desk.now, "t", stale)
        with pytest.raises(TimerConflict):
            await set_(desk, delay=9, revision=stale)
        with pytest.raises(TimerNotDue):
            await fire.fire_timer(desk.db(), after(desk.now, 60), "t", stale)
    await drain(desk, 1000)
    assert (await set_(desk)).revision == 5
    await put.delete(desk.db(), desk.caller, desk.now, "t", 5)
    with pytest.raises(TimerUnknown):
        await put.delete(desk.db(), desk.caller, desk.now, "t", 5)
    assert await told(desk) == [
        ("timer.set", 1),
        ("timer.deleted", 2),
        ("timer.set", 3),
        ("timer.fired", 4),
        ("timer.set", 5),
        ("timer.deleted", 6),
    ]
    assert await drain(desk, HOUR) == {}
    assert [row["delivery_id"] for row in await events(desk)] == ["t:3"]


async def test_the_same_again_changes_nothing_and_another_takes_its_place(desk: Desk) -> None:
    first = await set_(desk, data="[1]", keys=("k",))
    before = await dump(desk.store)
    assert await set_(desk, data="[1]", keys=("k",)) == first
    assert await dump(desk.store) == before
    desk.pass_time(0.5)
    second = await set_(desk, data="[1]", keys=("k",))
    assert (second.revision, second.fire_at, second.created_at) == (2, first.fire_at + 500, first.created_at)
    others: list[dict[str, Any]] = [{"data": "[2]"}, {"type": "pong"}, {"subject": "s"}, {"event_id": "e"}, {"every": 1000}]
    for place, changed in enumerate(others, 3):
        assert (await set_(desk, **changed)).revision == place
    assert await drain(desk, 999) == {}


async def test_under_a_key_the_same_answers_the_first_also_when_that_has_fired(desk: Desk) -> None:
    key = desk.key("one", "put")
    first = await set_(desk, delay=0, key=key)
    assert await drain(desk) == {"timer_fired": 1}
    desk.pass_time(5)
    again = await set_(desk, delay=0, key=key)
    assert (again.revision, again.fire_at, again.delivery_id) == (first.revision, first.fire_at, first.delivery_id)
    assert await drain(desk, 1000) == {}
    with pytest.raises(IdempotencyConflict):
        await set_(desk, delay=1, key=desk.key("one", "another"))


async def test_no_timer_sends_what_was_accepted_already(desk: Desk) -> None:
    await set_(desk, source="/billing", event_id="e-1", delay=0)
    await drain(desk)
    with pytest.raises(EventIdentityUsed):
        await set_(desk, source="/billing", event_id="e-1", delay=5000)
    assert (await set_(desk, source="/shipping", event_id="e-1")).revision == 3
    await set_(desk, "late", source="/billing", event_id="e-2")
    await set_(desk, "each", source="/billing", event_id="e-3", every=1000)
    for name in ("e-2", f"e-3@{render(after(desk.now, 1))}"):
        tx = Transaction(desk.now)
        accept.plan(tx, EventDraft("/billing", name, "ping"), actor="subject:ann")
        await desk.db().commit(tx)
    assert await drain(desk, 2000) == {"timer_fired": 4}
    [_, last] = await entries(desk.store.db(), 0, 9, "timer:late")
    assert last.data["added"] is False
    found = [(row["source"], row["delivery_id"]) for row in await events(desk)]
    assert sorted(found) == sorted(set(found))
    assert [row["id"] for row in await desk.store.sql("SELECT id FROM timers")] == ["each"]
    with pytest.raises(EventIdentityUsed):
        await set_(desk, "each", source="/billing", event_id="e-3", every=1000, at=desk.now - 1000)


@pytest.mark.clause("kernel.limits")
async def test_bounds_of_timers(desk: Desk) -> None:
    longest = "t" * int(ID_CHARACTERS)
    made = await set_(
        desk,
        longest,
        at=LATEST,
        every=int(EVERY_SECONDS) * 1000,
        data='"' + "x" * (int(EVENT_DATA_BYTES) - 2) + '"',
        keys=tuple(f"k{n}" for n in range(int(EVENT_KEYS))),
    )
    assert (await put.show(desk.db(), desk.caller, longest)).fire_at == LATEST == made.fire_at
    assert render(made.fire_at) == "9999-12-31T23:59:59.999Z"
    await set_(desk, "least", every=1000)
    await set_(desk, "last", LATEST - desk.now)
    before = await dump(desk.store)
    for error, act in (
        (IdInvalid, set_(desk, "")),
        (IdInvalid, set_(desk, "a/b")),
        (IdInvalid, set_(desk, longest + "t")),
        (RequestInvalid, set_(desk, delay=-1)),
        (RequestInvalid, set_(desk, delay=LATEST - desk.now + 1)),
        (RequestInvalid, set_(desk, delay=10**24)),
        (RequestInvalid, set_(desk, every=999)),
        (RequestInvalid, set_(desk, every=int(EVERY_SECONDS) * 1000 + 1)),
        (PayloadTooLarge, set_(desk, data='"' + "x" * (int(EVENT_DATA_BYTES) - 1) + '"')),
        (RequestInvalid, set_(desk, subject="s", keys=tuple(f"k{n}" for n in range(int(EVENT_KEYS))))),
        (RequestInvalid, set_(desk, keys=("a", "a"))),
        (RequestInvalid, set_(desk, type="")),
        (RequestInvalid, set_(desk, source="a\nb")),
        (RequestInvalid, set_(desk, event_id="")),
    ):
        with pytest.raises(error):
            await act
    assert await dump(desk.store) == before
    # No instant follows the last one: a timer that repeats ends with it.
    await fire.fire_timer(desk.db(), LATEST, longest, made.revision)
    with pytest.raises(TimerUnknown):
        await put.show(desk.db(), desk.caller, longest)


async def test_timers_are_granted_by_the_type_of_their_event(desk: Desk) -> None:
    ann = desk.seen_by(await desk.credential("ann", grant("publish", kinds=["ping", "pong*"])))
    ben = desk.seen_by(await desk.credential("ben", grant("publish", kinds=["pong"])))
    narrow = desk.seen_by(await desk.credential("narrow", grant("publish", match={"to": "a"})))
    operator = desk.seen_by(await desk.credential("operator", grant("operate")))
    await set_(ann, "a")
    await set_(ann, "b", type="pong.x")
    await set_(ben, "c", type="pong")
    for refused in (
        set_(ben, "d"),
        set_(ben, "a", type="pong"),
        set_(ben, "b", type="pong"),
        set_(narrow, "e"),
        set_(operator, "e"),
        listing.list_timers(ann.db(), ann.caller, PageRequest()),
    ):
        with pytest.raises(Forbidden):
            await refused
    for hidden in (
        put.show(ben.db(), ben.caller, "a"),
        put.delete(ben.db(), ben.caller, ben.now, "a", 1),
        put.show(narrow.db(), narrow.caller, "a"),
    ):
        with pytest.raises(TimerUnknown):
            await hidden
    assert (await set_(ann, "c", type="ping")).revision == 2
    assert (await put.show(operator.db(), operator.caller, "a")).created_by == "ann"
    await put.delete(operator.db(), operator.caller, operator.now, "a", 1)
    first = await listing.list_timers(operator.db(), operator.caller, PageRequest(1))
    rest = await listing.list_timers(operator.db(), operator.caller, PageRequest(1, first.next_cursor))
    assert ([one.id for one in first.items], [one.id for one in rest.items], rest.next_cursor) == (["b"], ["c"], None)


async def test_a_revoked_credential_sends_nothing(desk: Desk) -> None:
    ann = desk.seen_by(await desk.credential("ann", grant("publish")))
    await set_(ann, "once")
    await set_(ann, "again", every=1000)
    await set_(desk, "kept")
    await desk.store.sql("UPDATE credentials SET revoked_at = 1")
    with pytest.raises(Unauthenticated):
        await set_(ann, "more")
    assert await drain(desk, 1000) == {"timer_fired": 3}
    assert [row["delivery_id"] for row in await events(desk)] == ["kept:1"]
    assert await told(desk, "again") == [("timer.set", 1), ("timer.refused", 2)]
    assert await desk.store.sql("SELECT id FROM timers") == []


_FILL = """
INSERT INTO timers (id, revision, fire_at, source, type, delivery_id, created_by, created_at, updated_at)
WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 5000)
SELECT 'other' || n, 1, CAST(? AS INTEGER) + n, '/s', 'ping', 'e' || n, 'root', 1, 1 FROM n
"""


@pytest.mark.edge
@pytest.mark.clause("timers.alarm")
async def test_what_a_firing_reads_does_not_grow_with_what_waits(d1_store: Store) -> None:
    desk = Desk(d1_store)

    async def cost() -> tuple[int, int, int]:
        """Trips, rows read and rows written of a drain that fires one timer."""
        await set_(desk, "mine", delay=0)
        drained = await clock.drain(desk.db, desk.now, [Timers()])
        assert drained.fired == {"timer_fired": 1}
        return drained.cost.trips, drained.cost.rows_read, drained.cost.rows_written

    await set_(desk, "next", delay=HOUR)
    await cost()
    alone = await cost()
    await desk.store.sql(_FILL, str(desk.now))
    assert await cost() == alone
    print(f"a drain that fires one timer: {alone[0]} trips, {alone[1]} rows read, {alone[2]} written")
    assert alone[0] <= 4

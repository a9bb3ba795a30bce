"""Events on every adapter after they were accepted: routed whatever dies, whose they are, how long they are kept."""

import asyncio
from typing import Any

import pytest

from moorage.history.query import entries
from moorage.kernel.errors import CorrelationConflict, RequestInvalid
from moorage.kernel.instants import Instant, after
from moorage.kernel.limits import CORRELATIONS, EVENT_ATTRIBUTE_CHARACTERS, EVENT_RETENTION_SECONDS, SCOPE_CHARACTERS
from moorage.kernel.pages import PageRequest
from moorage.messages.inbox import correlate, events
from moorage.messages.inbox.accept import accept
from moorage.messages.inbox.correlate import ExternalKey
from moorage.messages.inbox.events import Wanted, list_events
from moorage.messages.inbox.retention import EventRetention
from moorage.messages.inbox.routing import UnroutedEvents
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Transaction
from moorage.timers.clock import drain
from tests.contract.adapters import Store, dump
from tests.contract.test_events import NOW, ROOT, SHOP, draft, one

# --- the second checkpoint, and what is kept ------------------------------------------------------------------------


class Severed:
    """A database whose process is killed as the answer to a commit comes back."""

    def __init__(self, behind: Database) -> None:
        self.behind = behind
        self.cost = behind.cost

    async def read(self, reading: Reading) -> None:
        await self.behind.read(reading)

    async def commit(self, transaction: Transaction) -> None:
        await self.behind.commit(transaction)
        raise asyncio.CancelledError

    async def initialize(self, statements: list[str]) -> None:
        await self.behind.initialize(statements)


async def listed(store: Store, **wanted: Any) -> list[str]:
    """The delivery ids of the events that are asked for."""
    return [one.delivery_id for one in (await list_events(store.db(), ROOT, PageRequest(), Wanted(**wanted))).items]


@pytest.mark.clause("inbox.two-checkpoints")
async def test_what_was_accepted_survives_whoever_accepted_it(store: Store) -> None:
    with pytest.raises(asyncio.CancelledError):
        await accept(Severed(store.db()), ROOT, NOW, [draft(data={"n": 1})], actor="subject:root")
    assert await listed(store, unrouted=True) == ["d-1"]
    assert (await one(store, draft(data={"n": 1}))).added is False
    drained = await drain(store.db, after(NOW, 10), [UnroutedEvents()])
    assert drained.fired == {"event_routed": 1}
    assert (await listed(store, unrouted=True), await listed(store)) == ([], ["d-1"])
    again = await one(store, draft(data={"n": 1}))
    assert (again.event.disposition, again.event.routed_at) == ("unmatched", after(NOW, 10))


@pytest.mark.clause("inbox.correlation", "inbox.two-checkpoints")
async def test_an_event_belongs_to_the_work_of_its_first_attached_key(store: Store) -> None:
    await correlate.attach(store.db(), ROOT, NOW, "orders/7", [ExternalKey(SHOP, "b"), ExternalKey(SHOP, "c")])
    await correlate.attach(store.db(), ROOT, NOW, "orders/8", [ExternalKey("/other", "a")])
    await one(store, draft("1", keys=("a", "b")))
    await one(store, draft("2", keys=("a",)))
    await drain(store.db, after(NOW, 10), [UnroutedEvents()])
    assert await listed(store, work="orders/7") == ["1"]
    assert [row["disposition"] for row in await store.sql("SELECT disposition FROM events ORDER BY seq")] == [
        "correlated",
        "unmatched",
    ]


@pytest.mark.clause("inbox.correlation")
async def test_of_attachers_at_once_one_has_the_key(store: Store) -> None:
    async def attach(work: str) -> str:
        keys = [ExternalKey(SHOP, "key"), ExternalKey(SHOP, work)]
        try:
            return (await correlate.attach(store.db(), ROOT, NOW, work, keys))[0].work
        except CorrelationConflict:
            return "conflict"

    found = await asyncio.gather(*(attach(f"w{n}") for n in range(8)))
    [winner] = [work for work in found if work != "conflict"]
    rows = await store.sql("SELECT external_id, work FROM correlations ORDER BY external_id")
    assert [(row["external_id"], row["work"]) for row in rows] == [("key", winner), (winner, winner)]
    told = [entry for entry in await entries(store.db(), 0, 500) if entry.type == "correlation.attached"]
    assert [(entry.subject, len(entry.data["keys"])) for entry in told] == [(f"correlation:{winner}", 2)]
    await correlate.attach(store.db(), ROOT, NOW, winner, [ExternalKey(SHOP, "key"), ExternalKey(SHOP, "new")])
    told = [entry for entry in await entries(store.db(), 0, 500) if entry.type == "correlation.attached"]
    assert told[-1].data == {"keys": [{"external_id": "new", "source": SHOP}]}


@pytest.mark.clause("kernel.limits", "inbox.correlation")
async def test_the_bounds_of_keys(store: Store) -> None:
    longest = "x" * EVENT_ATTRIBUTE_CHARACTERS
    most = [ExternalKey(longest, f"{n}") for n in range(CORRELATIONS - 1)]
    await correlate.attach(store.db(), ROOT, NOW, "w" * SCOPE_CHARACTERS, [*most, ExternalKey(SHOP, longest)])
    before = await dump(store)
    for work, keys in (
        ("w" * (SCOPE_CHARACTERS + 1), most),
        ("w", [*most, ExternalKey(SHOP, "1"), ExternalKey(SHOP, "2")]),
        ("w", [ExternalKey(SHOP, longest + "x")]),
        ("w", [ExternalKey(longest + "x", "1")]),
        ("w", [ExternalKey(SHOP, "1"), ExternalKey(SHOP, "1")]),
    ):
        with pytest.raises(RequestInvalid):
            await correlate.attach(store.db(), ROOT, NOW, work, keys)
    assert await dump(store) == before


@pytest.mark.clause("timers.alarm", "inbox.accept")
async def test_events_are_removed_when_they_were_routed_long_ago_and_nobody_needs_them(store: Store) -> None:
    late = after(NOW, EVENT_RETENTION_SECONDS)
    await accept(store.db(), ROOT, NOW, [draft(f"{n}", keys=("k",)) for n in range(4)], actor="clock")
    await one(store, draft("young"), now=after(NOW, 3600))
    await store.sql("UPDATE events SET routed_at = accepted_at, disposition = 'unmatched' WHERE delivery_id <> '1'")
    await store.sql(
        "INSERT INTO event_waits (execution_id, label, input_sha256, state, after, event, created_at, ended_at, keys, types)"
        " SELECT 'exe_1', 'wait', 'sha', 'woken', 0, seq, 0, 0, '[]', '[]' FROM events WHERE delivery_id = '2'"
    )
    await store.sql(
        "INSERT INTO journal (execution_id, label, input_sha256, position, kind, state, attempt, epoch, started_at)"
        " VALUES ('exe_1', 'wait', 'sha', '1', 'event', 'pending', 1, 1, 0)"
    )
    assert (await drain(store.db, Instant(late - 1), [EventRetention()])).fired == {}
    assert (await drain(store.db, after(late, 600), [EventRetention()])).fired == {"event_retention": 2}
    assert await listed(store) == ["1", "2", "young"]
    terms = await store.sql("SELECT DISTINCT seq FROM event_terms ORDER BY seq")
    assert [row["seq"] for row in terms] == [row["seq"] for row in await store.sql("SELECT seq FROM events ORDER BY seq")]
    told = [entry for entry in await entries(store.db(), 0, 500) if entry.type == "event.removed"]
    assert [entry.revision for entry in told] == [2, 2]
    await store.sql("UPDATE journal SET state = 'done', value = '1' WHERE execution_id = 'exe_1'")
    assert (await drain(store.db, after(late, 1200), [EventRetention()])).fired == {"event_retention": 1}
    assert (await drain(store.db, after(late, 1800), [EventRetention()])).fired == {}
    assert (await one(store, draft("0"), now=late)).added, "a removed event is a new one"


async def test_a_page_holds_as_much_data_as_an_answer_may(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PAGE_BYTES", 2500)
    monkeypatch.setattr(events, "EXAMINED", 4)
    for n in range(9):
        await one(store, draft(f"{n}", "x" * 1000, type="odd" if n % 2 else "even"))

    async def pages(**wanted: Any) -> list[list[str]]:
        found, cursor = [], None
        while True:
            page = await list_events(store.db(), ROOT, PageRequest(cursor=cursor), Wanted(**wanted))
            found.append([each.delivery_id for each in page.items])
            cursor = page.next_cursor
            if cursor is None:
                return found

    assert await pages() == [["0", "1"], ["2", "3"], ["4", "5"], ["6", "7"], ["8"]]
    assert await pages(newest_first=True) == [["8", "7"], ["6", "5"], ["4", "3"], ["2", "1"], ["0"]]
    assert await pages(source="/other") == [[], [], []]
    assert [one for page in await pages(type="odd") for one in page] == ["1", "3", "5", "7"]

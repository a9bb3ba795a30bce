"""Events on every adapter: accepted once, never changed, kept until they are routed."""

import asyncio
from typing import Any

import pytest

from moorage.catalog.access import Action, Caller, Grant
from moorage.history.append import CLOCK
from moorage.history.query import entries
from moorage.idempotency.keys import key_for
from moorage.kernel import canonical
from moorage.kernel.errors import (
    CausationUnknown,
    CorrelationConflict,
    EventConflict,
    EventIdentityUsed,
    Forbidden,
    IdempotencyConflict,
    IdInvalid,
    PayloadTooLarge,
    RequestInvalid,
    ScopeUnknown,
    Unauthenticated,
)
from moorage.kernel.instants import Instant, after
from moorage.kernel.limits import (
    CORRELATIONS,
    EVENT_ATTRIBUTE_CHARACTERS,
    EVENT_ATTRIBUTES,
    EVENT_BATCH,
    EVENT_BATCH_BYTES,
    EVENT_DATA_BYTES,
    EVENT_KEYS,
    EVENT_RETENTION_SECONDS,
    SCOPE_CHARACTERS,
)
from moorage.kernel.pages import PageRequest
from moorage.messages import accept as accepting
from moorage.messages import correlate, events
from moorage.messages.accept import Accepted, accept
from moorage.messages.checks import check
from moorage.messages.correlate import ExternalKey
from moorage.messages.events import Wanted, list_events
from moorage.messages.model import EventDraft
from moorage.messages.retention import EventRetention
from moorage.messages.routing import UnroutedEvents
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Transaction
from moorage.timers.clock import drain
from tests.contract.adapters import Store, dump

ROOT = Caller("root", bearer=b"the root token")
NOW = Instant(1_800_000_000_000)
SHOP = "https://shop.example/42"


def draft(delivery_id: str = "d-1", data: Any = None, **told: Any) -> EventDraft:
    """An event of the shop."""
    text = None if data is None else canonical.dumps(data)
    return EventDraft(**{"source": SHOP, "delivery_id": delivery_id, "type": "order.paid", "data": text, **told})


async def one(
    store: Store, sent: EventDraft, caller: Caller = ROOT, actor: str = "subject:root", now: Instant = NOW
) -> Accepted:
    """What stands for one delivery."""
    [accepted] = await accept(store.db(), caller, now, [sent], actor=actor)
    return accepted


async def story(store: Store, event_id: str) -> list[tuple[int, str, str]]:
    """The entries of an event's history."""
    found = await entries(store.db(), 0, 500, event_id)
    return [(entry.position, entry.type, entry.actor) for entry in found]


# --- acceptance -----------------------------------------------------------------------------------------------------


@pytest.mark.clause("inbox.accept", "inbox.immutable", "inbox.actor", "inbox.two-checkpoints")
async def test_a_delivery_is_accepted_once_and_never_changes(store: Store) -> None:
    first = await one(store, draft(data={"amount": 1250}, keys=("order-7",), attributes={"subject": "order-7"}))
    assert (first.added, first.differs) == (True, False)
    told = first.event.answer()
    assert told["event"] == {
        "specversion": "1.0",
        "id": "d-1",
        "source": SHOP,
        "type": "order.paid",
        "subject": "order-7",
        "data": {"amount": 1250},
    }
    assert (told["actor"], told["routed_at"], told["disposition"]) == ("subject:root", None, None)
    assert told["event_id"].startswith("evt_")
    before = await dump(store)
    assert await story(store, first.event.event_id) == [(first.event.seq, "event.accepted", "root")]
    assert [row["term"] for row in before["event_terms"]] == ["k:order-7", "t:order.paid"]

    again = await one(store, draft(data={"amount": 1250}, keys=("order-7",), attributes={"subject": "order-7"}))
    assert (again.added, again.differs, again.event) == (False, False, first.event)
    other = draft(data={"amount": 9000}, type="other", event_id="evt_mine", scope=None, causation="evt_nobody")
    changed = await one(store, other, actor="subject:somebody else")
    assert (changed.added, changed.differs, changed.event) == (False, True, first.event)
    assert changed.answer()["content_differs"] is True
    assert await dump(store) == before, "a duplicate wrote something"


@pytest.mark.clause("inbox.accept")
async def test_seqs_are_the_positions_of_the_entries_that_tell_of_them(store: Store) -> None:
    await one(store, draft("a"))
    await store.sql(
        "INSERT INTO history (position, subject, revision, type, actor, at, data) VALUES (2, 'x', 1, 'thing', 'a', 0, '{}')"
    )
    batch = [draft("b"), draft("a"), draft("c", {"big": "x" * 300_000}), draft("b"), draft("d")]
    found = await accept(store.db(), ROOT, NOW, batch, actor="clock")
    assert [(one.added, one.event.seq) for one in found] == [(True, 3), (False, 1), (True, 4), (False, 3), (True, 5)]
    told = [entry for entry in await entries(store.db(), 2, 500) if entry.type == "event.accepted"]
    assert [(entry.position, entry.actor, entry.data["id"]) for entry in told] == [
        (3, CLOCK, "b"),
        (4, CLOCK, "c"),
        (5, CLOCK, "d"),
    ]
    assert [entry.subject for entry in told] == [found[at].event.event_id for at in (0, 2, 4)]
    assert [entry.content_sha256 for entry in told] == [found[at].event.content_sha256 for at in (0, 2, 4)]
    assert [row["seq"] for row in await store.sql("SELECT seq FROM event_terms ORDER BY seq")] == [1, 3, 4, 5]


@pytest.mark.clause("inbox.accept")
async def test_copies_at_the_same_moment_are_accepted_once(store: Store) -> None:
    found = await asyncio.gather(*(one(store, draft(data={"n": 1})) for _ in range(20)))
    assert sum(each.added for each in found) == 1
    assert len({each.event.event_id for each in found}) == 1
    assert len(await store.sql("SELECT seq FROM events")) == 1


@pytest.mark.clause("inbox.accept")
async def test_an_id_of_its_own_belongs_to_one_delivery(store: Store) -> None:
    first = await one(store, draft(event_id="evt_mine"))
    assert first.event.event_id == "evt_mine"
    before = await dump(store)
    with pytest.raises(EventConflict):
        await one(store, draft("d-2", event_id="evt_mine"))
    with pytest.raises(EventConflict):
        await accept(store.db(), ROOT, NOW, [draft("d-3"), draft("d-4", event_id="evt_mine")], actor="clock")
    with pytest.raises(IdInvalid):
        await one(store, draft("d-2", event_id="rec_mine"))
    assert await dump(store) == before
    assert (await one(store, draft(event_id="evt_mine"))).added is False


@pytest.mark.clause("inbox.accept")
async def test_a_repeated_key_answers_as_the_first_time(store: Store) -> None:
    await one(store, draft("a"))
    key = key_for("root", "k", "POST /events", ["a", "b"])
    sent = [draft("a"), draft("b"), draft("b")]
    first = await accept(store.db(), ROOT, NOW, sent, actor="subject:root", key=key)
    before = await dump(store)
    again = await accept(store.db(), ROOT, NOW, sent, actor="subject:root", key=key)
    assert [each.answer() for each in again] == [each.answer() for each in first]
    assert [each.added for each in first] == [False, True, False]
    assert await dump(store) == before
    other = key_for("root", "k", "POST /events", ["c"])
    with pytest.raises(IdempotencyConflict):
        await accept(store.db(), ROOT, NOW, [draft("c")], actor="subject:root", key=other)


async def test_a_revoked_credential_sends_nothing(store: Store) -> None:
    gone = Caller("gone", (Grant(frozenset[Action]({"publish"})),), "crd_gone")
    before = await dump(store)
    with pytest.raises(Unauthenticated):
        await one(store, draft(), gone)
    assert await dump(store) == before


def test_types_are_granted_as_kinds_are() -> None:
    publish = frozenset[Action]({"publish"})
    accepting.demand(Caller("a", (Grant(publish, ("order.*",)),), "crd_1"), [draft(), draft(type="order.sent")])
    with pytest.raises(Forbidden):
        accepting.demand(Caller("a", (Grant(publish, ("order.*",)),), "crd_1"), [draft(), draft(type="shop.opened")])
    with pytest.raises(Forbidden):
        accepting.demand(Caller("a", (Grant(publish, ("order.*",), {"n": 1}),), "crd_1"), [draft()])


# --- causes and scopes ----------------------------------------------------------------------------------------------


@pytest.mark.clause("inbox.causation")
async def test_a_cause_was_accepted_before(store: Store) -> None:
    before = await dump(store)
    with pytest.raises(CausationUnknown):
        await one(store, draft(causation="evt_nobody"))
    with pytest.raises(CausationUnknown):
        await one(store, draft(causation="evt_itself", event_id="evt_itself"))
    assert await dump(store) == before
    cause = await one(store, draft("cause"))
    derived = await one(store, draft("derived", causation=cause.event.event_id))
    assert derived.event.causation == cause.event.event_id
    await store.sql("DELETE FROM events WHERE delivery_id = 'cause'")
    assert (await one(store, draft("derived", causation=cause.event.event_id))).added is False


@pytest.mark.clause("inbox.scope-once")
async def test_a_scope_is_one_that_is_declared(store: Store) -> None:
    before = await dump(store)
    with pytest.raises(ScopeUnknown):
        await one(store, draft(scope="nowhere"))
    assert await dump(store) == before
    await store.sql("INSERT INTO scopes (id, config, created_at, updated_at) VALUES ('team', '{}', 0, 0)")
    assert (await one(store, draft(scope="team"))).event.scope == "team"


# --- in other transactions ------------------------------------------------------------------------------------------


async def test_acceptance_joins_another_transaction(store: Store) -> None:
    tx = Transaction(NOW)
    accepting.require_unused(tx, SHOP, "d-1", EventIdentityUsed())
    answer = accepting.plan(tx, draft(), actor="clock")
    await store.db().commit(tx)
    row = answer.one()
    assert (row["added"], row["seq"], row["actor"]) == (1, 1, "clock")
    tx = Transaction(NOW)
    accepting.require_unused(tx, SHOP, "d-1", EventIdentityUsed())
    with pytest.raises(EventIdentityUsed):
        await store.db().commit(tx)


# --- bounds ---------------------------------------------------------------------------------------------------------


@pytest.mark.clause("kernel.limits")
def test_the_bounds_of_an_event() -> None:
    longest = "x" * EVENT_ATTRIBUTE_CHARACTERS
    check(draft(longest, source=longest, type=longest, keys=tuple(f"k{n}" for n in range(EVENT_KEYS))))
    check(draft(data="x" * (EVENT_DATA_BYTES - 2), attributes={f"a{n}": 1 for n in range(EVENT_ATTRIBUTES)}))
    for refused in (
        draft(longest + "x"),
        draft(source=longest + "x"),
        draft(type=longest + "x"),
        draft(""),
        draft(source=""),
        draft(type=""),
        draft("line\nbreak"),
        draft(keys=("",)),
        draft(keys=("a", "a")),
        draft(keys=tuple(f"k{n}" for n in range(EVENT_KEYS + 1))),
        draft(attributes={f"a{n}": 1 for n in range(EVENT_ATTRIBUTES + 1)}),
    ):
        with pytest.raises(RequestInvalid):
            check(refused)
    with pytest.raises(PayloadTooLarge):
        check(draft(data="x" * (EVENT_DATA_BYTES - 1)))


@pytest.mark.clause("kernel.limits")
async def test_the_bounds_of_a_batch(store: Store) -> None:
    most = await accept(store.db(), ROOT, NOW, [draft(f"d-{n}") for n in range(EVENT_BATCH)], actor="clock")
    assert [each.event.delivery_id for each in most] == [f"d-{n}" for n in range(EVENT_BATCH)]
    before = await dump(store)
    with pytest.raises(RequestInvalid):
        await accept(store.db(), ROOT, NOW, [draft(f"e-{n}") for n in range(EVENT_BATCH + 1)], actor="clock")
    with pytest.raises(RequestInvalid):
        await accept(store.db(), ROOT, NOW, [], actor="clock")
    half = "x" * (EVENT_BATCH_BYTES // 2)
    with pytest.raises(PayloadTooLarge):
        await accept(store.db(), ROOT, NOW, [draft("f", half), draft("g", half)], actor="clock")
    assert await dump(store) == before


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

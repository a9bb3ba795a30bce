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
from moorage.kernel.instants import Instant
from moorage.kernel.limits import (
    EVENT_ATTRIBUTE_CHARACTERS,
    EVENT_ATTRIBUTES,
    EVENT_BATCH,
    EVENT_BATCH_BYTES,
    EVENT_DATA_BYTES,
    EVENT_KEYS,
)
from moorage.messages.inbox import accept as accepting
from moorage.messages.inbox.accept import Accepted, accept
from moorage.messages.inbox.checks import check
from moorage.messages.inbox.model import EventDraft
from moorage.store.transaction import Transaction
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
    assert changed.answer(ROOT)["content_differs"] is True
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
    assert [each.answer(ROOT) for each in again] == [each.answer(ROOT) for each in first]
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

"""History on every adapter: appended with the change it tells of, gapless, read with an exclusive cursor."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage.history.append import Event, append, append_many, append_selected
from moorage.history.query import Entry, entries
from moorage.kernel.errors import LeaseFenced
from moorage.kernel.instants import Instant
from moorage.store.transaction import Transaction
from tests.contract.adapters import Store, dump

NOW = Instant(1_800_000_000_000)
NEVER = "SELECT 1 WHERE 0"
LEASE = "INSERT INTO leases (key, epoch) VALUES (:key, 1)"


async def happen(store: Store, *subjects: str, now: Instant = NOW) -> list[int]:
    """Append an entry for each subject, all in one transaction; their positions."""
    tx = Transaction(now)
    answers = [append(tx, "actor", Event(subject, "thing.happened")) for subject in subjects]
    await store.db().commit(tx)
    return [answer.one()["position"] for answer in answers]


async def read(store: Store, after: int = 0, limit: int = 1000, subject: str | None = None) -> list[Entry]:
    """Entries through an instance of its own."""
    return await entries(store.db(), after, limit, subject)


@pytest.mark.clause("history.append")
async def test_an_entry_keeps_everything_that_was_said(store: Store) -> None:
    tx = Transaction(NOW)
    data = {"n": 1, "half": 0.5, "nested": {"é": [None, True, "\u0000 '\""]}}
    position = append(tx, "worker 'a'", Event("rec_1", "record.published", data, kind="doc", content_sha256="ab"))
    await store.db().commit(tx)
    assert await read(store) == [
        Entry(position.one()["position"], "rec_1", 1, "record.published", "doc", "worker 'a'", NOW, data, "ab")
    ]


@pytest.mark.clause("history.append", "store.atomic")
async def test_an_entry_and_its_change_commit_together_or_not_at_all(store: Store) -> None:
    before = await dump(store)
    for broken_first in (True, False):
        tx = Transaction(NOW)
        if broken_first:
            tx.require(NEVER, LeaseFenced())
        tx.run(LEASE, key="k")
        append(tx, "actor", Event("k", "lease.made"))
        if not broken_first:
            tx.require(NEVER, LeaseFenced())
        with pytest.raises(LeaseFenced):
            await store.db().commit(tx)
        assert await dump(store) == before
    tx = Transaction(NOW)
    tx.run(LEASE, key="k")
    append(tx, "actor", Event("k", "lease.made"))
    await store.db().commit(tx)
    assert [entry.subject for entry in await read(store)] == ["k"]
    assert len(await store.sql("SELECT * FROM leases")) == 1


@pytest.mark.clause("history.append")
async def test_a_refused_transaction_leaves_no_gap(store: Store) -> None:
    await happen(store, "a")
    tx = Transaction(NOW)
    append(tx, "actor", Event("a", "thing.happened"))
    tx.require(NEVER, LeaseFenced())
    with pytest.raises(LeaseFenced):
        await store.db().commit(tx)
    await happen(store, "a")
    assert [(entry.position, entry.revision) for entry in await read(store)] == [(1, 1), (2, 2)]


@pytest.mark.clause("history.query")
@given(
    batches=st.lists(
        st.tuples(st.booleans(), st.lists(st.sampled_from("abcd"), min_size=1, max_size=6)), min_size=1, max_size=8
    )
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_positions_and_each_subjects_revisions_are_gapless(
    store: Store, batches: list[tuple[bool, list[str]]]
) -> None:
    await store.sql("DELETE FROM history")
    told: list[str] = []
    for at_once, subjects in batches:
        tx = Transaction(NOW)
        chosen = list(dict.fromkeys(subjects)) if at_once else subjects
        if at_once:
            append_many(tx, "actor", [Event(subject, "thing.happened") for subject in chosen])
        else:
            for subject in chosen:
                append(tx, "actor", Event(subject, "thing.happened"))
        await store.db().commit(tx)
        told += chosen
    found = await read(store)
    assert [entry.subject for entry in found] == told
    assert [entry.position for entry in found] == list(range(1, len(told) + 1))
    for subject in set(told):
        own = await read(store, subject=subject)
        assert [entry.revision for entry in own] == list(range(1, told.count(subject) + 1))


@pytest.mark.clause("history.query")
async def test_transactions_that_commit_at_once_leave_neither_gap_nor_double(store: Store) -> None:
    await asyncio.gather(*(happen(store, "shared", f"own-{number}") for number in range(20)))
    found = await read(store)
    assert [entry.position for entry in found] == list(range(1, 41))
    assert [entry.revision for entry in found if entry.subject == "shared"] == list(range(1, 21))


@pytest.mark.clause("history.query")
async def test_the_cursor_is_exclusive_and_pages_lose_and_repeat_nothing(store: Store) -> None:
    for _ in range(5):
        await happen(store, "a", "b", "c")  # all at one instant
    for subject, expected in ((None, 15), ("b", 5)):
        whole = await read(store, subject=subject)
        assert len(whole) == expected
        for limit in (1, 2, 4, 15):
            paged: list[Entry] = []
            after = 0
            while page := await read(store, after, limit, subject):
                assert len(page) <= limit
                paged += page
                after = page[-1].position
                if len(paged) == limit:
                    await happen(store, "late")  # what happens meanwhile comes at the end
            assert [entry for entry in paged if entry.subject != "late"] == whole
            assert all(one.position < other.position for one, other in pairwise(paged))


@pytest.mark.clause("history.query")
async def test_reading_past_the_end_or_of_a_stranger_finds_nothing(store: Store) -> None:
    await happen(store, "a")
    assert await read(store, after=1) == []
    assert await read(store, after=10**12) == []
    assert await read(store, subject="A") == []
    assert await read(store, subject="a' OR '1'='1") == []


@pytest.mark.clause("history.append")
async def test_entries_for_rows_that_only_the_database_knows_come_in_order(store: Store) -> None:
    await happen(store, "k2")
    tx = Transaction(NOW)
    for key in ("k1", "k2", "k3"):
        tx.run(LEASE, key=key)
    append_selected(
        tx,
        "actor",
        "lease.seen",
        "SELECT -row_number() OVER (ORDER BY key) AS ordinal, key AS subject, 'doc' AS kind,"
        " json_object('owner', owner) AS data, NULL AS content_sha256 FROM leases WHERE key <> :not_this",
        many=True,
        not_this="k3",
    )
    await store.db().commit(tx)
    seen = [(entry.position, entry.subject, entry.revision, entry.data) for entry in await read(store, after=1)]
    assert seen == [(2, "k2", 2, {"owner": None}), (3, "k1", 1, {"owner": None})]


@pytest.mark.clause("store.copies")
async def test_what_is_read_is_a_copy(store: Store) -> None:
    data = {"list": [1]}
    tx = Transaction(NOW)
    append(tx, "actor", Event("a", "thing.happened", data))
    data["list"].append(2)
    await store.db().commit(tx)
    first = (await read(store))[0]
    assert first.data == {"list": [1]}
    first.data["list"].append(3)
    first.data["more"] = True
    assert (await read(store))[0].data == {"list": [1]}

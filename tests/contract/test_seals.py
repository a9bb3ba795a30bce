"""Seals on every adapter: whatever is done to history or seals in the database itself is found, at its first position."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage.history import chain
from moorage.history.append import Event, append
from moorage.history.seals import HistorySeals, Link, SealedMeanwhile, due_after, list_seals, read_ends, seal_batch, seal_now
from moorage.history.verify import Broken, Verified, sealed_entries, verify
from moorage.kernel.errors import StorageBindingUnavailable, Unauthenticated
from moorage.kernel.instants import Instant
from moorage.kernel.limits import SEAL_BATCH, VERIFY_BATCH
from moorage.kernel.pages import PageRequest
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Transaction
from moorage.timers.clock import drain, next_due
from tests.contract.adapters import Store
from tests.contract.faults import Fault, FaultyDatabase, Plan

pytestmark = pytest.mark.clause("history.seal")

NOW = Instant(1_800_000_000_000)
LATER = Instant(NOW + 60_000)
COLUMNS = "position, subject, revision, type, kind, actor, at, data, content_sha256"

MANY = """
INSERT INTO history (position, subject, revision, type, kind, actor, at, data, content_sha256)
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < CAST(:count AS INTEGER))
SELECT coalesce((SELECT max(position) FROM history), 0) + i, 'm' || i, 1, 'thing.happened', NULL, 'actor', :now, '{}', NULL
FROM n
"""


def nobody(tx: Transaction) -> None:
    """A guard that asks for nothing."""


class Overtaken:
    """A database in which something else happens just before each commit."""

    def __init__(self, db: Database, before: Callable[[], Awaitable[None]]) -> None:
        self._db = db
        self._before = before
        self.cost = db.cost

    async def read(self, reading: Reading) -> None:
        await self._db.read(reading)

    async def commit(self, transaction: Transaction) -> None:
        await self._before()
        await self._db.commit(transaction)

    async def initialize(self, statements: list[str]) -> None:
        await self._db.initialize(statements)


async def happen(store: Store, count: int, first: int = 1) -> None:
    """Append entries of their own subjects, all in one transaction."""
    tx = Transaction(NOW)
    for number in range(first, first + count):
        data = {"n": number, "text": "é\n\\\"'\u0000😀"}
        append(tx, "actor", Event(f"s{number}", "thing.happened", data, kind="doc", content_sha256="ab" * 32))
    await store.db().commit(tx)


async def many(store: Store, count: int) -> None:
    """Append very many entries at once."""
    tx = Transaction(NOW)
    tx.run(MANY, count=count)
    await store.db().commit(tx)


async def sealed(store: Store, *batches: int) -> list[Row]:
    """A history sealed in batches of these sizes; its rows."""
    await store.sql("DELETE FROM history")
    await store.sql("DELETE FROM seals")
    for index, size in enumerate(batches):
        await happen(store, size, 1 + sum(batches[:index]))
        await seal_batch(store.db(), Instant(NOW + index))
    return await store.sql(f"SELECT {COLUMNS} FROM history ORDER BY position")  # noqa: S608


async def whole(store: Store, step: int = int(VERIFY_BATCH), noted: Link | None = None) -> Verified:
    """Verify all of it, call by call; `checked` is the sum."""
    after, checked = 0, 0
    while True:
        found = await verify(store.db(), after, step, noted)
        assert found.checked <= step
        checked += found.checked
        if found.next is None:
            return Verified(checked, found.last, found.broken, None, found.unsealed)
        assert found.broken is None
        assert found.next == after + step
        after = found.next


async def broken(store: Store, step: int = int(VERIFY_BATCH), noted: Link | None = None) -> int | None:
    """The first broken position; the same whatever the steps in which it is looked for."""
    found = (await whole(store, step, noted)).broken
    return None if found is None else found.position


async def test_nothing_is_sealed_and_verified_before_anything_happens(store: Store) -> None:
    assert await seal_batch(store.db(), NOW) == 0
    assert await verify(store.db()) == Verified(0, None, None, None, 0)


async def test_links_are_made_of_the_link_before_and_the_entrys_text(store: Store) -> None:
    rows = await sealed(store, 2, 1)
    previous = chain.GENESIS
    for row in rows:
        previous = chain.link(previous, chain.text(row))
    ends = await read_ends(store.db())
    assert ends.head == Link(3, previous)
    assert await verify(store.db()) == Verified(3, ends.head, None, None, 0)
    page = await sealed_entries(store.db(), PageRequest(), 0)
    assert [entry.position for entry in page.items] == [1, 2, 3]
    assert [entry.text for entry in page.items] == [chain.text(row) for row in rows]
    assert page.items[-1].link == previous


async def test_sealing_again_or_in_other_batches_gives_the_same_links(store: Store) -> None:
    await sealed(store, 7)
    once = (await read_ends(store.db())).head
    assert await seal_batch(store.db(), LATER) == 0
    await sealed(store, 1, 2, 4)
    assert (await read_ends(store.db())).head == once


async def test_what_follows_the_last_seal_is_told_and_is_sealed_next(store: Store) -> None:
    await sealed(store, 3)
    await happen(store, 2, 4)
    assert await whole(store) == Verified(3, (await read_ends(store.db())).head, None, None, 2)
    assert await seal_batch(store.db(), LATER) == 2
    assert (await whole(store)).checked == 5


async def test_one_batch_is_bounded_and_writes_one_row(store: Store) -> None:
    await many(store, int(SEAL_BATCH) + 20)
    db = store.db()
    assert await seal_batch(db, NOW) == SEAL_BATCH
    assert (db.cost.trips, len(await store.sql("SELECT position FROM seals"))) == (2, 1)
    assert (await read_ends(store.db())).unsealed == 20
    done = await seal_now(store.db(), NOW, nobody)
    assert (done.sealed, done.ends.unsealed) == (20, 0)
    assert await verify(store.db(), 0, int(VERIFY_BATCH)) == Verified(
        VERIFY_BATCH, (await verify(store.db())).last, None, int(VERIFY_BATCH), 0
    )
    assert (await whole(store)).checked == SEAL_BATCH + 20


@pytest.mark.parametrize("step", [1, 2, 3, 7, 100])
async def test_verification_in_any_steps_covers_every_link_once(store: Store, step: int) -> None:
    await sealed(store, 4, 1, 6)
    found = await whole(store, step)
    assert (found.checked, found.broken, found.last) == (11, None, (await read_ends(store.db())).head)


async def test_the_clock_seals_once_entries_have_gathered(store: Store) -> None:
    works = [HistorySeals()]
    assert await next_due(store.db(), NOW, works) is None
    await happen(store, 3)
    due = due_after(NOW)
    assert 5000 < due - NOW <= 10_000
    assert await next_due(store.db(), NOW, works) == due
    early = await drain(store.db, Instant(due - 1), works)
    assert (early.fired, early.next_due, early.cost.trips) == ({}, due, 1)
    drained = await drain(store.db, due, works)
    assert (drained.fired, drained.next_due, drained.failed) == ({"history_sealed": 3}, None, [])
    assert await next_due(store.db(), due, works) is None
    assert (await whole(store)).checked == 3


async def test_the_clock_drains_a_backlog_in_bounded_batches(store: Store) -> None:
    await many(store, 3 * int(SEAL_BATCH) + 1)
    drained = await drain(store.db, LATER, [HistorySeals()])
    assert drained.fired == {"history_sealed": 3 * int(SEAL_BATCH) + 1}
    assert len(await store.sql("SELECT position FROM seals")) == 4
    assert await broken(store) is None


async def test_looking_whether_to_seal_reads_the_same_few_rows_however_much_waits(store: Store) -> None:
    read = []
    for count in (1, 300):
        await sealed(store, *[3] * 8)
        await many(store, count)
        db = store.db()
        await next_due(db, NOW, [HistorySeals()])
        assert db.cost.trips == 1
        read.append(db.cost.rows_read)
    assert read[0] == read[1] <= 6


async def test_sealing_while_others_commit_and_seal_loses_and_repeats_nothing(store: Store) -> None:
    async def work(number: int) -> None:
        await happen(store, 3, 1 + 3 * number)

    async def seal() -> int:
        try:
            return await seal_batch(store.db(), NOW)
        except SealedMeanwhile:
            return 0

    jobs: list[Awaitable[object]] = [work(number) for number in range(15)]
    jobs += [seal() for _ in range(15)]
    random.Random(7).shuffle(jobs)
    await asyncio.gather(*jobs)
    await seal_now(store.db(), NOW, nobody)
    found = await whole(store)
    assert (found.checked, found.broken, found.unsealed) == (45, None, 0)


async def test_a_second_sealer_from_the_same_link_writes_nothing(store: Store) -> None:
    await happen(store, 2)

    async def overtake() -> None:
        assert await seal_batch(store.db(), NOW) == 2
        await happen(store, 2, 3)

    with pytest.raises(SealedMeanwhile):
        await seal_batch(Overtaken(store.db(), overtake), NOW)
    assert (await whole(store)).checked == 2
    await seal_batch(Overtaken(store.db(), lambda: happen(store, 1, 5)), NOW)
    assert (await whole(store)).checked == 4


async def test_the_clock_leaves_it_to_whoever_seals_meanwhile(store: Store) -> None:
    await happen(store, 2)

    async def overtake() -> None:
        await seal_batch(store.db(), NOW)

    assert await HistorySeals().fire(Overtaken(store.db(), overtake), NOW, "seal") == 0
    assert (await whole(store)).checked == 2


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER])
async def test_a_crash_around_the_commit_repeats_and_loses_nothing(store: Store, fault: Fault) -> None:
    await happen(store, 4)
    with pytest.raises(StorageBindingUnavailable):
        await seal_batch(FaultyDatabase(store.db(), Plan(commits=[fault])), NOW)
    await happen(store, 2, 5)
    await seal_now(store.db(), LATER, nobody)
    found = await whole(store)
    assert (found.checked, found.broken) == (6, None)


async def test_a_message_delivered_twice_seals_once(store: Store) -> None:
    await happen(store, 4)
    await seal_batch(FaultyDatabase(store.db(), Plan(commits=[Fault.DUPLICATE])), NOW)
    assert len(await store.sql("SELECT position FROM seals")) == 1
    assert await broken(store) is None


async def test_a_revoked_credential_seals_nothing(store: Store) -> None:
    await happen(store, 1)

    def refuse(tx: Transaction) -> None:
        tx.require("SELECT 1 WHERE 0", Unauthenticated())

    with pytest.raises(Unauthenticated):
        await seal_now(store.db(), NOW, refuse)
    assert await store.sql("SELECT position FROM seals") == []


async def test_seals_are_listed_from_either_end(store: Store) -> None:
    await sealed(store, 2, 3, 1)
    first = await list_seals(store.db(), PageRequest(2))
    assert [(seal.position, seal.entries, seal.sealed_at) for seal in first.items] == [(2, 2, NOW), (5, 3, NOW + 1)]
    rest = await list_seals(store.db(), PageRequest(2, first.next_cursor))
    assert ([seal.position for seal in rest.items], rest.next_cursor) == ([6], None)
    newest = await list_seals(store.db(), PageRequest(1), backwards=True)
    assert Link(newest.items[0].position, newest.items[0].link) == (await read_ends(store.db())).head


# What may be done to a sealed history of three batches, each with the position at which it must be found.

BATCHES = (4, 3, 5)
TOTAL = sum(BATCHES)
ENDS = [sum(BATCHES[: index + 1]) for index in range(len(BATCHES))]
EDITS = {
    "subject": "subject || 'x'",
    "revision": "revision + 1",
    "type": "upper(type)",
    "kind": "NULL",
    "actor": "actor || ' '",
    "at": "at + 1",
    "data": "data || ' '",
    "content_sha256": "NULL",
}
WILD = {"at": "9007199254740993", "data": "'{not json'", "revision": "4611686018427387904", "kind": "char(10)"}


def first_of(end: int) -> int:
    """The first position of the batch that ends there."""
    return end - BATCHES[ENDS.index(end)] + 1


Tampering = Callable[[Store], Awaitable[int]]


@st.composite
def edits(draw: st.DrawFn) -> Tampering:
    at = draw(st.integers(1, TOTAL))
    column, value = draw(st.sampled_from([*EDITS.items(), *WILD.items()]))

    async def tamper(store: Store) -> int:
        await store.sql(f"UPDATE history SET {column} = {value} WHERE position = ?", at)  # noqa: S608
        return at

    return tamper


@st.composite
def deletions(draw: st.DrawFn) -> Tampering:
    first = draw(st.integers(1, TOTAL))
    last = draw(st.integers(first, TOTAL))

    async def tamper(store: Store) -> int:
        await store.sql("DELETE FROM history WHERE position BETWEEN ? AND ?", first, last)
        return first

    return tamper


@st.composite
def closed_gaps(draw: st.DrawFn) -> Tampering:
    """An entry is deleted and those behind it move up."""
    at = draw(st.integers(1, TOTAL))

    async def tamper(store: Store) -> int:
        await store.sql("DELETE FROM history WHERE position = ?", at)
        for position in range(at + 1, TOTAL + 1):
            await store.sql("UPDATE history SET position = position - 1 WHERE position = ?", position)
        return at

    return tamper


@st.composite
def insertions(draw: st.DrawFn) -> Tampering:
    """Those behind make room for an entry that never was."""
    at = draw(st.integers(1, TOTAL))

    async def tamper(store: Store) -> int:
        for position in range(TOTAL, at - 1, -1):
            await store.sql("UPDATE history SET position = position + 1 WHERE position = ?", position)
        await insert(store, at)
        return at

    return tamper


@st.composite
def strays(draw: st.DrawFn) -> Tampering:
    at = draw(st.integers(-3, 0))
    table = draw(st.sampled_from(["history", "seals"]))

    async def tamper(store: Store) -> int:
        if table == "history":
            await insert(store, at)
        else:
            await store.sql("INSERT INTO seals VALUES (?, 0, '', ?)", at, "0" * 64)
        return at

    return tamper


async def insert(store: Store, at: int) -> None:
    values = f"({at}, 'forged {at}', 1, 'thing.happened', 'doc', 'actor', {NOW}, '{{}}', NULL)"
    await store.sql(f"INSERT INTO history ({COLUMNS}) VALUES {values}")  # noqa: S608


@st.composite
def exchanges(draw: st.DrawFn) -> Tampering:
    one = draw(st.integers(1, TOTAL - 1))
    other = draw(st.integers(one + 1, TOTAL))

    async def tamper(store: Store) -> int:
        for source, target in ((one, 1000), (other, one), (1000, other)):
            await store.sql("UPDATE history SET position = ? WHERE position = ?", target, source)
        return one

    return tamper


@st.composite
def edited_links(draw: st.DrawFn) -> Tampering:
    end = draw(st.sampled_from(ENDS))
    at = draw(st.integers(first_of(end), end))
    digit = (at - first_of(end)) * 64 + draw(st.integers(1, 64))

    async def tamper(store: Store) -> int:
        changed = f"substr(links, 1, {digit - 1}) || 'x' || substr(links, {digit + 1})"
        await store.sql(f"UPDATE seals SET links = {changed} WHERE position = ?", end)  # noqa: S608
        return at

    return tamper


@st.composite
def edited_seals(draw: st.DrawFn) -> Tampering:
    end = draw(st.sampled_from(ENDS))
    change, at = draw(
        st.sampled_from(
            [
                ("sealed_at = sealed_at + 1", end),
                ("sealed_at = 4611686018427387904", end),
                ("seal = upper(seal) || 'x'", end),
                ("links = substr(links, 65)", first_of(end)),
                ("links = links || substr(links, -64)", first_of(end)),
            ]
        )
    )

    async def tamper(store: Store) -> int:
        await store.sql(f"UPDATE seals SET {change} WHERE position = ?", end)  # noqa: S608
        return at

    return tamper


@st.composite
def deleted_seals(draw: st.DrawFn) -> Tampering:
    end = draw(st.sampled_from(ENDS[:-1]))

    async def tamper(store: Store) -> int:
        await store.sql("DELETE FROM seals WHERE position = ?", end)
        return first_of(end)

    return tamper


@st.composite
def moved_seals(draw: st.DrawFn) -> Tampering:
    end = draw(st.sampled_from(ENDS))
    target = draw(st.sampled_from([at for at in range(1, TOTAL + 5) if at not in ENDS]))

    async def tamper(store: Store) -> int:
        await store.sql("UPDATE seals SET position = ? WHERE position = ?", target, end)
        return 1 + max((one for one in ENDS if one < min(target, end)), default=0)

    return tamper


tamperings = st.one_of(
    edits(),
    deletions(),
    closed_gaps(),
    insertions(),
    strays(),
    exchanges(),
    edited_links(),
    edited_seals(),
    deleted_seals(),
    moved_seals(),
)


@given(tamper=tamperings, step=st.sampled_from([1, 3, int(VERIFY_BATCH)]))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_every_tampering_is_found_at_its_first_position(store: Store, tamper: Tampering, step: int) -> None:
    await sealed(store, *BATCHES)
    assert await broken(store, step) is None
    at = await tamper(store)
    assert await broken(store, step) == at


@given(tamper=tamperings)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_a_tampering_is_found_though_history_went_on_and_was_sealed(store: Store, tamper: Tampering) -> None:
    await sealed(store, *BATCHES)
    at = await tamper(store)
    await happen(store, 3, 100)
    await seal_now(store.db(), LATER, nobody)
    assert await broken(store, 5) == at


@pytest.mark.parametrize("kept", [0, 4, 7])
async def test_a_chain_cut_off_at_its_end_is_found_by_the_noted_link(store: Store, kept: int) -> None:
    await sealed(store, *BATCHES)
    noted = (await read_ends(store.db())).head
    assert await broken(store, 3, noted) is None
    await store.sql("DELETE FROM history WHERE position > ?", kept)
    await store.sql("DELETE FROM seals WHERE position > ?", kept)
    assert await broken(store, 3) is None
    assert await broken(store, 3, noted) == kept + 1
    assert (await verify(store.db(), TOTAL)).broken == Broken(kept + 1, "no seal holds the link to begin from")


async def test_a_chain_made_anew_is_found_by_the_noted_link(store: Store) -> None:
    await sealed(store, *BATCHES)
    noted = (await read_ends(store.db())).head
    assert noted is not None
    await store.sql("UPDATE history SET actor = 'nobody' WHERE position = 2")
    await store.sql("DELETE FROM seals")
    await happen(store, 2, 100)
    await seal_now(store.db(), LATER, nobody)
    assert await broken(store, 5) is None
    for step in (1, 5, 500):
        assert await broken(store, step, noted) == TOTAL
    behind = await verify(store.db(), TOTAL, 5, noted)
    assert behind.broken is not None
    assert behind.broken.position == TOTAL
    untouched = Link(1, (await sealed_entries(store.db(), PageRequest(1), 0)).items[0].link or "")
    assert await broken(store, 5, untouched) is None


async def test_a_gap_made_before_sealing_is_sealed_around_and_named(store: Store) -> None:
    await happen(store, 6)
    await store.sql("DELETE FROM history WHERE position IN (3, 4)")
    assert await seal_batch(store.db(), NOW) == 2
    assert await seal_batch(store.db(), NOW) == 2
    assert (await whole(store)).broken == Broken(3, "the entry is missing")


async def test_an_entry_put_far_behind_is_found_and_stops_no_sealer(store: Store) -> None:
    await happen(store, 2)
    await insert(store, 2**53 + 7)
    drained = await drain(store.db, LATER, [HistorySeals()])
    assert (drained.fired, drained.failed) == ({"history_sealed": 2}, [])
    await insert(store, 2**52)
    await seal_now(store.db(), LATER, nobody)
    assert await broken(store) == 3


@pytest.mark.parametrize("position", [2**53 - 1, 2**60 + 1])
async def test_a_seal_moved_out_of_all_bounds_is_found_and_holds_nobody_up(store: Store, position: int) -> None:
    await sealed(store, 2, 2)
    await happen(store, 1, 5)
    await store.sql(f"UPDATE seals SET position = {position} WHERE position = 4")  # noqa: S608
    assert await broken(store) == 3
    assert (await seal_now(store.db(), LATER, nobody)).sealed == 0
    assert (await drain(store.db, LATER, [HistorySeals()])).failed == []
    assert [entry.position for entry in (await sealed_entries(store.db(), PageRequest(), 0)).items] == [1, 2, 3, 4, 5]


async def test_pages_of_sealed_entries_go_over_any_gap(store: Store) -> None:
    await sealed(store, *BATCHES)
    await store.sql("DELETE FROM history WHERE position BETWEEN 3 AND 9")
    await store.sql("DELETE FROM seals WHERE position = 12")
    await store.sql("INSERT INTO seals VALUES (13, 0, '', ?)", "0" * 64)
    found, cursor = [], None
    while True:
        page = await sealed_entries(store.db(), PageRequest(2, cursor), 0)
        found += [(entry.position, entry.link is not None) for entry in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert found == [(1, True), (2, True), (10, False), (11, False), (12, False)]

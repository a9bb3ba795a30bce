"""Pages of a query: merged streams in order of publication, bounded in what they examine and in what they hold."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage.kernel.errors import CursorMismatch
from moorage.kernel.instants import after
from moorage.kernel.pages import Page, PageRequest
from moorage.records import pages, query
from moorage.records.model import Draft, Record
from moorage.records.patterns import Compiled
from tests.contract.adapters import Store, dump
from tests.contract.desk import KIND, Desk, ref

STATES: list[Any] = [None, "ready", "claimed", "consumed", "dead"]


@pytest.fixture
async def desk(store: Store) -> Desk:
    made = Desk(store)
    await made.declare()
    return made


@pytest.fixture
def examined() -> Iterator[pytest.MonkeyPatch]:
    """Sets the bounds of a page for one test."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


async def followed(desk: Desk, match: dict[str, Any], limit: int, state: Any = None, order: Any = "asc") -> list[str]:
    """The ids that following every cursor meets, in order."""
    met: list[str] = []
    page: Page[Record] | None = None
    while page is None or page.next_cursor is not None:
        asked = PageRequest(limit, page.next_cursor if page else None)
        page = await desk.query(match, asked, state, order)
        assert len(page.items) <= limit
        met += [record.id for record in page.items]
    return met


async def scatter(desk: Desk, priorities: list[int], fates: list[str]) -> None:
    """Records of every priority and fate, of two values of `to`, and as many of another kind between them."""
    await desk.declare("other", {})
    for number, (priority, fate) in enumerate(zip(priorities, fates, strict=True)):
        later = after(desk.now, 60) if fate == "waiting" else None
        body = {"to": "ab"[number % 2], "size": number}
        await desk.publish(body, id=f"r{number:02}", priority=priority, not_before=later)
        if number % 3 == 0:
            await desk.publish({}, kind="other")
        if fate in ("claimed", "consumed", "dead", "released"):
            held = await desk.claim_one(match={"size": number}, seconds=3600)
            if fate == "consumed":
                await desk.settle(ref(held))
            elif fate == "dead":
                await desk.fail(ref(held), dead=True)
            elif fate == "released":
                await desk.release(ref(held))


async def expected(desk: Desk, to: str | None, state: str | None, order: str) -> list[str]:
    """What the table itself says."""
    rows = await desk.store.sql("SELECT id, state, body FROM records WHERE kind = ? ORDER BY seq", KIND)
    found = [row["id"] for row in rows if state in (None, row["state"]) and to in (None, json.loads(row["body"]).get("to"))]
    return found if order == "asc" else found[::-1]


FATES = ["ready", "waiting", "claimed", "consumed", "dead", "released"]


@pytest.mark.clause("records.pattern-one-meaning")
@given(data=st.data())
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_following_the_cursors_meets_every_record_once_in_order(
    store: Store, examined: pytest.MonkeyPatch, data: st.DataObject
) -> None:
    for table in ("records", "kinds", "history"):
        await store.sql(f"DELETE FROM {table}")  # noqa: S608
    desk = Desk(store)
    await desk.declare()
    count = data.draw(st.integers(0, 12))
    priorities = data.draw(st.lists(st.sampled_from([0, 0, 5, -1, 9]), min_size=count, max_size=count))
    fates = data.draw(st.lists(st.sampled_from(FATES), min_size=count, max_size=count))
    await scatter(desk, priorities, fates)
    examined.setattr(pages, "QUERY_EXAMINED", data.draw(st.sampled_from([1, 2, 3, 7, 2000])))
    examined.setattr(pages, "QUERY_STREAMS", data.draw(st.sampled_from([1, 2, 16])))
    limit = data.draw(st.integers(1, 5))
    for state in STATES:
        for order in ("asc", "desc"):
            for to in (None, "a"):
                match = {} if to is None else {"to": to}
                assert await followed(desk, match, limit, state, order) == await expected(desk, to, state, order)


@pytest.mark.clause("records.pattern-one-meaning")
@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_a_kind_with_very_many_priorities_is_listed_all_the_same(desk: Desk, order: Any) -> None:
    await desk.publish_all([Draft(KIND, {"to": "ab"[n % 2]}, priority=(n * 7) % 40) for n in range(60)])
    for match, to in (({}, None), ({"to": "a"}, "a")):
        assert await followed(desk, match, 7, None, order) == await expected(desk, to, None, order)


@pytest.mark.clause("kernel.limits", "records.pattern-safe")
async def test_a_page_that_examined_enough_is_short_and_goes_on(desk: Desk, examined: pytest.MonkeyPatch) -> None:
    await desk.publish_all([Draft(KIND, {"size": number}) for number in range(30)])
    examined.setattr(pages, "QUERY_EXAMINED", 10)
    empty = await desk.query({"size": {"$gte": 25}})
    assert (empty.items, empty.next_cursor is None) == ([], False)
    assert len(await followed(desk, {"size": {"$gte": 25}}, 50)) == 5
    with pytest.raises(CursorMismatch):
        await desk.query({"size": 1}, PageRequest(50, empty.next_cursor))


@pytest.mark.clause("kernel.limits")
async def test_a_page_holds_a_bounded_number_of_bytes(desk: Desk, examined: pytest.MonkeyPatch) -> None:
    for number in range(12):
        await desk.publish({"text": "é" * 50_000, "size": number})
    examined.setattr(pages, "PAGE_BYTES", 250_000)
    first = await desk.query({})
    assert [record.body["size"] for record in first.items] == [0, 1]
    assert first.next_cursor is not None
    assert len(await followed(desk, {}, 50)) == 12


BIG = "x" * 1_000_000


@pytest.mark.clause("kernel.limits", "records.claim", "records.lineage", "records.dead-letter")
async def test_no_answer_holds_more_bodies_than_an_isolate_can_bear(desk: Desk) -> None:
    """Twelve records of a megabyte each: every answer takes eight and leaves the rest for the next one."""
    parent = await desk.publish({})
    await desk.settle(ref(await desk.claim_one()))
    for number in range(12):
        await desk.publish({"big": BIG, "size": number}, parents=(parent.id,))
    page = await desk.query({}, state="ready")
    assert (len(page.items), page.next_cursor is None) == (8, False)
    relatives, more = await desk.lineage(parent.id, "descendants")
    assert (len(relatives), more) == (8, True)
    first = await desk.claim(limit=100)
    rest = await desk.claim(limit=100)
    assert [held.record.body["size"] for held in [*first, *rest]] == list(range(12))
    assert len(first) == 8
    for held in [*first, *rest]:
        await desk.fail(ref(held), dead=True)
    letters = await desk.letters()
    assert (len(letters.items), letters.next_cursor is None) == (8, False)
    others = await desk.letters(page=PageRequest(50, letters.next_cursor))
    assert (len(others.items), others.next_cursor) == (4, None)
    assert len((await desk.letters(kind=None)).items) == 8
    assert len(await desk.requeue_matching({})) == 8
    assert len(await desk.requeue_matching({})) == 4
    await desk.history_agrees()


@pytest.mark.clause("records.pattern-safe")
async def test_a_query_reads_no_record_past_its_page(desk: Desk, examined: pytest.MonkeyPatch) -> None:
    """The streams are read while they are merged: a condition is only asked of what the page needs."""
    await desk.publish_all([Draft(KIND, {"size": number}) for number in range(300)])
    if desk.store.name != "d1":
        asked = 0

        def count(value: float) -> int:
            nonlocal asked
            asked += 1
            return int(value >= 10)

        desk.store.connection.create_function("counted", 1, count)  # type: ignore[attr-defined]
        examined.setattr(query, "compile", lambda _: Compiled("counted(r.s2)", {}, ()))
        found = await desk.query({}, PageRequest(5))
        assert [record.body["size"] for record in found.items] == [10, 11, 12, 13, 14]
        assert asked <= 20
    else:
        await desk.query({"size": {"$gte": 10}}, PageRequest(5))
        assert desk.cost.rows_read < 160


@pytest.mark.clause("records.pattern-safe")
async def test_a_query_writes_nothing(desk: Desk) -> None:
    await scatter(desk, [0, 1, 2], ["ready", "waiting", "consumed"])
    before = await dump(desk.store)
    await followed(desk, {}, 1)
    assert await dump(desk.store) == before

"""Lineage, pages and single records: what reading shows."""

import pytest

from moorage.kernel.errors import CursorMismatch, KindUnknown, RecordUnknown, RequestInvalid
from moorage.kernel.limits import LINEAGE_DEPTH, LINEAGE_RECORDS
from moorage.kernel.pages import PageRequest
from moorage.records.model import Draft, Relative
from tests.contract.adapters import Store
from tests.contract.desk import KIND, Desk, ref


@pytest.fixture
async def desk(store: Store) -> Desk:
    made = Desk(store)
    await made.declare()
    return made


async def born(desk: Desk, name: str, *parents: str) -> str:
    """A record with the client's id `name`."""
    return (await desk.publish(id=name, parents=parents)).id


def shown(relatives: list[Relative]) -> list[tuple[int, str]]:
    return [(one.depth, one.record.id) for one in relatives]


@pytest.mark.clause("records.lineage")
async def test_ancestors_and_descendants_come_nearest_first_and_once(desk: Desk) -> None:
    """a and b are c's parents; d has c and a; e has d and c."""
    for name, parents in (("a", ""), ("b", ""), ("c", "ab"), ("d", "ca"), ("e", "dc")):
        await born(desk, name, *parents)
    assert shown((await desk.lineage("e"))[0]) == [(1, "c"), (1, "d"), (2, "a"), (2, "b")]
    assert shown((await desk.lineage("d"))[0]) == [(1, "a"), (1, "c"), (2, "b")]
    assert shown((await desk.lineage("a", "descendants"))[0]) == [(1, "c"), (1, "d"), (2, "e")]
    assert shown((await desk.lineage("b", "descendants", 1))[0]) == [(1, "c")]
    assert await desk.lineage("a") == ([], False)
    assert await desk.lineage("e", "descendants") == ([], False)
    with pytest.raises(RecordUnknown):
        await desk.lineage("rec_nobody")


@pytest.mark.clause("records.lineage", "kernel.limits")
async def test_a_chain_is_walked_to_the_depth_asked_for(desk: Desk) -> None:
    names = [f"g{number}" for number in range(LINEAGE_DEPTH + 3)]
    for number, name in enumerate(names):
        await born(desk, name, *names[number - 1 : number] if number else [])
    found, cut = await desk.lineage(names[-1], depth=LINEAGE_DEPTH)
    assert shown(found) == [(depth, names[-1 - depth]) for depth in range(1, LINEAGE_DEPTH + 1)]
    assert not cut
    assert shown((await desk.lineage(names[0], "descendants", 2))[0]) == [(1, "g1"), (2, "g2")]
    for depth in (0, -1, LINEAGE_DEPTH + 1):
        with pytest.raises(RequestInvalid):
            await desk.lineage(names[0], depth=depth)


@pytest.mark.clause("records.lineage", "kernel.limits")
async def test_a_wide_lineage_is_cut_and_says_so(desk: Desk) -> None:
    await born(desk, "root")
    for batch in range(2):
        await desk.publish_all([Draft(KIND, {"size": batch}, parents=("root",)) for _ in range(LINEAGE_RECORDS // 2)])
    found, cut = await desk.lineage("root", "descendants")
    assert (len(found), cut) == (LINEAGE_RECORDS, False)
    await born(desk, "one-more", "root")
    found, cut = await desk.lineage("root", "descendants")
    assert (len(found), cut) == (LINEAGE_RECORDS, True)


@pytest.mark.clause("records.lineage")
async def test_a_walk_that_is_cut_by_its_steps_says_so(desk: Desk) -> None:
    """Sixty records, each the child of all before it: few records, very many ways to them."""
    names = [f"n{number:02}" for number in range(60)]
    for number, name in enumerate(names):
        await born(desk, name, *names[:number])
    found, cut = await desk.lineage(names[-1])
    assert cut
    assert shown(found) == [(1, name) for name in names[:-1]]


@pytest.mark.clause("records.lineage", "records.settle")
async def test_results_of_results_are_descendants(desk: Desk) -> None:
    first = await desk.publish()
    middle = (await desk.settle(ref(await desk.claim_one()), Draft(KIND, {}))).results[0]
    last = (await desk.settle(ref(await desk.claim_one()), Draft(KIND, {}))).results[0]
    assert shown((await desk.lineage(first.id, "descendants"))[0]) == [(1, middle.id), (2, last.id)]
    assert shown((await desk.lineage(last.id))[0]) == [(1, middle.id), (2, first.id)]


@pytest.mark.clause("records.pattern-one-meaning")
async def test_a_query_is_paged_in_both_orders_by_state_and_pattern(desk: Desk) -> None:
    published = [record.id for record in await desk.publish_all([Draft(KIND, {"size": n % 3}) for n in range(20)])]
    held = await desk.claim({"size": 1}, limit=3)
    await desk.settle(ref(held[0]))
    await desk.fail(ref(held[1]), dead=True)

    async def all_of(limit: int, **how: object) -> list[str]:
        found: list[str] = []
        cursor: str | None = None
        while True:
            page = await desk.query(page=PageRequest(limit, cursor), **how)  # type: ignore[arg-type]
            found += [record.id for record in page.items]
            assert len(page.items) <= limit
            if page.next_cursor is None:
                return found
            assert len(page.items) == limit
            cursor = page.next_cursor

    assert await all_of(7) == published
    assert await all_of(10) == published
    assert await all_of(6, order="desc") == published[::-1]
    assert await all_of(2, match={"size": {"$in": [0, 2]}}) == [one for n, one in enumerate(published) if n % 3 != 1]
    assert await all_of(1, state="consumed") == [held[0].record.id]
    assert await all_of(1, state="dead") == [held[1].record.id]
    assert await all_of(1, state="claimed") == [held[2].record.id]
    assert len(await all_of(4, state="ready", order="desc")) == 17


@pytest.mark.clause("records.pattern-one-meaning")
async def test_a_cursor_belongs_to_its_query(desk: Desk) -> None:
    await desk.declare("other", {"size": "number"})
    await desk.publish_all([Draft(KIND, {"size": n}) for n in range(5)])
    cursor = (await desk.query({"size": {"$gte": 0}}, PageRequest(2))).next_cursor
    assert cursor is not None
    page = PageRequest(2, cursor)
    assert len((await desk.query({"size": {"$gte": 0}}, page)).items) == 2
    for wrong in (
        desk.query({"size": {"$gte": 1}}, page),
        desk.query({"size": {"$gte": 0}}, page, state="ready"),
        desk.query({"size": {"$gte": 0}}, page, order="desc"),
        desk.query({"size": {"$gte": 0}}, page, kind="other"),
        desk.query({}, PageRequest(2, "abc")),
        desk.letters(KIND, page),
    ):
        with pytest.raises(CursorMismatch):
            await wrong
    with pytest.raises(KindUnknown):
        await desk.query(kind="nowhere")
    with pytest.raises(RecordUnknown):
        await desk.get("rec_nobody")


@pytest.mark.clause("store.copies")
async def test_what_is_answered_is_the_callers_own(desk: Desk) -> None:
    body = {"to": "a", "deep": {"list": [1]}}
    published = await desk.publish(body)
    published.body["deep"]["list"].append(2)
    body["to"] = "changed"
    read = await desk.get(published.id)
    assert read.body == {"to": "a", "deep": {"list": [1]}}
    read.body["to"] = "changed"
    assert (await desk.get(published.id)).body["to"] == "a"

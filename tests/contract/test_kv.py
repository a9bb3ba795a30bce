"""Small values by namespace and key, on each adapter."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from moorage.history.query import entries
from moorage.idempotency.keys import Key
from moorage.kernel import canonical
from moorage.kernel.errors import (
    CursorMismatch,
    Forbidden,
    IdempotencyConflict,
    IdInvalid,
    KeyConflict,
    KeyUnknown,
    LeaseFenced,
    PayloadTooLarge,
    RecordUnknown,
    RequestInvalid,
    SettlementConflict,
    Unauthenticated,
)
from moorage.kernel.limits import ID_CHARACTERS, KV_CHANGES, KV_VALUE_BYTES, PAGE_BYTES
from moorage.kernel.pages import PageRequest
from moorage.kv import changes, values
from moorage.kv.model import Entry, changes_of
from moorage.records import settle
from moorage.records.model import ClaimRef, Draft, Settlement
from moorage.store.transaction import Transaction
from tests.contract.adapters import Store, dump, sqlite_store
from tests.contract.desk import KIND, Desk, grant, ref

pytestmark = pytest.mark.clause("kv.ops")


@pytest.fixture
def desk(store: Store) -> Desk:
    return Desk(store)


async def put(
    desk: Desk, key: str, value: Any, revision: int | None = None, once: Key | None = None, namespace: str = "ns"
) -> Entry:
    return await values.put(desk.db(), desk.caller, desk.now, namespace, key, value, revision, once)


async def get(desk: Desk, key: str, namespace: str = "ns") -> Any:
    return (await values.get(desk.db(), desk.caller, namespace, key)).value


async def delete(desk: Desk, key: str, revision: int | None = None) -> None:
    await values.delete(desk.db(), desk.caller, desk.now, "ns", key, revision)


async def names(desk: Desk, prefix: str | None = None, limit: int = 50) -> list[str]:
    """The keys of the namespace, over as many pages as it takes."""
    found: list[str] = []
    cursor = None
    while True:
        page = await values.list_keys(desk.db(), desk.caller, "ns", PageRequest(limit, cursor), prefix)
        found += [one.key for one in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return found


async def test_a_value_is_put_read_listed_and_deleted(desk: Desk) -> None:
    tried: list[Any] = [{"a": [1, None, 0.5, "ü"]}, None, False, 0, "", [], 1e20]
    for place, value in enumerate(tried, 1):
        stored = await put(desk, "k", value)
        assert desk.cost.trips == 1
        assert (await get(desk, "k")) == value == stored.value
        assert type(stored.value) is type(value)
        assert (stored.revision, stored.updated_at) == (place, desk.now)
    assert await get(await _other(desk, "elsewhere"), "k", "elsewhere") == "other"
    await delete(desk, "k")
    assert desk.cost.trips == 1
    with pytest.raises(KeyUnknown):
        await get(desk, "k")
    assert await names(desk) == []
    assert await get(desk, "k", "elsewhere") == "other"


async def _other(desk: Desk, namespace: str) -> Desk:
    await put(desk, "k", "other", namespace=namespace)
    return desk


async def test_deleting_what_is_absent_is_fine_and_tells_nothing(desk: Desk) -> None:
    before = await dump(desk.store)
    await delete(desk, "never")
    await delete(desk, "never", 7)
    assert await dump(desk.store) == before


async def test_revisions_grow_on_over_deletion_and_making_anew(desk: Desk) -> None:
    assert (await put(desk, "k", 1, 0)).revision == 1
    with pytest.raises(KeyConflict):
        await put(desk, "k", 2, 0)
    assert (await put(desk, "k", 2, 1)).revision == 2
    with pytest.raises(KeyConflict):
        await put(desk, "k", 3, 1)
    with pytest.raises(KeyConflict):
        await delete(desk, "k", 1)
    await delete(desk, "k", 2)
    await delete(desk, "k", 2)
    for stale in (1, 2, 3):
        with pytest.raises(KeyConflict):
            await put(desk, "k", 3, stale)
    assert (await put(desk, "k", 3, 0)).revision == 4
    with pytest.raises(KeyConflict):
        await delete(desk, "k", 2)
    assert await get(desk, "k") == 3
    told = await entries(desk.store.db(), 0, 10, "kv:ns/k")
    assert [(one.type, one.revision) for one in told] == [("kv.put", 1), ("kv.put", 2), ("kv.deleted", 3), ("kv.put", 4)]
    assert [one.content_sha256 for one in told[:2]] == [canonical.digest("1"), canonical.digest("2")]


async def test_the_same_put_under_a_key_answers_the_first(desk: Desk) -> None:
    once = desk.key("one", "put")
    first = await put(desk, "k", {"n": 1}, 0, once)
    await put(desk, "k", {"n": 2})
    desk.pass_time(5)
    assert await put(desk, "k", {"n": 1}, 0, once) == first
    assert await get(desk, "k") == {"n": 2}
    with pytest.raises(IdempotencyConflict):
        await put(desk, "k", {"n": 3}, 0, desk.key("one", "another"))


async def test_of_puts_at_one_revision_one_wins(desk: Desk) -> None:
    await put(desk, "k", "start")
    tried = await asyncio.gather(*(put(desk, "k", n, 1) for n in range(8)), return_exceptions=True)
    won = [one for one in tried if isinstance(one, Entry)]
    assert len(won) == 1
    assert sum(isinstance(one, KeyConflict) for one in tried) == 7
    assert await get(desk, "k") == won[0].value


async def test_names_are_never_empty_and_bounded(desk: Desk) -> None:
    longest = "k" * int(ID_CHARACTERS)
    await put(desk, longest, 1, namespace=longest)
    for bad in ("", ".", "..", "a/b", "a b", "ü", longest + "k", "a\x00", "a%"):
        with pytest.raises(IdInvalid):
            await put(desk, bad, 1)
        with pytest.raises(IdInvalid):
            await put(desk, "k", 1, namespace=bad)
        with pytest.raises(IdInvalid):
            await get(desk, bad)
        with pytest.raises(IdInvalid):
            await delete(desk, bad)
        with pytest.raises(IdInvalid):
            await values.list_keys(desk.db(), desk.caller, bad, PageRequest())
    assert [one["n"] for one in await desk.store.sql("SELECT count(*) AS n FROM kv")] == [1]


async def test_values_are_copies_of_bounded_size(desk: Desk) -> None:
    value = {"a": [1]}
    stored = await put(desk, "k", value)
    value["a"].append(2)
    stored.value["a"].append(3)
    assert await get(desk, "k") == {"a": [1]}
    fits = "x" * (int(KV_VALUE_BYTES) - 2)
    await put(desk, "k", fits)
    with pytest.raises(PayloadTooLarge):
        await put(desk, "k", fits + "x")
    with pytest.raises(PayloadTooLarge):
        await put(desk, "k", "ü" * (int(KV_VALUE_BYTES) // 2))
    assert await get(desk, "k") == fits


async def test_a_prefix_lists_its_keys_in_order_over_pages(desk: Desk) -> None:
    kept = ["a", "a.", "a.b", "a~", "a~~", "aa", "b", "A", "Z", "_", "-x", "a:1", "a@2"]
    for key in kept:
        await put(desk, key, key)
    await put(desk, "a.elsewhere", 1, namespace="other")
    for prefix in (None, "a", "a.", "a~", "b", "zz", ".", "A"):
        wanted = sorted(key for key in kept if key.startswith(prefix or ""))
        assert await names(desk, prefix) == wanted
        assert await names(desk, prefix, 2) == wanted
    page = await values.list_keys(desk.db(), desk.caller, "ns", PageRequest(1), "a")
    with pytest.raises(CursorMismatch):
        await values.list_keys(desk.db(), desk.caller, "ns", PageRequest(1, page.next_cursor), "b")
    with pytest.raises(CursorMismatch):
        await values.list_keys(desk.db(), desk.caller, "other", PageRequest(1, page.next_cursor), "a")


async def test_a_page_of_large_values_ends_early_and_leaves_none_out(tmp_path: Path) -> None:
    async with sqlite_store(tmp_path) as store:
        await page_of_large_values(Desk(store))


async def page_of_large_values(desk: Desk) -> None:
    """More than a page holds, on the host alone: it takes D1 seconds to write them."""
    large = "x" * (int(KV_VALUE_BYTES) - 2)
    number = int(PAGE_BYTES) // int(KV_VALUE_BYTES) + 5
    for first in range(0, number, 20):
        wished = {"ns": {f"{n:03d}": large for n in range(first, min(first + 20, number))}}
        tx = Transaction(desk.now)
        changes.plan(tx, "root", changes_of(wished))
        await desk.db().commit(tx)
    page = await values.list_keys(desk.db(), desk.caller, "ns", PageRequest(500))
    assert number > len(page.items) >= number - 5
    assert page.next_cursor is not None
    assert await names(desk, limit=500) == [f"{n:03d}" for n in range(number)]


async def test_changes_join_the_transaction_of_what_they_belong_to(desk: Desk) -> None:
    await put(desk, "old", 1)
    many = {f"k{n}": n for n in range(int(KV_CHANGES) - 2)}
    tx = Transaction(desk.now)
    changes.plan(tx, "ann", changes_of({"ns": {**many, "old": None}, "other": {"k": {"deep": [True]}}}))
    tx.require("SELECT 1 WHERE :now < 0", KeyConflict())
    before = await dump(desk.store)
    with pytest.raises(KeyConflict):
        await desk.db().commit(tx)
    assert await dump(desk.store) == before
    tx = Transaction(desk.now)
    changes.plan(tx, "ann", changes_of({"ns": {**many, "old": None}, "other": {"k": {"deep": [True]}}}))
    await desk.db().commit(tx)
    assert await names(desk) == sorted(many)
    assert await get(desk, "k", "other") == {"deep": [True]}
    with pytest.raises(RequestInvalid):
        changes_of({"ns": {**many, "a": 1, "b": 2}, "other": {"k": 1}})


async def test_a_settlement_changes_keys_in_its_transaction(desk: Desk) -> None:
    await desk.declare()
    await put(desk, "draft", "old")
    await desk.publish_all([Draft(KIND, {"to": "a"}), Draft(KIND, {"to": "b"})])
    held, other = ref(await desk.claim_one()), ref(await desk.claim_one())

    async def end(who: Desk, claim: ClaimRef, wished: Mapping[str, Any], key: Key | None = None) -> Settlement:
        result = Draft(KIND, {"to": "c"})
        return await settle.settle(who.db(), who.kinds, who.caller, who.now, claim, [result], key, changes_of(wished))

    wished: dict[str, Any] = {"ns": {"cursor": 7, "draft": None}, "other": {"k": [True]}}
    worker = desk.seen_by(await desk.credential("ann", grant("publish", "claim", kinds=[KIND])))
    before = await dump(desk.store)
    for error, act in (
        (Forbidden, end(worker, held, wished)),
        (LeaseFenced, end(desk, ClaimRef(held.record, 9), wished)),
        (RecordUnknown, end(desk, ClaimRef("never", 1), wished)),
    ):
        with pytest.raises(error):
            await act
    assert await dump(desk.store) == before
    first = await end(desk, held, wished)
    assert desk.cost.trips == 1
    assert [await names(desk), await get(desk, "cursor"), await get(desk, "k", "other")] == [["cursor"], 7, [True]]
    again = await end(desk, held, {"other": {"k": [True]}, "ns": {"draft": None, "cursor": 7}})
    assert again == first
    assert (await values.get(desk.db(), desk.caller, "ns", "cursor")).revision == 1
    for changed in ({}, {"ns": {"cursor": 8}}, {**wished, "more": {"k": 1}}):
        with pytest.raises(SettlementConflict):
            await end(desk, held, changed)
    once = desk.key("one", "settle")
    assert await end(desk, other, {"ns": {"cursor": 8}}, once) == await end(desk, other, {"ns": {"cursor": 8}}, once)
    await put(desk, "cursor", 9)
    await end(desk, other, {"ns": {"cursor": 8}}, once)
    assert await get(desk, "cursor") == 9


async def test_a_namespace_is_granted_as_a_kind_of_its_name(desk: Desk) -> None:
    await put(desk, "k", 1)
    writer = desk.seen_by(await desk.credential("writer", grant("publish", kinds=["ns"])))
    reader = desk.seen_by(await desk.credential("reader", grant("read", kinds=["n*"])))
    narrow = desk.seen_by(await desk.credential("narrow", grant("publish", "read", match={"to": "a"})))
    await put(writer, "k", 2)
    await delete(writer, "other")
    assert await get(reader, "k") == 2
    for who, act in (
        (writer, get(writer, "k")),
        (writer, names(writer)),
        (writer, put(writer, "k", 3, namespace="else")),
        (reader, put(reader, "k", 3)),
        (reader, delete(reader, "k")),
        (narrow, get(narrow, "k")),
        (narrow, names(narrow)),
        (narrow, put(narrow, "k", 3)),
        (narrow, delete(narrow, "k")),
    ):
        with pytest.raises(Forbidden):
            await act
        assert who.caller.credential
    await desk.store.sql("UPDATE credentials SET revoked_at = 1")
    for refused in (put(writer, "k", 3), delete(writer, "k")):
        with pytest.raises(Unauthenticated):
            await refused
    assert await get(desk, "k") == 2

"""Paths added to a kind that has records: filled in for all of them, or refused (clause catalog.kind)."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from moorage.catalog.declare import declare
from moorage.catalog.kinds import Kinds
from moorage.catalog.model import KindDeclaration
from moorage.kernel.errors import KindConflict
from moorage.kernel.limits import KIND_BACKFILL, KIND_BACKFILL_BYTES
from tests.contract.adapters import Store, dump
from tests.contract.declared import NOW, ROOT, Interrupted, publish, put

pytestmark = pytest.mark.clause("catalog.kind")


async def slot(store: Store, number: int) -> list[Any]:
    """What a slot holds, record by record."""
    return [row["value"] for row in await store.sql(f"SELECT s{number} AS value FROM records ORDER BY seq")]  # noqa: S608


async def test_a_new_path_is_filled_in_for_the_records_that_are_there(store: Store) -> None:
    await put(store, "doc", paths={"old": "any"})
    bodies: list[Any] = [
        {"v": "text"}, {"v": 7}, {"v": 0.5}, {"v": 1e20}, {"v": True}, {"v": None}, {}, {"v": [1, "a"]}, {"v": {"k": 1}},
        {"v": "'; --"}, {"v": 2**53 - 1}, {"x": {"v": 1}},
    ]  # fmt: skip
    await publish(store, "doc", *bodies)
    await publish(store, "other", {"v": "not mine"}, first=100)
    await put(store, "doc", paths={"old": "any", "v": "any"})
    values = await slot(store, 2)
    assert values[:7] == ["stext", 7, 0.5, 1e20, "b1", "n", None]
    assert values[9:] == ["s'; --", 2**53 - 1, None, None]
    types = await store.sql("SELECT typeof(s2) AS type FROM records ORDER BY seq LIMIT 4")
    assert [row["type"] for row in types] == ["text", "integer", "real", "real"]
    assert values[7] is not None
    assert values[8] == 'o{"k":1}'


async def test_a_record_that_does_not_fit_a_new_path_refuses_it_and_changes_nothing(store: Store) -> None:
    await put(store, "doc", paths={"a": "any"})
    await publish(store, "doc", {"v": 1}, {"v": "one"}, {"v": None})
    before = await dump(store)
    with pytest.raises(KindConflict, match="record rec_2 does not fit") as caught:
        await put(store, "doc", paths={"a": "any", "v": "number"})
    assert caught.value.errors is not None
    assert caught.value.errors[0]["pointer"] == "/v"
    assert await dump(store) == before
    await put(store, "doc", paths={"a": "any", "w": "number"})


@pytest.mark.clause("kernel.limits")
async def test_a_path_is_added_to_the_limit_of_records_and_to_no_more(store: Store) -> None:
    await put(store, "doc")
    await publish(store, "doc", *({"n": number} for number in range(KIND_BACKFILL)))
    await put(store, "doc", paths={"n": "number"})
    assert await slot(store, 1) == list(range(KIND_BACKFILL))
    await publish(store, "doc", {}, first=KIND_BACKFILL + 1)
    with pytest.raises(KindConflict, match=f"more than {KIND_BACKFILL} records"):
        await put(store, "doc", paths={"n": "number", "m": "number"})
    assert (await put(store, "doc", paths={"n": "number"}, retention_seconds=9)).revision == 3


@pytest.mark.clause("kernel.limits")
async def test_a_path_is_not_added_past_the_limit_of_bytes(store: Store) -> None:
    await put(store, "doc")
    for number in range(8):
        await publish(store, "doc", {"x": "é" * (KIND_BACKFILL_BYTES // 16 - 4)}, first=number + 1)
    held = await store.sql("SELECT sum(length(CAST(body AS BLOB))) AS bytes FROM records")
    assert held[0]["bytes"] == KIND_BACKFILL_BYTES
    await put(store, "doc", paths={"n": "number"})
    await publish(store, "doc", {}, first=9)
    with pytest.raises(KindConflict, match=f"pass {KIND_BACKFILL_BYTES} bytes"):
        await put(store, "doc", paths={"n": "number", "m": "number"})


async def test_long_values_are_filled_in_by_several_statements_of_one_transaction(store: Store) -> None:
    await put(store, "doc")
    texts = [str(number).ljust(2000, "é") for number in range(600)]  # more than one bound value may have
    for first in (0, 300):
        await publish(store, "doc", *({"t": text} for text in texts[first : first + 300]), first=first + 1)
    await put(store, "doc", paths={"t": "string"})
    assert await slot(store, 1) == [f"s{text}" for text in texts]


async def test_a_record_published_meanwhile_is_filled_in_too(store: Store) -> None:
    await put(store, "doc")
    await publish(store, "doc", {"v": 1})
    db = Interrupted(store.db(), [lambda: publish(store, "doc", {"v": 2}, first=2)])
    declared = KindDeclaration.model_validate({"paths": {"v": "number"}})
    await declare(db, ROOT, NOW, Kinds(), "doc", declared)
    assert db.commits == 2
    assert await slot(store, 1) == [1, 2]


@pytest.mark.parametrize("before", [{}, {"a": "any"}])
async def test_a_declaration_made_meanwhile_keeps_its_slots(store: Store, before: dict[str, str]) -> None:
    if before:
        await put(store, "doc", paths=before)
    db = Interrupted(store.db(), [lambda: put(store, "doc", paths={**before, "c": "any"})])
    declared = KindDeclaration.model_validate({"paths": {**before, "b": "any", "c": "any"}})
    kind = await declare(db, ROOT, NOW, Kinds(), "doc", declared)
    assert list(kind.paths) == [*before, "c", "b"]
    assert [path.slot for path in kind.paths.values()] == list(range(1, len(before) + 3))
    assert kind.revision == len(before) + 2


async def test_a_kind_that_never_rests_is_refused_after_a_few_tries(store: Store) -> None:
    await put(store, "doc")
    await publish(store, "doc", {"v": 0})

    def another(number: int) -> Callable[[], Awaitable[object]]:
        return lambda: publish(store, "doc", {"v": number}, first=number)

    db = Interrupted(store.db(), [another(number) for number in range(2, 100)])
    with pytest.raises(KindConflict, match="at this moment; try again"):
        await declare(db, ROOT, NOW, Kinds(), "doc", KindDeclaration.model_validate({"paths": {"v": "number"}}))
    assert db.commits < 20
    assert (await Kinds().get(store.db(), NOW, "doc")).revision == 1

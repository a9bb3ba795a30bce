"""Kinds on every adapter: additive or refused, and old records are found by new paths (clause catalog.kind)."""

import asyncio
import json

import pytest

from moorage.catalog.access import Caller
from moorage.catalog.kinds import Kind, Kinds
from moorage.catalog.revisions import KindChanged
from moorage.history.query import entries
from moorage.kernel.errors import Forbidden, IdInvalid, KindConflict, KindUnknown, RequestInvalid, Unauthenticated
from moorage.kernel.instants import Instant
from moorage.kernel.limits import KIND_CACHE_SECONDS, KIND_PATHS
from moorage.kernel.pages import PageRequest
from moorage.store.transaction import Transaction
from tests.contract.adapters import Store, dump
from tests.contract.declared import NOW, ROOT, caller, put

pytestmark = pytest.mark.clause("catalog.kind")


async def told(store: Store, kind: str) -> list[str]:
    """What history tells of a kind."""
    return [entry.type for entry in await entries(store.db(), 0, 100, f"kind:{kind}")]


# --- declaring ------------------------------------------------------------------------------------------------------


async def test_a_kind_is_declared_with_documented_defaults(store: Store) -> None:
    kind = await put(store, "doc", paths={"type": "string", "size": "number", "tags": "string[]"})
    assert kind.answer() == {
        "kind": "doc",
        "revision": 1,
        "paths": {"type": "string", "size": "number", "tags": "string[]"},
        "claim": {
            "lease_seconds": 30,
            "max_attempts": 5,
            "retry": {"delay_seconds": 1, "factor": 2, "max_delay_seconds": 300},
            "concurrency": None,
            "depth_limit": None,
            "ttl_seconds": None,
            "rate": None,
        },
        "schema": None,
        "retention_seconds": None,
        "created_at": "2027-01-15T08:00:00.000Z",
        "updated_at": "2027-01-15T08:00:00.000Z",
        "created_by": "root",
    }
    assert [path.slot for path in kind.paths.values()] == [1, 2, 3]
    assert await Kinds().get(store.db(), NOW, "doc") == kind
    rows = await store.sql("SELECT retry_delays FROM kinds")
    assert json.loads(rows[0]["retry_delays"]) == [1000, 2000, 4000, 8000, 16000]


async def test_an_equal_declaration_changes_nothing_and_writes_no_history(store: Store) -> None:
    first = await put(store, "doc", paths={"b": "string", "a": "any"}, claim={"retry": {"factor": 3}})
    before = await dump(store)
    again = await put(store, "doc", now=NOW + 1, paths={"a": "any", "b": "string"}, claim={"retry": {"factor": 3.0}})
    assert again == first
    assert await dump(store) == before
    assert await told(store, "doc") == ["kind.declared"]


async def test_new_paths_take_the_next_slots_and_old_ones_keep_theirs(store: Store) -> None:
    await put(store, "doc", paths={"m": "string", "a": "string"})
    kind = await put(store, "doc", now=NOW + 1, paths={"z": "number", "a": "string", "m": "string"})
    assert {text: path.slot for text, path in kind.paths.items()} == {"m": 1, "a": 2, "z": 3}
    assert (kind.revision, kind.created_at, kind.updated_at) == (2, NOW, NOW + 1)
    assert await told(store, "doc") == ["kind.declared", "kind.declared"]


async def test_claim_policy_and_retention_may_change_either_way(store: Store) -> None:
    await put(store, "doc", claim={"lease_seconds": 60, "max_attempts": 3}, retention_seconds=100)
    kind = await put(store, "doc", claim={"max_attempts": 9})
    assert (kind.revision, kind.lease_seconds, kind.max_attempts, kind.retention_seconds) == (2, 30, 9, 100)
    rows = await store.sql("SELECT retry_delays FROM kinds")
    assert len(json.loads(rows[0]["retry_delays"])) == 9
    kind = await put(store, "doc", retention_seconds=None)
    assert (kind.revision, kind.max_attempts, kind.retention_seconds) == (3, 9, None)


async def test_adding_a_path_leaves_the_policy_as_it_stands(store: Store) -> None:
    await put(store, "doc", claim={"lease_seconds": 60, "max_attempts": 3}, retention_seconds=100)
    kind = await put(store, "doc", paths={"a": "string"})
    assert (kind.lease_seconds, kind.max_attempts, kind.retention_seconds) == (60, 3, 100)


@pytest.mark.parametrize(
    ("paths", "reason"),
    [
        ({}, "'a' is declared and may not go"),
        ({"b": "string"}, "'a' is declared and may not go"),
        ({"a": "number"}, "'a' is declared string and may not become number"),
        ({"a": "any"}, "'a' is declared string and may not become any"),
        ({"A": "string"}, "'a' is declared and may not go"),
    ],
)
async def test_a_path_neither_goes_nor_changes_its_type(store: Store, paths: dict[str, str], reason: str) -> None:
    await put(store, "doc", paths={"a": "string"})
    before = await dump(store)
    with pytest.raises(KindConflict, match=reason):
        await put(store, "doc", paths=paths)
    assert await dump(store) == before


async def test_a_kind_has_at_most_its_limit_of_paths_over_all_declarations(store: Store) -> None:
    most = {f"p{number}": "any" for number in range(KIND_PATHS)}
    first = dict(list(most.items())[:10])
    await put(store, "doc", paths=first)
    with pytest.raises(RequestInvalid):
        await put(store, "doc", paths={**most, "more": "any"})
    kind = await put(store, "doc", paths=most)
    assert sorted(path.slot for path in kind.paths.values()) == list(range(1, KIND_PATHS + 1))


async def test_odd_paths_are_kept_as_they_were_said(store: Store) -> None:
    odd = {"a'b": "any", 'a"b': "any", "a\\.b": "any", "": "any", "é": "any", "*": "any", "a\\\\b": "any", "$": "any"}
    await put(store, "odd", paths=odd)
    kind = await Kinds().get(store.db(), NOW, "odd")
    assert {text: path.type for text, path in kind.paths.items()} == odd
    assert kind.paths["a\\.b"].segments == ("a.b",)


async def test_names_of_the_runtime_and_malformed_ones_are_refused(store: Store) -> None:
    for name in ("_interest", "", "Doc", "1st", "a/b", "a b", "é", "a" * 101):
        with pytest.raises(IdInvalid):
            await put(store, name)
    assert (await put(store, "a" * 100)).revision == 1


@pytest.mark.clause("catalog.grants")
async def test_only_an_admin_of_the_kind_declares_it(store: Store) -> None:
    before = await dump(store)
    for by in (caller("publish", "operate"), caller("admin", kinds=("mail", "documents*"))):
        with pytest.raises(Forbidden):
            await put(store, "doc", by)
    with pytest.raises(Unauthenticated):
        await put(store, "doc", caller("admin", credential="crd_revoked"))
    assert await dump(store) == before


@pytest.mark.clause("catalog.kind", "store.atomic")
async def test_of_many_that_declare_at_once_every_addition_that_is_accepted_is_kept(store: Store) -> None:
    await put(store, "doc", paths={"a": "any"})
    outcomes = await asyncio.gather(
        *(put(store, "doc", paths={"a": "any", f"p{number}": "any"}) for number in range(5)), return_exceptions=True
    )
    won = [outcome for outcome in outcomes if isinstance(outcome, Kind)]
    assert len(won) == 1
    assert all(isinstance(outcome, KindConflict) for outcome in outcomes if outcome not in won)
    assert await Kinds().get(store.db(), NOW, "doc") == won[0]
    assert len(await told(store, "doc")) == won[0].revision == 2


# --- reading --------------------------------------------------------------------------------------------------------


async def test_a_kind_is_read_from_the_cache_for_its_seconds_and_then_again(store: Store) -> None:
    kinds, age = Kinds(), int(KIND_CACHE_SECONDS) * 1000
    await put(store, "doc")
    first = await kinds.get(store.db(), NOW, "doc")
    await put(store, "doc", paths={"a": "any"})
    db = store.db()
    assert await kinds.get(db, Instant(NOW + age - 1), "doc") == first
    assert db.cost.trips == 0
    assert (await kinds.get(store.db(), Instant(NOW + age), "doc")).revision == 2
    assert (await Kinds().get(store.db(), NOW, "doc", fresh=True)).revision == 2


async def test_fresh_reads_past_the_cache_and_a_clock_set_back_trusts_nothing(store: Store) -> None:
    kinds = Kinds()
    await put(store, "doc", kinds=kinds)
    await put(store, "doc", paths={"a": "any"})
    assert (await kinds.get(store.db(), NOW, "doc")).revision == 1
    assert (await kinds.get(store.db(), Instant(NOW - 1), "doc")).revision == 2
    await put(store, "doc", paths={"a": "any", "b": "any"})
    assert (await kinds.get(store.db(), NOW, "doc", fresh=True)).revision == 3


async def test_absence_is_never_remembered(store: Store) -> None:
    kinds = Kinds()
    with pytest.raises(KindUnknown):
        await kinds.get(store.db(), NOW, "doc")
    await put(store, "doc")
    assert (await kinds.get(store.db(), NOW, "doc")).revision == 1


async def test_a_plan_made_with_an_old_declaration_does_not_commit(store: Store) -> None:
    old = await put(store, "doc")
    new = await put(store, "doc", paths={"a": "any"})
    for kind, stands in ((old, False), (new, True)):
        tx = Transaction(NOW)
        kind.guard(tx)
        if stands:
            await store.db().commit(tx)
        else:
            with pytest.raises(KindChanged):
                await store.db().commit(tx)


@pytest.mark.clause("store.copies")
async def test_a_kind_from_the_cache_cannot_be_changed(store: Store) -> None:
    kinds = Kinds()
    kind = await put(store, "doc", kinds=kinds, paths={"a": "any"})
    with pytest.raises(TypeError):
        kind.paths["b"] = kind.paths["a"]  # type: ignore[index]
    assert list((await kinds.get(store.db(), NOW, "doc")).paths) == ["a"]


@pytest.mark.clause("catalog.grants")
async def test_kinds_that_no_grant_names_are_not_seen(store: Store) -> None:
    for name in ("doc", "doc.pdf", "docs", "mail"):
        await put(store, name)
    seen = {
        (): ["doc", "doc.pdf", "docs", "mail"],
        ("doc",): ["doc"],
        ("doc.*", "mail"): ["doc.pdf", "mail"],
        ("d*", "doc"): ["doc", "doc.pdf", "docs"],
        ("x*",): [],
    }
    for names, expected in seen.items():
        someone = caller("watch", kinds=names)
        page = await Kinds().list_kinds(store.db(), someone, PageRequest())
        assert [kind.name for kind in page.items] == expected
        for name in ("doc", "doc.pdf", "docs", "mail"):
            if name in expected:
                assert (await Kinds().show(store.db(), someone, NOW, name)).name == name
            else:
                with pytest.raises(KindUnknown):
                    await Kinds().show(store.db(), someone, NOW, name)
    nobody = Caller("nobody", (), "crd_none")
    assert (await Kinds().list_kinds(store.db(), nobody, PageRequest())).items == []


async def test_kinds_are_listed_by_name_page_by_page(store: Store) -> None:
    names = sorted(f"k{number}" for number in range(12))
    for name in names:
        await put(store, name)
    found: list[str] = []
    cursor: str | None = None
    for expected in (5, 5, 2):
        page = await Kinds().list_kinds(store.db(), ROOT, PageRequest(5, cursor))
        assert len(page.items) == expected
        found += [kind.name for kind in page.items]
        cursor = page.next_cursor
    assert cursor is None
    assert found == names

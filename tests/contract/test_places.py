"""Destinations and scopes on every adapter (clauses catalog.destinations, catalog.scopes)."""

import asyncio
from typing import Any

import pytest

from moorage.catalog import destinations, scopes
from moorage.catalog.access import Caller, Grant
from moorage.catalog.destinations import Destination
from moorage.catalog.model import DestinationDeclaration, ScopeDeclaration
from moorage.catalog.scopes import Scope
from moorage.history.query import entries
from moorage.kernel import canonical
from moorage.kernel.errors import (
    DestinationUnknown,
    Forbidden,
    IdInvalid,
    RequestInvalid,
    ScopeConflict,
    ScopeUnknown,
    Unauthenticated,
)
from moorage.kernel.instants import Instant
from moorage.kernel.limits import CONFIG_BYTES
from moorage.kernel.pages import PageRequest
from tests.contract.adapters import Store, dump
from tests.contract.declared import NOW, ROOT

OPERATOR = Caller("op", (Grant(frozenset({"operate"})),), "crd_none")
TEAM = Caller("team", (Grant(frozenset({"admin"}), ("doc",)),), "crd_none")
REVOKED = Caller("x", (Grant(frozenset({"admin"})),), "crd_revoked")


async def send_to(store: Store, name: str = "mail", now: int = NOW, by: Caller = ROOT, **said: Any) -> Destination:
    """Declare a destination as a client would say it."""
    declaration = DestinationDeclaration.model_validate({"url": "https://example.test/in", **said})
    return await destinations.put(store.db(), by, Instant(now), name, declaration)


async def scope(
    store: Store, name: str, parent: str | None = None, now: int = NOW, by: Caller = ROOT, **config: Any
) -> Scope:
    """Declare a scope as a client would say it."""
    declaration = ScopeDeclaration.model_validate({"parent": parent, "config": config})
    return await scopes.put(store.db(), by, Instant(now), name, declaration)


# --- destinations ---------------------------------------------------------------------------------------------------


@pytest.mark.clause("catalog.destinations")
async def test_a_destination_is_declared_whole_and_declared_again(store: Store) -> None:
    first = await send_to(store)
    assert first.answer() == {
        "name": "mail",
        "url": "https://example.test/in",
        "methods": ["POST"],
        "secret": None,
        "dedup_window_seconds": None,
        "publication": False,
        "delivery": {"concurrency": 4, "ordered": False, "max_attempts": 24, "timeout_seconds": 15},
        "created_at": "2027-01-15T08:00:00.000Z",
        "updated_at": "2027-01-15T08:00:00.000Z",
    }
    said: dict[str, Any] = {
        "methods": ["PUT", "GET", "PUT"],
        "secret": "env:MAIL",
        "dedup_window_seconds": 86400,
        "publication": True,
    }
    second = await send_to(store, now=NOW + 1, **said)
    assert (second.methods, second.secret, second.dedup_window_seconds) == (("GET", "PUT"), "env:MAIL", 86400)
    assert (second.publication, second.created_at, second.updated_at) == (True, NOW, NOW + 1)
    assert await destinations.show(store.db(), OPERATOR, "mail") == second
    told = await entries(store.db(), 0, 10, "destination:mail")
    assert [(entry.type, entry.revision) for entry in told] == [
        ("destination.declared", 1),
        ("destination.declared", 2),
    ]


@pytest.mark.clause("catalog.destinations", "catalog.credentials")
@pytest.mark.parametrize(
    "said",
    [
        {"url": "https://user:hush-1@example.test/"},
        {"url": "https://example.test/?token=hush-1"},
        {"url": "http://example.test/hush-1"},
        {"url": "https://10.0.0.1/hush-1"},
        {"secret": "hush-1"},
        {"secret": "env:hush-1"},
        {"secret": "env:MOORAGE_ROOT_TOKEN"},
        {"secret": "env:MOORAGE_DERIVATION_KEYS"},
        {"secret": "env:OTEL_EXPORTER_OTLP_HEADERS"},
        {"secret": ""},
    ],
)
async def test_urls_with_credentials_and_literal_secrets_are_refused_and_not_repeated(
    store: Store, said: dict[str, Any]
) -> None:
    before = await dump(store)
    with pytest.raises(RequestInvalid) as caught:
        await send_to(store, **said)
    assert "hush-1" not in str(caught.value.problem())
    assert await dump(store) == before


@pytest.mark.clause("catalog.destinations")
async def test_only_admins_declare_destinations_and_operators_see_them(store: Store) -> None:
    await send_to(store)
    before = await dump(store)
    for by in (OPERATOR, TEAM):
        with pytest.raises(Forbidden):
            await send_to(store, by=by)
    with pytest.raises(Unauthenticated):
        await send_to(store, by=REVOKED)
    with pytest.raises(Forbidden):
        await destinations.show(store.db(), TEAM, "mail")
    with pytest.raises(Forbidden):
        await destinations.list_destinations(store.db(), TEAM, PageRequest())
    with pytest.raises(DestinationUnknown):
        await destinations.show(store.db(), ROOT, "other")
    assert await dump(store) == before


@pytest.mark.clause("catalog.destinations")
async def test_destinations_are_listed_by_name_page_by_page(store: Store) -> None:
    for name in ("c", "a", "b"):
        await send_to(store, name)
    first = await destinations.list_destinations(store.db(), OPERATOR, PageRequest(2))
    rest = await destinations.list_destinations(store.db(), OPERATOR, PageRequest(2, first.next_cursor))
    assert [found.name for found in first.items + rest.items] == ["a", "b", "c"]
    assert rest.next_cursor is None
    with pytest.raises(IdInvalid):
        await send_to(store, "a/b")


# --- scopes ---------------------------------------------------------------------------------------------------------


@pytest.mark.clause("catalog.scopes")
async def test_a_scope_keeps_its_parent_and_its_opaque_config(store: Store) -> None:
    await scope(store, "org")
    config: dict[str, Any] = {"secret": "env:TEAM_KEY", "nested": [{"é": 1.5, "n": None}], "big": 1e20}
    made = await scope(store, "org:team", "org", **config)
    assert made.answer() == {
        "id": "org:team",
        "parent": "org",
        "config": config,
        "created_at": "2027-01-15T08:00:00.000Z",
        "updated_at": "2027-01-15T08:00:00.000Z",
    }
    assert await scopes.show(store.db(), OPERATOR, "org:team") == made
    moved = await scope(store, "org:team", now=NOW + 1)
    assert (moved.parent, moved.config, moved.created_at, moved.updated_at) == (None, {}, NOW, NOW + 1)


@pytest.mark.clause("catalog.scopes")
async def test_history_tells_the_tree_and_a_digest_of_the_config(store: Store) -> None:
    await scope(store, "org", hush="hush-1")
    told = await entries(store.db(), 0, 10, "scope:org")
    assert [(entry.type, entry.data) for entry in told] == [("scope.declared", {"parent": None})]
    assert told[0].content_sha256 == canonical.digest('{"hush":"hush-1"}')


@pytest.mark.clause("catalog.scopes")
async def test_a_parent_must_exist(store: Store) -> None:
    await scope(store, "org")
    before = await dump(store)
    for parent in ("none", "", "ORG", "' OR 1=1 --"):
        with pytest.raises(ScopeConflict, match="does not exist"):
            await scope(store, "team", parent)
    assert await dump(store) == before


@pytest.mark.clause("catalog.scopes")
async def test_no_declaration_makes_a_cycle_of_any_length(store: Store) -> None:
    chain = [f"s{number}" for number in range(40)]
    for below, above in zip(chain, [None, *chain], strict=False):
        await scope(store, below, above)
    before = await dump(store)
    for parent in ("s0", "s1", "s20", "s39"):
        with pytest.raises(ScopeConflict, match="itself or one below it"):
            await scope(store, "s0", parent)
    with pytest.raises(ScopeConflict, match="itself or one below it"):
        await scope(store, "new", "new")
    assert await dump(store) == before
    assert (await scope(store, "s39", "s0")).parent == "s0"
    assert (await scope(store, "s0", None)).parent is None


@pytest.mark.clause("catalog.scopes", "store.atomic")
async def test_two_that_would_be_each_others_parent_at_once_make_no_cycle(store: Store) -> None:
    await scope(store, "a")
    await scope(store, "b")
    outcomes = await asyncio.gather(scope(store, "a", "b"), scope(store, "b", "a"), return_exceptions=True)
    assert sum(isinstance(outcome, Scope) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, ScopeConflict) for outcome in outcomes) == 1


@pytest.mark.clause("catalog.scopes", "kernel.limits")
async def test_config_is_bounded_and_its_references_are_well_formed(store: Store) -> None:
    room = int(CONFIG_BYTES) - len('{"a":""}')
    assert (await scope(store, "org", a="x" * room)).config == {"a": "x" * room}
    with pytest.raises(RequestInvalid) as caught:
        await scope(store, "org", a="x" * (room + 1))
    assert caught.value.errors is not None
    assert caught.value.errors[0]["pointer"] == "/config"
    for reference in ("env:lower", "env:", "env:MOORAGE_ROOT_TOKEN"):
        with pytest.raises(RequestInvalid) as caught:
            await scope(store, "org", a=[{"b/c": reference}])
        assert caught.value.errors is not None
        assert caught.value.errors[0]["pointer"] == "/config/a/0/b~1c"


@pytest.mark.clause("catalog.scopes")
async def test_only_admins_declare_scopes_and_operators_see_them(store: Store) -> None:
    await scope(store, "org")
    before = await dump(store)
    for by in (OPERATOR, TEAM):
        with pytest.raises(Forbidden):
            await scope(store, "org", by=by)
    with pytest.raises(Unauthenticated):
        await scope(store, "org", by=REVOKED)
    with pytest.raises(Forbidden):
        await scopes.show(store.db(), TEAM, "org")
    with pytest.raises(ScopeUnknown):
        await scopes.show(store.db(), ROOT, "none")
    assert await dump(store) == before


@pytest.mark.clause("catalog.scopes")
async def test_scopes_are_listed_by_id_page_by_page(store: Store) -> None:
    for name in ("c", "a", "b"):
        await scope(store, name)
    first = await scopes.list_scopes(store.db(), OPERATOR, PageRequest(2))
    rest = await scopes.list_scopes(store.db(), OPERATOR, PageRequest(2, first.next_cursor))
    assert [found.id for found in first.items + rest.items] == ["a", "b", "c"]
    assert rest.next_cursor is None
    with pytest.raises(IdInvalid):
        await scope(store, "a/b")


@pytest.mark.clause("store.copies")
async def test_a_scopes_config_is_a_copy(store: Store) -> None:
    await scope(store, "org", items=[1])
    first = await scopes.show(store.db(), ROOT, "org")
    first.config["items"].append(2)
    assert (await scopes.show(store.db(), ROOT, "org")).config == {"items": [1]}

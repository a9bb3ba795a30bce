"""Webhook senders on every adapter: secrets go in, verification reads them, nobody else does (clause awake.senders)."""

import hashlib
import hmac
import json
from typing import Any, get_args

import pytest

from moorage.catalog import scopes, senders
from moorage.catalog.access import ACTIONS, Caller, Grant
from moorage.catalog.model import Scheme, ScopeDeclaration, SenderDeclaration
from moorage.catalog.senders import Sender, SenderCaller
from moorage.history.append import Event, append
from moorage.history.query import entries
from moorage.kernel.errors import Forbidden, IdInvalid, RequestInvalid, ScopeUnknown, SenderUnknown, Unauthenticated
from moorage.kernel.instants import Instant
from moorage.kernel.pages import PageRequest
from moorage.store.transaction import Transaction
from tests.contract.adapters import Store, dump
from tests.contract.declared import NOW, ROOT

BOUND = {"HOOK_SECRET": "bound-secret-1", "OTHER": "bound-secret-2"}
RAW = b'{"b": 1,  "a":2}'

pytestmark = pytest.mark.clause("awake.senders")


async def put(store: Store, name: str = "github-main", now: int = NOW, by: Caller = ROOT, **said: Any) -> Sender:
    """Declare a sender as a client would say it."""
    whole = {"scheme": "github", "secrets": ["case-secret-1"], "subject": "github", **said}
    declaration = SenderDeclaration.model_validate(whole)
    return await senders.put(store.db(), by, Instant(now), name, declaration, BOUND.get)


def delivery(secret: str, raw: bytes = RAW) -> dict[str, str]:
    """The headers of a GitHub delivery signed with a secret."""
    return {"X-Hub-Signature-256": "sha256=" + hmac.new(secret.encode(), raw, hashlib.sha256).hexdigest()}


async def admit(
    store: Store, headers: dict[str, str], name: str = "github-main", raw: bytes = RAW, bound: dict[str, str] = BOUND
) -> SenderCaller:
    """A delivery comes in."""
    verification = await senders.verification(store.db(), name, bound.get)
    return verification.admit(headers, raw, NOW)


async def act(store: Store, caller: Caller) -> None:
    """A mutation by a caller."""
    tx = Transaction(NOW)
    caller.guard(tx)
    append(tx, caller.subject, Event("thing", "thing.done"))
    await store.db().commit(tx)


async def test_a_signed_delivery_is_its_senders_subject_and_nothing_more(store: Store) -> None:
    await put(store)
    caller = await admit(store, delivery("case-secret-1"))
    assert (caller.subject, caller.is_root, caller.credential) == ("github", False, None)
    for action in ACTIONS:
        assert not caller.may(action)
        assert not caller.may(action, "doc")
    assert not caller.may_somewhere(["resume"])
    assert caller.narrowing("read", "doc") == []
    await act(store, caller)
    assert len(await entries(store.db(), 0, 10, "thing")) == 1


async def test_verification_costs_one_trip_and_reads_nothing_but_the_sender(store: Store) -> None:
    await put(store)
    db = store.db()
    before = await dump(store)
    verification = await senders.verification(db, "github-main", BOUND.get)
    with pytest.raises(Unauthenticated):
        verification.admit(delivery("wrong"), RAW, NOW)
    assert db.cost.trips == 1
    assert await dump(store) == before


async def test_an_unknown_sender_is_refused_like_a_bad_signature(store: Store) -> None:
    await put(store)
    said = []
    for name, headers in (("nobody", delivery("case-secret-1")), ("github-main", delivery("wrong")), ("github-main", {})):
        with pytest.raises(Unauthenticated) as caught:
            await admit(store, headers, name)
        said.append(caught.value.problem())
    assert said[0] == said[1] == said[2]


async def test_a_key_is_rotated_by_declaring_both_and_then_the_new_one(store: Store) -> None:
    await put(store, secrets=["old"])
    both = await put(store, secrets=["new", "old"], now=NOW + 1)
    assert (both.secrets, both.created_at, both.updated_at) == (2, NOW, NOW + 1)
    for secret in ("old", "new"):
        await admit(store, delivery(secret))
    assert (await put(store, secrets=["new"])).secrets == 1
    with pytest.raises(Unauthenticated):
        await admit(store, delivery("old"))
    await admit(store, delivery("new"))


async def test_a_delivery_verified_before_a_new_declaration_writes_nothing(store: Store) -> None:
    await put(store)
    caller = await admit(store, delivery("case-secret-1"))
    await put(store, secrets=["new"])  # in the same millisecond
    with pytest.raises(Unauthenticated):
        await act(store, caller)
    fresh = await admit(store, delivery("new"))
    await senders.delete(store.db(), ROOT, NOW, "github-main")
    with pytest.raises(Unauthenticated):
        await act(store, fresh)
    assert await entries(store.db(), 0, 10, "thing") == []


async def test_a_secret_may_be_the_name_of_a_binding(store: Store) -> None:
    await put(store, secrets=["env:HOOK_SECRET"])
    await admit(store, delivery("bound-secret-1"))
    for refused in (delivery("env:HOOK_SECRET"), delivery("bound-secret-2"), delivery("")):
        with pytest.raises(Unauthenticated):
            await admit(store, refused)
    assert "bound-secret-1" not in json.dumps(await dump(store))
    for gone in ({}, {"HOOK_SECRET": ""}):
        with pytest.raises(Unauthenticated):
            await admit(store, delivery(""), bound=gone)


@pytest.mark.parametrize(
    ("scheme", "secret"),
    [
        ("github", "env:MISSING"),
        ("github", "env:MOORAGE_ROOT_TOKEN"),
        ("github", "env:lower"),
        ("github", "env:"),
        ("github", ""),
        ("github", "é"),
        ("github", "a\nb"),
        ("github", "x" * 1025),
        ("standard", "not base64!"),
        ("standard", "whsec_"),
        ("standard", "env:HOOK_SECRET"),
        ("bearer", "two words"),
        ("bearer", "x" * 513),
    ],
)
async def test_a_secret_that_the_scheme_cannot_use_is_refused_and_not_repeated(
    store: Store, scheme: str, secret: str
) -> None:
    before = await dump(store)
    with pytest.raises(RequestInvalid) as caught:
        await put(store, scheme=scheme, secrets=["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", secret])
    assert caught.value.errors is not None
    assert caught.value.errors[0]["pointer"] == "/secrets/1"
    assert secret in ("", "env:", "whsec_") or secret not in str(caught.value.problem())
    assert await dump(store) == before


@pytest.mark.clause("catalog.credentials")
async def test_bearer_tokens_are_kept_as_hashes(store: Store) -> None:
    await put(store, scheme="bearer", secrets=["tok-literal-1", "env:HOOK_SECRET"])
    for token in ("tok-literal-1", "bound-secret-1"):
        caller = await admit(store, {"Authorization": f"Bearer {token}"})
        assert caller.subject == "github"
    digest = hashlib.sha256(b"tok-literal-1").hexdigest()
    with pytest.raises(Unauthenticated):
        await admit(store, {"Authorization": f"Bearer {digest}"})
    kept = json.dumps(await dump(store))
    assert "tok-literal-1" not in kept
    assert kept.count(digest) == 1


@pytest.mark.clause("catalog.credentials")
async def test_a_signing_secret_stands_in_its_table_and_nowhere_else(store: Store) -> None:
    shown = await put(store)
    page = await senders.list_senders(store.db(), ROOT, PageRequest())
    told = await entries(store.db(), 0, 10, "sender:github-main")
    assert shown.answer() == {
        "name": "github-main",
        "scheme": "github",
        "subject": "github",
        "tolerance_seconds": 300,
        "secrets": 1,
        "event": None,
        "created_at": "2027-01-15T08:00:00.000Z",
        "updated_at": "2027-01-15T08:00:00.000Z",
    }
    assert page.items == [shown] == [await senders.show(store.db(), ROOT, "github-main")]
    assert [entry.type for entry in told] == ["sender.declared"]
    kept = await dump(store)
    assert kept.pop("sender_secrets") == [{"sender": "github-main", "ordinal": 0, "secret": "case-secret-1"}]
    assert "case-secret-1" not in json.dumps(kept)


async def test_a_deleted_sender_is_gone_with_its_secrets(store: Store) -> None:
    await put(store)
    await senders.delete(store.db(), ROOT, NOW, "github-main")
    assert await store.sql("SELECT * FROM sender_secrets") == []
    for gone in (senders.show(store.db(), ROOT, "github-main"), senders.delete(store.db(), ROOT, NOW, "github-main")):
        with pytest.raises(SenderUnknown):
            await gone
    assert [entry.type for entry in await entries(store.db(), 0, 10)] == ["sender.declared", "sender.deleted"]


@pytest.mark.clause("inbox.accept")
async def test_a_sender_says_how_its_webhooks_become_events_until_it_is_declared_anew(store: Store) -> None:
    await scopes.put(store.db(), ROOT, NOW, "shop", ScopeDeclaration())
    told = {"id": "header:X-Id", "type": "/kind", "keys": ["/order/id", "/a~1b"], "scope": "shop"}
    for event, shown in (
        (told, told),
        ({"type": "order"}, {"id": None, "type": "order", "keys": [], "scope": None}),
        ({}, {"id": None, "type": None, "keys": [], "scope": None}),
        (None, None),
    ):
        assert (await put(store, event=event)).answer()["event"] == shown
        assert (await senders.show(store.db(), ROOT, "github-main")).answer()["event"] == shown
        [listed] = (await senders.list_senders(store.db(), ROOT, PageRequest())).items
        assert listed.answer()["event"] == shown
        verification = await senders.verification(store.db(), "github-main", BOUND.get)
        assert verification.sender == listed
    said = [entry.data.get("event") for entry in await entries(store.db(), 0, 10, "sender:github-main")]
    assert said == [told, {"type": "order"}, {}, None]
    await put(store, event=told)
    await senders.delete(store.db(), ROOT, NOW, "github-main")
    assert await store.sql("SELECT * FROM sender_events") == []


@pytest.mark.parametrize("event", [None, {"type": "x"}])
async def test_every_scheme_is_kept_and_told_as_what_it_is(store: Store, event: Any) -> None:
    for scheme in [*get_args(Scheme), "slack", "github"]:
        made = await put(store, scheme=scheme, secrets=["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"], event=event)
        verification = await senders.verification(store.db(), "github-main", BOUND.get)
        assert (made.scheme, verification.sender) == (scheme, made)
        assert (await senders.list_senders(store.db(), ROOT, PageRequest())).items == [made]
        [last] = (await entries(store.db(), 0, 100, "sender:github-main"))[-1:]
        assert last.data["scheme"] == scheme


@pytest.mark.clause("inbox.accept")
async def test_events_go_to_scopes_that_are_declared_and_get_no_secret_as_their_id(store: Store) -> None:
    await put(store)
    before = await dump(store)
    with pytest.raises(ScopeUnknown):
        await put(store, event={"scope": "nowhere"})
    for header in ("Authorization", "COOKIE", "Proxy-Authorization", "X-Api-Key", "x-auth-token"):
        with pytest.raises(RequestInvalid) as caught:
            await put(store, event={"id": f"header:{header}"})
        assert [error["pointer"] for error in caught.value.errors or []] == ["/event/id"]
    assert await dump(store) == before


async def test_only_admins_declare_senders_and_operators_see_them(store: Store) -> None:
    await put(store)
    operator = Caller("op", (Grant(frozenset({"operate"})),), "crd_none")
    some = Caller("team", (Grant(frozenset({"admin"}), ("doc",)),), "crd_none")
    assert (await senders.show(store.db(), operator, "github-main")).name == "github-main"
    before = await dump(store)
    for by in (operator, some):
        with pytest.raises(Forbidden):
            await put(store, by=by)
        with pytest.raises(Forbidden):
            await senders.delete(store.db(), by, NOW, "github-main")
    with pytest.raises(Forbidden):
        await senders.show(store.db(), some, "github-main")
    with pytest.raises(Forbidden):
        await senders.list_senders(store.db(), some, PageRequest())
    revoked = Caller("x", (Grant(frozenset({"admin"})),), "crd_revoked")
    with pytest.raises(Unauthenticated):
        await put(store, by=revoked)
    assert await dump(store) == before


async def test_senders_are_listed_by_name_page_by_page(store: Store) -> None:
    for name in ("c", "a", "b"):
        await put(store, name)
    first = await senders.list_senders(store.db(), ROOT, PageRequest(2))
    rest = await senders.list_senders(store.db(), ROOT, PageRequest(2, first.next_cursor))
    assert [sender.name for sender in first.items + rest.items] == ["a", "b", "c"]
    assert rest.next_cursor is None
    for name in ("", "a/b", "..", "a b"):
        with pytest.raises(IdInvalid):
            await put(store, name)


@pytest.mark.clause("catalog.grants")
@pytest.mark.parametrize("subject", ["root", "moorage", "moorage:clock", "moorage:"])
async def test_no_sender_takes_the_name_of_root_or_of_the_product(store: Store, subject: str) -> None:
    before = await dump(store)
    with pytest.raises(RequestInvalid) as refused:
        await put(store, subject=subject)
    assert [error["pointer"] for error in refused.value.errors or []] == ["/subject"]
    assert await dump(store) == before
    assert (await put(store, subject=f"my-{subject}")).subject == f"my-{subject}"

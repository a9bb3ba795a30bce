"""Credentials on every adapter: kept as hashes, admitted while alive, given away by those who may."""

import asyncio
import hashlib
import json
from typing import Any

import pytest

from moorage.catalog.access import Caller
from moorage.catalog.credentials import Credential, Credentials
from moorage.catalog.kinds import Kinds
from moorage.catalog.model import CredentialDeclaration
from moorage.history.query import entries
from moorage.idempotency.keys import Key, key_for
from moorage.kernel.errors import (
    CredentialUnknown,
    Forbidden,
    IdempotencyConflict,
    PatternInvalid,
    RequestInvalid,
    Unauthenticated,
)
from moorage.kernel.instants import Instant, render
from moorage.kernel.limits import CREDENTIAL_CACHE_SECONDS, METADATA_BYTES
from moorage.kernel.pages import PageRequest
from moorage.records.patterns.parse import parse
from tests.contract.adapters import Store, dump
from tests.contract.declared import NOW, Interrupted, put

ROOT_TOKEN = "root-token-1"
ROOT = Caller("root", bearer=ROOT_TOKEN.encode())
CACHED = int(CREDENTIAL_CACHE_SECONDS) * 1000

pytestmark = pytest.mark.clause("catalog.credentials")


def grant(*actions: str, **rest: Any) -> dict[str, Any]:
    """A grant as a client says it."""
    return {"actions": list(actions), **rest}


async def create(
    store: Store,
    *grants: dict[str, Any],
    by: Caller = ROOT,
    subject: str = "worker",
    expires_at: int | None = None,
    key: str | None = None,
) -> tuple[Credential, str]:
    """Make a credential as a client would say it."""
    said = {"subject": subject, "grants": list(grants)}
    if expires_at is not None:
        said["expires_at"] = render(Instant(expires_at))
    declaration = CredentialDeclaration.model_validate(said)
    used: Key | None = key_for(by.subject, key, "POST /credentials", said)
    return await Credentials(ROOT_TOKEN, parse).create(store.db(), by, NOW, Kinds(), declaration, used)


async def admit(store: Store, token: str, now: int = NOW, credentials: Credentials | None = None) -> Caller:
    """Present a token."""
    return await (credentials or Credentials(ROOT_TOKEN)).admit(store.db(), Instant(now), f"Bearer {token}")


async def admin_of(store: Store, *kinds: str, subject: str = "team") -> Caller:
    """An admin of some kinds."""
    _, token = await create(store, grant("admin", kinds=list(kinds)), subject=subject)
    return await admit(store, token)


# --- admission ------------------------------------------------------------------------------------------------------


async def test_a_created_credential_is_admitted_with_its_subject_and_grants(store: Store) -> None:
    made, token = await create(store, grant("publish", "claim", kinds=["doc", "mail*"]), grant("read", match={"a": 1}))
    caller = await admit(store, token)
    assert (caller.subject, caller.credential, caller.is_root) == ("worker", made.id, False)
    assert caller.may("publish", "doc")
    assert caller.may("claim", "mail.in")
    assert not caller.may("claim", "other")
    assert caller.narrowing("read", "other") == [{"a": 1}]
    assert made.answer() == {
        "id": made.id,
        "subject": "worker",
        "grants": [
            {"actions": ["claim", "publish"], "kinds": ["doc", "mail*"]},
            {"actions": ["read"], "kinds": [], "match": {"a": 1}},
        ],
        "created_at": "2027-01-15T08:00:00.000Z",
        "created_by": "root",
        "expires_at": None,
        "revoked_at": None,
        "public": False,
        "origins": None,
        "rate": None,
    }
    assert token.startswith("moor_")
    assert made.id.startswith("crd_")


async def test_root_is_admitted_without_the_database(store: Store) -> None:
    db = store.db()
    caller = await Credentials(ROOT_TOKEN).admit(db, NOW, f"bearer {ROOT_TOKEN}")
    assert (caller.subject, caller.is_root) == ("root", True)
    assert db.cost.trips == 0


@pytest.mark.parametrize(
    "header",
    [
        None, "", " ", "Bearer", "Bearer ", "Basic cm9vdA==", "root-token-1", "Bearer root-token", "Bearer root-token-1 x",
        "Bearer root-token-1,", "Bearer ROOT-TOKEN-1", "Bearer é", "Bearer " + "x" * 513, "Bearer a\x00b",
        "Bearer ' OR 1=1 --",
    ],
)  # fmt: skip
async def test_everything_else_is_unauthenticated_and_not_repeated(store: Store, header: str | None) -> None:
    with pytest.raises(Unauthenticated) as caught:
        await Credentials(ROOT_TOKEN).admit(store.db(), NOW, header)
    assert caught.value.detail == Unauthenticated.meaning()
    assert caught.value.errors is None


@pytest.mark.parametrize("unset", [None, ""])
async def test_without_a_root_secret_nobody_is_root(store: Store, unset: str | None) -> None:
    for header in ("Bearer ", "Bearer", "Bearer None", None):
        with pytest.raises(Unauthenticated):
            await Credentials(unset).admit(store.db(), NOW, header)


async def test_the_hash_of_a_token_is_no_token(store: Store) -> None:
    _, token = await create(store, grant("read"))
    for forged in (hashlib.sha256(token.encode()).hexdigest(), token[:-1], token + "A", token.upper()):
        with pytest.raises(Unauthenticated):
            await admit(store, forged)


@pytest.mark.clause("kernel.instants")
async def test_a_credential_is_over_at_its_expiry_also_in_the_cache(store: Store) -> None:
    _, token = await create(store, grant("read"), expires_at=NOW + 2000)
    credentials = Credentials(ROOT_TOKEN)
    assert (await admit(store, token, NOW + 1999, credentials)).subject == "worker"
    for asked in (credentials, Credentials(ROOT_TOKEN)):
        with pytest.raises(Unauthenticated):
            await admit(store, token, NOW + 2000, asked)


async def test_a_cached_credential_costs_no_trip_for_its_seconds(store: Store) -> None:
    _, token = await create(store, grant("read"))
    credentials = Credentials(ROOT_TOKEN)
    for age, trips in ((0, 1), (CACHED - 1, 0), (CACHED, 1), (CACHED - 1, 1)):
        db = store.db()
        await credentials.admit(db, Instant(NOW + age), f"Bearer {token}")
        assert db.cost.trips == trips


async def test_a_revoked_credential_reads_no_longer_than_the_cache_and_never_writes(store: Store) -> None:
    made, token = await create(store, grant("admin"))
    elsewhere, here = Credentials(ROOT_TOKEN), Credentials(ROOT_TOKEN)
    caller = await admit(store, token, NOW, elsewhere)
    await admit(store, token, NOW, here)
    await here.revoke(store.db(), ROOT, NOW, made.id)
    assert (await admit(store, token, NOW + CACHED - 1, elsewhere)).credential == made.id
    before = await dump(store)
    with pytest.raises(Unauthenticated):
        await put(store, "doc", caller)
    assert await dump(store) == before
    for asked, now in ((elsewhere, NOW + CACHED), (here, NOW)):
        with pytest.raises(Unauthenticated):
            await admit(store, token, now, asked)


async def test_a_credential_that_expires_meanwhile_writes_nothing(store: Store) -> None:
    _, token = await create(store, grant("admin"), expires_at=NOW + 1000)
    caller = await admit(store, token)
    assert (await put(store, "doc", caller, now=NOW + 999)).revision == 1
    with pytest.raises(Unauthenticated):
        await put(store, "mail", caller, now=NOW + 1000)


async def test_many_unknown_tokens_neither_grow_the_cache_nor_push_others_out(store: Store) -> None:
    _, token = await create(store, grant("read"))
    credentials = Credentials(ROOT_TOKEN)
    await admit(store, token, NOW, credentials)
    for number in range(20):
        with pytest.raises(Unauthenticated):
            await admit(store, f"unknown-{number}", NOW, credentials)
    db = store.db()
    await credentials.admit(db, NOW, f"Bearer {token}")
    assert db.cost.trips == 0


# --- creation -------------------------------------------------------------------------------------------------------


async def test_only_the_hash_of_a_token_is_kept_and_history_tells_no_secret(store: Store) -> None:
    made, token = await create(store, grant("read", kinds=["doc"]), key="key-1")
    await Credentials(ROOT_TOKEN).revoke(store.db(), ROOT, NOW, made.id)
    kept = json.dumps(await dump(store))
    assert token not in kept
    assert token.removeprefix("moor_") not in kept
    assert ROOT_TOKEN not in kept
    digest = hashlib.sha256(token.encode()).hexdigest()
    assert kept.count(digest) == 1  # in the one row that needs it
    told = await entries(store.db(), 0, 10, made.id)
    assert [(entry.type, entry.actor) for entry in told] == [
        ("credential.created", "root"),
        ("credential.revoked", "root"),
    ]
    assert told[0].data == {
        "subject": "worker",
        "grants": [{"actions": ["read"], "kinds": ["doc"]}],
        "expires_at": None,
    }


@pytest.mark.clause("records.idempotent")
async def test_a_replayed_creation_answers_the_same_credential_and_token(store: Store) -> None:
    first = await create(store, grant("read"), key="key-1")
    assert await create(store, grant("read"), key="key-1") == first
    assert (await admit(store, first[1])).credential == first[0].id
    assert len(await store.sql("SELECT * FROM credentials")) == 1
    with pytest.raises(IdempotencyConflict):
        await create(store, grant("claim"), key="key-1")
    other, token = await create(store, grant("read"), key="key-2")
    assert other.id != first[0].id
    assert token != first[1]


@pytest.mark.clause("records.idempotent")
async def test_equal_creations_at_once_make_one_credential(store: Store) -> None:
    outcomes = await asyncio.gather(*(create(store, grant("read"), key="key-1") for _ in range(10)))
    assert len({(made.id, token) for made, token in outcomes}) == 1
    assert len(await store.sql("SELECT * FROM credentials")) == 1


@pytest.mark.clause("records.idempotent")
async def test_another_bearer_of_the_subject_does_not_get_the_secret(store: Store) -> None:
    await create(store, grant("read"), key="key-1")
    with pytest.raises(IdempotencyConflict) as caught:
        await create(store, grant("read"), key="key-1", by=Caller("root", bearer=b"another-root-token"))
    assert "another bearer" in caught.value.detail


@pytest.mark.parametrize(
    ("grants", "said"),
    [
        ([grant("read", kinds=["Doc"])], "/grants/0/kinds"),
        ([grant("read"), grant("read", kinds=["a*b"])], "/grants/1/kinds"),
        ([grant("read", kinds=["_interest"])], "/grants/0/kinds"),
        ([grant("read", kinds=[""])], "/grants/0/kinds"),
        ([grant("read", kinds=["**"])], "/grants/0/kinds"),
        ([grant("admin", match={"a": 1})], "/grants/0/match"),
        ([grant("read", match={"a": "x" * int(METADATA_BYTES)})], "/grants/0/match"),
    ],
)
async def test_a_grant_names_kinds_and_prefixes_and_narrows_no_admin(
    store: Store, grants: list[dict[str, Any]], said: str
) -> None:
    with pytest.raises(RequestInvalid) as caught:
        await create(store, *grants)
    assert caught.value.errors is not None
    assert caught.value.errors[0]["pointer"] == said


async def test_a_star_is_every_kind_and_a_kind_is_kept_once(store: Store) -> None:
    made, _ = await create(store, grant("read", kinds=["doc", "doc", "mail"]), grant("claim", kinds=["x", "*"]))
    assert [given.kinds for given in made.grants] == [("doc", "mail"), ()]


@pytest.mark.clause("catalog.grants")
async def test_a_match_on_a_declared_kind_is_checked_against_its_paths(store: Store) -> None:
    await put(store, "doc", paths={"team": "string"})
    await create(store, grant("read", kinds=["doc"], match={"team": "blue"}))
    await create(store, grant("read", kinds=["doc", "mail"], match={"unknown": 1}))
    await create(store, grant("read", kinds=["undeclared"], match={"unknown": 1}))
    for match in ({"unknown": 1}, {"team": 1}, {"team": {"$regex": "x"}}):
        with pytest.raises(PatternInvalid, match="/grants/0/match"):
            await create(store, grant("read", kinds=["doc"], match=match))


@pytest.mark.parametrize("said", ["soon", "2027-01-15T08:00:00Z", "2026-01-01T00:00:00Z", "2027-01-16", ""])
async def test_an_expiry_is_an_instant_in_the_future(store: Store, said: str) -> None:
    declaration = CredentialDeclaration.model_validate({"subject": "s", "grants": [], "expires_at": said})
    with pytest.raises(RequestInvalid) as caught:
        await Credentials(ROOT_TOKEN).create(store.db(), ROOT, NOW, Kinds(), declaration)
    assert caught.value.errors is not None
    assert caught.value.errors[0]["pointer"] == "/expires_at"


# --- who may --------------------------------------------------------------------------------------------------------


@pytest.mark.clause("catalog.grants")
async def test_only_admins_make_list_and_revoke_credentials(store: Store) -> None:
    made, token = await create(store, grant("publish", "read", "claim", "watch", "execute", "resume", "operate"))
    other, _ = await create(store, grant("read"))
    caller = await admit(store, token)
    credentials = Credentials(ROOT_TOKEN)
    before = await dump(store)
    with pytest.raises(Forbidden):
        await create(store, grant("read"), by=caller)
    with pytest.raises(Forbidden):
        await credentials.list_credentials(store.db(), caller, PageRequest())
    with pytest.raises(Forbidden):
        await credentials.revoke(store.db(), caller, NOW, other.id)
    assert await dump(store) == before
    assert await credentials.show(store.db(), caller, made.id) == made
    await credentials.revoke(store.db(), caller, NOW, made.id)
    with pytest.raises(Unauthenticated):
        await admit(store, token)


@pytest.mark.clause("catalog.grants")
@pytest.mark.parametrize(
    ("subject", "given", "allowed"),
    [
        ("team", grant("read", kinds=["doc"]), True),
        ("team:worker", grant("claim", kinds=["doc", "mail.in"]), True),
        ("team", grant("admin", kinds=["mail.*"]), True),
        ("team", grant("read", kinds=["mail.in*"], match={"a": 1}), True),
        ("team", grant("read"), False),
        ("team", grant("read", kinds=["*"]), False),
        ("team", grant("read", kinds=["mail*"]), False),
        ("team", grant("read", kinds=["doc*"]), False),
        ("team", grant("read", kinds=["doc", "other"]), False),
        ("alice", grant("read", kinds=["doc"]), False),
        ("teammate", grant("read", kinds=["doc"]), False),
    ],
)
async def test_an_admin_of_some_kinds_gives_no_more_than_it_has(
    store: Store, subject: str, given: dict[str, Any], allowed: bool
) -> None:
    team = await admin_of(store, "doc", "mail.*")
    if allowed:
        made, _ = await create(store, given, by=team, subject=subject)
        assert made.created_by == "team"
    else:
        before = await dump(store)
        with pytest.raises(Forbidden):
            await create(store, given, by=team, subject=subject)
        assert await dump(store) == before


@pytest.mark.clause("catalog.grants")
@pytest.mark.parametrize("subject", ["root", "moorage", "moorage:clock", "moorage:"])
async def test_nobody_takes_the_name_of_root_or_of_the_product(store: Store, subject: str) -> None:
    before = await dump(store)
    with pytest.raises(RequestInvalid) as refused:
        await create(store, grant("read"), subject=subject)
    assert [error["pointer"] for error in refused.value.errors or []] == ["/subject"]
    assert await dump(store) == before
    await create(store, grant("read"), subject=f"my-{subject}")


@pytest.mark.clause("catalog.grants")
async def test_an_admin_of_some_kinds_sees_and_revokes_what_it_made_alone(store: Store) -> None:
    stranger, _ = await create(store, grant("read"))
    team = await admin_of(store, "doc")
    mine, token = await create(store, grant("read", kinds=["doc"]), by=team, subject="team:w")
    credentials = Credentials(ROOT_TOKEN)
    page = await credentials.list_credentials(store.db(), team, PageRequest())
    assert [credential.id for credential in page.items] == [mine.id]
    for refused in (stranger.id, "crd_none", "' OR 1=1 --"):
        with pytest.raises(CredentialUnknown):
            await credentials.show(store.db(), team, refused)
        with pytest.raises(CredentialUnknown):
            await credentials.revoke(store.db(), team, NOW, refused)
    await credentials.revoke(store.db(), team, NOW, mine.id)
    with pytest.raises(Unauthenticated):
        await admit(store, token)


async def test_revoking_again_changes_nothing_and_writes_no_history(store: Store) -> None:
    made, _ = await create(store, grant("read"))
    credentials = Credentials(ROOT_TOKEN)
    await asyncio.gather(*(credentials.revoke(store.db(), ROOT, NOW, made.id) for _ in range(5)))
    before = await dump(store)
    await credentials.revoke(store.db(), ROOT, Instant(NOW + 1), made.id)
    assert await dump(store) == before
    assert len(await entries(store.db(), 0, 10, made.id)) == 2
    assert (await credentials.show(store.db(), ROOT, made.id)).revoked_at == NOW


async def test_of_two_revocations_at_once_one_writes_history(store: Store) -> None:
    made, _ = await create(store, grant("read"))
    credentials = Credentials(ROOT_TOKEN)
    db = Interrupted(store.db(), [lambda: credentials.revoke(store.db(), ROOT, NOW, made.id)])
    await credentials.revoke(db, ROOT, Instant(NOW + 1), made.id)
    assert (await credentials.show(store.db(), ROOT, made.id)).revoked_at == NOW
    assert len(await entries(store.db(), 0, 10, made.id)) == 2


async def test_credentials_made_at_one_instant_are_listed_each_once(store: Store) -> None:
    made = [(await create(store, grant("read")))[0] for _ in range(7)]
    credentials = Credentials(ROOT_TOKEN)
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await credentials.list_credentials(store.db(), ROOT, PageRequest(3, cursor))
        found += [credential.id for credential in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert found == sorted(credential.id for credential in made)

"""Idempotency keys on every adapter: one key, one content, one outcome, for a day (clause records.idempotent)."""

import asyncio
import string
from typing import Any

import pytest

from moorage.history.append import Event, append
from moorage.idempotency.keys import AlreadyDone, Derivation, Key, derive_secret, key_for, recall, remember
from moorage.kernel.errors import IdempotencyConflict, IdInvalid, LeaseFenced
from moorage.kernel.instants import Instant
from moorage.kernel.limits import ID_CHARACTERS, IDEMPOTENCY_SECONDS
from moorage.store.transaction import Transaction
from tests.contract.adapters import Store, dump

NOW = Instant(1_800_000_000_000)
DAY = int(IDEMPOTENCY_SECONDS) * 1000

pytestmark = pytest.mark.clause("records.idempotent")


def used(key: str = "k", subject: str = "alice", route: str = "POST /records", content: Any = None) -> Key:
    """One use of a key."""
    found = key_for(subject, key, route, {"n": 1} if content is None else content)
    assert found is not None
    return found


async def make(store: Store, key: Key | None, made: str, now: int = NOW) -> None:
    """Do something under a key, once."""
    tx = Transaction(Instant(now))
    remember(tx, key, {"made": made})
    append(tx, "alice", Event(made, "thing.made"))
    await store.db().commit(tx)


async def made(store: Store) -> list[str]:
    """What was done."""
    return [row["subject"] for row in await store.sql("SELECT subject FROM history ORDER BY position")]


async def test_the_same_key_and_content_does_it_once_and_tells_what_was_made(store: Store) -> None:
    await make(store, used(), "one")
    before = await dump(store)
    with pytest.raises(AlreadyDone):
        await make(store, used(), "two")
    assert await dump(store) == before
    assert await recall(store.db(), used()) == {"made": "one"}


@pytest.mark.parametrize(
    "other", [{"content": {"n": 2}}, {"content": {"n": "1"}}, {"content": {"n": 1, "m": None}}, {"route": "POST /claims"}]
)
async def test_the_same_key_with_other_content_conflicts(store: Store, other: dict[str, Any]) -> None:
    await make(store, used(), "one")
    with pytest.raises(AlreadyDone):
        await make(store, used(**other), "two")
    with pytest.raises(IdempotencyConflict):
        await recall(store.db(), used(**other))
    assert await made(store) == ["one"]


async def test_content_is_compared_by_value_and_not_by_spelling(store: Store) -> None:
    await make(store, used(content={"a": 1, "b": [1.0, "x"]}), "one")
    assert await recall(store.db(), used(content={"b": [1, "x"], "a": 1.0})) == {"made": "one"}


async def test_keys_of_different_subjects_are_different_keys(store: Store) -> None:
    await make(store, used(subject="alice"), "one")
    await make(store, used(subject="bob"), "two")
    await make(store, used(key="K"), "three")
    assert await made(store) == ["one", "two", "three"]
    assert await recall(store.db(), used(subject="bob")) == {"made": "two"}


async def test_a_key_is_free_again_after_a_day_and_not_a_millisecond_before(store: Store) -> None:
    await make(store, used(), "one")
    with pytest.raises(AlreadyDone):
        await make(store, used(content={"n": 2}), "two", NOW + DAY - 1)
    await make(store, used(content={"n": 2}), "two", NOW + DAY)
    assert await recall(store.db(), used(content={"n": 2})) == {"made": "two"}
    assert await made(store) == ["one", "two"]


async def test_without_a_key_everything_is_done_each_time(store: Store) -> None:
    assert key_for("alice", None, "POST /records", {}) is None
    await make(store, None, "one")
    await make(store, None, "one")
    assert await made(store) == ["one", "one"]
    assert await store.sql("SELECT * FROM idempotency") == []


async def test_a_refused_operation_does_not_use_up_its_key(store: Store) -> None:
    tx = Transaction(NOW)
    remember(tx, used(), {"made": "one"})
    tx.require("SELECT 1 WHERE 0", LeaseFenced())
    with pytest.raises(LeaseFenced):
        await store.db().commit(tx)
    await make(store, used(), "two")
    assert await made(store) == ["two"]


async def test_of_twenty_equal_requests_at_once_one_is_done(store: Store) -> None:
    outcomes = await asyncio.gather(*(make(store, used(), f"try-{number}") for number in range(20)), return_exceptions=True)
    assert sum(isinstance(outcome, AlreadyDone) for outcome in outcomes) == 19
    done = await made(store)
    assert len(done) == 1
    assert await recall(store.db(), used()) == {"made": done[0]}


@pytest.mark.clause("store.copies")
async def test_what_is_recalled_is_a_copy(store: Store) -> None:
    await make(store, used(), "one")
    (await recall(store.db(), used()))["made"] = "changed"
    assert await recall(store.db(), used()) == {"made": "one"}


@pytest.mark.clause("kernel.limits")
async def test_a_key_is_printable_ascii_of_bounded_length_and_means_exactly_itself(store: Store) -> None:
    accepted = ["k" * int(ID_CHARACTERS), "a b", "'; DROP TABLE idempotency; --", "%", "k%", string.punctuation]
    for number, key in enumerate(accepted):
        await make(store, used(key), str(number))
    for number, key in enumerate(accepted):
        assert await recall(store.db(), used(key)) == {"made": str(number)}
    for key in ("", "k" * (int(ID_CHARACTERS) + 1), "a\nb", "é", "\x7f", "\x00"):
        with pytest.raises(IdInvalid, match="Idempotency-Key"):
            used(key)


def test_a_derived_secret_is_the_same_for_the_same_bearer_salt_and_key_only() -> None:
    derivation = Derivation(b"bearer-1", "salt-1")
    secret = derive_secret(derivation, used(), "moor")
    assert secret.startswith("moor_")
    assert len(secret) == len("moor_") + 43
    assert derive_secret(Derivation(b"bearer-1", "salt-1"), used(), "moor") == secret
    others = {
        derive_secret(Derivation(b"bearer-2", "salt-1"), used(), "moor"),
        derive_secret(Derivation(b"bearer-1", "salt-2"), used(), "moor"),
        derive_secret(derivation, used("other"), "moor"),
        derive_secret(derivation, used(subject="bob"), "moor"),
        derive_secret(derivation, used(), "awk"),
    }
    assert len(others) == 5
    assert secret not in others


def test_two_derivations_have_different_salts() -> None:
    assert Derivation(b"b").salt != Derivation(b"b").salt

"""Leases on every adapter: claimed once, fenced always, and equal to a model of a few lines under any sequence."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage.history.append import Event, append
from moorage.history.query import entries
from moorage.kernel.errors import LeaseExpired, LeaseFenced, LeaseHeld, LeaseUnknown, MoorageError
from moorage.kernel.instants import Instant
from moorage.leases import lease
from moorage.leases.lease import Authority, Hold, Lease, Trusted
from moorage.store.transaction import Transaction
from tests.contract.adapters import Store, dump

NOW = Instant(1_800_000_000_000)


def later(seconds: float) -> Instant:
    """That many seconds after NOW."""
    return Instant(NOW + round(seconds * 1000))


async def acquire(store: Store, now: Instant, owner: str, seconds: float = 10, key: str = "k") -> Lease:
    """Take a lease through an instance of its own, as each request does."""
    return await lease.acquire(store.db(), now, key, owner, seconds)


def hold(taken: Lease) -> Hold:
    """What the taker of a lease shows with its writes."""
    assert taken.owner is not None
    return Hold(taken.key, taken.owner, taken.epoch)


async def write(store: Store, now: Instant, authority: Authority, subject: str = "thing") -> None:
    """A write under a lease: one history entry that commits only under this authority."""
    tx = Transaction(now)
    lease.fence(tx, authority)
    append(tx, "writer", Event(subject, "thing.written"))
    await store.db().commit(tx)


async def written(store: Store, subject: str = "thing") -> int:
    """How many writes committed."""
    return len(await entries(store.db(), after=0, limit=100, subject=subject))


async def refusal(operation: Awaitable[object]) -> type[MoorageError] | None:
    """The class of the error that an operation ends with, or None."""
    try:
        await operation
    except MoorageError as error:
        return type(error)
    return None


# --- claim ----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("leases.claim")
async def test_a_fresh_key_is_taken_with_epoch_one(store: Store) -> None:
    assert await acquire(store, NOW, "a") == Lease("k", 1, "a", later(10))
    assert await lease.show(store.db(), "k") == Lease("k", 1, "a", later(10))


@pytest.mark.clause("leases.claim")
async def test_a_live_lease_refuses_everyone_and_says_when_it_ends(store: Store) -> None:
    await acquire(store, NOW, "a")
    for owner in ("a", "b"):
        with pytest.raises(LeaseHeld) as caught:
            await acquire(store, later(4), owner)
        assert caught.value.retry_after == 6
    assert await lease.show(store.db(), "k") == Lease("k", 1, "a", later(10))


@pytest.mark.clause("leases.claim", "kernel.instants")
async def test_a_lease_is_over_at_its_expiry_instant_and_not_before(store: Store) -> None:
    await acquire(store, NOW, "a")
    with pytest.raises(LeaseHeld):
        await acquire(store, Instant(later(10) - 1), "b")
    assert (await acquire(store, later(10), "b")).epoch == 2


@pytest.mark.clause("leases.claim")
async def test_the_same_owner_gets_a_larger_epoch_after_expiry_and_after_release(store: Store) -> None:
    await acquire(store, NOW, "a")
    second = await acquire(store, later(10), "a")
    await lease.release(store.db(), later(11), hold(second))
    third = await acquire(store, later(12), "a")
    assert [second.epoch, third.epoch] == [2, 3]


@pytest.mark.clause("leases.claim")
async def test_of_twenty_that_claim_at_once_one_wins(store: Store) -> None:
    for epoch in range(1, 4):
        now = later(10 * epoch)
        claims = [acquire(store, now, f"w{number}") for number in range(20)]
        outcomes = await asyncio.gather(*claims, return_exceptions=True)
        won = [outcome for outcome in outcomes if isinstance(outcome, Lease)]
        assert [taken.epoch for taken in won] == [epoch]
        assert sum(isinstance(outcome, LeaseHeld) for outcome in outcomes) == 19
        assert (await lease.show(store.db(), "k")).owner == won[0].owner


@pytest.mark.clause("leases.claim")
async def test_keys_are_independent_and_odd_ones_mean_themselves(store: Store) -> None:
    odd = ["k", "K", "k ", "k%", "'; DROP TABLE leases; --", "é", "", "k/1"]
    for key in odd:
        assert (await acquire(store, NOW, "a", key=key)).epoch == 1
    for key in odd:
        assert (await lease.show(store.db(), key)).key == key
    with pytest.raises(LeaseUnknown):
        await lease.show(store.db(), "kk")


# --- fence ----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("leases.fence")
async def test_a_stale_holder_changes_nothing_whatever_it_tries(store: Store) -> None:
    stale = hold(await acquire(store, NOW, "a"))
    current = hold(await acquire(store, later(10), "b"))
    before = await dump(store)
    for now in (later(11), later(100)):
        assert await refusal(write(store, now, stale)) is LeaseFenced
        assert await refusal(lease.renew(store.db(), now, stale, 60)) is LeaseFenced
        assert await refusal(lease.release(store.db(), now, stale)) is LeaseFenced
    assert await dump(store) == before
    await write(store, later(11), current)
    assert await written(store) == 1


@pytest.mark.clause("leases.fence")
async def test_an_epoch_of_another_owner_or_an_owner_of_another_epoch_is_fenced(store: Store) -> None:
    taken = hold(await acquire(store, NOW, "a"))
    forged = [Hold("k", "b", 1), Hold("k", "a", 2), Hold("k", "a", 0), Hold("other", "a", 1), Hold("k", "", 1)]
    for claim in forged:
        assert await refusal(write(store, later(1), claim)) is LeaseFenced
    assert await written(store) == 0
    await write(store, later(1), taken)
    assert await written(store) == 1


@pytest.mark.clause("leases.fence", "kernel.instants")
async def test_a_holder_whose_lease_ran_out_is_told_so_from_the_instant_on(store: Store) -> None:
    taken = hold(await acquire(store, NOW, "a"))
    await write(store, Instant(later(10) - 1), taken)
    assert await refusal(write(store, later(10), taken)) is LeaseExpired
    assert await written(store) == 1


@pytest.mark.clause("leases.fence", "store.atomic")
async def test_the_fence_holds_where_it_stands_in_the_same_batch(store: Store) -> None:
    stale = hold(await acquire(store, NOW, "a", seconds=1))
    await acquire(store, later(1), "b")
    tx = Transaction(later(2))
    append(tx, "writer", Event("thing", "thing.written"))
    lease.fence(tx, stale)
    assert await refusal(store.db().commit(tx)) is LeaseFenced
    assert await written(store) == 0


# --- renew and release ----------------------------------------------------------------------------------------------


@pytest.mark.clause("leases.renew")
async def test_renewing_extends_and_never_shortens(store: Store) -> None:
    taken = hold(await acquire(store, NOW, "a"))
    assert (await lease.renew(store.db(), later(5), taken, 10)).expires_at == later(15)
    assert (await lease.renew(store.db(), later(6), taken, 1)).expires_at == later(15)
    assert await lease.show(store.db(), "k") == Lease("k", 1, "a", later(15))


@pytest.mark.clause("leases.renew")
async def test_an_expired_lease_is_neither_revived_nor_released(store: Store) -> None:
    taken = hold(await acquire(store, NOW, "a"))
    assert await refusal(lease.renew(store.db(), later(10), taken, 60)) is LeaseExpired
    assert await refusal(lease.release(store.db(), later(10), taken)) is LeaseExpired
    assert await lease.show(store.db(), "k") == Lease("k", 1, "a", later(10))


@pytest.mark.clause("leases.renew")
async def test_release_clears_owner_and_expiry_and_keeps_the_epoch(store: Store) -> None:
    taken = hold(await acquire(store, NOW, "a"))
    await lease.release(store.db(), later(1), taken)
    assert await lease.show(store.db(), "k") == Lease("k", 1, None, None)
    assert await refusal(lease.release(store.db(), later(1), taken)) is LeaseFenced
    assert await refusal(lease.renew(store.db(), later(1), taken, 9)) is LeaseFenced
    assert await refusal(write(store, later(1), taken)) is LeaseFenced


# --- trusted --------------------------------------------------------------------------------------------------------


@pytest.mark.clause("leases.trusted")
async def test_control_plane_writes_say_that_they_are_trusted(store: Store) -> None:
    await acquire(store, NOW, "a")
    await write(store, later(1), Trusted("a sweep"))
    assert await written(store) == 1


@pytest.mark.clause("leases.trusted")
async def test_a_key_that_was_never_leased_trusts_nobody(store: Store) -> None:
    for claim in (Hold("never", "a", 1), Hold("never", "a", 0), Hold("never", "", 0)):
        assert await refusal(write(store, NOW, claim)) is LeaseFenced
    assert await written(store) == 0


# --- against a model ------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """What the contract says of one key, in plain Python."""

    now: int = NOW
    epoch: int = 0
    owner: str | None = None
    expires_at: int = 0
    writes: int = 0
    epochs: list[int] = field(default_factory=list)

    def acquire(self, owner: str, seconds: int) -> type[MoorageError] | None:
        if self.owner is not None and self.expires_at > self.now:
            return LeaseHeld
        self.epoch, self.owner, self.expires_at = self.epoch + 1, owner, self.now + seconds * 1000
        self.epochs.append(self.epoch)
        return None

    def check(self, owner: str, epoch: int) -> type[MoorageError] | None:
        if (self.owner, self.epoch) != (owner, epoch):
            return LeaseFenced
        return LeaseExpired if self.expires_at <= self.now else None


OWNERS = st.sampled_from(["a", "b"])
SECONDS = st.integers(1, 5)
BEHIND = st.sampled_from([0, 0, 0, 1, -1])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("acquire"), OWNERS, SECONDS, st.just(0)),
        st.tuples(st.just("renew"), OWNERS, SECONDS, BEHIND),
        st.tuples(st.just("release"), OWNERS, st.just(0), BEHIND),
        st.tuples(st.just("write"), OWNERS, st.just(0), BEHIND),
        st.tuples(st.just("advance"), OWNERS, SECONDS, st.just(0)),
    ),
    max_size=25,
)
_keys = count()


@pytest.mark.clause("leases.claim", "leases.fence", "leases.renew")
@given(steps=STEPS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_sequence_of_operations_agrees_with_the_model(
    store: Store, steps: list[tuple[str, str, int, int]]
) -> None:
    key = f"model-{next(_keys)}"
    model = Model()
    for operation, owner, seconds, behind in steps:
        await _step(store, model, key, operation, owner, seconds, model.epoch - behind)
    assert await written(store, key) == model.writes
    assert model.epochs == sorted(set(model.epochs))
    if model.epoch:
        expires_at = None if model.owner is None else Instant(model.expires_at)
        assert await lease.show(store.db(), key) == Lease(key, model.epoch, model.owner, expires_at)


async def _step(store: Store, model: Model, key: str, operation: str, owner: str, seconds: int, epoch: int) -> None:
    """One operation on the store and on the model, with the same outcome."""
    now, claim = Instant(model.now), Hold(key, owner, epoch)
    if operation == "advance":
        model.now += seconds * 1000
    elif operation == "acquire":
        expected = model.acquire(owner, seconds)
        assert await refusal(lease.acquire(store.db(), now, key, owner, seconds)) is expected
    elif operation == "renew":
        expected = model.check(owner, epoch)
        assert await refusal(lease.renew(store.db(), now, claim, seconds)) is expected
        if expected is None:
            model.expires_at = max(model.expires_at, model.now + seconds * 1000)
    elif operation == "release":
        expected = model.check(owner, epoch)
        assert await refusal(lease.release(store.db(), now, claim)) is expected
        if expected is None:
            model.owner = None
    else:
        expected = model.check(owner, epoch)
        assert await refusal(write(store, now, claim, key)) is expected
        model.writes += expected is None

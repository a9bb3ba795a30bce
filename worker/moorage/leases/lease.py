"""Taking, checking, renewing and releasing a lease.

A write under a lease calls `fence` on its transaction before anything else; a write without one is control-plane work
and says so by naming `Trusted` (clause leases.trusted: a missing lease never means trusted).
"""

from dataclasses import dataclass
from typing import Final

from moorage.kernel.errors import LeaseExpired, LeaseFenced, LeaseHeld, LeaseUnknown
from moorage.kernel.instants import Instant, after, render
from moorage.leases import statements
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Scalar, Transaction


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as stored: `owner` and `expires_at` are None once it is released."""

    key: str
    epoch: int
    owner: str | None
    expires_at: Instant | None


@dataclass(frozen=True, slots=True)
class Hold:
    """A claim to hold the lease: what a writer shows with every write."""

    key: str
    owner: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Trusted:
    """Control-plane authority, said explicitly and with its reason; never a default."""

    reason: str


Authority = Hold | Trusted

MIN_SECONDS: Final = 0.001


async def acquire(db: Database, now: Instant, key: str, owner: str, seconds: float) -> Lease:
    """Take the lease with a strictly larger epoch, in one statement (clause leases.claim).

    Raises LeaseHeld while it is live, whoever holds it; an expired or released one may be taken, by the same owner too.
    """
    tx = Transaction(now)
    taken = tx.run(statements.ACQUIRE, key=key, owner=owner, expires_at=after(now, seconds))
    standing = tx.run(statements.SHOW, key=key)
    await db.commit(tx)
    row = taken.first()
    if row is None:
        until = standing.one()["expires_at"]
        raise LeaseHeld(f"the lease {key!r} is held until {render(until)}", retry_after=(until - now) / 1000)
    return _lease(row)


def fence(tx: Transaction, authority: Authority) -> None:
    """Let the transaction commit only under this authority (clause leases.fence).

    The batch aborts with LeaseFenced when another epoch or owner holds the lease, LeaseExpired when it ran out.
    """
    if isinstance(authority, Trusted):
        return
    where: dict[str, Scalar] = {"key": authority.key, "epoch": authority.epoch, "owner": authority.owner}
    tx.require(statements.IS_MINE, LeaseFenced(), **where)
    tx.require(statements.IS_CURRENT, LeaseExpired(), **where)


async def renew(db: Database, now: Instant, hold: Hold, seconds: float) -> Lease:
    """Extend the lease to `seconds` from now; a shorter wish leaves it as it is (clause leases.renew).

    Raises LeaseFenced or LeaseExpired: an expired lease cannot be revived.
    """
    tx = Transaction(now)
    fence(tx, hold)
    renewed = tx.run(statements.RENEW, key=hold.key, epoch=hold.epoch, expires_at=after(now, seconds))
    await db.commit(tx)
    return _lease(renewed.one())


async def release(db: Database, now: Instant, hold: Hold) -> None:
    """Give the lease up; its epoch stays (clause leases.renew). Raises LeaseFenced or LeaseExpired."""
    tx = Transaction(now)
    fence(tx, hold)
    tx.run(statements.RELEASE, key=hold.key, epoch=hold.epoch)
    await db.commit(tx)


async def show(db: Database, key: str) -> Lease:
    """The lease under a key. Raises LeaseUnknown when there never was one."""
    reading = Reading()
    row = reading.ask(statements.SHOW, key=key)
    await db.read(reading)
    return _lease(row.one(LeaseUnknown(f"there is no lease {key!r}")))


def _lease(row: Row) -> Lease:
    return Lease(row["key"], row["epoch"], row["owner"], row["expires_at"])

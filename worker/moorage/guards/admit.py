"""Admitting a callback: the last look at who owns what before a request leaves (clauses guards.acquire, guards.scope,
guards.current-owner).

One statement looks at owner, attempt, entry, holder and leases, and protects every row; the guard over them follows in the
same batch. A row that another guard has breaks the batch.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from moorage.guards import statements
from moorage.guards.model import EntityLease, Guard, Target, check_holder, lease_key
from moorage.history.append import append_selected
from moorage.journal.model import EntryKey, Fence, idempotency_key
from moorage.kernel import canonical, ids
from moorage.kernel.errors import (
    DestinationUnknown,
    EntryUnknown,
    GuardedElsewhere,
    HolderUnknown,
    LeaseExpired,
    LeaseFenced,
    MoorageError,
)
from moorage.kernel.instants import Instant
from moorage.store.ports import Database
from moorage.store.transaction import Answer, Reading, Row, Scalar, Transaction


class NotAdmitted(Exception):
    """One of the conditions does not hold. It never leaves the core; see `why`."""


class Occupied(Exception):
    """Another guard has one of the rows. It never leaves the core; see `in_the_way`."""


@dataclass(frozen=True, slots=True)
class Callback:
    """A callback that wants to be admitted: whose, for which entry, by which holder, to where, under which entity leases."""

    fence: Fence
    key: EntryKey
    holder: str
    destination: str | None
    publication: bool
    entities: Sequence[EntityLease] = ()

    def where(self) -> dict[str, Scalar]:
        """What the statements bind, by name."""
        leases = [[lease_key(one.namespace, one.key), one.epoch] for one in self.entities]
        return {
            "execution": self.fence.execution_id,
            "label": self.key.label,
            "input_sha256": self.key.input_sha256,
            "holder": self.holder,
            "destination": self.destination,
            "leases": canonical.compact(leases),
        }


@dataclass(frozen=True, slots=True)
class Standing:
    """A guard that was admitted, and where its requests go."""

    guard: Guard
    target: Target | None

    @classmethod
    def of(cls, row: Row) -> "Standing":
        """What a row tells."""
        guard = Guard.of(row)
        if guard.destination is None or row["url"] is None:
            return cls(guard, None)
        return cls(guard, Target(guard.destination, row["url"], tuple(json.loads(row["methods"])), row["secret"]))


def plan(tx: Transaction, actor: str, callback: Callback) -> Answer:
    """Plan the admission into a transaction that has claimed the entry; the answer holds the guard's row.

    It holds none when the entry has ended, or is another owner's: then there is nothing to guard. The commit raises Occupied
    or NotAdmitted.
    """
    check_holder(callback.holder)
    token = ids.new("grd", tx.now)
    where = callback.where()
    tx.refuse("guard_rows.row", Occupied())
    tx.run(statements.PROTECT, token=token, epoch=callback.fence.epoch, **where)
    admitted = tx.run(
        statements.ADMIT,
        token=token,
        idempotency_key=idempotency_key(callback.fence.execution_id, callback.key),
        publication=callback.publication,
        **where,
    )
    tx.require(statements.IS_ADMITTED, NotAdmitted(), token=token, **where)
    told = statements.REMOVED.replace("{tokens}", "SELECT :token")
    append_selected(tx, actor, "guard.admitted", told, token=token)
    return admitted


async def in_the_way(db: Database, now: Instant, callback: Callback) -> Standing | None:
    """The callback's own guard, when it was admitted before and the answer was lost; None when the rows are free again.

    Raises GuardedElsewhere, which names the other guard.
    """
    reading = Reading()
    found = reading.ask(statements.IN_THE_WAY, execution=callback.fence.execution_id, now=now)
    await db.read(reading)
    guards = [Standing.of(row) for row in found.rows]
    for one in guards:
        guard = one.guard
        if (guard.execution_id, guard.epoch, guard.holder, guard.key) == (
            callback.fence.execution_id,
            callback.fence.epoch,
            callback.holder,
            callback.key,
        ):
            return one
    if not guards:
        return None
    other = guards[0].guard
    # Who may not see the other body is told its token, and nothing of it: operators see the rest.
    detail = f"guard {other.token} protects what this callback would"
    raise GuardedElsewhere(detail, token=other.token, evidence_class=other.evidence_class(now))


async def why(db: Database, now: Instant, callback: Callback) -> MoorageError:
    """Why the callback was not admitted."""
    reading = Reading()
    found = reading.ask(statements.WHY_NOT, now=now, **callback.where())
    await db.read(reading)
    row = found.first()
    return _reason(row, now, callback)


def _reason(row: Row | None, now: Instant, callback: Callback) -> MoorageError:
    if row is None or row["epoch"] != callback.fence.epoch or row["owner"] is None:
        return LeaseFenced()
    if row["expires_at"] <= now:
        return LeaseExpired()
    if not row["active"]:
        return LeaseFenced("the attempt is over")
    if not row["holder"]:
        return HolderUnknown()
    if not row["destination"]:
        return DestinationUnknown(f"no destination is declared as {callback.destination!r}")
    if row["lease"] is not None:
        return LeaseFenced(f"the execution does not hold the lease {row['lease']!r} under that epoch", key=row["lease"])
    # Last: one that was claimed in the same list is gone with it.
    if not row["entry"]:
        return EntryUnknown(f"the execution has no entry {callback.key.label!r}: claim it first", label=callback.key.label)
    return GuardedElsewhere("what stood in the way is gone; ask again")

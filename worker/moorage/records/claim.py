"""Claiming records under a fenced lease, renewing and releasing it (clauses records.claim, leases.*)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from moorage.catalog.access import Action, Caller
from moorage.catalog.kinds import Kind, Kinds
from moorage.catalog.revisions import REPLANS, KindChanged, guard_kinds
from moorage.history.append import append_selected
from moorage.idempotency import keys
from moorage.idempotency.keys import AlreadyDone, Key
from moorage.kernel import canonical, ids
from moorage.kernel.errors import KindConflict, LeaseExpired, LeaseFenced, RecordUnknown, RequestInvalid, SessionUnknown
from moorage.kernel.instants import Instant, after
from moorage.kernel.limits import CLAIM_BATCH, LEASE_SECONDS
from moorage.kernel.refusals import refused
from moorage.records import admission, query, statements
from moorage.records.bounds import BoundClaim, bind_claim, wait
from moorage.records.holds import hold
from moorage.records.model import Claim, ClaimRef, Record, RecordLease
from moorage.records.patterns import Compiled, compile
from moorage.records.sessions import AlreadyClaimed, Turn, begin, complete, recall
from moorage.records.visibility import matching, visible
from moorage.store.ports import Database
from moorage.store.transaction import Answer, Reading, Row, Scalar, Transaction

MAX_EPOCH: Final = 2**53 - 1
"""Epochs are integers that JSON carries exactly."""


class NothingMatches(Exception):
    """A claim that may be tried again found nothing, and left no trace. It never leaves the house.

    `retry_after` are seconds, where the kind's rate is what leaves nothing to claim before.
    """

    def __init__(self, retry_after: float | None = None) -> None:
        super().__init__()
        self.retry_after = retry_after


class Claims(list[Claim]):
    """What a claim took, oldest first within priority.

    `retry_after` are seconds until there is something to claim again, where the kind's rate is what left nothing.
    """

    def __init__(self, claims: Iterable[Claim] = (), retry_after: float | None = None) -> None:
        super().__init__(claims)
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Wish:
    """How much is claimed, by which worker, and how the claim is remembered."""

    worker: str
    limit: int
    expires_at: Instant
    key: Key | None
    turn: Turn | None
    or_nothing: bool


async def claim(
    db: Database,
    kinds: Kinds,
    caller: Caller,
    now: Instant,
    kind_name: str,
    match: Mapping[str, Any],
    worker: str,
    limit: int = 1,
    lease_seconds: float | None = None,
    key: Key | None = None,
    or_nothing: bool = False,
    turn: Turn | None = None,
) -> Claims:
    """Take at most `limit` claimable records that match, oldest first within priority, each under a new epoch.

    Claims compete: one statement decides, so a record goes to one claimer and the others get none of it. `lease_seconds`
    defaults to the kind's. An empty list means that nothing matched now. With `or_nothing` that is not remembered under the
    key or as the turn: NothingMatches is raised instead, and the claim may be tried again. A turn that was taken before
    answers what that claim still holds; a key, what its claim took and nobody claimed since, also when it was settled. Both
    leave out what the caller may not claim now. The kind's concurrency and rate leave records out. Raises KindUnknown,
    Forbidden, PatternInvalid, RequestInvalid for a bound, and for a turn what `sessions.begin` and `sessions.recall` raise.
    """
    ids.check_client_id(worker, "a worker's name")
    if not 1 <= limit <= CLAIM_BATCH:
        raise RequestInvalid(f"a claim takes 1 to {CLAIM_BATCH} records")
    if key is not None and turn is not None:
        raise RequestInvalid("a claim with a sequence takes no Idempotency-Key: the sequence is its key")
    for attempt in range(REPLANS):
        kind, wanted = await matching(db, kinds, caller, now, kind_name, "claim", match, fresh=attempt > 0, guarded=True)
        seconds = checked_seconds(kind.lease_seconds if lease_seconds is None else lease_seconds)
        tx = Transaction(now)
        caller.guard(tx)
        guard_kinds(tx, [kind])
        wish = Wish(worker, limit, after(now, seconds), key, turn, or_nothing)
        bound, taken = _plan(tx, caller, kind, compile(wanted), wish)
        try:
            await db.commit(tx)
        except KindChanged:
            continue
        except AlreadyDone:
            return await _claimed_before(db, kinds, caller, now, key)
        except AlreadyClaimed:
            return await _taken_before(db, kinds, caller, now, turn)
        except NothingMatches:
            # What the bucket held went back with the rest.
            raise NothingMatches(None if kind.rate is None else max(1, wait(1, kind.rate.per_second))) from None
        rows = [row for answer in taken for row in answer.rows]
        if rows:
            return _in_order(rows)
        if or_nothing:
            raise NothingMatches(bound.retry_after())
        return Claims(retry_after=bound.retry_after())
    raise KindConflict("the kind is being redeclared; try again")


def _plan(tx: Transaction, caller: Caller, kind: Kind, compiled: Compiled, wish: Wish) -> tuple[BoundClaim, list[Answer]]:
    """Add the claim and its history to a transaction; the answers hold what was taken."""
    claim_id = ids.new("clm", tx.now)
    made: dict[str, Scalar] = {"claim": claim_id, "expires_at": wish.expires_at}
    keys.remember(tx, wish.key, {"claim": claim_id})
    if wish.turn is not None:
        begin(tx, caller, wish.turn)
    bound = bind_claim(tx, kind, compiled, many=wish.limit > 1)
    who: dict[str, Scalar] = {"kind": kind.name, "worker": wish.worker, "actor": caller.subject}
    taken = [tx.run(sql, **bound.parameters, **who, limit=wish.limit, **made) for sql in bound.statements]
    if wish.or_nothing and (wish.key is not None or wish.turn is not None):
        tx.require(statements.TAKEN, NothingMatches(), **made)
    bound.spend(tx, claim_id, wish.expires_at)
    if wish.turn is not None:
        complete(tx, wish.turn, claim_id, wish.expires_at)
    keys.note(tx, wish.key, statements.TAKEN_TO_REMEMBER, **made)
    append_selected(tx, caller.subject, "record.claimed", statements.CLAIMED, many=wish.limit > 1, **made)
    return bound, taken


async def renew(
    db: Database,
    kinds: Kinds,
    caller: Caller,
    now: Instant,
    ref: ClaimRef,
    lease_seconds: float | None,
    key: Key | None = None,
) -> RecordLease:
    """Extend the lease to `lease_seconds` from now, by default the kind's; a shorter wish leaves it as it is.

    The same again under the same key answers the first lease. Raises RecordUnknown, Forbidden for a record that the caller
    may read and not claim, LeaseFenced for a stale or foreign epoch, LeaseExpired: an expired lease cannot be revived,
    IdempotencyConflict.
    """
    milliseconds = None if lease_seconds is None else round(checked_seconds(lease_seconds) * 1000)
    await admission.admit(db, kinds, caller, now, ref.record)
    tx = Transaction(now)
    ref = fence(tx, caller, ref, key)
    renewed = tx.run(statements.RENEW, record=ref.record, epoch=ref.epoch, milliseconds=milliseconds)
    keys.note(tx, key, statements.RENEWED_TO_REMEMBER, record=ref.record)
    append_selected(tx, caller.subject, "record.renewed", statements.HELD, record=ref.record)
    try:
        await commit_fenced(db, kinds, caller, now, tx, ref)
    except AlreadyDone:
        await done_before(db, kinds, caller, now, key)
        return RecordLease(*(await keys.recall(db, key))["lease"])
    row = renewed.one()
    return RecordLease(row["epoch"], row["owner"], row["expires_at"], row["attempts"])


async def release(
    db: Database, kinds: Kinds, caller: Caller, now: Instant, ref: ClaimRef, key: Key | None = None
) -> Instant | None:
    """Give the record back unworked: it is claimable at once and the attempt is not counted.

    The answer is when it becomes a dead letter, if its kind has a time to live. The same again under the same key is done
    already. Raises RecordUnknown, Forbidden as `renew` does, LeaseFenced, LeaseExpired, IdempotencyConflict.
    """
    await admission.admit(db, kinds, caller, now, ref.record)
    tx = Transaction(now)
    ref = fence(tx, caller, ref, key)
    append_selected(tx, caller.subject, "record.released", statements.HELD, record=ref.record)
    released = tx.run(statements.RELEASE, record=ref.record, epoch=ref.epoch)
    try:
        await commit_fenced(db, kinds, caller, now, tx, ref)
    except AlreadyDone:
        return (await done_before(db, kinds, caller, now, key)).ready_until
    ready_until: Instant | None = released.one()["ready_until"]
    return ready_until


def fence(tx: Transaction, caller: Caller, ref: ClaimRef, key: Key | None = None) -> ClaimRef:
    """Let the transaction commit only under this claim (clause leases.fence); the answer is the claim to name in it.

    It takes the claim's subject and epoch, and a grant to claim the record: for grants that a pattern narrows see
    `admission.admit`, for the others the commit raises NotGranted. An epoch outside 1 to MAX_EPOCH is nobody's, and is
    named 0. With a key that was used before the commit raises AlreadyDone, whatever became of the claim; see `done_before`.
    """
    caller.guard(tx)
    keys.remember(tx, key, {"record": ref.record})
    epoch = ref.epoch if 1 <= ref.epoch <= MAX_EPOCH else 0
    where: dict[str, Scalar] = {"record": ref.record, "epoch": epoch, "actor": caller.subject}
    tx.require(statements.EXISTS, RecordUnknown(), record=ref.record)
    admission.require(tx, caller, ref.record)
    tx.require(statements.EPOCH_IS_MINE, LeaseFenced(), **where)
    tx.require(statements.LEASE_IS_CURRENT, LeaseExpired(), record=ref.record, epoch=epoch)
    hold(tx, key, ref.record)
    return ClaimRef(ref.record, epoch)


async def commit_fenced(db: Database, kinds: Kinds, caller: Caller, now: Instant, tx: Transaction, ref: ClaimRef) -> None:
    """Commit what `fence` guards. Without a grant to claim it the record is forbidden, or unknown if it is not readable."""
    try:
        await db.commit(tx)
    except admission.NotGranted:
        raise await admission.refusal(db, kinds, caller, now, ref.record) from None


def checked_seconds(seconds: float) -> float:
    """A lease's length, unchanged. Raises RequestInvalid unless it lies between 1 ms and LEASE_SECONDS."""
    if not 0.001 <= seconds <= LEASE_SECONDS:
        message = f"a lease lasts 0.001 to {LEASE_SECONDS} seconds"
        raise refused("/lease_seconds", message, message)
    return seconds


async def done_before(
    db: Database, kinds: Kinds, caller: Caller, now: Instant, key: Key | None, action: Action = "claim"
) -> Record:
    """The record that the key's first request worked on, as it is now.

    Raises IdempotencyConflict when that request was another one, RecordUnknown when the record is gone or is not the
    caller's to do `action` on.
    """
    found = await visible(db, kinds, caller, now, [await recalled(db, key)], action)
    if not found:
        raise RecordUnknown()
    return found[0]


async def recalled(db: Database, key: Key | None) -> Record:
    """The same for a caller that was admitted to the record already."""
    reference = await keys.recall(db, key)
    found = await query.read(db, [reference["record"]])
    if not found:
        raise RecordUnknown()
    return found[0]


async def _claimed_before(db: Database, kinds: Kinds, caller: Caller, now: Instant, key: Key | None) -> Claims:
    """What the key's claim took and nobody claimed since, as far as the caller may claim it now."""
    reference = await keys.recall(db, key)
    reading = Reading()
    rows = reading.ask(statements.OF_CLAIM, taken=canonical.compact(reference["taken"]))
    await db.read(reading)
    found = [
        Claim(Record.of(row), RecordLease(row["epoch"], row["taken_by"], row["expires_at"], row["attempt"]))
        for row in rows.rows
    ]
    return await _shown(db, kinds, caller, now, Claims(found))


async def _taken_before(db: Database, kinds: Kinds, caller: Caller, now: Instant, turn: Turn | None) -> Claims:
    """What the turn's claim still holds, under its leases as they are now, as far as the caller may claim it now."""
    if turn is None:
        raise SessionUnknown()
    return await _shown(db, kinds, caller, now, _in_order(await recall(db, turn)))


async def _shown(db: Database, kinds: Kinds, caller: Caller, now: Instant, claims: Claims) -> Claims:
    seen = {record.id for record in await visible(db, kinds, caller, now, [one.record for one in claims], "claim")}
    return Claims(one for one in claims if one.record.id in seen)


def _in_order(rows: Iterable[Row]) -> Claims:
    return Claims(sorted((_claim(row) for row in rows), key=lambda one: (-one.record.priority, one.record.seq)))


def _claim(row: Row) -> Claim:
    lease = RecordLease(row["epoch"], row["owner"], row["expires_at"], row["attempts"])
    return Claim(Record.of(row), lease)

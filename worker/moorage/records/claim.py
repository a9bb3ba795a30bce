"""Claiming records under a fenced lease, renewing and releasing it (clauses records.claim, leases.*)."""

from collections.abc import Mapping
from typing import Any, Final

from moorage.catalog.access import Caller
from moorage.catalog.kinds import Kinds
from moorage.catalog.revisions import REPLANS, KindChanged, guard_kinds
from moorage.history.append import append_selected
from moorage.idempotency import keys
from moorage.idempotency.keys import AlreadyDone, Key
from moorage.kernel import ids
from moorage.kernel.errors import KindConflict, LeaseExpired, LeaseFenced, RecordUnknown, RequestInvalid
from moorage.kernel.instants import Instant, after
from moorage.kernel.limits import CLAIM_BATCH, LEASE_SECONDS
from moorage.records import query, statements
from moorage.records.holds import hold
from moorage.records.model import Claim, ClaimRef, Record, RecordLease
from moorage.records.patterns import Compiled, claim_candidates, compile
from moorage.records.visibility import matching, visible
from moorage.store.ports import Database
from moorage.store.transaction import Answer, Reading, Row, Scalar, Transaction

MAX_EPOCH: Final = 2**53 - 1
"""Epochs are integers that JSON carries exactly."""


class NothingMatches(Exception):
    """A claim that may be tried again found nothing, and left no trace. It never leaves the house."""


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
) -> list[Claim]:
    """Take at most `limit` claimable records that match, oldest first within priority, each under a new epoch.

    Claims compete: one statement decides, so a record goes to one claimer and the others get none of it. `lease_seconds`
    defaults to the kind's. An empty list means that nothing matched now. With `or_nothing` that is not remembered under the
    key: NothingMatches is raised instead, and the claim may be tried again. Raises KindUnknown, Forbidden, PatternInvalid,
    RequestInvalid for a bound.
    """
    ids.check_client_id(worker, "a worker's name")
    if not 1 <= limit <= CLAIM_BATCH:
        raise RequestInvalid(f"a claim takes 1 to {CLAIM_BATCH} records")
    for attempt in range(REPLANS):
        kind, wanted = await matching(db, kinds, caller, now, kind_name, "claim", match, fresh=attempt > 0, guarded=True)
        seconds = checked_seconds(kind.lease_seconds if lease_seconds is None else lease_seconds)
        tx = Transaction(now)
        caller.guard(tx)
        guard_kinds(tx, [kind])
        taken = _plan(tx, caller, compile(wanted), kind_name, worker, limit, after(now, seconds), key, or_nothing)
        try:
            await db.commit(tx)
        except KindChanged:
            continue
        except AlreadyDone:
            return await _claimed_before(db, key)
        if or_nothing and not taken.rows:
            raise NothingMatches
        return sorted((_claim(row) for row in taken.rows), key=lambda one: (-one.record.priority, one.record.seq))
    raise KindConflict("the kind is being redeclared; try again")


def _plan(
    tx: Transaction,
    caller: Caller,
    compiled: Compiled,
    kind: str,
    worker: str,
    limit: int,
    expires_at: Instant,
    key: Key | None,
    or_nothing: bool,
) -> Answer:
    """Add the claim and its history to a transaction; the answer holds what was taken."""
    claim_id = ids.new("clm", tx.now)
    keys.remember(tx, key, {"claim": claim_id})
    taken = tx.run(
        statements.CLAIM.replace("{candidates}", claim_candidates(compiled)),
        **compiled.parameters,
        kind=kind,
        limit=limit,
        worker=worker,
        actor=caller.subject,
        claim=claim_id,
        expires_at=expires_at,
    )
    if or_nothing and key is not None:
        tx.require(statements.TAKEN, NothingMatches(), claim=claim_id, expires_at=expires_at)
    append_selected(
        tx, caller.subject, "record.claimed", statements.CLAIMED, many=limit > 1, expires_at=expires_at, claim=claim_id
    )
    return taken


async def renew(db: Database, caller: Caller, now: Instant, ref: ClaimRef, lease_seconds: float | None) -> RecordLease:
    """Extend the lease to `lease_seconds` from now, by default the kind's; a shorter wish leaves it as it is.

    Raises RecordUnknown, LeaseFenced for a stale or foreign epoch, LeaseExpired: an expired lease cannot be revived.
    """
    milliseconds = None if lease_seconds is None else round(checked_seconds(lease_seconds) * 1000)
    tx = Transaction(now)
    ref = fence(tx, caller, ref)
    renewed = tx.run(statements.RENEW, record=ref.record, epoch=ref.epoch, milliseconds=milliseconds)
    append_selected(tx, caller.subject, "record.renewed", statements.HELD, record=ref.record)
    await commit_fenced(db, caller, now, tx, ref)
    row = renewed.one()
    return RecordLease(row["epoch"], row["owner"], row["expires_at"], row["attempts"])


async def release(db: Database, caller: Caller, now: Instant, ref: ClaimRef, key: Key | None = None) -> None:
    """Give the record back unworked: it is claimable at once and the attempt is not counted.

    The same again under the same key is done already. Raises RecordUnknown, LeaseFenced, LeaseExpired,
    IdempotencyConflict.
    """
    tx = Transaction(now)
    ref = fence(tx, caller, ref, key)
    append_selected(tx, caller.subject, "record.released", statements.HELD, record=ref.record)
    tx.run(statements.RELEASE, record=ref.record, epoch=ref.epoch)
    try:
        await commit_fenced(db, caller, now, tx, ref)
    except AlreadyDone:
        await done_before(db, key)


def fence(tx: Transaction, caller: Caller, ref: ClaimRef, key: Key | None = None) -> ClaimRef:
    """Let the transaction commit only under this claim (clause leases.fence); the answer is the claim to name in it.

    An epoch outside 1 to MAX_EPOCH is nobody's, and is named 0. With a key that was used before the commit raises
    AlreadyDone, whatever became of the claim; see `done_before`.
    """
    caller.guard(tx)
    keys.remember(tx, key, {"record": ref.record})
    epoch = ref.epoch if 1 <= ref.epoch <= MAX_EPOCH else 0
    where: dict[str, Scalar] = {"record": ref.record, "epoch": epoch, "actor": caller.subject}
    tx.require(statements.EXISTS, RecordUnknown(), record=ref.record)
    tx.require(statements.EPOCH_IS_MINE, LeaseFenced(), **where)
    tx.require(statements.LEASE_IS_CURRENT, LeaseExpired(), record=ref.record, epoch=epoch)
    hold(tx, key, ref.record)
    return ClaimRef(ref.record, epoch)


async def commit_fenced(db: Database, caller: Caller, now: Instant, tx: Transaction, ref: ClaimRef) -> None:
    """Commit what `fence` guards. A record that the caller may neither claim nor read is unknown to it, not fenced."""
    try:
        await db.commit(tx)
    except LeaseFenced as refusal:
        raise await hidden(db, Kinds(), caller, now, ref, refusal) from None


async def hidden(
    db: Database, kinds: Kinds, caller: Caller, now: Instant, ref: ClaimRef, refusal: LeaseFenced | LeaseExpired
) -> LeaseFenced | LeaseExpired | RecordUnknown:
    """The refusal, or RecordUnknown in its place where it would tell of a record that is not the caller's to see."""
    if caller.is_root or isinstance(refusal, LeaseExpired):
        return refusal
    found = await query.read(db, [ref.record])
    if await visible(db, kinds, caller, now, found, "claim") or await visible(db, kinds, caller, now, found):
        return refusal
    return RecordUnknown()


def checked_seconds(seconds: float) -> float:
    """A lease's length, unchanged. Raises RequestInvalid unless it lies between 1 ms and LEASE_SECONDS."""
    if not 0.001 <= seconds <= LEASE_SECONDS:
        message = f"a lease lasts 0.001 to {LEASE_SECONDS} seconds"
        raise RequestInvalid(message, errors=[{"pointer": "/lease_seconds", "message": message}])
    return seconds


async def done_before(db: Database, key: Key | None) -> Record:
    """The record that the key's first request worked on, as it is now.

    Raises IdempotencyConflict when that request was another one, RecordUnknown when the record is gone.
    """
    reference = await keys.recall(db, key)
    found = await query.read(db, [reference["record"]])
    if not found:
        raise RecordUnknown()
    return found[0]


async def _claimed_before(db: Database, key: Key | None) -> list[Claim]:
    reference = await keys.recall(db, key)
    reading = Reading()
    rows = reading.ask(statements.OF_CLAIM, claim=reference["claim"])
    await db.read(reading)
    return [_claim(row) for row in rows.rows]


def _claim(row: Row) -> Claim:
    lease = RecordLease(row["epoch"], row["owner"], row["expires_at"], row["attempts"])
    return Claim(Record.of(row), lease)

"""Failing a claim, and what the clock does when a lease runs out (clauses records.fail, records.recover)."""

from moorage.catalog.access import Caller
from moorage.catalog.kinds import Kinds
from moorage.history.append import append_selected
from moorage.idempotency.keys import AlreadyDone, Key
from moorage.kernel import canonical
from moorage.kernel.errors import FailureTag, LeaseExpired, RequestInvalid
from moorage.kernel.instants import Instant
from moorage.kernel.limits import RETRY_SECONDS, TEXT_CHARACTERS
from moorage.records import admission, statements
from moorage.records.claim import commit_fenced, done_before, fence
from moorage.records.model import ClaimRef, Failure, Record
from moorage.store.ports import Database
from moorage.store.transaction import Answer, Transaction


async def fail(
    db: Database,
    kinds: Kinds,
    caller: Caller,
    now: Instant,
    ref: ClaimRef,
    failure: Failure,
    retry_after_seconds: float | None = None,
    dead_letter: bool = False,
    key: Key | None = None,
) -> Record:
    """End the attempt as failed: the record is ready again after the delay, or dead after its last attempt, or at once
    when `dead_letter` says that no other attempt could succeed.

    `retry_after_seconds` (0 to RETRY_SECONDS) supersedes the kind's own delay. The same again under the same key answers
    the record as it is now. Raises RecordUnknown, Forbidden for a record that the caller may
    read and not claim, LeaseFenced, LeaseExpired, RequestInvalid, IdempotencyConflict.
    """
    if len(failure.message) > TEXT_CHARACTERS:
        raise RequestInvalid(f"an error's message has at most {TEXT_CHARACTERS} characters")
    if retry_after_seconds is not None and not 0 <= retry_after_seconds <= RETRY_SECONDS:
        raise RequestInvalid(f"retry_after_seconds lies between 0 and {RETRY_SECONDS}")
    await admission.admit(db, kinds, caller, now, ref.record)
    tx = Transaction(now)
    ref = fence(tx, caller, ref, key)
    ended = tx.run(
        statements.FAIL,
        record=ref.record,
        epoch=ref.epoch,
        dead_letter=dead_letter,
        delay=None if retry_after_seconds is None else round(retry_after_seconds * 1000),
        failure=canonical.dumps({"tag": failure.tag.value, "message": failure.message}),
    )
    append_selected(tx, caller.subject, "record.failed", statements.ENDED_ATTEMPT, record=ref.record)
    append_selected(tx, caller.subject, "record.dead_lettered", statements.DIED_NOW, record=ref.record)
    try:
        await commit_fenced(db, kinds, caller, now, tx, ref)
    except AlreadyDone:
        return await done_before(db, kinds, caller, now, key)
    return Record.of(ended.one())


def plan_expiry(tx: Transaction, actor: str, record: str, due: str) -> Answer:
    """End the attempt of a record whose lease, the one that ends at `due`, has run out at the transaction's instant; changes
    nothing otherwise.

    It counts as an attempt without delay; the last one is dead-lettered with a reason that names the lease.
    """
    failure = canonical.dumps(
        {"tag": FailureTag.TIMED_OUT.value, "code": LeaseExpired.__name__, "message": LeaseExpired.meaning()}
    )
    append_selected(tx, actor, "record.lease_expired", statements.RUNNING_OUT, record=record, due=due)
    last = statements.RUNNING_OUT_OF_ATTEMPTS
    append_selected(tx, actor, "record.dead_lettered", last, record=record, due=due, failure=failure)
    return tx.run(statements.EXPIRE, record=record, due=due, dead_letter=False, delay=0, failure=failure)

"""Cancelling a record: it ends as dead before anyone settles it."""

from moorage.catalog.access import Caller
from moorage.catalog.kinds import Kinds
from moorage.history.append import append_selected
from moorage.idempotency import keys
from moorage.idempotency.keys import AlreadyDone, Key
from moorage.kernel import canonical
from moorage.kernel.errors import FailureTag, Forbidden, RecordEnded, RecordUnknown
from moorage.kernel.instants import Instant
from moorage.kernel.refusals import check_reason
from moorage.records import query
from moorage.records import retention_statements as statements
from moorage.records.claim import recalled
from moorage.records.holds import hold
from moorage.records.model import Record
from moorage.records.visibility import visible
from moorage.store.ports import Database
from moorage.store.transaction import Transaction


async def cancel(
    db: Database, kinds: Kinds, caller: Caller, now: Instant, record: str, reason: str, key: Key | None = None
) -> Record:
    """End a ready, waiting or claimed record as dead, with the tag Canceled and the reason; history keeps it.

    Whoever holds it is fenced: its next write raises LeaseFenced. No attempt is blamed, and the dead letter can be
    requeued. It takes a grant to operate on the record, or a grant to publish it held by the subject that created it.
    The same again under the same key answers the record as it is now. Raises RecordUnknown, RecordRemoved, Forbidden,
    RecordEnded, RequestInvalid for the reason, IdempotencyConflict.
    """
    check_reason(reason)
    await _demand(db, kinds, caller, now, record)
    tx = Transaction(now)
    caller.guard(tx)
    keys.remember(tx, key, {"record": record})
    tx.require(statements.IS_LIVE, RecordEnded(), record=record)
    append_selected(tx, caller.subject, "record.canceled", statements.CANCELING, record=record, reason=reason)
    failure = canonical.dumps({"tag": FailureTag.CANCELED.value, "message": reason})
    canceled = tx.run(statements.CANCEL, record=record, failure=failure)
    hold(tx, key, record)
    try:
        await db.commit(tx)
    except AlreadyDone:
        return await recalled(db, key)
    return Record.of(canceled.one())


async def _demand(db: Database, kinds: Kinds, caller: Caller, now: Instant, record: str) -> None:
    """Raise Forbidden for a record that the caller may see and not cancel, RecordUnknown for one that it may not see."""
    found = await query.read(db, [record])
    if not found:
        raise await query.absent(db, caller, record)
    if await visible(db, kinds, caller, now, found, "operate"):
        return
    if found[0].created_by == caller.subject and await visible(db, kinds, caller, now, found, "publish"):
        return
    if await visible(db, kinds, caller, now, found):
        raise Forbidden("the credential grants neither to operate on the record nor to publish it as its creator")
    raise RecordUnknown()

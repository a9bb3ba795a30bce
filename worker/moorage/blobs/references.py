"""References to objects, planned into the transaction of whoever needs them (clause blobs.order).

A writer calls `hold` before it writes the object and `confirm` in the transaction that stores the row; `abandon` when it
gives up. Whoever drops the row calls `release` in the same transaction. The object itself is deleted afterwards, by
`deletion`, and only while nothing refers to it.
"""

from collections.abc import Sequence
from typing import Final

from moorage.blobs import statements
from moorage.kernel import canonical
from moorage.kernel.errors import BlobBusy, UploadTimedOut
from moorage.kernel.instants import Instant, after
from moorage.kernel.limits import ARTIFACT_UPLOAD_SECONDS
from moorage.store.transaction import Answer, Reading, Scalar, Transaction

SWEEP_PERIOD_MS: Final = 24 * 3_600_000


def hold(tx: Transaction, sha256: str, upload: str) -> Instant:
    """Let the upload count as a reference for ARTIFACT_UPLOAD_SECONDS; answers until when.

    The commit raises BlobBusy while earlier bytes of this digest are being deleted.
    """
    until = after(tx.now, ARTIFACT_UPLOAD_SECONDS)
    tx.require(statements.IS_NOT_BEING_DELETED, BlobBusy(retry_after=1), sha256=sha256)
    tx.run(statements.HOLD, sha256=sha256, holder=upload, until=until)
    tx.run(statements.PLAN_SWEEP, period=SWEEP_PERIOD_MS)
    return until


def confirm(tx: Transaction, sha256: str, upload: str, holder: str) -> None:
    """Turn the upload into the reference of `holder`, for good. The commit raises UploadTimedOut when it took too long."""
    require_held(tx, sha256, upload)
    tx.run(statements.CONFIRM, sha256=sha256, upload=upload, holder=holder)


def require_held(tx: Transaction, sha256: str, upload: str) -> None:
    """Let the transaction commit only while the upload counts; it aborts with UploadTimedOut."""
    tx.require(statements.IS_HELD, UploadTimedOut(), sha256=sha256, upload=upload)


def abandon(tx: Transaction, sha256: str, upload: str) -> None:
    """Give up an upload; the object is deleted if nothing else refers to it. A confirmed upload is left alone."""
    tx.run(statements.ABANDON, sha256=sha256, upload=upload)
    plan_deletion(tx, sha256)


def release_all(tx: Transaction, holders: Sequence[str]) -> None:
    """Drop whatever references these holders have; objects to which they were the last are deleted."""
    release_selected(tx, statements.LISTED, holders=canonical.compact(list(holders)))


def release_selected(tx: Transaction, selection: str, **parameters: Scalar) -> None:
    """The same for the holders that `selection` gives as `value` at this place in the transaction."""
    tx.run(statements.PLAN_DELETIONS_OF.replace("{holders}", selection), **parameters)
    tx.run(statements.RELEASE_ALL.replace("{holders}", selection), **parameters)


def release(tx: Transaction, sha256: str, holder: str) -> None:
    """Drop the reference of `holder`; the object is deleted if it was the last."""
    tx.run(statements.RELEASE, sha256=sha256, holder=holder)
    plan_deletion(tx, sha256)


def plan_deletion(tx: Transaction, sha256: str) -> None:
    """Have the object deleted unless a reference to it counts."""
    tx.run(statements.PLAN_DELETION, sha256=sha256)


def hold_all(tx: Transaction, digests: Sequence[str], upload: str) -> None:
    """`hold` for several objects of one upload."""
    until = after(tx.now, ARTIFACT_UPLOAD_SECONDS)
    told = canonical.compact(list(digests))
    tx.require(statements.NONE_IS_BEING_DELETED, BlobBusy(retry_after=1), digests=told)
    tx.run(statements.HOLD_ALL, digests=told, holder=upload, until=until)
    tx.run(statements.PLAN_SWEEP, period=SWEEP_PERIOD_MS)


def never_held(reading: Reading, digests: Sequence[str], upload: str, holder: str) -> Answer:
    """Ask which of the objects (`sha256`) were never uploaded under this upload, nor are they the holder's."""
    told = canonical.compact(list(digests))
    return reading.ask(statements.NEVER_HELD, digests=told, upload=upload, holder=holder)


def confirm_all(tx: Transaction, digests: Sequence[str], upload: str, holder: str) -> None:
    """Let `holder` refer to several objects of an upload, or to what it refers to already, and end the upload of these.

    The commit raises UploadTimedOut when one of them is neither.
    """
    told = canonical.compact(list(digests))
    tx.require(statements.ALL_ARE_HELD, UploadTimedOut(), digests=told, upload=upload, holder=holder)
    tx.run(statements.REFER_ALL, digests=told, holder=holder)
    tx.run(statements.END_UPLOADS, digests=told, upload=upload)

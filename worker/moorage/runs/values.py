"""Values of the journal: small ones in their rows, large ones in the bucket (clauses blobs.inline-cutoff, blobs.order).

A large value is an object under the digest of its canonical JSON. It is held by an upload of the execution from before its
first byte, and by its holder from the transaction on that stores the row.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from moorage.blobs import deletion, references
from moorage.journal.model import Value
from moorage.kernel import canonical
from moorage.kernel.errors import BlobBusy, MoorageError, PayloadTooLarge, RequestInvalid
from moorage.kernel.instants import Instant
from moorage.kernel.limits import JOURNAL_INLINE_BYTES, JOURNAL_VALUE_BYTES
from moorage.store.ports import Blobs, Database
from moorage.store.transaction import Reading, Transaction

_AT_ONCE: Final = 6
"""Requests to the bucket that are under way at a time: what the platform lets one request open."""


def upload_of(execution_id: str) -> str:
    """The upload under which values of an execution wait for the row that needs them."""
    return f"{execution_id}:upload"


def is_large(value: Value | None) -> bool:
    """Whether a value belongs into the bucket, or is there already."""
    return value is not None and (value.blob is not None or value.size > JOURNAL_INLINE_BYTES)


def placed(value: Value) -> Value:
    """The value with the digest under which it lies in the bucket, if it belongs there.

    Raises PayloadTooLarge past JOURNAL_VALUE_BYTES.
    """
    if value.size > JOURNAL_VALUE_BYTES:
        raise PayloadTooLarge(
            f"a value of {value.size} bytes; the limit is {JOURNAL_VALUE_BYTES}", limit=int(JOURNAL_VALUE_BYTES)
        )
    if value.blob is not None or value.size <= JOURNAL_INLINE_BYTES or value.text is None:
        return value
    return replace(value, blob=canonical.digest(value.text))


async def store(db: Database, blobs: Blobs, now: Instant, execution_id: str, values: Iterable[Value]) -> None:
    """Put the texts of placed values into the bucket, held by the execution's upload.

    Bytes that an execution let go of may be due to be deleted when the same value comes again: that is seen to first.
    Raises BlobBusy while another deleter is at it.
    """
    texts = {value.blob: value.text for value in values if value.blob is not None and value.text is not None}
    if not texts:
        return
    try:
        await _hold(db, now, execution_id, list(texts))
    except BlobBusy:
        for digest in texts:
            await deletion.delete(db, blobs, now, digest)
        await _hold(db, now, execution_id, list(texts))
    waiting = list(texts.values())
    for start in range(0, len(waiting), _AT_ONCE):
        await asyncio.gather(*(blobs.put(text.encode()) for text in waiting[start : start + _AT_ONCE]))


async def _hold(db: Database, now: Instant, execution_id: str, digests: Sequence[str]) -> None:
    tx = Transaction(now)
    references.hold_all(tx, digests, upload_of(execution_id))
    await db.commit(tx)


async def give_back(db: Database, now: Instant, execution_id: str, values: Iterable[Value]) -> None:
    """End the upload of values that no row needs after all. If this fails the upload runs out by itself."""
    tx = Transaction(now)
    for digest in {value.blob for value in values if value.blob is not None and value.text is not None}:
        references.abandon(tx, digest, upload_of(execution_id))
    with suppress(MoorageError):
        await db.commit(tx)


async def require_uploaded(db: Database, now: Instant, execution_id: str, named: Mapping[str, str]) -> None:
    """Raise RequestInvalid for an object that the execution never uploaded; `named` has a digest's place in the request.

    To be asked when an upload is said to have taken too long: then whoever mistook a digest learns which it was.
    """
    reading = Reading()
    missing = references.never_held(reading, list(named), upload_of(execution_id), execution_id)
    await db.read(reading)
    errors = [
        {"pointer": named[one["sha256"]], "message": f"the execution has no upload of {one['sha256']}"}
        for one in missing.rows
    ]
    if errors:
        detail = f"{errors[0]['message']}: store the value there first, then name it"
        raise RequestInvalid(detail, errors=errors)


async def load(blobs: Blobs, value: Value) -> Value:
    """The value with its text. Raises BlobMissing and BlobCorrupt with the reference, never gives another text."""
    if value.text is not None or value.blob is None:
        return value
    return replace(value, text=(await blobs.get(value.blob)).decode())


async def load_all(blobs: Blobs, values: Sequence[Value]) -> list[Value]:
    """The values with their texts, in their order. Raises BlobMissing, BlobCorrupt."""
    loaded: list[Value] = []
    for start in range(0, len(values), _AT_ONCE):
        loaded += await asyncio.gather(*(load(blobs, value) for value in values[start : start + _AT_ONCE]))
    return loaded

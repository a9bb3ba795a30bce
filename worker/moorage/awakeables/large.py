"""Payloads of more than JOURNAL_INLINE_BYTES: objects of the bucket, which the awakeable holds (clause blobs.inline-cutoff).

An object has the value that a journal records for the wait, so that a run's journal names the same object. It is written
before the row that names it, and only for a token whose awakeable can still be resolved (clause blobs.order).
"""

from dataclasses import replace

from moorage.awakeables import payloads, statements
from moorage.awakeables.model import Awakeable
from moorage.awakeables.payloads import Payload
from moorage.blobs import references
from moorage.blobs.writing import Guard, Writing
from moorage.kernel import canonical
from moorage.kernel.errors import BlobCorrupt, StorageCapabilityMissing
from moorage.kernel.instants import Instant
from moorage.store.ports import Blobs, Database
from moorage.store.transaction import Transaction


class Uploaded:
    """A large payload whose object is written and counts; `settle` plans its end into the awakeable's own transaction."""

    def __init__(self, writing: Writing, size: int) -> None:
        self._writing = writing
        self.sha256 = writing.sha256
        self.size = size

    def require(self, tx: Transaction) -> None:
        """Let the transaction commit only while the object still counts; it aborts with UploadTimedOut."""
        references.require_held(tx, self.sha256, self._writing.upload)

    def settle(self, tx: Transaction, token_sha256: str) -> None:
        """Give the object to the awakeable, if that was resolved with it, and otherwise let it go."""
        upload = self._writing.upload
        tx.run(statements.CONFIRM_PAYLOAD, sha256=self.sha256, upload=upload, token_sha256=token_sha256)
        references.abandon(tx, self.sha256, upload)

    async def give_up(self) -> None:
        """Let the object go after a transaction that failed."""
        await self._writing.give_up()


async def upload(db: Database, blobs: Blobs | None, now: Instant, payload: Payload, guard: Guard) -> Uploaded:
    """Write a large payload. Raises StorageCapabilityMissing without a bucket, and BlobBusy."""
    content = payload.outcome.encode()
    writing = Writing(db, bucket(blobs), now, content, canonical.digest(payload.outcome))
    await writing.hold(guard)
    try:
        await writing.put()
    except BaseException:
        await writing.give_up()
        raise
    return Uploaded(writing, len(content))


async def load(blobs: Blobs | None, awakeable: Awakeable) -> Awakeable:
    """The awakeable with its payload. Raises StorageCapabilityMissing, BlobMissing, BlobCorrupt."""
    if awakeable.payload_blob is None:
        return awakeable
    stored = await bucket(blobs).get(awakeable.payload_blob)
    try:
        return replace(awakeable, payload=payloads.of_outcome(stored.decode()))
    except UnicodeDecodeError:
        raise BlobCorrupt from None


def bucket(blobs: Blobs | None) -> Blobs:
    """The bucket, for what needs one."""
    if blobs is None:
        raise StorageCapabilityMissing("a payload of more than a mebibyte needs the deployment's bucket")
    return blobs

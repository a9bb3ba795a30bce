"""What the clock does for objects: planned deletions, uploads that were never finished, the daily sweep."""

from typing import Final

from moorage.blobs import deletion, statements
from moorage.blobs.references import SWEEP_PERIOD_MS
from moorage.kernel import canonical
from moorage.kernel.instants import Instant
from moorage.kernel.limits import BLOB_GRACE_SECONDS
from moorage.store.ports import Blobs, Database
from moorage.store.transaction import Transaction

SWEEP_BATCH: Final = 500
"""Objects that one batch of the sweep looks at."""


class BlobDeletions:
    """An object whose deletion is planned is deleted."""

    name = "blob_deleted"
    shard: Final = "upkeep"
    earliest = statements.EARLIEST_DELETION
    page = statements.DUE_DELETIONS

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Delete one object; one that another deleter has taken is left to it."""
        sha256, _, _ = item.rpartition("@")
        return int(await deletion.delete(db, self._blobs, now, sha256))


class AbandonedUploads:
    """An upload that was neither finished nor given up counts no more, and what it may have left is deleted."""

    name = "upload_abandoned"
    shard: Final = "upkeep"
    earliest = statements.EARLIEST_ABANDONED
    page = statements.ABANDONED

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """End one upload that has run out of time."""
        sha256, _, upload = item.partition("/")
        tx = Transaction(now)
        ended = tx.run(statements.END_ABANDONED, sha256=sha256, upload=upload)
        tx.run(statements.PLAN_DELETION, sha256=sha256)
        await db.commit(tx)
        return len(ended.rows)


class BlobSweep:
    """Once a day every object that nothing refers to and that is older than an hour is deleted (clause blobs.sweep).

    It walks the bucket in order of digest, one batch a firing, and keeps in the database how far it has come. What it
    counts are objects and spooled uploads, and the batch itself.
    """

    name = "blob_sweep"
    shard: Final = "upkeep"
    coalesces = True
    earliest = statements.SWEEP
    page = statements.DUE_SWEEP

    def __init__(self, blobs: Blobs, batch: int = SWEEP_BATCH) -> None:
        self._blobs = blobs
        self._batch = batch

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Compare one batch of objects with the references; those without any are given to BlobDeletions."""
        before = item.removeprefix("after:")
        old = Instant(now - int(BLOB_GRACE_SECONDS) * 1000)
        if not before:
            await self._blobs.discard_before(old)
        found = await self._blobs.page(before, self._batch)
        digests = [one.sha256 for one in found if one.uploaded < old]
        last = found[-1].sha256 if len(found) == self._batch else ""
        tx = Transaction(now)
        advanced = tx.run(statements.ADVANCE_SWEEP, before=before, after=last, period=SWEEP_PERIOD_MS)
        tx.run(statements.PLAN_DELETIONS, digests=canonical.dumps(digests))
        await db.commit(tx)
        return len(advanced.rows)

"""Removing an artifact's bytes for good (clause artifacts.shred).

What goes is the artifact's reference to them, in the transaction that tells history why; the bytes follow when it was the
last. Record, digest, lineage and history stay.
"""

from contextlib import suppress
from typing import Final

from moorage.blobs import deletion, references
from moorage.catalog.access import Caller
from moorage.catalog.kinds import Kinds
from moorage.history.append import CLOCK, append_selected
from moorage.kernel.errors import DeploymentError, Forbidden, RecordUnknown
from moorage.kernel.instants import Instant
from moorage.kernel.refusals import check_reason
from moorage.records.artifacts import content, statements
from moorage.records.artifacts.model import Artifact
from moorage.store.ports import Blobs, Database
from moorage.store.transaction import Reading, Transaction


async def shred(
    db: Database, blobs: Blobs, kinds: Kinds, caller: Caller, now: Instant, record: str, reason: str
) -> Artifact:
    """Shred an artifact; one that was shredded before is answered as it is.

    Bytes that another artifact refers to stay until that is shredded too. Raises RecordUnknown, Forbidden without a
    grant to operate on it.
    """
    check_reason(reason)
    artifact = await _operable(db, kinds, caller, now, record)
    tx = Transaction(now)
    caller.guard(tx)
    append_selected(tx, caller.subject, "artifact.shredded", statements.SHREDDING, record=record, reason=reason)
    tx.run(statements.FORGET_DEADLINE, record=record)
    references.release(tx, artifact.digest, record)
    await db.commit(tx)
    # It is planned: where this fails, the Clock does it as soon as the storage is back.
    with suppress(DeploymentError):
        await deletion.delete(db, blobs, now, artifact.digest)
    return Artifact(artifact.record, shredded=True)


async def _operable(db: Database, kinds: Kinds, caller: Caller, now: Instant, record: str) -> Artifact:
    try:
        return await content.show(db, kinds, caller, now, record, "operate")
    except RecordUnknown:
        artifact = await content.show(db, kinds, caller, now, record)
        raise Forbidden(f"the credential does not grant operate on the artifact {artifact.record.id}") from None


class ArtifactOrphans:
    """An artifact that no record has named as a parent in the time that its uploader gave is shredded (artifacts.orphan)."""

    name = "artifact_orphaned"
    shard: Final = "upkeep"
    earliest = statements.EARLIEST_DEADLINE
    page = statements.PASSED_DEADLINES

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Collect one artifact if nothing is attached to it; one that was attached stays for good."""
        reading = Reading()
        found = reading.ask(statements.ORPHANS_DIGEST, record=item, now=now)
        await db.read(reading)
        tx = Transaction(now)
        if found.rows:
            sha256 = found.rows[0]["digest"]
            append_selected(tx, CLOCK, "artifact.orphaned", statements.ORPHANED, record=item)
            tx.run(statements.RELEASE_ORPHAN, record=item, sha256=sha256)
            references.plan_deletion(tx, sha256)
        ended = tx.run(statements.END_DEADLINE, record=item)
        await db.commit(tx)
        return len(ended.rows)

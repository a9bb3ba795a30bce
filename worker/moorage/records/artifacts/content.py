"""Looking at artifacts and reading their bytes (clause blobs.verify)."""

from moorage.catalog.access import Action, Caller
from moorage.catalog.builtin import ARTIFACT
from moorage.catalog.kinds import Kinds
from moorage.kernel import canonical
from moorage.kernel.errors import ArtifactShredded, BlobMissing
from moorage.kernel.instants import Instant
from moorage.records import query
from moorage.records import statements as records
from moorage.records.artifacts import statements
from moorage.records.artifacts.model import Artifact
from moorage.records.model import Record
from moorage.records.visibility import visible
from moorage.store.ports import BlobRange, Blobs, ByteStream, Database
from moorage.store.transaction import Reading


async def show(db: Database, kinds: Kinds, caller: Caller, now: Instant, record: str, action: Action = "read") -> Artifact:
    """One artifact. Raises RecordUnknown when there is none on which the caller may do `action`, RecordRemoved when there
    was (see `query.absent`)."""
    artifact = await _find(db, record)
    if artifact is None or not await visible(db, kinds, caller, now, [artifact.record], action):
        raise await query.absent(db, caller, record)
    return artifact


async def read(db: Database, blobs: Blobs, artifact: Artifact, span: BlobRange | None = None) -> ByteStream:
    """The bytes of an artifact, or of a part of it, as they come; a whole read is verified (see `Blobs.open`).

    Raises ArtifactShredded, also when that happened since the artifact was looked at, BlobMissing and BlobCorrupt.
    """
    if artifact.shredded:
        raise ArtifactShredded()
    try:
        return await blobs.open(artifact.digest, span)
    except BlobMissing:
        again = await _find(db, artifact.record.id)
        if again is None or again.shredded:
            raise ArtifactShredded() from None
        raise


async def _find(db: Database, record: str) -> Artifact | None:
    reading = Reading()
    rows = reading.ask(records.GET, ids=canonical.compact([record]))
    stored = reading.ask(statements.HAS_BYTES, record=record)
    await db.read(reading)
    row = rows.first()
    if row is None or row["kind"] != ARTIFACT:
        return None
    return Artifact(Record.of(row), shredded=not stored.rows)

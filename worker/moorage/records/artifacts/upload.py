"""Taking an artifact in (clauses artifacts.publish, blobs.order).

The bytes come first and the record last: an upload that fails anywhere has published nothing. While it is under way it
counts as a reference to its digest, so that equal bytes which something else just dropped are not deleted under it.

    digest declared            straight to blobs/<sha256>; the bucket refuses other bytes
    unknown, at most 1 MiB     hashed in memory, then the same
    unknown, larger            to uploads/<id>, read back for the digest, then copied to blobs/<sha256>

So a client that can hash first costs the bucket one write, one that cannot costs it two, and neither costs memory.
"""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress

from moorage.blobs import deletion, references
from moorage.catalog.access import Caller
from moorage.catalog.builtin import ARTIFACT, BUILT_IN
from moorage.catalog.declare import declare
from moorage.catalog.kinds import Kinds
from moorage.catalog.model import KindDeclaration
from moorage.idempotency.keys import Key
from moorage.kernel import ids
from moorage.kernel.errors import BlobBusy, DeploymentError, KindUnknown, PayloadTooLarge
from moorage.kernel.instants import Instant, after
from moorage.kernel.limits import ARTIFACT_BYTES, ARTIFACT_MEMORY_BYTES
from moorage.records import publish
from moorage.records.artifacts import statements
from moorage.records.artifacts.model import Artifact, Upload
from moorage.records.model import Draft
from moorage.records.publish import Planned
from moorage.records.visibility import visible_kind
from moorage.store.ports import Blobs, ByteStream, Database, HeldBytes
from moorage.store.transaction import Transaction

_ITSELF = Caller("moorage")
"""The product, as the declarer of its own kind."""

_TRIES = 3


class Uploading:
    """One upload: where it stores, for whom, and by which clock, which moves while the bytes come."""

    def __init__(self, db: Database, blobs: Blobs, kinds: Kinds, caller: Caller, clock: Callable[[], Instant]) -> None:
        self._db = db
        self._blobs = blobs
        self._kinds = kinds
        self._caller = caller
        self._clock = clock
        self._name = ids.new("upl", clock())
        self._held: str | None = None
        self._published = False
        self.wake_at: Instant | None = None
        """When the Clock has to look, whether or not the upload succeeds; None when nothing was begun."""

    async def run(self, upload: Upload, content: ByteStream, key_of: Callable[[str], Key | None]) -> Artifact:
        """Take the bytes in and publish their record. `key_of` gives the use of an Idempotency-Key for a digest.

        Raises KindUnknown and Forbidden before any byte is read, PayloadTooLarge, DigestMismatch, BlobBusy,
        UploadTimedOut, RecordExists, IdempotencyConflict; and nothing is left then. The same key with the same content
        answers the first artifact.
        """
        if upload.size > ARTIFACT_BYTES:
            raise PayloadTooLarge(f"an artifact has at most {ARTIFACT_BYTES} bytes", limit=int(ARTIFACT_BYTES))
        await self._admit(upload)
        try:
            digest = await self._store(upload, content)
            return await self._publish(upload, digest, key_of(digest))
        finally:
            await self._end()

    async def _admit(self, upload: Upload) -> None:
        """Refuse what can be refused without the bytes."""
        now = self._clock()
        if self._caller.may("publish", ARTIFACT):
            try:
                await self._kinds.get(self._db, now, ARTIFACT, guarded=True)
            except KindUnknown:
                declaration = KindDeclaration(paths=dict(BUILT_IN[ARTIFACT]))
                await declare(self._db, _ITSELF, now, self._kinds, ARTIFACT, declaration)
        if upload.digest is None:
            await visible_kind(self._db, self._kinds, self._caller, now, ARTIFACT, "publish", guarded=True)
        else:
            await publish.plan(self._db, self._kinds, self._caller, now, [_draft(upload, upload.digest)])

    async def _store(self, upload: Upload, content: ByteStream) -> str:
        """Have the bytes in the bucket, under a reference that counts; answers their digest."""
        if upload.digest is not None:
            await self._hold(upload.digest)
            await self._blobs.put_stream(content, upload.digest)
            return upload.digest
        if upload.size <= ARTIFACT_MEMORY_BYTES:
            held = b"".join([piece async for piece in content])
            digest = hashlib.sha256(held).hexdigest()
            await self._hold(digest)
            await self._blobs.put_stream(HeldBytes(held), digest)
            return digest
        try:
            digest = await self._blobs.spool(content, self._name)
            await self._hold(digest)
            await self._blobs.adopt(self._name, digest)
        except BaseException:
            # The sweep forgets what cannot be discarded now.
            with suppress(DeploymentError):
                await self._blobs.discard(self._name)
            raise
        return digest

    async def _hold(self, digest: str) -> None:
        """Let the upload count. Where earlier bytes of the digest are due to be deleted, see to that first."""
        for _ in range(_TRIES):
            tx = Transaction(self._clock())
            self._caller.guard(tx)
            until = references.hold(tx, digest, self._name)
            try:
                await self._db.commit(tx)
            except BlobBusy:
                if await deletion.delete(self._db, self._blobs, tx.now, digest):
                    continue
                raise
            self._held, self.wake_at = digest, until
            return
        raise BlobBusy(retry_after=1)

    async def _publish(self, upload: Upload, digest: str, key: Key | None) -> Artifact:
        now = self._clock()
        mine: list[str] = []

        def also(tx: Transaction, planned: Sequence[Planned]) -> None:
            mine[:] = [planned[0].id]
            references.confirm(tx, digest, self._name, planned[0].id)
            if upload.attach_within is not None:
                tx.run(statements.SET_DEADLINE, record=planned[0].id, attach_by=after(now, upload.attach_within))

        draft = _draft(upload, digest)
        [record] = await publish.publish(self._db, self._kinds, self._caller, now, [draft], key, also)
        self._published = [record.id] == mine
        if self._published and upload.attach_within is not None:
            self.wake_at = min(after(now, upload.attach_within), self.wake_at or now)
        return Artifact(record, shredded=False)

    async def _end(self) -> None:
        """Let the upload count no more, unless it became the record's reference, and delete what it left.

        Where the storage fails here, the Clock does the same when the upload's time is over.
        """
        if self._held is None or self._published:
            return
        tx = Transaction(self._clock())
        references.abandon(tx, self._held, self._name)
        with suppress(DeploymentError):
            await self._db.commit(tx)
            self.wake_at = tx.now
            await deletion.delete(self._db, self._blobs, tx.now, self._held)


def _draft(upload: Upload, digest: str) -> Draft:
    body = {"digest": digest, "media_type": upload.media_type, "size": upload.size}
    return Draft(ARTIFACT, body, id=upload.id)

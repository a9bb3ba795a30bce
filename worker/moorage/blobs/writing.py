"""Writing bytes held in memory, under a reference that counts from before the first of them (clause blobs.order)."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from moorage.blobs import deletion, references
from moorage.kernel import ids
from moorage.kernel.errors import BlobBusy, DeploymentError
from moorage.kernel.instants import Instant
from moorage.store.ports import Blobs, Database
from moorage.store.transaction import Transaction

_TRIES: Final = 3

Guard = Callable[[Transaction], None]
"""What must hold for the upload to begin, as preconditions of its transaction."""


class Writing:
    """One object on its way into the bucket. `upload` holds it until a transaction confirms or abandons that.

    `hold` and `put` are the first half; the second is the caller's own transaction, with `references.confirm`. Who cannot
    go on calls `give_up`; who dies is cleaned up after by the Clock, ARTIFACT_UPLOAD_SECONDS later.
    """

    def __init__(self, db: Database, blobs: Blobs, now: Instant, content: bytes, sha256: str) -> None:
        self._db = db
        self._blobs = blobs
        self._now = now
        self._content = content
        self.sha256 = sha256
        self.upload = ids.new("upl", now)

    async def hold(self, guard: Guard) -> None:
        """Let the upload count. Where earlier bytes of the digest are due to be deleted, see to that first.

        Raises BlobBusy while another deleter is at it, and what `guard` requires.
        """
        for _ in range(_TRIES):
            tx = Transaction(self._now)
            guard(tx)
            references.hold(tx, self.sha256, self.upload)
            try:
                await self._db.commit(tx)
            except BlobBusy:
                if await deletion.delete(self._db, self._blobs, self._now, self.sha256):
                    continue
                raise
            return
        raise BlobBusy(retry_after=1)

    async def put(self) -> None:
        """Write the bytes; equal ones that are there already are left as they are."""
        await self._blobs.put(self._content)

    async def give_up(self) -> None:
        """Let the upload count no more, and have the object deleted if nothing else refers to it. Never fails: what the
        storage refuses now the Clock does later."""
        tx = Transaction(self._now)
        references.abandon(tx, self.sha256, self.upload)
        with suppress(DeploymentError):
            await self._db.commit(tx)

"""Deleting objects that nothing refers to (clause blobs.order)."""

from typing import Final

from moorage.blobs import statements
from moorage.kernel.instants import Instant
from moorage.store.ports import Blobs, Database
from moorage.store.transaction import Transaction

TAKEN_MS: Final = 300_000
"""How long a deleter has the object to itself: longer than any request to the bucket can be under way."""


async def delete(db: Database, blobs: Blobs, now: Instant, sha256: str) -> bool:
    """Delete an object whose deletion is planned and due; false when there is nothing to do or another is at it.

    A deleter that dies midway is followed by another after TAKEN_MS; until then nothing can refer to the digest anew.
    """
    until = Instant(now + TAKEN_MS)
    taking = Transaction(now)
    taken = taking.run(statements.TAKE_DELETION, sha256=sha256, until=until)
    await db.commit(taking)
    if not taken.rows:
        return False
    await blobs.delete(sha256)
    ending = Transaction(now)
    ending.run(statements.END_DELETION, sha256=sha256, until=until)
    await db.commit(ending)
    return True

"""What the rooms ask of storage. Adapters: SQLite and a directory on the host, D1 and R2 in `edge`.

One contract suite runs on every adapter (clause store.ports).
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from moorage.kernel.instants import Instant
from moorage.store.transaction import Reading, Transaction


@dataclass(slots=True)
class Cost:
    """What the work done through one Database instance cost, from the database's own counters."""

    trips: int = 0
    rows_read: int = 0
    rows_written: int = 0
    milliseconds: float = 0.0

    def add(self, rows_read: int, rows_written: int, milliseconds: float) -> None:
        """Count one round trip."""
        self.trips += 1
        self.rows_read += rows_read
        self.rows_written += rows_written
        self.milliseconds += milliseconds


class Database(Protocol):
    """The relational store. An instance serves one request and counts its cost."""

    cost: Cost

    async def read(self, reading: Reading) -> None:
        """Answer every question of `reading` from one consistent state, in one round trip.

        A read that gets no answer is sent again, at most 3 attempts of at most 15 s each. Raises
        StorageBindingUnavailable after the last (clause store.transport).
        """

    async def commit(self, transaction: Transaction) -> None:
        """Send the whole plan as one batch, once.

        Raises the error of the first broken precondition or foreseen uniqueness, with nothing written (clauses
        store.atomic, store.conflict); StorageBindingUnavailable when no answer came, and then it may or may not have
        been applied.
        """

    async def initialize(self, statements: list[str]) -> None:
        """Apply idempotent DDL and guarded inserts as one batch; may be sent again (clause store.initialize)."""


@dataclass(frozen=True, slots=True)
class BlobRange:
    """`length` bytes from `offset`."""

    offset: int
    length: int


class ByteStream(Protocol):
    """`size` bytes that pass through once, without being held as a whole.

    Where the platform has streams of its own, an adapter may know how to take the bytes without looking at each.
    """

    @property
    def size(self) -> int:
        """How many bytes there are."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """The bytes in order, in pieces. Raises RequestInvalid when a client's body ends early."""


class HeldBytes:
    """Bytes in memory, as a ByteStream."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    @property
    def size(self) -> int:
        return len(self.content)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.content


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """An object as a listing tells it; `uploaded` is when it was last written, by the bucket's own clock."""

    sha256: str
    size: int
    uploaded: Instant


class Blobs(Protocol):
    """Content-addressed bytes: a key is `blobs/<sha256>` (clause blobs.key)."""

    async def put(self, content: bytes) -> str:
        """Store bytes, answer their SHA-256 in hex. Equal content converges on one object (clause blobs.write)."""

    async def put_stream(self, content: ByteStream, sha256: str) -> None:
        """Store bytes whose digest was told before they came, holding none of them.

        All of the bytes are read and checked also when the object is there already: who asks has to have them. Raises
        DigestMismatch with nothing stored. It is sent once: the bytes come only once.
        """

    async def spool(self, content: ByteStream, name: str) -> str:
        """Keep bytes of unknown digest aside under `uploads/<name>`; answers the digest. Nothing can read them there."""

    async def adopt(self, name: str, sha256: str) -> None:
        """Make the spooled bytes the object of their digest. Raises BlobMissing when they are gone."""

    async def discard(self, name: str) -> None:
        """Forget spooled bytes; forgetting absent ones is fine."""

    async def discard_before(self, instant: Instant) -> int:
        """Forget what was spooled before an instant, a bounded number at a time; answers how many."""

    async def open(self, sha256: str, span: BlobRange | None = None) -> ByteStream:
        """The bytes as they come. `span` must lie within the object; only a whole read verifies the digest.

        The last piece of a whole read is given only after the digest was checked, so other bytes are never taken for
        complete: reading raises BlobCorrupt instead. What fits in one piece is checked here. Raises BlobMissing, and
        BlobCorrupt for an object that is too short for the span.
        """

    async def get(self, sha256: str, span: BlobRange | None = None) -> bytes:
        """The bytes. A whole read verifies the digest.

        Raises BlobMissing naming the reference when there is no object, BlobCorrupt when the digest differs (clause
        blobs.verify).
        """

    async def size(self, sha256: str) -> int | None:
        """Bytes of the object, or None when there is none."""

    async def delete(self, sha256: str) -> None:
        """Remove the object; removing an absent one is fine."""

    async def page(self, after: str, limit: int) -> Sequence[StoredBlob]:
        """The first `limit` objects whose digest is greater than `after`, in ascending order of digest."""

    def list(self) -> AsyncIterator[str]:
        """The digests of every object, in ascending order."""


class Frontiers(Protocol):
    """The bucket's side of the recovery identity: small objects at `recovery/<identity>.json`."""

    async def keep(self, identity: str, content: bytes) -> None:
        """Write the object of an identity, in the place of an earlier one."""

    async def read(self, identity: str) -> bytes | None:
        """Its bytes, or None when there is no such object."""

    async def identities(self) -> Sequence[str]:
        """The identities that have an object, oldest first; the first thousand."""

"""What the rooms ask of storage. Adapters: SQLite and a directory on the host, D1 and R2 in `edge`.

One contract suite runs on every adapter (clause store.ports).
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

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


class Blobs(Protocol):
    """Content-addressed bytes: a key is `blobs/<sha256>` (clause blobs.key)."""

    async def put(self, content: bytes) -> str:
        """Store bytes, answer their SHA-256 in hex. Equal content converges on one object (clause blobs.write)."""

    async def get(self, sha256: str, span: BlobRange | None = None) -> bytes:
        """The bytes. A whole read verifies the digest.

        Raises BlobMissing naming the reference when there is no object, BlobCorrupt when the digest differs (clause
        blobs.verify).
        """

    async def size(self, sha256: str) -> int | None:
        """Bytes of the object, or None when there is none."""

    async def delete(self, sha256: str) -> None:
        """Remove the object; removing an absent one is fine."""

    def list(self) -> AsyncIterator[str]:
        """The digests of every object, in ascending order."""

"""Streams and listings of the Blobs port: one suite, every adapter (clause store.ports)."""

import hashlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from moorage.kernel.errors import BlobCorrupt, BlobMissing, DigestMismatch, RequestInvalid
from moorage.kernel.instants import Instant
from moorage.store.ports import BlobRange, ByteStream, HeldBytes, StoredBlob
from tests.contract.adapters import SqliteStore, Store
from tests.contract.remote import D1Store

PIECE = 256 * 1024
CONTENTS = [b"", b"\0", b"text" * 1000, b"a" * PIECE, b"b" * (PIECE + 1), bytes(range(256)) * 4096]
ABSENT = "0" * 64


@dataclass(frozen=True, slots=True)
class Pieces:
    """A stream in pieces of a few bytes; it breaks off where `ends_early`."""

    content: bytes
    ends_early: bool = False

    @property
    def size(self) -> int:
        return len(self.content)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        step = max(1, len(self.content) // 7)
        for start in range(0, len(self.content), step):
            if self.ends_early and start > step:
                raise RequestInvalid("the body ended before it was complete")
            yield self.content[start : start + step]


def digest(content: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()


async def read(stream: ByteStream) -> bytes:
    """All of a stream."""
    return b"".join([piece async for piece in stream])


async def read_into(seen: list[bytes], store: Store, sha256: str) -> None:
    """Open an object and read as much as it gives."""
    async for piece in await store.blobs.open(sha256):
        seen.append(piece)  # noqa: PERF401 - what was read before it raised is what counts


async def keys(store: Store) -> list[str]:
    """Every key of the bucket, whatever its prefix."""
    if isinstance(store, D1Store):
        return await store.keys()
    assert isinstance(store, SqliteStore)
    return sorted(str(path.relative_to(store.folder)) for path in store.folder.rglob("*") if path.is_file())


@pytest.mark.clause("store.ports", "artifacts.publish", "blobs.verify")
@pytest.mark.parametrize("content", CONTENTS, ids=lambda one: f"{len(one)} bytes")
@pytest.mark.parametrize("held", [True, False], ids=["held", "stream"])
async def test_a_stream_is_stored_under_the_digest_it_was_told_to_have(store: Store, content: bytes, held: bool) -> None:
    sha256 = digest(content)
    for _ in range(2):
        await store.blobs.put_stream(HeldBytes(content) if held else Pieces(content), sha256)
        assert await keys(store) == [f"blobs/{sha256}"]
    stream = await store.blobs.open(sha256)
    assert (stream.size, await read(stream)) == (len(content), content)


@pytest.mark.clause("artifacts.publish", "blobs.verify")
@pytest.mark.parametrize("there", [True, False], ids=["stored before", "new"])
@pytest.mark.parametrize("held", [True, False], ids=["held", "stream"])
@pytest.mark.parametrize("content", [b"", b"other", b"o" * (PIECE + 1)], ids=lambda one: f"{len(one)} bytes")
async def test_other_bytes_than_told_are_refused_and_leave_nothing(
    store: Store, there: bool, held: bool, content: bytes
) -> None:
    sha256 = digest(b"content")
    if there:
        await store.blobs.put(b"content")
    before = await keys(store)
    with pytest.raises(DigestMismatch):
        await store.blobs.put_stream(HeldBytes(content) if held else Pieces(content), sha256)
    assert await keys(store) == before


async def test_a_stream_that_breaks_off_leaves_nothing(store: Store) -> None:
    broken = Pieces(b"content" * 100, ends_early=True)
    with pytest.raises(RequestInvalid):
        await store.blobs.put_stream(broken, digest(broken.content))
    with pytest.raises(RequestInvalid):
        await store.blobs.spool(broken, "upl_1")
    assert await keys(store) == []


@pytest.mark.clause("store.ports", "artifacts.publish")
@pytest.mark.parametrize("content", CONTENTS, ids=lambda one: f"{len(one)} bytes")
async def test_bytes_of_unknown_digest_wait_aside_until_they_are_adopted(store: Store, content: bytes) -> None:
    sha256 = await store.blobs.spool(Pieces(content), "upl_1")
    assert sha256 == digest(content)
    assert await keys(store) == ["uploads/upl_1"]
    assert [one async for one in store.blobs.list()] == []
    for name in ("upl_1", "upl_2"):
        await store.blobs.spool(Pieces(content), name)
        await store.blobs.adopt(name, sha256)
        assert await keys(store) == [f"blobs/{sha256}"]
    assert await store.blobs.get(sha256) == content


@pytest.mark.clause("store.ports")
async def test_what_waits_aside_can_be_forgotten(store: Store) -> None:
    for name in ("upl_1", "upl_2"):
        await store.blobs.spool(Pieces(b"content"), name)
    await store.blobs.discard("upl_1")
    await store.blobs.discard("upl_1")
    assert await keys(store) == ["uploads/upl_2"]
    now = int(time.time() * 1000)
    assert await store.blobs.discard_before(Instant(now - 600_000)) == 0
    assert await store.blobs.discard_before(Instant(now + 600_000)) == 1
    assert await keys(store) == []
    with pytest.raises(BlobMissing):
        await store.blobs.adopt("upl_2", digest(b"content"))


@pytest.mark.clause("blobs.verify")
@pytest.mark.parametrize(
    ("content", "damaged"),
    [
        (b"content", b"CONTENT"),
        (b"content", b""),
        (b"a" * (3 * PIECE), b"a" * (3 * PIECE - 1) + b"b"),
        (b"a" * (3 * PIECE), b"b" + b"a" * (3 * PIECE - 1)),
        (b"a" * (3 * PIECE), b"a" * (3 * PIECE - 1)),
        (b"a" * (3 * PIECE), b"a" * (3 * PIECE + 1)),
    ],
    ids=["small", "emptied", "end", "start", "shorter", "longer"],
)
async def test_a_damaged_object_is_never_read_to_its_end(store: Store, content: bytes, damaged: bytes) -> None:
    sha256 = await store.blobs.put(content)
    await store.damage_blob(sha256, damaged)
    seen: list[bytes] = []
    with pytest.raises(BlobCorrupt):
        await read_into(seen, store, sha256)
    assert sum(map(len, seen)) < max(1, len(damaged))


@pytest.mark.clause("blobs.verify")
async def test_a_missing_object_cannot_be_opened(store: Store) -> None:
    for span in (None, BlobRange(0, 1)):
        with pytest.raises(BlobMissing) as caught:
            await store.blobs.open(ABSENT, span)
        assert caught.value.members["reference"] == ABSENT


@pytest.mark.clause("store.ports")
@pytest.mark.parametrize(("offset", "length"), [(0, 1), (0, 7), (2, 3), (6, 1)])
async def test_a_span_is_opened_as_a_stream(store: Store, offset: int, length: int) -> None:
    sha256 = await store.blobs.put(b"content")
    stream = await store.blobs.open(sha256, BlobRange(offset, length))
    assert (stream.size, await read(stream)) == (length, b"content"[offset : offset + length])


@pytest.mark.clause("blobs.verify")
@pytest.mark.parametrize(("offset", "length"), [(7, 1), (99, 1), (5, 3)])
async def test_a_span_past_the_end_shows_damage(store: Store, offset: int, length: int) -> None:
    sha256 = await store.blobs.put(b"content")
    with pytest.raises(BlobCorrupt):
        await store.blobs.open(sha256, BlobRange(offset, length))


@pytest.mark.clause("store.ports", "blobs.sweep")
async def test_objects_are_listed_page_by_page_with_their_age(store: Store) -> None:
    before = int(time.time() * 1000) - 60_000
    put = sorted([await store.blobs.put(f"number {number}".encode()) for number in range(12)])
    await store.blobs.spool(Pieces(b"aside"), "upl_1")
    found: list[StoredBlob] = []
    after = ""
    while page := await store.blobs.page(after, 5):
        assert len(page) <= 5
        found += page
        after = page[-1].sha256
    assert [one.sha256 for one in found] == put
    assert {one.size for one in found} == {8, 9}
    assert all(before < one.uploaded < before + 120_000 for one in found)

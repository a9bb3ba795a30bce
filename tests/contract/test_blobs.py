"""The Blobs port: one suite, every adapter (clause store.ports)."""

import asyncio
import hashlib

import pytest

from moorage.kernel.errors import BlobCorrupt, BlobMissing
from moorage.store.blobkeys import blob_key
from moorage.store.ports import BlobRange
from tests.contract.adapters import SqliteStore, Store
from tests.contract.remote import D1Store

CONTENTS = [b"", b"\0", b"text", bytes(range(256)) * 4, b"x" * (1024 * 1024 + 1)]
ABSENT = "0" * 64


def digest(content: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()


async def digests(store: Store) -> list[str]:
    """Everything that the port lists."""
    return [one async for one in store.blobs.list()]


@pytest.mark.clause("store.ports", "blobs.verify")
@pytest.mark.parametrize("content", CONTENTS, ids=lambda one: f"{len(one)} bytes")
async def test_bytes_come_back_under_their_digest(store: Store, content: bytes) -> None:
    sha256 = await store.blobs.put(content)
    assert sha256 == digest(content)
    assert await store.blobs.get(sha256) == content
    assert await store.blobs.size(sha256) == len(content)
    assert await digests(store) == [sha256]


@pytest.mark.clause("blobs.key")
async def test_the_key_is_blobs_and_the_digest(store: Store) -> None:
    sha256 = await store.blobs.put(b"content")
    assert blob_key(sha256) == f"blobs/{digest(b'content')}"
    if isinstance(store, SqliteStore):
        assert [str(path.relative_to(store.folder)) for path in store.folder.rglob("*") if path.is_file()] == [
            f"blobs/{sha256}"
        ]


@pytest.mark.edge
@pytest.mark.clause("blobs.key")
async def test_the_bucket_holds_exactly_that_key(d1_store: D1Store) -> None:
    sha256 = await d1_store.blobs.put(b"content")
    assert await d1_store.keys() == [f"blobs/{sha256}"]


@pytest.mark.clause("blobs.key")
@pytest.mark.parametrize("reference", ["", "A" * 64, "0" * 63, "0" * 65, "../" + "0" * 61, "é" * 64, "0" * 63 + "\n"])
async def test_what_is_not_a_digest_is_no_key(store: Store, reference: str) -> None:
    with pytest.raises(BlobMissing, match="not a SHA-256 digest"):
        await store.blobs.get(reference)
    with pytest.raises(BlobMissing):
        await store.blobs.delete(reference)


@pytest.mark.clause("blobs.verify")
async def test_a_missing_object_is_an_error_with_the_reference(store: Store) -> None:
    with pytest.raises(BlobMissing) as caught:
        await store.blobs.get(ABSENT)
    assert caught.value.members["reference"] == ABSENT
    with pytest.raises(BlobMissing):
        await store.blobs.get(ABSENT, BlobRange(0, 1))
    assert await store.blobs.size(ABSENT) is None


@pytest.mark.clause("blobs.verify")
@pytest.mark.parametrize("damaged", [b"", b"conten", b"content!", b"CONTENT"], ids=ascii)
async def test_other_bytes_under_a_digest_are_never_given_out(store: Store, damaged: bytes) -> None:
    sha256 = await store.blobs.put(b"content")
    await store.damage_blob(sha256, damaged)
    with pytest.raises(BlobCorrupt) as caught:
        await store.blobs.get(sha256)
    assert caught.value.members["reference"] == sha256


@pytest.mark.clause("store.ports")
@pytest.mark.parametrize(("offset", "length"), [(0, 1), (0, 7), (2, 3), (6, 1), (5, 99), (7, 1), (99, 1), (0, 0)])
async def test_a_range_is_a_part_and_ends_where_the_object_ends(store: Store, offset: int, length: int) -> None:
    sha256 = await store.blobs.put(b"content")
    assert await store.blobs.get(sha256, BlobRange(offset, length)) == b"content"[offset : offset + length]


@pytest.mark.clause("blobs.write")
async def test_twenty_writers_of_equal_bytes_make_one_object(store: Store) -> None:
    content = b"the same bytes" * 1000
    put = await asyncio.gather(*(store.blobs.put(content) for _ in range(20)))
    assert set(put) == {digest(content)}
    assert await digests(store) == [digest(content)]
    assert await store.blobs.get(digest(content)) == content


@pytest.mark.clause("store.ports")
async def test_deleting_removes_and_deleting_nothing_is_fine(store: Store) -> None:
    sha256 = await store.blobs.put(b"content")
    await store.blobs.delete(sha256)
    await store.blobs.delete(sha256)
    assert await store.blobs.size(sha256) is None
    assert await digests(store) == []


@pytest.mark.clause("store.ports")
async def test_the_list_is_in_order_of_digest(store: Store) -> None:
    put = [await store.blobs.put(f"number {number}".encode()) for number in range(12)]
    assert await digests(store) == sorted(put)

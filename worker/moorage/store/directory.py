"""The Blobs port on a directory, for the host."""

import hashlib
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from moorage.kernel.instants import Instant
from moorage.store.blobkeys import (
    BLOB_PREFIX,
    RECOVERY_PREFIX,
    UPLOAD_PREFIX,
    blob_key,
    corrupt,
    mismatch,
    missing,
    recovery_key,
    upload_key,
    verified,
    verify,
)
from moorage.store.ports import BlobRange, ByteStream, StoredBlob

PIECE_BYTES: Final = 256 * 1024
"""Bytes of one piece of a stream that is read from here."""


class DirectoryBlobs:
    """Blobs under `root`; a write appears whole, under its final name, or not at all."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def put(self, content: bytes) -> str:
        sha256 = hashlib.sha256(content).hexdigest()
        target = self._root / blob_key(sha256)
        if not target.exists():
            temporary = self._temporary()
            try:
                _write(temporary, content)
                _move(temporary, target)
            finally:
                temporary.unlink(missing_ok=True)
        return sha256

    async def put_stream(self, content: ByteStream, sha256: str) -> None:
        temporary = self._temporary()
        try:
            if await _receive(content, temporary) != sha256:
                raise mismatch(sha256)
            _move(temporary, self._root / blob_key(sha256))
        finally:
            temporary.unlink(missing_ok=True)

    async def spool(self, content: ByteStream, name: str) -> str:
        temporary = self._temporary()
        try:
            sha256 = await _receive(content, temporary)
            _move(temporary, self._root / upload_key(name))
        finally:
            temporary.unlink(missing_ok=True)
        return sha256

    async def adopt(self, name: str, sha256: str) -> None:
        try:
            _move(self._root / upload_key(name), self._root / blob_key(sha256))
        except FileNotFoundError:
            raise missing(sha256) from None

    async def discard(self, name: str) -> None:
        (self._root / upload_key(name)).unlink(missing_ok=True)

    async def discard_before(self, instant: Instant) -> int:
        old = [path for path in self._files(UPLOAD_PREFIX) if _written(path) < instant]
        for path in old:
            path.unlink(missing_ok=True)
        return len(old)

    async def open(self, sha256: str, span: BlobRange | None = None) -> ByteStream:
        path = self._root / blob_key(sha256)
        size = await self.size(sha256)
        if size is None:
            raise missing(sha256)
        if span is not None:
            if span.offset + span.length > size:
                raise corrupt(sha256)
            return _FileStream(path, span)
        if size <= PIECE_BYTES:
            verify(path.read_bytes(), sha256)
        return _FileStream(path, BlobRange(0, size), sha256)

    async def get(self, sha256: str, span: BlobRange | None = None) -> bytes:
        path = self._root / blob_key(sha256)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise missing(sha256) from None
        if span is not None:
            return content[span.offset : span.offset + span.length]
        verify(content, sha256)
        return content

    async def size(self, sha256: str) -> int | None:
        try:
            return (self._root / blob_key(sha256)).stat().st_size
        except FileNotFoundError:
            return None

    async def delete(self, sha256: str) -> None:
        (self._root / blob_key(sha256)).unlink(missing_ok=True)

    async def page(self, after: str, limit: int) -> Sequence[StoredBlob]:
        found = [path for path in self._files(BLOB_PREFIX) if path.name > after][:limit]
        return [StoredBlob(path.name, path.stat().st_size, Instant(_written(path))) for path in found]

    async def list(self) -> AsyncIterator[str]:
        for path in self._files(BLOB_PREFIX):
            yield path.name

    def _files(self, prefix: str) -> Sequence[Path]:
        folder = self._root / prefix
        return sorted(folder.iterdir()) if folder.exists() else []

    def _temporary(self) -> Path:
        """An empty file beside the folders of finished ones."""
        (self._root / BLOB_PREFIX).mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self._root)
        os.close(handle)
        return Path(name)


class DirectoryFrontiers:
    """The objects of recovery identities under `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def keep(self, identity: str, content: bytes) -> None:
        target = self._root / recovery_key(identity)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_suffix(".part")
        _write(temporary, content)
        _move(temporary, target)

    async def read(self, identity: str) -> bytes | None:
        try:
            return (self._root / recovery_key(identity)).read_bytes()
        except FileNotFoundError:
            return None

    async def identities(self) -> Sequence[str]:
        folder = self._root / RECOVERY_PREFIX
        return sorted(path.stem for path in folder.glob("*.json")) if folder.exists() else []


class _FileStream:
    """Part of a file in pieces; all of it is verified where its digest is given."""

    def __init__(self, path: Path, span: BlobRange, sha256: str | None = None) -> None:
        self._path = path
        self._span = span
        self._sha256 = sha256

    @property
    def size(self) -> int:
        return self._span.length

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._pieces() if self._sha256 is None else verified(self._pieces(), self._sha256)

    async def _pieces(self) -> AsyncIterator[bytes]:
        left = self._span.length
        with self._path.open("rb") as file:
            file.seek(self._span.offset)
            while left:
                piece = file.read(min(PIECE_BYTES, left))
                if not piece:
                    return
                left -= len(piece)
                yield piece


async def _receive(content: ByteStream, target: Path) -> str:
    """Write a stream into a file; answers its digest."""
    digest = hashlib.sha256()
    with target.open("wb") as file:
        async for piece in content:
            digest.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _write(target: Path, content: bytes) -> None:
    with target.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.replace(target)


def _written(path: Path) -> int:
    return path.stat().st_mtime_ns // 1_000_000

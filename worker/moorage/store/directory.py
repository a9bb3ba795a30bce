"""The Blobs port on a directory, for the host."""

import hashlib
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from moorage.kernel.errors import BlobMissing
from moorage.store.blobkeys import blob_key, verify
from moorage.store.ports import BlobRange


class DirectoryBlobs:
    """Blobs under `root`; a write appears whole, under its final name, or not at all."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def put(self, content: bytes) -> str:
        sha256 = hashlib.sha256(content).hexdigest()
        target = self._root / blob_key(sha256)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            self._write(content, target)
        return sha256

    def _write(self, content: bytes, target: Path) -> None:
        handle, name = tempfile.mkstemp(dir=self._root)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)

    async def get(self, sha256: str, span: BlobRange | None = None) -> bytes:
        path = self._root / blob_key(sha256)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise BlobMissing(f"no object for {sha256}", reference=sha256) from None
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

    async def list(self) -> AsyncIterator[str]:
        folder = self._root / "blobs"
        for path in sorted(folder.iterdir()) if folder.exists() else []:
            yield path.name


def _write(target: Path, content: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    Path(temporary).replace(target)

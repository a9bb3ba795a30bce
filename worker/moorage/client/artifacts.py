"""Artifacts: bytes of any size, streamed both ways, their digest checked at both ends."""

import base64
import hashlib
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from typing import IO

import httpx

from moorage.client.keys import fresh_key
from moorage.client.models import Artifact
from moorage.client.paging import segment
from moorage.client.problems import ClientFailure, Unanswered
from moorage.client.wire import Wire

CHUNK_BYTES = 256 * 1024
Progress = Callable[[int], None]
"""Told how many bytes more have passed."""


class DigestMismatch(ClientFailure):
    """The bytes that arrived are not those of the artifact."""


@contextmanager
def whole_file(target: Path) -> Iterator[IO[bytes]]:
    """What to write a file with, which is there, or replaced, only once all of it is written. A link keeps leading there; a
    device or a pipe is written into, as nothing may take its place. Raises OSError."""
    if target.exists() and not target.is_file():
        with target.open("wb") as into:
            yield into
        return
    target = target.resolve()
    unfinished = target.with_name(f".{target.name}.{fresh_key()}.part")
    try:
        with unfinished.open("xb") as file:
            yield file
        unfinished.replace(target)
    finally:
        with suppress(NotADirectoryError):
            unfinished.unlink(missing_ok=True)


class Artifacts:
    """The operations on artifacts. Each raises Problem and Unanswered."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def upload(
        self,
        source: bytes | Path,
        media_type: str,
        *,
        id: str | None = None,  # noqa: A002 - the parameter's name
        attach_within_seconds: float | None = None,
        progress: Progress | None = None,
    ) -> Artifact:
        """Store bytes, or a file read piece by piece, and answer its record; `body` tells digest, media type and size.

        With `attach_within_seconds` it is shredded unless a record has named it as a parent by then.

        A file is read twice: first for its digest, which the other side then checks what arrives against. Raises OSError
        for a file that cannot be read.
        """
        digest, size = _digest_of(source)
        path = "/artifacts"
        query = {"id": id, "attach_within_seconds": attach_within_seconds}
        headers = {
            "Content-Type": media_type,
            "Content-Length": str(size),
            "Content-Digest": f"sha-256=:{base64.b64encode(digest).decode()}:",
            "Idempotency-Key": fresh_key(),
        }

        def make() -> httpx.Request:
            return self._wire.request("POST", path, query=query, headers=headers, content=_pieces(source, progress))

        return Artifact.model_validate((await self._wire.send(make, True, path)).json())

    async def get(self, artifact: str) -> Artifact:
        """The artifact's record."""
        return Artifact.model_validate(await self._wire.call("GET", f"/artifacts/{segment(artifact)}"))

    async def chunks(self, artifact: str) -> AsyncGenerator[bytes, None]:
        """The artifact's bytes, piece by piece; a broken connection is opened again where it broke.

        Raises DigestMismatch, after the last piece, when they are not the artifact's: use nothing before the end.
        """
        expected = (await self.get(artifact)).body["digest"]
        found, had, failures = hashlib.sha256(), 0, 0
        while True:
            try:
                async with aclosing(self._from(artifact, had)) as pieces:
                    async for piece in pieces:
                        found.update(piece)
                        had += len(piece)
                        failures = 0
                        yield piece
                break
            except httpx.TransportError as error:
                failures += 1
                wait = self._wire.patience.wait(failures, None, self._wire.chance())
                if wait is None:
                    raise Unanswered(f"GET /artifacts/{artifact}/content broke off after {had} bytes") from error
                await self._wire.timing.sleep(wait)
        if found.hexdigest() != expected:
            raise DigestMismatch(f"artifact {artifact}: {had} bytes with SHA-256 {found.hexdigest()}, not {expected}")

    async def download(self, artifact: str, target: Path, *, progress: Progress | None = None) -> int:
        """Write the artifact to a file, which is there only when all of it is, and answer its size in bytes.

        Raises DigestMismatch, and OSError for a file that cannot be written.
        """
        size = 0
        with whole_file(target) as file:
            async with aclosing(self.chunks(artifact)) as pieces:
                async for piece in pieces:
                    file.write(piece)
                    size += len(piece)
                    if progress is not None:
                        progress(len(piece))
        return size

    async def shred(self, artifact: str, reason: str) -> Artifact:
        """Destroy the bytes for good; the record, its digest and its history stay."""
        path = f"/artifacts/{segment(artifact)}/shred"
        return Artifact.model_validate(await self._wire.call("POST", path, {"reason": reason}, key=fresh_key()))

    async def _from(self, artifact: str, start: int) -> AsyncGenerator[bytes, None]:
        path = f"/artifacts/{segment(artifact)}/content"
        # Encodings would make ranges and digests mean other bytes.
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
        async with self._wire.stream(lambda: self._wire.request("GET", path, headers=headers), True, path) as answer:
            skip = start if answer.status_code == 200 else 0
            # As they arrive: pieces of a size of our own would lose what was gathered for one when the connection breaks.
            async for piece in answer.aiter_bytes():
                if skip < len(piece):
                    yield piece[skip:]
                skip = max(0, skip - len(piece))


def _digest_of(source: bytes | Path) -> tuple[bytes, int]:
    if isinstance(source, bytes):
        return hashlib.sha256(source).digest(), len(source)
    found = hashlib.sha256()
    size = 0
    with source.open("rb") as file:
        while piece := file.read(CHUNK_BYTES):
            found.update(piece)
            size += len(piece)
    return found.digest(), size


async def _pieces(source: bytes | Path, progress: Progress | None) -> AsyncGenerator[bytes, None]:
    def told(piece: bytes) -> bytes:
        if progress is not None:
            progress(len(piece))
        return piece

    if isinstance(source, bytes):
        for start in range(0, len(source), CHUNK_BYTES):
            yield told(source[start : start + CHUNK_BYTES])
        return
    with source.open("rb") as file:
        while piece := file.read(CHUNK_BYTES):
            yield told(piece)

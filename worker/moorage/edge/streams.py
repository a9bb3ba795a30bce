"""The platform's byte streams behind the ByteStream port.

Bytes stay on the platform's side wherever that can be: a request's body goes to the bucket as the stream it is. Where they
have to be looked at, they come in pieces of PIECE_BYTES and are handed on one at a time, so that a slow reader slows the
source and nothing piles up. A tee would not do: its slower branch is buffered whole.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, Final

import js
import workers
from pyodide.ffi import JsException, create_proxy, to_js

from moorage.edge.convert import absent, message_of, options
from moorage.kernel.errors import MoorageError, RequestInvalid
from moorage.store.blobkeys import corrupt
from moorage.store.ports import ByteStream

PIECE_BYTES: Final = 256 * 1024
"""Bytes that are asked of a stream at a time."""

_log = logging.getLogger("moorage.blobs")


class Incoming:
    """A request's body; `size` is what its Content-Length told, and the platform holds the client to it."""

    def __init__(self, source: Any, size: int) -> None:
        self._source = source
        self.size = size

    def native(self) -> Any:
        """The body as the platform's stream, or an empty piece where there is none."""
        body = self._source.body
        return to_js(b"") if absent(body) else body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if absent(self._source.body):
            return
        try:
            async for piece in pieces(self._source.body):
                yield piece.to_bytes()
        except JsException:
            raise RequestInvalid("the body ended before it was complete") from None


class Outgoing:
    """Part of an object on its way out, as it comes."""

    def __init__(self, body: Any, size: int) -> None:
        self._body = body
        self.size = size

    def native(self) -> Any:
        """The platform's stream."""
        return self._body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in pieces(self._body):
            yield piece.to_bytes()


class Verified:
    """A whole object on its way out. Its last piece leaves only once all of it was seen to have the digest."""

    def __init__(self, body: Any, size: int, sha256: str) -> None:
        self._body = body
        self._sha256 = sha256
        self._pieces: AsyncIterator[Any] = self._checked()
        self._first: Any = None
        self.size = size

    async def begin(self) -> None:
        """Read the first piece; what is no longer is verified by that. Raises BlobCorrupt."""
        self._first = await anext(self._pieces, None)

    def native(self) -> Any:
        """The bytes: as they are when they are one piece, which is verified by now; else as the platform's stream of known
        length, which breaks off where they turn out to be others."""
        if self._first is None:
            return to_js(b"")
        if self._first.byteLength == self.size:
            return self._first
        pipe = js.FixedLengthStream.new(self.size)
        pump = asyncio.ensure_future(self._fill(pipe.writable.getWriter()))
        crossing = create_proxy(pump)
        pump.add_done_callback(lambda _: crossing.destroy())
        # So that the platform sees it through: the last write ends after the answer has. The function is JavaScript's, and
        # so may not be held from import on.
        workers.wait_until(crossing)
        return pipe.readable

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._first is not None:
            yield self._first.to_bytes()
        async for piece in self._pieces:
            yield piece.to_bytes()

    async def _checked(self) -> AsyncIterator[Any]:
        digest = js.crypto.DigestStream.new("SHA-256")
        writer = digest.getWriter()
        held: Any = None
        async for piece in pieces(self._body):
            await writer.write(piece)
            if held is not None:
                yield held
            held = piece
        await writer.close()
        if hexadecimal(await digest.digest) != self._sha256:
            raise corrupt(self._sha256)
        if held is not None:
            yield held

    async def _fill(self, writer: Any) -> None:
        try:
            if self._first is not None:
                await writer.write(self._first)
            async for piece in self._pieces:
                await writer.write(piece)
            await writer.close()
        except MoorageError as error:
            _log.error("%s: %s", error.code, error.detail)
            await _abort(writer, error.code)
        except JsException as error:
            # The reader has gone, or the bucket broke off.
            _log.warning("a download ended early: %s", message_of(error))
            await _abort(writer, "StorageBindingUnavailable")


async def pieces(body: Any) -> AsyncIterator[Any]:
    """A platform stream in pieces of PIECE_BYTES, the last one shorter, none of them empty."""
    reader = body.getReader(options({"mode": "byob"}))
    while True:
        piece = await reader.readAtLeast(PIECE_BYTES, js.Uint8Array.new(PIECE_BYTES))
        if not absent(piece.value) and piece.value.byteLength:
            yield piece.value
        if piece.done:
            return


async def digest_of(body: Any) -> str:
    """The SHA-256 of a platform stream, in hex, read to its end without a look at the bytes."""
    digest = js.crypto.DigestStream.new("SHA-256")
    await body.pipeTo(digest)
    return hexadecimal(await digest.digest)


async def sendable(content: ByteStream) -> Any:
    """What the bucket's `put` takes: the platform's own stream, or the bytes where they come from elsewhere."""
    if isinstance(content, Incoming | Outgoing | Verified):
        return content.native()
    return to_js(b"".join([piece async for piece in content]))


def hexadecimal(buffer: Any) -> str:
    """An ArrayBuffer in lower-case hex."""
    return bytes(buffer.to_bytes()).hex()


async def _abort(writer: Any, reason: str) -> None:
    try:
        await writer.abort(js.Error.new(reason))
    except JsException as error:
        _log.debug("the answer was closed already: %s", message_of(error))

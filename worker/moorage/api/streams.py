"""Bodies that pass through without being held: artifacts on their way in and out.

ASGI carries bytes in messages. Where the platform has streams of its own, the edge hands a request's body over as a whole
in the scope, and takes an answer's in one message, so that no byte crosses into Python.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from moorage.kernel.errors import RequestInvalid
from moorage.store.ports import ByteStream

STREAM: Final = "moorage.stream"
"""Scope key under which the edge passes a request's body as a ByteStream."""

ANSWER_STREAM: Final = "moorage.response.stream"
"""Name of the scope's extension by which the edge takes an answer's ByteStream, and type of the message that brings it."""


class ReceivedStream:
    """A request's body as ASGI brings it; `size` is what its Content-Length told."""

    def __init__(self, receive: Receive, size: int) -> None:
        self._receive = receive
        self.size = size

    async def __aiter__(self) -> AsyncIterator[bytes]:
        seen, more = 0, True
        while more:
            message = await self._receive()
            if message["type"] != "http.request":
                raise RequestInvalid("the body ended before it was complete")
            piece: bytes = message.get("body", b"")
            more = message.get("more_body", False)
            seen += len(piece)
            if piece:
                yield piece
        if seen != self.size:
            raise RequestInvalid("the body does not have the length that its Content-Length told")


class StreamAnswer(Response):
    """An answer whose body is a ByteStream, or one that has a body's headers but none of it: to HEAD."""

    def __init__(self, content: ByteStream | None, size: int, status_code: int, headers: Mapping[str, str]) -> None:
        self.status_code = status_code
        self.background = None
        self.body = b""
        self._content = content
        pairs = {**headers, "content-length": str(size)}
        self.raw_headers = [(name.encode(), value.encode("latin-1")) for name, value in pairs.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if self._content is not None and ANSWER_STREAM in scope.get("extensions", {}):
            await send({"type": ANSWER_STREAM, "content": self._content})
            return
        if self._content is not None:
            async for piece in self._content:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

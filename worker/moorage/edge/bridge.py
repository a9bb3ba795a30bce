"""Between the platform's fetch and ASGI: one request in, one answer out, whole or as a stream.

The SDK's own bridge reads every body to its end before the application sees the request, whatever its size; this one
reads when asked, so that a body that is too large is refused by its Content-Length. A route that wants the body as a
stream takes the platform's own from the scope, and may answer one, which is handed on as it is (see `api.streams`).

An answer whose first piece says that more follows is a stream of the application's own: the platform gets the response at
once, and the application goes on as a task that waits, at each piece, until the client has taken the one before. Nothing
keeps that task alive but the client's reading: the platform abandons it with the connection, and tells nobody. A socket was
opened elsewhere, and is handed on as it is.
"""

import asyncio
import json
from collections.abc import Awaitable
from typing import Any

import js
from pyodide.ffi import JsException, to_js
from starlette.types import ASGIApp, Message

from moorage.api.handed import ANSWER_SOCKET
from moorage.api.streams import ANSWER_STREAM, STREAM
from moorage.edge.convert import absent, header_bytes
from moorage.edge.streams import Incoming

_NO_BODY = frozenset({101, 204, 205, 304})


async def serve(app: ASGIApp, request: Any, extra: dict[str, Any]) -> Any:
    """Answer a platform Request through `app`; `extra` goes into the scope. Gives a platform Response."""
    source = getattr(request, "js_object", request)
    headers: dict[str, str] = json.loads(js.JSON.stringify(js.Object.fromEntries(source.headers)))
    scheme, _, rest = str(source.url).partition("://")
    _, _, target = rest.partition("/")
    path, _, query = target.partition("#")[0].partition("?")
    raw_path = f"/{path}".encode()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": str(source.method),
        "scheme": scheme,
        "path": raw_path.decode("latin-1"),
        "raw_path": raw_path,
        "query_string": query.encode(),
        "headers": [(name.lower().encode("latin-1"), header_bytes(value)) for name, value in headers.items()],
        "extensions": {ANSWER_STREAM: {}},
        **extra,
    }
    told = headers.get("content-length", "")
    if told.isdecimal():
        scope[STREAM] = Incoming(source, int(told[:15]))
    answer = _Answer()
    body = _Body(source, whole="content-length" in headers)
    # It begins at once, and is no more to the loop than it has to be: each turn of it is a timer of the platform.
    loop = asyncio.get_running_loop()
    running = asyncio.Task(answer.run(app(scope, body, answer)), loop=loop, eager_start=True)  # type: ignore[call-arg]
    await answer.ready
    if not answer.streams:
        await running
    return answer.response()


class _Body:
    """ASGI's `receive`. A body of told length comes in one piece, any other as it arrives."""

    def __init__(self, source: Any, whole: bool) -> None:
        self._source = source
        self._whole = whole
        self._reader: Any = None
        self._over = absent(source.body)

    async def __call__(self) -> Message:
        if self._over:
            return {"type": "http.request", "body": b"", "more_body": False}
        try:
            return await (self._read_whole() if self._whole else self._read_on())
        except JsException:
            return {"type": "http.disconnect"}

    async def _read_whole(self) -> Message:
        self._over = True
        buffer = await self._source.arrayBuffer()
        return {"type": "http.request", "body": buffer.to_bytes(), "more_body": False}

    async def _read_on(self) -> Message:
        if self._reader is None:
            self._reader = self._source.body.getReader()
        piece = await self._reader.read()
        if piece.done:
            self._over = True
            return {"type": "http.request", "body": b"", "more_body": False}
        return {"type": "http.request", "body": piece.value.to_bytes(), "more_body": True}


class _Answer:
    """ASGI's `send`. `ready` is done when there is a response to give: the whole of it, or the beginning of a stream."""

    def __init__(self) -> None:
        self.ready: asyncio.Future[None] = asyncio.Future()
        self._status = 500
        self._headers: list[list[str]] = []
        self._pieces: list[bytes] = []
        self._writer: Any = None
        self._stream: Any = None
        self._socket: Any = None

    @property
    def streams(self) -> bool:
        """Whether the answer comes in pieces."""
        return self._writer is not None

    async def run(self, application: Awaitable[None]) -> None:
        """Run the application to its end, and with it the answer. Where the client left, nothing is awaited any more."""
        abandoned = False
        try:
            await application
        except (GeneratorExit, asyncio.CancelledError):
            abandoned = True
            raise
        finally:
            if not self.ready.done():
                self.ready.set_result(None)
            if self._writer is not None and not abandoned:
                await self._writer.close()

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in message["headers"]]
        elif message["type"] == ANSWER_STREAM:
            self._stream = message["content"].native()
        elif message["type"] == ANSWER_SOCKET:
            self._socket = message["content"].native()
        else:
            await self._take(message.get("body", b""), message.get("more_body", False))

    async def _take(self, piece: bytes, more: bool) -> None:
        if self._writer is None and more and self._status not in _NO_BODY:
            pipe = js.TransformStream.new()
            self._stream, self._writer = pipe.readable, pipe.writable.getWriter()
            self.ready.set_result(None)
        if self._writer is None:
            if piece:
                self._pieces.append(piece)
        elif piece:
            await self._writer.ready
            await self._writer.write(to_js(piece))

    def response(self) -> Any:
        """The platform's Response."""
        if self._socket is not None:
            return js.Response.new(None, status=self._status, headers=to_js(self._headers), webSocket=self._socket)
        body = self._stream
        if body is None and self._status not in _NO_BODY and self._pieces:
            body = to_js(self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces))
        return js.Response.new(body, status=self._status, headers=to_js(self._headers))

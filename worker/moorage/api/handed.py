"""Answers that are served elsewhere: a request was admitted and has its answer, and the rest passes the application by."""

from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from moorage.api.lives import Feed, Socket
from moorage.api.requests import HEAD, ApiRequest
from moorage.api.streams import ANSWER_STREAM

ANSWER_SOCKET: Final = "moorage.response.socket"
"""Type of the message by which the edge takes a socket that was opened elsewhere."""

SWITCHING: Final = 101


class FeedAnswer(Response):
    """Server-sent events that come from elsewhere. To HEAD there is no feed, and none of it is sent."""

    def __init__(self, feed: Feed | None) -> None:
        super().__init__(media_type="text/event-stream", headers={"cache-control": "no-store"})
        del self.headers["content-length"]
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        feed = None if scope.get(HEAD) else self._feed
        if feed is not None and ANSWER_STREAM in scope.get("extensions", {}):
            await send({"type": ANSWER_STREAM, "content": feed})
            return
        if feed is not None:
            async for piece in feed:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class SocketAnswer(Response):
    """A socket that is handed over with the answer that switches to it."""

    def __init__(self, socket: Socket) -> None:
        self.status_code = SWITCHING
        self.background = None
        self.body = b""
        self.raw_headers: list[tuple[bytes, bytes]] = []
        self._socket = socket

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": ANSWER_SOCKET, "content": self._socket})


def wants_socket(request: ApiRequest) -> bool:
    """Whether a request asks to be upgraded to a socket, which no HEAD does."""
    return request.headers.get("upgrade", "").strip().lower() == "websocket" and not request.is_head

"""Answers: JSON in UTF-8, compact, with every instant as RFC 3339 text."""

import json
import math
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from moorage.api.requests import HEAD
from moorage.kernel.instants import Instant, render
from moorage.kernel.limits import RETRY_AFTER_SECONDS
from moorage.kernel.pages import Page

T = TypeVar("T")


def retry_after_header(seconds: float) -> str:
    """What Retry-After says of a wait: whole seconds, 1 to RETRY_AFTER_SECONDS; the most for what is no finite number."""
    longest = int(RETRY_AFTER_SECONDS)
    return str(max(1, math.ceil(min(seconds, longest))) if math.isfinite(seconds) else longest)


class Answer(JSONResponse):
    """A JSON answer. `content` holds JSON values only; what is stored exactly leaves exactly."""

    media_type = "application/json"

    def __init__(self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(content, status_code, headers)

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        """As Starlette's, without its search through headers that are never there."""
        self.raw_headers = [
            (b"content-length", str(len(self.body)).encode()),
            (b"content-type", (self.media_type or "").encode()),
            *((name.lower().encode(), value.encode()) for name, value in (headers or {}).items()),
        ]

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


class Problem(Answer):
    """An error answer, RFC 9457 (clause kernel.problem)."""

    media_type = "application/problem+json"


class EventStream(Response):
    """Server-sent events, a piece at a time. The next piece is asked for once the last one was passed on."""

    media_type = "text/event-stream"

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        super().__init__(media_type=self.media_type, headers={"cache-control": "no-store"})
        del self.headers["content-length"]
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if not scope.get(HEAD):
            async for piece in self._pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class Lines(EventStream):
    """JSON texts, one a line, a piece at a time."""

    media_type = "application/x-ndjson"


def nothing() -> Response:
    """204."""
    return Response(status_code=204)


def instant(value: Instant | None) -> str | None:
    """An instant on the wire, or null."""
    return None if value is None else render(value)


def page(found: Page[T], item: Callable[[T], dict[str, Any]]) -> Answer:
    """A page of a list."""
    return Answer({"items": [item(one) for one in found.items], "next_cursor": found.next_cursor})

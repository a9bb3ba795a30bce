"""Recorded outbound HTTP: what `run.fetch` sends, and what is kept (clauses runs.idempotency-key, runs.trace-context).

Recorded are the status, some headers, and the body. No header of the request is recorded, hashed or told in an error, so a
credential may be rotated between two attempts. Redirects are not followed: a credential goes where it was sent only.
"""

import base64
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx
import pydantic_core

from moorage.bodies.asking import Step
from moorage.bodies.errors import Failed
from moorage.bodies.failures import by_status
from moorage.bodies.values import NOTHING, dump
from moorage.kernel.errors import FailureTag
from moorage.kernel.instants import Instant
from moorage.kernel.limits import JOURNAL_VALUE_BYTES

TIMEOUT_SECONDS: Final = 30.0

KEPT_HEADERS: Final = frozenset(
    {"content-type", "content-language", "date", "etag", "last-modified", "link", "location", "retry-after", "x-request-id"}
)
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]*")
_NEVER_KEPT: Final = frozenset({"set-cookie", "set-cookie2", "authorization", "proxy-authorization", "www-authenticate"})


@dataclass(frozen=True, slots=True)
class Response:
    """A recorded answer. `headers` are lower-case, and only those that were kept."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The body as text; bytes that are not UTF-8 are replaced."""
        return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body as JSON. Raises ValueError when it is not, or is nested deeper than can be read safely: what somebody
        outside sends must not take the interpreter along, as the platform's own parser would."""
        return pydantic_core.from_json(self.content)

    @classmethod
    def of(cls, recorded: Mapping[str, Any]) -> "Response":
        """From what was recorded."""
        body = recorded.get("text")
        content = base64.b64decode(recorded["base64"]) if body is None else body.encode("utf-8")
        return cls(recorded["status"], recorded["headers"], content)


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of somebody outside."""

    method: str
    url: str
    headers: Mapping[str, str]
    content: bytes | None
    content_type: str | None
    timeout: float
    accept: Collection[int]
    keep: Collection[str]

    @classmethod
    def of(
        cls,
        url: str,
        method: str | None,
        headers: Mapping[str, str] | None,
        json: Any,
        body: str | bytes | None,
        timeout: float,
        accept: Collection[int],
        keep: Collection[str],
        *,
        beneath: bool = False,
    ) -> "Request":
        """With `beneath`, `url` is a path beneath a destination's. Raises ValueError for what cannot be a request,
        Unrecordable for JSON that has no canonical form."""
        if json is not NOTHING and body is not None:
            raise ValueError("a request has either json or a body")
        if not beneath and httpx.URL(url).scheme not in ("http", "https"):
            raise ValueError("a request goes to an http or https URL")
        content = None if body is None else body if isinstance(body, bytes) else body.encode("utf-8")
        content_type = None
        if json is not NOTHING:
            content, content_type = dump(json).encode("utf-8"), "application/json"
        verb = (method or ("GET" if content is None else "POST")).upper()
        if not _TOKEN.fullmatch(verb) or verb == "CONNECT":
            raise ValueError(f"{verb[:20]!r} is no method that a request can have")
        for name, value in (headers or {}).items():
            if not _TOKEN.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
                raise ValueError(f"the header {name[:100]!r} cannot be sent")
        if not timeout > 0:
            raise ValueError("a request's timeout is more than 0 seconds")
        return cls(verb, url, dict(headers or {}), content, content_type, timeout, accept, keep)

    def identity(self) -> dict[str, Any]:
        """What tells this request from another one under the same label: all but its headers."""
        content = None if self.content is None else base64.b64encode(self.content).decode("ascii")
        return {"method": self.method, "url": self.url, "body": content}


def refused(asked: httpx.Request, answer: httpx.Response, now: Instant) -> Failed:
    """What an answer means that is neither 2xx nor accepted."""
    found = by_status(asked, answer, now)
    return Failed(found.failure.tag, found.failure.message, code=found.failure.code, retry_after=found.retry_after)


async def send(
    transport: httpx.AsyncBaseTransport,
    request: Request,
    step: Step,
    now: Instant,
    tracestate: str | None,
    *,
    authorization: str | None = None,
    refusal: Callable[[httpx.Request, httpx.Response, Instant], Failed] = refused,
) -> str:
    """Send it, and give what is recorded. Raises httpx errors, and by status what `refusal` makes of the answer."""
    headers = httpx.Headers(dict(request.headers))
    headers.setdefault("Accept", "*/*")
    if request.content_type is not None:
        headers.setdefault("Content-Type", request.content_type)
    headers["Idempotency-Key"] = step.idempotency_key
    headers["traceparent"] = step.traceparent
    if tracestate is not None:
        headers["tracestate"] = tracestate
    if authorization is not None:
        headers["Authorization"] = authorization
    async with httpx.AsyncClient(
        transport=_Lent(transport), follow_redirects=False, trust_env=False, timeout=request.timeout
    ) as client:
        asked = client.build_request(request.method, request.url, headers=headers, content=request.content)
        answer = await client.send(asked, stream=True)
        try:
            accepted = answer.is_success or answer.status_code in request.accept
            if not accepted:
                raise refusal(asked, answer, now)
            return dump(_recorded(answer, await _body(answer), request.keep))
        finally:
            await answer.aclose()


class _Lent(httpx.AsyncBaseTransport):
    """The host's transport, of which a client that ends closes nothing: other requests are under way on it."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self._transport = transport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._transport.handle_async_request(request)


async def _body(answer: httpx.Response) -> bytes:
    pieces, size = [], 0
    async for piece in answer.aiter_bytes():
        size += len(piece)
        # Base64 makes four bytes of three; text may need escapes.
        if size > JOURNAL_VALUE_BYTES:
            raise Failed(
                FailureTag.TOO_LARGE, f"the answer has more than {JOURNAL_VALUE_BYTES} bytes", code="AnswerTooLarge"
            )
        pieces.append(piece)
    return b"".join(pieces)


def _recorded(answer: httpx.Response, content: bytes, keep: Collection[str]) -> dict[str, Any]:
    wanted = (KEPT_HEADERS | {name.lower() for name in keep}) - _NEVER_KEPT
    kept = {name.lower(): value for name, value in answer.headers.items() if name.lower() in wanted}
    recorded: dict[str, Any] = {"status": answer.status_code, "headers": kept}
    try:
        recorded["text"] = content.decode("utf-8")
    except UnicodeDecodeError:
        recorded["base64"] = base64.b64encode(content).decode("ascii")
    return recorded

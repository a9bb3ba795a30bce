"""httpx over the platform's fetch: what bodies send requests with.

Nothing is followed, kept or decoded by hand: redirects come back as they are, there are no cookies, and the platform has
undone the content's encoding. A request that is given up is given up on the wire as well. Hosts of this network are refused
before anything is sent, unless the deployment is one for development.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx
import js
from pyodide.ffi import JsException, to_js

from moorage.edge.convert import absent, header_bytes, message_of, options
from moorage.kernel.hosts import is_public

_NOT_SENT: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "accept-encoding", "connection", "keep-alive", "upgrade", "te", "cookie"}
)
"""What the platform says itself, or what a connection is, not a request; and cookies, of which there are none."""

_DECODED: Final = frozenset({"content-encoding", "content-length", "transfer-encoding"})
"""What is no longer true of an answer that the platform has decoded."""

_NO_BODY: Final = frozenset({"GET", "HEAD"})

_INSIDE: Final = (
    "lies inside this network, where requests go only with MOORAGE_ALLOW_LOCAL_DESTINATIONS=1 (`up --allow-local`)"
)


class HostRefused(httpx.UnsupportedProtocol):
    """The request leads inside this network, or is not http."""


class NoAnswer(httpx.NetworkError):
    """The request failed before an answer came, whether or not it had left."""


class FetchTransport(httpx.AsyncBaseTransport):
    """One for each run or request: it keeps nothing. Raises httpx's own errors, HostRefused among them."""

    def __init__(self, *, allow_local: bool = False) -> None:
        self._allow_local = allow_local

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request. The timeouts of httpx hold: `connect` and `read` together bound the wait for the head of the
        answer, `read` each further piece; `write` and `pool` have no meaning here."""
        self._check(request)
        timeouts = request.extensions.get("timeout", {})
        aborter = js.AbortController.new()
        content = await request.aread() if not isinstance(request.stream, httpx.ByteStream) else request.content
        sent = {
            "method": request.method,
            "headers": _headers(request),
            "redirect": "manual",
            "signal": aborter.signal,
        }
        if content and request.method not in _NO_BODY:
            sent["body"] = to_js(content)
        waits = [timeouts[name] for name in ("connect", "read") if timeouts.get(name) is not None]
        answer = await _bounded(
            js.fetch(str(request.url), options(sent)), sum(waits) if len(waits) == 2 else None, aborter, request
        )
        headers = [(str(name), header_bytes(str(value))) for name, value in answer.headers]
        return httpx.Response(
            int(answer.status),
            headers=[(name.encode(), value) for name, value in headers if name.lower() not in _DECODED],
            stream=_Body(answer.body, aborter, timeouts.get("read"), request),
            request=request,
        )

    def _check(self, request: httpx.Request) -> None:
        url = request.url
        if url.scheme not in ("https", "http"):
            raise HostRefused("only http and https are sent", request=request)
        if not self._allow_local and not is_public(url.host):
            raise HostRefused(f"{url.host} {_INSIDE}", request=request)


class _Body(httpx.AsyncByteStream):
    """The content of an answer, as it comes."""

    def __init__(self, body: Any, aborter: Any, seconds: float | None, request: httpx.Request) -> None:
        self._body = body
        self._aborter = aborter
        self._seconds = seconds
        self._request = request
        self._over = absent(body)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._over:
            return
        reader = self._body.getReader()
        while True:
            piece = await _bounded(reader.read(), self._seconds, self._aborter, self._request)
            if piece.done:
                self._over = True
                return
            yield bytes(piece.value.to_bytes())

    async def aclose(self) -> None:
        """Give up what was not read."""
        if not self._over:
            self._over = True
            self._aborter.abort()


def _headers(request: httpx.Request) -> Any:
    pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw]
    return to_js([[name, value] for name, value in pairs if name.lower() not in _NOT_SENT])


async def _bounded(asked: Any, seconds: float | None, aborter: Any, request: httpx.Request) -> Any:
    """What the platform answers. Whoever stops waiting, by the clock or by being cancelled, aborts the request."""
    try:
        async with asyncio.timeout(seconds):
            return await asked
    except TimeoutError:
        aborter.abort()
        raise httpx.ReadTimeout(f"no answer within {seconds:g} s", request=request) from None
    except asyncio.CancelledError:
        aborter.abort()
        raise
    except JsException as error:
        raise _error(error, request) from None


def _error(error: JsException, request: httpx.Request) -> httpx.TransportError:
    """Nothing came back, or it broke off. The platform does not tell which, so nobody may take it for never sent."""
    return NoAnswer(message_of(error)[:500], request=request)

"""What browsers are told: which origins may call, with which methods and headers (clause edge.cors-head).

Credentials travel in the Authorization header, so cookies are never asked for and `*` is never combined with them.
"""

import re
from collections.abc import Collection

from starlette.datastructures import Headers

from moorage.kernel.errors import MethodNotAllowed

_TOKENS = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+(?:[ \t]*,[ \t]*[A-Za-z0-9!#$%&'*+.^_`|~-]+)*")
_HEADER_CHARACTERS = 1000
_EXPOSED = "x-request-id, server-timing, retry-after, location, etag, content-range, accept-ranges, repr-digest"
_DAY = "86400"

Pairs = list[tuple[bytes, bytes]]


def for_answer(headers: Headers, allowed: Collection[str]) -> Pairs:
    """The headers that let a page of an allowed origin read an answer, errors included; none for another origin."""
    origin = _allowed_origin(headers, allowed)
    if origin is None:
        return [(b"vary", b"origin")] if allowed else []
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _EXPOSED.encode()),
        (b"vary", b"origin"),
    ]


def for_preflight(headers: Headers, allowed: Collection[str], methods: Collection[str]) -> Pairs:
    """What a preflight of an allowed origin is answered besides `for_answer`; it needs no credential."""
    if headers.get("access-control-request-method") is None or _allowed_origin(headers, allowed) is None:
        return []
    pairs = [
        (b"access-control-allow-methods", allow(methods).encode()),
        (b"access-control-max-age", _DAY.encode()),
    ]
    asked = headers.get("access-control-request-headers", "").strip()
    if len(asked) <= _HEADER_CHARACTERS and _TOKENS.fullmatch(asked):
        pairs.append((b"access-control-allow-headers", asked.encode()))
    return pairs


def allow(methods: Collection[str]) -> str:
    """The `Allow` header of a route that has these methods."""
    every = {*methods, "OPTIONS"} | ({"HEAD"} if "GET" in methods else set())
    return ", ".join(sorted(every))


def refusal(method: str, methods: Collection[str]) -> MethodNotAllowed:
    """The error for a method that the route does not have."""
    shown = method if method.isalpha() and len(method) < 20 else "this method"
    return MethodNotAllowed(f"{shown} is not allowed here; use {allow(methods)}")


def _allowed_origin(headers: Headers, allowed: Collection[str]) -> bytes | None:
    origin = headers.get("origin")
    if origin is None:
        return None
    if "*" in allowed:
        return b"*"
    return origin.encode("latin-1") if origin in allowed else None

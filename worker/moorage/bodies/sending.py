"""Where a guarded effect sends, with what, and what is known when its callback fails (clauses guards.release,
catalog.destinations).

A request goes beneath its destination's URL and nowhere else. The destination's secret is read when it is sent, stands in
one header, and in nothing that is recorded.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import httpx

from moorage.bodies.asking import Step
from moorage.bodies.errors import Failed, InDoubt
from moorage.bodies.fetch import refused
from moorage.bodies.values import Unrecordable
from moorage.guards.model import Target
from moorage.kernel.errors import FailureTag
from moorage.kernel.instants import Instant

NOTHING_SENT: Final = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
    httpx.InvalidURL,
)
"""What a transport raises before a byte of the request has left. Everything else may have been followed by the effect."""

FROM_BETWEEN: Final = frozenset({502, 504, 520, 522, 524})
"""Answers of something between, which heard nothing of the destination: what became of the request it does not know."""

_SCHEME: Final = "env:"
_OUTSIDE: Final = re.compile(r"(^|/|%2f|\\|%5c)(\.|%2e){1,2}($|/|%2f|\\|%5c)", re.IGNORECASE)
_VISIBLE: Final = re.compile(r"[\x21-\x7e]*")


@dataclass(frozen=True, slots=True)
class Dispatch(Step):
    """What the callback of a guarded effect may know: a Step, and where it may send.

    `guard` is the token of the guard, `target` the declared destination: its name, url, and methods. `authorization` is the
    header's value that its secret makes. Until `window_ends_at` it drops a repeated key; None: it does not promise that.
    """

    guard: str
    target: Target | None
    window_ends_at: Instant | None
    authorization: str | None = field(default=None, repr=False)


def check_path(path: str) -> str:
    """The path, if it can only lead beneath a destination's URL. Raises ValueError."""
    plain = path.partition("?")[0]
    if _VISIBLE.fullmatch(path) is None or "\\" in path or "#" in path:
        raise ValueError("a path to a destination has visible ASCII characters only, percent-encoded, without fragment")
    if plain.startswith("//") or "://" in plain or _OUTSIDE.search(plain):
        raise ValueError("a path to a destination leads beneath its URL: it is no URL itself, and has no '.' or '..' in it")
    return path


def beneath(base: str, path: str) -> str:
    """The URL of a path beneath a destination's own; what stands in the query of either is sent.

    Raises Failed when it would lead elsewhere all the same.
    """
    root, _, told = base.partition("?")
    plain, _, query = path.partition("?")
    url = root if plain == "" else f"{root.rstrip('/')}/{plain.lstrip('/')}"
    queries = "&".join(part for part in (told, query) if part)
    made, wanted = httpx.URL(f"{url}?{queries}" if queries else url), httpx.URL(root)
    below = wanted.path.rstrip("/") + "/"
    same = (made.scheme, made.host, made.port) == (wanted.scheme, wanted.host, wanted.port)
    if not same or not (made.path == wanted.path or made.path.startswith(below)):
        raise Failed(FailureTag.INVALID, "the path leads out of the destination", code="OutsideDestination")
    return str(made)


def check_method(target: Target, method: str) -> None:
    """Raises Failed for a method that the destination does not declare."""
    if method not in target.methods:
        told = f"the destination {target.name!r} takes {', '.join(target.methods)}, not {method}"
        raise Failed(FailureTag.FORBIDDEN, told, code="MethodUndeclared")


def authorization(target: Target | None, secret: Callable[[str], str | None]) -> str | None:
    """The header that the destination's secret makes: `Bearer <secret>`, or the secret itself where it names a scheme.

    Raises Failed when the host has no such binding: nothing is sent then.
    """
    if target is None or target.secret is None:
        return None
    name = target.secret.removeprefix(_SCHEME)
    value = secret(name)
    if not value:
        told = f"the destination {target.name!r} has the secret {name}, which this host does not have"
        raise Failed(FailureTag.UNAUTHENTICATED, told, code="SecretMissing")
    return value if " " in value.strip() else f"Bearer {value.strip()}"


def refusal(asked: httpx.Request, answer: httpx.Response, now: Instant) -> Failed:
    """What an answer means that is neither 2xx nor accepted: a refusal, or that nobody knows."""
    told = refused(asked, answer, now)
    if answer.status_code not in FROM_BETWEEN:
        return told
    return InDoubt(told.tag, told.message, code=told.code, retry_after=told.retry_after)


def is_known(error: Exception) -> bool:
    """Whether the author of a callback says with this error what became of the effect: it was answered, or never sent."""
    return isinstance(error, Failed | Unrecordable) and not isinstance(error, InDoubt)


def is_known_of_request(error: Exception) -> bool:
    """The same of one request that was sent for the author."""
    return is_known(error) or isinstance(error, NOTHING_SENT)

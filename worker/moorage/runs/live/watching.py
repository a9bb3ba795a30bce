"""How a watcher is served, whatever carries it: when it hears of what, and when that ends (clause runs.stream)."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Literal

from moorage.kernel import canonical
from moorage.kernel.errors import RunStreamUnauthorized
from moorage.kernel.limits import CREDENTIAL_CACHE_SECONDS, WATCH_SECONDS
from moorage.runs.live.hub import Message, Subscription
from moorage.runs.live.model import Version, version_of

HEARTBEAT_SECONDS: Final = 15
"""The longest silence of a stream."""

Ending = Literal["ended", "expired", "revoked"]
"""Why a stream ends: the run has; WATCH_SECONDS are over, and the client connects again; the caller may see it no more."""

_LAST: Final = ".end"


async def follow(
    subscription: Subscription,
    ticks: Callable[[], float],
    allowed: Callable[[], Awaitable[bool]],
    seconds: float = int(WATCH_SECONDS),
) -> AsyncIterator[Message | Ending | None]:
    """What a watcher is sent: messages, None after a silence of HEARTBEAT_SECONDS, and at last why there is no more.

    `allowed` is asked again before anything is sent CREDENTIAL_CACHE_SECONDS after it was last asked. The subscription is
    closed when this ends.
    """
    asked = ticks()
    deadline = asked + seconds * 1000
    try:
        while True:
            left = (deadline - ticks()) / 1000
            message = await subscription.next(max(0.0, min(HEARTBEAT_SECONDS, left)))
            if message is None and subscription.over:
                yield "ended"
                return
            if ticks() - asked >= CREDENTIAL_CACHE_SECONDS * 1000:
                asked = ticks()
                if not await allowed():
                    yield "revoked"
                    return
            if message is None and ticks() >= deadline:
                yield "expired"
                return
            yield message
            if ticks() >= deadline and not subscription.over:
                yield "expired"
                return
    finally:
        subscription.close()


async def events(
    subscription: Subscription,
    ticks: Callable[[], float],
    allowed: Callable[[], Awaitable[bool]],
    seconds: float,
) -> AsyncIterator[bytes]:
    """What a watcher is sent, as server-sent events."""
    yield b"retry: 1000\n\n"
    async for item in follow(subscription, ticks, allowed, seconds):
        if isinstance(item, str):
            if item == "revoked":
                told = canonical.compact(RunStreamUnauthorized().problem())
                yield f"event: problem\ndata: {told}\n\n".encode()
            return
        yield event(item)


def event(message: Message | None) -> bytes:
    """A message as a server-sent event; a silence as a comment. The `id` of the last one says that nothing follows.

    The text is ASCII, because some clients take other characters than line feeds for the end of a line.
    """
    if message is None:
        return b": nothing new\n\n"
    last = _LAST if message.last else ""
    return f"id: {message.version.text}{last}\nevent: {message.type}\ndata: {message.text}\n\n".encode()


def heartbeat(version: Version) -> str:
    """A silence as a message of a socket."""
    return canonical.compact({"type": "ping", "version": version.wire()})


def resumed(last_event_id: str) -> Version | Literal["ended"] | None:
    """Where a client stands by the `id` that it saw last; `ended`: it saw the last one. None for what is no such id."""
    if last_event_id.endswith(_LAST):
        return None if version_of(last_event_id.removesuffix(_LAST)) is None else "ended"
    return version_of(last_event_id)

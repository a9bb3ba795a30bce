"""Sending one delivery: what is signed, what is sent, and what the answer means (clause outbox.deliver).

The bytes and the id are those of the delivery, each time it is sent. Redirects are not followed and nothing of the answer is
kept but its status, so neither a credential nor what lies inside this network can come back by a delivery.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal

import httpx
from standardwebhooks import Webhook

from moorage.catalog.destinations import check_url
from moorage.catalog.signatures import standard_key
from moorage.kernel.errors import RequestInvalid
from moorage.kernel.instants import Instant
from moorage.kernel.limits import DELIVERY_RETRY_AFTER_SECONDS, RUN_ERROR_BYTES
from moorage.kernel.masking import MASK, mask
from moorage.kernel.retry_after import retry_after
from moorage.messages.inbox.cloudevents import STRUCTURED

Fate = Literal["delivered", "wait", "gone", "failed"]
"""What became of an attempt: it was taken; the destination asked for time; it is gone for good; anything else."""

ANSWER_BYTES: Final = 4096
DRAIN_SECONDS: Final = 1.0
"""What is read of an answer, and for how long, so that its connection can be used again. Nothing of it is looked at."""

_GONE: Final = 410
_ASK_FOR_TIME: Final = frozenset({429, 503})
_SCHEME: Final = "env:"


@dataclass(frozen=True, slots=True)
class Target:
    """Where deliveries go. Without a `method` it takes none that carries a body. `secret` is the name of a binding that
    holds Standard Webhooks secrets, as `env:NAME`."""

    name: str
    url: str
    method: str | None
    secret: str | None
    timeout_seconds: int


@dataclass(frozen=True, slots=True)
class Leased:
    """A delivery that may be sent once: `attempt` is the number of this attempt in its generation, `epoch` its lease.

    `trace` are the headers, in lower case, that carry the trace of what happened on. They are not signed.
    """

    delivery_id: str
    event_id: str
    generation: int
    attempt: int
    epoch: int
    body: str = field(repr=False)
    trace: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an attempt. `wait_seconds` is what the destination asked for, cut to DELIVERY_RETRY_AFTER_SECONDS."""

    fate: Fate
    status: int | None = None
    error: str | None = None
    wait_seconds: float = 0.0


class Unsendable(Exception):
    """Nothing can be sent as the deployment stands; the message says why."""


@dataclass(frozen=True, slots=True)
class Sender:
    """What deliveries are sent with. `secret` is the binding of a name, `allow_local` lets them go inside this network."""

    transport: httpx.AsyncBaseTransport
    secret: Callable[[str], str | None]
    allow_local: bool = False

    async def send(self, target: Target, leased: Leased, now: Instant) -> Outcome:
        """Send a delivery once and say what became of it; never raises but when it is cancelled."""
        keys: list[str] = []
        try:
            keys = self._secrets(target)
            return await self._exchange(self._request(target, leased, now, keys), target.timeout_seconds, now)
        except TimeoutError:
            return Outcome("failed", error=f"no answer within {target.timeout_seconds} s")
        except Unsendable as error:
            return Outcome("failed", error=str(error))
        except Exception as error:
            return Outcome("failed", error=told(f"{type(error).__name__}: {error}", keys))

    def _request(self, target: Target, leased: Leased, now: Instant, secrets: list[str]) -> httpx.Request:
        if target.method is None:
            raise Unsendable("nothing is sent: the destination takes no method that carries a body")
        try:
            check_url(target.url, allow_local=self.allow_local)
        except RequestInvalid as error:
            raise Unsendable(f"nothing is sent to the destination's URL: {error}") from None
        content = leased.body.encode("utf-8")
        headers = {
            "content-type": STRUCTURED,
            "user-agent": "Moorage",
            "webhook-id": leased.event_id,
            "webhook-timestamp": str(now // 1000),
            "moorage-generation": str(leased.generation),
            "moorage-attempt": str(leased.attempt),
            **leased.trace,
        }
        if secrets:
            headers["webhook-signature"] = signature(secrets, leased.event_id, now, leased.body)
        return httpx.Request(target.method, target.url, headers=headers, content=content)

    def _secrets(self, target: Target) -> list[str]:
        """The secrets that sign: several, between spaces, while one takes the place of another."""
        if target.secret is None:
            return []
        name = target.secret.removeprefix(_SCHEME)
        value = self.secret(name)
        if not value or not value.split():
            raise Unsendable(f"nothing is sent: the secret {name} is not bound")
        return value.split()

    async def _exchange(self, request: httpx.Request, seconds: float, now: Instant) -> Outcome:
        async with asyncio.timeout(seconds):
            answer = await self.transport.handle_async_request(request)
        try:
            outcome = meaning(answer.status_code, answer.headers, now)
            await _drain(answer)
            return outcome
        finally:
            await answer.aclose()


def signature(secrets: list[str], event_id: str, now: Instant, body: str) -> str:
    """The value of webhook-signature: one signature for each secret. Raises Unsendable for a secret that is no key."""
    made = []
    for secret in secrets:
        key = standard_key(secret)
        if key is None:
            raise Unsendable("nothing is sent: the secret is no Standard Webhooks secret, which is base64 behind whsec_")
        made.append(Webhook(key).sign(event_id, datetime.fromtimestamp(now // 1000, UTC), body))
    return " ".join(made)


def meaning(status: int, headers: httpx.Headers, now: Instant) -> Outcome:
    """What an answer means. A Retry-After counts with 429 and 503, and as absent where it asks for no time at all."""
    if 200 <= status < 300:
        return Outcome("delivered", status)
    if status == _GONE:
        return Outcome("gone", status, "it answered 410: it is gone")
    if status in _ASK_FOR_TIME:
        wait = retry_after(headers.get_list("retry-after"), now, DELIVERY_RETRY_AFTER_SECONDS)
        if wait:
            return Outcome("wait", status, f"it answered {status} and asked for {wait:g} s", wait)
    if 300 <= status < 400:
        return Outcome("failed", status, f"it answered {status}: redirects are not followed")
    return Outcome("failed", status, f"it answered {status}")


def told(text: str, secrets: list[str]) -> str:
    """A failure's text as it is kept: without secrets, and at most RUN_ERROR_BYTES long."""
    for secret in secrets:
        text = text.replace(secret, MASK).replace(secret.removeprefix("whsec_"), MASK)
    return mask(text[: int(RUN_ERROR_BYTES)]).encode()[: int(RUN_ERROR_BYTES)].decode("utf-8", "ignore")


async def _drain(answer: httpx.Response) -> None:
    """Read the little that a polite answer has; what fails here, or never ends, does not change what was answered."""
    size = 0
    with suppress(httpx.HTTPError, TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            async for piece in answer.stream:  # type: ignore[union-attr] # it is asynchronous: the transport is
                size += len(piece)
                if size >= ANSWER_BYTES:
                    return

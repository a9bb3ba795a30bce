"""Admission: who asks, by bearer token or by a webhook's signature, before anything else is read."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from moorage.api.requests import ApiRequest
from moorage.catalog import senders
from moorage.catalog.senders import Sender
from moorage.kernel.errors import Unauthenticated

T = TypeVar("T")


async def admit_sender(request: ApiRequest, sender: str, raw: bytes) -> Sender:
    """Admit the webhook sender whose signature over `raw` the request carries, and answer it.

    Only the sender is read, and nothing else if it does not verify. Raises Unauthenticated (clause awake.senders).
    """
    exchange = request.exchange
    verification = await senders.verification(exchange.db, sender, exchange.ports.secret)
    exchange.caller = verification.admit(dict(request.headers), raw, exchange.now)
    return verification.sender


async def as_sender(request: ApiRequest, sender: str, raw: bytes, act: Callable[[Sender], Awaitable[T]]) -> T:
    """What `act` does as the sender whose signature the request carries; see `admit_sender`.

    Where the sender is declared anew between its admission and its commit it is admitted again, as it is now: whoever
    rotates a key while webhooks come loses none of those that verify before and after (clause awake.senders).
    """
    admitted = await admit_sender(request, sender, raw)
    try:
        return await act(admitted)
    except Unauthenticated:
        return await act(await admit_sender(request, sender, raw))

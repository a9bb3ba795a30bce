"""Admission: who asks, by bearer token or by a webhook's signature, before anything else is read."""

from moorage.api.requests import ApiRequest
from moorage.catalog import senders
from moorage.catalog.senders import Sender


async def admit_sender(request: ApiRequest, sender: str, raw: bytes) -> Sender:
    """Admit the webhook sender whose signature over `raw` the request carries, and answer it.

    Only the sender is read, and nothing else if it does not verify. Raises Unauthenticated (clause awake.senders).
    """
    exchange = request.exchange
    verification = await senders.verification(exchange.db, sender, exchange.ports.secret)
    exchange.caller = verification.admit(dict(request.headers), raw, exchange.now)
    return verification.sender

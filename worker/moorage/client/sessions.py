"""Sessions, in which a consumer numbers its claims so that a lost answer is the same claim again."""

from moorage.client.keys import fresh_key
from moorage.client.models import Session
from moorage.client.paging import segment
from moorage.client.wire import Wire


class Sessions:
    """The operations on sessions. Each raises Problem and Unanswered."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def open(self, *, ttl_seconds: float = 3600) -> Session:
        """Open a session that lasts `ttl_seconds` unless it is renewed."""
        return Session.model_validate(
            await self._wire.call("POST", "/sessions", {"ttl_seconds": ttl_seconds}, key=fresh_key())
        )

    async def get(self, session: str) -> Session:
        """A session, and how far its consumers have come."""
        return Session.model_validate(await self._wire.call("GET", f"/sessions/{segment(session)}"))

    async def renew(self, session: str, *, ttl_seconds: float = 3600) -> Session:
        """Let a session that has not ended last longer; a shorter wish leaves it as it is."""
        path = f"/sessions/{segment(session)}/renew"
        sent = {"ttl_seconds": ttl_seconds}
        return Session.model_validate(await self._wire.call("POST", path, sent, repeatable=True))

    async def close(self, session: str) -> None:
        """End a session at once; what it claimed stays claimed, and nothing more is claimed in it."""
        await self._wire.call("DELETE", f"/sessions/{segment(session)}")

"""Records that no attempt could finish."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from moorage.client.keys import fresh_key
from moorage.client.models import DeadLetter, Page, Record
from moorage.client.paging import every, page_of, segment
from moorage.client.wire import Wire
from moorage.kernel.limits import PAGE_ITEMS


class DeadLetters:
    """The operations on dead letters. Each raises Problem and Unanswered."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def page(
        self, kind: str | None = None, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[DeadLetter]:
        """A page of dead letters in the order of their publication."""
        query = {"kind": kind, "limit": limit, "cursor": cursor}
        return page_of(DeadLetter, await self._wire.call("GET", "/dead-letters", query=query))

    def iterate(self, kind: str | None = None) -> AsyncGenerator[DeadLetter, None]:
        """Every dead letter."""
        return every(lambda cursor: self.page(kind, limit=int(PAGE_ITEMS), cursor=cursor))

    async def get(self, record: str) -> DeadLetter:
        """One dead letter, with the attempts that led there."""
        return DeadLetter.model_validate(await self._wire.call("GET", f"/dead-letters/{segment(record)}"))

    async def requeue(self, record: str, reason: str) -> Record:
        """Make a dead letter ready again, with all its attempts before it."""
        path = f"/dead-letters/{segment(record)}/requeue"
        return Record.model_validate(await self._wire.call("POST", path, {"reason": reason}, key=fresh_key()))

    async def requeue_matching(
        self, kind: str, reason: str, match: Mapping[str, Any] | None = None, *, limit: int | None = None
    ) -> list[Record]:
        """Make dead letters that match ready again, the oldest first, at most `limit` (REQUEUE_BATCH) of them."""
        sent: dict[str, Any] = {"kind": kind, "match": dict(match or {}), "reason": reason}
        if limit is not None:
            sent["limit"] = limit
        answer = await self._wire.call("POST", "/dead-letters/requeue", sent, key=fresh_key())
        return [Record.model_validate(one) for one in answer["records"]]

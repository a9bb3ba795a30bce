"""What failed when the Clock fired it, for who operates a deployment."""

from collections.abc import AsyncGenerator
from typing import Any

from moorage.client.models import Answered, Moment, Page
from moorage.client.paging import every, page_of
from moorage.client.wire import Wire
from moorage.kernel.limits import PAGE_ITEMS


class Failure(Answered):
    """An item of a class of due work, `work`, that failed so many times, the last time with this error; and when it is tried
    again."""

    work: str
    item: str
    attempts: int
    error: str
    retry_at: Moment


class Clock:
    """The operations on what the Clock has set aside, for a credential that may operate. Each raises Problem and
    Unanswered."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def failures(
        self, work: str | None = None, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[Failure]:
        """A page of what failed, of one class or of all, by class and item."""
        query = {"work": work, "limit": limit, "cursor": cursor}
        return page_of(Failure, await self._wire.call("GET", "/clock/failures", query=query))

    def iterate(self, work: str | None = None) -> AsyncGenerator[Failure, None]:
        """Everything that failed."""
        return every(lambda cursor: self.failures(work, limit=int(PAGE_ITEMS), cursor=cursor))

    async def retry(self, work: str | None = None, item: str | None = None) -> int:
        """Have it tried at once: one item of a class, a class, or everything, at most CLOCK_RETRY_BATCH. How many would have
        been tried later."""
        named: dict[str, Any] = {"work": work, "item": item}
        sent = {name: value for name, value in named.items() if value is not None}
        answer = await self._wire.call("POST", "/clock/failures/retry", sent, repeatable=True)
        retried: int = answer["retried"]
        return retried

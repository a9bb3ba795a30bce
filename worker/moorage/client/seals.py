"""The hash chain over history: sealing, listing, verifying, and entries with their links."""

from collections.abc import AsyncGenerator
from typing import Any, Literal

from moorage.client.models import Answered, Moment, Page
from moorage.client.paging import every, page_of
from moorage.client.wire import Wire
from moorage.kernel.limits import PAGE_ITEMS


class Link(Answered):
    """The link of the entry at a position: a statement about every entry up to it."""

    position: int
    link: str


class Sealed(Answered):
    """What a request to seal did. `unsealed` entries are left; ask again while there are many."""

    sealed: int
    head: Link | None
    unsealed: int


class Seal(Answered):
    """A stretch of entries that was sealed at once: the last one's position and link."""

    position: int
    link: str
    entries: int
    sealed_at: Moment


class SealedEntry(Answered):
    """A sealed entry: the text that was hashed and the stored link; None where the seal is missing."""

    position: int
    entry: str
    link: str | None


class Broken(Answered):
    """The first position at which the chain does not hold."""

    position: int
    reason: str


class Verified(Answered):
    """What one request verified, up to `head`. Go on after `next` until it is None."""

    ok: bool
    checked: int
    head: Link | None
    unsealed: int
    broken: Broken | None = None
    next: int | None = None


class Seals:
    """The operations on seals, for a credential that may operate. Each raises Problem and Unanswered."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def seal(self) -> Sealed:
        """Seal what has happened so far, without waiting for the Clock."""
        return Sealed.model_validate(await self._wire.call("POST", "/seals", repeatable=True))

    async def page(
        self, *, order: Literal["asc", "desc"] = "asc", limit: int | None = None, cursor: str | None = None
    ) -> Page[Seal]:
        """A page of seals."""
        query = {"order": order, "limit": limit, "cursor": cursor}
        return page_of(Seal, await self._wire.call("GET", "/seals", query=query))

    async def head(self) -> Link | None:
        """The newest link, or None before the first seal."""
        newest = (await self.page(order="desc", limit=1)).items
        return Link(position=newest[0].position, link=newest[0].link) if newest else None

    async def entries(self, after: int = 0, *, limit: int | None = None, cursor: str | None = None) -> Page[SealedEntry]:
        """A page of sealed entries past a position; it may be short before the last one."""
        query = {"after": after, "limit": limit, "cursor": cursor}
        return page_of(SealedEntry, await self._wire.call("GET", "/seals/entries", query=query))

    def iterate_entries(self, after: int = 0) -> AsyncGenerator[SealedEntry, None]:
        """Every such entry."""
        return every(lambda cursor: self.entries(after, limit=int(PAGE_ITEMS), cursor=cursor))

    async def verify(
        self, after: int = 0, *, limit: int | None = None, head: Link | None = None, content: bool = False
    ) -> Verified:
        """Verify a part of the chain; `head` is a link noted earlier, `content` compares bodies of records as well."""
        sent: dict[str, Any] = {"after": after, "content": content}
        if limit is not None:
            sent["limit"] = limit
        if head is not None:
            sent["head"] = {"position": head.position, "link": head.link}
        return Verified.model_validate(await self._wire.call("POST", "/seals/verify", sent, repeatable=True))

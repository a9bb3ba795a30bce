"""Promises that the outside resolves."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from moorage.client.keys import fresh_key
from moorage.client.models import Awakeable, NewAwakeable, Page
from moorage.client.paging import every, page_of, segment
from moorage.client.wire import Wire
from moorage.kernel.errors import FailureTag
from moorage.kernel.limits import PAGE_ITEMS

_SHOWN = "/awake/…"
"""A token is a secret: it stands in no message."""


class Awakeables:
    """The operations on awakeables. Each raises Problem and Unanswered."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def mint(
        self,
        ttl_seconds: float,
        *,
        label: str | None = None,
        subject: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> NewAwakeable:
        """Make a promise that lasts `ttl_seconds`; with a `subject`, that one alone may resolve it."""
        sent: dict[str, Any] = {"ttl_seconds": ttl_seconds}
        if label is not None:
            sent["label"] = label
        if subject is not None:
            sent["subject"] = subject
        if metadata:
            sent["metadata"] = dict(metadata)
        return NewAwakeable.model_validate(await self._wire.call("POST", "/awakeables", sent, key=fresh_key()))

    async def show(self, token: str) -> Awakeable:
        """How the promise stands."""
        return Awakeable.model_validate(await self._wire.call("GET", f"/awake/{segment(token)}", shown=_SHOWN))

    async def show_by_id(self, awakeable: str) -> Awakeable:
        """How a promise of the caller's own stands, also one that another subject is to keep."""
        return Awakeable.model_validate(await self._wire.call("GET", f"/awakeables/{segment(awakeable)}"))

    async def resolve(self, token: str, payload: Any) -> Any:
        """Keep the promise with any JSON; answers what is recorded. The same payload again answers the same."""
        return await self._wire.call("POST", f"/awake/{segment(token)}", payload, repeatable=True, shown=_SHOWN)

    async def reject(self, token: str, tag: FailureTag, message: str) -> Awakeable:
        """Break the promise: whoever waits sees a failure with this tag."""
        sent = {"tag": tag.value, "message": message}
        path = f"/awake/{segment(token)}/reject"
        return Awakeable.model_validate(await self._wire.call("POST", path, sent, repeatable=True, shown=_SHOWN))

    async def page(
        self, *, state: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[Awakeable]:
        """A page of awakeables in the order of minting, for operators."""
        query = {"state": state, "limit": limit, "cursor": cursor}
        return page_of(Awakeable, await self._wire.call("GET", "/awakeables", query=query))

    def iterate(self, *, state: str | None = None) -> AsyncGenerator[Awakeable, None]:
        """Every awakeable."""
        return every(lambda cursor: self.page(state=state, limit=int(PAGE_ITEMS), cursor=cursor))

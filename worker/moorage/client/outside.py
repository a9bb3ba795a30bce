"""Who is outside: the senders that webhooks are taken from, and the destinations that are told and called."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from moorage.client.models import Answered, Moment, Page
from moorage.client.paging import every, page_of, segment
from moorage.client.wire import Wire
from moorage.kernel.limits import PAGE_ITEMS


class Policy(Answered):
    """How deliveries are made to a destination."""

    concurrency: int
    ordered: bool
    max_attempts: int
    timeout_seconds: int


class Destination(Answered):
    """A destination; `secret` names a secret of the Worker, and `secret_bound` says whether it has that now."""

    name: str
    url: str
    methods: tuple[str, ...]
    secret: str | None
    secret_bound: bool | None = None
    dedup_window_seconds: int | None
    publication: bool
    delivery: Policy
    created_at: Moment
    updated_at: Moment


class SenderEvent(Answered):
    """How a sender's webhooks become events; None is as its scheme says."""

    id: str | None
    type: str | None
    keys: tuple[str, ...]
    scope: str | None


class Sender(Answered):
    """A webhook sender; `secrets` is how many it has."""

    name: str
    scheme: str
    subject: str
    tolerance_seconds: int
    secrets: int
    event: SenderEvent | None
    created_at: Moment
    updated_at: Moment


class Destinations:
    """The operations on destinations. Each raises Problem and Unanswered."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def put(self, name: str, url: str, **declaration: Any) -> Destination:
        """Declare a destination, or declare it anew: `secret`, `methods`, `dedup_window_seconds`, `publication`, `delivery`.
        What is not said is as it is where nobody says it, also where the destination had it otherwise before."""
        sent = {"url": url, **declaration}
        return Destination.model_validate(await self._wire.call("PUT", f"/destinations/{segment(name)}", sent))

    async def get(self, name: str) -> Destination:
        """One destination."""
        return Destination.model_validate(await self._wire.call("GET", f"/destinations/{segment(name)}"))

    async def page(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Destination]:
        """A page of the destinations, by name."""
        return page_of(Destination, await self._wire.call("GET", "/destinations", query={"limit": limit, "cursor": cursor}))

    def iterate(self) -> AsyncGenerator[Destination, None]:
        """Every destination."""
        return every(lambda cursor: self.page(limit=int(PAGE_ITEMS), cursor=cursor))


class Senders:
    """The operations on webhook senders. Each raises Problem and Unanswered."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def put(
        self,
        name: str,
        scheme: str,
        secrets: Sequence[str],
        *,
        subject: str | None = None,
        tolerance_seconds: int | None = None,
        event: Mapping[str, Any] | None = None,
    ) -> Sender:
        """Declare a sender, or declare it anew. Its webhooks come to `/webhooks/<name>`; `event` says how they become events
        where the scheme does not. The subject is the name, unless it is said."""
        sent: dict[str, Any] = {"scheme": scheme, "secrets": list(secrets), "subject": subject or name}
        if tolerance_seconds is not None:
            sent["tolerance_seconds"] = tolerance_seconds
        if event:
            sent["event"] = dict(event)
        return Sender.model_validate(await self._wire.call("PUT", f"/senders/{segment(name)}", sent))

    async def get(self, name: str) -> Sender:
        """One sender."""
        return Sender.model_validate(await self._wire.call("GET", f"/senders/{segment(name)}"))

    async def delete(self, name: str) -> None:
        """Remove a sender: its webhooks are refused from now on."""
        await self._wire.call("DELETE", f"/senders/{segment(name)}")

    async def page(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Sender]:
        """A page of the senders, by name."""
        return page_of(Sender, await self._wire.call("GET", "/senders", query={"limit": limit, "cursor": cursor}))

    def iterate(self) -> AsyncGenerator[Sender, None]:
        """Every sender."""
        return every(lambda cursor: self.page(limit=int(PAGE_ITEMS), cursor=cursor))

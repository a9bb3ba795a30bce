"""Events that come in, and which work their keys belong to."""

import base64
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import httpx
from pydantic import Field

from moorage.client.keys import fresh_key, key_or_fresh
from moorage.client.models import Answered, Moment, Page
from moorage.client.paging import every, page_of, segment
from moorage.client.wire import Wire
from moorage.kernel import canonical
from moorage.kernel.limits import PAGE_ITEMS

_BATCH = "application/cloudevents-batch+json"


class Event(Answered):
    """An accepted event: `event` as it was sent, in CloudEvents' structured mode, and what Moorage knows of it. `added`
    tells whether this sending was the first; None where the event was only read. Where one of this source and id stood with
    other content, and the credential may not read it, what it is stays empty."""

    event_id: str
    seq: int
    source: str
    id: str
    type: str = ""
    keys: list[str] = Field(default_factory=list)
    actor: str = ""
    causation: str | None = None
    scope: str | None = None
    content_sha256: str = ""
    accepted_at: Moment
    routed_at: Moment | None = None
    disposition: str | None = None
    work: str | None = None
    event: dict[str, Any] = Field(default_factory=dict)
    added: bool | None = None
    content_differs: bool = False

    @property
    def data(self) -> Any:
        """The event's data: a JSON value, bytes, or None where it has none."""
        encoded = self.event.get("data_base64")
        return self.event.get("data") if encoded is None else base64.b64decode(encoded)


class Accepted(Answered):
    """What stands for one event of a batch. `type` is None where the content differs and the credential may not read it."""

    event_id: str
    seq: int
    source: str
    id: str
    type: str | None = None
    added: bool
    content_differs: bool = False


class Correlation(Answered):
    """A key, by its source and its id there, and the work that it belongs to."""

    source: str
    external_id: str
    work: str
    attached_at: Moment
    attached_by: str


class Events:
    """The operations on events. Each raises Problem and Unanswered."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def send(
        self,
        type_: str,
        data: Any = None,
        *,
        source: str,
        id: str | None = None,  # noqa: A002 - as CloudEvents call it
        subject: str | None = None,
        scope: str | None = None,
        **extensions: str | int | bool,
    ) -> Event:
        """Send an event. `source` and `id` are its identity: the same again is accepted once; without an `id` it is new.

        `data` is any JSON, or bytes; None sends none. `extensions` are further attributes: `time`, `correlationid`, ….
        """
        event: dict[str, Any] = {
            "id": key_or_fresh(id),
            "source": source,
            "type": type_,
            "specversion": "1.0",
            **extensions,
        }
        if subject is not None:
            event["subject"] = subject
        if isinstance(data, bytes):
            event["data_base64"] = base64.b64encode(data).decode("ascii")
        elif data is not None:
            event["data"] = data
        return await self.send_event(event, scope=scope)

    async def send_event(self, event: Mapping[str, Any], *, scope: str | None = None, event_id: str | None = None) -> Event:
        """Send an event of CloudEvents 1.0 in structured mode, as it is. Where an answer was lost it is sent again."""
        query = {"scope": scope, "event_id": event_id}
        answer = await self._wire.call("POST", "/events", dict(event), query=query, key=fresh_key())
        return Event.model_validate(answer)

    async def send_batch(self, events: Sequence[Mapping[str, Any]], *, scope: str | None = None) -> list[Accepted]:
        """Send several events of CloudEvents 1.0, all or none; what stands for each, in order."""
        content = canonical.compact([dict(event) for event in events]).encode()
        headers = {"Content-Type": _BATCH, "Idempotency-Key": fresh_key()}

        def make() -> httpx.Request:
            return self._wire.request("POST", "/events", query={"scope": scope}, headers=headers, content=content)

        answer = await self._wire.send(make, may_repeat=True, shown="/events")
        return [Accepted.model_validate(one) for one in canonical.stored(answer.text)["events"]]

    async def get(self, event_id: str) -> Event:
        """One event, by its own id here."""
        return Event.model_validate(await self._wire.call("GET", f"/events/{segment(event_id)}"))

    async def set_scope(self, event_id: str, scope: str) -> Event:
        """Say which scope an event belongs to; once."""
        return Event.model_validate(await self._wire.call("PUT", f"/events/{segment(event_id)}/scope", {"scope": scope}))

    async def page(
        self,
        *,
        type_: str | None = None,
        source: str | None = None,
        key: str | None = None,
        scope: str | None = None,
        work: str | None = None,
        unrouted: bool = False,
        after: int = 0,
        newest_first: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Event]:
        """A page of events by the order of their acceptance, past the seq `after`; it may be short and have a next one."""
        query = {"type": type_, "source": source, "key": key, "scope": scope, "work": work, "limit": limit, "cursor": cursor}
        query |= {
            "after": after or None,
            "unrouted": "true" if unrouted else None,
            "order": "desc" if newest_first else None,
        }
        return page_of(Event, await self._wire.call("GET", "/events", query=query))

    def iterate(self, **wanted: Any) -> AsyncGenerator[Event, None]:
        """Every event; `wanted` as for `page`."""
        return every(lambda cursor: self.page(**wanted, limit=int(PAGE_ITEMS), cursor=cursor))

    async def last_seq(self, type_: str | None = None) -> int:
        """The seq of the newest event, of the newest of a type where that is given; 0 when there is none."""
        newest = await self.page(type_=type_, newest_first=True, limit=1)
        return newest.items[0].seq if newest.items else 0

    async def follow(self, seconds: float = 1.0, *, after: int, **wanted: Any) -> AsyncGenerator[Event, None]:
        """Every event past the seq `after`, as they come, each once; it looks every so many seconds, for ever."""
        while True:
            async with aclosing(self.iterate(after=after, **wanted)) as found:
                async for event in found:
                    after = event.seq
                    yield event
            await self._wire.timing.sleep(seconds)


class Correlations:
    """Which work a key belongs to, for a credential that may operate. Each raises Problem and Unanswered."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def attach(self, work: str, keys: Sequence[tuple[str, str]]) -> list[Correlation]:
        """Attach keys, each a source and an id there, to a work, all or none; for ever."""
        sent = {"work": work, "keys": [{"source": source, "external_id": external_id} for source, external_id in keys]}
        answer = await self._wire.call("PUT", "/correlations", sent)
        return [Correlation.model_validate(one) for one in answer["items"]]

    async def work_of(self, source: str, external_id: str) -> str | None:
        """The work that a key belongs to, or None."""
        query = {"source": source, "external_id": external_id}
        found = page_of(Correlation, await self._wire.call("GET", "/correlations", query=query)).items
        return found[0].work if found else None

    async def page(self, work: str, *, limit: int | None = None, cursor: str | None = None) -> Page[Correlation]:
        """A page of a work's keys."""
        query = {"work": work, "limit": limit, "cursor": cursor}
        return page_of(Correlation, await self._wire.call("GET", "/correlations", query=query))

    def iterate(self, work: str) -> AsyncGenerator[Correlation, None]:
        """Every key of a work."""
        return every(lambda cursor: self.page(work, limit=int(PAGE_ITEMS), cursor=cursor))

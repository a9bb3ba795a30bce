"""Small values by namespace and key, and consumers' inboxes, which commit them with what they belong to."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from moorage.client.drafts import Draft
from moorage.client.keys import fresh_key
from moorage.client.models import Answered, Moment, Page
from moorage.client.paging import every, page_of, segment
from moorage.client.wire import Wire
from moorage.kernel.limits import PAGE_ITEMS


class Entry(Answered):
    """A value under its key. `revision` counts its puts and deletions, and never goes back."""

    namespace: str
    key: str
    value: Any
    revision: int
    updated_at: Moment


class Outcome(Answered):
    """What a consumer made of an event. `added` tells that it was recorded just now; None where it was only read."""

    consumer: str
    event_id: str
    outcome: Any
    recorded_at: Moment
    added: bool | None = None


class Values:
    """The operations on values. Each raises Problem and Unanswered."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def put(self, namespace: str, key: str, value: Any, *, revision: int | None = None) -> Entry:
        """Put any JSON under a key; with `revision` only if it has that one, 0 for a key that is absent. Where an answer was
        lost it is asked again, and puts once."""
        sent = {"value": value} if revision is None else {"value": value, "revision": revision}
        return Entry.model_validate(await self._wire.call("PUT", _path(namespace, key), sent, key=fresh_key()))

    async def get(self, namespace: str, key: str) -> Entry:
        """One value."""
        return Entry.model_validate(await self._wire.call("GET", _path(namespace, key)))

    async def delete(self, namespace: str, key: str, *, revision: int | None = None) -> None:
        """Delete a key, with `revision` only if it has that one; one that is absent already is fine."""
        await self._wire.call("DELETE", _path(namespace, key), query={"revision": revision}, key=fresh_key())

    async def page(
        self, namespace: str, prefix: str | None = None, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[Entry]:
        """A page of a namespace's keys with their values, by key; those that begin with `prefix`."""
        query = {"prefix": prefix, "limit": limit, "cursor": cursor}
        return page_of(Entry, await self._wire.call("GET", f"/kv/{segment(namespace)}", query=query))

    def iterate(self, namespace: str, prefix: str | None = None) -> AsyncGenerator[Entry, None]:
        """Every such key."""
        return every(lambda cursor: self.page(namespace, prefix, limit=int(PAGE_ITEMS), cursor=cursor))


class Inbox:
    """What consumers made of events. Each operation raises Problem and Unanswered."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def record(
        self,
        consumer: str,
        event_id: str,
        outcome: Any,
        *,
        kv: Mapping[str, Mapping[str, Any]] | None = None,
        records: Sequence[Draft] = (),
    ) -> Outcome:
        """Record an outcome with its changes in one transaction: values by namespace and key (None deletes), and records.

        It is recorded once: whoever comes later is answered what stands, and changes nothing.
        """
        sent: dict[str, Any] = {"outcome": outcome}
        if kv:
            sent["kv"] = {namespace: dict(keys) for namespace, keys in kv.items()}
        if records:
            sent["records"] = [one.wire() for one in records]
        answer = await self._wire.call("POST", _inbox(consumer, event_id), sent, repeatable=True)
        return Outcome.model_validate(answer)

    async def get(self, consumer: str, event_id: str) -> Outcome:
        """What a consumer made of an event."""
        return Outcome.model_validate(await self._wire.call("GET", _inbox(consumer, event_id)))


def _path(namespace: str, key: str) -> str:
    return f"/kv/{segment(namespace)}/{segment(key)}"


def _inbox(consumer: str, event_id: str) -> str:
    return f"/inbox/{segment(consumer)}/{segment(event_id)}"

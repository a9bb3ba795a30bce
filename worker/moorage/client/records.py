"""Publish, read and trace records."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from moorage.client.drafts import Debounce, Draft
from moorage.client.keys import fresh_key, key_or_fresh
from moorage.client.models import DryRun, Entry, Lineage, Page, Record, State
from moorage.client.paging import every, page_of, segment
from moorage.client.wire import Wire
from moorage.kernel.limits import PAGE_DEFAULT, PAGE_ITEMS


class Records:
    """The operations on records. Each raises Problem and Unanswered."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def publish(
        self,
        kind: str,
        body: Mapping[str, Any],
        *,
        metadata: Mapping[str, Any] | None = None,
        parents: Sequence[str] = (),
        priority: int = 0,
        not_before: datetime | None = None,
        id: str | None = None,  # noqa: A002 - the member's name
        debounce: Debounce | None = None,
        key: str | None = None,
    ) -> Record:
        """Publish a record, once, however often the request is sent.

        `key` is the Idempotency-Key under which the same content from several places is one record; without it, this
        call has a key of its own.
        """
        draft = Draft(kind, body, metadata or {}, parents, priority, not_before, id, debounce)
        return await self.publish_draft(draft, key=key)

    async def publish_draft(self, draft: Draft, *, key: str | None = None) -> Record:
        """Publish a draft, as `publish`."""
        return Record.model_validate(await self._wire.call("POST", "/records", draft.wire(), key=key_or_fresh(key)))

    async def publish_batch(self, drafts: Sequence[Draft], *, key: str | None = None) -> list[Record]:
        """Publish 1 to PUBLISH_BATCH records in one transaction, all or none; in the order given."""
        sent = {"records": [draft.wire() for draft in drafts]}
        answer = await self._wire.call("POST", "/records/batch", sent, key=key_or_fresh(key))
        return [Record.model_validate(one) for one in answer["records"]]

    async def query(
        self,
        kind: str,
        match: Mapping[str, Any] | None = None,
        *,
        state: State | None = None,
        order: Literal["asc", "desc"] = "asc",
        limit: int = int(PAGE_DEFAULT),
        cursor: str | None = None,
    ) -> Page[Record]:
        """A page of a kind's records that match, in the order of their publication."""
        asked: dict[str, Any] = {"kind": kind, "match": dict(match or {}), "order": order, "limit": limit}
        if state is not None:
            asked["state"] = state
        if cursor is not None:
            asked["cursor"] = cursor
        return page_of(Record, await self._wire.call("POST", "/records/query", asked, repeatable=True))

    def iterate(
        self,
        kind: str,
        match: Mapping[str, Any] | None = None,
        *,
        state: State | None = None,
        order: Literal["asc", "desc"] = "asc",
        page: int = int(PAGE_ITEMS),
    ) -> AsyncGenerator[Record, None]:
        """Every record that matches, over as many pages as it takes."""
        return every(lambda cursor: self.query(kind, match, state=state, order=order, limit=page, cursor=cursor))

    async def get(self, record: str) -> Record:
        """One record."""
        return Record.model_validate(await self._wire.call("GET", f"/records/{segment(record)}"))

    async def lineage(
        self, record: str, direction: Literal["ancestors", "descendants"] = "ancestors", depth: int | None = None
    ) -> Lineage:
        """What a record came from, or what came from it, nearest first."""
        query = {"direction": direction, "depth": depth}
        return Lineage.model_validate(await self._wire.call("GET", f"/records/{segment(record)}/lineage", query=query))

    async def history(self, record: str, *, limit: int | None = None, cursor: str | None = None) -> Page[Entry]:
        """A page of what happened to a record, oldest first."""
        query = {"limit": limit, "cursor": cursor}
        return page_of(Entry, await self._wire.call("GET", f"/records/{segment(record)}/history", query=query))

    async def dry_run(self, kind: str, body: Mapping[str, Any]) -> DryRun:
        """The live interests that would receive such a record. Writes nothing."""
        sent = {"kind": kind, "body": dict(body)}
        return DryRun.model_validate(await self._wire.call("POST", "/records/dry-run", sent, repeatable=True))

    async def cancel(self, record: str, reason: str) -> Record:
        """End a record that has not ended yet as dead. Whoever holds it is fenced."""
        path = f"/records/{segment(record)}/cancel"
        return Record.model_validate(await self._wire.call("POST", path, {"reason": reason}, key=fresh_key()))

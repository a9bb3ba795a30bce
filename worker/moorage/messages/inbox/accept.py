"""Accepting events: once for each source and delivery id (clauses inbox.accept, inbox.immutable, inbox.two-checkpoints).

`plan` joins any transaction, so that a timer's firing or a webhook's arrival and the event it makes are one commit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from moorage.catalog.access import Caller
from moorage.history.append import CLOCK, append_selected
from moorage.idempotency import keys
from moorage.idempotency.keys import AlreadyDone, Key
from moorage.kernel import canonical, ids
from moorage.kernel.errors import (
    CausationUnknown,
    EventConflict,
    IdempotencyConflict,
    PayloadTooLarge,
    RequestInvalid,
    ScopeUnknown,
)
from moorage.kernel.instants import Instant, after
from moorage.kernel.limits import EVENT_BATCH, EVENT_BATCH_BYTES, EVENT_RETENTION_SECONDS
from moorage.messages.inbox import event_statements as statements
from moorage.messages.inbox.checks import check
from moorage.messages.inbox.model import Event, EventDraft
from moorage.store.chunks import json_arrays
from moorage.store.ports import Database
from moorage.store.transaction import Answer, Reading, Transaction

CLOCK_ACTOR: Final = "clock"
"""The actor of events that timers send."""

APART_BYTES: Final = 200_000
"""An event with more than this is stored by a statement of its own, its data in a parameter of its own."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The event that stands for a delivery. Not `added`: it was accepted before; then `differs` tells whether this delivery
    had other content, which is nowhere kept."""

    event: Event
    added: bool
    differs: bool

    def answer(self, caller: Caller) -> dict[str, Any]:
        """What a client is shown. Anybody may name a source and an id: of an event that is not what was sent, whoever may
        not read its type is told only that it stands (clause catalog.grants)."""
        told = self.event.answer()
        if self.differs and caller.narrowing("read", self.event.type) is not None:
            told = {name: told[name] for name in ("event_id", "seq", "source", "id", "accepted_at")}
        told["added"] = self.added
        return {**told, "content_differs": True} if self.differs else told


def actor_of(subject: str) -> str:
    """The actor of events that a credential's subject sends (clause inbox.actor)."""
    return f"subject:{subject}"


def plan(tx: Transaction, draft: EventDraft, *, actor: str, with_data: bool = False) -> Answer:
    """Accept the draft in this transaction, or find what was accepted under its source and id; the draft is checked here.

    `actor` says who caused it: `subject:<subject>`, `sender:<name>` or `clock`. The answer has one row: `event_id`, `seq`,
    `added` (1 or 0), the other columns of the event that stands, and its data where that was stored before and is asked
    for. History gets `event.accepted` only for what is new. The commit raises CausationUnknown and ScopeUnknown for a new
    event with such a cause or scope, EventConflict for an id of its own that another delivery has.
    """
    return plan_many(tx, [draft], actor=actor, with_data=with_data)


def plan_many(
    tx: Transaction, drafts: Sequence[EventDraft], *, actor: str, with_data: bool = False, key: Key | None = None
) -> Answer:
    """The same for several, all or none; a row for each draft in order. What is sent twice among them is accepted once.

    A remembered `key` is told which were new.
    """
    distinct: dict[tuple[str, str], EventDraft] = {}
    for place, draft in enumerate(drafts):
        check(draft, f"/{place}" if len(drafts) > 1 else "")
        distinct.setdefault((draft.source, draft.delivery_id), draft)
    fresh = ids.several("evt", tx.now, len(distinct))
    rows = [_row(draft, draft.event_id or new) for draft, new in zip(distinct.values(), fresh, strict=True)]
    _require_named(tx, rows)
    tx.refuse("events.event_id", EventConflict())
    for array, data in _chunks(rows):
        tx.run(statements.ACCEPT, drafts=array, data=data, event_actor=actor)
    tx.run(statements.ADD_TERMS)
    keys.note(tx, key, statements.ADDED_IDS)
    answer = tx.run(statements.ACCEPTED, identities=_identities(drafts), with_data=int(with_data))
    append_selected(tx, _history_actor(actor), "event.accepted", statements.TELLING, many=len(rows) > 1)
    tx.entered.add("event.accepted")
    return answer


def kept_until(now: Instant) -> Instant:
    """When what is accepted now falls due for removal, at the earliest."""
    return after(now, EVENT_RETENTION_SECONDS)


def require_unused(tx: Transaction, source: str, delivery_id: str, or_raise: Exception) -> None:
    """Let the transaction commit only if no event was accepted under this source and id."""
    tx.require(statements.IDENTITY_IS_UNUSED, or_raise, source=source, delivery_id=delivery_id)


async def accept(
    db: Database, caller: Caller, now: Instant, drafts: Sequence[EventDraft], *, actor: str, key: Key | None = None
) -> list[Accepted]:
    """Accept 1 to EVENT_BATCH events in one transaction, all or none, and answer what stands for each, in order.

    Whether the caller may is asked before, by `demand`. Each is committed before this returns, and is routed later (clause
    inbox.two-checkpoints). Of a duplicate the stored event is answered; of several events at once, without its data. A
    repeated Idempotency-Key answers as the first time.

    Raises what `plan` does, RequestInvalid for another number of events, PayloadTooLarge past EVENT_BATCH_BYTES,
    IdempotencyConflict when the key was used with other content.
    """
    if not 1 <= len(drafts) <= EVENT_BATCH:
        raise RequestInvalid(f"a batch has 1 to {EVENT_BATCH} events")
    tx = Transaction(now)
    caller.guard(tx)
    keys.remember(tx, key, {"added": []})
    answer = plan_many(tx, drafts, actor=actor, with_data=len(drafts) == 1, key=key)
    try:
        await db.commit(tx)
    except AlreadyDone:
        return await _accepted_before(db, drafts, key)
    return _standing(answer.rows, drafts, {row["event_id"] for row in answer.rows if row["added"]})


def demand(caller: Caller, drafts: Sequence[EventDraft]) -> None:
    """Raise Forbidden unless the caller may publish events of these types."""
    for type_ in {draft.type for draft in drafts}:
        caller.demand_whole("publish", type_)


def content_of(draft: EventDraft) -> str:
    """The canonical JSON of the event as `GET /events` shows it under `event`; its digest is the event's content_sha256."""
    members = {"id": draft.delivery_id, "source": draft.source, "type": draft.type, "specversion": "1.0", **draft.attributes}
    texts = {name: canonical.dumps(value) for name, value in members.items()}
    if draft.data is not None:
        texts["data"] = draft.data
    return "{" + ",".join(f'"{name}":{texts[name]}' for name in sorted(texts)) + "}"


def _row(draft: EventDraft, event_id: str) -> dict[str, Any]:
    return {
        "event_id": event_id,
        "source": draft.source,
        "delivery_id": draft.delivery_id,
        "type": draft.type,
        "keys": canonical.dumps(list(draft.keys)),
        "causation": draft.causation,
        "scope": draft.scope,
        "content_sha256": canonical.digest(content_of(draft)),
        "envelope": canonical.dumps(dict(draft.attributes)),
        "data": draft.data,
    }


def _identities(drafts: Sequence[EventDraft]) -> str:
    return canonical.compact([{"source": draft.source, "delivery_id": draft.delivery_id} for draft in drafts])


def _require_named(tx: Transaction, rows: Sequence[Mapping[str, Any]]) -> None:
    """What a new event refers to must be there."""
    wanted: tuple[tuple[str, str, Exception], ...] = (
        ("causation", statements.CAUSES_EXIST, CausationUnknown()),
        ("scope", statements.SCOPES_EXIST, ScopeUnknown()),
    )
    for name, statement, error in wanted:
        naming = [{part: row[part] for part in ("source", "delivery_id", name)} for row in rows if row[name] is not None]
        if naming:
            tx.require(statement, error, identities=canonical.compact(naming))


def _chunks(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str | None]]:
    """The rows in order as JSON arrays of bounded size, each large one by itself with its data apart."""
    held: list[str] = []
    total = 0
    for row in rows:
        text = canonical.compact(row)
        total += canonical.size(row["envelope"]) + canonical.size(row["data"] or "")
        if canonical.size(text) <= APART_BYTES:
            held.append(text)
            continue
        yield from ((array, None) for array in json_arrays(held))
        held = []
        yield canonical.compact([{**row, "data": None}]), row["data"]
    yield from ((array, None) for array in json_arrays(held))
    if len(rows) > 1 and total > EVENT_BATCH_BYTES:
        raise PayloadTooLarge(f"the events of one request pass {EVENT_BATCH_BYTES} bytes", limit=int(EVENT_BATCH_BYTES))


def _standing(rows: Sequence[Mapping[str, Any]], drafts: Sequence[EventDraft], added: set[str]) -> list[Accepted]:
    """What stands for each delivery; of one event that came several times the first was new."""
    new = set(added)
    standing = []
    for row, draft in zip(rows, drafts, strict=True):
        event = Event.of({name: value for name, value in row.items() if name != "added"})
        differs = event.content_sha256 != canonical.digest(content_of(draft))
        if event.event_id in new and not differs:
            event = replace(event, data=draft.data)
        standing.append(Accepted(event, event.event_id in new, differs))
        new.discard(event.event_id)
    return standing


async def _accepted_before(db: Database, drafts: Sequence[EventDraft], key: Key | None) -> list[Accepted]:
    """What the key's first request was answered, from the events as they are now."""
    reference = await keys.recall(db, key)
    reading = Reading()
    found = reading.ask(statements.ACCEPTED, identities=_identities(drafts), with_data=int(len(drafts) == 1))
    await db.read(reading)
    if len(found.rows) < len(drafts):
        raise IdempotencyConflict("the events that this key sent are gone")
    return _standing(found.rows, drafts, set(reference["added"]))


def _history_actor(actor: str) -> str:
    """Who history says did it: the subject itself, as in every other entry."""
    return CLOCK if actor == CLOCK_ACTOR else actor.removeprefix("subject:")

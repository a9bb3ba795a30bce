"""What consumers made of events: one outcome for (consumer, event id), recorded together with its own effects (clause
inbox.consumer).

A consumer is told an event at least once. It asks here with what it would do; the first time its outcome, its changes of
keys and its records commit together, and every further time it is answered what it made of the event before. The event may
be of any system: its id is all that is kept of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from moorage.catalog.access import Caller
from moorage.catalog.builtin import check_publisher
from moorage.catalog.kinds import Kinds
from moorage.catalog.revisions import REPLANS, KindChanged
from moorage.history.append import CLOCK, Event, append, append_selected
from moorage.kernel import canonical
from moorage.kernel.errors import (
    Conflict,
    EventConflict,
    EventUnknown,
    Forbidden,
    Gone,
    KindConflict,
    KindFull,
    MoorageError,
    PayloadTooLarge,
    RateLimited,
    RequestError,
    Unknown,
)
from moorage.kernel.ids import check_client_id
from moorage.kernel.instants import Instant, after, full_ten_minutes, render
from moorage.kernel.limits import INBOX_OUTCOME_BYTES, INBOX_RETENTION_SECONDS, SETTLE_RESULTS
from moorage.kernel.refusals import refused
from moorage.kv import changes
from moorage.kv.model import Change, changes_of
from moorage.messages.inbox import consumer_statements as statements
from moorage.records import bounds, publish
from moorage.records.model import Draft, Record
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Transaction

SWEEP: Final = 500
"""Outcomes that one transaction forgets."""


class _RecordedBefore(Exception):
    """The consumer has an outcome for the event already. It never leaves the room."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a consumer made of an event, any JSON of its own. `added` tells that it was recorded just now, and then
    `published` are the records that it brought."""

    consumer: str
    event_id: str
    outcome: Any
    recorded_at: Instant
    added: bool = False
    published: tuple[Record, ...] = ()

    @classmethod
    def of(cls, row: Row) -> "Outcome":
        """The outcome that a row holds."""
        return cls(row["consumer"], row["event_id"], canonical.stored(row["outcome"]), row["recorded_at"])

    def answer(self) -> dict[str, Any]:
        """What a client is shown."""
        return {
            "consumer": self.consumer,
            "event_id": self.event_id,
            "outcome": self.outcome,
            "recorded_at": render(self.recorded_at),
        }


async def record(
    db: Database,
    kinds: Kinds,
    caller: Caller,
    now: Instant,
    consumer: str,
    event_id: str,
    outcome: Any,
    wished: Mapping[str, Mapping[str, Any]] | None = None,
    drafts: Sequence[Draft] = (),
) -> Outcome:
    """Record the outcome, change the keys and publish the records in one transaction; or answer the outcome that is recorded
    already, and then nothing of this one is done, whatever it says. `wished` are values by namespace and key; None deletes.

    A consumer is granted as a kind of its name is, with `publish`, and each namespace and kind that it changes by its own
    grant. Raises IdInvalid, Forbidden, PayloadTooLarge past INBOX_OUTCOME_BYTES, RequestInvalid past SETTLE_RESULTS, and
    what a publication raises.
    """
    _check_names(consumer, event_id)
    caller.demand_whole("publish", consumer)
    try:
        text, changed = _checked(caller, outcome, wished or {}, drafts)
        return await _record(db, kinds, caller, now, (consumer, event_id), text, changed, drafts)
    except (_RecordedBefore, RequestError, Forbidden, Unknown, Conflict, Gone, RateLimited, KindFull) as error:
        # What can no longer be done was perhaps done before: asking again must not fail for that.
        found = await _recorded(db, consumer, event_id)
        if found is not None:
            return found
        if isinstance(error, MoorageError):
            raise
        raise EventConflict("the outcome was forgotten at this moment; try again") from None


async def _record(
    db: Database,
    kinds: Kinds,
    caller: Caller,
    now: Instant,
    name: tuple[str, str],
    text: str,
    changed: Sequence[Change],
    drafts: Sequence[Draft],
) -> Outcome:
    consumer, event_id = name
    for attempt in range(REPLANS):
        tx = Transaction(now)
        caller.guard(tx)
        # Before all else that may refuse: the first thing that a repetition must meet is what was recorded.
        tx.refuse("inbox.consumer", _RecordedBefore())
        tx.run(statements.RECORD, consumer=consumer, event_id=event_id, actor=caller.subject, outcome=text)
        told = {"consumer": consumer, "event_id": event_id}
        subject = f"inbox:{consumer}/{event_id}"
        append(tx, caller.subject, Event(subject, "inbox.recorded", told, content_sha256=canonical.digest(text)))
        changes.plan(tx, caller.subject, changed)
        planned, inserted = None, []
        if drafts:
            planned = await publish.plan(db, kinds, caller, now, drafts, fresh=attempt > 0)
            await publish.require_parents(db, kinds, caller, now, tx, drafts)
            bounds.draw(tx, caller, len(planned))
            inserted = publish.insert(tx, caller.subject, planned)
            bounds.require_depth(tx, planned.kinds)
        try:
            await db.commit(tx)
        except KindChanged:
            continue
        published = publish.stored(planned, inserted, now, caller.subject) if planned else []
        return Outcome(consumer, event_id, canonical.stored(text), now, True, tuple(published))
    raise KindConflict("a record's kind is being redeclared; try again")


def _checked(
    caller: Caller, outcome: Any, wished: Mapping[str, Mapping[str, Any]], drafts: Sequence[Draft]
) -> tuple[str, list[Change]]:
    """The outcome and the changes as they are stored, once everything about them is in order that needs no database."""
    text = canonical.dumps(outcome)
    if canonical.size(text) > INBOX_OUTCOME_BYTES:
        raise PayloadTooLarge(f"an outcome has at most {INBOX_OUTCOME_BYTES} bytes", limit=int(INBOX_OUTCOME_BYTES))
    if len(drafts) > SETTLE_RESULTS:
        raise refused("/records", f"has more than {SETTLE_RESULTS} records")
    if any(draft.debounce is not None for draft in drafts):
        raise refused("/records", "come with an outcome and are not debounced")
    check_publisher({draft.kind for draft in drafts})
    changed = changes_of(wished)
    for namespace in {one.namespace for one in changed}:
        caller.demand_whole("publish", namespace)
    return text, changed


async def show(db: Database, caller: Caller, consumer: str, event_id: str) -> Outcome:
    """What the consumer made of the event, for who may publish or read under its name.

    Raises IdInvalid, Forbidden, EventUnknown when nothing is recorded, or no longer.
    """
    _check_names(consumer, event_id)
    try:
        caller.demand_whole("publish", consumer)
    except Forbidden:
        caller.demand_whole("read", consumer)
    found = await _recorded(db, consumer, event_id)
    if found is None:
        raise EventUnknown("the consumer has recorded nothing for this event")
    return found


def forgotten_at(outcome: Outcome) -> Instant:
    """When the Clock has to look for outcomes that are past their time, on account of this one: a full ten minutes."""
    return full_ten_minutes(after(outcome.recorded_at, INBOX_RETENTION_SECONDS))


async def _recorded(db: Database, consumer: str, event_id: str) -> Outcome | None:
    reading = Reading()
    found = reading.ask(statements.RECORDED, consumer=consumer, event_id=event_id)
    await db.read(reading)
    row = found.first()
    return None if row is None else Outcome.of(row)


def _check_names(consumer: str, event_id: str) -> None:
    check_client_id(consumer, "a consumer's name")
    check_client_id(event_id, "an event's id")


class InboxRetention:
    """Outcomes are forgotten INBOX_RETENTION_SECONDS after they were recorded; from then on an event counts as new. It
    falls due at the full ten minutes."""

    name = "inbox_retention"
    shard: Final = "upkeep"
    coalesces = True
    earliest = statements.EARLIEST_OLD
    page = statements.OLD

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Forget at most SWEEP outcomes, in one round trip; what is left is listed again at once."""
        old = {"before": now - int(INBOX_RETENTION_SECONDS) * 1000, "limit": SWEEP}
        tx = Transaction(now)
        append_selected(tx, CLOCK, "inbox.forgotten", statements.FORGETTING, many=False, **old)
        forgotten = tx.run(statements.FORGET, **old)
        await db.commit(tx)
        return forgotten.changes

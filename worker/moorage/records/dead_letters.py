"""Dead letters: list, inspect, requeue (clause records.dead-letter)."""

import json
from collections.abc import Mapping
from typing import Any

from moorage.catalog.access import Caller
from moorage.catalog.kinds import Kinds
from moorage.history.append import append_selected
from moorage.idempotency import keys
from moorage.idempotency.keys import AlreadyDone, Key
from moorage.kernel.errors import RecordNotDead, RecordUnknown, RequestInvalid
from moorage.kernel.instants import Instant
from moorage.kernel.limits import REQUEUE_BATCH
from moorage.kernel.pages import Page, PageRequest
from moorage.kernel.refusals import check_reason
from moorage.records import query, statements
from moorage.records.claim import done_before
from moorage.records.holds import hold, hold_chosen
from moorage.records.model import Attempt, DeadLetter, Record
from moorage.records.patterns import both, compile
from moorage.records.visibility import matching, narrowed, visible, visible_kind
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Transaction


async def list_dead_letters(
    db: Database, kinds: Kinds, caller: Caller, now: Instant, page: PageRequest, kind_name: str | None = None
) -> Page[DeadLetter]:
    """A page of dead letters by order of publication, of one kind or of all.

    Raises KindUnknown or Forbidden for a kind that the caller may not read; without a kind, it takes a
    grant to read every record of every kind, and raises Forbidden otherwise.
    """
    filters = ["dead-letters", kind_name]
    start = page.after(filters, int) or [0]
    reading = Reading()
    if kind_name is None:
        caller.demand("read")
        rows = reading.ask(statements.DEAD, after=start[0], limit=page.limit + 1)
    else:
        kind = await visible_kind(db, kinds, caller, now, kind_name, "read")
        compiled = compile(narrowed(caller, "read", kind))
        sql = statements.DEAD_OF_KIND.replace("{narrowed}", f"AND ({compiled.where})")
        parameters = {**compiled.parameters, "kind": kind_name, "after": start[0], "limit": page.limit + 1}
        rows = reading.ask(sql, **parameters)
    await db.read(reading)
    return page.page(rows.rows, filters, lambda row: [row["seq"]], _dead_letter, met=rows.rows[0]["met"] if rows.rows else 0)


async def show(db: Database, kinds: Kinds, caller: Caller, now: Instant, record: str) -> DeadLetter:
    """One dead letter with its attempts. Raises RecordUnknown when there is none that the caller may read."""
    reading = Reading()
    found = reading.ask(statements.DEAD_LETTER, record=record)
    await db.read(reading)
    letter = _dead_letter(found.one(RecordUnknown()))
    if not await visible(db, kinds, caller, now, [letter.record]):
        raise RecordUnknown()
    return letter


async def requeue(
    db: Database, kinds: Kinds, caller: Caller, now: Instant, record: str, reason: str, key: Key | None = None
) -> Record:
    """Make a dead letter ready again, with all its attempts before it; history keeps reason and failure.

    The same again under the same key answers the record as it is now. Raises RecordUnknown, Forbidden without a grant to
    operate, RecordNotDead, IdempotencyConflict.
    """
    found = await query.get(db, kinds, caller, now, record)
    caller.demand("operate", found.kind)
    if not await visible(db, kinds, caller, now, [found], "operate"):
        raise RecordUnknown()
    tx = Transaction(now)
    caller.guard(tx)
    keys.remember(tx, key, {"record": record})
    tx.require(statements.IS_DEAD, RecordNotDead(), record=record)
    hold(tx, key, record)
    try:
        return (await _requeue(db, tx, caller, reason, statements.CHOSEN_ONE, {"record": record}))[0]
    except AlreadyDone:
        return await done_before(db, kinds, caller, now, key, "operate")


async def requeue_matching(
    db: Database,
    kinds: Kinds,
    caller: Caller,
    now: Instant,
    kind_name: str,
    match: Mapping[str, Any],
    reason: str,
    limit: int = int(REQUEUE_BATCH),
    key: Key | None = None,
) -> list[Record]:
    """Requeue at most `limit` dead letters of a kind that match, oldest first, in one transaction.

    They are those that the caller may both read and operate on. The same again under the same key answers the records of
    the first time, as they are now. Raises KindUnknown, Forbidden, PatternInvalid, RequestInvalid, IdempotencyConflict.
    """
    if not 1 <= limit <= REQUEUE_BATCH:
        raise RequestInvalid(f"limit lies between 1 and {REQUEUE_BATCH}")
    await visible_kind(db, kinds, caller, now, kind_name, "read")
    kind, wanted = await matching(db, kinds, caller, now, kind_name, "operate", match)
    compiled = compile(both(wanted, narrowed(caller, "read", kind)))
    parameters: dict[str, Any] = {**compiled.parameters, "kind": kind_name, "limit": limit}
    chosen = statements.CHOSEN_DEAD.replace("{where}", compiled.where)
    tx = Transaction(now)
    caller.guard(tx)
    if key is not None:
        keys.remember(tx, key, {})
        keys.note(tx, key, statements.CHOSEN_TO_REMEMBER.replace("{chosen}", chosen), **parameters)
        hold_chosen(tx, key, chosen, parameters)
    try:
        return await _requeue(db, tx, caller, reason, chosen, parameters)
    except AlreadyDone:
        return await _requeued_before(db, kinds, caller, now, key)


async def _requeued_before(db: Database, kinds: Kinds, caller: Caller, now: Instant, key: Key | None) -> list[Record]:
    reference = await keys.recall(db, key)
    records = await query.get_many(db, kinds, caller, now, reference["records"])
    shown = await visible(db, kinds, caller, now, records, "operate")
    return sorted(shown, key=lambda record: record.seq)


async def _requeue(
    db: Database, tx: Transaction, caller: Caller, reason: str, chosen: str, parameters: Mapping[str, Any]
) -> list[Record]:
    check_reason(reason)
    selection = statements.REQUEUED.replace("{chosen}", chosen)
    append_selected(tx, caller.subject, "record.requeued", selection, many=True, reason=reason, **parameters)
    requeued = tx.run(statements.REQUEUE.replace("{chosen}", chosen), **parameters)
    await db.commit(tx)
    return sorted((Record.of(row) for row in requeued.rows), key=lambda record: record.seq)


def _dead_letter(row: Row) -> DeadLetter:
    entries = json.loads(row["attempts_made"])
    released = {entry["data"]["epoch"] for entry in entries if entry["type"] == "record.released"}
    attempts = [
        Attempt(entry["data"]["attempt"], entry["data"]["epoch"], entry["data"]["owner"], entry["at"])
        for entry in entries
        if entry["type"] == "record.claimed" and entry["data"]["epoch"] not in released
    ]
    return DeadLetter(Record.of(row), sorted(attempts, key=lambda one: one.epoch))

"""Reading records: by id, by pattern, by lineage."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from moorage.catalog.access import Caller
from moorage.catalog.kinds import Kinds
from moorage.kernel import canonical
from moorage.kernel.errors import RecordRemoved, RecordUnknown, RequestInvalid
from moorage.kernel.instants import Instant
from moorage.kernel.limits import LINEAGE_DEPTH, LINEAGE_RECORDS, PAGE_BYTES
from moorage.kernel.pages import Page, PageRequest
from moorage.records import retention_statements, statements
from moorage.records.model import Record, Relative, State
from moorage.records.page_statements import Order
from moorage.records.pages import read_page
from moorage.records.patterns import compile
from moorage.records.visibility import matching, visible
from moorage.store.ports import Database
from moorage.store.transaction import Reading

Direction = Literal["ancestors", "descendants"]


async def read(db: Database, ids: Sequence[str]) -> list[Record]:
    """The records with these ids, whoever asks: for rooms that have admitted the caller already."""
    reading = Reading()
    rows = reading.ask(statements.GET, ids=canonical.dumps(list(ids)))
    await db.read(reading)
    return [Record.of(row) for row in rows.rows]


async def get_many(db: Database, kinds: Kinds, caller: Caller, now: Instant, ids: Sequence[str]) -> list[Record]:
    """Those of the records that exist and that the caller may read."""
    return await visible(db, kinds, caller, now, await read(db, ids))


async def get(db: Database, kinds: Kinds, caller: Caller, now: Instant, record: str) -> Record:
    """One record. Raises RecordUnknown when there is none that the caller may read, RecordRemoved when there was."""
    found = await get_many(db, kinds, caller, now, [record])
    if not found:
        raise await absent(db, caller, record)
    return found[0]


async def absent(db: Database, caller: Caller, record: str) -> RecordUnknown | RecordRemoved:
    """What to say of an id under which there is no record for the caller.

    That there was one, which retention removed, is told to those who may read every record of its kind: whether a
    pattern would have let others read it cannot be found out any more.
    """
    reading = Reading()
    last = reading.ask(retention_statements.LAST_ENTRY, record=record)
    await db.read(reading)
    row = last.first()
    if row is None or row["type"] != "record.removed":
        return RecordUnknown()
    readable = caller.may("read", row["kind"]) and caller.narrowing("read", row["kind"]) is None
    return RecordRemoved() if readable else RecordUnknown()


async def query(
    db: Database,
    kinds: Kinds,
    caller: Caller,
    now: Instant,
    kind_name: str,
    match: Mapping[str, Any],
    page: PageRequest,
    state: State | None = None,
    order: Order = "asc",
) -> Page[Record]:
    """A page of a kind's records that match, by order of publication.

    Its work is bounded: it may hold fewer records than asked for, or none, and still have a next cursor (see
    page_statements). Following the cursors meets every record that was there all the time once.
    Raises KindUnknown, PatternInvalid, CursorMismatch when the cursor was made for another query.
    """
    _, wanted = await matching(db, kinds, caller, now, kind_name, "read", match)
    filters = ["records", kind_name, match, state, order]
    return await read_page(db, kind_name, compile(wanted), state, order, page, filters)


async def lineage(
    db: Database, kinds: Kinds, caller: Caller, now: Instant, record: str, direction: Direction, depth: int
) -> tuple[list[Relative], bool]:
    """The record's ancestors or descendants, nearest generation first, to `depth` generations (clause records.lineage).

    The flag tells that LINEAGE_RECORDS or PAGE_BYTES cut the walk: more may have been there. A record that is reached at
    several depths counts as often. Records that the caller may not read are left out. Raises RecordUnknown for the record
    itself, RequestInvalid for a depth outside 1 to LINEAGE_DEPTH.
    """
    if not 1 <= depth <= LINEAGE_DEPTH:
        raise RequestInvalid(f"depth lies between 1 and {LINEAGE_DEPTH}")
    await get(db, kinds, caller, now, record)
    sql = statements.ANCESTORS if direction == "ancestors" else statements.DESCENDANTS
    reading = Reading()
    rows = reading.ask(sql, id=record, depth=depth, limit=LINEAGE_RECORDS + 1)
    await db.read(reading)
    found = [Relative(row["depth"], Record.of(row)) for row in rows.rows]
    shown = {one.id for one in await visible(db, kinds, caller, now, [one.record for one in found])}
    kept = [one for one in found if one.record.id in shown]
    return kept[:LINEAGE_RECORDS], any(
        row["walked"] > LINEAGE_RECORDS or row["bytes_met"] > PAGE_BYTES for row in rows.rows[:1]
    )

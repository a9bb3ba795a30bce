"""Watching: the entries about a kind's records, in the order of their commit (clause history.watch).

A watch is a row of readings, each from where the last one ended. Positions are given in the order of the commits and
without gaps, so an entry that was not there yet never appears behind a position that was read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moorage.catalog.access import Caller
from moorage.catalog.kinds import Kinds
from moorage.history.query import Entry
from moorage.kernel.instants import Instant
from moorage.kernel.limits import WATCH_BYTES, WATCH_ENTRIES, WATCH_SCAN
from moorage.records import watch_statements as statements
from moorage.records.model import Record
from moorage.records.patterns import EVERYTHING, compile
from moorage.records.visibility import matching
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row

_ENTRY = "entry_"


@dataclass(frozen=True, slots=True)
class Watched:
    """One reading: entries with their records as they are now, None where the record is gone.

    The next reading starts at `position`, which may lie past the last entry. `more` tells that it need not wait.
    """

    entries: list[tuple[Entry, Record | None]]
    position: int
    more: bool


async def read_on(
    db: Database, kinds: Kinds, caller: Caller, now: Instant, kind_name: str, match: Mapping[str, Any], after: int
) -> Watched:
    """At most WATCH_ENTRIES entries past `after` about records of the kind that match and that the caller may watch.

    One round trip, which reads at most WATCH_SCAN entries of whatever kind; an answer holds at most WATCH_BYTES of bodies,
    or one entry. Raises KindUnknown, Forbidden, PatternInvalid.
    """
    _, wanted = await matching(db, kinds, caller, now, kind_name, "watch", match)
    compiled = compile(wanted)
    everything = wanted == EVERYTHING
    where = statements.ANY_RECORD if everything else statements.MATCHING_RECORD.replace("{where}", compiled.where)
    window = {"after": after, "scan": int(WATCH_SCAN)}
    reading = Reading()
    reach = reading.ask(statements.REACH, **window)
    hits = reading.ask(
        statements.WATCHED.replace("{where}", where),
        **compiled.parameters,
        **window,
        kind=kind_name,
        limit=int(WATCH_ENTRIES),
        characters=int(WATCH_BYTES),
    )
    await db.read(reading)
    rows = hits.rows
    entries = [_watched(row) for row in rows]
    if rows and rows[0]["matched"] > len(rows):
        return Watched(entries, entries[-1][0].position, more=True)
    seen = reach.one()
    return Watched(entries, after if seen["position"] is None else seen["position"], more=seen["seen"] == WATCH_SCAN)


async def newest(db: Database) -> int:
    """The position of the newest entry, 0 when there is none."""
    reading = Reading()
    found = reading.ask(statements.NEWEST)
    await db.read(reading)
    position: int = found.one()["position"]
    return position


async def look(db: Database, kind: str) -> tuple[int, bool]:
    """The newest position, and whether some record of the kind is claimable. Reads two rows."""
    reading = Reading()
    found = reading.ask(statements.LOOK, kind=kind)
    await db.read(reading)
    row = found.one()
    return row["position"], bool(row["ready"])


def _watched(row: Row) -> tuple[Entry, Record | None]:
    entry = {name.removeprefix(_ENTRY): value for name, value in row.items() if name.startswith(_ENTRY)}
    return Entry.of(entry), None if row["id"] is None else Record.of(row)

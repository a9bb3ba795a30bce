"""Reading history by subject and by position, with an exclusive cursor (clause history.query)."""

import json
from dataclasses import dataclass
from typing import Any, Final

from moorage.history import statements
from moorage.kernel import canonical
from moorage.kernel.instants import EARLIEST, LATEST, Instant
from moorage.kernel.limits import JSON_DEPTH
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row

_DAMAGED_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened. `position` orders all entries, `revision` those of the subject from 1 without gaps."""

    position: int
    subject: str
    revision: int
    type: str
    kind: str | None
    actor: str
    at: Instant
    data: dict[str, Any]
    content_sha256: str | None

    @classmethod
    def of(cls, row: Row) -> "Entry":
        """The entry that a row of the table holds, however it was edited: it can always be looked at.

        Data that is no JSON object is `{"damaged": …}` with its first characters; an instant out of bounds is the nearest.
        """
        return cls(**{**row, "at": Instant(min(max(row["at"], EARLIEST), LATEST)), "data": _data(row["data"])})


async def entries(db: Database, after: int, limit: int, subject: str | None = None) -> list[Entry]:
    """At most `limit` entries past position `after`, oldest first; of one subject when it is given."""
    reading = Reading()
    if subject is None:
        page = reading.ask(statements.PAGE, after=after, limit=limit)
    else:
        page = reading.ask(statements.PAGE_OF_SUBJECT, subject=subject, after=after, limit=limit)
    await db.read(reading)
    return [Entry.of(row) for row in page.rows]


def _data(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
        if isinstance(value, dict) and canonical.depth(value) <= 2 * JSON_DEPTH:
            canonical.compact(value).encode()  # an answer can hold it: neither NaN nor half a surrogate pair
            return value
    except (ValueError, RecursionError):
        pass
    return {"damaged": text[:_DAMAGED_CHARACTERS]}

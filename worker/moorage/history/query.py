"""Reading history by subject and by position, with an exclusive cursor (clause history.query)."""

import json
from dataclasses import dataclass
from typing import Any

from moorage.history import statements
from moorage.kernel.instants import Instant
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row


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
        """The entry that a row of the table holds."""
        return cls(**{**row, "data": json.loads(row["data"])})


async def entries(db: Database, after: int, limit: int, subject: str | None = None) -> list[Entry]:
    """At most `limit` entries past position `after`, oldest first; of one subject when it is given."""
    reading = Reading()
    if subject is None:
        page = reading.ask(statements.PAGE, after=after, limit=limit)
    else:
        page = reading.ask(statements.PAGE_OF_SUBJECT, subject=subject, after=after, limit=limit)
    await db.read(reading)
    return [Entry.of(row) for row in page.rows]

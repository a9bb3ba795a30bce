"""What the Clock has set aside, for who operates it: which items failed and why, and trying them again (clause
timers.alarm)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from moorage.catalog.access import Caller
from moorage.kernel import canonical
from moorage.kernel.instants import Instant
from moorage.kernel.limits import CLOCK_RETRY_BATCH
from moorage.kernel.pages import Page, PageRequest
from moorage.kernel.refusals import refused
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Transaction
from moorage.timers import statements
from moorage.timers.aside import Failing
from moorage.timers.due import DueWork, Shard


@dataclass(frozen=True, slots=True)
class SetAside:
    """An item of a class of due work that failed. The class may be one of an earlier version."""

    work: str
    item: str
    failing: Failing

    @classmethod
    def of(cls, row: Row) -> "SetAside":
        """What a row of `due_failures` tells."""
        return cls(row["work"], row["item"], Failing(row["attempts"], row["error"], row["retry_at"]))

    def answer(self) -> dict[str, Any]:
        """What a client is shown."""
        return {"work": self.work, "item": self.item, **self.failing.answer()}


@dataclass(frozen=True, slots=True)
class Retried:
    """How many items are due now that were to be tried later, and the shards that have to be told."""

    items: int
    shards: Collection[Shard]


async def list_failures(db: Database, caller: Caller, page: PageRequest, work: str | None = None) -> Page[SetAside]:
    """What is set aside, of one class or of all, by class and item. Raises Forbidden unless the caller may operate,
    CursorMismatch."""
    caller.demand("operate")
    filters = ["clock failures", work]
    class_, item = page.after(filters, str, str) or [work or "", ""]
    reading = Reading()
    sql = statements.FAILURES if work is None else statements.FAILURES_OF_WORK
    rows = reading.ask(sql, work=class_, item=item, limit=page.limit + 1)
    await db.read(reading)
    return page.page(rows.rows, filters, lambda row: [row["work"], row["item"]], SetAside.of)


async def retry(
    db: Database, caller: Caller, now: Instant, works: Sequence[DueWork], work: str | None = None, item: str | None = None
) -> Retried:
    """Let what is set aside be tried now: one item of a class, a class, or all, at most CLOCK_RETRY_BATCH, the first due
    first. Their attempts count on. What is due already is left alone, so that the same again finds nothing more.

    Raises Forbidden unless the caller may operate, RequestInvalid for a class that is none of `works` and for an item
    without a class.
    """
    caller.demand("operate")
    known = {one.name: one.shard for one in works}
    if work is not None and work not in known:
        raise refused("/work", "must be a class of due work of this version, as GET /clock/failures names them")
    if item is not None and work is None:
        raise refused("/item", "is one of a class: name its work too")
    tx = Transaction(now)
    caller.guard(tx)
    listed = canonical.dumps(sorted(known) if work is None else [work])
    if item is None:
        retried = tx.run(statements.RETRY_NOW, works=listed, most=int(CLOCK_RETRY_BATCH))
    else:
        retried = tx.run(statements.RETRY_ITEM_NOW, work=work, item=item)
    await db.commit(tx)
    return Retried(len(retried.rows), {known[row["work"]] for row in retried.rows})

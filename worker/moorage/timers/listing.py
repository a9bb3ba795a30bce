"""Listing timers (clause timers.fire)."""

from moorage.catalog.access import Caller
from moorage.kernel.pages import Page, PageRequest
from moorage.store.ports import Database
from moorage.store.transaction import Reading
from moorage.timers import timer_statements as statements
from moorage.timers.model import Timer


async def list_timers(db: Database, caller: Caller, page: PageRequest) -> Page[Timer]:
    """The timers that will fire, by id, without their events' data. Raises Forbidden unless the caller may operate,
    CursorMismatch."""
    caller.demand("operate")
    filters = ["timers"]
    [after] = page.after(filters, str) or [""]
    reading = Reading()
    rows = reading.ask(statements.PAGE, after=after, limit=page.limit + 1)
    await db.read(reading)
    return page.page(rows.rows, filters, lambda row: [row["id"]], Timer.of)

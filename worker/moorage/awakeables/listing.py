"""Listing awakeables, for operators."""

from moorage.awakeables import statements
from moorage.awakeables.model import Awakeable, State
from moorage.catalog.access import Caller
from moorage.kernel.errors import Forbidden
from moorage.kernel.instants import Instant
from moorage.kernel.pages import Page, PageRequest
from moorage.store.ports import Database
from moorage.store.transaction import Reading


async def list_awakeables(
    db: Database, caller: Caller, now: Instant, request: PageRequest, state: State | None = None
) -> Page[Awakeable]:
    """A page of awakeables in the order of minting, as of `now`, of one state if it is given; no tokens, no payloads.

    Raises Forbidden unless the caller may operate on every kind, CursorMismatch for a cursor of another listing.
    """
    if not caller.may("operate"):
        raise Forbidden("listing awakeables needs the action operate on every kind")
    filters = {"list": "awakeables", "state": state}
    key = request.after(filters, str)
    reading = Reading()
    rows = reading.ask(statements.PAGE, after=key[0] if key else "", state=state, limit=request.limit + 1, now=now)
    await db.read(reading)
    return request.page(rows.rows, filters, key=lambda row: [row["id"]], item=Awakeable.of)

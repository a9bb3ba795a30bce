"""Reading one page of a kind's records; see page_statements for how."""

from collections.abc import Sequence
from typing import Final

from moorage.kernel.limits import PAGE_BYTES, QUERY_EXAMINED, QUERY_STREAMS
from moorage.kernel.pages import Page, PageRequest, encode
from moorage.records.model import Record, State
from moorage.records.page_statements import Order, by_history, counting, merged
from moorage.records.patterns import Compiled
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row

_LAST_SEQ: Final = 2**53


async def read_page(
    db: Database, kind: str, compiled: Compiled, state: State | None, order: Order, page: PageRequest, filters: object
) -> Page[Record]:
    """One page; `filters` is what its cursor binds. Raises CursorMismatch."""
    start = page.after(filters, int) or [0 if order == "asc" else _LAST_SEQ]
    parameters = {
        **compiled.parameters,
        "kind": kind,
        "after": start[0],
        "limit": page.limit + 1,
        "bytes": int(PAGE_BYTES),
        "examined": int(QUERY_EXAMINED),
        "streams": int(QUERY_STREAMS),
    }
    reading = Reading()
    rows = reading.ask(merged(compiled, state, order), **parameters)
    counted = None
    if state in (None, "ready"):
        counted = reading.ask(counting(compiled), **parameters)
    await db.read(reading)
    if counted is not None and counted.one()["streams"] > QUERY_STREAMS:
        walking = Reading()
        rows = walking.ask(by_history(compiled, state, order), **parameters, state=state)
        await db.read(walking)
    return _page(rows.rows, page.limit, filters)


def _page(rows: Sequence[Row], limit: int, filters: object) -> Page[Record]:
    """The page that the rows hold: they end with one that is not shown, if any more may follow."""
    shown: list[Row] = []
    for row in rows:
        if not row["hit"]:
            return _ended(shown, row["at"], filters)
        if len(shown) == limit or not row["fits"]:
            return _ended(shown, shown[-1]["at"], filters)
        shown.append(row)
        if row["examined"] == QUERY_EXAMINED:
            return _ended(shown, row["at"], filters)
    return Page([Record.of(row) for row in shown], None)


def _ended(shown: Sequence[Row], last: int, filters: object) -> Page[Record]:
    return Page([Record.of(row) for row in shown], encode(filters, [last]))

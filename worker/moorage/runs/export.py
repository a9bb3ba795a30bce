"""Runs as lines of JSON: what the file holds, then one run a line (clause runs.export)."""

from collections.abc import AsyncIterator
from typing import Final

from moorage.catalog.access import Caller
from moorage.kernel import canonical, ids
from moorage.kernel.instants import Instant, render
from moorage.kernel.limits import EXPORT_DEFAULT, EXPORT_ITEMS
from moorage.runs import record_statements as statements
from moorage.runs.listing import Wanted, is_filtered, window_of
from moorage.runs.record import Run
from moorage.store.ports import Database
from moorage.store.transaction import Reading

_EXAMINED: Final = 4 * int(EXPORT_ITEMS)
"""Runs looked through for those that a caller with few grants may see, or that have a status."""

_PAGE: Final = 250


async def export(
    db: Database, caller: Caller, now: Instant, wanted: Wanted, limit: int | None = None, store: str = "moorage"
) -> AsyncIterator[str]:
    """The lines, each with its newline: a header with `store`, `window`, `count` and `truncated`, then the runs of the
    window that started before now, newest first; EXPORT_DEFAULT unless `limit` says otherwise, at most EXPORT_ITEMS.

    Which runs they are is settled by the first reading; they are read a page at a time as the lines are taken, and each
    is as it stands then. A scope is no filter of an export.
    """
    ceiling = int(EXPORT_DEFAULT) if limit is None else max(1, min(limit, int(EXPORT_ITEMS)))
    window = window_of(caller, wanted, ids.earliest("run", Instant(now + 1)))
    examined = _EXAMINED if is_filtered(caller, wanted) else ceiling + 1
    reading = Reading()
    of_ids = statements.IDS if wanted.body is None else statements.IDS_OF_BODY
    found = reading.ask(of_ids, **window, examined=examined, limit=ceiling + 1)
    of_seen = statements.EXAMINED if wanted.body is None else statements.EXAMINED_OF_BODY
    seen = reading.ask(of_seen, **window, examined=examined)
    await db.read(reading)
    chosen: list[str] = canonical.loads(found.one()["ids"].encode())
    more = len(chosen) > ceiling or (examined == _EXAMINED and seen.one()["number"] == examined)
    header = {
        "store": store,
        "window": {"since": None if wanted.since is None else render(wanted.since), "limit": ceiling},
        "count": min(len(chosen), ceiling),
        "truncated": more,
    }
    yield canonical.compact(header) + "\n"
    for first in range(0, min(len(chosen), ceiling), _PAGE):
        async for line in _page(db, chosen[first : min(first + _PAGE, ceiling)]):
            yield line


async def _page(db: Database, run_ids: list[str]) -> AsyncIterator[str]:
    reading = Reading()
    rows = reading.ask(statements.SOME, ids=canonical.compact(run_ids))
    await db.read(reading)
    for row in rows.rows:
        yield canonical.compact(Run.of(row).wire()) + "\n"

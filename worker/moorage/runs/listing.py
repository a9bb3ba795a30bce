"""Runs in a window of time, newest first (clauses runs.history-window, runs.describe-window, runs.bound-spelling).

The window is a range of ids, and the database walks the index that the filters name from its end: what lies outside is not
read. What only a look at the run can tell (its status, and whether a caller with few grants may see it) is looked for among
at most QUERY_EXAMINED runs a page, so that a page may be short and still have a next one.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

from moorage.catalog.access import Caller
from moorage.kernel import canonical, ids
from moorage.kernel.errors import HistoryBoundSpelling, RequestInvalid
from moorage.kernel.instants import EARLIEST, LATEST, Instant, normalize, parse, render
from moorage.kernel.limits import QUERY_EXAMINED, RUNS_DEFAULT, RUNS_ITEMS
from moorage.kernel.pages import PageRequest, encode
from moorage.runs import authority
from moorage.runs import record_statements as statements
from moorage.runs.model import Status
from moorage.runs.record import Run
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Scalar

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?Z", re.ASCII)
_END: Final = "run_~"
"""Past every run's id."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which runs: of a body, of exactly one scope, with a status, started at or after an instant."""

    body: str | None = None
    scope: str | None = None
    status: Status | None = None
    since: Instant | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of runs and its window. `next_cursor` is there when the window may hold more: then it is `truncated`."""

    items: list[Run]
    next_cursor: str | None
    since: Instant | None
    limit: int

    @property
    def truncated(self) -> bool:
        """Whether the window may hold more runs than were given."""
        return self.next_cursor is not None

    def wire(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "items": [run.wire() for run in self.items],
            "next_cursor": self.next_cursor,
            "window": {"since": None if self.since is None else render(self.since), "limit": self.limit},
            "truncated": self.truncated,
        }


def bound(text: str) -> Instant:
    """A window's lower bound, which it includes: `YYYY-MM-DD`, midnight UTC, or an RFC 3339 instant that ends in Z.

    An instant within a millisecond counts from the next one on. Raises HistoryBoundSpelling for any other spelling.
    """
    spelled = f"{text}T00:00:00Z" if _DAY.fullmatch(text) else text
    if _INSTANT.fullmatch(spelled) is None:
        raise HistoryBoundSpelling()
    try:
        told = normalize(spelled)
        if told < "1970":
            return EARLIEST
        return Instant(min(parse(told) + (told[23:29] != "000000"), LATEST))
    except RequestInvalid:
        raise HistoryBoundSpelling() from None


def page_request(limit: int | None, cursor: str | None) -> PageRequest:
    """RUNS_DEFAULT runs unless `limit` says otherwise, and never more than RUNS_ITEMS (clause runs.describe-window)."""
    return PageRequest(int(RUNS_DEFAULT) if limit is None else max(1, min(limit, int(RUNS_ITEMS))), cursor)


async def list_runs(db: Database, caller: Caller, wanted: Wanted, page: PageRequest) -> Listing:
    """A page of the runs that the caller may see, newest first, in one round trip. Raises CursorMismatch."""
    filters = ["runs", wanted.body, wanted.scope, wanted.status, wanted.since]
    before = (page.after(filters, str) or [_END])[0]
    window = window_of(caller, wanted, before)
    looks = is_filtered(caller, wanted)
    examined = int(QUERY_EXAMINED) if looks else page.limit + 1
    reading = Reading()
    rows = reading.ask(_statement(wanted, "LIST"), **window, examined=examined, limit=page.limit + 1)
    seen = reading.ask(_statement(wanted, "EXAMINED"), **window, examined=examined) if looks else None
    await db.read(reading)
    shown = [Run.of(row) for row in rows.rows[: page.limit]]
    cursor = None
    if len(rows.rows) > page.limit:
        cursor = encode(filters, [shown[-1].run_id])
    elif seen is not None and seen.one()["number"] == examined:
        cursor = encode(filters, [seen.one()["last"]])
    return Listing(shown, cursor, wanted.since, page.limit)


def is_filtered(caller: Caller, wanted: Wanted) -> bool:
    """Whether it takes a look at a run to tell if it belongs."""
    hidden = authority.seen_bodies(caller) is not None and (wanted.body is None or not authority.sees(caller, wanted.body))
    return hidden or wanted.status is not None or (wanted.scope is not None and wanted.body is not None)


def window_of(caller: Caller, wanted: Wanted, before: str) -> dict[str, Scalar]:
    """What the statements bind of a window that ends before an id."""
    bodies = authority.seen_bodies(caller)
    window: dict[str, Scalar] = {
        "low": "run_" if wanted.since is None else ids.earliest("run", wanted.since),
        "before": before,
        "body": wanted.body,
        "status": wanted.status,
        "seen_bodies": None if bodies is None else canonical.compact(bodies),
        "caller": caller.subject,
    }
    return window if wanted.scope is None else {**window, "scope": wanted.scope}


def _statement(wanted: Wanted, name: str) -> str:
    by = "_OF_SCOPE" if wanted.scope is not None else "_OF_BODY" if wanted.body is not None else ""
    text: str = getattr(statements, name + by)
    return text

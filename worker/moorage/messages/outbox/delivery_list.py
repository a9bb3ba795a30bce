"""What operators see of deliveries: pages of them, and how each destination stands (clauses outbox.redeliver,
outbox.lag)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from moorage.catalog.access import Caller
from moorage.kernel.instants import Instant, render
from moorage.kernel.limits import DELIVERIES_COUNTED, QUERY_EXAMINED
from moorage.kernel.pages import Page, PageRequest, encode
from moorage.messages.outbox import delivery_list_statements as statements
from moorage.messages.outbox import outbox_statements as outbox
from moorage.messages.outbox.deliveries import Delivery, State
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row

Order = Literal["asc", "desc"]

_PAST_ALL: Final = "dlv~"
"""Sorts behind the id of every delivery."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which deliveries: in a state, of a subscription, to a destination, of an event. None is any."""

    state: State | None = None
    subscription: str | None = None
    destination: str | None = None
    event_id: str | None = None
    order: Order = "asc"


async def list_deliveries(db: Database, caller: Caller, page: PageRequest, wanted: Wanted) -> Page[Delivery]:
    """A page of deliveries in the order in which they were made, or the newest first; without their bodies.

    It looks at QUERY_EXAMINED deliveries at most, so a page may be short and still have a next one. Raises Forbidden,
    CursorMismatch.
    """
    caller.demand("operate")
    listed = ["deliveries", wanted.state, wanted.subscription, wanted.destination, wanted.event_id, wanted.order]
    start = page.after(listed, str) or ["" if wanted.order == "asc" else _PAST_ALL]
    reading = Reading()
    told: dict[str, Any] = {
        "state": wanted.state,
        "subscription": wanted.subscription,
        "destination": wanted.destination,
        "after": start[0],
        "examined": int(QUERY_EXAMINED),
        "limit": page.limit + 2,
    }
    rows = reading.ask(_statement(wanted), **told, event_id=wanted.event_id)
    await db.read(reading)
    return _page(rows.rows, page.limit, listed)


def _statement(wanted: Wanted) -> str:
    forward = wanted.order == "asc"
    if wanted.event_id is not None:
        return statements.OF_EVENT if forward else statements.OF_EVENT_BACK
    if wanted.state == "dead":
        return statements.DEAD if forward else statements.DEAD_BACK
    return statements.PAGE if forward else statements.PAGE_BACK


def _page(rows: list[Row], limit: int, listed: object) -> Page[Delivery]:
    """The page that the rows hold: hits, and the last delivery that was examined."""
    hits = [row for row in rows if row["hit"]]
    cursor = None
    if len(hits) > limit:
        cursor = encode(listed, [hits[limit - 1]["delivery_id"]])
    elif rows and rows[-1]["examined"] == QUERY_EXAMINED:
        cursor = encode(listed, [rows[-1]["delivery_id"]])
    extra = ("hit", "examined")
    shown = [{name: value for name, value in row.items() if name not in extra} for row in hits[:limit]]
    return Page([Delivery.of(row) for row in shown], cursor)


@dataclass(frozen=True, slots=True)
class Summary:
    """How far the outbox is behind, and how deliveries to each destination stand."""

    lag_seconds: float
    destinations: Page[dict[str, Any]]

    def answer(self) -> dict[str, Any]:
        """What a client is shown."""
        page = self.destinations
        return {"lag_seconds": self.lag_seconds, "items": page.items, "next_cursor": page.next_cursor}


async def summarize(db: Database, caller: Caller, now: Instant, page: PageRequest) -> Summary:
    """The lag, and a page of destinations by name. Counts end at DELIVERIES_COUNTED, and the delay of publication is that of
    as many of the newest deliveries. Raises Forbidden, CursorMismatch."""
    caller.demand("operate")
    listed = ["deliveries-summary"]
    after = page.after(listed, str) or [""]
    reading = Reading()
    rows = reading.ask(statements.SUMMARY, after=after[0], limit=page.limit + 1, most=int(DELIVERIES_COUNTED))
    untold = reading.ask(outbox.OLDEST_UNTOLD)
    await db.read(reading)
    found = page.page(rows.rows, listed, lambda row: [row["destination"]], lambda row: _shown(row, now))
    return Summary(lag_of(untold.first(), now), found)


async def lag(db: Database, now: Instant) -> float:
    """Seconds since the oldest entry that some active subscription has not looked at; 0.0 when all have."""
    reading = Reading()
    untold = reading.ask(outbox.OLDEST_UNTOLD)
    await db.read(reading)
    return lag_of(untold.first(), now)


def lag_of(oldest: Row | None, now: Instant) -> float:
    """The same from the row that `outbox_statements.OLDEST_UNTOLD` gave."""
    return 0.0 if oldest is None else max(0, now - oldest["oldest"]) / 1000


def _shown(row: Row, now: Instant) -> dict[str, Any]:
    oldest = row["oldest"]
    return {
        "destination": row["destination"],
        "pending": row["pending"],
        "oldest_pending_at": None if oldest is None else render(Instant(oldest)),
        "oldest_pending_seconds": None if oldest is None else max(0, now - oldest) / 1000,
        "attempts": row["attempts"] or 0,
        "dead": row["dead"],
        "publication_delay_seconds": _delays(row),
        "circuit": row["circuit"],
        "blocked_until": None if row["blocked_until"] is None else render(Instant(row["blocked_until"])),
        "reason": row["reason"],
    }


def _delays(row: Row) -> Mapping[str, float] | None:
    if row["mean"] is None:
        return None
    return {"mean": max(0, row["mean"]) / 1000, "longest": max(0, row["longest"]) / 1000}

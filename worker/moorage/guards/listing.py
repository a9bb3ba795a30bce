"""What operators see of guards, of holders, and of what was released by hand (clauses guards.inspect, guards.audit)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moorage.catalog.access import Caller
from moorage.guards import statements
from moorage.guards.model import Audit, EvidenceClass, Holder, Seen
from moorage.kernel.errors import GuardUnknown
from moorage.kernel.instants import Instant, render
from moorage.kernel.pages import Page, PageRequest
from moorage.store.ports import Database
from moorage.store.transaction import Reading


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which guards: those that protect a scope, of an execution, to a destination, of a class. None is any."""

    scope: str | None = None
    execution: str | None = None
    destination: str | None = None
    evidence_class: EvidenceClass | None = None


async def list_guards(db: Database, caller: Caller, now: Instant, page: PageRequest, wanted: Wanted) -> Page[Seen]:
    """Open guards, the oldest first. Raises Forbidden, CursorMismatch."""
    caller.demand("operate")
    filters = ["guards", wanted.scope, wanted.execution, wanted.destination, wanted.evidence_class]
    after = page.after(filters, str) or [""]
    reading = Reading()
    rows = reading.ask(
        statements.PAGE,
        now=now,
        after=after[0],
        scope=wanted.scope,
        execution=wanted.execution,
        destination=wanted.destination,
        **{"class": wanted.evidence_class},
        limit=page.limit + 1,
    )
    await db.read(reading)
    return page.page(rows.rows, filters, lambda row: [row["token"]], Seen.of)


async def show(db: Database, caller: Caller, token: str) -> Seen:
    """One open guard. Raises Forbidden, GuardUnknown."""
    caller.demand("operate")
    reading = Reading()
    found = reading.ask(statements.SHOW, token=token)
    await db.read(reading)
    return Seen.of(found.one(GuardUnknown()))


async def count(db: Database, now: Instant) -> Mapping[str, Any]:
    """How many guards are open, by class, and since when the oldest is; for operators' gauges."""
    reading = Reading()
    found = reading.ask(statements.COUNT, now=now)
    await db.read(reading)
    by_class = {row["class"]: row["open"] for row in found.rows}
    oldest = min((row["oldest"] for row in found.rows), default=None)
    return {
        "open": sum(by_class.values()),
        "by_class": {name: by_class.get(name, 0) for name in ("replay-safe", "receipt-required", "unknown")},
        "oldest_admitted_at": None if oldest is None else render(oldest),
        "oldest_seconds": None if oldest is None else max(0, (now - oldest) // 1000),
    }


async def list_holders(db: Database, caller: Caller, page: PageRequest) -> Page[Holder]:
    """Holders by their ids, the oldest first. Raises Forbidden, CursorMismatch."""
    caller.demand("operate")
    filters = ["holders"]
    after = page.after(filters, str) or [""]
    reading = Reading()
    rows = reading.ask(statements.HOLDERS, after=after[0], limit=page.limit + 1)
    await db.read(reading)
    return page.page(rows.rows, filters, lambda row: [row["holder_id"]], Holder.of)


async def list_audit(db: Database, caller: Caller, page: PageRequest, token: str | None = None) -> Page[Audit]:
    """What operators released, the oldest first; of one guard with `token`. Raises Forbidden, CursorMismatch."""
    caller.demand("operate")
    filters = ["audit", token]
    after = page.after(filters, str) or [""]
    reading = Reading()
    rows = reading.ask(statements.AUDITS, after=after[0], token=token, limit=page.limit + 1)
    await db.read(reading)
    return page.page(rows.rows, filters, lambda row: [row["id"]], Audit.of)

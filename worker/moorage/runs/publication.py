"""Publishing records in a run's own transaction, as whoever started it (clauses records.publish, runs.effect-boundary)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from moorage.catalog.access import Caller
from moorage.catalog.builtin import check_publisher
from moorage.catalog.kinds import Kinds
from moorage.kernel.errors import RequestInvalid
from moorage.kernel.instants import Instant, parse
from moorage.kernel.limits import PUBLISH_BATCH
from moorage.kernel.refusals import refused
from moorage.records import bounds, publish
from moorage.records.model import Draft
from moorage.store.ports import Database
from moorage.store.transaction import Transaction

_MEMBERS: Final = frozenset({"kind", "body", "metadata", "parents", "priority", "not_before"})


def drafts_of(records: Sequence[Mapping[str, Any]]) -> list[Draft]:
    """The drafts of what a body publishes, each as for `POST /records`. Raises RequestInvalid with a pointer."""
    if not 1 <= len(records) <= PUBLISH_BATCH:
        raise RequestInvalid(f"a run publishes 1 to {PUBLISH_BATCH} records at once")
    return [_draft(one, f"/records/{place}") for place, one in enumerate(records)]


async def plan(
    db: Database, kinds: Kinds, caller: Caller, now: Instant, drafts: Sequence[Draft], *, fresh: bool
) -> publish.Plan:
    """Check the drafts and give them ids, as `records.publish.plan` does; built-in kinds are refused."""
    check_publisher({draft.kind for draft in drafts})
    return await publish.plan(db, kinds, caller, now, drafts, fresh=fresh)


async def insert(
    db: Database, kinds: Kinds, caller: Caller, tx: Transaction, drafts: Sequence[Draft], planned: publish.Plan
) -> None:
    """Add planned records to a run's transaction, with their parents, rates and depths.

    The commit raises KindChanged when a kind was redeclared meanwhile: plan anew.
    """
    await publish.require_parents(db, kinds, caller, tx.now, tx, drafts)
    bounds.draw(tx, caller, len(planned))
    publish.insert(tx, caller.subject, planned)
    bounds.require_depth(tx, planned.kinds)


def _draft(told: Mapping[str, Any], pointer: str) -> Draft:
    unknown = sorted(set(told) - _MEMBERS)
    if unknown:
        raise refused(f"{pointer}/{unknown[0]}", "is no member of a record")
    kind, body = told.get("kind"), told.get("body")
    if not isinstance(kind, str):
        raise refused(f"{pointer}/kind", "must be the name of a kind")
    if not isinstance(body, Mapping):
        raise refused(f"{pointer}/body", "must be an object")
    metadata, parents, priority = told.get("metadata", {}), told.get("parents", ()), told.get("priority", 0)
    if not isinstance(metadata, Mapping):
        raise refused(f"{pointer}/metadata", "must be an object")
    if isinstance(parents, str) or not all(isinstance(one, str) for one in parents):
        raise refused(f"{pointer}/parents", "must be ids of records")
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise refused(f"{pointer}/priority", "must be an integer")
    return Draft(kind, body, tuple(parents), metadata, priority, _instant(told.get("not_before"), pointer))


def _instant(told: Any, pointer: str) -> Instant | None:
    if told is None:
        return None
    if not isinstance(told, str):
        raise refused(f"{pointer}/not_before", "must be an RFC 3339 instant")
    try:
        return parse(told)
    except RequestInvalid as error:
        raise refused(f"{pointer}/not_before", error.detail) from None

"""Renewing and settling many claims in one request (clauses records.settle, records.settle-replay, leases.renew).

Each item means what the single call means, with the same history, and has an outcome of its own: one item's refusal undoes
nothing of another's. The round trips do not grow with the items: one when all may go through.
"""

import hmac
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from moorage.catalog.access import Caller
from moorage.catalog.builtin import check_publisher
from moorage.catalog.kinds import Kinds
from moorage.catalog.revisions import KindChanged
from moorage.catalog.schemas import Budget
from moorage.history.append import append_selected
from moorage.idempotency import keys
from moorage.idempotency.keys import Key
from moorage.kernel import canonical
from moorage.kernel.errors import (
    DeploymentError,
    KindConflict,
    LeaseExpired,
    LeaseFenced,
    MoorageError,
    PayloadTooLarge,
    RecordExists,
    RecordUnknown,
    RequestInvalid,
    SettlementConflict,
)
from moorage.kernel.instants import Instant, render
from moorage.kernel.limits import CLAIM_BATCH, PUBLISH_BATCH, PUBLISH_BATCH_BYTES, SETTLE_RESULTS
from moorage.records import admission, batch_statements, publish, query
from moorage.records.claim import MAX_EPOCH, checked_seconds
from moorage.records.model import ClaimRef, Draft, Record, RecordLease, Settlement
from moorage.records.publish import Plan
from moorage.records.settle import child, digest_of
from moorage.records.visibility import visible
from moorage.store.ports import Database
from moorage.store.transaction import Answer, Reading, Row, Transaction

_TRIES: Final = 5
"""How often a batch is planned: each time but the first, something was refused, or changed at that very moment."""

_NOBODYS: Final = ["", 0, None]
"""An item that stands for no claim, so that the others keep their places."""

Refused = MoorageError
Outcomes = dict[int, Any]


class NotAllHeld(Exception):
    """Some claim of the batch does not hold its record: see which, and go on with the others. It never leaves the room."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """A claim to renew; without `lease_seconds` for as long as its kind says."""

    ref: ClaimRef
    lease_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """A claim to settle, with its results."""

    ref: ClaimRef
    results: tuple[Draft, ...] = ()


async def renew_many(
    db: Database, kinds: Kinds, caller: Caller, now: Instant, items: Sequence[Renewal], key: Key | None = None
) -> list[RecordLease | Refused]:
    """Extend up to CLAIM_BATCH leases; for each, in the order given, the lease or why not.

    The same key with the same content extends again, which is harmless. Raises RequestInvalid when there are none or too
    many, or when a record is named twice, and IdempotencyConflict.
    """
    _check([item.ref for item in items])
    await _bind(db, caller, now, key)
    refs = [item.ref for item in items]
    refused = await _shut_out(db, kinds, caller, now, refs)
    wanted = canonical.compact([_NOBODYS if place in refused else _wish(item) for place, item in enumerate(items)])
    limits = _Limits.of(caller)
    tx = Transaction(now)
    caller.guard(tx)
    asked = {"items": wanted, "actor": caller.subject, **limits.parameters}
    renewed = tx.run(limits.put_in(batch_statements.RENEW), **asked)
    told = limits.put_in(batch_statements.RENEWED)
    append_selected(tx, caller.subject, "record.renewed", told, many=True, items=wanted, **limits.parameters)
    standing = tx.run(limits.put_in(batch_statements.STANDING), **asked)
    await db.commit(tx)
    leases = {row["id"]: RecordLease(row["epoch"], row["owner"], row["expires_at"], row["attempts"]) for row in renewed.rows}
    refused = await _refusals(db, kinds, caller, now, refs, standing.rows) | refused
    return [leases.get(ref.record) or refused[place] for place, ref in enumerate(refs)]


async def settle_many(
    db: Database, kinds: Kinds, caller: Caller, now: Instant, items: Sequence[Ending], key: Key | None = None
) -> list[Settlement | Refused]:
    """Settle up to CLAIM_BATCH claims; for each, in the order given, the settlement or why not.

    All that may be settled is settled in one transaction. Raises RequestInvalid when there are none or too many claims or
    results, or when a record is named twice; PayloadTooLarge; KindConflict when nothing was done because kinds and claims
    kept changing; IdempotencyConflict. Sent again, with or without a key, each settlement answers its first receipt.
    """
    _check([item.ref for item in items])
    if sum(len(item.results) for item in items) > PUBLISH_BATCH:
        raise RequestInvalid(f"the claims of one request have at most {PUBLISH_BATCH} results in all")
    await _bind(db, caller, now, key)
    outcomes: Outcomes = {**await _shut_out(db, kinds, caller, now, [item.ref for item in items])}
    fresh = False
    for _ in range(_TRIES):
        attempt = await _plan(db, kinds, caller, now, items, outcomes, fresh)
        if not attempt.places:
            break
        try:
            await db.commit(attempt.tx)
        except KindChanged:
            fresh = True
        except NotAllHeld:
            await _judge(db, kinds, caller, now, items, attempt.places, outcomes)
        except RecordExists as error:
            await _blame(db, items, attempt.places, outcomes, error)
        else:
            outcomes.update(attempt.settlements(now, caller.subject))
            break
    else:
        raise KindConflict("kinds or claims are changing at this moment; nothing was done, try again", retry_after=1)
    return [outcomes[place] for place in range(len(items))]


async def _bind(db: Database, caller: Caller, now: Instant, key: Key | None) -> None:
    tx = Transaction(now)
    caller.guard(tx)
    await keys.bind(db, tx, key)


@dataclass(slots=True)
class _Attempt:
    """A transaction that settles the items at `places`, and what it will have made."""

    tx: Transaction
    places: list[int]
    receipts: dict[int, dict[str, Any]]
    plans: dict[int, Plan]
    together: Plan
    consumed: Answer
    inserted: list[Answer]

    def settlements(self, now: Instant, actor: str) -> dict[int, Settlement]:
        """The outcome of each item, after the commit."""
        records = {row["id"]: Record.of(row) for row in self.consumed.rows}
        made = {one.id: one for one in publish.stored(self.together, self.inserted, now, actor)}
        return {
            place: Settlement(receipt, records[receipt["record"]], [made[one.id] for one in self.plans.get(place, ())])
            for place, receipt in self.receipts.items()
        }


async def _plan(
    db: Database,
    kinds: Kinds,
    caller: Caller,
    now: Instant,
    items: Sequence[Ending],
    outcomes: Outcomes,
    fresh: bool,
) -> _Attempt:
    plans = await _plan_results(db, kinds, caller, now, items, outcomes, fresh)
    places = [place for place in range(len(items)) if place not in outcomes]
    together = Plan(
        (one for place in places for one in plans.get(place, ())),
        {kind.name: kind for place in places if place in plans for kind in plans[place].kinds}.values(),
    )
    if len(together) > 1 and sum(one.size() for one in together) > PUBLISH_BATCH_BYTES:
        raise PayloadTooLarge(f"the results of one request pass {PUBLISH_BATCH_BYTES} bytes")
    receipts = {place: _receipt(items[place], plans.get(place, ()), now) for place in places}
    tx = Transaction(now)
    caller.guard(tx)
    held = canonical.compact([_fenced(items[place].ref) for place in places])
    limits = _Limits.of(caller)
    all_held = limits.put_in(batch_statements.ALL_HELD)
    tx.require(all_held, NotAllHeld(), items=held, actor=caller.subject, **limits.parameters)
    told = canonical.compact([[receipts[p]["record"], canonical.dumps(receipts[p]["results"])] for p in places])
    append_selected(tx, caller.subject, "record.settled", batch_statements.SETTLING, many=True, settling=told)
    ending = [[*_fenced(items[place].ref), receipts[place]["sha256"], canonical.dumps(receipts[place])] for place in places]
    consumed = tx.run(batch_statements.CONSUME, items=canonical.compact(ending))
    inserted = publish.insert(tx, caller.subject, together)
    return _Attempt(tx, places, receipts, plans, together, consumed, inserted)


async def _plan_results(
    db: Database,
    kinds: Kinds,
    caller: Caller,
    now: Instant,
    items: Sequence[Ending],
    outcomes: Outcomes,
    fresh: bool,
) -> dict[int, Plan]:
    """The results of each item that is still to be settled; what is wrong with one is that item's outcome."""
    plans: dict[int, Plan] = {}
    used: set[str] = set()
    budget = Budget()
    for place, item in enumerate(items):
        if place in outcomes or not item.results:
            continue
        try:
            if len(item.results) > SETTLE_RESULTS:
                raise RequestInvalid(f"a settlement has at most {SETTLE_RESULTS} results")
            check_publisher({draft.kind for draft in item.results})
            children = [child(draft, item.ref.record) for draft in item.results]
            planned = await publish.plan(db, kinds, caller, now, children, fresh=fresh, budget=budget)
            if used & {one.id for one in planned}:
                raise RecordExists("another result of the request has the same id")
        except DeploymentError:
            raise
        except MoorageError as error:
            outcomes[place] = error
            continue
        used |= {one.id for one in planned}
        plans[place] = planned
    return plans


async def _judge(
    db: Database,
    kinds: Kinds,
    caller: Caller,
    now: Instant,
    items: Sequence[Ending],
    places: Sequence[int],
    outcomes: Outcomes,
) -> None:
    """Give those of the items that cannot be settled now their outcome: a replay's receipt, or the refusal."""
    refs = [items[place].ref for place in places]
    reading = Reading()
    wanted = canonical.compact([_fenced(ref) for ref in refs])
    limits = _Limits.of(caller)
    asked = {"items": wanted, "actor": caller.subject, **limits.parameters}
    standing = reading.ask(limits.put_in(batch_statements.STANDING), now=now, **asked)
    settled = reading.ask(limits.put_in(batch_statements.SETTLED), **asked)
    await db.read(reading)
    replays = await _replays(db, kinds, caller, now, settled.rows, [items[place] for place in places])
    found = {**await _refusals(db, kinds, caller, now, refs, standing.rows, settled=replays), **replays}
    outcomes.update({places[index]: outcome for index, outcome in found.items()})


async def _replays(
    db: Database, kinds: Kinds, caller: Caller, now: Instant, rows: Iterable[Row], items: Sequence[Ending]
) -> Outcomes:
    """Settlements that were made before, with their results as they are now; another settlement than that conflicts.

    Results that the caller may not publish now are left out.
    """
    found: Outcomes = {}
    receipts: dict[int, tuple[dict[str, Any], Record]] = {}
    for row in rows:
        if hmac.compare_digest(row["settlement_sha256"], digest_of(items[row["place"]].results)):
            receipts[row["place"]] = (json.loads(row["receipt"]), Record.of(row))
        else:
            found[row["place"]] = SettlementConflict()
    wanted = [one for receipt, _ in receipts.values() for one in receipt["results"]]
    shown = await visible(db, kinds, caller, now, await query.read(db, wanted), "publish") if wanted else []
    records = {record.id: record for record in shown}
    for place, (receipt, record) in receipts.items():
        results = [records[one] for one in receipt["results"] if one in records]
        found[place] = Settlement(receipt, record, results)
    return found


async def _blame(
    db: Database, items: Sequence[Ending], places: Sequence[int], outcomes: Outcomes, error: RecordExists
) -> None:
    """Find the items whose results have an id that was used before. Raises the error when there is none."""
    reading = Reading()
    wished = [draft.id for place in places for draft in items[place].results if draft.id is not None]
    used = reading.ask(batch_statements.USED, ids=canonical.compact(wished))
    await db.read(reading)
    taken = {row["id"] for row in used.rows}
    if not taken:
        raise error
    for place in places:
        if taken & {draft.id for draft in items[place].results}:
            outcomes[place] = RecordExists("an id was used before")


async def _refusals(
    db: Database,
    kinds: Kinds,
    caller: Caller,
    now: Instant,
    refs: Sequence[ClaimRef],
    standing: Iterable[Row],
    settled: Mapping[int, object] | None = None,
) -> dict[int, Refused]:
    """Why items are refused, by place, with nothing told of records that are not the caller's to see."""
    refused: dict[int, Refused] = {}
    for row in standing:
        if row["place"] in (settled or {}):
            continue
        if not row["known"]:
            refused[row["place"]] = RecordUnknown()
        elif not row["mine"]:
            refused[row["place"]] = LeaseFenced()
        elif not row["live"]:
            refused[row["place"]] = LeaseExpired()
    unknown = [place for place, error in refused.items() if isinstance(error, RecordUnknown)]
    if unknown and admission.kinds_asked(caller) is not None:
        told = await admission.refusals(db, kinds, caller, now, [refs[place].record for place in unknown])
        refused |= {place: told[refs[place].record] for place in unknown if refs[place].record in told}
    return refused


async def _shut_out(
    db: Database, kinds: Kinds, caller: Caller, now: Instant, refs: Sequence[ClaimRef]
) -> dict[int, Refused]:
    """Why items are refused, by place, to a caller whose grants to claim a pattern narrows; for others nothing."""
    if not caller.is_narrowed("claim"):
        return {}
    told = await admission.refusals(db, kinds, caller, now, [ref.record for ref in refs])
    return {place: told[ref.record] for place, ref in enumerate(refs) if ref.record in told}


@dataclass(frozen=True, slots=True)
class _Limits:
    """The kinds that a batch's statements hold its records against; None when they need not."""

    kinds: list[str] | None

    @classmethod
    def of(cls, caller: Caller) -> "_Limits":
        return cls(admission.kinds_asked(caller))

    def put_in(self, sql: str) -> str:
        return batch_statements.of_kinds(sql, self.kinds is not None)

    @property
    def parameters(self) -> dict[str, str]:
        return {} if self.kinds is None else {"granted": canonical.compact(self.kinds)}


def _check(refs: Sequence[ClaimRef]) -> None:
    if not 1 <= len(refs) <= CLAIM_BATCH:
        raise RequestInvalid(f"a request names 1 to {CLAIM_BATCH} claims")
    if len({ref.record for ref in refs}) < len(refs):
        raise RequestInvalid("a record is named twice")


def _fenced(ref: ClaimRef) -> list[str | int]:
    """The item as statements read it; an epoch that nobody can have is 0."""
    return [ref.record, ref.epoch if 1 <= ref.epoch <= MAX_EPOCH else 0]


def _wish(item: Renewal) -> list[str | int | None]:
    seconds = item.lease_seconds
    return [*_fenced(item.ref), None if seconds is None else round(checked_seconds(seconds) * 1000)]


def _receipt(item: Ending, planned: Iterable[Any], now: Instant) -> dict[str, Any]:
    return {
        "epoch": _fenced(item.ref)[1],
        "record": item.ref.record,
        "results": [one.id for one in planned],
        "settled_at": render(now),
        "sha256": digest_of(item.results),
    }

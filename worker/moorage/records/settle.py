"""Settling a claim: consume the record, publish its results and change keys (clauses records.settle, records.settle-replay,
kv.ops)."""

import hmac
import json
from collections.abc import Sequence
from typing import Any

from moorage.catalog.access import Caller
from moorage.catalog.builtin import check_publisher
from moorage.catalog.kinds import Kinds
from moorage.catalog.revisions import REPLANS, KindChanged
from moorage.history.append import append_selected
from moorage.idempotency import keys
from moorage.idempotency.keys import AlreadyDone, Key
from moorage.kernel import canonical
from moorage.kernel.errors import (
    KindConflict,
    LeaseExpired,
    LeaseFenced,
    RecordUnknown,
    RequestInvalid,
    SettlementConflict,
)
from moorage.kernel.instants import Instant, render
from moorage.kernel.limits import SETTLE_RESULTS
from moorage.kv import changes
from moorage.kv.model import Change
from moorage.records import admission, publish, query, statements
from moorage.records.claim import commit_fenced, done_before, fence
from moorage.records.model import ClaimRef, Draft, Record, Settlement
from moorage.records.visibility import visible
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Transaction


async def settle(
    db: Database,
    kinds: Kinds,
    caller: Caller,
    now: Instant,
    ref: ClaimRef,
    results: Sequence[Draft],
    key: Key | None = None,
    changed: Sequence[Change] = (),
) -> Settlement:
    """Consume a claimed record, publish its results, each naming it as parent, and change keys, in one transaction.

    The same results and changes again answer the first receipt, without those results that the caller may not publish now;
    under a key, anything else under it is a conflict. Raises RecordUnknown, Forbidden for a record that the caller may
    read and not claim and for a namespace that it may not publish to, LeaseFenced when another claim holds the record,
    LeaseExpired when this one ran out, SettlementConflict when this claim settled it before with other results or changes,
    IdempotencyConflict. Results are checked as published records are.
    """
    if len(results) > SETTLE_RESULTS:
        raise RequestInvalid(f"a settlement has at most {SETTLE_RESULTS} results")
    check_publisher({draft.kind for draft in results})
    for namespace in {one.namespace for one in changed}:
        caller.demand_whole("publish", namespace)
    digest = digest_of(results, changed)
    children = [child(draft, ref.record) for draft in results]
    await admission.admit(db, kinds, caller, now, ref.record)
    for attempt in range(REPLANS):
        tx = Transaction(now)
        ref = fence(tx, caller, ref, key)
        planned = await publish.plan(db, kinds, caller, now, children, fresh=attempt > 0) if children else None
        # In the order of its canonical text, so that a replay answers the same bytes.
        receipt = {
            "epoch": ref.epoch,
            "record": ref.record,
            "results": [one.id for one in planned or []],
            "settled_at": render(now),
            "sha256": digest,
        }
        append_selected(
            tx,
            caller.subject,
            "record.settled",
            statements.SETTLING,
            record=ref.record,
            results=canonical.dumps(receipt["results"]),
        )
        consumed = tx.run(
            statements.CONSUME,
            record=ref.record,
            epoch=ref.epoch,
            settlement_sha256=digest,
            receipt=canonical.dumps(receipt),
        )
        changes.plan(tx, caller.subject, changed)
        inserted = publish.insert(tx, caller.subject, planned, keys.bound_until(tx, key)) if planned else []
        try:
            await commit_fenced(db, kinds, caller, now, tx, ref)
        except KindChanged:
            continue
        except (LeaseFenced, LeaseExpired):
            replay = await _settled_before(db, kinds, caller, now, ref, digest)
            if replay is None:
                raise
            return replay
        except AlreadyDone:
            await done_before(db, kinds, caller, now, key)
            replay = await _settled_before(db, kinds, caller, now, ref, digest)
            if replay is None:
                raise RecordUnknown() from None
            return replay
        published = publish.stored(planned, inserted, now, caller.subject) if planned else []
        return Settlement(receipt, Record.of(consumed.one()), published)
    raise KindConflict("a result's kind is being redeclared; try again")


async def _settled_before(
    db: Database, kinds: Kinds, caller: Caller, now: Instant, ref: ClaimRef, digest: str
) -> Settlement | None:
    """The settlement that this very claim made, or None. Raises SettlementConflict when it had other results."""
    reading = Reading()
    found = reading.ask(statements.SETTLED, record=ref.record, epoch=ref.epoch, actor=caller.subject)
    await db.read(reading)
    row = found.first()
    if row is None:
        return None
    if not hmac.compare_digest(row["settlement_sha256"], digest):
        raise SettlementConflict()
    receipt: dict[str, Any] = json.loads(row["receipt"])
    shown = await visible(db, kinds, caller, now, await query.read(db, receipt["results"]), "publish")
    records = {record.id: record for record in shown}
    return Settlement(receipt, Record.of(row), [records[one] for one in receipt["results"] if one in records])


def child(draft: Draft, parent: str) -> Draft:
    """The result as a record that names what it came from."""
    return Draft(draft.kind, draft.body, (parent,), draft.metadata, draft.priority, draft.not_before, draft.id)


def digest_of(results: Sequence[Draft], changed: Sequence[Change] = ()) -> str:
    """What tells one settlement's results and changes from another's."""
    content = [
        [draft.kind, dict(draft.body), dict(draft.metadata), draft.priority, draft.not_before, draft.id] for draft in results
    ]
    keys_changed = sorted([one.namespace, one.key, one.text or ""] for one in changed)
    return canonical.digest(canonical.dumps([content, keys_changed] if keys_changed else content))

"""Debounced publication: of records that come in a burst under one key, the last one is kept (clause records.publish).

The first waits `seconds`. Another one with the same key, of the same kind and publisher, takes its place as long as it
waits, and the record waits `seconds` anew, but no longer than `max_seconds` after the first was published. So the burst is
one record, with the id of the first and the body of the last; its history tells of every replacement.
"""

from moorage.catalog.access import Caller
from moorage.catalog.builtin import check_publisher
from moorage.catalog.kinds import Kinds
from moorage.catalog.revisions import REPLANS, KindChanged, guard_kinds
from moorage.history.append import append_selected
from moorage.idempotency import keys
from moorage.idempotency.keys import AlreadyDone, Key
from moorage.kernel import canonical, ids
from moorage.kernel.errors import KindConflict, RequestInvalid
from moorage.kernel.instants import Instant, after
from moorage.kernel.limits import DEBOUNCE_SECONDS
from moorage.kernel.refusals import refused
from moorage.records import bound_statements, bounds, publish
from moorage.records.holds import hold
from moorage.records.model import Debounce, Draft, Record
from moorage.records.publish import Plan
from moorage.store.ports import Database
from moorage.store.transaction import Answer, Reading, Scalar, Transaction


class Outrun(Exception):
    """What waited under the key is another record than a moment ago. It never leaves the room."""


async def publish_debounced(
    db: Database, kinds: Kinds, caller: Caller, now: Instant, draft: Draft, key: Key | None = None
) -> Record:
    """Publish a record that waits for later ones, or put it in the place of the one that waits under its key.

    Two round trips, one to look and one to write. The draft names neither id nor parents nor not_before. Raises what
    `publish.publish` raises, and KindConflict when the key's record kept changing.
    """
    wish = _checked(draft)
    check_publisher({draft.kind})
    waiting = Draft(draft.kind, draft.body, (), draft.metadata, draft.priority, after(now, wish.seconds), debounce=wish)
    who: dict[str, Scalar] = {"kind": draft.kind, "actor": caller.subject, "debounce_key": wish.key}
    for attempt in range(REPLANS * 2):
        planned = await publish.plan(db, kinds, caller, now, [waiting], fresh=attempt > 0)
        pending = await _pending(db, who)
        tx = Transaction(now)
        caller.guard(tx)
        keys.remember(tx, key, {"records": [pending or planned[0].id]})
        bounds.draw(tx, caller, 1)
        replaced = None
        if pending is None:
            tx.refuse("records.debounce_key", Outrun())
            inserted = publish.insert(tx, caller.subject, planned, keys.bound_until(tx, key))
            bounds.require_depth(tx, planned.kinds)
        else:
            inserted = []
            replaced = _replace(tx, planned, pending, who, key)
        try:
            await db.commit(tx)
        except (KindChanged, Outrun):
            continue
        except AlreadyDone:
            return (await publish.published_before(db, kinds, caller, now, key))[0]
        return _record(planned, inserted, replaced, now, caller)
    raise KindConflict("the record that waits under this key is changing at this moment; try again", retry_after=1)


def _replace(tx: Transaction, planned: Plan, pending: str, who: dict[str, Scalar], key: Key | None) -> Answer:
    [one] = planned
    guard_kinds(tx, planned.kinds)
    tx.require(bound_statements.IS_PENDING, Outrun(), record=pending, **who)
    apart = canonical.size(one.body) > publish.APART_BYTES
    replaced = tx.run(
        bound_statements.REPLACE,
        record=pending,
        draft=canonical.compact(one.row(0, None if apart else one.body)),
        body=one.body if apart else None,
    )
    append_selected(tx, str(who["actor"]), "record.debounced", bound_statements.REPLACED, record=pending)
    hold(tx, key, pending)
    return replaced


async def _pending(db: Database, who: dict[str, Scalar]) -> str | None:
    reading = Reading()
    found = reading.ask(bound_statements.PENDING, **who)
    await db.read(reading)
    row = found.first()
    return None if row is None else str(row["id"])


def _record(planned: Plan, inserted: list[Answer], replaced: Answer | None, now: Instant, caller: Caller) -> Record:
    if replaced is not None:
        return Record.of(replaced.one())
    return publish.stored(planned, inserted, now, caller.subject)[0]


def _checked(draft: Draft) -> Debounce:
    wish = draft.debounce
    if wish is None:
        raise RequestInvalid("the record is not debounced")
    if draft.id is not None or draft.parents or draft.not_before is not None:
        raise RequestInvalid("a debounced record takes no id, no parents and no not_before")
    ids.check_client_id(wish.key, "a debounce key")
    if not 0.001 <= wish.seconds <= wish.max_seconds <= DEBOUNCE_SECONDS:
        message = f"0.001 <= seconds <= max_seconds <= {DEBOUNCE_SECONDS} must hold"
        raise refused("/debounce", message, message)
    return wish

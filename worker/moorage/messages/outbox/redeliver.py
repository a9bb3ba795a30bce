"""What operators do with deliveries: ask for them again, and give them up (clause outbox.redeliver).

A delivery that is asked for again has the same event and the same bytes, and a higher generation, by which the other side
can tell that somebody meant it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from moorage.catalog.access import Caller
from moorage.history.append import append_selected
from moorage.idempotency import keys
from moorage.idempotency.keys import AlreadyDone, Key
from moorage.kernel import canonical, ids
from moorage.kernel.errors import DeliveryConflict, DeliveryUnknown, RequestInvalid
from moorage.kernel.instants import Instant
from moorage.kernel.limits import QUERY_EXAMINED, REDELIVER_BATCH
from moorage.kernel.refusals import check_reason
from moorage.messages.outbox import delivery_list_statements as statements
from moorage.messages.outbox.deliveries import Delivery
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Scalar, Transaction

Over = Literal["delivered", "dead", "canceled"]

_NO_REASON: Final = "asked for again"


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which deliveries to make again: in this state, of a subscription, to a destination, made at `since` or later, past the
    delivery `after`. None is any."""

    state: Over = "dead"
    subscription: str | None = None
    destination: str | None = None
    since: Instant | None = None
    after: str | None = None
    limit: int = int(REDELIVER_BATCH)


@dataclass(frozen=True, slots=True)
class Again:
    """Deliveries that are made again. `next_after` is where to go on; None when everything was looked at."""

    deliveries: list[Delivery]
    next_after: str | None


async def redeliver(
    db: Database, caller: Caller, now: Instant, delivery: str, reason: str | None = None, key: Key | None = None
) -> Delivery:
    """Make a delivery again that is over, however it ended. Its attempts begin anew.

    The same again under the same key answers the delivery as it is now. Raises Forbidden, DeliveryUnknown, DeliveryConflict
    while it is pending, RequestInvalid for a reason that is none, IdempotencyConflict.
    """
    caller.demand("operate")
    tx = _begin(caller, now, reason)
    tx.require(statements.EXISTS, DeliveryUnknown(), delivery=delivery)
    keys.remember(tx, key, {"delivery": delivery})
    pending = DeliveryConflict("the delivery is pending: it will be made without being asked for again")
    tx.require(statements.IS_OVER, pending, delivery=delivery)
    try:
        return (await _again(db, tx, caller, reason, statements.CHOSEN_ONE, {"delivery": delivery}))[0]
    except AlreadyDone:
        found = await keys.recall(db, key)
        return await show(db, caller, found["delivery"])


async def redeliver_many(
    db: Database, caller: Caller, now: Instant, chosen: Chosen, reason: str, key: Key | None = None
) -> Again:
    """Make at most `limit` deliveries again, the oldest first, in one transaction.

    The dead are found wherever they are; of the others, QUERY_EXAMINED deliveries at most are looked at. The same again
    under the same key answers the same deliveries as they are now. Raises Forbidden, RequestInvalid, IdempotencyConflict.
    """
    caller.demand("operate")
    if not 1 <= chosen.limit <= REDELIVER_BATCH:
        raise RequestInvalid(f"limit lies between 1 and {REDELIVER_BATCH}")
    dead = chosen.state == "dead"
    parameters: dict[str, Scalar] = {
        "state": chosen.state,
        "subscription": chosen.subscription,
        "destination": chosen.destination,
        "since": "" if chosen.since is None else ids.earliest("dlv", chosen.since),
        "after": chosen.after or "",
        "examined": int(QUERY_EXAMINED),
    }
    selection = statements.CHOSEN_DEAD if dead else statements.CHOSEN
    tx = _begin(caller, now, reason)
    reach = tx.run(statements.REACH_DEAD if dead else statements.REACH, **_window(parameters))
    parameters["limit"] = chosen.limit
    if key is not None:
        keys.remember(tx, key, {})
        keys.note(tx, key, statements.TO_REMEMBER.replace("{again}", selection), **parameters)
    try:
        made = await _again(db, tx, caller, reason, selection, parameters)
    except AlreadyDone:
        return Again(await _listed(db, (await keys.recall(db, key))["deliveries"]), None)
    if len(made) == chosen.limit:
        return Again(made, made[-1].delivery_id)
    looked = reach.one()
    return Again(made, looked["last"] if looked["looked"] == QUERY_EXAMINED else None)


async def cancel(db: Database, caller: Caller, now: Instant, delivery: str, reason: str | None = None) -> Delivery:
    """Give a delivery up that is pending or dead; canceling one that is canceled changes nothing.

    An attempt that is under way at this moment may still arrive. Raises Forbidden, DeliveryUnknown, DeliveryConflict for one
    that was delivered, RequestInvalid for a reason that is none.
    """
    caller.demand("operate")
    tx = _begin(caller, now, reason)
    tx.require(statements.EXISTS, DeliveryUnknown(), delivery=delivery)
    tx.require(statements.IS_NOT_DELIVERED, DeliveryConflict("the delivery was made already"), delivery=delivery)
    append_selected(tx, caller.subject, "delivery.canceled", statements.CANCELING, delivery=delivery, reason=reason)
    tx.run(statements.CANCEL, delivery=delivery)
    shown = tx.run(statements.SHOW, delivery=delivery)
    await db.commit(tx)
    return Delivery.of(shown.one())


async def show(db: Database, caller: Caller, delivery: str) -> Delivery:
    """One delivery with its body. Raises Forbidden, DeliveryUnknown."""
    caller.demand("operate")
    reading = Reading()
    found = reading.ask(statements.SHOW, delivery=delivery)
    await db.read(reading)
    return Delivery.of(found.one(DeliveryUnknown()))


def _begin(caller: Caller, now: Instant, reason: str | None) -> Transaction:
    if reason is not None:
        check_reason(reason)
    tx = Transaction(now)
    caller.guard(tx)
    return tx


def _window(parameters: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {name: parameters[name] for name in ("after", "since", "examined")}


async def _again(
    db: Database, tx: Transaction, caller: Caller, reason: str | None, selection: str, parameters: Mapping[str, Any]
) -> list[Delivery]:
    told = statements.REDELIVERED.replace("{again}", selection)
    append_selected(tx, caller.subject, "delivery.redelivered", told, many=True, reason=reason or _NO_REASON, **parameters)
    made = tx.run(statements.REDELIVER.replace("{again}", selection), **parameters)
    await db.commit(tx)
    return sorted((Delivery.of(row) for row in made.rows), key=lambda one: one.delivery_id)


async def _listed(db: Database, deliveries: list[str]) -> list[Delivery]:
    reading = Reading()
    found = reading.ask(statements.LISTED, ids=canonical.dumps(deliveries))
    await db.read(reading)
    return [Delivery.of(row) for row in found.rows]

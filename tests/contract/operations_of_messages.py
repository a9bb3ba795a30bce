"""Mutations of events, subscriptions and deliveries."""

from typing import Any

from moorage.idempotency.keys import Key
from moorage.kernel import canonical
from moorage.kernel.errors import (
    DeliveryConflict,
    SubscriptionUnknown,
)
from moorage.kernel.instants import Instant
from moorage.messages.inbox import accept, consumers, correlate, events
from moorage.messages.inbox.consumers import InboxRetention
from moorage.messages.inbox.model import EventDraft
from moorage.messages.inbox.retention import EventRetention
from moorage.messages.outbox import circuit, leasing, redeliver, subscriptions
from moorage.messages.outbox.courier import DeliveriesDue
from moorage.messages.outbox.delivery_retention import DeliveryRetention
from moorage.messages.outbox.fan_out import OutboxFanOut
from moorage.messages.outbox.sending import Leased, Outcome
from moorage.store.ports import Database
from tests.contract.operations_of_records import put_scope
from tests.contract.operations_world import NOW, RESULT, Act, Operation, World, declared, nothing, published, put_destination

ALL = subscriptions.Declaration("place", ("*",), start=0)


async def placed(world: World) -> None:
    """A destination, and a kind with a record."""
    await put_destination(world, world.store.db(), None)
    await published(world)


async def subscribe(world: World, db: Database, _: Any) -> Any:
    return await subscriptions.put(db, world.kinds, world.caller, NOW, "all", ALL)


async def subscribed(world: World) -> None:
    """A subscription that has looked at nothing yet."""
    await placed(world)
    await subscribe(world, world.store.db(), None)


async def fan_out(_world: World, db: Database, _: Any) -> Any:
    return await OutboxFanOut().look_further(db, NOW, "all")


async def given_up(world: World) -> str:
    """A delivery that is dead, and others that are pending."""
    await subscribed(world)
    await fan_out(world, world.store.db(), None)
    [row] = await world.store.sql(
        "UPDATE deliveries SET state = 'dead', next_attempt_at = NULL, ended_at = 1 WHERE position = 1 RETURNING delivery_id"
    )
    return str(row["delivery_id"])


async def lease_deliveries(world: World, db: Database, _: Any) -> Any:
    place, _ = await leasing.begin(world.store.db(), NOW, "place")
    assert place is not None
    return (await leasing.lease(db, NOW, place, 4)).leased


async def leased(world: World) -> Leased:
    """A delivery that is being sent."""
    await given_up(world)
    return (await lease_deliveries(world, world.store.db(), None))[0]  # type: ignore[no-any-return]


def record_outcome_of(*outcome: Any) -> Act:
    async def act(world: World, db: Database, one: Leased) -> Any:
        place, _ = await leasing.begin(world.store.db(), NOW, "place")
        assert place is not None
        await leasing.record(db, NOW, place, one, Outcome(*outcome), lambda: 0.5)

    return act


async def delivered_long_ago(world: World) -> None:
    """Deliveries that were made at the beginning of time."""
    await given_up(world)
    await world.store.sql("UPDATE deliveries SET state = 'delivered', next_attempt_at = NULL, ended_at = 1")


async def redeliver_one(world: World, db: Database, delivery: str) -> Any:
    return await redeliver.redeliver(db, world.caller, NOW, delivery, "they are back")


async def redeliver_many(world: World, db: Database, _: Any) -> Any:
    chosen = redeliver.Chosen(destination="place")
    return await redeliver.redeliver_many(db, world.caller, NOW, chosen, "they are back", world.key("again"))


LONG_AFTER = Instant(NOW + 31 * 86_400_000)


async def record_outcome(world: World, db: Database, _: Any = None) -> Any:
    kv = {"space": {"key": 1, "other": None}}
    return await consumers.record(db, world.kinds, world.caller, NOW, "consumer", "event", {"n": 1}, kv, [RESULT])


async def consumed(world: World) -> None:
    """A consumer's outcome for an event."""
    await world.declare()
    await record_outcome(world, world.store.db())


async def accept_events(world: World, db: Database, _: Any = None, key: Key | None = None) -> Any:
    large = EventDraft("/shop", "2", "paid", data=canonical.dumps("x" * 300_000), keys=("order-7",), scope="scope")
    drafts = [EventDraft("/shop", "1", "paid", keys=("order-7",)), large]
    return await accept.accept(db, world.caller, NOW, drafts, actor="subject:root", key=key)


async def a_scope(world: World) -> None:
    """A declared scope."""
    await put_scope(world, world.store.db(), None)


async def an_event(world: World) -> str:
    """An event of no scope, and a declared scope; the event's id."""
    await a_scope(world)
    [one, _] = await accept_events(world, world.store.db())
    return str(one.event.event_id)


async def events_long_ago(world: World) -> None:
    """Two events that were routed."""
    await an_event(world)
    await world.store.sql("UPDATE events SET routed_at = accepted_at, disposition = 'unmatched'")


async def attach_keys(world: World, db: Database, _: Any) -> Any:
    keys = [correlate.ExternalKey("/shop", "order-7"), correlate.ExternalKey("/shop", "order-8")]
    return await correlate.attach(db, world.caller, NOW, "orders/7", keys)


MESSAGES = [
    Operation("subscriptions.put", placed, subscribe, renews=True),
    Operation(
        "subscriptions.pause", subscribed, lambda w, db, _: subscriptions.pause(db, w.caller, NOW, "all", "a"), renews=True
    ),
    Operation(
        "subscriptions.resume", subscribed, lambda w, db, _: subscriptions.resume(db, w.caller, NOW, "all"), renews=True
    ),
    Operation(
        "subscriptions.delete",
        subscribed,
        lambda w, db, _: subscriptions.delete(db, w.caller, NOW, "all"),
        SubscriptionUnknown,
    ),
    Operation(
        "subscriptions.delete by key",
        subscribed,
        lambda w, db, _: subscriptions.delete(db, w.caller, NOW, "all", w.key("all")),
    ),
    Operation("outbox.fan out", subscribed, fan_out),
    Operation("outbox.retention", delivered_long_ago, lambda w, db, _: DeliveryRetention().fire(db, NOW, "sweep")),
    Operation("outbox.summon", given_up, lambda w, db, _: DeliveriesDue().fire(db, NOW, f"place@{NOW}")),
    Operation("outbox.lease", given_up, lease_deliveries),
    Operation("outbox.record a delivery", leased, record_outcome_of("delivered", 200)),
    Operation("outbox.record a failure", leased, record_outcome_of("failed", 500, "it answered 500")),
    Operation("outbox.record a wait", leased, record_outcome_of("wait", 429, "it answered 429", 7.0)),
    Operation("outbox.record that it is gone", leased, record_outcome_of("gone", 410, "it answered 410")),
    Operation("destinations.enable", given_up, lambda w, db, _: circuit.enable(db, w.caller, NOW, "place"), renews=True),
    Operation("deliveries.redeliver", given_up, redeliver_one, DeliveryConflict),
    Operation("deliveries.redeliver many by key", given_up, redeliver_many),
    Operation("deliveries.cancel", given_up, lambda w, db, one: redeliver.cancel(db, w.caller, NOW, one, "enough")),
    Operation("events.accept by key", a_scope, lambda w, db, _: accept_events(w, db, _, w.key("e"))),
    Operation("events.set scope", an_event, lambda w, db, one: events.set_scope(db, w.caller, NOW, one, "scope")),
    Operation("events.retention", events_long_ago, lambda w, db, _: EventRetention().fire(db, LONG_AFTER, "sweep")),
    Operation("correlations.attach", nothing, attach_keys),
    Operation("inbox.record", declared, record_outcome),
    Operation("inbox.retention", consumed, lambda w, db, _: InboxRetention().fire(db, LONG_AFTER, "sweep")),
]

"""Every mutation of the product, each on one line, for suites that ask the same of all of them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from moorage.awakeables import mint, resolve
from moorage.awakeables import model as awakeables
from moorage.awakeables.due import AwakeableRetention
from moorage.awakeables.payloads import Payload
from moorage.catalog import declare, destinations, scopes
from moorage.catalog.access import Caller
from moorage.catalog.kinds import Kinds
from moorage.catalog.model import DestinationDeclaration, KindDeclaration, ScopeDeclaration
from moorage.guards import holders, reconcile
from moorage.idempotency.keys import Key, key_for
from moorage.journal.model import EntryKey, Fence, Value, idempotency_key
from moorage.kernel import canonical
from moorage.kernel.errors import (
    BodyUnknown,
    CancelTargetNotInFlight,
    DeliveryConflict,
    ExecutionRewindNotPending,
    FailureTag,
    GuardReleased,
    InterestUnknown,
    LeaseFenced,
    LeaseHeld,
    RecordEnded,
    RecordExists,
    RecordNotDead,
    ScheduleUnknown,
    SubscriptionUnknown,
    TimerNotDue,
    TimerUnknown,
)
from moorage.kernel.instants import Instant
from moorage.kv import values
from moorage.leases import lease
from moorage.messages.inbox import accept, consumers, correlate, events, routing, waits
from moorage.messages.inbox.consumers import InboxRetention
from moorage.messages.inbox.model import EventDraft
from moorage.messages.inbox.retention import EventRetention
from moorage.messages.outbox import circuit, leasing, redeliver, subscriptions
from moorage.messages.outbox.courier import DeliveriesDue
from moorage.messages.outbox.delivery_retention import DeliveryRetention
from moorage.messages.outbox.fan_out import OutboxFanOut
from moorage.messages.outbox.sending import Leased, Outcome
from moorage.records import batches, cancel, claim, dead_letters, debounce, fail, interests, publish, sessions, settle
from moorage.records.model import ClaimRef, Debounce, Draft, Failure
from moorage.records.retention import Retention
from moorage.runs import admission, hosting, notify, remote_bodies, restart, rewind, stop, take
from moorage.runs import operations as apply_operations
from moorage.runs.due import RunRetention, RunsDue
from moorage.runs.letting_go import RUNNER
from moorage.runs.model import BodyInfo, Build, Trace
from moorage.runs.substrate import LocalSubstrate
from moorage.runs.tracing_context import trace_of
from moorage.schedules import declare as schedules
from moorage.schedules import manual
from moorage.schedules.due import ScheduleQueue, Schedules
from moorage.schedules.model import BodyTarget, Declaration, RecordTarget
from moorage.schedules.retention import WindowRetention
from moorage.schedules.starting import Means
from moorage.store.ports import Database
from moorage.timers import fire
from moorage.timers import put as timer_put
from moorage.timers.fire import Timers
from moorage.timers.model import Template, Wish
from tests.contract.adapters import Store
from tests.contract.executions import an_execution
from tests.contract.runs_desk import ORDER, REMOTE, RunsDesk

NOW = Instant(1_800_000_000_000)
KIND = "parcels"


@dataclass(slots=True)
class World:
    """A store with somebody who may do everything, and one declared kind."""

    store: Store
    caller: Caller = field(default_factory=lambda: Caller("root", bearer=b"the root token"))
    kinds: Kinds = field(default_factory=Kinds)

    async def declare(self, db: Database | None = None) -> Any:
        declaration = KindDeclaration.model_validate({"paths": {"weight": "number"}})
        return await declare.declare(db or self.store.db(), self.caller, NOW, self.kinds, KIND, declaration)

    async def publish(self, db: Database | None = None, key: Key | None = None, record: str | None = None) -> Any:
        drafts = [Draft(KIND, {"weight": 3, "to": "somebody"}, id=record)]
        return await publish.publish(db or self.store.db(), self.kinds, self.caller, NOW, drafts, key)

    async def claim(self, db: Database | None = None, key: Key | None = None) -> Any:
        return await claim.claim(
            db or self.store.db(), self.kinds, self.caller, NOW, KIND, {"weight": {"$gte": 1}}, "worker", key=key
        )

    async def claimed(self) -> ClaimRef:
        """A published record under a lease."""
        await self.declare()
        await self.publish()
        [taken] = await self.claim()
        return ClaimRef(taken.record.id, taken.lease.epoch)

    async def dead(self) -> str:
        """A dead letter."""
        ref = await self.claimed()
        failure = Failure(FailureTag.PERMANENT, "no")
        await fail.fail(self.store.db(), self.kinds, self.caller, NOW, ref, failure, dead_letter=True)
        return ref.record

    async def minted(self) -> str:
        """The token of a pending awakeable."""
        made = await mint.mint(self.store.db(), self.caller, NOW, awakeables.Draft(60))
        return made.token

    async def minted_in_a_run(self) -> str:
        """The token of a pending awakeable that an execution waits for."""
        await an_execution(self.store, "exe_1")
        token = await self.minted()
        await self.store.sql("UPDATE awakeables SET execution_id = 'exe_1'")
        return token

    def key(self, content: Any) -> Key:
        """An idempotency key, the same for the same content."""
        key = key_for(self.caller.subject, "one-key", "POST /route", content)
        assert key is not None
        return key

    async def held(self) -> lease.Hold:
        """A lease held by somebody."""
        taken = await lease.acquire(self.store.db(), NOW, "key", "somebody", 60)
        return lease.Hold("key", "somebody", taken.epoch)


Arrange = Callable[[World], Awaitable[Any]]
Act = Callable[[World, Database, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Operation:
    """`act` on what `arrange` made.

    `again` is what asking again gets once the first was applied: an error's class, or None for the same answer with
    nothing done twice. `renews` says that asking again is a new piece of work.
    """

    name: str
    arrange: Arrange
    act: Act
    again: type[Exception] | None = None
    renews: bool = False


async def nothing(_world: World) -> None:
    """No preparation."""


async def numbered(world: World) -> str:
    """The kind with one ready record, and a session to claim in."""
    await published(world)
    return (await sessions.open_session(world.store.db(), world.caller, NOW)).id


async def debounced(world: World) -> None:
    """The kind with one record that waits for later ones."""
    await world.declare()
    await publish_debounced(world, world.store.db(), None)


async def declared(world: World) -> None:
    """The kind."""
    await world.declare()


async def published(world: World) -> None:
    """The kind with one ready record."""
    await world.declare()
    await world.publish()


DESTINATION = DestinationDeclaration.model_validate({"url": "https://example.com/hook", "methods": ["POST"]})
REJECTION = awakeables.Rejection(FailureTag.PERMANENT, "no")
FAILURE = Failure(FailureTag.TRANSIENT, "later")
RESULT = Draft(KIND, {"weight": 1})


async def put_destination(world: World, db: Database, _: Any) -> Any:
    return await destinations.put(db, world.caller, NOW, "place", DESTINATION)


async def put_scope(world: World, db: Database, _: Any) -> Any:
    return await scopes.put(db, world.caller, NOW, "scope", ScopeDeclaration())


async def settle_record(world: World, db: Database, ref: ClaimRef) -> Any:
    return await settle.settle(db, world.kinds, world.caller, NOW, ref, [RESULT])


async def fail_record(world: World, db: Database, ref: ClaimRef) -> Any:
    return await fail.fail(db, world.kinds, world.caller, NOW, ref, FAILURE)


async def requeue(world: World, db: Database, record: str) -> Any:
    return await dead_letters.requeue(db, world.kinds, world.caller, NOW, record, "it can work now")


async def cancel_record(world: World, db: Database, _: Any) -> Any:
    return await cancel.cancel(db, world.kinds, world.caller, NOW, "mine", "not wanted")


async def look_for(world: World, db: Database, _: Any = None) -> Any:
    return await interests.declare(db, world.kinds, world.caller, NOW, "worker", KIND, {"weight": {"$gt": 1}}, 60)


async def looking(world: World) -> None:
    """The kind with a worker's interest."""
    await world.declare()
    await look_for(world, world.store.db())


async def aged(world: World) -> None:
    """A kind that keeps its records for a second, with one that was consumed and one that a live record needs."""
    ref = await world.claimed()
    await settle.settle(world.store.db(), world.kinds, world.caller, NOW, ref, [])
    ref = await world.claimed()
    await settle.settle(world.store.db(), world.kinds, world.caller, NOW, ref, [RESULT])
    declaration = KindDeclaration.model_validate({"paths": {"weight": "number"}, "retention_seconds": 1})
    await declare.declare(world.store.db(), world.caller, NOW, world.kinds, KIND, declaration)


async def named(world: World) -> None:
    """The kind with one ready record of a known id."""
    await world.declare()
    await world.publish(record="mine")


async def mint_one(world: World, db: Database, _: Any) -> Any:
    return await mint.mint(db, world.caller, NOW, awakeables.Draft(60), world.key("mint"))


async def resolve_one(world: World, db: Database, token: str) -> Any:
    return await resolve.resolve(db, world.caller, NOW, token, Payload.of({"approved": True}))


async def reject_one(world: World, db: Database, token: str) -> Any:
    return await resolve.reject(db, world.caller, NOW, token, REJECTION)


async def start_run(world: World, db: Database, scope: str | None) -> Any:
    start = RunsDesk(world.store).start_of(scope)
    return await admission.admit(db, world.store.blobs, world.caller, NOW, ORDER, start, world.key("run"))


async def named_scope(_world: World) -> str:
    """The name of a scope."""
    return "job"


async def held_run(world: World) -> str:
    """A run that a host executes."""
    return (await RunsDesk(world.store).open_remote("job")).run_id


async def offered(world: World) -> str:
    """A run that no host has taken."""
    return (await RunsDesk(world.store).admit("job", info=REMOTE)).run_id


async def resumable(world: World) -> tuple[str, str]:
    """A failed run whose execution is pending, and that execution."""
    desk = RunsDesk(world.store)
    held = await desk.open_remote("job")
    await desk.note(held.execution_id, "one")
    await desk.close(held.fence, "failed")
    return held.run_id, held.execution_id


async def stop_run(world: World, db: Database, run: str) -> Any:
    return await stop.stop(db, world.caller, NOW, run, "pipeline", "enough")


async def rewind_execution(world: World, db: Database, made: tuple[str, str]) -> Any:
    return await rewind.rewind(db, world.caller, NOW, made[1], "stuck", force=True)


async def restart_run(world: World, db: Database, made: tuple[str, str]) -> Any:
    async def body(_name: str) -> BodyInfo:
        return REMOTE

    key = world.key("restart")
    return await restart.restart(
        db, None, world.caller, NOW, made[0], body, trace_of(None), "mended", key=key, check=lambda info, value: None
    )


async def look_after_run(world: World, db: Database, run: str) -> Any:
    desk = RunsDesk(world.store)
    return await RunsDue().fire(db, Instant(NOW + 60_000), (await desk.run(run))["execution_id"])


async def sweep_runs(_world: World, db: Database, _: Any) -> Any:
    return await RunRetention().fire(db, Instant(NOW + 31 * 86_400_000), "sweep")


async def sweep_awakeables(_world: World, db: Database, _: Any) -> Any:
    return await AwakeableRetention().fire(db, Instant(NOW + 31 * 86_400_000), "sweep")


async def ended_awakeable(world: World) -> str:
    """One that no run minted, with an answer."""
    token = await world.minted()
    await resolve_one(world, world.store.db(), token)
    return token


async def register_body(world: World, db: Database, _: Any = None) -> Any:
    return await remote_bodies.register(db, world.caller, NOW, REMOTE)


async def registered(world: World) -> None:
    """A body that another host offers."""
    await register_body(world, world.store.db())


async def remove_body(world: World, db: Database, _: Any) -> Any:
    return await remote_bodies.remove(db, world.caller, NOW, REMOTE.name)


async def claim_numbered(world: World, db: Database, session: str) -> Any:
    turn = sessions.Turn(session, "consumer", 1, "asked")
    return await claim.claim(db, world.kinds, world.caller, NOW, KIND, {}, "worker", turn=turn)


async def publish_debounced(world: World, db: Database, _: Any, key: Key | None = None) -> Any:
    wish = Draft(KIND, {"weight": 3}, debounce=Debounce("burst", 10, 60))
    return await debounce.publish_debounced(db, world.kinds, world.caller, NOW, wish, key)


async def renew_record(world: World, db: Database, ref: ClaimRef) -> Any:
    return await claim.renew(db, world.kinds, world.caller, NOW, ref, 90)


async def release_record(world: World, db: Database, ref: ClaimRef) -> Any:
    return await claim.release(db, world.kinds, world.caller, NOW, ref)


async def renew_many(world: World, db: Database, ref: ClaimRef) -> Any:
    return await batches.renew_many(db, world.kinds, world.caller, NOW, [batches.Renewal(ref, 90)])


async def settle_many(world: World, db: Database, ref: ClaimRef) -> Any:
    return await batches.settle_many(db, world.kinds, world.caller, NOW, [batches.Ending(ref, (RESULT,))])


BODY = BodyInfo("order", "worker", Build("order", "digest of its code"), ("a",))
STEP = EntryKey("a")
FRESH_CLAIM = apply_operations.Claim(STEP, "step", "0")
RECORDING = apply_operations.Record(STEP, Value.of("1"))
NO_EFFECT = apply_operations.Put(EntryKey("b"), "now", "0", Value.of("1"))


async def running(world: World) -> Fence:
    """An execution under a lease, with one claimed entry, and the kind."""
    await world.declare()
    start = admission.Start(None, Value.of("null"), "root", None, Trace("1" * 32, "2" * 16))
    db = world.store.db()
    admitted = await admission.admit(db, world.store.blobs, world.caller, NOW, BODY, start, handoff=False)
    builds = {BODY.name: BODY.build.digest}
    taken = await take.take(db, world.store.blobs, NOW, admitted.execution_id, "host", builds)
    assert taken is not None
    await apply(FRESH_CLAIM)(world, db, taken.fence)
    return taken.fence


def apply(*operations: apply_operations.Operation) -> Act:
    """Apply a host's operations."""

    async def act(world: World, db: Database, fence: Fence) -> Any:
        bodies = {BODY.name: BODY}.get
        made = LocalSubstrate(lambda: db, world.store.blobs, lambda: NOW, world.kinds, ("key",), "https://x.test", bodies)
        return await made.apply(fence, operations)

    return act


PUBLISHING = apply_operations.Publish(EntryKey("p"), "0", [{"kind": KIND, "body": {"weight": 1}}])
MOVING = apply_operations.CommitCursor(EntryKey("k"), "0", "feed", Value.of("1"), 0)
CHILD = apply_operations.StartChild(EntryKey("c"), "0", BODY.name, Value.of("1"))

HOLDER = "hld_" + "0" * 26
AT_WORK = Caller(RUNNER)
LATER = Instant(NOW + 31_000)
ADMISSION = apply_operations.AdmitGuard(STEP, HOLDER, "place")


async def guardable(world: World) -> Fence:
    """An execution with one claimed entry, a holder, and a destination that deduplicates for an hour."""
    db = world.store.db()
    declared = DestinationDeclaration.model_validate({**DESTINATION.model_dump(), "dedup_window_seconds": 3600})
    await destinations.put(db, world.caller, NOW, "place", declared)
    await holders.register(db, AT_WORK, NOW, HOLDER, "r:00", "worker")
    return await running(world)


async def guarded(world: World) -> tuple[Fence, str]:
    """An execution with an effect in flight, and the token of its guard."""
    fence = await guardable(world)
    [told] = await apply(ADMISSION)(world, world.store.db(), fence)
    return fence, told.token


async def held_entity(world: World) -> Fence:
    """An execution that holds an entity."""
    fence = await running(world)
    await apply(ENTITY)(world, world.store.db(), fence)
    return fence


async def abandoned(world: World) -> tuple[Fence, str]:
    """The same, of a holder that has exited."""
    made = await guarded(world)
    await holders.exit_(world.store.db(), AT_WORK, NOW, HOLDER, kind="worker")
    return made


async def release_guard(world: World, db: Database, made: tuple[Fence, str]) -> Any:
    return await apply(apply_operations.ReleaseGuard(made[1], HOLDER), RECORDING)(world, db, made[0])


async def reconcile_guard(world: World, db: Database, made: tuple[Fence, str]) -> Any:
    key = idempotency_key(made[0].execution_id, STEP)
    return await reconcile.reconcile(db, world.caller, LATER, made[1], f"receipt:{key}:ch_1", "op-1")


async def take_over(world: World, db: Database, made: tuple[Fence, str]) -> Any:
    builds = {BODY.name: BODY.build.digest}
    return await take.take(db, world.store.blobs, LATER, made[0].execution_id, "another", builds)


async def exit_holder(_world: World, db: Database, _: Any) -> Any:
    return await holders.exit_(db, AT_WORK, NOW, HOLDER, kind="worker")


async def register_holder(_world: World, db: Database, _: Any) -> Any:
    return await holders.register(db, AT_WORK, NOW, HOLDER, "r:00", "worker")


async def left_elsewhere(world: World) -> None:
    """An effect in flight of a host elsewhere that has stopped, in a named scope."""
    await guardable(world)
    held = await RunsDesk(world.store).open_remote("job", holder="root/one")
    await apply(FRESH_CLAIM, ADMISSION)(world, world.store.db(), held.fence)
    await holders.exit_(world.store.db(), AT_WORK, NOW, HOLDER, kind="worker")


async def reopen(world: World, db: Database, _: Any) -> Any:
    start, key = RunsDesk(world.store).start_of("job"), world.key("reopen")
    return await hosting.open_(db, world.store.blobs, world.caller, LATER, REMOTE, start, "two", key)


AWAITING = apply_operations.AwaitEvent(EntryKey("paid"), "1", ("order-7",), timeout_at=Instant(NOW + 1))


async def event_there(world: World) -> Fence:
    """An execution, and an event that it will wait for."""
    fence = await running(world)
    draft = EventDraft("/shop", "d1", "paid", {}, "1", ("order-7",))
    await accept.accept(world.store.db(), world.caller, NOW, [draft], actor="subject:root")
    return fence


async def awaiting(world: World) -> Fence:
    """An execution that waits for an event."""
    fence = await running(world)
    await apply(AWAITING)(world, world.store.db(), fence)
    return fence


async def event_to_route(world: World) -> int:
    """An event that an execution waits for, which nobody has routed."""
    await awaiting(world)
    draft = EventDraft("/shop", "d1", "paid", {}, "1", ("order-7",))
    [accepted] = await accept.accept(world.store.db(), world.caller, NOW, [draft], actor="subject:root")
    return accepted.event.seq


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
    return await OutboxFanOut().fire(db, NOW, "all")


async def given_up(world: World) -> str:
    """A delivery that is dead, and others that are pending."""
    await subscribed(world)
    await fan_out(world, world.store.db(), None)
    [row] = await world.store.sql(
        "UPDATE deliveries SET state = 'dead', next_attempt_at = NULL, ended_at = 1 WHERE position = 1 RETURNING delivery_id"
    )
    return str(row["delivery_id"])


async def lease_deliveries(world: World, db: Database, _: Any) -> Any:
    place = await leasing.destination_of(world.store.db(), "place")
    assert place is not None
    return (await leasing.lease(db, NOW, place, 4)).leased


async def leased(world: World) -> Leased:
    """A delivery that is being sent."""
    await given_up(world)
    return (await lease_deliveries(world, world.store.db(), None))[0]  # type: ignore[no-any-return]


def record_outcome_of(*outcome: Any) -> Act:
    async def act(world: World, db: Database, one: Leased) -> Any:
        place = await leasing.destination_of(world.store.db(), "place")
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


async def run_and_place(world: World) -> str:
    """A run that no host has taken, and a destination."""
    await put_destination(world, world.store.db(), None)
    return await offered(world)


async def ended_run_and_place(world: World) -> str:
    """A run that has ended, and a destination."""
    run = await run_and_place(world)
    await stop_run(world, world.store.db(), run)
    return run


async def ask_to_notify(world: World, db: Database, run: str) -> Any:
    return await notify.ask(db, world.caller, NOW, run, "place", "shop")


ENTITY = apply_operations.HoldEntity("customer", "7")

LONG_AFTER = Instant(NOW + 31 * 86_400_000)


async def set_timer(world: World, db: Database, _: Any = None, key: Key | None = None, every: int | None = None) -> Any:
    wish = Wish(Template("ping", data="[1]"), fire_at=NOW, every_ms=every)
    return await timer_put.put(db, world.caller, NOW, "timer", wish, key=key)


async def timed(world: World) -> None:
    """A timer that is due."""
    await set_timer(world, world.store.db())


async def timed_again(world: World) -> None:
    """A timer that is due and repeats."""
    await set_timer(world, world.store.db(), every=60_000)


async def put_value(world: World, db: Database, _: Any = None, key: Key | None = None) -> Any:
    return await values.put(db, world.caller, NOW, "space", "key", {"n": 1}, once=key)


async def valued(world: World) -> None:
    """A value under its key."""
    await put_value(world, world.store.db())


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


class OneBody:
    """The one body that schedules of the Worker start here."""

    def get(self, name: str) -> BodyInfo | None:
        return ORDER if name == ORDER.name else None

    def check_input(self, name: str, value: Any) -> None:
        return None


HOURLY = Declaration("0 * * * *", None, "Europe/Paris", "enqueue", "all", 86_400_000, BodyTarget(ORDER.name, 1))
TICKING = replace(HOURLY, target=RecordTarget(KIND, {"weight": 1}), overlap="skip")
FIRST_WINDOW = Instant(NOW - NOW % 3_600_000 + 3_600_000)
DECLARED = f"s@{NOW}"
SECOND_WINDOW = Instant(FIRST_WINDOW + 3_600_000)
FORGOTTEN = Instant(NOW + 401 * 86_400_000)


def means_of(world: World) -> Means:
    """What starting takes."""
    return Means(world.kinds, OneBody(), world.store.blobs)


async def put_schedule(world: World, db: Database, _: Any, declaration: Declaration = HOURLY) -> Any:
    return await schedules.put(db, means_of(world), world.caller, NOW, "s", declaration)


async def scheduled(world: World) -> None:
    """A schedule that starts a body."""
    await put_schedule(world, world.store.db(), None)


async def fired(world: World) -> None:
    """A schedule of which a window came."""
    await scheduled(world)
    await Schedules(means_of(world)).fire(world.store.db(), FIRST_WINDOW, DECLARED)


async def ticking(world: World) -> None:
    """A schedule that publishes a record."""
    await world.declare()
    await put_schedule(world, world.store.db(), None, TICKING)


async def lined_up(world: World) -> None:
    """A schedule with a window that waits, and nothing before it any more."""
    await scheduled(world)
    for due in (FIRST_WINDOW, SECOND_WINDOW):
        await Schedules(means_of(world)).fire(world.store.db(), due, DECLARED)
    await world.store.sql("UPDATE runs SET status = 'canceled', ended_at = 1")


async def fire_schedule(world: World, db: Database, _: Any) -> Any:
    return await Schedules(means_of(world)).fire(db, FIRST_WINDOW, DECLARED)


async def punctual(world: World) -> None:
    """A schedule that catches up with nothing."""
    await put_schedule(world, world.store.db(), None, replace(HOURLY, catch_up="none"))


async def fire_late(world: World, db: Database, _: Any) -> Any:
    return await Schedules(means_of(world)).fire(db, Instant(FIRST_WINDOW + 1_800_000), DECLARED)


async def resume_queue(world: World, db: Database, _: Any) -> Any:
    return await ScheduleQueue(means_of(world)).fire(db, SECOND_WINDOW, DECLARED)


async def trigger_schedule(world: World, db: Database, _: Any) -> Any:
    return await manual.trigger(db, means_of(world), world.caller, NOW, "s", world.key("trigger"))


async def backfill_schedule(world: World, db: Database, _: Any) -> Any:
    first = Instant(FIRST_WINDOW - 5 * 3_600_000)
    return await manual.backfill(db, world.caller, NOW, "s", first, NOW, world.key("backfill"))


OPERATIONS = [
    Operation("leases.acquire", nothing, lambda w, db, _: lease.acquire(db, NOW, "key", "me", 60), LeaseHeld),
    Operation("leases.renew", World.held, lambda w, db, hold: lease.renew(db, NOW, hold, 90)),
    Operation("leases.release", World.held, lambda w, db, hold: lease.release(db, NOW, hold), LeaseFenced),
    Operation("kinds.declare", nothing, lambda w, db, _: w.declare(db)),
    Operation("destinations.put", nothing, put_destination, renews=True),
    Operation("scopes.put", nothing, put_scope, renews=True),
    Operation("records.publish by key", declared, lambda w, db, _: w.publish(db, w.key("a"))),
    Operation("records.publish by id", declared, lambda w, db, _: w.publish(db, record="mine"), RecordExists),
    Operation("records.claim by key", published, lambda w, db, _: w.claim(db, w.key("c"))),
    Operation("records.claim by sequence", numbered, claim_numbered),
    Operation("records.publish debounced by key", declared, lambda w, db, _: publish_debounced(w, db, _, w.key("d"))),
    Operation("records.replace debounced by key", debounced, lambda w, db, _: publish_debounced(w, db, _, w.key("d"))),
    Operation("records.renew many", World.claimed, renew_many, renews=True),
    Operation("records.settle many", World.claimed, settle_many),
    Operation("sessions.open", nothing, lambda w, db, _: sessions.open_session(db, w.caller, NOW, key=w.key("s"))),
    Operation("sessions.renew", numbered, lambda w, db, ses: sessions.renew(db, w.caller, NOW, ses, 9000), renews=True),
    Operation("sessions.close", numbered, lambda w, db, ses: sessions.close(db, w.caller, NOW, ses)),
    Operation("records.renew", World.claimed, renew_record, renews=True),
    Operation("records.release", World.claimed, release_record, LeaseFenced),
    Operation("records.settle", World.claimed, settle_record),
    Operation("records.fail", World.claimed, fail_record, LeaseFenced),
    Operation("records.requeue", World.dead, requeue, RecordNotDead),
    Operation("records.cancel", named, cancel_record, RecordEnded),
    Operation("records.retention", aged, lambda w, db, _: Retention().fire(db, Instant(NOW + 1000), KIND)),
    Operation("interests.declare", declared, look_for),
    Operation(
        "interests.withdraw", looking, lambda w, db, _: interests.withdraw(db, w.caller, NOW, "worker"), InterestUnknown
    ),
    Operation("awakeables.mint by key", nothing, mint_one),
    Operation("awakeables.resolve", World.minted, resolve_one),
    Operation("awakeables.resolve of a run", World.minted_in_a_run, resolve_one),
    Operation("awakeables.reject", World.minted, reject_one),
    Operation("awakeables.retention", ended_awakeable, sweep_awakeables),
    Operation("journal.record and claim", running, apply(RECORDING, apply_operations.Claim(EntryKey("b"), "step", "1"))),
    Operation("journal.move a cursor", running, apply(MOVING)),
    Operation("journal.suspend", running, apply(NO_EFFECT, apply_operations.Suspend("suspended", None))),
    Operation("journal.await an event", running, apply(AWAITING)),
    Operation("journal.await an event that is there", event_there, apply(AWAITING)),
    Operation("journal.give up an event", awaiting, apply(apply_operations.GiveUp(AWAITING.key))),
    Operation("events.route", event_to_route, lambda w, db, seq: routing.route(db, NOW, seq)),
    Operation("journal.time out a wait", awaiting, lambda w, db, fence: waits.time_out(db, LATER, fence.execution_id)),
    Operation("runs.mint", running, apply(apply_operations.Mint(EntryKey("m"), "0", 60))),
    Operation("runs.start a child", running, apply(CHILD)),
    Operation("runs.publish", running, apply(PUBLISHING)),
    Operation("runs.succeed", running, apply(RECORDING, apply_operations.Close("success", Value.of("2")))),
    Operation("runs.cancel", running, apply(RECORDING, apply_operations.Close("canceled"))),
    Operation("runs.admit by key", nothing, start_run),
    Operation("runs.admit in a scope by key", named_scope, start_run),
    Operation("runs.stop of a held run", held_run, stop_run, renews=True),
    Operation("runs.stop of an unheld run", offered, stop_run, CancelTargetNotInFlight),
    Operation("runs.due", held_run, look_after_run),
    Operation("runs.retention", resumable, sweep_runs),
    Operation("runs.restart by key", resumable, restart_run),
    Operation("executions.rewind", resumable, rewind_execution, ExecutionRewindNotPending),
    Operation("journal.hold an entity", running, apply(ENTITY)),
    Operation("journal.let go of an entity", held_entity, apply(apply_operations.LetEntity("customer", "7"))),
    Operation("holders.register", nothing, register_holder),
    Operation("holders.exit", guarded, exit_holder),
    Operation("guards.admit", guardable, apply(ADMISSION)),
    Operation(
        "guards.claim and admit",
        guardable,
        apply(apply_operations.Claim(EntryKey("b"), "step", "1"), replace(ADMISSION, key=EntryKey("b"))),
    ),
    Operation("guards.release and record", guarded, release_guard),
    Operation("guards.reconcile", guarded, reconcile_guard, GuardReleased),
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
    Operation("outbox.summon", given_up, lambda w, db, _: DeliveriesDue().fire(db, NOW, "place")),
    Operation("outbox.lease", given_up, lease_deliveries),
    Operation("outbox.record a delivery", leased, record_outcome_of("delivered", 200)),
    Operation("outbox.record a failure", leased, record_outcome_of("failed", 500, "it answered 500")),
    Operation("outbox.record a wait", leased, record_outcome_of("wait", 429, "it answered 429", 7.0)),
    Operation("outbox.record that it is gone", leased, record_outcome_of("gone", 410, "it answered 410")),
    Operation("destinations.enable", given_up, lambda w, db, _: circuit.enable(db, w.caller, NOW, "place"), renews=True),
    Operation("deliveries.redeliver", given_up, redeliver_one, DeliveryConflict),
    Operation("deliveries.redeliver many by key", given_up, redeliver_many),
    Operation("deliveries.cancel", given_up, lambda w, db, one: redeliver.cancel(db, w.caller, NOW, one, "enough")),
    Operation("runs.notify", run_and_place, ask_to_notify),
    Operation("runs.notify of an ended run", ended_run_and_place, ask_to_notify),
    Operation("timers.put", nothing, set_timer),
    Operation("timers.put by key", nothing, lambda w, db, _: set_timer(w, db, _, w.key("timer"))),
    Operation("timers.delete", timed, lambda w, db, _: timer_put.delete(db, w.caller, NOW, "timer", 1), TimerUnknown),
    Operation("timers.delete by key", timed, lambda w, db, _: timer_put.delete(db, w.caller, NOW, "timer", 1, w.key("t"))),
    Operation("timers.fire", timed, lambda w, db, _: fire.fire_timer(db, NOW, "timer", 1), TimerNotDue),
    Operation("timers.fire again and again", timed_again, lambda w, db, _: Timers().fire(db, NOW, "timer@1")),
    Operation("kv.put", nothing, put_value, renews=True),
    Operation("kv.put by key", nothing, lambda w, db, _: put_value(w, db, _, w.key("kv"))),
    Operation("kv.delete", valued, lambda w, db, _: values.delete(db, w.caller, NOW, "space", "key")),
    Operation(
        "kv.delete by key", valued, lambda w, db, _: values.delete(db, w.caller, NOW, "space", "key", once=w.key("kv"))
    ),
    Operation("events.accept by key", a_scope, lambda w, db, _: accept_events(w, db, _, w.key("e"))),
    Operation("events.set scope", an_event, lambda w, db, one: events.set_scope(db, w.caller, NOW, one, "scope")),
    Operation("events.retention", events_long_ago, lambda w, db, _: EventRetention().fire(db, LONG_AFTER, "sweep")),
    Operation("correlations.attach", nothing, attach_keys),
    Operation("inbox.record", declared, record_outcome),
    Operation("inbox.retention", consumed, lambda w, db, _: InboxRetention().fire(db, LONG_AFTER, "sweep")),
    Operation("schedules.put", nothing, put_schedule),
    Operation("schedules.pause", scheduled, lambda w, db, _: schedules.set_paused(db, w.caller, NOW, "s", True)),
    Operation("schedules.delete", scheduled, lambda w, db, _: schedules.delete(db, w.caller, NOW, "s"), ScheduleUnknown),
    Operation("schedules.delete by key", scheduled, lambda w, db, _: schedules.delete(db, w.caller, NOW, "s", w.key("s"))),
    Operation("schedules.fire", scheduled, fire_schedule),
    Operation("schedules.fire a record", ticking, fire_schedule),
    Operation("schedules.pass over", punctual, fire_late),
    Operation("schedules.resume", lined_up, resume_queue),
    Operation("schedules.forget", fired, lambda w, db, _: WindowRetention().fire(db, FORGOTTEN, "sweep")),
    Operation("schedules.trigger by key", scheduled, trigger_schedule),
    Operation("schedules.backfill by key", scheduled, backfill_schedule),
    Operation("bodies.register", nothing, register_body, renews=True),
    Operation("bodies.remove", registered, remove_body, BodyUnknown),
]

"""Mutations of runs, of their journals, and of guards."""

from dataclasses import replace
from typing import Any

from moorage.catalog import destinations
from moorage.catalog.access import Caller
from moorage.catalog.model import DestinationDeclaration
from moorage.guards import holders, reconcile
from moorage.journal.model import EntryKey, Fence, Value, idempotency_key
from moorage.kernel.errors import (
    BodyUnknown,
    CancelTargetNotInFlight,
    ExecutionRewindNotPending,
    GuardReleased,
)
from moorage.kernel.instants import Instant
from moorage.messages.inbox import accept, routing, waits
from moorage.messages.inbox.model import EventDraft
from moorage.runs import admission, notify, remote_bodies, restart, rewind, stop, take
from moorage.runs import operations as apply_operations
from moorage.runs.due import RunRetention, RunsDue
from moorage.runs.letting_go import RUNNER
from moorage.runs.model import BodyInfo, Build, Trace
from moorage.runs.substrate import LocalSubstrate
from moorage.runs.tracing_context import trace_of
from moorage.store.ports import Database
from tests.contract.operations_world import DESTINATION, KIND, NOW, Act, Operation, World, nothing, put_destination
from tests.contract.runs_desk import ORDER, REMOTE, RunsDesk


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
    execution = await desk.execution((await desk.run(run))["execution_id"])
    assert execution is not None
    return await RunsDue().fire(db, Instant(NOW + 60_000), f"{execution['execution_id']}@{execution['wake_at']}")


async def sweep_runs(_world: World, db: Database, _: Any) -> Any:
    return await RunRetention().fire(db, Instant(NOW + 31 * 86_400_000), "sweep")


async def register_body(world: World, db: Database, _: Any = None) -> Any:
    return await remote_bodies.register(db, world.caller, NOW, REMOTE)


async def registered(world: World) -> None:
    """A body that another host offers."""
    await register_body(world, world.store.db())


async def remove_body(world: World, db: Database, _: Any) -> Any:
    return await remote_bodies.remove(db, world.caller, NOW, REMOTE.name)


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


async def release_guard(world: World, db: Database, made: tuple[Fence, str]) -> Any:
    return await apply(apply_operations.ReleaseGuard(made[1], HOLDER), RECORDING)(world, db, made[0])


async def reconcile_guard(world: World, db: Database, made: tuple[Fence, str]) -> Any:
    key = idempotency_key(made[0].execution_id, STEP)
    return await reconcile.reconcile(db, world.caller, LATER, made[1], f"receipt:{key}:ch_1", "op-1")


async def exit_holder(_world: World, db: Database, _: Any) -> Any:
    return await holders.exit_(db, AT_WORK, NOW, HOLDER, kind="worker")


async def register_holder(_world: World, db: Database, _: Any) -> Any:
    return await holders.register(db, AT_WORK, NOW, HOLDER, "r:00", "worker")


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


RUNS = [
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
    Operation("runs.notify", run_and_place, ask_to_notify),
    Operation("runs.notify of an ended run", ended_run_and_place, ask_to_notify),
    Operation("bodies.register", nothing, register_body, renews=True),
    Operation("bodies.remove", registered, remove_body, BodyUnknown),
]

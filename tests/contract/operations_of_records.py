"""Mutations of leases, of the catalog, of records and awakeables, and of values under keys."""

from typing import Any

from moorage.awakeables import mint, resolve
from moorage.awakeables import model as awakeables
from moorage.awakeables.due import AwakeableRetention
from moorage.awakeables.payloads import Payload
from moorage.catalog import declare, scopes
from moorage.catalog.model import KindDeclaration, ScopeDeclaration
from moorage.idempotency.keys import Key
from moorage.kernel.errors import (
    FailureTag,
    InterestUnknown,
    LeaseFenced,
    LeaseHeld,
    RecordEnded,
    RecordExists,
    RecordNotDead,
)
from moorage.kernel.instants import Instant
from moorage.kv import values
from moorage.leases import lease
from moorage.records import batches, cancel, claim, dead_letters, debounce, fail, interests, sessions, settle
from moorage.records.model import ClaimRef, Debounce, Draft, Failure
from moorage.records.retention import Retention
from moorage.store.ports import Database
from tests.contract.operations_world import (
    KIND,
    NOW,
    RESULT,
    Operation,
    World,
    declared,
    nothing,
    published,
    put_destination,
)


async def numbered(world: World) -> str:
    """The kind with one ready record, and a session to claim in."""
    await published(world)
    return (await sessions.open_session(world.store.db(), world.caller, NOW)).id


async def debounced(world: World) -> None:
    """The kind with one record that waits for later ones."""
    await world.declare()
    await publish_debounced(world, world.store.db(), None)


REJECTION = awakeables.Rejection(FailureTag.PERMANENT, "no")
FAILURE = Failure(FailureTag.TRANSIENT, "later")


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


async def sweep_awakeables(_world: World, db: Database, _: Any) -> Any:
    return await AwakeableRetention().fire(db, Instant(NOW + 31 * 86_400_000), "sweep")


async def ended_awakeable(world: World) -> str:
    """One that no run minted, with an answer."""
    token = await world.minted()
    await resolve_one(world, world.store.db(), token)
    return token


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


async def put_value(world: World, db: Database, _: Any = None, key: Key | None = None) -> Any:
    return await values.put(db, world.caller, NOW, "space", "key", {"n": 1}, once=key)


async def valued(world: World) -> None:
    """A value under its key."""
    await put_value(world, world.store.db())


RECORDS = [
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
    Operation("records.retention", aged, lambda w, db, _: Retention().fire(db, Instant(NOW + 1000), f"{KIND}@1")),
    Operation("interests.declare", declared, look_for),
    Operation(
        "interests.withdraw", looking, lambda w, db, _: interests.withdraw(db, w.caller, NOW, "worker"), InterestUnknown
    ),
    Operation("awakeables.mint by key", nothing, mint_one),
    Operation("awakeables.resolve", World.minted, resolve_one),
    Operation("awakeables.resolve of a run", World.minted_in_a_run, resolve_one),
    Operation("awakeables.reject", World.minted, reject_one),
    Operation("awakeables.retention", ended_awakeable, sweep_awakeables),
    Operation("kv.put", nothing, put_value, renews=True),
    Operation("kv.put by key", nothing, lambda w, db, _: put_value(w, db, _, w.key("kv"))),
    Operation("kv.delete", valued, lambda w, db, _: values.delete(db, w.caller, NOW, "space", "key")),
    Operation(
        "kv.delete by key", valued, lambda w, db, _: values.delete(db, w.caller, NOW, "space", "key", once=w.key("kv"))
    ),
]

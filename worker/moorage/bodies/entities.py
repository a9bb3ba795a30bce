"""Entities: what one execution at a time works on (clauses guards.scope, guards.current-owner).

The lease is the execution's, is renewed with its own, and is shown when a callback is admitted: whoever has lost it sends
nothing. Nothing of it is recorded: each pass of the body holds the entity anew. While the run waits it holds none.
"""

from collections.abc import Generator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

from moorage.bodies.asking import expect
from moorage.bodies.core import Core, HeldEntity
from moorage.bodies.guarded import AGAIN_SECONDS, SHORT_PAUSES
from moorage.bodies.replay import placed
from moorage.bodies.waits import WaitKind
from moorage.guards.model import EntityLease
from moorage.kernel.errors import ExecutionGuardBlocked, LeaseHeld
from moorage.kernel.instants import after
from moorage.runs.guarding import MOST
from moorage.runs.operations import EntityHeld, HoldEntity, LetEntity

WHAT: Final = "run.entity"


@dataclass(frozen=True, slots=True)
class Entity:
    """`async with run.entity(namespace, key):` holds it for the block, `await run.entity(namespace, key)` to the end."""

    namespace: str
    key: str
    _engine: Core

    async def __aenter__(self) -> EntityLease:
        return await hold(self._engine, self.namespace, self.key)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        let(self._engine, self.namespace, self.key)

    def __await__(self) -> Generator[Any, None, EntityLease]:
        return hold(self._engine, self.namespace, self.key).__await__()


async def hold(engine: Core, namespace: str, key: str) -> EntityLease:
    """Hold an entity, as soon as nobody else does. Raises what the house refuses it with."""
    branch, token = engine.enter(WHAT)
    held = engine.entities.setdefault((namespace, key), HeldEntity())
    held.blocks += 1
    try:
        pauses = list(SHORT_PAUSES)
        while held.lease is None:
            try:
                [outcome] = await engine.commit(HoldEntity(namespace, key))
                held.lease = expect(outcome, EntityHeld).lease
            except (LeaseHeld, ExecutionGuardBlocked) as other:
                until = after(engine.world.now(), pauses.pop(0) if pauses else AGAIN_SECONDS)
                kind: WaitKind = "guard" if isinstance(other, ExecutionGuardBlocked) else "entity"
                wait = engine.wait(kind, placed(f"{namespace}/{key}", WHAT), until, other.members.get("token"))
                await engine.block(wait)
        return held.lease
    except BaseException:
        _leave(engine, namespace, key, held)
        raise
    finally:
        engine.leave(branch, token)


def let(engine: Core, namespace: str, key: str) -> None:
    """Let go of it with whatever comes next, once no other block relies on it."""
    engine.refuse_in_callback(WHAT)
    held = engine.entities.get((namespace, key))
    if held is not None:
        _leave(engine, namespace, key, held)


def _leave(engine: Core, namespace: str, key: str, held: HeldEntity) -> None:
    held.blocks -= 1
    if held.blocks == 0:
        del engine.entities[namespace, key]
        if held.lease is not None:
            engine.commits.later(LetEntity(namespace, key))


def left(engine: Core) -> list[LetEntity]:
    """What lets go of all that is held, for whoever lets go of the execution; nothing while a guard relies on it.

    What is more than one list takes runs out by itself.
    """
    if engine.standing:
        return []
    return [LetEntity(*name) for name, held in engine.entities.items() if held.lease is not None][:MOST]

"""The end of a run whose driving failed by a fault of the host's own.

Without it the execution would be taken over again each time its lease lapses, fail in the same place, and so on for ever.
Its run is closed as failed; what it recorded stays for the next opening, a restart or a rewind, as after every failure.
"""

import logging

from moorage.bodies.core import World
from moorage.bodies.engine import End
from moorage.bodies.failures import failure
from moorage.bodies.guarded import AGAIN_SECONDS
from moorage.bodies.observe import Telling
from moorage.bodies.places import place_of
from moorage.kernel.errors import ExecutionGuardBlocked, FailureTag, InternalError, MoorageError
from moorage.kernel.instants import after
from moorage.runs.model import Execution
from moorage.runs.operations import Close, Done, Operation, Suspend

log = logging.getLogger("moorage.bodies")


async def close(world: World, execution: Execution, error: Exception) -> End:
    """Close the run as failed with InternalError; answers `failed`, `suspended` while a guard forbids that, or `lost`.

    The log and the run's record tell the exception's class and its place in this package, and never what it says: that may
    be a value.
    """
    place = place_of(error, __name__.partition(".")[0])
    what = type(error).__name__ + (f" at {place}" if place else "")
    log.error("driving run %s failed: %s", execution.run_id, what)
    told = failure(FailureTag.PERMANENT, f"the host failed while it drove the run: {what}", InternalError.__name__)
    try:
        await _end(world, execution, Close("failed", None, told))
        return "failed"
    except ExecutionGuardBlocked as guarded:
        # What it did outside may not be over: the run is tried again once somebody has released the guard, or in a while.
        guard = {"label": execution.scope, "kind": "guard", "guard": str(guarded.members.get("token"))}
        suspend = Suspend("suspended", after(world.now(), AGAIN_SECONDS), [guard])
    except Exception as refusal:
        return _lost(execution, refusal)
    try:
        await _end(world, execution, suspend)
        return "suspended"
    except Exception as refusal:
        return _lost(execution, refusal)


async def _end(world: World, execution: Execution, operation: Close | Suspend) -> None:
    """Past whatever the engine keeps: it is what failed."""
    operations: list[Operation] = [operation]
    await world.substrate.apply(execution.fence, operations)
    telling = Telling(execution, world.now, world.observer, world.spans)
    telling.applied(operation, Done())
    telling.report(operation.status, operation.error if isinstance(operation, Close) else None)


def _lost(execution: Execution, refusal: Exception) -> End:
    # Whoever drives it next comes here again.
    said = refusal if isinstance(refusal, MoorageError) else type(refusal).__name__
    log.warning("run %s could not be closed after the failure: %s", execution.run_id, said)
    return "lost"

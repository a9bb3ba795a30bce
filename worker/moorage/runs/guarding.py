"""Guards and entities in a host's list of operations: what goes before the fence, and what after the entries.

A release comes first of all, so that it stands before anything that is recorded; entities come before the callback that
relies on them, and are let go of last. Lists without such operations know nothing of this.
"""

from collections.abc import Sequence
from typing import Final

from moorage.guards import admit, blocked, entities, release
from moorage.guards.admit import Callback, Standing
from moorage.guards.entities import Wish
from moorage.guards.model import EntityLease
from moorage.journal.model import Fence
from moorage.kernel.errors import ExecutionGuardBlocked, MoorageError, RequestInvalid
from moorage.kernel.instants import Instant
from moorage.runs.letting_go import RUNNER
from moorage.runs.operations import (
    AdmitGuard,
    Admitted,
    Close,
    Done,
    Doubtful,
    EntityHeld,
    HoldEntity,
    LetEntity,
    Operation,
    Outcome,
    ReleaseGuard,
    Suspend,
)
from moorage.store.ports import Database
from moorage.store.transaction import Answer, Transaction

GUARDING: Final = (AdmitGuard, ReleaseGuard, HoldEntity, LetEntity)
_BEGINNING: Final = (AdmitGuard, HoldEntity)

MOST: Final = 8
"""Operations of these in one list: each takes a precondition, and a transaction has few."""


def check(operations: Sequence[Operation]) -> None:
    """Raise RequestInvalid for lists that no host has a use for."""
    found = [one for one in operations if isinstance(one, GUARDING)]
    if not found:
        return
    if len(found) > MOST:
        raise RequestInvalid(f"a host admits, releases, holds and lets go at most {MOST} times at once")
    if sum(isinstance(one, AdmitGuard) for one in found) > 1:
        raise RequestInvalid("one callback is admitted at a time: an execution's guards would share its scope")
    if isinstance(operations[-1], Suspend | Close) and any(isinstance(one, _BEGINNING) for one in found):
        raise RequestInvalid("whoever lets go of the execution neither begins an effect nor holds an entity")


class Guarding:
    """The guards and entities of one list, planned as often as it takes. `standing` was admitted when an answer was lost."""

    def __init__(self, fence: Fence, operations: Sequence[Operation]) -> None:
        self._fence = fence
        self._operations = [(number, one) for number, one in enumerate(operations) if isinstance(one, GUARDING)]
        self._admitted: Answer | None = None
        self._held: dict[int, Answer] = {}
        self.standing: Standing | None = None

    # --- planning -----------------------------------------------------------------------------------------------------

    def release(self, tx: Transaction) -> None:
        """Before the fence, and so before anything is recorded (clause guards.release)."""
        for _, one in self._operations:
            if isinstance(one, ReleaseGuard):
                release.release(tx, RUNNER, self._fence, one.token, one.holder)

    def require_released(self, tx: Transaction) -> None:
        """After the fence: whoever has lost the execution is told that."""
        for _, one in self._operations:
            if isinstance(one, ReleaseGuard):
                release.require_released(tx, one.token)

    def begin(self, tx: Transaction) -> None:
        """After the entries: an entry is claimed before its callback is admitted."""
        for number, one in self._operations:
            if isinstance(one, HoldEntity):
                self._held[number] = entities.hold(tx, self._wish(one))
        for _, one in self._operations:
            if isinstance(one, AdmitGuard) and self.standing is None:
                self._admitted = admit.plan(tx, RUNNER, self._callback(one))
        for _, one in self._operations:
            if isinstance(one, LetEntity):
                entities.let(tx, self._wish(one))

    # --- answers ------------------------------------------------------------------------------------------------------

    def outcome(self, number: int, operation: Operation) -> Outcome | None:
        """What became of an operation of these; None for an admission of what has ended already."""
        match operation:
            case AdmitGuard():
                return self._admission()
            case HoldEntity():
                row = self._held[number].one()
                return EntityHeld(EntityLease(operation.namespace, operation.key, row["epoch"]), row["expires_at"])
            case ReleaseGuard() | LetEntity():
                return Done()
            case _:
                return None

    def _admission(self) -> Admitted | Doubtful | None:
        standing = self.standing
        if standing is None and self._admitted is not None and (row := self._admitted.first()) is not None:
            standing = Standing.of(row)
        if standing is None:
            return None
        guard = standing.guard
        if guard.is_doubtful:
            return Doubtful(guard.token, guard.evidence_class(guard.admitted_at))
        return Admitted(
            guard.token,
            guard.idempotency_key,
            guard.admitted_at,
            guard.publication,
            guard.window_ends_at,
            standing.target,
            guard.is_replayed,
        )

    # --- refusals -----------------------------------------------------------------------------------------------------

    async def occupied(self, db: Database, now: Instant) -> None:
        """See whether it is one's own guard that is in the way. Raises GuardedElsewhere."""
        for _, one in self._operations:
            if isinstance(one, AdmitGuard):
                self.standing = await admit.in_the_way(db, now, self._callback(one))

    async def why(self, db: Database, now: Instant) -> MoorageError:
        """Why the callback was not admitted."""
        [callback] = [self._callback(one) for _, one in self._operations if isinstance(one, AdmitGuard)]
        return await admit.why(db, now, callback)

    def _callback(self, one: AdmitGuard) -> Callback:
        return Callback(self._fence, one.key, one.holder, one.destination, one.publication, one.entities)

    def _wish(self, one: HoldEntity | LetEntity) -> Wish:
        return Wish(self._fence.execution_id, one.namespace, one.key)


async def refusal(db: Database, now: Instant, execution_id: str) -> ExecutionGuardBlocked:
    """Why an execution that is held could not be closed."""
    guard = await blocked.of_execution(db, execution_id)
    return ExecutionGuardBlocked("the guard is gone; ask again") if guard is None else blocked.error(guard, now)

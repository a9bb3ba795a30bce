"""How operations reach the substrate: grouped, in order, and lazily where nobody waits (clause runs.step-output).

A value is recorded together with whatever the body asks for next, so that a step costs one round trip; the effect of what
comes next never begins before. With one branch the body's own task sends. With several, one flusher sends for all, and what
they left without asking for more is flushed after a moment of quiet.
"""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NoReturn

from moorage.bodies.tasks import begin, future
from moorage.journal.model import EntryKey, Fence
from moorage.kernel.errors import BlobBusy, LeaseExpired, LeaseFenced, MoorageError, StorageBindingUnavailable
from moorage.kernel.limits import APPLY_OPERATIONS, JOURNAL_INLINE_BYTES
from moorage.runs.guarding import GUARDING
from moorage.runs.guarding import MOST as MOST_GUARDING
from moorage.runs.operations import (
    AdmitGuard,
    Await,
    AwaitEvent,
    Claim,
    Fail,
    GiveUp,
    HoldEntity,
    LetEntity,
    Operation,
    Outcome,
    Put,
    Record,
    Recorded,
    StartChild,
)
from moorage.runs.substrate_port import Substrate

Sleep = Callable[[float], Awaitable[None]]

QUIET_SECONDS: Final = 0.002
APPLY_BYTES: Final = 1_500_000
"""Inline values of one apply: they travel as one bound value, of which the database takes two million bytes."""

_BEGINNING: Final = (HoldEntity, AdmitGuard)

_TRIES: Final = 6
_FIRST_PAUSE: Final = 0.1
_PATIENCE: Final = 3

log = logging.getLogger("moorage.bodies")


@dataclass(slots=True)
class _Group:
    """Operations that belong together, who waits for their outcomes, and what became of them."""

    operations: tuple[Operation, ...]
    waiter: "asyncio.Future[None] | None" = None
    outcomes: list[Outcome] = field(default_factory=list)
    error: MoorageError | None = None


class Commits:
    """The one way from an engine to its substrate. `told` hears of each operation once it is stored, `died` of a loss.

    `broken` is what a write failed with that no substrate refuses with: the host is at fault, and the run is lost to it.
    """

    def __init__(
        self,
        substrate: Substrate,
        fence: Fence,
        sleep: Sleep,
        told: Callable[[Operation, Outcome], None],
        died: Callable[[], None],
    ) -> None:
        self.several = False
        self.lost: Exception | None = None
        self.broken: Exception | None = None
        self.cancel_after = False
        self.claims: dict[EntryKey, str] = {}
        self._substrate = substrate
        self._fence = fence
        self._sleep = sleep
        self._told = told
        self._died = died
        self._closed = False
        self._halted = False
        self._queue: list[_Group] = []
        self._sending = False
        self._flusher: asyncio.Task[None] | None = None
        self._quiet: asyncio.TimerHandle | None = None
        self._context = contextvars.copy_context()
        self._refused = 0

    @property
    def open(self) -> bool:
        """Whether anything may still be sent."""
        return self.lost is None and not self._closed

    @property
    def waiting(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._queue)

    @property
    def accepting(self) -> bool:
        """Whether the body may ask for more."""
        return self.open and not self._halted

    @property
    def sending(self) -> bool:
        """Whether a write is on its way in the body's own task."""
        return self._sending

    async def refuse(self) -> NoReturn:
        """Stop whoever asks for something after the end; one that will not be stopped is left standing for good."""
        self._refused += 1
        if self._refused > _PATIENCE:
            await asyncio.get_running_loop().create_future()
        raise asyncio.CancelledError

    def later(self, *operations: Operation) -> None:
        """Send these with whatever comes next, at the latest after a moment of quiet."""
        if not self.open:
            return
        self._note(operations)
        self._queue.append(_Group(operations))
        if self.several and self._flusher is None and self._quiet is None:
            loop = asyncio.get_running_loop()
            self._quiet = loop.call_later(QUIET_SECONDS, self._start, context=self._context)

    def _note(self, operations: Iterable[Operation]) -> None:
        """These are claimed from now on: whoever gives up a branch gives them up, once they are on their way."""
        for operation in operations:
            if isinstance(operation, (Claim, Await, AwaitEvent, StartChild)):
                self.claims[operation.key] = operation.position

    async def now(self, *operations: Operation) -> list[Outcome]:
        """Commit these together with all that waits, and answer each. Raises what the substrate refused them with."""
        if not self.accepting:
            await self.refuse()
        group = _Group(operations)
        self._queue.append(group)
        if self.several or self._flusher is not None or self._sending:
            group.waiter = future()
            self._start()
            await group.waiter
        else:
            self._sending = True
            try:
                await self._drain()
            except Exception as error:
                self._break(error)
            finally:
                self._sending = False
            if not self.open or self.cancel_after:
                raise asyncio.CancelledError
        if group.error is not None:
            raise group.error
        return group.outcomes

    async def insisted(self, *operations: Operation) -> tuple[list[Outcome], bool]:
        """As `now`, but whoever is canceled meanwhile hears all the same what became of it, and that it was canceled.

        Raises CancelledError only when nothing more is to be sent: the execution is lost, or was let go of.
        """
        if not self.accepting:
            await self.refuse()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        group, canceled = _Group(operations, waiter), False
        self._queue.append(group)
        self._start()
        while not waiter.done():
            try:
                await asyncio.wait({waiter})
            except asyncio.CancelledError:
                canceled = True
                if not self.open:
                    raise
        if waiter.cancelled() or (canceled and group.error is not None):
            raise asyncio.CancelledError
        if group.error is not None:
            raise group.error
        return group.outcomes, canceled

    async def finish(self, *operations: Operation) -> list[Outcome]:
        """Commit these after all else has been sent; for who drives the body, never for the body itself.

        Raises what the substrate refused them with, and CancelledError once the execution is lost.
        """
        while self._flusher is not None:
            await asyncio.wait([self._flusher])
        if not self.open:
            raise asyncio.CancelledError
        group = _Group(operations)
        if operations:
            self._queue.append(group)
        await self._drain()
        if self.lost is not None:
            raise asyncio.CancelledError
        if group.error is not None:
            raise group.error
        return group.outcomes

    def halt(self) -> None:
        """The body may ask for nothing more; what its effects have done is still recorded."""
        self._halted = True

    def close(self) -> None:
        """Send nothing more: the execution was let go of."""
        self._closed = True
        self._abandon()

    def drop(self) -> None:
        """Leave nothing under way: a write that has not been answered by now is nobody's any more."""
        self.close()
        if self._flusher is not None:
            self._flusher.cancel()

    def lose(self, reason: Exception) -> None:
        """Send nothing more: the execution is somebody else's."""
        if self.open:
            self.lost = reason
            self._abandon()
            self._died()

    def _break(self, error: Exception) -> None:
        """A fault of the host's own: nothing the body could catch, or wait for an answer after."""
        self.broken = self.broken or error
        self.lose(error)

    def _abandon(self) -> None:
        if self._quiet is not None:
            self._quiet.cancel()
            self._quiet = None
        queue, self._queue = self._queue, []
        for group in queue:
            if group.waiter is not None:
                group.waiter.cancel()

    def _start(self) -> None:
        if self._quiet is not None:
            self._quiet.cancel()
            self._quiet = None
        if self._flusher is None and self.open:
            # In the engine's own context: the body's would have the transport's requests taken for the body's.
            self._flusher = begin(self._flush(), context=self._context.copy())

    async def _flush(self) -> None:
        try:
            # Lets every branch that is ready ask first, so that they share one round trip.
            await asyncio.sleep(0)
            while self._queue and self.open:
                await self._drain()
                await asyncio.sleep(0)
        except Exception as error:
            self._break(error)
        finally:
            self._flusher = None

    async def _drain(self) -> None:
        groups, self._queue = [one for one in self._queue if one.waiter is None or not one.waiter.cancelled()], []
        for chunk in _chunks(groups):
            if not self.open:
                self._cut(chunk)
            elif not await self._send(chunk) and self.open:
                # One refused operation takes the whole transaction with it: the others go again without it.
                for group in chunk:
                    await self._alone(group)
            self._answer(chunk)

    async def _send(self, chunk: list[_Group]) -> bool:
        """Whether all of it was committed, or nothing more is to be sent."""
        operations = [operation for group in chunk for operation in group.operations]
        if not operations:
            return True
        self._note(operations)
        try:
            outcomes = await self._apply(operations)
        except (LeaseFenced, LeaseExpired, StorageBindingUnavailable) as error:
            self._cut(chunk)
            self.lose(error)
            return True
        except MoorageError as error:
            if len(chunk) > 1:
                return False
            chunk[0].error = error
            if chunk[0].waiter is None and _is_record(chunk[0]):
                # What the body has seen cannot be kept: going on would make the journal tell another story.
                self.lose(error)
            return True
        index = 0
        for group in chunk:
            group.outcomes = outcomes[index : index + len(group.operations)]
            index += len(group.operations)
            for operation, outcome in zip(group.operations, group.outcomes, strict=True):
                self._told(operation, outcome)
                if isinstance(operation, (Record, GiveUp)) or (
                    isinstance(operation, Fail) and operation.next_attempt_at is None
                ):
                    self.claims.pop(operation.key, None)
                if isinstance(outcome, Recorded) and isinstance(operation, (Record, Put)) and _another(operation, outcome):
                    # What the body has seen is not what is kept: somebody else holds the execution.
                    self.lose(LeaseFenced(f"another value of {operation.key.label!r} was recorded first"))
        return True

    async def _alone(self, group: _Group) -> None:
        if self.open:
            await self._send([group])
        else:
            self._cut([group])

    async def _apply(self, operations: list[Operation]) -> list[Outcome]:
        """Operations may be sent again as they are: one that was applied already answers what it did then."""
        pause = _FIRST_PAUSE
        for remaining in range(_TRIES - 1, -1, -1):
            try:
                return await self._substrate.apply(self._fence, operations)
            except (StorageBindingUnavailable, BlobBusy):
                if not remaining or not self.open:
                    raise
            await self._sleep(pause)
            pause *= 2
        raise AssertionError("unreachable")

    def _cut(self, chunk: Iterable[_Group]) -> None:
        for group in chunk:
            if group.waiter is not None:
                group.waiter.cancel()

    def _answer(self, chunk: Iterable[_Group]) -> None:
        for group in chunk:
            if group.waiter is not None and not group.waiter.done():
                group.waiter.set_result(None)


def _is_record(group: _Group) -> bool:
    return any(isinstance(operation, (Record, Put)) for operation in group.operations)


def _another(operation: Record | Put, outcome: Recorded) -> bool:
    kept = outcome.entry.value
    return kept is not None and kept.text is not None and kept.text != operation.value.text


def _chunks(groups: list[_Group]) -> Iterable[list[_Group]]:
    """Groups in order, within what one transaction takes."""
    chunk: list[_Group] = []
    count = size = guarding = 0
    letting = False
    for group in groups:
        weight = sum(_weight(operation) for operation in group.operations)
        guards = sum(isinstance(operation, GUARDING) for operation in group.operations)
        full = count + len(group.operations) > APPLY_OPERATIONS or guarding + guards > MOST_GUARDING
        # In one list what is held, and what relies on it, comes before what is let go of.
        full = full or (letting and any(isinstance(operation, _BEGINNING) for operation in group.operations))
        if chunk and (full or size + weight > APPLY_BYTES):
            yield chunk
            chunk, count, size, guarding, letting = [], 0, 0, 0, False
        chunk.append(group)
        count += len(group.operations)
        size += weight
        guarding += guards
        letting = letting or any(isinstance(operation, LetEntity) for operation in group.operations)
    if chunk:
        yield chunk


def _weight(operation: Operation) -> int:
    value = getattr(operation, "value", None)
    return 0 if value is None or value.size > JOURNAL_INLINE_BYTES else value.size

"""Driving one execution: the body's task, its branches, and the end of it.

The driver's task (`drive`) starts the body in a task of its own and waits for one of four things: the body ends, every
branch of it is blocked, the execution is stopped, or it is lost. Whatever the body asks for goes through `Commits`; what was
recorded comes out of `Replay`. Suspending lets go of the body's task: the next opening runs it again from its beginning,
with all that was recorded (clauses runs.effect-boundary, runs.one-token, runs.abandoned).
"""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, Literal

from pydantic import ValidationError

from moorage.bodies import guard
from moorage.bodies.branches import BRANCH, Branch
from moorage.bodies.core import Core, RunDeadline, fields_of
from moorage.bodies.entities import left
from moorage.bodies.errors import StepFailed, StepMisuse
from moorage.bodies.failures import classify, failure
from moorage.bodies.guarded import AGAIN_SECONDS, SHORT_PAUSES
from moorage.bodies.places import note
from moorage.bodies.tasks import begin, future
from moorage.bodies.values import value_of
from moorage.kernel.errors import ExecutionGuardBlocked, ExecutionWoken, FailureTag, MoorageError
from moorage.kernel.instants import Instant, after, render
from moorage.kernel.limits import SHORT_WAIT_SECONDS
from moorage.runs.model import Failure
from moorage.runs.operations import Close, Suspend

log = logging.getLogger("moorage.bodies")

Ending = Literal["success", "failed", "canceled"]

End = Literal["success", "failed", "canceled", "waiting", "suspended", "lost"]
"""How a host lets go of an execution. `lost`: it is somebody else's by now, or nobody could be told."""

LOOK_AGAIN_SECONDS: Final = 10
"""How long a wait in memory goes without a look whether it is over; the wake comes at once, unless it was lost."""

GRACE_SECONDS: Final = 0.1
"""How long a canceled body may take to unwind before it is canceled again, and then left standing."""

_UNWINDINGS: Final = 3


class Engine(Core):
    """One execution in the hands of one host, until it ends, suspends, or is lost."""

    # --- for who hosts it ---------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Cancel the body wherever it is, and close the run as canceled."""
        self.stopping = True
        self._changed()

    def wake(self) -> None:
        """Something that the run awaits may have ended: look."""
        self.woken = True
        self._changed()

    def lose(self, reason: Exception) -> None:
        """The execution is somebody else's: let go at once, and send nothing more."""
        self.commits.lose(reason)

    async def drive(self) -> End:
        """Run the body until it ends, suspends, is stopped or lost. Raises nothing of the body's, and faults of its own."""
        if self.stopping:
            return await self._close("canceled", None, None)
        await self._load_drawn()
        self.telling.running()
        context = contextvars.copy_context()
        task = begin(self._body(), context=context)
        task.add_done_callback(lambda _: self._changed())
        try:
            ended = await self._until_let_go(task)
            if self.commits.broken is not None:
                raise self.commits.broken
            return ended
        finally:
            await self._unwind(task)
            self.commits.drop()

    async def _until_let_go(self, task: "asyncio.Task[str]") -> End:
        while True:
            if self.commits.lost is not None:
                log.info("execution %s was lost: %s", self.execution.execution_id, self.commits.lost)
                return "lost"
            if task.done():
                return await self._ended(task)
            if self.stopping:
                await self._unwind(task)
                self.telling.stopped()
                return await self._close("canceled", None, None)
            if self.stuck:
                await self._unwind(task)
                return await self._ended(task)
            if self.woken:
                self.woken = False
                await self._look()
                continue
            if self._deadline is not None and self.world.now() >= self._deadline and not self.callbacks:
                passed = f"the run passed its deadline {render(self._deadline)}"
                self.fault = self.fault or RunDeadline(passed, self._blocked_label())
                await self._unwind(task)
                return await self._ended(task)
            if (end := await self._rest()) is not None:
                return end

    async def _rest(self) -> End | None:
        """Let what is due go on; else wait until something happens, or let go of what only waits."""
        now = self.world.now()
        if self._release_due(now):
            return None
        if overdue := [wait for wait in self._waits if wait.until is not None and wait.until <= now]:
            # Its deadline has passed: whoever ends it wakes the run. Until then it has no instant of its own.
            await self._look()
            for wait in overdue:
                wait.until = None
            return None
        earliest = self._earliest()
        if self.running == 0 and (earliest is None or earliest > after(now, SHORT_WAIT_SECONDS)):
            return await self._suspend(earliest)
        if self.running == 0 and self.commits.waiting:
            await self._flush()
            return None
        await self._until_changed(self._next_look(now, earliest))
        return None

    # --- the body and its end -----------------------------------------------------------------------------------------

    async def _body(self) -> str:
        from moorage.bodies.run import Run

        BRANCH.set(Branch())
        body = self.body
        arguments = []
        if body.takes_input:
            arguments.append(body.input.load(await self._input()))
        guard.WATCHED.set(self.package)
        result = await body.function(Run(self), *arguments)
        guard.WATCHED.set(None)
        if self.fault is not None:
            raise self.fault
        self.replay.check_complete()
        return body.result.dump(result)

    async def _input(self) -> str:
        given = self.execution.input
        if given.text is None:
            raise MoorageError("the execution was handed over without its input")
        return given.text

    async def _ended(self, task: "asyncio.Task[str]") -> End:
        """The body is over, in one way or the other: close the run."""
        if self.commits.lost is not None:
            return "lost"
        error: BaseException | None = self.fault
        if error is None and task.done():
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None and task.done():
            return await self._close("success", task.result(), None)
        if isinstance(error, asyncio.CancelledError):
            return await self._close("canceled" if self.stopping else "failed", None, self._canceled_itself())
        return await self._close("failed", None, self._failure(error))

    def _canceled_itself(self) -> Failure | None:
        return None if self.stopping else failure(FailureTag.CANCELED, "the body canceled itself", "CancelledError")

    def _failure(self, error: BaseException | None) -> Failure:
        if isinstance(error, RunDeadline):
            return failure(FailureTag.TIMED_OUT, str(error), "RunDeadline", error.step)
        if isinstance(error, StepFailed):
            return failure(error.tag, error.message, error.code, error.label)
        if isinstance(error, StepMisuse):
            return failure(FailureTag.PERMANENT, str(error), error.code, error.step)
        if isinstance(error, ValidationError):
            return failure(FailureTag.INVALID, f"a value does not fit its type: {fields_of(error)}", "ValidationError")
        if error is None:
            return failure(FailureTag.PERMANENT, "the body did not end when it was canceled")
        found = classify(error, self.world.now()).failure
        note(error, found, self.package, self.execution.run_id)
        return found

    async def _close(self, status: Ending, text: str | None, error: Failure | None, tries: int = 0) -> End:
        if self.standing and status != "canceled":
            return await self._leave_guarded(list(self.standing))
        result = None if text is None else value_of(text)
        try:
            await self.commits.finish(*self.take_prelude(), *left(self), Close(status, result, error))
        except asyncio.CancelledError:
            if self.commits.lost is None:
                raise
            return "lost"
        except ExecutionGuardBlocked as guarded:
            # Of an execution below, whose callback soon returns; or one of its own that this host knows nothing of.
            if status == "canceled":
                self.commits.lose(guarded)
                return "lost"
            if self.stopping or tries == len(SHORT_PAUSES):
                until = after(self.world.now(), AGAIN_SECONDS)
                return await self._leave_guarded([str(guarded.members.get("token"))], until)
            await self.world.sleep(SHORT_PAUSES[tries])
            return await self._close(status, text, error, tries + 1)
        except MoorageError as refusal:
            if status == "success" and refusal.tag in (FailureTag.TOO_LARGE, FailureTag.INVALID):
                return await self._close("failed", None, failure(refusal.tag, refusal.detail, refusal.code))
            log.warning("run %s could not be closed as %s: %s", self.execution.run_id, status, refusal)
            self.commits.close()
            return "lost"
        self.commits.close()
        self.telling.report(status, error)
        return status

    async def _leave_guarded(self, tokens: Sequence[str], until: Instant | None = None) -> End:
        """The body is over, and what it did may not be: let go of the run until somebody has released the guards.

        Then the body runs once more over what is recorded, and comes to the same end.
        """
        told = self.guarded(tokens)
        for _ in range(_UNWINDINGS):
            if self.stopping:
                return await self._close("canceled", None, None, len(SHORT_PAUSES))
            ended = await self._let_go(Suspend("suspended", until, told[:100]))
            if ended is not None:
                return ended
            self.woken = False
            if self.commits.lost is None:
                await self._look()
        return "lost"

    def guarded(self, tokens: Iterable[str]) -> list[dict[str, Any]]:
        """Guards as people see them among what a run awaits: of its own step, or of something in its scope."""
        labels = {token: key.label for token, key in self.standing.items()}
        return [{"label": labels.get(one, self.execution.scope), "kind": "guard", "guard": one} for one in tokens]

    async def _suspend(self, earliest: Instant | None) -> End | None:
        """Let go of the execution while everything waits. None: something has ended meanwhile, or the run is lost."""
        timed = self._only_timed()
        until = earliest if self._deadline is None else min(earliest or self._deadline, self._deadline)
        awaiting = [wait.told() for wait in self._waits if wait.kind != "flight"][:100]
        return await self._let_go(Suspend("waiting" if timed else "suspended", until, awaiting))

    async def _let_go(self, operation: Suspend) -> End | None:
        try:
            await self.commits.finish(*self.take_prelude(), *left(self), operation)
        except ExecutionWoken:
            self.woken = True
            return None
        except asyncio.CancelledError:
            if self.commits.lost is None:
                raise
            return None
        except MoorageError as refusal:
            self.commits.lose(refusal)
            return None
        self.commits.close()
        self.telling.report(operation.status, None)
        return operation.status

    async def _flush(self) -> None:
        """Store what waits to be told, before a wait in memory: a restart then waits for what remains."""
        with suppress(asyncio.CancelledError):
            await self.commits.finish()

    async def _unwind(self, task: "asyncio.Task[str]") -> None:
        """Cancel the body, and wait for it within bounds. One that swallows the cancellation is left standing."""
        self.commits.halt()
        for _ in range(_UNWINDINGS):
            if task.done():
                break
            if self.commits.sending and self.commits.open:
                # What is on its way was decided: the body is canceled once it has arrived.
                self.commits.cancel_after = True
            else:
                task.cancel()
            await within(task, GRACE_SECONDS, self.world.sleep)
        if not task.done():
            task.cancel()
            await asyncio.sleep(0)
            if not task.done() and not self.callbacks:
                log.warning("the body %r of run %s does not let itself be canceled", self.body.name, self.execution.run_id)
        elif not task.cancelled():
            task.exception()

    # --- waiting ------------------------------------------------------------------------------------------------------

    async def _until_changed(self, until: Instant | None) -> None:
        self._change = future()
        if until is None:
            await self._change
        else:
            seconds = max(0.0, (until - self.world.now()) / 1000)
            await within(self._change, seconds, self.world.sleep)
        self._change = None

    def _earliest(self) -> Instant | None:
        return min((wait.until for wait in self._waits if wait.until is not None), default=None)

    def _next_look(self, now: Instant, earliest: Instant | None) -> Instant | None:
        # A deadline that passes while a callback is under way takes effect once that has returned.
        looks = [one for one in (earliest, self._deadline) if one is not None and (one > now or not self.callbacks)]
        if any(not wait.timed and wait.kind != "flight" for wait in self._waits):
            looks.append(after(now, LOOK_AGAIN_SECONDS))
        return min(looks, default=None)

    def _only_timed(self) -> bool:
        return all(wait.timed or wait.kind == "flight" for wait in self._waits)

    def _blocked_label(self) -> str | None:
        return next((wait.key.label for wait in self._waits), None)

    def _release_due(self, now: Instant) -> bool:
        due = [wait for wait in self._waits if wait.timed and wait.until is not None and wait.until <= now]
        for wait in due:
            self.release(wait)
        return bool(due)

    async def _look(self) -> None:
        """Ask which waits are over, and go on with those."""
        try:
            ended = await self.world.substrate.refresh(self.execution.fence)
        except MoorageError as error:
            if error.tag == FailureTag.FENCED:
                self.commits.lose(error)
            else:
                log.warning("what run %s awaits could not be looked at: %s", self.execution.run_id, error)
            return
        self.telling.taken_over(ended)
        for entry in ended:
            self.replay.entries[entry.key] = entry
            for wait in [one for one in self._waits if one.key == entry.key]:
                self.release(wait)

    async def _load_drawn(self) -> None:
        """Instants and chance are given without waiting: load those that were left out."""
        for entry in list(self.replay.entries.values()):
            if entry.kind in ("now", "random", "uuid") and entry.value is not None and entry.value.text is None:
                await self.text(entry)


async def within(future: "asyncio.Future[Any]", seconds: float, sleep: Callable[[float], Awaitable[None]]) -> None:
    """Wait for a future, `seconds` at most by the injected sleep. What it raises is left in it."""
    if future.done():
        return
    sleeper = asyncio.ensure_future(sleep(seconds))
    try:
        await asyncio.wait({future, sleeper}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        sleeper.cancel()

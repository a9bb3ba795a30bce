"""Effects under a guard: admitted, sent, and either known or in doubt (clauses guards.acquire, guards.release,
guards.current-owner).

Two round trips: one claims the entry and admits its callback, together with what waits to be recorded; one removes the
guard and records what became of the effect. Where nobody knows that, the guard stays. Its holder may send the same key
again while the destination drops it; otherwise the run is let go of, and whoever releases the guard lets it go on.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

from moorage.bodies import asking
from moorage.bodies.branches import CALLBACK
from moorage.bodies.core import Core
from moorage.bodies.errors import InDoubt, StepFailed
from moorage.bodies.failures import CallDeadline, Classified, classify, failure
from moorage.bodies.retry import Retry, decide
from moorage.bodies.sending import Dispatch
from moorage.journal.model import Entry, EntryKey, Kind, idempotency_key
from moorage.kernel.errors import FailureTag, GuardedElsewhere, MoorageError, StorageBindingUnavailable
from moorage.kernel.instants import Instant, after
from moorage.runs.operations import AdmitGuard, Admitted, Claim, Claimed, Doubtful, Fail, Recorded, ReleaseGuard

SHORT_PAUSES: Final = (0.1, 0.2, 0.4, 0.8)
"""How long an admission waits for another execution's callback, and how often, before the run is let go of."""

AGAIN_SECONDS: Final = 30
"""When it is asked again then, in case nobody told that the other callback has returned."""

GRACE_SECONDS: Final = 0.2
"""How long a callback may take to end once its time is over and it was canceled."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What is done under a guard. `is_known` tells of a callback's error whether it says what became of the effect."""

    kind: Kind
    destination: str | None
    publication: bool
    work: Callable[[Dispatch], Awaitable[str]]
    is_known: Callable[[Exception], bool]
    policy: Retry
    within: float | None


async def attempts(engine: Core, position: str, entry: Entry | None, key: EntryKey, effect: Effect) -> str:
    """The recorded text of a guarded effect. Raises StepFailed."""
    while True:
        await asking.due(engine, key, entry)
        await engine.slot.take(engine, key)
        try:
            ended = await _Sent(engine, position, key, effect).outcome()
        finally:
            engine.slot.free(engine)
        if isinstance(ended, str):
            return ended
        entry = ended
        if entry.state != "waiting":
            return await asking.ended(engine, entry)


class _Sent:
    """One guard's worth of attempts."""

    def __init__(self, engine: Core, position: str, key: EntryKey, effect: Effect) -> None:
        self._engine = engine
        self._position = position
        self._key = key
        self._effect = effect
        self._holder = ""
        self._canceled = False
        # A request with this key may have arrived, and nobody knows: no refusal of a later one says that it did not.
        self._doubt: str | None = None

    async def outcome(self) -> str | Entry:
        """The text to give, or the entry as it stands: ended, or waiting for an attempt under another guard."""
        while True:
            admission = await self._admission()
            if isinstance(admission, Entry):
                return asking.stands(self._engine, admission)
            attempt, admitted = admission
            if isinstance(admitted, Doubtful) or self._is_over(admitted):
                return await self._doubtful(attempt, admitted.token)
            found = await self._attempt(attempt, admitted)
            if found is not None:
                return found

    # --- admission ----------------------------------------------------------------------------------------------------

    async def _admission(self) -> tuple[int, Admitted | Doubtful] | Entry:
        """The attempt's number and what was admitted; or the entry that has ended, or waits."""
        engine, key, effect = self._engine, self._key, self._effect
        pauses = list(SHORT_PAUSES)
        while True:
            await self._registered()
            leases = [held.lease for held in engine.entities.values() if held.lease is not None]
            claim = Claim(key, effect.kind, self._position)
            admit = AdmitGuard(key, self._holder, effect.destination, effect.publication, leases)
            try:
                outcomes, canceled = await engine.insist(claim, admit)
            except GuardedElsewhere as other:
                until = after(engine.world.now(), pauses.pop(0) if pauses else AGAIN_SECONDS)
                await engine.block(engine.wait("guard", key, until, other.members.get("token")))
                continue
            except MoorageError as refusal:
                self._refused(refusal)
            if isinstance(outcomes[0], Recorded):
                return outcomes[0].entry
            claimed = asking.expect(outcomes[0], Claimed)
            admitted = outcomes[1] if isinstance(outcomes[1], Doubtful) else asking.expect(outcomes[1], Admitted)
            engine.standing[admitted.token] = key
            if isinstance(admitted, Doubtful) or admitted.replayed:
                self._doubt = admitted.token
            if canceled:
                if self._doubt is None:
                    # Nothing was sent, and nothing will be.
                    engine.commits.later(self._release(admitted.token))
                raise asyncio.CancelledError
            return claimed.attempt, admitted

    async def _registered(self) -> None:
        try:
            self._holder = await self._engine.world.holder.register()
        except StorageBindingUnavailable as error:
            self._engine.commits.lose(error)
            raise asyncio.CancelledError from None
        except MoorageError as refusal:
            self._refused(refusal)

    def _refused(self, refusal: MoorageError) -> NoReturn:
        """What the house refuses is recorded as the step's failure, so that a replay meets the same."""
        engine, key, kind = self._engine, self._key, self._effect.kind
        known = engine.replay.entries.get(key)
        attempt = 1 if known is None else known.attempt + 1
        told = failure(refusal.tag, refusal.detail, refusal.code)
        engine.commits.later(Claim(key, kind, self._position), Fail(key, attempt, told))
        now, epoch = engine.world.now(), engine.execution.lease.epoch
        engine.replay.entries[key] = Entry(
            key, kind, self._position, "failed", attempt, epoch, now, now, failure=told.wire()
        )
        raise StepFailed(key.label, refusal.tag, told.message, refusal.code) from None

    def _release(self, token: str) -> ReleaseGuard:
        self._engine.standing.pop(token, None)
        return ReleaseGuard(token, self._holder)

    # --- the callback -------------------------------------------------------------------------------------------------

    async def _attempt(self, attempt: int, admitted: Admitted) -> str | Entry | None:
        """One call of the callback: the text, the entry, or None for another call under the same guard."""
        engine, key, effect = self._engine, self._key, self._effect
        began = engine.world.now()
        told = await self._call(attempt, admitted)
        if isinstance(told, str):
            kind, release = effect.kind, (self._release(admitted.token),)
            asking.record(engine, self._position, key, kind, told, attempt=attempt, began=began, before=release)
            await self._settled()
            return told
        if self._doubt is None and effect.is_known(told):
            return await self._failed(attempt, admitted, began, told)
        return await self._in_doubt(attempt, admitted, began, told)

    async def _call(self, attempt: int, admitted: Admitted) -> str | Exception:
        """What the callback returned or raised. Whoever waits for it may be canceled; it has its own time."""
        engine, within = self._engine, self._effect.within
        callback = self._begin(attempt, admitted)
        sleeper = None if within is None else asyncio.ensure_future(engine.world.sleep(within))
        late = False
        try:
            while not callback.done() and not late:
                try:
                    either: set[asyncio.Future[Any]] = {callback} if sleeper is None else {callback, sleeper}
                    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                except asyncio.CancelledError:
                    self._canceled = True
                    if not engine.commits.open:
                        callback.cancel()
                        raise
                late = sleeper is not None and sleeper.done() and not callback.done()
        finally:
            if sleeper is not None:
                sleeper.cancel()
        if late:
            callback.cancel()
            await self._unwound(callback)
        return self._said(callback, within if late else None)

    def _begin(self, attempt: int, admitted: Admitted) -> "asyncio.Task[str]":
        engine, key, work = self._engine, self._key, self._effect.work
        dispatch = _dispatch(engine, key, attempt, admitted)

        async def call() -> str:
            CALLBACK.set(key.label)
            return await work(dispatch)

        task = asyncio.get_running_loop().create_task(call())
        engine.callbacks.add(task)
        engine.world.holder.began(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[str]") -> None:
        self._engine.callbacks.discard(task)
        if not task.cancelled():
            task.exception()
        self._engine.idle()

    async def _unwound(self, callback: "asyncio.Task[str]") -> None:
        sleeper = asyncio.ensure_future(self._engine.world.sleep(GRACE_SECONDS))
        try:
            either: set[asyncio.Future[Any]] = {callback, sleeper}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeper.cancel()

    def _said(self, callback: "asyncio.Task[str]", struck: float | None) -> str | Exception:
        if not callback.done():
            return _StillUnderWay(struck or 0.0)
        if callback.cancelled():
            if struck is not None:
                return CallDeadline(struck)
            return InDoubt(FailureTag.CANCELED, "the callback canceled itself", code="CancelledError")
        error = callback.exception()
        if error is None:
            return callback.result()
        if not isinstance(error, Exception):
            raise error
        return error

    # --- what became of it --------------------------------------------------------------------------------------------

    async def _failed(self, attempt: int, admitted: Admitted, began: Instant, error: Exception) -> Entry:
        """The other side has answered, or nothing was sent: the guard goes, and the schedule decides."""
        engine, effect = self._engine, self._effect
        release = (self._release(admitted.token),)
        entry = asking.failed(engine, self._position, self._key, effect.kind, attempt, began, error, effect.policy, release)
        await self._settled()
        if engine.fault is not None:
            raise engine.fault
        return entry

    async def _in_doubt(self, attempt: int, admitted: Admitted, began: Instant, error: Exception) -> Entry | None:
        """Nobody knows: the guard stays. Its holder may try again under it, or the run waits for an operator."""
        self._doubt = admitted.token
        now = self._engine.world.now()
        found = classify(error, now)
        delay = self._delay(attempt, admitted, found.failure.tag, found.retry_after, error)
        again = now if delay is None else after(now, delay)
        await self._note(attempt, admitted.token, began, again, found)
        if delay is None:
            return await self._until_released(admitted.token)
        # In memory, and with the lease: whoever else took this up would find it guarded.
        await self._engine.world.sleep(delay)
        return None

    def _is_over(self, admitted: Admitted) -> bool:
        """Whether the destination may have forgotten the key of an earlier request by now: the admission took its time."""
        ends = admitted.window_ends_at
        return self._doubt is not None and (ends is None or self._engine.world.now() >= ends)

    async def _doubtful(self, attempt: int, token: str) -> Entry:
        """Nobody knows of an earlier request, and the destination may have forgotten its key: nothing is sent."""
        now = self._engine.world.now()
        told = failure(FailureTag.TRANSIENT, "an earlier request may have arrived, and its window is over")
        await self._note(attempt, token, now, now, Classified(told))
        return await self._until_released(token)

    async def _note(self, attempt: int, token: str, began: Instant, again: Instant, found: Classified) -> None:
        """Record that the outcome is not known."""
        engine, key = self._engine, self._key
        message = f"the outcome is not known, and guard {token} stays: {found.failure.message}"
        told = failure(found.failure.tag, message, found.failure.code)
        engine.commits.later(Fail(key, attempt, told, again, found.bound))
        kind, epoch = self._effect.kind, engine.execution.lease.epoch
        engine.replay.entries[key] = Entry(
            key, kind, self._position, "waiting", attempt, epoch, began, None, None, again, None, told.wire()
        )
        await self._settled()
        if engine.fault is not None:
            raise engine.fault

    async def _until_released(self, token: str) -> Entry:
        """The entry once somebody has released the guard; usually another host's, after the run was let go of."""
        await self._engine.block(self._engine.wait("guard", self._key, None, token))
        return replace(self._engine.replay.entries[self._key])

    def _delay(
        self, attempt: int, admitted: Admitted, tag: str, retry_after: float | None, error: Exception
    ) -> float | None:
        """Until the same key may be sent again: while the destination drops it, up to the end of that attempt."""
        if isinstance(error, _StillUnderWay) or self._engine.fault is not None or admitted.window_ends_at is None:
            return None
        engine, effect = self._engine, self._effect
        seed = idempotency_key(engine.execution.execution_id, self._key)
        delay = decide(effect.policy, attempt, tag, seed, retry_after)
        if delay is None:
            return None
        again = after(engine.world.now(), delay)
        covered = after(again, effect.within or 0.0) < admitted.window_ends_at
        in_time = engine.deadline is None or again < engine.deadline
        return delay if covered and in_time else None

    async def _settled(self) -> None:
        """Store what became of it at once, also for who was canceled meanwhile, and is told so after."""
        engine = self._engine
        if told := engine.take_prelude():
            engine.commits.later(*told)
        if engine.commits.accepting:
            _, canceled = await engine.commits.insisted()
            self._canceled = self._canceled or canceled
        if self._canceled:
            raise asyncio.CancelledError


class _StillUnderWay(CallDeadline):
    """The callback did not end when its time was over: it may still be sending."""


def _dispatch(engine: Core, key: EntryKey, attempt: int, admitted: Admitted) -> Dispatch:
    step = asking.step_of(engine, key, attempt)
    return Dispatch(
        step.label,
        step.attempt,
        admitted.idempotency_key,
        step.traceparent,
        step.run_id,
        step.scope,
        admitted.token,
        admitted.target,
        admitted.window_ends_at,
    )

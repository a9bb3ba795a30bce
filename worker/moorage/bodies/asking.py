"""What a body asks for, one function each, between `Run` and the engine: claim, effect, record, retry, wait."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import ValidationError

from moorage.bodies.branches import Branch
from moorage.bodies.core import Core, RunDeadline
from moorage.bodies.errors import StepFailed
from moorage.bodies.failures import CallDeadline, classify, failure
from moorage.bodies.places import note
from moorage.bodies.replay import placed
from moorage.bodies.retry import Retry, decide
from moorage.bodies.values import value_of
from moorage.bodies.waits import Awakeable
from moorage.journal.model import Entry, EntryKey, Kind, idempotency_key, wait_hash
from moorage.kernel import canonical
from moorage.kernel.errors import AwakeableTokenLost, FailureTag, InternalError, MoorageError
from moorage.kernel.instants import Instant, after, render
from moorage.runs.model import Minted
from moorage.runs.operations import Await, Claim, Claimed, Fail, Operation, Outcome, Put, Record, Recorded
from moorage.runs.tracing_context import traceparent

T = TypeVar("T")

KEPT_TEXT = 256 * 1024
"""Characters of a recorded value that stay in memory for whoever asks for it again; larger ones are read back."""

CLOCK_SKEW_SECONDS = 0.1
"""How long a host waits that comes too early by the house's clock."""

NULL = "null"


@dataclass(frozen=True, slots=True)
class Step:
    """What an effect may know of itself: hand `idempotency_key` to whatever it calls, so that a repeat can be told.

    The key is the same on every attempt and after every crash. `traceparent` continues the run's trace.
    """

    label: str
    attempt: int
    idempotency_key: str
    traceparent: str
    run_id: str
    scope: str


async def effect(
    engine: Core,
    branch: Branch,
    key: EntryKey,
    kind: Kind,
    work: Callable[[Step], Awaitable[str]],
    policy: Retry,
    within: float | None,
) -> str:
    """The recorded text of a step: of an earlier attempt, of another branch that has it under way, or of its effect now."""

    def attempts(position: str, entry: Entry | None) -> Awaitable[str]:
        return _attempts(engine, position, entry, key, kind, work, policy, within)

    return await once(engine, branch, key, attempts)


async def once(engine: Core, branch: Branch, key: EntryKey, attempts: Callable[[str, Entry | None], Awaitable[str]]) -> str:
    """The recorded text under a key, of whichever branch has it under way; `attempts` are made by the first one."""
    position, entry = engine.ask(branch, key)
    while True:
        if entry is not None and entry.state in ("done", "failed", "canceled"):
            return await ended(engine, entry)
        others = engine.flights.get(key)
        if others is None:
            break
        wait = engine.wait("flight", key)
        others.append(wait)
        await engine.block(wait)
        entry = engine.replay.entries.get(key)
    waiting = engine.flights[key] = []
    try:
        return await attempts(position, entry)
    finally:
        del engine.flights[key]
        for wait in waiting:
            engine.release(wait)


async def _attempts(
    engine: Core,
    position: str,
    entry: Entry | None,
    key: EntryKey,
    kind: Kind,
    work: Callable[[Step], Awaitable[str]],
    policy: Retry,
    within: float | None,
) -> str:
    now = engine.world.now
    while True:
        await due(engine, key, entry)
        outcome = (await engine.commit(Claim(key, kind, position)))[0]
        if isinstance(outcome, Recorded):
            entry = stands(engine, outcome.entry)
            if entry.state != "waiting":
                return await ended(engine, entry)
            continue
        attempt = expect(outcome, Claimed).attempt
        began = now()
        try:
            text = await _bounded(work(step_of(engine, key, attempt)), within, engine)
        except Exception as error:
            if engine.fault is not None:
                raise engine.fault from None
            entry = failed(engine, position, key, kind, attempt, began, error, policy)
            if entry.state != "waiting":
                return await ended(engine, entry)
            continue
        record(engine, position, key, kind, text, attempt=attempt, began=began)
        return text


async def due(engine: Core, key: EntryKey, entry: Entry | None) -> None:
    """Wait for the instant of the next attempt, if the entry has one."""
    until = entry.next_attempt_at if entry is not None and entry.state == "waiting" else None
    if until is not None and until > engine.world.now():
        await engine.block(engine.wait("retry", key, until))


def stands(engine: Core, entry: Entry) -> Entry:
    """The entry that a claim met. One that waits waits a little longer: the house's clock is behind this one."""
    engine.replay.entries[entry.key] = entry
    if entry.state != "waiting":
        return entry
    now = engine.world.now()
    return replace(entry, next_attempt_at=max(entry.next_attempt_at or now, after(now, CLOCK_SKEW_SECONDS)))


def failed(
    engine: Core,
    position: str,
    key: EntryKey,
    kind: Kind,
    attempt: int,
    began: Instant,
    error: Exception,
    policy: Retry,
    before: tuple[Operation, ...] = (),
) -> Entry:
    """The entry after a failed attempt: waiting for the next one, or failed for good (clause runs.not-before).

    It is told with whatever comes next, and `before` with it, ahead of it.
    """
    now = engine.world.now()
    found = classify(error, now)
    note(error, found.failure, engine.package, engine.execution.run_id)
    seed = idempotency_key(engine.execution.execution_id, key)
    delay = decide(policy, attempt, found.failure.tag, seed, found.retry_after)
    again = None if delay is None else after(now, delay)
    engine.commits.later(*before, Fail(key, attempt, found.failure, again, found.bound))
    entry = Entry(
        key,
        kind,
        position,
        "failed" if again is None else "waiting",
        attempt,
        engine.execution.lease.epoch,
        began,
        now if again is None else None,
        None,
        again,
        None,
        found.failure.wire(),
    )
    engine.replay.entries[key] = entry
    if again is not None and engine.deadline is not None and again >= engine.deadline:
        raise engine.misused(
            RunDeadline(
                f"the next attempt of {key.label!r} would be at {render(again)}, past the run's deadline",
                key.label,
            )
        )
    return entry


async def ended(engine: Core, entry: Entry) -> str:
    """The text of an entry that has ended. Raises StepFailed."""
    if entry.state == "done":
        return await engine.text(entry)
    told = entry.failure or {}
    if entry.state == "canceled":
        raise StepFailed(entry.key.label, FailureTag.CANCELED, "it was given up", "GivenUp")
    raise StepFailed(entry.key.label, _tag(told.get("tag")), str(told.get("message", "failed")), told.get("code"))


def record(
    engine: Core,
    position: str,
    key: EntryKey,
    kind: Kind,
    text: str,
    *,
    attempt: int = 1,
    began: Instant,
    put: bool = False,
    before: tuple[Operation, ...] = (),
) -> None:
    """Record a value with whatever comes next, `before` ahead of it, and remember it."""
    value = value_of(text)
    engine.commits.later(*before, Put(key, kind, position, value) if put else Record(key, value))
    kept = value if len(text) <= KEPT_TEXT else type(value)(None, value.size)
    engine.replay.entries[key] = Entry(
        key, kind, position, "done", attempt, engine.execution.lease.epoch, began, engine.world.now(), None, None, kept
    )


async def _bounded(work: Awaitable[str], within: float | None, engine: Core) -> str:
    """The effect, within the step's own call deadline (clause runs.bound-hit)."""
    if within is None:
        return await work
    task = asyncio.ensure_future(work)
    sleeper = asyncio.ensure_future(engine.world.sleep(within))
    try:
        await asyncio.wait({task, sleeper}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise CallDeadline(within)
        return task.result()
    finally:
        sleeper.cancel()
        if not task.done():
            task.cancel()


def step_of(engine: Core, key: EntryKey, attempt: int) -> Step:
    """What an attempt may know of itself."""
    execution = engine.execution
    idempotency = idempotency_key(execution.execution_id, key)
    return Step(key.label, attempt, idempotency, traceparent(execution.trace, key), execution.run_id, execution.scope)


async def called(result: Any) -> Any:
    """The result of a callable that may be a coroutine function or a plain one."""
    return await result if inspect.isawaitable(result) else result


# --- Time, awakeables, children, publications -------------------------------------------------------------------------


async def sleep(engine: Core, branch: Branch, seconds: float) -> None:
    """Wait for `seconds` from when it was first asked; a replay waits for what remains."""
    key = placed("run.sleep", branch.position(), seconds)
    position, entry = engine.ask(branch, key)
    now = engine.world.now()
    if entry is not None and entry.state == "done":
        return
    if entry is None:
        # Stored before the wait begins: with the suspension, or by the driver when it sits out a short one.
        until = after(now, seconds)
        engine.commits.later(Claim(key, "sleep", position, until))
    else:
        until = entry.next_attempt_at or now
    if until > engine.world.now():
        await engine.block(engine.wait("sleep", key, until))
    record(engine, position, key, "sleep", NULL, began=entry.started_at if entry is not None else now)


async def mint(engine: Core, operation: Callable[[str], Operation], branch: Branch, key: EntryKey) -> Minted:
    """An awakeable, with the same token as on every earlier pass; what was handed over is not asked for.

    A token that is lost ends the run, not the execution: with the key that made it a later run goes on.
    """
    position, _ = engine.ask(branch, key)
    known = engine.minted.get(key)
    if known is not None:
        return known
    try:
        outcome = (await _refusable(engine, operation(position), key, "awakeable", position))[0]
    except AwakeableTokenLost as lost:
        raise engine.misused(lost) from None
    engine.minted[key] = expect(outcome, Minted)
    return engine.minted[key]


async def awaited(engine: Core, handle: Awakeable) -> Any:
    """The recorded end of an awakeable."""
    key = EntryKey(handle.label, wait_hash(handle.token))
    branch, token = await engine.begin(handle.label)
    try:
        position, entry = engine.ask(branch, key)
        entry = await until_ended(
            engine, key, entry, lambda: Await(key, position, handle.id), "wait", position, handle.deadline, handle.id
        )
        return canonical.stored(await ended(engine, entry))
    finally:
        engine.leave(branch, token)


async def child(engine: Core, branch: Branch, key: EntryKey, operation: Callable[[str], Operation]) -> Any:
    """The recorded end of a child run."""
    position, entry = engine.ask(branch, key)
    entry = await until_ended(engine, key, entry, lambda: operation(position), "child", position, None, None)
    return canonical.stored(await ended(engine, entry))


async def until_ended(
    engine: Core,
    key: EntryKey,
    entry: Entry | None,
    operation: Callable[[], Operation],
    kind: Any,
    position: str,
    until: Instant | None,
    ref: str | None,
    about: Mapping[str, Any] | None = None,
) -> Entry:
    """The entry of something outside, once that has ended. What was awaited before is not asked for again."""
    if entry is None or entry.state == "pending":
        outcome = (await _refusable(engine, operation(), key, kind, position))[0]
        if isinstance(outcome, Recorded):
            entry = engine.replay.entries[key] = outcome.entry
        elif isinstance(outcome, Claimed):
            ref = outcome.ref or ref
    while entry is None or entry.state in ("pending", "waiting"):
        wait = engine.wait(kind, key, until, ref, about)
        await engine.block(wait)
        entry = engine.replay.entries.get(key)
    return entry


async def at_once(engine: Core, branch: Branch, key: EntryKey, kind: Kind, operation: Callable[[str], Operation]) -> Any:
    """The recorded value of something that the substrate does in the same transaction: a publication, a cursor."""
    position, entry = engine.ask(branch, key)
    if entry is None or entry.state not in ("done", "failed", "canceled"):
        outcome = (await _refusable(engine, operation(position), key, kind, position))[0]
        entry = engine.replay.entries[key] = expect(outcome, Recorded).entry
    return canonical.stored(await ended(engine, entry))


async def _refusable(engine: Core, operation: Operation, key: EntryKey, kind: Kind, position: str) -> list[Outcome]:
    """Commit it. What the house refuses is recorded as the step's failure, so that a replay meets the same."""
    try:
        return await engine.commit(operation)
    except AwakeableTokenLost:
        raise  # the awakeable stands recorded, and is none of the body's failures
    except MoorageError as refusal:
        told = failure(refusal.tag, refusal.detail, refusal.code)
        engine.commits.later(Claim(key, kind, position), Fail(key, 1, told))
        now = engine.world.now()
        engine.replay.entries[key] = Entry(
            key, kind, position, "failed", 1, engine.execution.lease.epoch, now, now, failure=told.wire()
        )
        raise StepFailed(key.label, refusal.tag, told.message, refusal.code) from None


def drawn(engine: Core, branch: Branch, label: str, kind: Kind, draw: Callable[[], Any], write: Callable[[Any], str]) -> Any:
    """An instant or chance, drawn once: given at once, recorded with whatever comes next."""
    key = placed(label, branch.position())
    position, entry = engine.ask(branch, key)
    if entry is not None and entry.value is not None and entry.value.text is not None:
        return canonical.stored(entry.value.text)
    text = write(draw())
    record(engine, position, key, kind, text, began=engine.world.now(), put=True)
    return canonical.stored(text)


def expect(outcome: Outcome, kind: type[T]) -> T:
    """The outcome that an operation has. Raises InternalError: the substrate does not keep its protocol."""
    if not isinstance(outcome, kind):
        raise InternalError(f"the substrate answered {type(outcome).__name__} where it says {kind.__name__}")
    return outcome


def loaded(label: str, load: Callable[[str], Any], text: str) -> Any:
    """A recorded text as its declared type. Raises StepFailed when it does not fit."""
    try:
        return load(text)
    except ValidationError as error:
        told = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = "/".join(map(str, told["loc"])) or "(root)"
        raise StepFailed(
            label, FailureTag.INVALID, f"its value does not fit at {where}: {told['msg']}", "ValidationError"
        ) from None


def _tag(tag: Any) -> FailureTag:
    try:
        return FailureTag(tag)
    except ValueError:
        return FailureTag.PERMANENT

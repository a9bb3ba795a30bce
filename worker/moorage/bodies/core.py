"""One execution in memory: what everything that a body asks for works with.

`engine` drives it, and `asking` and `joins` are what a body asks for. Branches that are blocked are counted here: when none
is running, the driver decides whether the run is let go of (clauses runs.effect-boundary, runs.fan-out-join).
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import Token
from dataclasses import dataclass, replace
from typing import Any, Final

import httpx
from pydantic import ValidationError

from moorage.bodies import guard
from moorage.bodies.branches import BRANCH, CALLBACK, Branch
from moorage.bodies.commits import Commits, Sleep
from moorage.bodies.declare import Body
from moorage.bodies.errors import (
    CallbackLimited,
    CancellationSwallowed,
    ReplayDivergence,
    StepFailed,
    StepMisuse,
    StepOverlap,
)
from moorage.bodies.holding import Holder
from moorage.bodies.observe import Spans, Telling
from moorage.bodies.replay import Replay
from moorage.bodies.retry import opened_with
from moorage.bodies.tasks import future
from moorage.bodies.values import Shape, value_of
from moorage.bodies.waits import Wait
from moorage.guards.model import EntityLease
from moorage.journal.model import ENDED, Entry, EntryKey, Kind
from moorage.kernel import canonical
from moorage.kernel.errors import CapabilityUnwired, FailureTag, JournalFull, MoorageError, RunMetadataTooLarge
from moorage.kernel.instants import Instant, after
from moorage.kernel.limits import JOURNAL_ENTRIES, JOURNAL_REPLAY_BYTES, METADATA_BYTES
from moorage.runs.model import Execution, Minted
from moorage.runs.observing import Observer
from moorage.runs.operations import Operation, Outcome, SetMetadata
from moorage.runs.substrate_port import Substrate

PATIENCE: Final = 3
"""How often one branch may go on asking after it was told to end."""

_SWALLOWED: Final = "after every cancellation by run.first: let asyncio.CancelledError pass"


class RunDeadline(Exception):
    """The run would go on past its deadline."""

    def __init__(self, message: str, step: str | None = None) -> None:
        super().__init__(message)
        self.step = step


@dataclass(frozen=True, slots=True)
class World:
    """What surrounds an engine: the substrate, the clock, sleeping, who executes, and who is told. All of it is injected.

    `secret` gives the value of a binding by its name, for destinations that have one.
    """

    substrate: Substrate
    now: Callable[[], Instant]
    sleep: Sleep
    holder: Holder
    observer: Observer | None = None
    spans: Spans | None = None
    transport: httpx.AsyncBaseTransport | None = None
    secret: Callable[[str], str | None] = lambda _name: None


class Slot:
    """One guarded effect of an execution at a time: two guards would protect the same scope."""

    def __init__(self) -> None:
        self._taken = False
        self._waiting: list[Wait] = []

    async def take(self, core: "Core", key: EntryKey) -> None:
        """Wait for one's turn, as a branch that does nothing meanwhile."""
        if not self._taken:
            self._taken = True
            return
        wait = core.wait("flight", key)
        self._waiting.append(wait)
        try:
            await core.block(wait)
        except BaseException:
            if wait in self._waiting:
                self._waiting.remove(wait)
            else:
                # It was this one's turn in the very instant in which it was canceled.
                self.free(core)
            raise

    def free(self, core: "Core") -> None:
        """Let the next one have its turn."""
        if self._waiting:
            core.release(self._waiting.pop(0))
        else:
            self._taken = False


@dataclass(slots=True)
class HeldEntity:
    """An entity that the execution holds, or waits for without a lease, and how many blocks of the body are about it."""

    lease: EntityLease | None = None
    blocks: int = 0


class Core:
    """One execution in memory: its journal, its writes, its branches, and what this pass of the body has asked for.

    `standing` are its guards by token, as far as it has not given them up; `callbacks` are under way now.
    """

    def __init__(self, body: Body, execution: Execution, world: World) -> None:
        self.body = body
        self.execution = execution
        self.world = world
        self.replay = Replay(body.effects, execution.entries)
        self.slot = Slot()
        self.standing: dict[str, EntryKey] = {}
        self.callbacks: set[asyncio.Task[str]] = set()
        self.entities: dict[tuple[str, str], HeldEntity] = {}
        self.telling = Telling(execution, world.now, world.observer, world.spans)
        self.commits = Commits(world.substrate, execution.fence, world.sleep, self.telling.applied, self._changed)
        self.retry = opened_with(execution.retry, body.retry)
        self.minted: dict[EntryKey, Minted] = dict(execution.minted)
        self.flights: dict[EntryKey, list[Wait]] = {}
        self.prelude: list[Operation] = []
        self.fault: Exception | None = None
        self.woken = False
        self.stuck = False
        self.stopping = execution.stop is not None
        self.running = 1
        self._recorded = {entry.key for entry in execution.entries}
        self._waits: list[Wait] = []
        self._change: asyncio.Future[None] | None = None
        self.package = body.module.partition(".")[0]
        self.metadata: dict[str, Any] = dict(execution.metadata)
        self._partial: list[dict[str, Any]] = []
        self._deadline = None if body.deadline_seconds is None else after(execution.started_at, body.deadline_seconds)

    def _changed(self) -> None:
        if self._change is not None and not self._change.done():
            self._change.set_result(None)

    def idle(self) -> None:
        """The driver should look: a branch ended, or none is running."""
        self._changed()

    # --- for what the body asks ---------------------------------------------------------------------------------------

    async def begin(self, what: str) -> "tuple[Branch, Token[str | None]]":
        """As `enter`, for what is awaited. A body that catches the fault and asks again is left standing after a few times,
        so that its loop does not take its host, and all that runs there, along."""
        if self.fault is not None:
            await self._out_of_patience(BRANCH.get())
        return self.enter(what)

    async def _out_of_patience(self, branch: Branch) -> None:
        branch.refused += 1
        if branch.refused > PATIENCE:
            self.stuck = True
            self._changed()
            await asyncio.get_running_loop().create_future()

    def enter(self, what: str) -> "tuple[Branch, Token[str | None]]":
        """Begin something that the body asked for. Raises what made the run fail already, and StepOverlap."""
        if self.fault is not None:
            raise self.fault
        self.refuse_in_callback(what)
        branch = BRANCH.get()
        if branch.busy is not None:
            raise self.misused(
                StepOverlap(
                    f"{what!r} was asked for while {branch.busy!r} is under way in the same branch: run branches with "
                    f"run.gather(...), and ask for nothing inside a step's effect",
                    what,
                )
            )
        branch.busy = what
        return branch, guard.WATCHED.set(None)

    def refuse_in_callback(self, what: str) -> None:
        """Raises CallbackLimited where the callback of a guarded effect executes (clause guards.callback-limits)."""
        label = CALLBACK.get()
        if label is not None:
            told = (
                f"{what!r} was asked for inside the callback of {label!r}: while its guard protects the execution, a "
                f"callback may set run.metadata and nothing else. Ask for it before or after the effect"
            )
            raise self.misused(CallbackLimited(told, label))

    def leave(self, branch: Branch, token: "Token[str | None]") -> None:
        """End it."""
        branch.busy = None
        guard.WATCHED.reset(token)

    def misused(self, error: Exception) -> Exception:
        """The error that fails the run, whatever the body makes of it: the first one stands."""
        if self.fault is None:
            self.fault = error
        return self.fault

    def ask(self, branch: Branch, key: EntryKey) -> tuple[str, Entry | None]:
        """As `Replay.ask`; a divergence fails the run, and so does an entry past JOURNAL_ENTRIES."""
        try:
            asked = self.replay.ask(branch, key)
        except ReplayDivergence as error:
            raise self.misused(error) from None
        self.make_room(key)
        return asked

    def make_room(self, key: EntryKey) -> None:
        """Count an entry, which is recorded or about to be; one past JOURNAL_ENTRIES fails the run with JournalFull."""
        if key in self._recorded:
            return
        if len(self._recorded) >= JOURNAL_ENTRIES:
            raise self.misused(
                JournalFull(
                    f"{key.label!r} would be one entry more than the {JOURNAL_ENTRIES} that one execution may record: split "
                    "the work among children (run.child), each of which has a journal of its own, or do more in one step"
                )
            )
        self._recorded.add(key)

    def join(self, branch: Branch, kind: str) -> str:
        """As `Replay.join`; a divergence fails the run."""
        try:
            return self.replay.join(branch, kind)
        except ReplayDivergence as error:
            raise self.misused(error) from None

    def open_under(self, path: str) -> list[EntryKey]:
        """What a branch that lost has begun and not ended, unless another branch has taken it on."""
        keys = dict.fromkeys(entry.key for entry in self.replay.open_under(path))
        keys.update(dict.fromkeys(key for key, position in self.commits.claims.items() if position.startswith(path)))
        return [key for key in keys if key not in self.flights and not self._has_ended(key)]

    def _has_ended(self, key: EntryKey) -> bool:
        entry = self.replay.entries.get(key)
        return entry is not None and entry.state in ENDED

    def set_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Tell the run's metadata with the next operation. Raises RunMetadataTooLarge, with nothing changed."""
        size = canonical.size(canonical.dumps(dict(metadata)))
        if size > METADATA_BYTES:
            raise RunMetadataTooLarge(f"the run's metadata would have {size} bytes; at most {METADATA_BYTES} are kept")
        self.metadata = dict(metadata)
        self.prelude = [SetMetadata(self.metadata)]

    def note_partial(self, failed: list[dict[str, Any]]) -> None:
        """Say on the run's record which branches failed, as far as there is room (clause runs.fan-out-join)."""
        self._partial += failed
        with suppress(RunMetadataTooLarge):
            self.set_metadata({**self.metadata, "failed_branches": self._partial[:50]})

    def declared(self, label: str, input_sha256: str) -> None:
        """As `Replay.declared`; a misuse fails the run."""
        try:
            self.replay.declared(label, input_sha256)
        except StepMisuse as error:
            raise self.misused(error) from None

    def require(self, capability: str) -> None:
        """Raises CapabilityUnwired unless the profile has it (clause runs.unwired)."""
        if capability not in self.execution.capabilities:
            raise CapabilityUnwired(f"this host has no {capability!r}")

    def transport(self) -> httpx.AsyncBaseTransport:
        """What `fetch` sends with. Raises CapabilityUnwired when the host was given none."""
        if self.world.transport is None:
            raise CapabilityUnwired("this host has no 'fetch': it was given no transport")
        return self.world.transport

    def remember(self, key: EntryKey, kind: Kind, position: str, text: str) -> None:
        """Keep in memory what was just recorded."""
        now = self.world.now()
        self.replay.entries[key] = Entry(
            key, kind, position, "done", 1, self.execution.lease.epoch, now, now, value=value_of(text)
        )

    def take_prelude(self) -> list[Operation]:
        """What is to be told with the next operation: the latest metadata."""
        told, self.prelude = self.prelude, []
        return told

    async def commit(self, *operations: Operation) -> list[Outcome]:
        """Commit operations, with what waits to be told."""
        told = self.take_prelude()
        try:
            return (await self.commits.now(*told, *operations))[len(told) :]
        except MoorageError:
            self.prelude = self.prelude or told
            raise

    async def insist(self, *operations: Operation) -> tuple[list[Outcome], bool]:
        """As `commit`, and as `Commits.insisted`."""
        told = self.take_prelude()
        try:
            outcomes, canceled = await self.commits.insisted(*told, *operations)
        except MoorageError:
            self.prelude = self.prelude or told
            raise
        return outcomes[len(told) :], canceled

    async def text(self, entry: Entry) -> str:
        """The recorded text of a done entry, loaded with others that were left out if it was."""
        value = entry.value
        if value is None:
            return "null"
        if value.text is not None:
            return value.text
        found = [entry]
        room = JOURNAL_REPLAY_BYTES - value.size
        for other in self.replay.entries.values():
            if other is not entry and other.value is not None and other.value.text is None and other.value.size <= room:
                found.append(other)
                room -= other.value.size
        values = await self.world.substrate.values(self.execution.fence, [one.key for one in found])
        for one, loaded in zip(found, values, strict=True):
            self.replay.entries[one.key] = replace(one, value=loaded)
        return values[0].text or "null"

    def shaped(self, label: str, shape: Shape, value: Any) -> Any:
        """A part of a recorded value as its declared type. Raises StepFailed when it does not fit."""
        if shape.adapter is None:
            return value
        try:
            return shape.adapter.validate_python(value)
        except ValidationError as error:
            raise StepFailed(
                label, FailureTag.INVALID, f"does not fit its type: {fields_of(error)}", "ValidationError"
            ) from None

    async def awaited(self, handle: Any) -> Any:
        """What is recorded of an awakeable's end."""
        from moorage.bodies.asking import awaited

        return await awaited(self, handle)

    async def block(self, wait: Wait) -> None:
        """Wait, as a branch that does nothing meanwhile. Raises CancelledError in one that lost and was canceled."""
        if (branch := BRANCH.get()).lost and wait.kind != "flight":
            if branch.refused >= PATIENCE:
                self.misused(CancellationSwallowed(f"a branch that lost awaits {wait.key.label!r} {_SWALLOWED}"))
            await self._out_of_patience(branch)
            raise asyncio.CancelledError
        self._waits.append(wait)
        self.running -= 1
        self._changed()
        try:
            await wait.future
        finally:
            if wait in self._waits:
                # Canceled: the branch goes on, to unwind.
                self._waits.remove(wait)
                self.running += 1

    def release(self, wait: Wait) -> None:
        """The wait is over: its branch runs from now on, whenever it gets its turn."""
        if wait in self._waits:
            self._waits.remove(wait)
            self.running += 1
            if not wait.future.done():
                wait.future.set_result(None)

    def wait(
        self,
        kind: Any,
        key: EntryKey,
        until: Instant | None = None,
        ref: str | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> Wait:
        """A wait, not yet begun."""
        return Wait(kind, key, future(), until, ref, about or {})

    @property
    def deadline(self) -> Instant | None:
        """The instant by which the run must have ended."""
        return self._deadline


def fields_of(error: ValidationError) -> str:
    """Where and why a value does not fit, without the value."""
    told = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'/'.join(map(str, one['loc'])) or '(root)'}: {one['msg']}" for one in told[:5])

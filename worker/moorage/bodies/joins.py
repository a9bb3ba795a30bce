"""Branches, and the explicit joins at which they meet (clause runs.fan-out-join).

A gather waits for every branch, also when one has failed: what the others did is recorded either way, and a replay finds
the same branches in the same state. A first is decided once and recorded; its losers are canceled and given up.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from contextvars import Token
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from moorage.bodies import guard
from moorage.bodies.branches import BRANCH, Branch
from moorage.bodies.core import Core
from moorage.bodies.errors import ReplayDivergence, StepFailed, failure_members
from moorage.bodies.replay import placed
from moorage.bodies.tasks import begin
from moorage.bodies.values import value_of
from moorage.journal.model import Entry
from moorage.kernel import canonical
from moorage.kernel.limits import RUN_BRANCHES
from moorage.runs.operations import GiveUp, Put

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BranchFailure:
    """A branch that failed: its index, the label of the step that failed or the coroutine's name, tag and message."""

    branch: int
    label: str
    tag: str
    message: str

    def told(self, position: str) -> dict[str, Any]:
        """As it stands on the run's record."""
        return {"branch": f"{position}.{self.branch}", "label": self.label, "tag": self.tag}


@dataclass(frozen=True, slots=True)
class Partial(Generic[T]):
    """What a gather with `allow_partial` gives: the values in order, None where the branch failed, and the failures."""

    values: list[T | None]
    failed: list[BranchFailure]

    @property
    def complete(self) -> bool:
        """Whether no branch failed."""
        return not self.failed

    @property
    def succeeded(self) -> list[T | None]:
        """The values of the branches that did not fail."""
        lost = {one.branch for one in self.failed}
        return [value for index, value in enumerate(self.values) if index not in lost]


class Won(NamedTuple):
    """Which branch of a first ended first, and its value."""

    branch: int
    value: Any


class _Join:
    """Branches under way. The place of a branch that ends last passes to the parent, so that none is counted twice."""

    def __init__(self, engine: Core, branch: Branch, position: str, coroutines: Mapping[int, Awaitable[Any]]) -> None:
        self.engine = engine
        self.names = {index: _name(one) for index, one in coroutines.items()}
        self.winner = -1
        self._left = len(coroutines)
        self._racing = False
        self._before = engine.commits.several
        engine.commits.several = True
        engine.running += len(coroutines) - 1
        self._branches = {index: branch.child(position, index) for index in coroutines}
        self.tasks = {
            index: begin(self._branch(index, coroutine, self._branches[index])) for index, coroutine in coroutines.items()
        }

    async def all(self) -> None:
        """Until every branch has ended."""
        await self._wait(asyncio.ALL_COMPLETED)

    async def first(self) -> None:
        """Until one has ended, the `winner`. The others are canceled, and have unwound."""
        self._racing = True
        await self._wait(asyncio.FIRST_COMPLETED)
        losers = [task for task in self.tasks.values() if not task.done()]
        for index, task in self.tasks.items():
            if not task.done():
                self._branches[index].lose()
                task.cancel()
        if losers:
            await asyncio.wait(losers)

    async def _wait(self, until: str) -> None:
        try:
            await asyncio.wait(self.tasks.values(), return_when=until)
        except asyncio.CancelledError:
            for task in self.tasks.values():
                task.cancel()
            await asyncio.wait(self.tasks.values())
            raise
        finally:
            self.engine.commits.several = self._before

    async def _branch(self, index: int, coroutine: Awaitable[Any], branch: Branch) -> Any:
        BRANCH.set(branch)
        guard.WATCHED.set(self.engine.package)
        try:
            return await coroutine
        finally:
            self._ended(index)

    def _ended(self, index: int) -> None:
        engine = self.engine
        self._left -= 1
        passes_on = self._left == 0
        if self._racing:
            passes_on = self.winner < 0
            if passes_on:
                self.winner = index
        if not passes_on:
            engine.running -= 1
            engine.idle()


async def gather(engine: Core, coroutines: Sequence[Awaitable[T]], allow_partial: bool) -> list[T] | Partial[T]:
    """Run the branches side by side, and meet when all have ended. See `Run.gather`."""
    branch, position, token = await _begin(engine, "run.gather", coroutines)
    try:
        if not coroutines:
            return Partial([], []) if allow_partial else []
        join = _Join(engine, branch, position, dict(enumerate(coroutines)))
        await join.all()
    finally:
        engine.leave(branch, token)
    if engine.fault is not None:
        _read(join.tasks)
        raise engine.fault
    failures = _read(join.tasks)
    for error in failures.values():
        if not isinstance(error, Exception):
            raise error
    if not allow_partial:
        for error in failures.values():
            raise error
        return [task.result() for task in join.tasks.values()]
    failed = [_failure(index, join.names[index], error) for index, error in failures.items()]
    if failed:
        engine.note_partial([one.told(position) for one in failed])
    return Partial([None if index in failures else task.result() for index, task in join.tasks.items()], failed)


async def first(engine: Core, coroutines: Sequence[Awaitable[Any]]) -> Won:
    """Run the branches side by side until one has ended. See `Run.first`."""
    if not coroutines:
        raise ValueError("run.first takes at least one coroutine")
    branch, position, token = await _begin(engine, "run.first", coroutines)
    try:
        key = placed("run.first", position)
        decided = engine.replay.entries.get(key)
        if decided is not None:
            index = canonical.stored(await engine.text(decided))["winner"]
            join = _alone(engine, branch, position, coroutines, index)
            await join.all()
        else:
            join = _Join(engine, branch, position, dict(enumerate(coroutines)))
            await join.first()
            index = join.winner
            if engine.fault is None:
                _decide(engine, position, index, len(coroutines))
        _read(join.tasks)
        engine.replay.mark(key)
    finally:
        engine.leave(branch, token)
    if engine.fault is not None:
        raise engine.fault
    return Won(index, join.tasks[index].result())


def _alone(engine: Core, branch: Branch, position: str, coroutines: Sequence[Awaitable[Any]], index: int) -> _Join:
    """Replay the branch that won, under its own index; the others are known to have lost and do not begin."""
    for other, coroutine in enumerate(coroutines):
        if other != index:
            _drop(coroutine)
            engine.replay.leave(f"{position}.{other}/")
    if index >= len(coroutines):
        raise engine.misused(ReplayDivergence(f"at {position} branch {index} came first, and now there is none"))
    return _Join(engine, branch, position, {index: coroutines[index]})


def _decide(engine: Core, position: str, index: int, many: int) -> None:
    """Record who won, and give up what the others had begun, with whatever comes next."""
    key = placed("run.first", position)
    engine.make_room(key)
    value = value_of(f'{{"winner":{index}}}')
    lost = [f"{position}.{other}/" for other in range(many) if other != index]
    given_up = [GiveUp(one) for path in lost for one in engine.open_under(path)]
    engine.commits.later(Put(key, "join", position, value), *given_up)
    now = engine.world.now()
    engine.replay.entries[key] = Entry(key, "join", position, "done", 1, engine.execution.lease.epoch, now, now, value=value)
    for path in lost:
        engine.replay.leave(path)


async def _begin(engine: Core, what: str, coroutines: Sequence[Awaitable[Any]]) -> "tuple[Branch, str, Token[str | None]]":
    if len(coroutines) > RUN_BRANCHES:
        for coroutine in coroutines:
            _drop(coroutine)
        raise ValueError(f"{what} takes at most {RUN_BRANCHES} branches, not {len(coroutines)}")
    try:
        branch, token = await engine.begin(what)
        try:
            return branch, engine.join(branch, what), token
        except BaseException:
            engine.leave(branch, token)
            raise
    except Exception:
        for coroutine in coroutines:
            _drop(coroutine)
        raise


def _read(tasks: "Mapping[int, asyncio.Task[Any]]") -> dict[int, BaseException]:
    """What the branches raised, by index."""
    found: dict[int, BaseException] = {}
    for index, task in tasks.items():
        if task.done():
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if error is not None:
                found[index] = error
    return found


def _name(branch: Awaitable[Any]) -> str:
    name: str = getattr(branch, "label", None) or getattr(branch, "__qualname__", None) or type(branch).__name__
    return name.rpartition(".")[2]


def _drop(branch: Awaitable[Any]) -> None:
    """A coroutine that will not run: without this Python warns that it was never awaited."""
    if isinstance(branch, Coroutine):
        branch.close()


def _failure(index: int, name: str, error: BaseException) -> BranchFailure:
    told = failure_members(error)
    label = error.label if isinstance(error, StepFailed) else name
    return BranchFailure(index, label, told["tag"], told["message"])

"""Waiting: for an instant, an awakeable, a child, another branch's step (clauses runs.waiting-state, awake.journal)."""

import asyncio
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from moorage.bodies.errors import Rejected, StepFailed, TimedOut
from moorage.bodies.values import Shape
from moorage.journal.model import EntryKey
from moorage.kernel.instants import Instant, render

if TYPE_CHECKING:
    from moorage.bodies.core import Core

WaitKind = Literal["sleep", "retry", "wait", "event", "child", "flight", "guard", "entity"]
"""`flight` is for another branch, and `guard` for a guard: until it is asked again, or until somebody releases it."""

_REFERS: Final = {"child": "run_id", "guard": "guard"}


@dataclass(slots=True, eq=False)
class Wait:
    """A branch that is blocked. `until` is the instant at which it goes on, or at which it looks again. `about` is for
    people."""

    kind: WaitKind
    key: EntryKey
    future: "asyncio.Future[None]"
    until: Instant | None = None
    ref: str | None = None
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def timed(self) -> bool:
        """Whether the instant itself ends it."""
        return self.kind in ("sleep", "retry", "entity") or (self.kind == "guard" and self.until is not None)

    def told(self) -> dict[str, Any]:
        """As people see it among what a run awaits."""
        members: dict[str, Any] = {"label": self.key.label, "kind": self.kind, **self.about}
        if self.ref is not None:
            members[_REFERS.get(self.kind, "awakeable")] = self.ref
        if self.until is not None:
            members["deadline" if self.kind == "wait" else "until"] = render(self.until)
        return members


@dataclass(frozen=True, slots=True)
class Resolution:
    """How an awakeable ended: `state` is resolved with `payload`, rejected with `tag` and `message`, or timed_out."""

    state: Literal["resolved", "rejected", "timed_out"]
    payload: Any = None
    tag: str | None = None
    message: str | None = None
    deadline: str | None = None


@dataclass(frozen=True, slots=True)
class Awakeable:
    """A promise that somebody outside resolves with `POST <url>`, or `/awake/<token>`.

    `await handle` gives the payload, raises Rejected when it was rejected and TimedOut past the deadline;
    `await handle.outcome()` gives all three as a Resolution. Either is recorded: a replay reads the same.
    """

    label: str
    id: str
    token: str = field(repr=False)
    url: str = field(repr=False)
    deadline: Instant
    _engine: "Core" = field(repr=False, compare=False)
    _shape: Shape = field(repr=False, compare=False, default=Shape(None))

    def __await__(self) -> Generator[Any, None, Any]:
        return self._payload().__await__()

    async def outcome(self) -> Resolution:
        """How it ended, once it has."""
        recorded = await self._engine.awaited(self)
        if "resolved" in recorded:
            return Resolution("resolved", payload=self._engine.shaped(self.label, self._shape, recorded["resolved"]))
        if "rejected" in recorded:
            rejected: Mapping[str, Any] = recorded["rejected"] or {}
            return Resolution("rejected", tag=rejected.get("tag", "Permanent"), message=rejected.get("message", ""))
        return Resolution("timed_out", deadline=recorded.get("timed_out"))

    async def _payload(self) -> Any:
        outcome = await self.outcome()
        if outcome.state == "resolved":
            return outcome.payload
        if outcome.state == "timed_out":
            raise TimedOut(self.label, outcome.deadline or render(self.deadline))
        raise Rejected(self.label, _known(outcome.tag), outcome.message or "rejected", "AwakeableRejected")


def _known(tag: str | None) -> str:
    try:
        return StepFailed("", tag or "Permanent", "").tag.value
    except ValueError:
        return "Permanent"

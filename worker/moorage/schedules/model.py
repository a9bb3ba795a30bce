"""The nouns of schedules (clause schedules.window)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from moorage.kernel import canonical
from moorage.kernel.instants import Instant, render
from moorage.schedules.cadence import Cadence, cadence_of
from moorage.store.transaction import Row
from moorage.timers.aside import Failing

Overlap = Literal["skip", "coalesce", "enqueue"]
"""What becomes of a window that comes while what the one before started has not ended: nothing; it waits alone, in the place
of the one that waited before; it waits in line."""

CatchUp = Literal["all", "last", "none"]
"""Which of the windows that were missed are caught up with."""

State = Literal["queued", "started", "skipped", "coalesced", "failed"]
"""What became of a window. It waits; it started something; the policy said no; a later one took its place; it could not be
started, and `error` says why."""

PREFIX: Final = "schedule:"
"""What the subjects of schedules in history begin with."""


@dataclass(frozen=True, slots=True)
class BodyTarget:
    """A run of a body that each window starts; without a scope each has its own."""

    body: str
    input: Any = None
    scope: str | None = None

    def wire(self) -> dict[str, Any]:
        """As JSON."""
        told = {"body": self.body, "input": self.input}
        return told if self.scope is None else {**told, "scope": self.scope}


@dataclass(frozen=True, slots=True)
class RecordTarget:
    """A record that each window publishes."""

    kind: str
    body: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    priority: int = 0

    def wire(self) -> dict[str, Any]:
        """As JSON."""
        told = {"kind": self.kind, "body": self.body, "metadata": self.metadata, "priority": self.priority}
        return {"record": told}


Target = BodyTarget | RecordTarget


def target_of(text: str) -> Target:
    """The target that a row holds."""
    told = canonical.stored(text)
    return RecordTarget(**told["record"]) if "record" in told else BodyTarget(**told)


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a schedule is to be. Exactly one of `cron` and `every_ms`."""

    cron: str | None
    every_ms: int | None
    timezone: str
    overlap: Overlap
    catch_up: CatchUp
    catch_up_ms: int
    target: Target
    paused: bool = False

    def columns(self) -> dict[str, Any]:
        """What its row holds of it."""
        return {
            "cron": self.cron,
            "every_ms": self.every_ms,
            "timezone": self.timezone,
            "overlap": self.overlap,
            "catch_up": self.catch_up,
            "catch_up_ms": self.catch_up_ms,
            "target": canonical.dumps(self.target.wire()),
            "paused": int(self.paused),
        }


@dataclass(frozen=True, slots=True)
class Window:
    """From `start` on, before `end`: where the next window begins. A window by hand is an instant."""

    start: Instant
    end: Instant

    def trigger_id(self, schedule: str) -> str:
        """The identity of the window's trigger, the same for ever (clause schedules.window)."""
        return f"{schedule}@{render(self.start)}"

    def metadata(self, schedule: str) -> dict[str, str]:
        """What is told to whatever the window starts."""
        return {
            "schedule": schedule,
            "trigger_id": self.trigger_id(schedule),
            "window_start": render(self.start),
            "window_end": render(self.end),
        }


@dataclass(frozen=True, slots=True)
class Schedule:
    """A stored schedule. `next_at` is the start of its next window, None while it is paused or when none comes any more.

    `current_window` is the window that was started last, `busy` whether that has not ended, `queued` how many windows wait.
    `failing` if the Clock could not see to it so far. It acts as `created_by`, under `credential`, with the grants in
    `grants`; None for a credential that is gone.
    """

    name: str
    cron: str | None
    every_ms: int | None
    timezone: str
    overlap: Overlap
    catch_up: CatchUp
    catch_up_ms: int
    paused: bool
    anchor: Instant
    next_at: Instant | None
    waiting: bool
    current_window: Instant | None
    created_by: str
    credential: str | None
    created_at: Instant
    updated_at: Instant
    target_text: str
    busy: bool
    queued: int
    grants: str | None
    current_run: str | None
    current_record: str | None
    failing: Failing | None

    @classmethod
    def of(cls, row: Row) -> "Schedule":
        """The schedule that a row holds."""
        told = {name: value for name, value in row.items() if name != "target"}
        flags = {name: bool(row[name]) for name in ("paused", "waiting", "busy")}
        return cls(**{**told, **flags, "target_text": row["target"], "failing": Failing.of(row["failing"])})

    @property
    def target(self) -> Target:
        """What each window starts."""
        return target_of(self.target_text)

    @property
    def cadence(self) -> Cadence:
        """Where its windows begin."""
        return cadence_of(self.cron, self.every_ms, self.timezone, self.anchor)

    def window(self, start: Instant) -> Window:
        """The window that begins there; the last one of all ends where it begins."""
        return Window(start, self.cadence.after(start) or start)

    def seen(self) -> dict[str, Any]:
        """What a transaction that was planned on it binds, to find it as it was."""
        return {
            "name": self.name,
            "next_at": self.next_at,
            "current_window": self.current_window,
            "updated_at": self.updated_at,
        }

    def columns(self) -> dict[str, Any]:
        """What of it a declaration says."""
        names = ("cron", "every_ms", "timezone", "overlap", "catch_up", "catch_up_ms")
        return {**{name: getattr(self, name) for name in names}, "target": self.target_text, "paused": int(self.paused)}

    def answer(self) -> dict[str, Any]:
        """What a client is shown."""
        cadence = {"cron": self.cron} if self.every_ms is None else {"every_seconds": _seconds(self.every_ms)}
        return {
            "name": self.name,
            **cadence,
            "timezone": self.timezone,
            "overlap": self.overlap,
            "catch_up": self.catch_up,
            "catch_up_seconds": _seconds(self.catch_up_ms),
            "target": self.target.wire(),
            "paused": self.paused,
            "next_at": None if self.next_at is None else render(self.next_at),
            "current": self._current(),
            "queued": self.queued,
            "created_by": self.created_by,
            "created_at": render(self.created_at),
            "updated_at": render(self.updated_at),
            "failing": None if self.failing is None else self.failing.answer(),
        }

    def _current(self) -> dict[str, Any] | None:
        if self.current_window is None:
            return None
        trigger = f"{self.name}@{render(self.current_window)}"
        started = {"run_id": self.current_run, "record": self.current_record}
        return {"trigger_id": trigger, "ended": not self.busy, **started}


@dataclass(frozen=True, slots=True)
class Trigger:
    """What became of one window. `error` has a `code` where it could not be started, and a `reason` where it was skipped."""

    schedule: str
    window_start: Instant
    window_end: Instant
    trigger_id: str
    state: State
    run_id: str | None
    record: str | None
    backfill: bool
    created_at: Instant
    started_at: Instant | None
    error: Mapping[str, Any] | None

    @classmethod
    def of(cls, row: Row) -> "Trigger":
        """The trigger that a row holds."""
        error = None if row["error"] is None else json.loads(row["error"])
        return cls(**{**row, "backfill": bool(row["backfill"]), "error": error})

    def answer(self) -> dict[str, Any]:
        """What a client is shown."""
        return {
            "trigger_id": self.trigger_id,
            "schedule": self.schedule,
            "window_start": render(self.window_start),
            "window_end": render(self.window_end),
            "state": self.state,
            "run_id": self.run_id,
            "record": self.record,
            "backfill": self.backfill,
            "created_at": render(self.created_at),
            "started_at": None if self.started_at is None else render(self.started_at),
            "error": self.error,
        }


def _seconds(milliseconds: int) -> float:
    whole, rest = divmod(milliseconds, 1000)
    return milliseconds / 1000 if rest else whole

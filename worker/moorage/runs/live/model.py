"""What a live view shows, and in which order (clauses runs.stream, runs.outputs-by-reference).

A view is made of what a run's host tells after it was stored, or of the durable record; nothing is ever read back from it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from moorage.journal.model import Kind
from moorage.kernel.instants import Instant, render
from moorage.runs.model import TERMINAL, Status
from moorage.runs.observing import StepStatus

STEP_ENDS: Final[frozenset[StepStatus]] = frozenset({"success", "failed", "canceled"})
"""The statuses in which a step stays."""

StepKey = tuple[str, str]
"""A step's label and the SHA-256 of its input."""

_VERSION: Final = re.compile(r"(\d{1,15})\.(\d{1,15})")


class Version(NamedTuple):
    """Where a view stands. `epoch` is the instant at which the hub that keeps it started, `counter` goes up with each of
    its messages, whichever run they are about. They compare in this order, so that a hub which starts anew is ahead of all
    that the one before told: a client passes over what is not past the highest that it holds."""

    epoch: int
    counter: int

    @property
    def text(self) -> str:
        """As the `id` of an event."""
        return f"{self.epoch}.{self.counter}"

    def wire(self) -> dict[str, int]:
        """As JSON."""
        return {"epoch": self.epoch, "counter": self.counter}


def version_of(text: str) -> Version | None:
    """The version that `Version.text` wrote, or None for any other text."""
    found = _VERSION.fullmatch(text)
    return None if found is None else Version(int(found[1]), int(found[2]))


@dataclass(frozen=True, slots=True)
class StepView:
    """A step as its run's view shows it. Its output is a reference and a size; whoever may have it asks for it.

    `error` is what the last failed attempt said, until one succeeds. `ref` is the awakeable or the run that it waits for.
    """

    label: str
    input_sha256: str
    kind: Kind
    position: str
    status: StepStatus
    attempt: int
    started_at: Instant | None = None
    ended_at: Instant | None = None
    next_attempt_at: Instant | None = None
    output_bytes: int | None = None
    ref: str | None = None
    error: Mapping[str, Any] | None = None

    @property
    def key(self) -> StepKey:
        """By what it is known within its run."""
        return (self.label, self.input_sha256)

    @property
    def ended(self) -> bool:
        """Whether nothing changes it any more."""
        return self.status in STEP_ENDS

    def wire(self) -> dict[str, Any]:
        """As JSON. Every member is always there."""
        output = {"ref": f"{self.label}@{self.input_sha256}", "bytes": self.output_bytes}
        return {
            "label": self.label,
            "input_sha256": self.input_sha256,
            "kind": self.kind,
            "position": self.position,
            "status": self.status,
            "attempt": self.attempt,
            "started_at": _instant(self.started_at),
            "ended_at": _instant(self.ended_at),
            "next_attempt_at": _instant(self.next_attempt_at),
            "output": None if self.output_bytes is None else output,
            "ref": self.ref,
            "error": None if self.error is None else dict(self.error),
        }


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A whole view: the run, and its steps in the order in which they were first heard of."""

    run_id: str
    execution_id: str
    body: str
    scope: str
    status: Status
    attempt: int
    started_at: Instant
    ended_at: Instant | None = None
    next_attempt_at: Instant | None = None
    awaiting: Sequence[Mapping[str, Any]] = ()
    error: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    result_bytes: int | None = None
    host: str = "worker"
    steps: Mapping[StepKey, StepView] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether nothing changes it any more."""
        return self.status in TERMINAL

    def run_wire(self) -> dict[str, Any]:
        """The run as JSON, without its steps. Every member is always there."""
        return {
            "run_id": self.run_id,
            "execution_id": self.execution_id,
            "body": self.body,
            "scope": self.scope,
            "status": self.status,
            "attempt": self.attempt,
            "started_at": render(self.started_at),
            "ended_at": _instant(self.ended_at),
            "next_attempt_at": _instant(self.next_attempt_at),
            "awaiting": [dict(one) for one in self.awaiting],
            "error": None if self.error is None else dict(self.error),
            "metadata": dict(self.metadata),
            "result_bytes": self.result_bytes,
            "host": self.host,
        }


def _instant(value: Instant | None) -> str | None:
    return None if value is None else render(value)

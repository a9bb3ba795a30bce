"""What a host of bodies tells its observers while it runs them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from moorage.journal.model import Kind
from moorage.kernel.instants import Instant
from moorage.runs.model import Status

StepStatus = Literal["running", "waiting", "success", "failed", "canceled"]
"""Of a step in views: its effect may be under way, until an instant or an end, and the three ends."""


@dataclass(frozen=True, slots=True)
class StepChange:
    """What has changed of a step. Outputs appear by reference only: `<label>@<input hash>`, and bytes."""

    run_id: str
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


@dataclass(frozen=True, slots=True)
class RunChange:
    """What has changed of a run; None is unchanged or not known."""

    run_id: str
    status: Status
    attempt: int
    ended_at: Instant | None = None
    next_attempt_at: Instant | None = None
    awaiting: Sequence[Mapping[str, Any]] | None = None
    error: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None
    result_bytes: int | None = None


class Observer(Protocol):
    """Told of changes after they were stored. Never waits and never raises (clause runs.stream)."""

    def hears(self, run_id: str) -> bool:
        """Whether it wants to be told of this run at the moment. Of a step that began before, it is not told when."""

    def tell(self, change: StepChange | RunChange) -> None:
        """Take note of a change."""

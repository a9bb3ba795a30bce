"""Telling observers what was stored, in their words. Nothing here waits or can fail a run (clause runs.stream)."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from moorage.journal.model import Entry, EntryKey, Kind, State
from moorage.kernel.instants import Instant
from moorage.runs.model import Execution, Failure, Status
from moorage.runs.observing import Observer, RunChange, StepChange, StepStatus
from moorage.runs.operations import (
    AdmitGuard,
    Await,
    AwaitEvent,
    Claim,
    Claimed,
    Close,
    CommitCursor,
    Fail,
    GiveUp,
    HoldEntity,
    LetEntity,
    Mint,
    Operation,
    Outcome,
    Publish,
    Record,
    Recorded,
    ReleaseGuard,
    SetMetadata,
    StartChild,
    Suspend,
)

log = logging.getLogger("moorage.bodies")


@dataclass(frozen=True, slots=True)
class Report:
    """What a host did of a run until it let go of it: for traces. `steps` are the steps that it touched, as they are now."""

    execution: Execution
    status: Status
    began_at: Instant
    ended_at: Instant
    steps: Sequence[StepChange]
    error: Failure | None = None


class Spans(Protocol):
    """Told once when a host lets go of a run that it drove. Must not wait."""

    def closed(self, report: Report) -> None:
        """Take note of it; what it raises is logged and dropped."""


_UNSEEN = (AdmitGuard, ReleaseGuard, HoldEntity, LetEntity)
"""Operations that change nothing of a step or a run as others see them."""


class Telling:
    """Turns stored operations into changes, and keeps the last of each step for the report."""

    def __init__(
        self, execution: Execution, now: Callable[[], Instant], observer: Observer | None, spans: Spans | None
    ) -> None:
        self._execution = execution
        self._now = now
        self._observer = observer
        self._spans = spans
        self._began = now()
        self._steps: dict[EntryKey, StepChange] = {}
        self._begun = {entry.key: entry.started_at for entry in execution.entries}

    @property
    def wanted(self) -> bool:
        """Whether anybody makes something of what is told."""
        heard = self._observer is not None and self._observer.hears(self._execution.run_id)
        return heard or self._spans is not None

    def applied(self, operation: Operation, outcome: Outcome) -> None:
        """An operation was stored."""
        if not self.wanted or isinstance(operation, _UNSEEN):
            return
        if isinstance(operation, SetMetadata):
            self._tell(self._run("running", metadata=operation.metadata))
        elif isinstance(operation, Suspend):
            self._tell(self._run(operation.status, next_attempt_at=operation.next_attempt_at, awaiting=operation.awaiting))
        elif isinstance(operation, Close):
            self._closed(operation)
        else:
            self._step(operation, outcome)

    def running(self) -> None:
        """The host has begun. What it awaited may have ended while nobody held the run."""
        if self.wanted:
            self._tell(self._run("running"))
            self.taken_over(self._execution.entries)

    def taken_over(self, entries: Iterable[Entry]) -> None:
        """What ended outside (awakeables, events, children) and stands in the journal by now: no operation tells of it."""
        if not self.wanted:
            return
        for entry in entries:
            status = _ENDS.get(entry.state)
            if entry.kind not in _OUTSIDE or status is None:
                continue
            key = entry.key
            after = StepChange(
                self._execution.run_id,
                key.label,
                key.input_sha256,
                entry.kind,
                entry.position,
                status,
                entry.attempt,
                entry.started_at,
                entry.ended_at,
                output_bytes=entry.value.size if entry.value is not None else None,
                ref=entry.ref,
                error=entry.failure,
            )
            self._keep(self._steps.get(key), after)

    def report(self, status: Status, error: Failure | None) -> None:
        """The host has let go."""
        if self._spans is None:
            return
        try:
            self._spans.closed(Report(self._execution, status, self._began, self._now(), list(self._steps.values()), error))
        except Exception:
            # Traces are for people: they never decide how a run ends.
            log.warning("spans of run %s were not taken", self._execution.run_id, exc_info=True)

    def stopped(self) -> None:
        """The run was stopped: what was under way failed with Canceled (clause runs.cancel-keeps-effects)."""
        if self.wanted:
            now, error = self._now(), {"tag": "Canceled", "message": "the run was stopped"}
            for change in [one for one in self._steps.values() if one.status == "running"]:
                self._keep(change, replace(change, status="failed", ended_at=now, error=error))

    def _step(self, operation: Any, outcome: Outcome) -> None:
        key: EntryKey = operation.key
        now = self._now()
        before = self._steps.get(key)
        change = before or StepChange(
            self._execution.run_id,
            key.label,
            key.input_sha256,
            _kind(operation),
            getattr(operation, "position", ""),
            "running",
            1,
            self._begun.get(key, None if isinstance(operation, _AFTERWARDS) else now),
        )
        if isinstance(outcome, Recorded) and outcome.entry.state == "done":
            entry = outcome.entry
            size = entry.value.size if entry.value is not None else None
            after = replace(
                change,
                status="success",
                attempt=max(entry.attempt, 1),
                ended_at=now,
                output_bytes=size,
                next_attempt_at=None,
            )
        elif isinstance(operation, Fail):
            again = operation.next_attempt_at
            after = replace(
                change,
                status="failed" if again is None else "waiting",
                attempt=operation.attempt,
                ended_at=now if again is None else None,
                next_attempt_at=again,
                error=operation.failure.wire(),
            )
        elif isinstance(operation, GiveUp):
            after = replace(change, status="canceled", ended_at=now)
        elif isinstance(operation, Mint):
            after = replace(change, status="success", ended_at=now)
        elif isinstance(outcome, Claimed) and isinstance(operation, (Await, AwaitEvent, StartChild, Claim)):
            until = operation.timeout_at if isinstance(operation, AwaitEvent) else getattr(operation, "until", None)
            waits = until is not None or not isinstance(operation, Claim)
            after = replace(
                change,
                status="waiting" if waits else "running",
                attempt=outcome.attempt,
                next_attempt_at=until,
                ref=outcome.ref,
            )
        else:
            return
        self._keep(before, after)

    def _keep(self, before: StepChange | None, after: StepChange) -> None:
        if after != before:
            self._steps[EntryKey(after.label, after.input_sha256)] = after
            self._tell(after)

    def _closed(self, close: Close) -> None:
        error = None if close.error is None else close.error.wire()
        size = None if close.result is None else close.result.size
        self._tell(self._run(close.status, ended_at=self._now(), error=error, result_bytes=size))

    def _run(self, status: Status, **members: Any) -> RunChange:
        return RunChange(self._execution.run_id, status, self._execution.lease.attempt, **members)

    def _tell(self, change: StepChange | RunChange) -> None:
        if self._observer is None:
            return
        try:
            self._observer.tell(change)
        except Exception:
            # An observer's fault is its own: the run goes on.
            log.warning("an observer failed", exc_info=True)


_OUTSIDE: Final = frozenset[Kind](("wait", "event", "child"))
_ENDS: Final[Mapping[State, StepStatus]] = {"done": "success", "failed": "failed", "canceled": "canceled"}

_AFTERWARDS = (Record, Fail, GiveUp)
"""What is told of a step that has begun before; when, is not known here if nobody wanted to be told."""

_KINDS: Mapping[type[Any], Kind] = {
    Mint: "awakeable",
    Await: "wait",
    AwaitEvent: "event",
    StartChild: "child",
    Publish: "publish",
    CommitCursor: "cursor",
    Record: "step",
    Fail: "step",
    GiveUp: "step",
}


def _kind(operation: Any) -> Kind:
    kind: Kind = getattr(operation, "kind", None) or _KINDS[type(operation)]
    return kind

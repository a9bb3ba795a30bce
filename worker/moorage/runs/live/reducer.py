"""How a view changes: one total function, whatever is told and in whatever order (clause runs.reducer-total).

Nothing is said of a run or step that has ended. A step's status only moves forward: an attempt after the one before, within
an attempt from `running` to `waiting`, and to an end from anywhere. What lies behind is a no-op, and what is told twice
makes no difference, so a view that was read from the record may be told again what the record knew already.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from moorage.runs.live.model import STEP_ENDS, Snapshot, StepKey, StepView
from moorage.runs.model import TERMINAL, Status
from moorage.runs.observing import RunChange, StepChange, StepStatus
from moorage.runs.record import LEFT, STOPPED

Change = StepChange | RunChange


def reduce(held: Snapshot, changes: Iterable[Change]) -> Snapshot:
    """The view after these changes, one after the other; `held` itself when nothing changed."""
    run, steps = held, dict(held.steps)
    for change in changes:
        if change.run_id != held.run_id or run.ended:
            continue
        if isinstance(change, RunChange):
            run = _run(run, change)
            if run.ended:
                steps = {key: _left(step, run.status) for key, step in steps.items()}
        else:
            key = (change.label, change.input_sha256)
            steps[key] = _step(steps.get(key), change)
    return held if run == held and steps == held.steps else replace(run, steps=steps)


def adopt(held: Snapshot, record: Snapshot) -> Snapshot:
    """The view after the durable record was read again; `held` itself when that has nothing new.

    The record is the truth, but a reading may be of a moment ago, and what is kept of the steps of an ended run is bounded:
    so neither a run's nor a step's end is taken back, and no step vanishes.
    """
    if record.run_id != held.run_id or held.ended or (record.attempt < held.attempt and not record.ended):
        return held
    steps = dict(held.steps)
    for key, step in record.steps.items():
        mine = steps.get(key)
        if mine is None or _rank(step.status, step.attempt) >= _rank(mine.status, mine.attempt):
            steps[key] = mine if mine is not None and mine.ended else step
    if record.ended:
        steps = {key: _left(step, record.status) for key, step in steps.items()}
    taken = replace(record, steps=steps)
    return held if taken == held else taken


def settled(record: Snapshot) -> Snapshot:
    """A view as it stands in the record, with what had not ended when the run did shown as `reduce` shows it."""
    if not record.ended:
        return record
    return replace(record, steps={key: _left(step, record.status) for key, step in record.steps.items()})


def differing(before: Snapshot, after: Snapshot) -> list[StepView]:
    """The steps of `after` that are not as they were."""
    known = before.steps
    return [step for key, step in after.steps.items() if (old := known.get(key)) is not step and old != step]


def _run(held: Snapshot, change: RunChange) -> Snapshot:
    if change.attempt < held.attempt and change.status not in TERMINAL:
        return held
    again = (change.status, change.attempt) == (held.status, held.attempt)
    parked = change.status in ("waiting", "suspended")
    return replace(
        held,
        status=change.status,
        attempt=max(change.attempt, held.attempt),
        ended_at=change.ended_at if change.status in TERMINAL else None,
        next_attempt_at=_told(change.next_attempt_at, held.next_attempt_at if again else None) if parked else None,
        awaiting=_told(change.awaiting, held.awaiting if again else ()) if parked else (),
        error=_told(change.error, held.error),
        metadata=_told(change.metadata, held.metadata),
        result_bytes=_told(change.result_bytes, held.result_bytes),
    )


def _step(held: StepView | None, change: StepChange) -> StepView:
    if held is None:
        return StepView(
            label=change.label,
            input_sha256=change.input_sha256,
            kind=change.kind,
            position=change.position,
            status=change.status,
            attempt=change.attempt,
            started_at=change.started_at,
            ended_at=change.ended_at if change.status in STEP_ENDS else None,
            next_attempt_at=change.next_attempt_at if change.status == "waiting" else None,
            output_bytes=change.output_bytes if change.status == "success" else None,
            ref=change.ref,
            error=None if change.status == "success" else change.error,
        )
    if held.ended or _rank(change.status, change.attempt) < _rank(held.status, held.attempt):
        return held
    again = (change.status, change.attempt) == (held.status, held.attempt)
    waits = change.status == "waiting"
    return replace(
        held,
        status=change.status,
        attempt=max(change.attempt, held.attempt),
        started_at=_told(change.started_at, held.started_at),
        ended_at=change.ended_at if change.status in STEP_ENDS else None,
        next_attempt_at=_told(change.next_attempt_at, held.next_attempt_at if again else None) if waits else None,
        output_bytes=change.output_bytes if change.status == "success" else None,
        ref=_told(change.ref, held.ref),
        error=None if change.status == "success" else _told(change.error, held.error),
    )


def _left(step: StepView, status: Status) -> StepView:
    """A step as the end of its run leaves it: what was under way failed, in a stopped run with Canceled."""
    if step.ended:
        return step
    error = STOPPED if status == "canceled" else step.error or LEFT
    return replace(step, status="failed", next_attempt_at=None, error=error)


def _rank(status: StepStatus, attempt: int) -> tuple[int, int, int]:
    return (1, 0, 0) if status in STEP_ENDS else (0, attempt, int(status == "waiting"))


def _told(value: Any, before: Any) -> Any:
    return before if value is None else value


__all__ = ["Change", "StepKey", "adopt", "differing", "reduce", "settled"]

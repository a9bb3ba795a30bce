"""Views and changes for tests, made up and generated."""

from typing import Any

from hypothesis import strategies as st

from moorage.kernel.instants import Instant
from moorage.runs.live.model import STEP_ENDS, Snapshot
from moorage.runs.model import TERMINAL
from moorage.runs.observing import RunChange, StepChange

RUN = "run_1"
START = Instant(1_796_000_000_000)
HASH = "a" * 64


def view(**changed: Any) -> Snapshot:
    """The view of a run that has just started."""
    told: dict[str, Any] = {
        "run_id": RUN,
        "execution_id": "exe_1",
        "body": "order",
        "scope": RUN,
        "status": "running",
        "attempt": 1,
        "started_at": START,
    }
    return Snapshot(**{**told, **changed})


def step(label: str, status: Any = "success", attempt: int = 1, **changed: Any) -> StepChange:
    """A change of a step."""
    ended = START + 5 if status in STEP_ENDS else None
    told: dict[str, Any] = {
        "run_id": RUN,
        "label": label,
        "input_sha256": HASH,
        "kind": "step",
        "position": label,
        "status": status,
        "attempt": attempt,
        "started_at": START,
        "ended_at": ended,
        "output_bytes": 3 if status == "success" else None,
    }
    return StepChange(**{**told, **changed})


def run(status: Any = "running", attempt: int = 1, **changed: Any) -> RunChange:
    """A change of the run."""
    told = {"run_id": RUN, "ended_at": Instant(START + 9) if status in TERMINAL else None}
    return RunChange(status=status, attempt=attempt, **{**told, **changed})


_STEP_STATUS = st.sampled_from(["running", "waiting", "success", "failed", "canceled"])
_RUN_STATUS = st.sampled_from(["running", "waiting", "suspended", "success", "failed", "partial_failure", "canceled"])
_INSTANT = st.none() | st.integers(0, 10**9).map(Instant)
_ERROR = st.none() | st.sampled_from([{"tag": "Transient", "message": "busy"}, {"tag": "Permanent", "message": "no"}])

steps = st.builds(
    StepChange,
    run_id=st.sampled_from([RUN, RUN, RUN, "run_2"]),
    label=st.sampled_from(["one", "two", "three"]),
    input_sha256=st.sampled_from([HASH, "b" * 64]),
    kind=st.just("step"),
    position=st.just("1"),
    status=_STEP_STATUS,
    attempt=st.integers(0, 3),
    started_at=_INSTANT,
    ended_at=_INSTANT,
    next_attempt_at=_INSTANT,
    output_bytes=st.none() | st.integers(0, 99),
    ref=st.none() | st.just("awk_1"),
    error=_ERROR,
)
runs = st.builds(
    RunChange,
    run_id=st.sampled_from([RUN, RUN, RUN, "run_2"]),
    status=_RUN_STATUS,
    attempt=st.integers(0, 3),
    ended_at=_INSTANT,
    next_attempt_at=_INSTANT,
    awaiting=st.none() | st.just([{"label": "approval"}]),
    error=_ERROR,
    metadata=st.none() | st.just({"n": 1}),
    result_bytes=st.none() | st.integers(0, 99),
)
changes = st.lists(steps | runs, max_size=12)
"""Anything at all that may be told, whether or not an engine would tell it."""


@st.composite
def histories(draw: st.DrawFn) -> list[StepChange]:
    """What an engine tells of one run's steps: each has attempts that wait for the next one, and may come to an end."""
    told: list[StepChange] = []
    for label in draw(st.sets(st.sampled_from(["one", "two", "three", "four"]), min_size=1)):
        attempts = draw(st.integers(1, 3))
        for attempt in range(1, attempts + 1):
            told.append(step(label, "running", attempt))
            if attempt < attempts:
                told.append(step(label, "waiting", attempt, next_attempt_at=Instant(START + attempt)))
        end = draw(st.none() | st.sampled_from(["success", "failed", "canceled"]))
        if end is not None:
            told.append(step(label, end, attempts))
    return told

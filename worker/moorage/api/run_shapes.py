"""Runs on the wire: as clients start them, and as they are shown."""

from typing import Annotated, Any, Literal

from pydantic import Field

from moorage.api.execution_shapes import StepRetrySent, StopShown
from moorage.api.fields import JsonObject, Reason, Sent, Shown, ShownInstant
from moorage.api.operation_parts import BodyName, Label, ScopeName
from moorage.journal.model import Kind
from moorage.kernel.errors import FailureTag
from moorage.kernel.limits import COMPLETIONS, CORRELATIONS, EVENT_ATTRIBUTE_CHARACTERS, ID_CHARACTERS
from moorage.messages.inbox.correlate import ExternalKey
from moorage.runs.model import Grain, Status
from moorage.runs.observing import StepStatus
from moorage.runs.record import Outputs


class KeySent(Sent):
    """What a thing is called outside: by whom, as the source of its events is, and how."""

    source: str = Field(min_length=1, max_length=int(EVENT_ATTRIBUTE_CHARACTERS))
    external_id: str = Field(min_length=1, max_length=int(EVENT_ATTRIBUTE_CHARACTERS))

    def key(self) -> ExternalKey:
        """The key."""
        return ExternalKey(self.source, self.external_id)


class RunSent(Sent):
    """A run to start. Under a `scope` at most one execution is pending, which a later run of that scope goes on with;
    without one the run has a scope of its own. `retry` is the schedule of steps that name none. `notify` names destinations
    that the run's end is told to. `correlations` are keys that belong to the run's scope from then on: events that carry
    them are told as its own."""

    body: BodyName
    input: Any = None
    scope: ScopeName | None = None
    retry: StepRetrySent | None = None
    metadata: JsonObject = Field(default_factory=dict)
    notify: list[Label] = Field(default_factory=list, max_length=int(COMPLETIONS), description="Names of destinations.")
    correlations: list[KeySent] = Field(default_factory=list, max_length=int(CORRELATIONS))


class RunFailureShown(Shown):
    """Why a run or a step failed. Credentials in the message are masked."""

    tag: FailureTag
    message: str
    code: str | None = None
    step: str | None = None


class RunShown(Shown):
    """A run. `result` is there once it succeeded and one run is asked for; `result_bytes` is its size. `bounds` are the
    bounds that its steps struck. One with a `rewound_execution` opened nothing: it records that this was rewound, and the
    reason of its `stop` is why."""

    run_id: str
    execution_id: str
    body: str
    scope: str
    status: Status
    attempt: int
    started_at: ShownInstant
    host: Literal["worker", "remote"]
    created_by: str
    traceparent: str
    metadata: JsonObject
    ended_at: ShownInstant | None = None
    result: Any = None
    result_bytes: int | None = None
    error: RunFailureShown | None = None
    next_attempt_at: ShownInstant | None = None
    awaiting: list[Any] | None = None
    plan_reference: str | None = None
    config_revision: str | None = None
    stop: StopShown | None = None
    rewound_execution: str | None = None
    parent_run: str | None = None
    restarted_from: str | None = None
    bounds: list[Any] | None = None


class StartedShown(Shown):
    """The run that was started, or that the same Idempotency-Key started before. `run` is the run as it was once it had been
    waited for; it is left out where it could not be read any more."""

    run_id: str
    execution_id: str
    status: Status
    run: RunShown | None = None


class WindowShown(Shown):
    """What was looked at: runs that started at or after `since`, at most `limit` of them."""

    since: ShownInstant | None
    limit: int


class RunsShown(Shown):
    """Runs, newest first. `truncated` tells that the window holds more; `next_cursor` is where they are."""

    items: list[RunShown]
    next_cursor: str | None
    window: WindowShown
    truncated: bool


class StepOutputShown(Shown):
    """What a step recorded: the reference under which `…/steps/output` tells it, and its bytes as canonical JSON."""

    ref: str
    bytes: int


class StepShown(Shown):
    """A step of a run. `ref` is the awakeable or the run that it waits for."""

    label: str
    input_sha256: str
    kind: Kind
    position: str
    status: StepStatus
    attempt: int
    started_at: ShownInstant
    ended_at: ShownInstant | None = None
    next_attempt_at: ShownInstant | None = None
    output: StepOutputShown | None = None
    error: RunFailureShown | None = None
    ref: str | None = None


class StepsShown(Shown):
    """The steps in the order in which they began; `total` is more where not all of an ended run's were kept. `outputs` that
    are `retired` went with the journal of the run's execution: no reference to them can be read any more."""

    items: list[StepShown]
    total: int
    truncated: bool
    outputs: Outputs


class StopSent(Sent):
    """What to stop: this run, or every run in flight under its scope and the scopes below it."""

    scope: Grain = "run"
    reason: Reason | None = None


class StoppedShown(Shown):
    """The runs that were asked to stop."""

    run_ids: list[str]


class RestartSent(Sent):
    """Why the run is run again, and from which step on; without one everything that was recorded is kept."""

    reason: Reason
    from_step: Label | None = None


class RewindSent(Sent):
    """Why what is pending is given up. `force` gives it up also where nobody asked for another plan. `settled` are the
    Idempotency-Keys of effects that may have arrived and were to be sent again, of which it is known what became of them."""

    reason: Reason
    force: bool = False
    settled: list[Annotated[str, Field(min_length=1, max_length=int(ID_CHARACTERS))]] = Field(default=[], max_length=100)


class JobShown(Shown):
    """A run in the words that runs and tasks have in common."""

    job_id: str
    state: Literal["accepted", "running", "waiting", "completed", "failed", "cancelled"]
    result_ref: str | None = None
    error_code: str | None = None

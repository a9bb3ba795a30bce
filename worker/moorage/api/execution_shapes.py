"""Executions on the wire, as hosts outside the Worker ask for them and are told of them (clause runs.substrate).

`runs.wire` makes the answers; the shapes of what is shown are here to be documented, and no answer passes through them.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from moorage.api.fields import Epoch, JsonObject, ProblemShown, Sent, Shown, ShownInstant
from moorage.api.operation_parts import BodyName, KeyedSent, ScopeName, Sha256
from moorage.api.operations import OperationSent
from moorage.guards.model import EvidenceClass
from moorage.journal.model import Kind, State
from moorage.kernel.limits import (
    APPLY_OPERATIONS,
    CLAIM_BATCH,
    ID_CHARACTERS,
    RETRY_ATTEMPTS,
    RETRY_DELAY_MS,
    RETRY_FACTOR,
    RETRY_JITTER_MS,
    WAIT_SECONDS,
)
from moorage.kernel.refusals import refused
from moorage.runs.model import Build, Grain, Status

_Id = Annotated[str, Field(min_length=1, max_length=int(ID_CHARACTERS))]
Holder = Annotated[str, Field(min_length=1, max_length=int(ID_CHARACTERS), description="The host's name, for people.")]
WaitSeconds = Annotated[float, Field(ge=0, le=int(WAIT_SECONDS), description="How long to wait for something to do.")]

# --- As hosts ask ----------------------------------------------------------------------------------------------------


class BuildSent(Sent):
    """What executes a body: digests of its source, of what it depends on, and of its public configuration."""

    implementation: Sha256
    dependencies: dict[_Id, Sha256] = Field(default_factory=dict, max_length=100)
    configuration: Sha256 | None = None

    def build(self, body: str) -> Build:
        """What the substrate takes."""
        return Build(body, self.implementation, self.dependencies, self.configuration)


class BodyBuildSent(BuildSent):
    """A body that the host has, in the build that it has."""

    body: BodyName

    @property
    def told(self) -> Build:
        """What the substrate takes."""
        return self.build(self.body)


class StepRetrySent(Sent):
    """When steps of this run are tried again that name no schedule of their own; it supersedes the body's.

    `attempts` counts the first one. The delays grow from `base_ms` by `factor` up to `clamp_ms`, and less than `jitter_ms`
    is added to each. `retry_on` may narrow the tags that are tried again. A pending execution that is joined keeps its
    schedule unless the opening brings one.
    """

    attempts: int = Field(default=5, ge=1, le=int(RETRY_ATTEMPTS))
    base_ms: int = Field(default=100, ge=0, le=int(RETRY_DELAY_MS))
    factor: float = Field(default=2, ge=1, le=int(RETRY_FACTOR))
    backoff: Literal["exponential", "fixed"] = "exponential"
    clamp_ms: int = Field(default=30_000, ge=0, le=int(RETRY_DELAY_MS))
    jitter_ms: int = Field(default=250, ge=0, le=int(RETRY_JITTER_MS))
    retry_on: list[Literal["RateLimited", "Transient"]] = Field(default=["RateLimited", "Transient"], max_length=2)


class OpenSent(Sent):
    """An execution to open or resume, and to hold at once. `build` supersedes the one under which the body is offered."""

    body: BodyName
    input: Any = None
    holder: Holder
    scope: ScopeName | None = None
    build: BuildSent | None = None
    retry: StepRetrySent | None = None
    metadata: JsonObject = Field(default_factory=dict)


class CanExecute(Sent):
    """What the host can execute, each body in one build."""

    bodies: list[BodyBuildSent] = Field(min_length=1, max_length=20)
    wait_seconds: WaitSeconds = 0

    def builds(self) -> dict[str, Build]:
        """The builds by the names of their bodies. Raises RequestInvalid when a body stands twice."""
        builds = {one.body: one.told for one in self.bodies}
        if len(builds) < len(self.bodies):
            raise refused("/bodies", "names a body twice")
        return builds


class TakeSent(CanExecute):
    """What to take. With `execution_id` that execution alone is taken, if it is due."""

    holder: Holder
    execution_id: _Id | None = None
    limit: int = Field(default=1, ge=1, le=int(CLAIM_BATCH))


class UnderLease(Sent):
    """Proof that the host holds the execution."""

    epoch: Epoch


class ApplySent(UnderLease):
    """Operations to commit as one transaction."""

    operations: list[OperationSent] = Field(min_length=1, max_length=int(APPLY_OPERATIONS))


class ValuesSent(UnderLease):
    """Entries whose values are wanted."""

    keys: list[KeyedSent] = Field(min_length=1, max_length=int(CLAIM_BATCH))


class WaitSent(Sent):
    """How long to wait."""

    wait_seconds: WaitSeconds = 0


class HeldSent(UnderLease):
    """An execution that the host holds."""

    execution_id: _Id


class ManyHeldSent(Sent):
    """Executions that the host holds, each once."""

    items: list[HeldSent] = Field(min_length=1, max_length=int(APPLY_OPERATIONS))


# --- As hosts are told -----------------------------------------------------------------------------------------------


class OwnerShown(Shown):
    """The lease of an execution."""

    epoch: int
    owner: str
    expires_at: ShownInstant
    attempt: int


class StopShown(Shown):
    """A stop that was asked for: close the run as canceled between two steps."""

    requested_at: ShownInstant
    scope: Grain
    reason: str | None = None


class JournalEntryShown(Shown):
    """An entry of the journal. A `value` that is not told is to be asked for; `size` is there when it is done."""

    label: str
    input_sha256: str
    kind: Kind
    position: str
    state: State
    attempt: int
    epoch: int
    started_at: ShownInstant
    ended_at: ShownInstant | None = None
    ref: str | None = None
    next_attempt_at: ShownInstant | None = None
    value: Any = None
    size: int | None = None
    blob: str | None = None
    failure: JsonObject | None = None


class TraceShown(Shown):
    """W3C trace context: the run's own span, and the caller's."""

    trace_id: str
    span_id: str
    parent_span: str | None = None
    state: str | None = None


class PinsShown(Shown):
    """What the execution is bound to."""

    body: str
    implementation: str
    dependencies: dict[str, str]
    configuration: str | None
    input: str


class AwakeableHeldShown(Shown):
    """An awakeable that the execution has minted, by its entry's key, with the token, for whoever holds the execution."""

    label: str
    input_sha256: str
    id: str
    token: str
    deadline: ShownInstant
    url: str


class ExecutionShown(Shown):
    """An execution that the host holds, with what was recorded before."""

    execution_id: str
    run_id: str
    body: str
    scope: str
    lease: OwnerShown
    pins: PinsShown
    input: Any = None
    input_size: int
    input_blob: str | None = None
    trace: TraceShown
    entries: list[JournalEntryShown]
    stop: StopShown | None = None
    metadata: JsonObject
    config: JsonObject
    retry: JsonObject | None = None
    capabilities: list[str]
    started_at: ShownInstant
    minted: list[AwakeableHeldShown] | None = None


class DueShown(Shown):
    """Whether there is something to claim."""

    due: bool


class TakenShown(Shown):
    """The executions that the host holds from now on; none when nothing was due."""

    executions: list[ExecutionShown]


class StandingShown(Shown):
    """How an execution stands. Without a lease nobody holds it; `due` tells that it may be taken now."""

    execution_id: str
    run_id: str
    body: str
    scope: str
    status: Status
    due: bool
    lease: OwnerShown | None = None
    stop: StopShown | None = None
    wake_at: ShownInstant | None = None


class TargetShown(Shown):
    """Where an admitted callback may send. `secret` names a binding that the host has to have."""

    name: str
    url: str
    methods: list[str]
    secret: str | None


class OutcomeShown(Shown):
    """What became of an operation. What was admitted sends `idempotency_key` as Idempotency-Key with every request;
    what is doubtful sends nothing."""

    outcome: Literal["claimed", "recorded", "minted", "admitted", "doubtful", "entity_held", "done"]
    attempt: int | None = None
    ref: str | None = None
    entry: JournalEntryShown | None = None
    id: str | None = None
    token: str | None = None
    deadline: ShownInstant | None = None
    url: str | None = None
    idempotency_key: str | None = None
    admitted_at: ShownInstant | None = None
    publication: bool | None = None
    window_ends_at: ShownInstant | None = None
    replayed: bool | None = None
    evidence_class: EvidenceClass | None = None
    destination: TargetShown | None = None
    namespace: str | None = None
    key: str | None = None
    epoch: int | None = None
    expires_at: ShownInstant | None = None


class AppliedShown(Shown):
    """The outcomes, in the order of the operations."""

    outcomes: list[OutcomeShown]


class JournalEntriesShown(Shown):
    """Entries whose wait is over."""

    entries: list[JournalEntryShown]


class ValueShown(Shown):
    """A value, or the digest of its bytes where these are to be read from the bucket."""

    value: Any = None
    size: int
    blob: str | None = None


class ValuesShown(Shown):
    """The values in the order of the keys. There may be fewer: ask for the others again."""

    values: list[ValueShown]


class ScopeCursorShown(ValueShown):
    """A cursor and its revision; without a value and with revision 0 when there is none."""

    size: int = 0
    revision: int


class BlobShown(Shown):
    """A stored value, to be named by an operation."""

    sha256: str
    size: int


class KeptItem(Shown):
    """The lease as it is now, or why there is none."""

    execution_id: str
    lease: OwnerShown | None = None
    error: ProblemShown | None = None


class KeptShown(Shown):
    """The outcomes, in the order given."""

    items: list[KeptItem]


class LeaseKept(Shown):
    """The lease as it is now."""

    lease: OwnerShown


class RewoundShown(Shown):
    """What was given up: its execution, and the run that records that."""

    execution_id: str
    run_id: str
    scope: str
    plan_reference: str


class StopItem(Shown):
    """A stop that was asked for."""

    execution_id: str
    stop: StopShown


class StopsShown(Shown):
    """The executions among those asked for that are to stop."""

    items: list[StopItem]


class HostCapabilitiesShown(Shown):
    """What this deployment offers to hosts."""

    operations: list[str]
    capabilities: list[str]
    limits: dict[str, int]

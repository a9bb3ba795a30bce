"""What Moorage answers, as typed values.

Each keeps members that it does not know, so that an older client loses nothing of a newer deployment's answers; `wire()`
gives them all back as JSON.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

from moorage.kernel.errors import FailureTag

T = TypeVar("T")
State = Literal["ready", "claimed", "consumed", "dead"]


def rfc3339(moment: datetime) -> str:
    """An instant as Moorage writes it: UTC with milliseconds. Raises ValueError for a time without a zone."""
    if moment.tzinfo is None:
        raise ValueError("an instant needs a time zone")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


Moment = Annotated[datetime, PlainSerializer(rfc3339, return_type=str)]


class Answered(BaseModel):
    """A value of an answer."""

    model_config = ConfigDict(extra="allow", frozen=True)

    def wire(self) -> dict[str, Any]:
        """As JSON, with the members that the answer had."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class Failure(Answered):
    """Why the last attempt at a record failed."""

    tag: FailureTag
    message: str
    code: str | None = None


class Record(Answered):
    """A record. `seq` is its position in history; `not_before` is there while it waits."""

    id: str
    seq: int
    kind: str
    body: dict[str, Any]
    metadata: dict[str, Any]
    parents: list[str]
    state: str
    created_at: Moment
    created_by: str
    body_sha256: str
    priority: int
    attempts: int
    not_before: Moment | None = None
    ended_at: Moment | None = None
    failure: Failure | None = None


class Artifact(Record):
    """An artifact's record: its body holds `digest` (SHA-256 in hex), `media_type` and `size` in bytes. `shredded` tells
    that the bytes were removed for good."""

    shredded: bool = False


class Lease(Answered):
    """A lease: `epoch` proves it, `attempt` counts how often the record was handed out."""

    epoch: int
    owner: str
    expires_at: Moment
    attempt: int


@dataclass(frozen=True, slots=True)
class Held:
    """The proof of a claim: the record's id and the epoch under which it was claimed."""

    record: str
    epoch: int


class Claim(Answered):
    """A claimed record with its lease."""

    record: Record
    lease: Lease

    @property
    def held(self) -> Held:
        """What proves it."""
        return Held(self.record.id, self.lease.epoch)


class Cursor(Answered):
    """The latest completed claim of a consumer."""

    consumer: str
    sequence: int
    completed_at: Moment


class Session(Answered):
    """A session in which consumers number their claims, and how far they have come where that was asked for."""

    session: str
    created_at: Moment
    expires_at: Moment
    consumers: list[Cursor] | None = None


class Receipt(Answered):
    """Proof of a settlement: the same for every replay of it."""

    record: str
    epoch: int
    settled_at: Moment
    results: list[str]
    sha256: str


class Settlement(Answered):
    """The receipt, the consumed record, and the results that were published."""

    receipt: Receipt
    record: Record
    results: list[Record]


class Attempt(Answered):
    """One time that a record was handed out."""

    attempt: int
    epoch: int
    owner: str
    claimed_at: Moment


class DeadLetter(Answered):
    """A dead record with the attempts that led there."""

    record: Record
    attempts: list[Attempt]


class Relative(Answered):
    """A record of a lineage, `depth` generations away."""

    depth: int
    record: Record


class Lineage(Answered):
    """Ancestors or descendants, nearest first; `truncated` when there were more than an answer holds."""

    items: list[Relative]
    truncated: bool


class Entry(Answered):
    """Something that happened. `position` orders all entries; `revision` counts the subject's."""

    position: int
    subject: str
    revision: int
    type: str
    actor: str
    at: Moment
    data: dict[str, Any]
    kind: str | None = None
    content_sha256: str | None = None


class Change(Entry):
    """What a watch delivers: an entry of history, and the record to which it happened, as it was when the entry was read;
    None when the record is gone."""

    record: Record | None = None


class Reach(Answered):
    """An interest that would receive a proposed record."""

    interest: str
    worker: str
    subject: str
    expires_at: Moment


class DryRun(Answered):
    """The live interests that a record would match; `truncated` when there are more than were looked at."""

    matches: list[Reach]
    truncated: bool = False


class Candidate(Answered):
    """A record that is old enough to be removed."""

    id: str
    state: str
    ended_at: Moment


class Retention(Answered):
    """What a kind's retention would look at now: how many records are old enough, how many of them are held back, and the
    oldest."""

    kind: str
    retention_seconds: int | None
    candidates: int
    held: int
    oldest: list[Candidate]


class Interest(Answered):
    """What a worker says it would claim, until it expires."""

    worker: str
    kind: str
    expires_at: Moment
    match: dict[str, Any] | None = None


class Retry(Answered):
    """The delays after failed attempts."""

    delay_seconds: float
    factor: float
    max_delay_seconds: float


class ClaimPolicy(Answered):
    """How records of a kind are claimed."""

    lease_seconds: int
    max_attempts: int
    retry: Retry


class Kind(Answered):
    """A kind; `revision` counts the declarations that changed it."""

    kind: str
    revision: int
    paths: dict[str, str]
    claim: ClaimPolicy
    retention_seconds: int | None = None
    created_at: Moment
    updated_at: Moment
    created_by: str


class Grant(Answered):
    """Actions on kinds, narrowed by a pattern where there is one; no kinds means all of them."""

    actions: list[str]
    kinds: list[str] = Field(default_factory=list)
    match: dict[str, Any] | None = None


class Credential(Answered):
    """A credential, without its token."""

    id: str
    subject: str
    grants: list[Grant]
    created_at: Moment
    created_by: str
    expires_at: Moment | None = None
    revoked_at: Moment | None = None


class NewCredential(Credential):
    """A credential that was just made. Its token is told once."""

    token: str = Field(repr=False)


class NewAwakeable(Answered):
    """A promise that was just made. Its token is its whole authority."""

    id: str
    token: str = Field(repr=False)
    created_at: Moment
    deadline: Moment
    url: str = Field(repr=False)


class Awakeable(Answered):
    """A promise that the outside resolves once, before its deadline."""

    id: str
    state: str
    created_at: Moment
    deadline: Moment
    ended_at: Moment | None = None
    payload: Any = None


class RunFailure(Answered):
    """Why a run, or a step of one, failed: a tag of the closed set, and what it was about."""

    tag: str
    message: str
    code: str | None = None
    step: str | None = None


class Run(Answered):
    """A run. `result` is there once it succeeded, `error` once it failed; `next_attempt_at` while it waits for an instant,
    and `awaiting` says what it waits for. One with a `rewound_execution` records that it was rewound, and opened nothing."""

    run_id: str
    execution_id: str
    body: str
    scope: str
    status: str
    attempt: int
    started_at: Moment
    ended_at: Moment | None = None
    result: Any = None
    error: RunFailure | None = None
    next_attempt_at: Moment | None = None
    awaiting: list[dict[str, Any]] | None = None
    rewound_execution: str | None = None

    @property
    def ended(self) -> bool:
        """Whether the run goes no further."""
        return self.status in ("success", "failed", "partial_failure", "canceled")


class Started(Answered):
    """A run that was started, or that the same Idempotency-Key started before. `run` is the run as it was once it had been
    waited for."""

    run_id: str
    execution_id: str
    status: str
    run: Run | None = None


class Step(Answered):
    """A step of a run. Its output appears by reference; `Runs.output` loads it."""

    label: str
    input_sha256: str
    kind: str
    position: str
    status: str
    attempt: int
    started_at: Moment
    ended_at: Moment | None = None
    next_attempt_at: Moment | None = None
    error: RunFailure | None = None


class Steps(list[Step]):
    """The steps of a run, in the order in which they began. `outputs_retired`: what they recorded went with the journal of
    the run's execution, and none of it can be read any more."""

    def __init__(self, steps: Iterable[Step], *, outputs_retired: bool = False) -> None:
        super().__init__(steps)
        self.outputs_retired = outputs_retired


class Body(Answered):
    """A registered body: where it runs, what pins its executions, and the closed list of its labels."""

    name: str
    host: str
    build: dict[str, Any]
    effects: list[str]
    description: str = ""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some items of a list, and where it goes on; None at its end."""

    items: Sequence[T]
    next_cursor: str | None

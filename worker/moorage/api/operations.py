"""The operations of a host as they come over the wire: what `POST /executions/{id}/journal` takes.

Each becomes the operation of `runs.operations` that it names. A value is any JSON, or the `blob` of one that was stored by
`PUT /executions/{id}/blobs` before.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from moorage.api.fields import JsonObject, Line, Sent, SentInstant
from moorage.api.operation_parts import (
    Attempt,
    BlobSent,
    BodyName,
    KeyedSent,
    Position,
    ScopeName,
    StepFailureSent,
    Text,
    Valued,
    exactly_one,
    value_of,
)
from moorage.guards.model import EntityLease
from moorage.journal.model import Kind
from moorage.kernel.instants import render
from moorage.kernel.limits import (
    APPLY_OPERATIONS,
    AWAKE_TTL_SECONDS,
    EVENT_LOOK_BACK_DEFAULT,
    EVENT_LOOK_BACK_SECONDS,
    EVENT_WAIT_KEYS,
    ID_CHARACTERS,
    PUBLISH_BATCH,
    RECORD_PARENTS,
    RECORD_PRIORITY,
)
from moorage.runs import operations as apply_operations
from moorage.runs.operations import Operation


class ClaimOp(KeyedSent):
    """Claim an entry before its effect begins; with `until`, wait until then."""

    op: Literal["claim"]
    kind: Kind
    position: Position
    until: SentInstant | None = None

    def operation(self) -> Operation:
        """What the substrate takes."""
        return apply_operations.Claim(self.key, self.kind, self.position, self.until)


class RecordOp(Valued):
    """Record the value of a claimed entry. The first that is recorded stands."""

    op: Literal["record"]

    def operation(self) -> Operation:
        """What the substrate takes."""
        return apply_operations.Record(self.key, self.told())


class PutOp(Valued):
    """Claim and record at once what has no effect outside."""

    op: Literal["put"]
    kind: Kind
    position: Position

    def operation(self) -> Operation:
        """What the substrate takes."""
        return apply_operations.Put(self.key, self.kind, self.position, self.told())


class FailOp(KeyedSent):
    """Record that an attempt failed; without `next_attempt_at`, for good."""

    op: Literal["fail"]
    attempt: Attempt
    failure: StepFailureSent
    next_attempt_at: SentInstant | None = None
    bound: Text | None = Field(default=None, description="The bound that was struck, if one was.")

    def operation(self) -> Operation:
        """What the substrate takes."""
        return apply_operations.Fail(self.key, self.attempt, self.failure.failure(), self.next_attempt_at, self.bound)


class GiveUpOp(KeyedSent):
    """Wait no more for an entry that has not ended."""

    op: Literal["give_up"]

    def operation(self) -> Operation:
        """What the substrate takes."""
        return apply_operations.GiveUp(self.key)


class MintOp(KeyedSent):
    """Mint an awakeable as a recorded step; asked again it answers the same token."""

    op: Literal["mint"]
    position: Position
    ttl_seconds: float = Field(gt=0, le=int(AWAKE_TTL_SECONDS))
    subject: Line | None = None
    metadata: JsonObject = Field(default_factory=dict)

    def operation(self) -> Operation:
        """What the substrate takes."""
        return apply_operations.Mint(self.key, self.position, self.ttl_seconds, self.subject, self.metadata)


class AwaitOp(KeyedSent):
    """Await an awakeable that the execution minted."""

    op: Literal["await"]
    position: Position
    awakeable: str = Field(min_length=1, max_length=int(ID_CHARACTERS))

    def operation(self) -> Operation:
        """What the substrate takes."""
        return apply_operations.Await(self.key, self.position, self.awakeable)


class AwaitEventOp(KeyedSent):
    """Wait for an event that has one of `keys`, is of one of `types` and fits `match`; at least a key or a type is named."""

    op: Literal["await_event"]
    position: Position
    keys: list[Line] = Field(default_factory=list, max_length=int(EVENT_WAIT_KEYS))
    types: list[Line] = Field(default_factory=list, max_length=int(EVENT_WAIT_KEYS))
    match: JsonObject | None = None
    timeout_at: SentInstant | None = None
    look_back_seconds: float = Field(default=int(EVENT_LOOK_BACK_DEFAULT), ge=0, le=int(EVENT_LOOK_BACK_SECONDS))

    def operation(self) -> Operation:
        """What the substrate takes."""
        filters = (self.keys, self.types, self.match)
        return apply_operations.AwaitEvent(self.key, self.position, *filters, self.timeout_at, float(self.look_back_seconds))


class StartChildOp(KeyedSent):
    """Start another run as a child, in the same transaction; without `scope`, under the parent's."""

    op: Literal["start_child"]
    position: Position
    body: BodyName
    input: Any = None
    blob: BlobSent | None = None
    scope: ScopeName | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        return exactly_one(self, "input")

    def operation(self) -> Operation:
        """What the substrate takes."""
        return apply_operations.StartChild(self.key, self.position, self.body, value_of(self.input, self.blob), self.scope)


class PublishedSent(Sent):
    """A record to publish. Its id is made of the entry's key, so that it is published once however often it is asked."""

    kind: str
    body: JsonObject
    metadata: JsonObject = Field(default_factory=dict)
    parents: list[str] = Field(default_factory=list, max_length=int(RECORD_PARENTS))
    priority: int = Field(default=0, ge=-int(RECORD_PRIORITY), le=int(RECORD_PRIORITY))
    not_before: SentInstant | None = None

    def wire(self) -> JsonObject:
        """What the substrate takes: JSON, without what was not sent."""
        told = self.model_dump(exclude_unset=True)
        return told if self.not_before is None else {**told, "not_before": render(self.not_before)}


class PublishOp(KeyedSent):
    """Publish records and record their ids, in the same transaction."""

    op: Literal["publish"]
    position: Position
    records: list[PublishedSent] = Field(min_length=1, max_length=int(PUBLISH_BATCH))

    def operation(self) -> Operation:
        """What the substrate takes."""
        return apply_operations.Publish(self.key, self.position, [one.wire() for one in self.records])


class CommitCursorOp(Valued):
    """Move a cursor of the scope that has the revision `expected`, 0 for none, and publish records with it."""

    op: Literal["commit_cursor"]
    position: Position
    name: str = Field(min_length=1, max_length=int(ID_CHARACTERS))
    expected: int = Field(ge=0, le=2**53 - 1)
    records: list[PublishedSent] = Field(default_factory=list, max_length=int(PUBLISH_BATCH))

    def operation(self) -> Operation:
        """What the substrate takes."""
        records = [one.wire() for one in self.records]
        return apply_operations.CommitCursor(self.key, self.position, self.name, self.told(), self.expected, records)


class EntityLeaseSent(Sent):
    """An entity that the execution holds, as `hold_entity` was answered."""

    namespace: Text
    key: Text
    epoch: int = Field(ge=1, le=2**53 - 1)


class AdmitGuardOp(KeyedSent):
    """Admit the callback of a claimed entry: send only once it is answered as admitted. One a list."""

    op: Literal["admit_guard"]
    holder: Text
    destination: Text | None = None
    publication: bool = False
    entities: list[EntityLeaseSent] = Field(default_factory=list, max_length=16)

    def operation(self) -> Operation:
        """What the substrate takes."""
        leases = [EntityLease(one.namespace, one.key, one.epoch) for one in self.entities]
        return apply_operations.AdmitGuard(self.key, self.holder, self.destination, self.publication, leases)


class ReleaseGuardOp(Sent):
    """Remove one's own guard once its callback has returned, in the list that records the outcome."""

    op: Literal["release_guard"]
    token: Text
    holder: Text

    def operation(self) -> Operation:
        """What the substrate takes."""
        return apply_operations.ReleaseGuard(self.token, self.holder)


class HoldEntityOp(Sent):
    """Hold an entity, or extend the lease on it: no other execution works on it meanwhile."""

    op: Literal["hold_entity"]
    namespace: Text
    key: Text

    def operation(self) -> Operation:
        """What the substrate takes."""
        return apply_operations.HoldEntity(self.namespace, self.key)


class LetEntityOp(Sent):
    """Let go of an entity."""

    op: Literal["let_entity"]
    namespace: Text
    key: Text

    def operation(self) -> Operation:
        """What the substrate takes."""
        return apply_operations.LetEntity(self.namespace, self.key)


class SetMetadataOp(Sent):
    """Replace the run's metadata."""

    op: Literal["set_metadata"]
    metadata: JsonObject

    def operation(self) -> Operation:
        """What the substrate takes."""
        return apply_operations.SetMetadata(self.metadata)


class SuspendOp(Sent):
    """Let go of the execution until an instant, or until something that it awaits ends. Only as the last operation."""

    op: Literal["suspend"]
    status: Literal["waiting", "suspended"]
    next_attempt_at: SentInstant | None = None
    awaiting: list[JsonObject] = Field(default_factory=list, max_length=int(APPLY_OPERATIONS))

    @model_validator(mode="after")
    def _until(self) -> Self:
        if self.status == "waiting" and self.next_attempt_at is None:
            raise PydanticCustomError("until", "a run that waits needs next_attempt_at")
        return self

    def operation(self) -> Operation:
        """What the substrate takes."""
        return apply_operations.Suspend(self.status, self.next_attempt_at, self.awaiting)


class CloseOp(Sent):
    """End the run. Only as the last operation. A success has a `result`, or its `blob`; a failure has an `error`."""

    op: Literal["close"]
    status: Literal["success", "failed", "canceled"]
    result: Any = None
    blob: BlobSent | None = None
    error: StepFailureSent | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.status == "failed") != (self.error is not None):
            raise PydanticCustomError("error", "a failed run has an error, and no other has")
        if self.status == "success":
            return exactly_one(self, "result")
        if {"result", "blob"} & self.model_fields_set:
            raise PydanticCustomError("result", "only a success has a result")
        return self

    def operation(self) -> Operation:
        """What the substrate takes."""
        result = value_of(self.result, self.blob) if self.status == "success" else None
        return apply_operations.Close(self.status, result, None if self.error is None else self.error.failure())


OperationSent = Annotated[
    ClaimOp
    | RecordOp
    | PutOp
    | FailOp
    | GiveUpOp
    | MintOp
    | AwaitOp
    | AwaitEventOp
    | StartChildOp
    | PublishOp
    | CommitCursorOp
    | AdmitGuardOp
    | ReleaseGuardOp
    | HoldEntityOp
    | LetEntityOp
    | SetMetadataOp
    | SuspendOp
    | CloseOp,
    Field(discriminator="op"),
]

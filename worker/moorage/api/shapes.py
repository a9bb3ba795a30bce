"""Records on the wire: as clients send them, and as they are shown."""

from collections.abc import Iterable
from typing import Any

from pydantic import Field

from moorage.api.answers import instant
from moorage.api.fields import JsonObject, Sent, SentInstant, Shown, ShownInstant
from moorage.kernel.errors import FailureTag
from moorage.kernel.instants import Instant, render
from moorage.kernel.limits import DEBOUNCE_SECONDS, ID_CHARACTERS, RECORD_PARENTS, RECORD_PRIORITY
from moorage.records.model import Claim, DeadLetter, Debounce, Draft, Record, RecordLease, State


class ResultSent(Sent):
    """A record to make as the result of a claim."""

    kind: str
    body: JsonObject
    metadata: JsonObject = Field(default_factory=dict)
    priority: int = Field(default=0, ge=-int(RECORD_PRIORITY), le=int(RECORD_PRIORITY))
    not_before: SentInstant | None = None
    id: str | None = Field(default=None, description="An id of the client's choice; never reused.")

    def draft(self) -> Draft:
        """What the records room takes."""
        return Draft(self.kind, self.body, (), self.metadata, self.priority, self.not_before, self.id)


class DebounceSent(Sent):
    """Wait `seconds` for a later record with the same key, which takes this one's place, but never longer than
    `max_seconds` from the first. Keys are the publisher's own."""

    key: str = Field(min_length=1, max_length=int(ID_CHARACTERS))
    seconds: float = Field(gt=0, le=int(DEBOUNCE_SECONDS))
    max_seconds: float = Field(gt=0, le=int(DEBOUNCE_SECONDS))


class RecordSent(ResultSent):
    """A record to publish."""

    parents: list[str] = Field(default_factory=list, max_length=int(RECORD_PARENTS))
    debounce: DebounceSent | None = Field(default=None, description="Not in a batch; takes no id, parents or not_before.")

    def draft(self) -> Draft:
        """What the records room takes."""
        wish = self.debounce
        debounce = None if wish is None else Debounce(wish.key, wish.seconds, wish.max_seconds)
        parents = tuple(self.parents)
        return Draft(self.kind, self.body, parents, self.metadata, self.priority, self.not_before, self.id, debounce)


class FailureShown(Shown):
    """Why the last attempt failed."""

    tag: FailureTag
    message: str
    code: str | None = None


class RecordShown(Shown):
    """A record. `seq` is its position in history; `not_before` is there while it waits; `failure` is the last
    attempt's."""

    id: str
    seq: int
    kind: str
    body: JsonObject
    metadata: JsonObject
    parents: list[str]
    state: State
    created_at: ShownInstant
    created_by: str
    body_sha256: str
    priority: int
    attempts: int
    not_before: ShownInstant | None = None
    ready_until: ShownInstant | None = Field(default=None, description="When it is dead-lettered unless it is claimed.")
    ended_at: ShownInstant | None = None
    failure: FailureShown | None = None


class LeaseShown(Shown):
    """The lease of a claimed record; show `epoch` with every write under it."""

    epoch: int
    owner: str
    expires_at: ShownInstant
    attempt: int


class ClaimShown(Shown):
    """A claimed record with its lease."""

    record: RecordShown
    lease: LeaseShown


class AttemptShown(Shown):
    """One time that a record was handed out."""

    attempt: int
    epoch: int
    owner: str
    claimed_at: ShownInstant


class DeadLetterShown(Shown):
    """A dead record with the attempts that led there."""

    record: RecordShown
    attempts: list[AttemptShown]


def record(one: Record) -> dict[str, Any]:
    """A record as `RecordShown` says."""
    shown: dict[str, Any] = {
        "id": one.id,
        "seq": one.seq,
        "kind": one.kind,
        "body": one.body,
        "metadata": one.metadata,
        "parents": one.parents,
        "state": one.state,
        "created_at": render(one.created_at),
        "created_by": one.created_by,
        "body_sha256": one.body_sha256,
        "priority": one.priority,
        "attempts": one.attempts,
    }
    if one.not_before is not None:
        shown["not_before"] = render(one.not_before)
    if one.ready_until is not None:
        shown["ready_until"] = render(one.ready_until)
    if one.ended_at is not None:
        shown["ended_at"] = render(one.ended_at)
    if one.failure is not None:
        shown["failure"] = one.failure
    return shown


def lease(one: RecordLease) -> dict[str, Any]:
    """A lease as `LeaseShown` says."""
    return {
        "epoch": one.epoch,
        "owner": one.owner,
        "expires_at": render(one.expires_at),
        "attempt": one.attempt,
    }


def claim(one: Claim) -> dict[str, Any]:
    """A claim as `ClaimShown` says."""
    return {"record": record(one.record), "lease": lease(one.lease)}


def dead_letter(one: DeadLetter) -> dict[str, Any]:
    """A dead letter as `DeadLetterShown` says."""
    attempts = [
        {"attempt": made.attempt, "epoch": made.epoch, "owner": made.owner, "claimed_at": instant(made.claimed_at)}
        for made in one.attempts
    ]
    return {"record": record(one.record), "attempts": attempts}


def earliest_wait(records: Iterable[Record]) -> Instant | None:
    """When something happens to the first of these records by itself: it stops waiting, or its time to live ends."""
    return min((due for one in records for due in (one.not_before, one.ready_until) if due is not None), default=None)

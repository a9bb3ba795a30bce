"""Every error that Moorage raises, in one tree. A class's docstring is its default detail; its name is its wire `code`.

    MoorageError
    |- RequestError                     the request itself is at fault
    |  |- JsonInvalid 400               |- CursorMismatch 400          |- PatternInvalid 400
    |  |- IdInvalid 400                 |- RequestInvalid 422          |- BodyInvalid 422
    |  |- PayloadTooLarge 413           |- UnsupportedMediaType 415    |- MethodNotAllowed 405
    |  |- LengthRequired 411            |- DigestMismatch 422          |- RangeUnsatisfiable 416
    |  |- InputInvalid 422              |- HistoryBoundSpelling 400    |- RunMetadataTooLarge 413
    |  |- ExecutionGuardEvidenceMismatch 422  |- JournalFull 413
    |  `- RouteUnknown 404
    |- AccessError                      who asks
    |  |- Unauthenticated 401, RunStreamUnauthorized 401
    |  `- Forbidden 403, CancelUnauthorized 403
    |- Unknown                          what is asked for does not exist, or may not be seen
    |  |- KindUnknown, RecordUnknown, CredentialUnknown, SenderUnknown, DestinationUnknown, ScopeUnknown,
    |  |- AwakeableUnknown, LeaseUnknown, InterestUnknown, SessionUnknown 404
    |  |- GuardUnknown, HolderUnknown 404
    |  |- TimerUnknown, ScheduleUnknown, EventUnknown, SubscriptionUnknown, DeliveryUnknown, KeyUnknown 404
    |  `- RunUnknown, ExecutionUnknown, BodyUnknown, EntryUnknown 404
    |- Conflict                         what is asked for no longer agrees with what is stored
    |  |- KindConflict, RecordExists, IdempotencyConflict, SettlementConflict, RecordNotDead, RecordEnded,
    |  |  ScopeConflict, AwakeableAlreadyResolved, ParentUnknown, SequenceConflict, SequenceStale 409
    |  |- BlobBusy, UploadTimedOut 409
    |  |- ExecutionPinMismatch, ExecutionBusy, ExecutionWoken, CursorMoved 409
    |  |- ExecutionRewindNotPending, ExecutionRewindPlanCurrent, ExecutionRewindUnsafe, RunJournalRetired 409
    |  |- CancelTargetNotInFlight, RunEnded, BodyConflict 409
    |  |- TimerConflict, TimerNotDue, ScheduleConflict, EventConflict, EventIdentityUsed, CausationUnknown,
    |  |  EventScopeConflict, EventMatched, CorrelationConflict, KeyConflict, DeliveryConflict 409
    |  |- GuardedElsewhere, ExecutionGuardBlocked, ExecutionGuardHeld, GuardReleased, EffectUnsettled 409
    |  `- LeaseFenced, LeaseExpired, LeaseHeld 409
    |- Gone
    |  `- AwakeableTimedOut, AwakeableRejected, SessionExpired, ArtifactShredded, RecordRemoved 410
    |- RateLimited, KindFull 429
    `- DeploymentError                      the storage or the deployment
       |- StorageBindingUnavailable, StorageCapabilityMissing 503
       |- ExecutionSchemaIncompatible, CapabilityUnwired, AwakeableTokenLost 503
       |- ExecutionRecoveryMismatch, StorageProfileUnsupported 503
       |- BlobMissing, BlobCorrupt 500
       `- StorageLimitExceeded, InternalError 500

Callers branch on `tag`, never on text (clause kernel.failure-tag).
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, ClassVar


class FailureTag(StrEnum):
    """The closed set of failure classes that crosses every port and the wire (clause kernel.failure-tag)."""

    INVALID = "Invalid"
    UNAUTHENTICATED = "Unauthenticated"
    FORBIDDEN = "Forbidden"
    UNKNOWN = "Unknown"
    CONFLICT = "Conflict"
    FENCED = "Fenced"
    TIMED_OUT = "TimedOut"
    TOO_LARGE = "TooLarge"
    RATE_LIMITED = "RateLimited"
    TRANSIENT = "Transient"
    INCOMPATIBLE = "Incompatible"
    CORRUPT = "Corrupt"
    CANCELED = "Canceled"
    PERMANENT = "Permanent"


RETRYABLE_TAGS = frozenset({FailureTag.TRANSIENT, FailureTag.RATE_LIMITED})


class MoorageError(Exception):
    """Something went wrong."""

    status: ClassVar[int] = 500
    tag: ClassVar[FailureTag] = FailureTag.PERMANENT

    def __init__(
        self,
        detail: str | None = None,
        *,
        errors: list[dict[str, str]] | None = None,
        retry_after: float | None = None,
        **members: Any,
    ) -> None:
        self.detail = detail if detail is not None else self.meaning()
        self.errors = errors
        self.retry_after = retry_after
        self.members: Mapping[str, Any] = members
        super().__init__(self.detail)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.detail, self.errors, self.retry_after, dict(self.members)))

    @classmethod
    def meaning(cls) -> str:
        """The first paragraph of the class's docstring: the default detail."""
        return " ".join((cls.__doc__ or "").strip().split("\n\n")[0].split())

    @property
    def code(self) -> str:
        return type(self).__name__

    @property
    def retryable(self) -> bool:
        return self.tag in RETRYABLE_TAGS

    def problem(self) -> dict[str, Any]:
        """The RFC 9457 members of this error (clause kernel.problem); `retry_after` in seconds where known."""
        body: dict[str, Any] = {
            "type": f"/errors#{self.code}",
            "title": title_of(type(self)),
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "tag": self.tag.value,
            "retryable": self.retryable,
        }
        if self.errors is not None:
            body["errors"] = self.errors
        if self.retry_after is not None:
            body["retry_after"] = self.retry_after
        body.update(self.members)
        return body


def _rebuild(
    cls: type[MoorageError],
    detail: str,
    errors: list[dict[str, str]] | None,
    retry_after: float | None,
    members: dict[str, Any],
) -> MoorageError:
    return cls(detail, errors=errors, retry_after=retry_after, **members)


def title_of(cls: type[MoorageError]) -> str:
    """`LeaseFenced` -> `Lease fenced`: the human title of an error class."""
    name = cls.__name__
    spaced = "".join(f" {char.lower()}" if char.isupper() else char for char in name).strip()
    return spaced[:1].upper() + spaced[1:]


# --- RequestError ---------------------------------------------------------------------------------------------------


class RequestError(MoorageError):
    """The request is at fault."""

    status = 400
    tag = FailureTag.INVALID


class JsonInvalid(RequestError):
    """The bytes are not acceptable JSON: malformed, a duplicate key, NaN, a lone surrogate, an inexact number, too deep."""


class CursorMismatch(RequestError):
    """The cursor is malformed or belongs to a listing with other filters."""


class PatternInvalid(RequestError):
    """The pattern names an undeclared path or an unknown operator, has an operand of another type, or is too large."""


class IdInvalid(RequestError):
    """An id holds characters that are not allowed, or is too long."""


class RequestInvalid(RequestError):
    """The request does not have the documented shape."""

    status = 422

    def problem(self) -> dict[str, Any]:
        """With `errors` always: what is about the request as a whole is told at the empty pointer."""
        body = super().problem()
        body.setdefault("errors", [{"pointer": "", "message": self.detail}])
        return body


class BodyInvalid(RequestError):
    """The record's body does not fit what its kind declares."""

    status = 422


class PayloadTooLarge(RequestError):
    """The payload is larger than the limit."""

    status = 413
    tag = FailureTag.TOO_LARGE


class UnsupportedMediaType(RequestError):
    """The content type is not one that this route takes."""

    status = 415


class MethodNotAllowed(RequestError):
    """The route exists, but not with this method."""

    status = 405


class LengthRequired(RequestError):
    """The request must tell the length of its body in a Content-Length header."""

    status = 411


class DigestMismatch(RequestError):
    """The bytes do not have the digest that the request declared; nothing was stored."""

    status = 422


class RangeUnsatisfiable(RequestError):
    """The range lies outside the content."""

    status = 416


class InputInvalid(RequestError):
    """The run's input does not fit what its body declares."""

    status = 422


class HistoryBoundSpelling(RequestError):
    """A window's lower bound is spelled YYYY-MM-DD, or as an RFC 3339 instant in UTC that ends in Z."""


class RunMetadataTooLarge(RequestError):
    """The run's metadata passes its limit; it stands unchanged."""

    status = 413
    tag = FailureTag.TOO_LARGE


class JournalFull(RequestError):
    """The execution has recorded as many entries as one may: split its work among children, each with its own journal."""

    status = 413
    tag = FailureTag.TOO_LARGE


class RouteUnknown(RequestError):
    """There is no such route."""

    status = 404
    tag = FailureTag.UNKNOWN


class ExecutionGuardEvidenceMismatch(RequestError):
    """The evidence says nothing about the effect that the guard protects; the guard stays."""

    status = 422


# --- AccessError ----------------------------------------------------------------------------------------------------


class AccessError(MoorageError):
    """The caller is not admitted."""

    status = 403
    tag = FailureTag.FORBIDDEN


class Unauthenticated(AccessError):
    """The request carries no credential that is known and alive."""

    status = 401
    tag = FailureTag.UNAUTHENTICATED


class RunStreamUnauthorized(AccessError):
    """A run's live view is for admitted callers only."""

    status = 401
    tag = FailureTag.UNAUTHENTICATED


class Forbidden(AccessError):
    """The credential does not grant this action."""


class CancelUnauthorized(AccessError):
    """The credential may not stop this run."""


# --- Unknown --------------------------------------------------------------------------------------------------------


class Unknown(MoorageError):
    """There is no such thing, or the caller may not see it."""

    status = 404
    tag = FailureTag.UNKNOWN


class KindUnknown(Unknown):
    """No kind of this name is declared."""


class RecordUnknown(Unknown):
    """There is no record with this id."""


class CredentialUnknown(Unknown):
    """There is no credential with this id."""


class SenderUnknown(Unknown):
    """There is no webhook sender of this name."""


class DestinationUnknown(Unknown):
    """There is no destination of this name."""


class ScopeUnknown(Unknown):
    """There is no scope with this id."""


class AwakeableUnknown(Unknown):
    """No awakeable has this token, or it is bound to another subject."""


class LeaseUnknown(Unknown):
    """There is no lease under this key."""


class SessionUnknown(Unknown):
    """There is no session with this id, it is another subject's, or its end was some time ago."""


class InterestUnknown(Unknown):
    """The caller's worker of this name has no live interest."""


class RunUnknown(Unknown):
    """There is no run with this id."""


class ExecutionUnknown(Unknown):
    """There is no execution with this id: it never was, or it has been retired."""


class BodyUnknown(Unknown):
    """No body of this name is registered, in the Worker or by a host; `GET /bodies` lists those that are."""


class EntryUnknown(Unknown):
    """The execution has no entry under this key, or it has no value."""


class GuardUnknown(Unknown):
    """No guard has this token, or it is another holder's."""


class HolderUnknown(Unknown):
    """No holder is registered under this id, or it has exited: register another one before the first guard."""


class TimerUnknown(Unknown):
    """There is no timer with this id: it has fired, was deleted, or never was."""


class ScheduleUnknown(Unknown):
    """There is no schedule of this name."""


class EventUnknown(Unknown):
    """There is no event with this id, or it is older than the time for which events are kept."""


class SubscriptionUnknown(Unknown):
    """There is no subscription of this name."""


class DeliveryUnknown(Unknown):
    """There is no delivery with this id, or it was over for longer than deliveries are kept."""


class KeyUnknown(Unknown):
    """The namespace has no such key."""


# --- Conflict -------------------------------------------------------------------------------------------------------


class Conflict(MoorageError):
    """The request no longer agrees with what is stored."""

    status = 409
    tag = FailureTag.CONFLICT


class KindConflict(Conflict):
    """The new declaration of the kind is not additive."""


class RecordExists(Conflict):
    """A record with this id exists already."""


class IdempotencyConflict(Conflict):
    """The idempotency key was used before with other content."""


class SettlementConflict(Conflict):
    """The record was settled before with other results."""


class RecordNotDead(Conflict):
    """Only a dead-lettered record can be requeued."""


class RecordEnded(Conflict):
    """The record is consumed or dead already."""


class ScopeConflict(Conflict):
    """The scope's parent is unknown or would make a cycle."""


class TimerConflict(Conflict):
    """The timer has another revision than the one named."""


class TimerNotDue(Conflict):
    """The timer is not due yet, or was set anew, deleted or fired meanwhile."""


class ScheduleConflict(Conflict):
    """The schedule was changed meanwhile, or does not allow what was asked."""


class EventConflict(Conflict):
    """The event's id is that of another delivery."""


class EventIdentityUsed(Conflict):
    """An event with this source and id was accepted already: a timer could never have it accepted again."""


class CausationUnknown(Conflict):
    """The event names a cause that was never accepted here."""


class EventScopeConflict(Conflict):
    """The event belongs to another scope already, and a scope is written once."""


class CorrelationConflict(Conflict):
    """The key belongs to another work, and a key never changes hands."""


class KeyConflict(Conflict):
    """The key has another revision than the one named."""


class DeliveryConflict(Conflict):
    """The delivery does not stand as what was asked takes: it is pending still, or was made already."""


class EventMatched(Conflict):
    """An event that the wait may take was accepted while the wait was being stored."""


class AwakeableAlreadyResolved(Conflict):
    """The awakeable was resolved before with another payload."""


class ParentUnknown(Conflict):
    """A parent named by the record does not exist, or may not be seen."""


class SequenceConflict(Conflict):
    """This sequence was completed by another claim: a number stands for one claim, asked in the same words."""


class SequenceStale(Conflict):
    """A later sequence of this consumer is completed; only the latest one is answered again."""


class LeaseFenced(Conflict):
    """Another holder has the lease now, or nobody has: this epoch may not write."""

    tag = FailureTag.FENCED


class LeaseExpired(Conflict):
    """The lease ran out: at its expiry instant it is already expired."""

    tag = FailureTag.FENCED


class LeaseHeld(Conflict):
    """Another owner holds a live lease under this key."""

    tag = FailureTag.TRANSIENT


class BlobBusy(Conflict):
    """Earlier bytes with this digest are being deleted at this moment; try again."""

    tag = FailureTag.TRANSIENT


class UploadTimedOut(Conflict):
    """The upload took longer than an upload may; nothing was published."""

    tag = FailureTag.TIMED_OUT


class ExecutionPinMismatch(Conflict):
    """The execution that is pending under this scope is bound to other pins: restore that build and resume, or rewind it."""

    tag = FailureTag.INCOMPATIBLE


class ExecutionBusy(Conflict):
    """Another attempt holds the execution of this scope under a live lease."""

    tag = FailureTag.TRANSIENT


class ExecutionWoken(Conflict):
    """What the execution awaits has ended meanwhile: go on instead of suspending."""

    tag = FailureTag.TRANSIENT


class CursorMoved(Conflict):
    """The cursor was moved since it was read."""


class ExecutionRewindNotPending(Conflict):
    """No pending execution has this id: one that has ended holds nothing to release, and a run's id is another."""


class ExecutionRewindPlanCurrent(Conflict):
    """Nobody asked this scope for another plan, so that the execution resumes by itself; force overrides."""


class ExecutionRewindUnsafe(Conflict):
    """The execution has a live attempt, a waiting one, or an awakeable before its deadline; nothing overrides."""


class RunJournalRetired(Conflict):
    """The run's journal was retired with its execution: nothing is left to restart from. Start a new run instead."""


class CancelTargetNotInFlight(Conflict):
    """The run has ended: there is nothing to stop."""


class RunEnded(Conflict):
    """The run has ended already, in another way."""


class BodyConflict(Conflict):
    """A body of this name is registered elsewhere."""


class GuardedElsewhere(Conflict):
    """Another callback is under way on a row that this one would protect: ask again when it has returned."""

    tag = FailureTag.TRANSIENT


class ExecutionGuardBlocked(Conflict):
    """An outside effect may be in flight on what is to change hands; `token` names its guard. Ask again when it is gone."""

    tag = FailureTag.TRANSIENT


class ExecutionGuardHeld(Conflict):
    """The guard's owner has a live lease and its holder has not exited: the effect may be on its way at this moment."""


class GuardReleased(Conflict):
    """The guard was reconciled already; `audit` names the record of it."""


class EffectUnsettled(Conflict):
    """An effect may have arrived, and is to be sent again under its `idempotency_key`: open the scope again and let it run.
    Another execution would send it under another key. A rewind that names the key as settled gives it up."""


# --- Gone -----------------------------------------------------------------------------------------------------------


class Gone(MoorageError):
    """It existed, and its time is over."""

    status = 410
    tag = FailureTag.TIMED_OUT


class SessionExpired(Gone):
    """The session has ended: open another one, and begin again with its first sequence."""


class AwakeableTimedOut(Gone):
    """The awakeable's deadline has passed."""


class AwakeableRejected(Gone):
    """The awakeable was rejected."""

    tag = FailureTag.CONFLICT


class ArtifactShredded(Gone):
    """The artifact's bytes were removed for good; its record remains."""

    tag = FailureTag.PERMANENT


class RecordRemoved(Gone):
    """The record ended and was removed when its kind's retention was over; its history remains."""

    tag = FailureTag.UNKNOWN


# --- RateLimited ----------------------------------------------------------------------------------------------------


class RateLimited(MoorageError):
    """Too many requests: wait for `retry_after` seconds."""

    status = 429
    tag = FailureTag.RATE_LIMITED


class KindFull(MoorageError):
    """The kind holds as many ready records as it may: publish again when workers have taken some."""

    status = 429
    tag = FailureTag.RATE_LIMITED


# --- DeploymentError ----------------------------------------------------------------------------------------------------


class DeploymentError(MoorageError):
    """The deployment cannot serve this now."""

    status = 503
    tag = FailureTag.TRANSIENT


class StorageBindingUnavailable(DeploymentError):
    """The database or the bucket did not answer; a write may or may not have been applied."""


class StorageCapabilityMissing(DeploymentError):
    """A binding or a table that this operation needs is not there."""

    tag = FailureTag.INCOMPATIBLE


class ExecutionSchemaIncompatible(DeploymentError):
    """The database's schema is not the one that this executable supports."""

    tag = FailureTag.INCOMPATIBLE


class ExecutionRecoveryMismatch(DeploymentError):
    """The database and the bucket are not bound to one another and to this project; nothing with an effect is admitted."""

    tag = FailureTag.INCOMPATIBLE


class StorageProfileUnsupported(DeploymentError):
    """The deployment asks for a storage profile that this executable does not know."""

    tag = FailureTag.INCOMPATIBLE


class CapabilityUnwired(DeploymentError):
    """The host's profile lacks a capability that the body asked for; nothing of it was done."""

    tag = FailureTag.INCOMPATIBLE


class AwakeableTokenLost(DeploymentError):
    """The derivation key that made an awakeable's token is no longer among the deployment's."""

    tag = FailureTag.INCOMPATIBLE


class BlobMissing(DeploymentError):
    """A stored reference names an object that is not in the bucket."""

    status = 500
    tag = FailureTag.CORRUPT


class BlobCorrupt(DeploymentError):
    """The object's bytes do not have the digest under which they are stored."""

    status = 500
    tag = FailureTag.CORRUPT


class StorageLimitExceeded(DeploymentError):
    """A statement passes one of the database's limits; the caller should have bounded it before."""

    status = 500
    tag = FailureTag.PERMANENT


class InternalError(DeploymentError):
    """Something failed that is not the request's fault; the request id names it in the log."""

    status = 500
    tag = FailureTag.PERMANENT


def every_error(root: type[MoorageError] = MoorageError) -> Iterator[type[MoorageError]]:
    """Every class of the tree, parents first, in the order they are written."""
    for child in root.__subclasses__():
        yield child
        yield from every_error(child)


def reference() -> list[dict[str, Any]]:
    """The error reference that the documentation and `/errors` are generated from: leaf errors only."""
    return [
        {
            "code": cls.__name__,
            "status": cls.status,
            "tag": cls.tag.value,
            "retryable": cls.tag in RETRYABLE_TAGS,
            "meaning": cls.meaning(),
        }
        for cls in every_error()
        if not cls.__subclasses__()
    ]

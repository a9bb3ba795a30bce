"""The operations that a host of bodies commits by `Substrate.apply`, and what each is answered (clause runs.substrate).

Recording step n and claiming step n + 1 are two operations of one list, so that they are one round trip. `Suspend` or
`Close` ends the list when the host lets go of the execution.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from moorage.guards.model import EntityLease, EvidenceClass, Target
from moorage.journal.model import Entry, EntryKey, Kind, Value
from moorage.kernel.instants import Instant
from moorage.kernel.limits import EVENT_LOOK_BACK_DEFAULT
from moorage.runs.model import Failure, Minted


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim an entry before its effect begins. Answered by `Claimed`, or by `Recorded` when it has ended already.

    With `until` it is a wait of time: the entry is `waiting` until that instant and has no effect.
    """

    key: EntryKey
    kind: Kind
    position: str
    until: Instant | None = None
    op: Literal["claim"] = "claim"


@dataclass(frozen=True, slots=True)
class Record:
    """Record the value of a claimed entry. Answered by `Recorded`; if another value was recorded first, that one is."""

    key: EntryKey
    value: Value
    op: Literal["record"] = "record"


@dataclass(frozen=True, slots=True)
class Put:
    """Claim and record at once, for what has no effect outside: an instant, a random number. Answered by `Recorded`."""

    key: EntryKey
    kind: Kind
    position: str
    value: Value
    op: Literal["put"] = "put"


@dataclass(frozen=True, slots=True)
class Fail:
    """Record that an attempt failed. With `next_attempt_at` the entry waits for another one (clause runs.not-before);
    without, it has failed for good. `bound` names a bound that was struck (clause runs.bound-hit)."""

    key: EntryKey
    attempt: int
    failure: Failure
    next_attempt_at: Instant | None = None
    bound: str | None = None
    op: Literal["fail"] = "fail"


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Mark an entry that has not ended as canceled: it lost a race inside the body, and is waited for no more."""

    key: EntryKey
    op: Literal["give_up"] = "give_up"


@dataclass(frozen=True, slots=True)
class Mint:
    """Mint an awakeable as a recorded step. Answered by `Minted`, with the same token each time it is asked.

    It times out `ttl_seconds` after it was first asked.
    """

    key: EntryKey
    position: str
    ttl_seconds: float
    subject: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    op: Literal["mint"] = "mint"


@dataclass(frozen=True, slots=True)
class Await:
    """Await an awakeable that this execution minted. Answered by `Recorded` when it has ended, else by `Claimed`.

    The recorded value is `{"resolved": payload}`, `{"rejected": {"tag", "message"}}` or `{"timed_out": deadline}`.
    """

    key: EntryKey
    position: str
    awakeable: str
    op: Literal["await"] = "await"


@dataclass(frozen=True, slots=True)
class AwaitEvent:
    """Wait for an event that has one of `keys`, is of one of `types`, and whose data matches the pattern `match`; at least a
    key or a type is named. Answered by `Recorded` when one is there or the wait is over, else by `Claimed`.

    The wait exists from the transaction on that commits this: no event is missed that is accepted later, and none that was
    accepted up to `look_back_seconds` before. An event is recorded for one wait of an execution at most. The recorded value
    is `{"event": {"accepted_at", "attributes", "data"?, "event_id", "id", "keys", "source", "type"}}` or
    `{"timed_out": timeout_at}`. Asked again, a wait that stands is the same one, whatever this says of its boundary and its
    timeout. Whoever started the run may read the events: all types, or those that are named. Raises Forbidden otherwise,
    EventMatched when events come faster than they can be looked at, and PatternInvalid.
    """

    key: EntryKey
    position: str
    keys: Sequence[str] = ()
    types: Sequence[str] = ()
    match: Mapping[str, Any] | None = None
    timeout_at: Instant | None = None
    look_back_seconds: float = float(EVENT_LOOK_BACK_DEFAULT)
    op: Literal["await_event"] = "await_event"


@dataclass(frozen=True, slots=True)
class StartChild:
    """Start another run as a child, in the same transaction. Answered by `Claimed`, and by `Recorded` once it has ended.

    The recorded value is `{"run_id", "status", "result"?, "error"?}`. `scope` None is the parent's scope, a slash, and the
    label with the beginning of the input's hash. A host that runs the child's body elsewhere needs nothing but its name.
    """

    key: EntryKey
    position: str
    body: str
    input: Value
    scope: str | None = None
    op: Literal["start_child"] = "start_child"


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish records, and record their ids, in the same transaction. Answered by `Recorded`, with `{"records": [ids]}`.

    Each is `{"kind", "body", "metadata"?, "parents"?, "priority"?, "not_before"?}`, as for `POST /records`.
    """

    key: EntryKey
    position: str
    records: Sequence[Mapping[str, Any]]
    op: Literal["publish"] = "publish"


@dataclass(frozen=True, slots=True)
class CommitCursor:
    """Move a cursor of the scope, and record it. Answered by `Recorded`, with `{"position", "revision"}`.

    `expected` is the revision that the host read, 0 for none: another one raises CursorMoved. With `records` they are
    published in the same transaction, so that rows and position are one commit.
    """

    key: EntryKey
    position: str
    name: str
    value: Value
    expected: int
    records: Sequence[Mapping[str, Any]] = ()
    op: Literal["commit_cursor"] = "commit_cursor"


@dataclass(frozen=True, slots=True)
class AdmitGuard:
    """Admit the callback of a claimed entry: a durable guard says from now on that its effect may be in flight, and keeps
    what the execution holds from changing hands (clauses guards.acquire, guards.current-owner).

    Answered by `Admitted`: send only after that; asked again, with the same guard. Answered by `Recorded` when the entry has
    ended already, and by `Doubtful` when an earlier request may have arrived and may be forgotten by now: send nothing then.
    `destination` is a declared one, whose window of deduplication counts; `publication` is for effects that publish.
    `entities` are the leases that the callback relies on. One a list, and not with `Suspend` or `Close`. Raises
    GuardedElsewhere while another callback is under way on something that this one would protect: nothing of the list was
    done then. Raises HolderUnknown, DestinationUnknown, EntryUnknown, and LeaseFenced for an entity that is held no more.
    """

    key: EntryKey
    holder: str
    destination: str | None = None
    publication: bool = False
    entities: Sequence[EntityLease] = ()
    op: Literal["admit_guard"] = "admit_guard"


@dataclass(frozen=True, slots=True)
class ReleaseGuard:
    """Remove one's own guard once its callback has returned, or has certainly sent nothing. In the list that records the
    outcome; whatever its place there, it is done before anything is recorded. Answered by `Done`, also when it is gone
    already. Raises GuardUnknown for another holder's (clause guards.release)."""

    token: str
    holder: str
    op: Literal["release_guard"] = "release_guard"


@dataclass(frozen=True, slots=True)
class HoldEntity:
    """Hold an entity: no other execution works on it meanwhile. Answered by `EntityHeld`; asked again it is extended.

    It lasts as long as the owner's lease and is renewed with it. Raises LeaseHeld while another execution has it, and
    ExecutionGuardBlocked while a guard keeps it from changing hands: nothing of the list was done then. Not with `Suspend`
    or `Close`.
    """

    namespace: str
    key: str
    op: Literal["hold_entity"] = "hold_entity"


@dataclass(frozen=True, slots=True)
class LetEntity:
    """Let go of an entity. Answered by `Done`, also when it is not held. Raises ExecutionGuardBlocked while one's own guard
    relies on it."""

    namespace: str
    key: str
    op: Literal["let_entity"] = "let_entity"


@dataclass(frozen=True, slots=True)
class SetMetadata:
    """Replace the run's metadata. Past METADATA_BYTES: RunMetadataTooLarge, with nothing changed. Answered by `Done`."""

    metadata: Mapping[str, Any]
    op: Literal["set_metadata"] = "set_metadata"


@dataclass(frozen=True, slots=True)
class Suspend:
    """Let go of the execution until `next_attempt_at` or until something that it awaits ends. Only as the last operation.

    `waiting` has an instant, `suspended` need not. `awaiting` is for people: labels, with what they wait for. Raises
    ExecutionWoken when something that is awaited has ended meanwhile: then nothing was let go, and the host goes on.
    """

    status: Literal["waiting", "suspended"]
    next_attempt_at: Instant | None
    awaiting: Sequence[Mapping[str, Any]] = ()
    op: Literal["suspend"] = "suspend"


@dataclass(frozen=True, slots=True)
class Close:
    """End the run. Only as the last operation. `success` retires the execution, with its journal; so does any end of an
    execution that recorded nothing. Otherwise the execution stays for the next opening of its scope (clauses
    runs.pin-release, runs.partial-failure, runs.resumable-remains).

    It raises ExecutionGuardBlocked: a success while a guard protects the scope, a failure while the host's own guard is
    held. A run that is canceled may have an effect in flight: it ends, and the execution stays with its guard (clause
    runs.cancel-keeps-effects).
    """

    status: Literal["success", "failed", "canceled"]
    result: Value | None = None
    error: Failure | None = None
    op: Literal["close"] = "close"


Operation = (
    Claim
    | Record
    | Put
    | Fail
    | GiveUp
    | Mint
    | Await
    | AwaitEvent
    | StartChild
    | Publish
    | CommitCursor
    | AdmitGuard
    | ReleaseGuard
    | HoldEntity
    | LetEntity
    | SetMetadata
    | Suspend
    | Close
)


@dataclass(frozen=True, slots=True)
class Claimed:
    """The entry is the host's: run the effect, or wait. `attempt` is the number of this try, from 1."""

    attempt: int
    ref: str | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """The entry has ended, or is taken: what it holds."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Admitted:
    """The callback may send, with this key in every request (`Idempotency-Key`), to `target` if a destination was named.

    After `window_ends_at` the destination may have forgotten the key; None: it never promised to know it. With `replayed`
    an earlier request may have arrived: then a refusal of this one does not say what became of the effect.
    """

    token: str
    idempotency_key: str
    admitted_at: Instant
    publication: bool
    window_ends_at: Instant | None = None
    target: Target | None = None
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Doubtful:
    """The guard stands, and nothing may be sent: an earlier request with the key may have arrived, and the destination may
    have forgotten it, so that another one might do it twice. Suspend, awaiting the guard: an operator finds out."""

    token: str
    evidence_class: EvidenceClass


@dataclass(frozen=True, slots=True)
class EntityHeld:
    """The entity is the execution's until then, unless it is renewed. `lease` is what a guard shows."""

    lease: EntityLease
    expires_at: Instant


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing more to tell."""


Outcome = Claimed | Recorded | Minted | Admitted | Doubtful | EntityHeld | Done

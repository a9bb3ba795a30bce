"""The nouns of the journal (clauses runs.entry-key, runs.idempotency-key, blobs.inline-cutoff)."""

import hashlib
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from moorage.kernel import canonical
from moorage.kernel.instants import Instant

State = Literal["pending", "waiting", "done", "failed", "canceled"]
"""Of an entry: claimed and its effect perhaps under way; waiting until an instant; recorded; failed for good; given up."""

ENDED: Final[frozenset[State]] = frozenset({"done", "failed", "canceled"})

Kind = Literal[
    "step", "fetch", "sleep", "awakeable", "wait", "event", "child", "publish", "cursor", "now", "random", "uuid", "join"
]
"""What an entry is about; `event` waits for one, and `join` is who won a race of branches. All follow the same rules; the
kind is for people and for the timeline."""

NO_INPUT: Final = hashlib.sha256(b"moorage: no input").hexdigest()
"""The hash of an input that was not given, which is neither null nor an empty object."""


@dataclass(frozen=True, slots=True)
class EntryKey:
    """What a recorded value is found by, inside one execution: the step's label and the SHA-256 of its input."""

    label: str
    input_sha256: str = NO_INPUT


@dataclass(frozen=True, slots=True)
class Value:
    """A value as canonical JSON: `text`, or the digest `blob` of an object when it passes JOURNAL_INLINE_BYTES.

    `size` is the bytes of the text. A blob is content-addressed bytes of the same canonical JSON text.
    """

    text: str | None
    size: int
    blob: str | None = None

    @classmethod
    def of(cls, text: str) -> "Value":
        """A value that is held in memory, whatever its size."""
        return cls(text, canonical.size(text))


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the journal. `value` is None unless it is done; its text is None too when it was not loaded.

    `position` is the branch and the place in it where the body asked: `3`, or `2.0/1` in the first branch of a gather.
    `attempt` counts tries of the effect from 1. `ref` is the awakeable or the run that it waits for.
    """

    key: EntryKey
    kind: Kind
    position: str
    state: State
    attempt: int
    epoch: int
    started_at: Instant
    ended_at: Instant | None = None
    ref: str | None = None
    next_attempt_at: Instant | None = None
    value: Value | None = None
    failure: dict[str, Any] | None = None


def input_hash(value: Any) -> str:
    """The hash of a step's input: of its canonical JSON, so that neither key order nor 1 against 1.0 makes a difference,
    while the composed and the decomposed form of one letter do."""
    return canonical.digest(canonical.dumps(value))


def wait_hash(token: str) -> str:
    """The input hash of the step that awaits an awakeable (clause awake.journal)."""
    return hashlib.sha256(f"awakeable:{token}".encode("utf-8", "surrogatepass")).hexdigest()


def idempotency_key(execution_id: str, key: EntryKey) -> str:
    """The key that every request of this entry's effect carries, on every attempt and after every crash alike."""
    told = f"{execution_id}\0{key.label}\0{key.input_sha256}"
    return f"moorage-{hashlib.sha256(told.encode()).hexdigest()[:40]}"


@dataclass(frozen=True, slots=True)
class Fence:
    """What a host shows with every write: the execution and the epoch of its lease (clause leases.fence)."""

    execution_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Lease:
    """An owner's lease on an execution. It lasts OWNER_LEASE_SECONDS and is renewed every OWNER_RENEW_SECONDS."""

    epoch: int
    owner: str
    expires_at: Instant
    attempt: int = field(default=1)

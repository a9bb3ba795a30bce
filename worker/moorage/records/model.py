"""The nouns of records."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from moorage.kernel.errors import FailureTag
from moorage.kernel.instants import Instant
from moorage.store.transaction import Row

State = Literal["ready", "claimed", "consumed", "dead"]

_LONG_INTEGER = re.compile(r"[0-9]{16}")


@dataclass(frozen=True, slots=True)
class Debounce:
    """Wait `seconds` for a later record with the same key, which takes this one's place, but never longer than
    `max_seconds` from the first."""

    key: str
    seconds: float
    max_seconds: float


@dataclass(frozen=True, slots=True)
class Draft:
    """A record that a client proposes. `id` and `not_before` are the client's wish; everything else about the record's
    identity is the runtime's (clause records.publish)."""

    kind: str
    body: Mapping[str, Any]
    parents: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    priority: int = 0
    not_before: Instant | None = None
    id: str | None = None
    debounce: Debounce | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A stored record. `seq` is the history position of its publication; `body_sha256` covers the body's canonical JSON;
    `failure` is the last attempt's, if it failed; `ended_at` is when it was consumed or dead-lettered; `ready_until` is
    when a ready record becomes a dead letter, where its kind has a time to live."""

    id: str
    seq: int
    kind: str
    body: dict[str, Any]
    metadata: dict[str, Any]
    parents: list[str]
    state: State
    created_at: Instant
    created_by: str
    body_sha256: str
    priority: int
    attempts: int
    not_before: Instant | None
    ended_at: Instant | None
    failure: dict[str, Any] | None
    ready_until: Instant | None = None

    @classmethod
    def of(cls, row: Row) -> "Record":
        """The record that a row with RECORD_COLUMNS holds."""
        return cls(
            id=row["id"],
            seq=row["seq"],
            kind=row["kind"],
            body=stored_json(row["body"]),
            metadata=stored_json(row["metadata"]),
            parents=json.loads(row["parents"]),
            state=row["state"],
            created_at=row["created_at"],
            created_by=row["created_by"],
            body_sha256=row["body_sha256"],
            priority=row["priority"],
            attempts=row["attempts"],
            not_before=row["not_before"] if row["state"] == "ready" and not row["available"] else None,
            ended_at=row["ended_at"],
            failure=json.loads(row["failure"]) if row["failure"] else None,
            ready_until=row["ready_until"] if row["state"] == "ready" else None,
        )


def stored_json(text: str) -> Any:
    """The value of canonical text that the house stored itself, with the types that it had when it came in.

    Canonical JSON writes the double 1e20 with the digits of an integer; past 2^53 - 1 every number is a double here.
    """
    return json.loads(text, parse_int=_number) if _LONG_INTEGER.search(text) else json.loads(text)


def _number(digits: str) -> int | float:
    value = int(digits)
    return value if abs(value) < 2**53 else float(digits)


@dataclass(frozen=True, slots=True)
class RecordLease:
    """The lease that comes with a claim: `epoch` is the fencing number to show with every write under it."""

    epoch: int
    owner: str
    expires_at: Instant
    attempt: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A claimed record and its lease."""

    record: Record
    lease: RecordLease


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """What a claimer shows to renew, release, settle or fail: which record, under which epoch."""

    record: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed: a tag of the closed set and a message for people."""

    tag: FailureTag
    message: str


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a settlement answers: the receipt (the same for every replay), the consumed record, the results."""

    receipt: dict[str, Any]
    record: Record
    results: list[Record]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One time that a record was handed out and not given back unworked."""

    attempt: int
    epoch: int
    owner: str
    claimed_at: Instant


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead-lettered record with the attempts that led there, oldest first, since it was last requeued."""

    record: Record
    attempts: list[Attempt]


@dataclass(frozen=True, slots=True)
class Relative:
    """A record of a lineage answer, `depth` generations away."""

    depth: int
    record: Record

"""The nouns of awakeables."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from moorage.kernel.errors import FailureTag
from moorage.kernel.instants import Instant, render
from moorage.store.transaction import Row

TOKEN_PREFIX: Final = "awk_tok"  # noqa: S105 - what every token begins with

State = Literal["pending", "resolved", "rejected", "timed_out"]


@dataclass(frozen=True, slots=True)
class Draft:
    """What a program asks for when it mints: `deadline = created_at + ttl_seconds` (clause awake.deadline).

    `created_at` is None for now. `subject` is who alone may resolve; None admits every credential (clause
    awake.binding).
    """

    ttl_seconds: float
    created_at: Instant | None = None
    subject: str | None = None
    label: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why an awakeable was rejected: a tag of the closed set and a message for people."""

    tag: FailureTag
    message: str

    def wire(self) -> dict[str, Any]:
        """The rejection as JSON."""
        return {"tag": self.tag.value, "message": self.message}


@dataclass(frozen=True, slots=True)
class Awakeable:
    """An awakeable as of the instant it was read: past its deadline a pending one is `timed_out`, written down or not.

    `payload` is the canonical JSON text of what resolved it; a large one is None until it was loaded, and `payload_blob`
    names the object that has it. `ended_at` of a timed out one is its deadline. `execution_id` is who minted it in a run.
    """

    id: str
    state: State
    subject: str | None
    label: str | None
    metadata: dict[str, Any]
    created_at: Instant
    created_by: str
    deadline: Instant
    payload: str | None
    rejection: Rejection | None
    ended_at: Instant | None
    ended_by: str | None
    execution_id: str | None = None
    payload_blob: str | None = None

    @classmethod
    def of(cls, row: Row) -> "Awakeable":
        """The awakeable that a row of the room's statements holds."""
        failure = json.loads(row["failure"]) if row["failure"] else None
        return cls(
            id=row["id"],
            state=row["state"],
            subject=row["subject"],
            label=row["label"],
            metadata=json.loads(row["metadata"]),
            created_at=row["created_at"],
            created_by=row["created_by"],
            deadline=row["deadline"],
            payload=row["payload"],
            rejection=Rejection(FailureTag(failure["tag"]), failure["message"]) if failure else None,
            ended_at=row["ended_at"],
            ended_by=row["ended_by"],
            execution_id=row["execution_id"],
            payload_blob=row["payload_blob"],
        )

    def outline(self) -> dict[str, Any]:
        """What whoever holds the token may see, as JSON: no payload and nothing that the minter noted."""
        return {
            "id": self.id,
            "state": self.state,
            "created_at": render(self.created_at),
            "deadline": render(self.deadline),
            "ended_at": None if self.ended_at is None else render(self.ended_at),
        }

    def wire(self) -> dict[str, Any]:
        """What its minter and operators may see, as JSON: all but the payload. Never the token, which is not kept."""
        return {
            **self.outline(),
            "subject": self.subject,
            "label": self.label,
            "metadata": self.metadata,
            "created_by": self.created_by,
            "execution_id": self.execution_id,
            "ended_by": self.ended_by,
            "error": self.rejection.wire() if self.rejection else None,
        }

    def value(self) -> Any:
        """The payload as a value; None too when there is none, so look at `state` first."""
        return None if self.payload is None else json.loads(self.payload)


@dataclass(frozen=True, slots=True)
class Minted:
    """A new awakeable and its token, which exists nowhere else: only its SHA-256 is stored."""

    awakeable: Awakeable
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Shown:
    """What a caller sees of an awakeable: `full` is True for its minter and for operators, others see the outline."""

    awakeable: Awakeable
    full: bool

    def wire(self) -> dict[str, Any]:
        """The answer as JSON; `payload` is there once it is resolved, for those who see it in full."""
        if not self.full:
            return self.awakeable.outline()
        body = self.awakeable.wire()
        if self.awakeable.state == "resolved":
            body["payload"] = self.awakeable.value()
        return body


def token_sha256(token: str) -> str:
    """What is stored of a token. Any text has one, so that a malformed token is merely unknown."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()

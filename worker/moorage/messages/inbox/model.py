"""The nouns of events (clauses inbox.accept, inbox.immutable, inbox.actor, inbox.causation)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from moorage.kernel.instants import Instant, render
from moorage.store.transaction import Row

Disposition = Literal["woke", "correlated", "unmatched"]
"""What routing made of an event: it woke somebody; it belongs to a work by one of its keys; neither. Kept for audit."""

WEBHOOKS: Final = "/webhooks/"
"""Below this are the sources of webhooks, each its sender's own: what came there under an id was verified as theirs."""

TIMERS: Final = "/timers/"
"""Below this are the sources of timers, each a timer's own unless its template names another."""

KEY_TERM: Final = "k:"
TYPE_TERM: Final = "t:"
"""By what events and waits are found: behind one of these a key, or a type."""


@dataclass(frozen=True, slots=True)
class EventDraft:
    """An event as it comes in, checked already.

    `source` and `delivery_id` are its identity: the CloudEvents attributes source and id. `attributes` are its other context
    attributes as they were sent: specversion, type, subject, time, datacontenttype, dataschema and extensions. `data` is the
    canonical JSON of its data, or None when it has none. `keys` is by what waits and works find it. `event_id` is its own
    id here, where somebody chose one. `causation` is the id of the event that caused it.
    """

    source: str
    delivery_id: str
    type: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    data: str | None = None
    keys: tuple[str, ...] = ()
    scope: str | None = None
    causation: str | None = None
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """An accepted event. `seq` orders all by their acceptance and has gaps. `work` is what one of its keys belongs to.
    `content_sha256` is the digest of the event as it was sent, in structured mode and canonical JSON."""

    seq: int
    event_id: str
    source: str
    delivery_id: str
    type: str
    keys: tuple[str, ...]
    actor: str
    causation: str | None
    scope: str | None
    content_sha256: str
    accepted_at: Instant
    routed_at: Instant | None
    disposition: Disposition | None
    work: str | None
    envelope: Mapping[str, Any]
    data: str | None = field(repr=False, default=None)

    @classmethod
    def of(cls, row: Row) -> "Event":
        """The event that a row holds."""
        return cls(**{**row, "keys": tuple(json.loads(row["keys"])), "envelope": json.loads(row["envelope"])})

    def cloud_event(self) -> dict[str, Any]:
        """The event as it was sent: CloudEvents 1.0 in structured mode, with `data` as a JSON value."""
        told = {"specversion": "1.0", "id": self.delivery_id, "source": self.source, "type": self.type, **self.envelope}
        return told if self.data is None else {**told, "data": json.loads(self.data)}

    def answer(self) -> dict[str, Any]:
        """What a client is shown."""
        return {
            "event_id": self.event_id,
            "seq": self.seq,
            "source": self.source,
            "id": self.delivery_id,
            "type": self.type,
            "keys": list(self.keys),
            "actor": self.actor,
            "causation": self.causation,
            "scope": self.scope,
            "content_sha256": self.content_sha256,
            "accepted_at": render(self.accepted_at),
            "routed_at": None if self.routed_at is None else render(self.routed_at),
            "disposition": self.disposition,
            "work": self.work,
            "event": self.cloud_event(),
        }

"""The noun of deliveries: one event, one subscription, and how the sending of it stands (clause outbox.lag)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from moorage.history.query import Entry
from moorage.kernel import canonical, ids
from moorage.kernel.instants import Instant, render
from moorage.messages.outbox import outbox_statements as statements
from moorage.messages.outbox.domain_events import cloud_event, event_id_of
from moorage.store.chunks import json_arrays
from moorage.store.transaction import Answer, Row, Transaction

State = Literal["pending", "delivered", "dead", "canceled"]

COMPLETIONS: Final = "_completions"
"""The subscription to which the deliveries of runs' ends belong. No client can make one of this name."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery. `body` is what is sent, the same bytes each time; `generation` counts how often somebody asked for it.

    `attempts` counts those of this generation. A pending one is sent at `next_attempt_at`; while it is being sent, that is
    the end of its lease, and `epoch` fences what is written of it.
    """

    delivery_id: str
    subscription: str
    destination: str
    event_id: str
    type: str
    aggregate_id: str
    position: int
    generation: int
    state: State
    attempts: int
    epoch: int
    next_attempt_at: Instant | None
    leased_until: Instant | None
    occurred_at: Instant
    created_at: Instant
    first_attempt_at: Instant | None
    ended_at: Instant | None
    last_status: int | None
    last_error: str | None
    body: str | None = field(repr=False, default=None)

    @classmethod
    def of(cls, row: Row) -> "Delivery":
        """The delivery that a row holds; a row of a page is without its body."""
        return cls(**row)

    def answer(self) -> dict[str, Any]:
        """What a client is shown, without the body."""
        return {
            "delivery_id": self.delivery_id,
            "subscription": self.subscription,
            "destination": self.destination,
            "event_id": self.event_id,
            "type": self.type,
            "aggregate_id": self.aggregate_id,
            "generation": self.generation,
            "state": self.state,
            "attempts": self.attempts,
            "next_attempt_at": _shown(self.next_attempt_at),
            "leased_until": _shown(self.leased_until),
            "occurred_at": render(self.occurred_at),
            "created_at": render(self.created_at),
            "first_attempt_at": _shown(self.first_attempt_at),
            "ended_at": _shown(self.ended_at),
            "last_status": self.last_status,
            "last_error": self.last_error,
        }

    def whole(self) -> dict[str, Any]:
        """The same with the body, as text: the bytes that are sent and signed."""
        return {**self.answer(), "body": self.body}


def plan(
    tx: Transaction, subscription: str, project: str, told: Sequence[tuple[Entry, str]], *, once_for: str | None = None
) -> list[Answer]:
    """Plan deliveries of entries to destinations, due at once, in the order of their positions.

    What this subscription has a delivery of already is left alone. `once_for` names a run: nothing is inserted when the
    destination was told of its completion's request before. Each answer's `changes` counts what was inserted.
    """
    made = ids.several("dlv", tx.now, len(told))
    rows = (
        canonical.compact(
            {
                "delivery_id": id_,
                "destination": destination,
                "event_id": event_id_of(entry),
                "type": entry.type,
                "aggregate_id": entry.subject,
                "position": entry.position,
                "occurred_at": entry.at,
                "body": cloud_event(entry, project),
            }
        )
        for id_, (entry, destination) in zip(made, told, strict=True)
    )
    return _insert(tx, subscription, rows, once_for)


def _insert(tx: Transaction, subscription: str, rows: Iterable[str], once_for: str | None) -> list[Answer]:
    return [
        tx.run(statements.INSERT, subscription=subscription, deliveries=array, once_for=once_for)
        for array in json_arrays(rows)
    ]


def _shown(instant: Instant | None) -> str | None:
    return None if instant is None else render(instant)

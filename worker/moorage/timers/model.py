"""The nouns of timers (clauses timers.fire, timers.late).

A timer accepts an event at an instant. It is named by its client and has a revision: that of its last entry in history,
which numbers what happened to `timer:<id>` without gaps, over firing, deletion and making anew. So a revision never comes
back.
"""

import json
from dataclasses import dataclass, field
from typing import Any, Final

from moorage.kernel import canonical
from moorage.kernel.instants import Instant, render
from moorage.messages.inbox.model import EventDraft
from moorage.store.transaction import Row
from moorage.timers.aside import Failing

SUBJECT: Final = "timer:"
"""How history calls a timer: `timer:<id>`."""


@dataclass(frozen=True, slots=True)
class Template:
    """The event that a timer sends. `data` is canonical JSON, None for none. Without `event_id` the timer's id and revision
    make one; without `source` it is `/timers/<id>`. A timer that repeats adds `@<due instant>` to the id."""

    type: str
    source: str | None = None
    event_id: str | None = None
    subject: str | None = None
    keys: tuple[str, ...] = ()
    data: str | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """A timer that a client asks for: at `fire_at`, or `delay_ms` from now; one of them is there. It repeats every
    `every_ms` from its own instants, never from when it was fired."""

    template: Template
    fire_at: Instant | None = None
    delay_ms: int | None = None
    every_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer that has not fired, or will again at `fire_at`; `failing` if it could not be fired so far."""

    id: str
    revision: int
    fire_at: Instant
    every_ms: int | None
    source: str
    type: str
    delivery_id: str
    subject: str | None
    keys: tuple[str, ...]
    created_by: str
    credential: str | None
    created_at: Instant
    updated_at: Instant
    data: str | None = field(repr=False, default=None)
    failing: Failing | None = None

    @classmethod
    def of(cls, row: Row) -> "Timer":
        """The timer that a row holds."""
        return cls(**{**row, "keys": tuple(json.loads(row["keys"])), "failing": Failing.of(row.get("failing"))})

    def draft(self) -> EventDraft:
        """The event that it sends when it fires next: of its due instant, however late that is."""
        return draft_of(self.fire_at, self.every_ms, self.source, self.delivery_id, self.template())

    def template(self) -> Template:
        """What it sends, as it was asked for."""
        return Template(self.type, self.source, self.delivery_id, self.subject, self.keys, self.data)

    def answer(self, *, with_data: bool = True) -> dict[str, Any]:
        """What a client is shown; its event's data where that was read."""
        event: dict[str, Any] = {
            "source": self.source,
            "type": self.type,
            "id": self.delivery_id,
            "subject": self.subject,
            "keys": list(self.keys),
        }
        if with_data and self.data is not None:
            event["data"] = canonical.stored(self.data)
        return {
            "id": self.id,
            "revision": self.revision,
            "fire_at": render(self.fire_at),
            "every_seconds": None if self.every_ms is None else self.every_ms / 1000,
            "event": event,
            "created_by": self.created_by,
            "created_at": render(self.created_at),
            "updated_at": render(self.updated_at),
            "failing": None if self.failing is None else self.failing.answer(),
        }


def draft_of(fire_at: Instant, every_ms: int | None, source: str, delivery_id: str, template: Template) -> EventDraft:
    """The event of one occurrence. It is found by its subject and its keys."""
    attributes: dict[str, Any] = {"time": render(fire_at)}
    keys = list(template.keys)
    if template.subject is not None:
        attributes["subject"] = template.subject
        keys = [template.subject, *(key for key in keys if key != template.subject)]
    if template.data is not None:
        attributes["datacontenttype"] = "application/json"
    id_ = delivery_id if every_ms is None else f"{delivery_id}@{render(fire_at)}"
    return EventDraft(source, id_, template.type, attributes, template.data, tuple(keys))

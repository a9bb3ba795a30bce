"""Records to publish, as clients write them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from moorage.client.models import rfc3339


@dataclass(frozen=True, slots=True)
class Debounce:
    """Wait `seconds` for a later record with the same key, which takes this one's place, but never longer than
    `max_seconds` from the first. Keys are the publisher's own."""

    key: str
    seconds: float
    max_seconds: float


@dataclass(frozen=True, slots=True)
class Draft:
    """A record to publish, or to return from a worker as a result (where `parents` must stay empty: the claimed record
    is the parent). `id` is one of the client's own choice, never reused; `not_before` needs a time zone."""

    kind: str
    body: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    parents: Sequence[str] = ()
    priority: int = 0
    not_before: datetime | None = None
    id: str | None = None
    debounce: Debounce | None = None

    def wire(self) -> dict[str, Any]:
        """As JSON, without what was left out."""
        sent: dict[str, Any] = {"kind": self.kind, "body": dict(self.body)}
        if self.metadata:
            sent["metadata"] = dict(self.metadata)
        if self.parents:
            sent["parents"] = list(self.parents)
        if self.priority:
            sent["priority"] = self.priority
        if self.not_before is not None:
            sent["not_before"] = rfc3339(self.not_before)
        if self.id is not None:
            sent["id"] = self.id
        if self.debounce is not None:
            sent["debounce"] = asdict(self.debounce)
        return sent

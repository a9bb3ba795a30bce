"""Domain events: entries of history as other systems are told of them (clauses outbox.atomic, outbox.event-shape).

The outbox is history itself. Its entries are written with the change that they tell of and number their subject without
gaps, so nothing has to be written twice, and nothing can be told that did not happen. What is sent is compact: who wants
more reads what `data_ref` names, with a credential of their own.
"""

from typing import Any, Final
from urllib.parse import quote

from moorage.history.query import Entry
from moorage.kernel import canonical
from moorage.kernel.instants import render

SCHEMA_VERSION: Final = "1"

_PREFIX: Final = "dom_"
_DIGITS: Final = 16
"""Digits of a position: text order is the order of the commits."""

_DIGEST: Final = 12
"""Hexadecimal digits of the digest of what the entry says."""

_RUNS: Final = "run."

_REFERENCES: Final = {
    "record": "/records/{subject}",
    "run": "/runs/{subject}",
    "event": "/events/{subject}",
    "delivery": "/deliveries/{subject}",
}
"""Where what an entry is about is read, by the first word of its type."""


def event_id_of(entry: Entry) -> str:
    """The id of the event that an entry is; the same whenever and to whomever it is told, and never that of another.

    Its position alone would not do: a database that comes back from a copy gives out positions again. So the id is made of
    what the entry says as well, its instant among that. An entry that was in the copy keeps its id, also where it is told
    only after that.
    """
    data = canonical.compact(entry.data)  # of an entry that was edited too, which may have no canonical form
    said = [entry.subject, entry.revision, entry.type, entry.actor, entry.at, entry.content_sha256, data]
    return f"{_PREFIX}{entry.position:0{_DIGITS}d}_{canonical.digest(canonical.dumps(said))[:_DIGEST]}"


def data_ref(entry: Entry) -> str:
    """The path under which what the entry is about is read, or its history where there is no such thing."""
    template = _REFERENCES.get(entry.type.partition(".")[0], "/history?subject={subject}")
    return template.format(subject=quote(entry.subject, safe=""))


def domain_event(entry: Entry) -> dict[str, Any]:
    """What is told of an entry: no body of a record, no result, nothing of what its data holds but how a run stands."""
    told: dict[str, Any] = {
        "event_id": event_id_of(entry),
        "schema_version": SCHEMA_VERSION,
        "aggregate_id": entry.subject,
        "aggregate_revision": entry.revision,
        "occurred_at": render(entry.at),
        "type": entry.type,
        "data_ref": data_ref(entry),
    }
    if entry.kind is not None:
        told["kind"] = entry.kind
    if entry.content_sha256 is not None:
        told["content_sha256"] = entry.content_sha256
    if entry.type.startswith(_RUNS) and isinstance(entry.data.get("status"), str):
        told["status"] = entry.data["status"]
    return told


def cloud_event(entry: Entry, project: str) -> str:
    """The bytes that are sent: a CloudEvent in structured mode, as canonical JSON, the same for every subscription."""
    return canonical.dumps(
        {
            "specversion": "1.0",
            "id": event_id_of(entry),
            "source": f"/moorage/{project}",
            "type": entry.type,
            "subject": entry.subject,
            "time": render(entry.at),
            "datacontenttype": "application/json",
            "data": domain_event(entry),
        }
    )

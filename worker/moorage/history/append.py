"""Appending to history: the only way in, always as part of the mutation's own transaction (clause history.append).

Every entry is also noted in the transaction's `told`, by which those who wait for what it tells are woken after the commit,
and its type in `entered`, by which whoever is subscribed to history is told of it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from moorage.history import statements
from moorage.kernel import canonical
from moorage.store.chunks import json_arrays
from moorage.store.transaction import Answer, Scalar, Told, Transaction

CLOCK: Final = "moorage:clock"
"""The actor of what time alone has done; no subject can be called so."""

_WITH_KINDS = "RETURNING kind"
"""Only the database knows of which kind the rows of a selection are."""

UNKNOWN: Final = "?"
"""Stands for the type of entries whose type only the database knows."""

ENDS_OF_RECORDS: Final = frozenset({"record.settled", "record.canceled", "record.dead_lettered"})
_WITH_TRIGGERS = "RETURNING kind, data ->> '$.triggered' AS triggered"
"""The same of records that have ended, and whether a schedule may wait for that."""

ENDS_OF_RUNS: Final = frozenset({"run.closed", "run.reaped"})
_WITH_RUNS = """
RETURNING kind, subject, (
    SELECT json_array(r.runner, r.metadata ->> '$.trigger_id' IS NOT NULL) FROM runs AS r WHERE r.run_id = subject
) AS run
"""
"""Whose ends are told to those who watch them, who keeps their views, and whether a schedule may wait for that."""


@dataclass(frozen=True, slots=True)
class Event:
    """What to append: `subject` is the id of the thing it happened to; `data` is small JSON without secrets."""

    subject: str
    type: str
    data: Mapping[str, Any] = field(default_factory=dict)
    kind: str | None = None
    content_sha256: str | None = None


def append(tx: Transaction, actor: str, event: Event) -> Answer:
    """Append one entry at the transaction's instant; the answer holds its `position`."""
    _tell(tx, [event])
    return tx.run(
        statements.APPEND,
        subject=event.subject,
        type=event.type,
        kind=event.kind,
        actor=actor,
        data=canonical.dumps(dict(event.data)),
        content_sha256=event.content_sha256,
    )


def append_many(tx: Transaction, actor: str, events: Sequence[Event]) -> None:
    """Append entries in order at consecutive positions; each subject may occur once."""
    _tell(tx, events)
    entries = (
        canonical.compact(
            {
                "subject": event.subject,
                "type": event.type,
                "kind": event.kind,
                "data": canonical.dumps(dict(event.data)),
                "content_sha256": event.content_sha256,
            }
        )
        for event in events
    )
    for array in json_arrays(entries):
        tx.run(statements.APPEND_MANY, actor=actor, entries=array)


def append_selected(
    tx: Transaction, actor: str, type_: str, selection: str, *, many: bool = False, **parameters: Scalar
) -> Answer:
    """Append an entry for the row that `selection` gives inside the transaction, or for each of its rows when `many`.

    For changes whose subjects only the database knows: which records a claim took, what a failure led to. It reads fewer
    rows for one than for many; a selection that gives more than one where one was meant breaks the transaction.
    """
    template = statements.APPEND_SELECTED if many else statements.APPEND_SELECTED_ONE
    sql = template.replace("{selection}", selection) + _returning(type_)
    tx.entered.add(type_)
    appended = tx.run(sql, type=type_, actor=actor, **parameters)
    tx.told.append(Told(type_, appended))
    return appended


def append_told(tx: Transaction, selection: str, *, many: bool = False, **parameters: Scalar) -> Answer:
    """The same where only the database knows what happened and who did it: the selection gives `type` and `actor` too.

    For what is of no kind: nobody waits for such an entry, and none is woken by it.
    """
    template = statements.APPEND_SELECTED if many else statements.APPEND_SELECTED_ONE
    sql = template.replace(":type", "chosen.type").replace(":actor", "chosen.actor").replace("{selection}", selection)
    tx.entered.add(UNKNOWN)
    return tx.run(sql, **parameters)


def _returning(type_: str) -> str:
    if type_ in ENDS_OF_RUNS:
        return _WITH_RUNS
    return _WITH_TRIGGERS if type_ in ENDS_OF_RECORDS else _WITH_KINDS


def _tell(tx: Transaction, events: Sequence[Event]) -> None:
    for type_ in {event.type for event in events}:
        tx.entered.add(type_)
        kinds = Counter(event.kind for event in events if event.type == type_ and event.kind is not None)
        if kinds:
            tx.told.append(Told(type_, kinds))

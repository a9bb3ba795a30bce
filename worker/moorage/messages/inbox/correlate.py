"""Correlations: which work a key of the outside belongs to (clause inbox.correlation).

A work is what a scope names under which runs open: it outlives every one of them. A key is a source, as events name it, and
an id there. It belongs to one work at most, from when it is attached and for ever; events that carry it belong to that work.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from moorage.catalog.access import Caller
from moorage.history.append import append_selected
from moorage.kernel import canonical
from moorage.kernel.errors import CorrelationConflict
from moorage.kernel.instants import Instant, render
from moorage.kernel.limits import CORRELATIONS, SCOPE_CHARACTERS
from moorage.kernel.pages import Page, PageRequest
from moorage.kernel.refusals import check_line, refused
from moorage.messages.inbox import correlation_statements as statements
from moorage.messages.inbox.checks import check_source
from moorage.store.ports import Database
from moorage.store.transaction import Answer, Reading, Row, Transaction


@dataclass(frozen=True, slots=True)
class ExternalKey:
    """What a thing is called outside: by whom, as the source of its events is, and how."""

    source: str
    external_id: str

    def answer(self) -> dict[str, str]:
        """As JSON."""
        return {"source": self.source, "external_id": self.external_id}


@dataclass(frozen=True, slots=True)
class Correlation:
    """A key that belongs to a work."""

    source: str
    external_id: str
    work: str
    attached_at: Instant
    attached_by: str

    @classmethod
    def of(cls, row: Row) -> "Correlation":
        """The correlation that a row holds."""
        return cls(**row)

    def answer(self) -> dict[str, Any]:
        """What a client is shown."""
        return {
            "source": self.source,
            "external_id": self.external_id,
            "work": self.work,
            "attached_at": render(self.attached_at),
            "attached_by": self.attached_by,
        }


def plan(tx: Transaction, work: str, keys: Sequence[ExternalKey], by: str) -> Answer:
    """Attach keys to a work in this transaction, all or none; what belongs to it already stays as it is.

    The answer has the keys as they stand, in order. Nothing removes them. The commit raises CorrelationConflict when one
    belongs to another work. Raises what `check` raises.
    """
    check(keys)
    sent = canonical.compact([key.answer() for key in keys])
    tx.require(statements.KEYS_ARE_FREE, CorrelationConflict(), keys=sent, work=work)
    append_selected(tx, by, "correlation.attached", statements.ATTACHING, keys=sent, subject=f"correlation:{work}")
    tx.run(statements.ATTACH, keys=sent, work=work, by=by)
    return tx.run(statements.ATTACHED, keys=sent)


async def attach(db: Database, caller: Caller, now: Instant, work: str, keys: Sequence[ExternalKey]) -> list[Correlation]:
    """Attach keys to a work, in one round trip. Raises Forbidden, what `plan` raises, CorrelationConflict."""
    caller.demand("operate")
    check_work(work)
    tx = Transaction(now)
    caller.guard(tx)
    attached = plan(tx, work, keys, caller.subject)
    await db.commit(tx)
    return [Correlation.of(row) for row in attached.rows]


async def of_work(db: Database, caller: Caller, work: str, page: PageRequest) -> Page[Correlation]:
    """The keys of a work by source and id. Raises Forbidden, CursorMismatch."""
    caller.demand("operate")
    filters = ["correlations", work]
    source, external_id = page.after(filters, str, str) or ("", "")
    reading = Reading()
    rows = reading.ask(statements.OF_WORK, work=work, source=source, external_id=external_id, limit=page.limit + 1)
    await db.read(reading)
    return page.page(rows.rows, filters, lambda row: [row["source"], row["external_id"]], Correlation.of)


async def of_key(db: Database, caller: Caller, key: ExternalKey) -> Page[Correlation]:
    """The work that a key belongs to, if it belongs to any. Raises Forbidden."""
    caller.demand("operate")
    reading = Reading()
    rows = reading.ask(statements.KEY, source=key.source, external_id=key.external_id)
    await db.read(reading)
    return Page([Correlation.of(row) for row in rows.rows], None)


def check_work(work: str) -> None:
    """Raise RequestInvalid for what no scope of a run can be."""
    check_line(work, "/work")
    if len(work) > SCOPE_CHARACTERS:
        raise refused("/work", f"must have at most {SCOPE_CHARACTERS} characters")


def check(keys: Sequence[ExternalKey], pointer: str = "/keys") -> None:
    """Raise RequestInvalid, at `pointer`, for more than CORRELATIONS keys, for one twice, and for one that no event can
    carry."""
    if len(keys) > CORRELATIONS:
        raise refused(pointer, f"has more than {CORRELATIONS} keys", f"at most {CORRELATIONS} keys are attached at once")
    if len(set(keys)) < len(keys):
        raise refused(pointer, "names a key twice", "a key is named twice")
    for place, key in enumerate(keys):
        check_source(key.source, f"{pointer}/{place}/source")
        check_line(key.external_id, f"{pointer}/{place}/external_id")

"""Who may work on a claim: it takes its subject, its epoch and a grant to claim (clauses catalog.grants, leases.fence).

A subject may have several credentials, and each is held to its own grants. Whoever may claim every record of every kind is
asked nothing more. A grant for some kinds is a precondition of the transaction itself. Whether a record is within a grant
that a pattern narrows only its body tells, so it is read first: one round trip more. Neither kind nor body of a claimed
record ever changes, so what was read holds when the transaction commits.
"""

from collections.abc import Sequence

from moorage.catalog.access import Caller
from moorage.catalog.kinds import Kinds
from moorage.kernel import canonical
from moorage.kernel.errors import Forbidden, RecordUnknown
from moorage.kernel.instants import Instant
from moorage.records import admission_statements as statements
from moorage.records import query
from moorage.records.visibility import visible
from moorage.store.ports import Database
from moorage.store.transaction import Transaction

Refusal = Forbidden | RecordUnknown


class NotGranted(Exception):
    """The caller may not claim records of this kind: `refusal` says what it is told. It never leaves the house."""


def kinds_asked(caller: Caller) -> list[str] | None:
    """The names and prefixes of the kinds that a transaction has to hold the record against; None when it need not."""
    return None if caller.is_narrowed("claim") else caller.whole("claim")


def require(tx: Transaction, caller: Caller, record: str) -> None:
    """Let the transaction commit only if the record is of a kind that the caller may claim; it aborts with NotGranted."""
    asked = kinds_asked(caller)
    if asked is not None:
        tx.require(statements.IS_OF_KINDS, NotGranted(), record=record, granted=canonical.compact(asked))


async def refusals(db: Database, kinds: Kinds, caller: Caller, now: Instant, records: Sequence[str]) -> dict[str, Refusal]:
    """What the caller is told of those of the records that it may not claim; one round trip."""
    found = await query.read(db, records)
    open_to = {record.id for record in await visible(db, kinds, caller, now, found, "claim")}
    readable = {record.id for record in await visible(db, kinds, caller, now, found) if not caller.may("claim", record.kind)}
    return {one: _refusal(one in readable) for one in records if one not in open_to}


async def refusal(db: Database, kinds: Kinds, caller: Caller, now: Instant, record: str) -> Refusal:
    """What NotGranted means to this caller: Forbidden for a record that it may read, else that there is none."""
    return (await refusals(db, kinds, caller, now, [record])).get(record, RecordUnknown())


async def admit(db: Database, kinds: Kinds, caller: Caller, now: Instant, record: str) -> None:
    """Raise RecordUnknown or Forbidden for a record that is outside the caller's narrowed grants to claim."""
    if caller.is_narrowed("claim"):
        for refused in (await refusals(db, kinds, caller, now, [record])).values():
            raise refused


def _refusal(readable: bool) -> Refusal:
    return Forbidden("the credential does not grant claim on the record's kind") if readable else RecordUnknown()

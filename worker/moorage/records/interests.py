"""Interests: what workers look for, said ahead, and which of them a proposed record would reach.

An interest is a hint for people and programs that route: it takes no part in claims. A worker says the kind and pattern
that it will claim with, and says so again before it expires; from its expiry on it counts as absent (clauses
records.interests, records.dry-run).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from moorage.catalog.access import Caller
from moorage.catalog.credentials import grants_of
from moorage.catalog.kinds import Kind, Kinds
from moorage.history.append import append_selected
from moorage.kernel import canonical, ids
from moorage.kernel.errors import InterestUnknown, PatternInvalid
from moorage.kernel.instants import Instant, after, full_ten_minutes
from moorage.kernel.limits import DRY_RUN_INTERESTS, INTEREST_TTL_SECONDS
from moorage.kernel.pages import Page, PageRequest
from moorage.kernel.refusals import refused
from moorage.records import interest_statements as statements
from moorage.records import publish
from moorage.records.model import Draft
from moorage.records.patterns import both, evaluate, parse
from moorage.records.visibility import matching, narrowed
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Transaction

SWEEP: Final = 500
"""Interests that one transaction forgets."""


@dataclass(frozen=True, slots=True)
class Interest:
    """A worker's interest. Worker and subject name it: two subjects may call their workers the same."""

    worker: str
    subject: str
    kind: str
    match: dict[str, Any]
    created_at: Instant
    expires_at: Instant

    @classmethod
    def of(cls, row: Row) -> "Interest":
        """The interest that a row holds."""
        return cls(
            row["worker"], row["subject"], row["kind"], canonical.stored(row["match"]), row["created_at"], row["expires_at"]
        )


async def declare(
    db: Database,
    kinds: Kinds,
    caller: Caller,
    now: Instant,
    worker: str,
    kind_name: str,
    match: Mapping[str, Any],
    ttl_seconds: float,
) -> Interest:
    """Say what a worker looks for, or renew it, for `ttl_seconds` (1 to INTEREST_TTL_SECONDS) from now.

    It takes the place of what the caller's worker of this name said before. History tells of a new or changed interest,
    not of a renewal. Raises KindUnknown, Forbidden without a grant to claim, PatternInvalid, IdInvalid, RequestInvalid.
    """
    ids.check_client_id(worker, "a worker's name")
    if not 1 <= ttl_seconds <= INTEREST_TTL_SECONDS:
        message = f"an interest lasts 1 to {INTEREST_TTL_SECONDS} seconds"
        raise refused("/ttl_seconds", message, message)
    await matching(db, kinds, caller, now, kind_name, "claim", match, guarded=True)
    text = canonical.dumps(dict(match))
    tx = Transaction(now)
    caller.guard(tx)
    append_selected(tx, caller.subject, "interest.declared", statements.DECLARING, worker=worker, kind=kind_name, match=text)
    declared = tx.run(
        statements.DECLARE,
        worker=worker,
        actor=caller.subject,
        kind=kind_name,
        match=text,
        credential=caller.credential,
        expires_at=after(now, ttl_seconds),
    )
    await db.commit(tx)
    return Interest.of(declared.one())


async def withdraw(db: Database, caller: Caller, now: Instant, worker: str) -> None:
    """End the interest of the caller's own worker of this name. Raises InterestUnknown when there is none."""
    tx = Transaction(now)
    caller.guard(tx)
    tx.require(statements.IS_LIVE, InterestUnknown(), worker=worker, actor=caller.subject)
    append_selected(tx, caller.subject, "interest.withdrawn", statements.WITHDRAWING, worker=worker)
    tx.run(statements.WITHDRAW, worker=worker, actor=caller.subject)
    await db.commit(tx)


async def list_interests(
    db: Database, caller: Caller, now: Instant, page: PageRequest, kind_name: str | None = None
) -> Page[Interest]:
    """A page of live interests by worker: the caller's own, and those in kinds of which it may read every record.

    A pattern may quote what records hold, so a grant that is narrowed by a pattern shows no interests of others.
    """
    filters = ["interests", kind_name]
    worker, subject = page.after(filters, str, str) or ["", ""]
    visible = caller.whole("read")
    reading = Reading()
    rows = reading.ask(
        statements.PAGE,
        worker=worker,
        subject=subject,
        now=now,
        kind=kind_name,
        everything=visible is None,
        visible=canonical.dumps(visible or []),
        actor=caller.subject,
        limit=page.limit + 1,
    )
    await db.read(reading)
    return page.page(rows.rows, filters, lambda row: [row["worker"], row["subject"]], Interest.of)


async def dry_run(db: Database, kinds: Kinds, caller: Caller, now: Instant, draft: Draft) -> tuple[list[Interest], bool]:
    """The live interests that this record would match if it were published now, by worker; nothing is written.

    The draft is checked as a publication would be, the kind's limits on depth and rate aside. An interest is narrowed by
    the claim grants of the credential that declared it, as its claims are: what its worker could not claim it does not
    receive, and a revoked credential receives nothing. The flag tells that the kind has more than DRY_RUN_INTERESTS live
    interests, of which the first were asked. Raises what `publish` raises for the draft.
    """
    planned = await publish.plan(db, kinds, caller, now, [draft], fresh=True)
    [kind] = planned.kinds
    body = planned[0].shown[0]
    reading = Reading()
    found = reading.ask(statements.OF_KIND, kind=kind.name, now=now, limit=DRY_RUN_INTERESTS + 1)
    await db.read(reading)
    asked = found.rows[: int(DRY_RUN_INTERESTS)]
    return [Interest.of(row) for row in asked if _reaches(kind, row, body)], len(found.rows) > DRY_RUN_INTERESTS


def _reaches(kind: Kind, row: Row, body: Mapping[str, Any]) -> bool:
    owner = Caller(row["subject"], grants_of(row["grants"] or "[]"), row["credential"])
    if not owner.may("claim", kind.name):
        return False
    try:
        wanted = parse(canonical.stored(row["match"]), kind.paths)
    except PatternInvalid:
        # Its path was declared between the two reads.
        return False
    return evaluate(both(wanted, narrowed(owner, "claim", kind)), body)


def swept_at(interest: Interest) -> Instant:
    """When the Clock has to sweep for this interest: the full ten minutes at or after its expiry."""
    return full_ten_minutes(interest.expires_at)


class ExpiredInterests:
    """The Clock's class of work that forgets expired interests in bulk; nothing waits for it, it keeps the table small."""

    name = "interest_expired"
    shard: Final = "upkeep"
    earliest = statements.EARLIEST_EXPIRED
    page = statements.EXPIRED

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Forget at most SWEEP expired interests; what is left is listed again at once."""
        tx = Transaction(now)
        forgotten = tx.run(statements.FORGET, limit=SWEEP)
        await db.commit(tx)
        return forgotten.changes

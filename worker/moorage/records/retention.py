"""Retention: terminal records leave when their kind has kept them long enough (clause records.retention).

A kind with `retention_seconds` keeps a record for so long from its end, when it was consumed or died; without, for good.
What goes are the record and its edges to its parents. What stays is its history, which tells of the removal, and its id,
which is never used again. A record stays longer than its age says while

    a record that names it as a parent is ready or claimed,
    more than RETENTION_CHILDREN records name it as a parent,
    a delivery of what happened to it is pending, or
    an Idempotency-Key under which it was published, failed, cancelled or requeued may still ask for it.

The first three are looked at again after as long as the record has been ended already, from ten minutes to a day. A record
that outlives its parent keeps the parent's id among its `parents`, for a record never changes; lineage ends there.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from moorage.blobs import references
from moorage.catalog.access import Caller
from moorage.catalog.builtin import ARTIFACT
from moorage.catalog.kinds import Kind, Kinds
from moorage.history.append import CLOCK, append_selected
from moorage.kernel import canonical
from moorage.kernel.errors import Forbidden, KindConflict
from moorage.kernel.instants import Instant, after
from moorage.kernel.limits import RETENTION_COUNT
from moorage.records import retention_statements as statements
from moorage.records.model import Record, State
from moorage.records.visibility import visible_kind
from moorage.store.ports import Database
from moorage.store.transaction import Answer, Reading, Transaction

_MINUTE_MS: Final = 60_000

_TRIES: Final = 3


class _ArtifactStays(Exception):
    """An artifact that was to go is needed again: none of the batch may lose its bytes."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A record that is old enough to go."""

    id: str
    state: State
    ended_at: Instant


@dataclass(frozen=True, slots=True)
class Preview:
    """What a kind's retention would look at now.

    `candidates` are old enough and held by nothing that was noted before, counted no further than RETENTION_COUNT;
    `held` are put off or within a key's reach. `oldest` are the first of the candidates. Whether a candidate is still
    needed is found out only when it is its turn.
    """

    kind: Kind
    retention_seconds: int | None
    candidates: int
    held: int
    oldest: list[Candidate]


async def preview(
    db: Database, kinds: Kinds, caller: Caller, now: Instant, name: str, limit: int, seconds: int | None = None
) -> Preview:
    """What would go if the kind kept its records for `seconds`, by default for its own retention; nothing is changed.

    Raises KindUnknown, Forbidden without a grant to operate on every record of the kind.
    """
    await visible_kind(db, kinds, caller, now, name, "operate")
    if caller.narrowing("operate", name) is not None:
        raise Forbidden("a grant that a pattern narrows does not tell what retention would remove")
    kind = await kinds.get(db, now, name, fresh=True)
    kept = kind.retention_seconds if seconds is None else seconds
    if kept is None:
        return Preview(kind, None, 0, 0, [])
    until = now - kept * 1000
    reading = Reading()
    candidates = reading.ask(statements.COUNT, kind=name, until=until, most=RETENTION_COUNT)
    held = reading.ask(statements.COUNT_HELD, kind=name, most=RETENTION_COUNT)
    oldest = reading.ask(statements.OLDEST, kind=name, until=until, limit=limit)
    await db.read(reading)
    shown = [Candidate(row["id"], row["state"], row["ended_at"]) for row in oldest.rows]
    return Preview(kind, kept, candidates.one()["records"], held.one()["records"], shown)


def next_look(kinds: Kinds, record: Record) -> Instant | None:
    """When the Clock has to look at a record that has just ended; None for never, or for one that has not ended.

    A kind that this isolate has not read may have a retention: the Clock finds out at the next full minute.
    """
    if record.ended_at is None:
        return None
    kind = kinds.remembered(record.kind)
    return _full_minute(record.ended_at) if kind is None else _look_at(kind, record.ended_at)


def look_after_declaring(kind: Kind, now: Instant) -> Instant | None:
    """When the Clock has to look at a kind that was just declared: its records may be old enough already."""
    return None if kind.retention_seconds is None else _full_minute(now)


def _look_at(kind: Kind, ended_at: Instant) -> Instant | None:
    return None if kind.retention_seconds is None else _full_minute(after(ended_at, kind.retention_seconds))


def _full_minute(instant: Instant) -> Instant:
    return Instant(-(-instant // _MINUTE_MS) * _MINUTE_MS)


class Retention:
    """The Clock's class of work that removes what is old enough, a kind at a time.

    It counts records that were removed, put off, or left to wait for their age. A kind falls due at the full minute, so
    that a busy one does not wake the Clock for each record.
    """

    name = "retention_swept"
    shard: Final = "upkeep"
    coalesces = True  # what is put off is looked at once a day, for as long as it takes
    earliest = statements.EARLIEST
    page = statements.PAGE

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Decide on at most RETENTION_BATCH records of one kind, in one transaction.

        Every change looks at its record again: one that is needed, requeued or held meanwhile stays.
        """
        kind, _, _ = item.rpartition("@")
        for _ in range(_TRIES):
            with suppress(_ArtifactStays):
                return await self._decide(db, now, kind)
        raise KindConflict("artifacts of this kind are in use at this moment; try again")

    async def _decide(self, db: Database, now: Instant, kind: str) -> int:
        reading = Reading()
        found = reading.ask(statements.CANDIDATES, kind=kind, now=now)
        await db.read(reading)
        if not found.rows:
            return 0
        going = [row["id"] for row in found.rows if not row["needed"] and not row["early"]]
        needed = [row["id"] for row in found.rows if row["needed"] and not row["early"]]
        early = [row["id"] for row in found.rows if row["early"]]
        tx = Transaction(now)
        answers = []
        if going:
            answers.append(_remove(tx, kind, going))
        if needed:
            answers.append(tx.run(statements.PUT_OFF, ids=canonical.compact(needed)))
        if early:
            answers.append(tx.run(statements.LET_GO, ids=canonical.compact(early)))
        await db.commit(tx)
        return sum(len(answer.rows) for answer in answers)


def _remove(tx: Transaction, kind: str, records: list[str]) -> Answer:
    ids = canonical.compact(records)
    append_selected(tx, CLOCK, "record.removed", statements.REMOVING, many=True, ids=ids)
    removed = tx.run(statements.REMOVE, ids=ids)
    tx.run(statements.REMOVE_EDGES, ids=ids)
    if kind == ARTIFACT:
        tx.require(statements.ALL_GONE, _ArtifactStays(), ids=ids)
        references.release_all(tx, records)
    return removed

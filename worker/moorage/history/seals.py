"""Sealing history: finalized entries get their links, in bounded batches (clause history.seal).

An entry is final when it is committed: positions have no gaps, and nothing is ever put in before one that exists. A gap
can only come of a deletion in the database itself. A batch ends before it and the next begins behind it, so that
sealing goes on and verification names the missing position.

A row of `seals` holds the links of a whole batch: sealing 500 entries writes one row, and each entry keeps its own link.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from moorage.history import chain
from moorage.history import seal_statements as statements
from moorage.kernel.instants import Instant
from moorage.kernel.limits import SEAL_BATCH, SEAL_CALL
from moorage.kernel.pages import Page, PageRequest
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Transaction

SPAN_MS: Final = 5000
"""Entries of one such span fall due together; seal_statements.SEAL_DUE counts in the same spans."""

LAST_POSITION: Final = 2**53 - 1
"""The largest position that every adapter can name exactly."""


class SealedMeanwhile(Exception):
    """Another sealer went on from the same link; nothing was written."""


@dataclass(frozen=True, slots=True)
class Link:
    """The link of the entry at a position, and so a statement about every entry up to it."""

    position: int
    link: str


@dataclass(frozen=True, slots=True)
class Ends:
    """Where the chain ends: its last link, or None before the first seal, and how many entries follow it unsealed."""

    head: Link | None
    unsealed: int

    @classmethod
    def of(cls, row: Row) -> "Ends":
        """The ends that ENDS gives."""
        sealed = row["sealed"]
        head = None if sealed is None else Link(sealed, row["link"])
        return cls(head, max(0, (row["last"] or 0) - (sealed or 0)))


@dataclass(frozen=True, slots=True)
class Seal:
    """One sealed stretch: its last entry's position and link, and how many entries it holds."""

    position: int
    link: str
    entries: int
    sealed_at: Instant


@dataclass(frozen=True, slots=True)
class SealedNow:
    """What a request to seal did, and where the chain ends now."""

    sealed: int
    ends: Ends


def due_after(at: Instant) -> Instant:
    """When an entry of the instant `at` falls due to be sealed by the Clock: 5 to 10 seconds later."""
    return Instant((at // SPAN_MS + 2) * SPAN_MS)


async def seal_batch(db: Database, now: Instant, guard: Callable[[Transaction], None] | None = None) -> int:
    """Seal the next entries, at most SEAL_BATCH, in one transaction; how many were sealed.

    `guard` adds the preconditions of whoever asks. Raises SealedMeanwhile when another sealer was first.
    """
    reading = Reading()
    ends = reading.ask(statements.ENDS)
    waiting = reading.ask(statements.UNSEALED, limit=int(SEAL_BATCH))
    await db.read(reading)
    batch = _without_gap(waiting.rows)
    if not batch:
        return 0
    head = Ends.of(ends.one()).head
    links = _links(head.link if head else chain.GENESIS, batch)
    position = batch[-1]["position"]
    tx = Transaction(now)
    if guard is not None:
        guard(tx)
    tx.require(statements.SEALED_UP_TO, SealedMeanwhile(), last=head.position if head else 0)
    seal = chain.seal(position, now, links[-1])
    tx.run(statements.SEAL, position=position, seal=seal, links="".join(links))
    await db.commit(tx)
    return len(batch)


async def seal_now(db: Database, now: Instant, guard: Callable[[Transaction], None]) -> SealedNow:
    """Seal what is final at this moment, at most SEAL_CALL entries; `ends.unsealed` tells whether to ask again."""
    sealed = 0
    for _ in range(SEAL_CALL // SEAL_BATCH):
        try:
            count = await seal_batch(db, now, guard)
        except SealedMeanwhile:
            continue
        if not count:
            break
        sealed += count
    return SealedNow(sealed, await read_ends(db))


async def read_ends(db: Database) -> Ends:
    """Where the chain ends."""
    reading = Reading()
    ends = reading.ask(statements.ENDS)
    await db.read(reading)
    return Ends.of(ends.one())


async def list_seals(db: Database, page: PageRequest, *, backwards: bool = False) -> Page[Seal]:
    """A page of seals, oldest first or newest first. Raises CursorMismatch."""
    filters = ["seals", backwards]
    start = page.after(filters, int) or [LAST_POSITION if backwards else 0]
    reading = Reading()
    sql = statements.SEALS_BACKWARDS if backwards else statements.SEALS
    found = reading.ask(sql, start=min(start[0], LAST_POSITION), limit=page.limit + 1)
    await db.read(reading)
    return page.page(found.rows, filters, lambda row: [row["position"]], lambda row: Seal(**row))


class HistorySeals:
    """The Clock's class of work that seals history; what it counts are entries."""

    name = "history_sealed"
    shard: Final = "upkeep"
    earliest = statements.SEAL_DUE
    page = statements.SEAL_DUE_NOW

    async def fire(self, db: Database, now: Instant, item: str) -> int:
        """Seal one batch; what is left and old enough is listed again at once."""
        try:
            return await seal_batch(db, now)
        except SealedMeanwhile:
            return 0


def _without_gap(rows: Sequence[Row]) -> list[Row]:
    """The rows up to the first gap in their positions."""
    return [row for index, row in enumerate(rows) if row["position"] == rows[0]["position"] + index]


def _links(previous: str, rows: Sequence[Row]) -> list[str]:
    links = []
    for row in rows:
        previous = chain.link(previous, chain.text(row))
        links.append(previous)
    return links

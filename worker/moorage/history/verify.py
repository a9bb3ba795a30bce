"""Verifying the chain, and giving entries with their links to whoever verifies elsewhere (clause history.seal).

Rows are taken as they are found, however they were edited, and compared; nothing here trusts one to be well formed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from moorage.history import chain
from moorage.history import seal_statements as statements
from moorage.history.chain import LINK_CHARACTERS
from moorage.history.seals import LAST_POSITION, Ends, Link
from moorage.kernel.limits import VERIFY_BATCH
from moorage.kernel.pages import Page, PageRequest, encode
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row

_MADE_ANEW: Final = "its link is not the noted one: the chain up to here was made anew"


@dataclass(frozen=True, slots=True)
class Broken:
    """The first position at which the chain does not hold, and why, for people."""

    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class Verified:
    """What was verified: `checked` links from the one asked for, up to `last`. To go on, ask after `next`; None is the end.

    `last` is None when nothing held, not even the link to begin from. `unsealed` entries follow the chain and are not
    protected yet.
    """

    checked: int
    last: Link | None
    broken: Broken | None
    next: int | None
    unsealed: int


@dataclass(frozen=True, slots=True)
class SealedEntry:
    """A sealed entry: the text that was hashed and the stored link, or None where the seal is missing."""

    position: int
    text: str
    link: str | None


@dataclass(frozen=True, slots=True)
class _Stretch:
    """The positions after `after` up to `until`: their entries, the seals over them, and where the chain ends.

    `first` is the smallest position of any entry or seal, and 1 when there is none below; `next_entry` the first sealed one
    behind; `noted` the seals over the noted position.
    """

    after: int
    until: int
    entries: Mapping[int, Row]
    seals: Sequence[Row]
    ends: Ends
    next_entry: int | None
    first: int
    noted: Sequence[Row]

    @property
    def end(self) -> int:
        return self.ends.head.position if self.ends.head else 0

    @property
    def stop(self) -> int:
        return min(self.until, self.end)


async def verify(db: Database, after: int = 0, limit: int = int(VERIFY_BATCH), noted: Link | None = None) -> Verified:
    """Verify at most `limit` links after a position, in one round trip; the link at `after` is taken from its seal.

    `noted` is a link that somebody wrote down earlier. It is what finds a chain that was cut off at its end, or made
    anew as a whole.
    """
    stretch = await _read(db, after, limit, noted)
    walk = _Walk(stretch, noted)
    broken = walk.run() or _against_noted(stretch, noted)
    ended = broken is not None or stretch.stop == stretch.end
    last = None if walk.link == chain.GENESIS else Link(walk.position, walk.link)
    return Verified(walk.position - after, last, broken, None if ended else stretch.stop, stretch.ends.unsealed)


async def sealed_entries(db: Database, page: PageRequest, after: int) -> Page[SealedEntry]:
    """Sealed entries after a position, as they are stored. Where entries are missing a page may be short.

    Raises CursorMismatch.
    """
    filters = ["seals/entries", after]
    start = min((page.after(filters, int) or [after])[0], LAST_POSITION)
    stretch = await _read(db, start, page.limit)
    links = {position: link for row in stretch.seals for position, link in _links(row)}
    items = [SealedEntry(at, chain.text(row), links.get(at)) for at, row in stretch.entries.items()]
    following = stretch.next_entry
    return Page(items, None if following is None else encode(filters, [following - 1]))


class _Walk:
    """Goes from link to link; `position` and `link` are the last that held."""

    def __init__(self, stretch: _Stretch, noted: Link | None) -> None:
        self._stretch = stretch
        self._noted = noted
        self.position = stretch.after
        self.link = chain.GENESIS

    def run(self) -> Broken | None:
        """The first fault of the stretch, or None."""
        stretch = self._stretch
        if stretch.first < 1:
            return Broken(stretch.first, "it stands before the first position")
        seals = list(stretch.seals)
        if stretch.after:
            begun = dict(_links(seals[0])) if seals else {}
            if stretch.after not in begun:
                return Broken(min(stretch.after, stretch.end + 1), "no seal holds the link to begin from")
            self.link = begun[stretch.after]
        for row in seals:
            if self.position >= stretch.stop:
                return None
            links = dict(_links(row))
            held_already = row is seals[0] and stretch.after in links
            if not held_already and min(links, default=0) != self.position + 1:
                return self._unsealed()
            broken = self._row(row, links)
            if broken is not None:
                return broken
        return None if self.position >= stretch.stop else self._unsealed()

    def _row(self, row: Row, links: Mapping[int, str]) -> Broken | None:
        for position in range(self.position + 1, min(row["position"], self._stretch.stop) + 1):
            broken = self._entry(position, links[position])
            if broken is not None:
                return broken
        if row["position"] == self.position and row["seal"] != chain.seal(self.position, row["sealed_at"], self.link):
            return Broken(self.position, "its seal was edited")
        return None

    def _entry(self, position: int, stored: str) -> Broken | None:
        row = self._stretch.entries.get(position)
        if row is None:
            return Broken(position, "the entry is missing")
        link = chain.link(self.link, chain.text(row))
        if link != stored:
            return Broken(position, "the entry is not the one that was sealed, or its link was edited")
        if self._noted is not None and self._noted.position == position and self._noted.link != link:
            return Broken(position, _MADE_ANEW)
        self.position, self.link = position, link
        return None

    def _unsealed(self) -> Broken:
        position = self.position + 1
        there = position in self._stretch.entries
        return Broken(position, "its seal is missing or was edited" if there else "the entry is missing")


def _against_noted(stretch: _Stretch, noted: Link | None) -> Broken | None:
    """The noted link where the walk does not come by: before it, or behind the end of the chain."""
    if noted is None:
        return None
    if noted.position > stretch.end:
        return Broken(stretch.end + 1, "the chain ends before the noted position") if stretch.stop == stretch.end else None
    if noted.position > stretch.after:
        return None
    stored = dict(pair for row in stretch.noted[:1] for pair in _links(row)).get(noted.position)
    return None if stored == noted.link else Broken(noted.position, _MADE_ANEW)


def _links(row: Row) -> Iterator[tuple[int, str]]:
    """The positions and links that a row of `seals` holds, however it was edited."""
    links = row["links"]
    count = len(links) // LINK_CHARACTERS
    first = row["position"] - count + 1
    return ((first + index, links[index * LINK_CHARACTERS : (index + 1) * LINK_CHARACTERS]) for index in range(count))


async def _read(db: Database, after: int, limit: int, noted: Link | None = None) -> _Stretch:
    until = min(after + limit, LAST_POSITION)
    at = noted.position if noted else 1
    reading = Reading()
    ends = reading.ask(statements.ENDS)
    entries = reading.ask(statements.SEALED_ENTRIES, after=after, until=until)
    seals = reading.ask(statements.SEALS_OVER, after=max(after, 1), until=until)
    next_entry = reading.ask(statements.NEXT_SEALED, until=until)
    strays = reading.ask(statements.STRAYS)
    over_noted = reading.ask(statements.SEALS_OVER, after=at, until=at)
    await db.read(reading)
    following = next_entry.first()
    return _Stretch(
        after,
        until,
        {row["position"]: row for row in entries.rows},
        seals.rows,
        Ends.of(ends.one()),
        following["position"] if following else None,
        strays.one()["position"],
        over_noted.rows,
    )

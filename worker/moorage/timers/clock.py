"""The Clock: fires whatever is due, of every class, in order of the due instants (clauses timers.alarm, timers.late).

There is one Clock for each shard of the classes. An alarm runs `drain` over those of its own and arms itself for
`Drained.next_due`; `upcoming` tells it what it has made due elsewhere. Every item is fired in a transaction of its own, so
a crash anywhere repeats nothing that was done and loses nothing that was not, and two drains may overlap.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from moorage.kernel import canonical, errors
from moorage.kernel.instants import Instant, after
from moorage.kernel.limits import DRAIN_BATCH
from moorage.store.ports import Cost, Database
from moorage.store.transaction import Answer, Reading, Transaction
from moorage.timers import statements
from moorage.timers.due import SHARDS, DueWork, Shard

BUDGET: Final = 200
"""Items that one alarm fires before it ends and lets another follow at once."""

FIRED_AT_ONCE: Final = 6
"""Items of one class and one instant that are fired beside one another; the platform sends as many requests at a time."""

FIRST_RETRY_MS: Final = 1000
LONGEST_RETRY_MS: Final = 3_600_000
STORAGE_RETRY_SECONDS: Final = 5
BROKEN_RETRY_SECONDS: Final = 60
"""When a class is looked at again whose own statements failed."""

ASIDE_COUNTED: Final = 1000
"""As far as items that are set aside are counted."""

_FRUITLESS: Final = 3


class StillDue(Exception):
    """An item fired without effect and is listed as due all the same: its class contradicts itself."""


class _Unreadable(Exception):
    """What is due cannot be read at all."""

    def __init__(self, error: errors.MoorageError) -> None:
        super().__init__(error.code)
        self.error = error


@dataclass(frozen=True, slots=True)
class Failure:
    """An item that raised when it was fired, and when it is fired again. `error` is for the log of the edge."""

    work: str
    item: str
    attempts: int
    retry_at: Instant
    error: Exception


@dataclass(slots=True)
class Drained:
    """What a drain did.

    `fired` counts by class and leaves out those that fired nothing. The alarm must be armed for `next_due`; None means
    that nothing waits. `lateness` is the largest distance in milliseconds between an item's due instant and `now`,
    retried items aside. `interrupted` is the storage's error if it ended the drain early, `broken` the errors of classes
    whose own statements failed, by name: they were passed over.
    """

    fired: dict[str, int] = field(default_factory=dict)
    failed: list[Failure] = field(default_factory=list)
    next_due: Instant | None = None
    lateness: int = 0
    interrupted: errors.MoorageError | None = None
    broken: dict[str, errors.MoorageError] = field(default_factory=dict)
    cost: Cost = field(default_factory=Cost)


async def drain(
    new_db: Callable[[], Database],
    now: Instant,
    works: Sequence[DueWork],
    budget: int = BUDGET,
    *,
    current: Callable[[], Instant] | None = None,
) -> Drained:
    """Fire what is due at `now`, at most `budget` items, and say when to come back.

    Many items take a while: each fires at the instant that `current` tells then, so that what it writes is no older than
    what others wrote before. Without it all fire at `now`.

    Items of all classes fire in the order of their due instants, those of an earlier class first at equal instants. An
    item that raises is set aside with a delay that doubles from a second to an hour; the rest goes on. When the storage
    itself fails the drain ends, `interrupted` says why, and `next_due` is a few seconds away. What items raise never
    comes out of here.
    """
    run = _Run(new_db(), works, current)
    await run.drain(now, budget)
    return run.drained


async def advance(new_db: Callable[[], Database], start: Instant, end: Instant, works: Sequence[DueWork]) -> Drained:
    """Fire everything that falls due up to `end`, each at its own due instant, as a Clock that is never late would.

    What was overdue at `start` fires at `start`; what becomes due through another firing fires in its turn. Work that
    coalesces fires once at `end`, however often its time came meanwhile. This is how the test clock moves; it stops early
    only where the storage fails.
    """
    run = _Run(new_db(), [work for work in works if not getattr(work, "coalesces", False)])
    now = start
    while True:
        await run.drain(now, None)
        upcoming = run.drained.next_due
        if run.drained.interrupted:
            return run.drained
        if upcoming is None or upcoming > end:
            break
        now = upcoming
    run.take(works)
    await run.drain(end, None)
    return run.drained


async def next_due(db: Database, now: Instant, works: Sequence[DueWork]) -> Instant | None:
    """The instant the alarm must be armed for, which may be past; None when nothing waits. One round trip."""
    reading = Reading()
    upcoming = _ask_next(reading, now, works)
    await db.read(reading)
    return _earliest(upcoming)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a shard stands: the instant of its earliest item, which may be past, and how many items are set aside, counted up
    to ASIDE_COUNTED."""

    next_due: Instant | None
    set_aside: int

    def lateness(self, now: Instant) -> int:
        """By how many milliseconds the earliest item is overdue."""
        return 0 if self.next_due is None else max(0, now - self.next_due)


async def upcoming(db: Database, now: Instant, works: Sequence[DueWork]) -> Mapping[Shard, Instant]:
    """The instant for which the alarm of each shard must be armed; a shard for which nothing waits is left out. One round
    trip."""
    reading = Reading()
    asked = {shard: _ask_next(reading, now, own) for shard, own in by_shard(works).items()}
    await db.read(reading)
    return {shard: due for shard, answers in asked.items() if (due := _earliest(answers)) is not None}


async def standings(
    db: Database, now: Instant, works: Sequence[DueWork], reading: Reading | None = None
) -> Mapping[Shard, Standing]:
    """How each shard stands, in one round trip that reads a handful of rows of each class; `reading` may ask for more."""
    reading = reading or Reading()
    asked = {
        shard: (
            _ask_next(reading, now, own),
            reading.ask(statements.COUNT_ASIDE, works=_names(own), most=ASIDE_COUNTED),
        )
        for shard, own in by_shard(works).items()
    }
    await db.read(reading)
    return {shard: Standing(_earliest(upcoming), aside.one()["number"]) for shard, (upcoming, aside) in asked.items()}


def by_shard(works: Sequence[DueWork]) -> dict[Shard, list[DueWork]]:
    """The classes of each shard, in their order."""
    return {shard: own for shard in SHARDS if (own := [work for work in works if work.shard == shard])}


@dataclass(frozen=True, slots=True)
class _Item:
    work: DueWork
    key: str
    due: Instant
    retried: bool = False


class _Run:
    """One drain, or a row of them: what was done so far."""

    def __init__(self, db: Database, works: Sequence[DueWork], current: Callable[[], Instant] | None = None) -> None:
        self._db = db
        self._current = current
        self.take(works)
        self._without_effect: dict[tuple[Instant, str, str], int] = {}
        self.drained = Drained(cost=db.cost)

    def take(self, works: Sequence[DueWork]) -> None:
        """Drain these classes of work from now on."""
        self._works = works
        self._by_name = {work.name: work for work in works}

    async def drain(self, now: Instant, budget: int | None) -> None:
        try:
            self.drained.next_due = await self._until_nothing_is_due(now, budget)
        except (errors.DeploymentError, _Unreadable) as error:
            self.drained.interrupted = error.error if isinstance(error, _Unreadable) else error
            self.drained.next_due = after(now, STORAGE_RETRY_SECONDS)

    async def _until_nothing_is_due(self, now: Instant, budget: int | None) -> Instant | None:
        """Look, fire what was seen, look again: what a firing makes due is seen by the next look."""
        done = 0
        while True:
            items, upcoming = await self._look_past_broken(now)
            if not items:
                return self._come_back(now, upcoming)
            for group in _together(items):
                if done == budget:
                    return Instant(now + 1)
                firing = group if budget is None else group[: budget - done]
                done += len(firing)
                await self._fire_together(now, firing)

    def _come_back(self, now: Instant, upcoming: Instant | None) -> Instant | None:
        if self.drained.broken:
            again = after(now, BROKEN_RETRY_SECONDS)
            upcoming = again if upcoming is None else min(upcoming, again)
        if upcoming is None or upcoming > now:
            return upcoming
        # A class has something due that it does not list: it contradicts itself, and must not keep the alarm ringing.
        return Instant(now + FIRST_RETRY_MS)

    async def _look_past_broken(self, now: Instant) -> tuple[list[_Item], Instant | None]:
        """A class whose own statement fails, for a row that it cannot read, would hold up all others: it is passed over."""
        try:
            return await self._look(now)
        except errors.StorageBindingUnavailable:
            raise
        except errors.MoorageError as error:
            sound = [work for work in self._works if not await self._is_broken(now, work)]
            if not sound or len(sound) == len(self._works):
                raise _Unreadable(error) from error
            self.take(sound)
            return await self._look(now)

    async def _is_broken(self, now: Instant, work: DueWork) -> bool:
        reading = Reading()
        reading.ask(work.page, now=now, limit=int(DRAIN_BATCH))
        _ask_next(reading, now, [work])
        try:
            await self._db.read(reading)
        except errors.StorageBindingUnavailable:
            raise
        except errors.MoorageError as error:
            self.drained.broken[work.name] = error
            return True
        return False

    async def _look(self, now: Instant) -> tuple[list[_Item], Instant | None]:
        """The first DRAIN_BATCH due items of all classes in order, and the earliest instant of all: one round trip."""
        reading = Reading()
        window: dict[str, Any] = {"now": now, "limit": int(DRAIN_BATCH)}
        pages = [(work, reading.ask(work.page, **window)) for work in self._works]
        retries = reading.ask(statements.RETRIES, works=_names(self._works), **window)
        upcoming = _ask_next(reading, now, self._works)
        await self._db.read(reading)
        items = [_Item(work, row["item"], row["due"]) for work, page in pages for row in page.rows]
        items += [_Item(self._by_name[row["work"]], row["item"], row["due"], retried=True) for row in retries.rows]
        items.sort(key=attrgetter("due"))
        return items[:DRAIN_BATCH], _earliest(upcoming)

    async def _fire_together(self, now: Instant, items: Sequence[_Item]) -> None:
        """Where one has found that the storage fails, the others have ended too before that is told."""
        ended = await asyncio.gather(*(self._fire(now, item) for item in items), return_exceptions=True)
        for error in ended:
            if error is not None:
                raise error

    async def _fire(self, looked_at: Instant, item: _Item) -> None:
        name = item.work.name
        now = looked_at if self._current is None else max(looked_at, self._current())
        try:
            count = await item.work.fire(self._db, now, item.key)
            self._refuse_endless(looked_at, item, count)
        except Exception as error:
            await self._set_aside(now, item, error)
            return
        if item.retried:
            await self._clear(now, item)
        if count:
            self.drained.fired[name] = self.drained.fired.get(name, 0) + count
            if not item.retried:
                self.drained.lateness = max(self.drained.lateness, now - item.due)

    def _refuse_endless(self, looked_at: Instant, item: _Item, count: int) -> None:
        """An item may be seen on a stale picture, or fired by another drain between look and firing; seen again and again it
        would keep the drain running for ever."""
        if count:
            return
        seen = (looked_at, item.work.name, item.key)
        self._without_effect[seen] = self._without_effect.get(seen, 0) + 1
        if self._without_effect[seen] == _FRUITLESS:
            raise StillDue(f"{item.work.name} lists an item as due that does not fire")

    async def _set_aside(self, now: Instant, item: _Item, error: Exception) -> None:
        """Record the failure, by the error's name only: its text may quote what the item holds.

        When the storage was what failed, this fails too and ends the drain; when it succeeds, the storage works and the
        item alone is at fault.
        """
        tx = Transaction(now)
        aside = tx.run(
            statements.SET_ASIDE,
            work=item.work.name,
            item=item.key,
            first=FIRST_RETRY_MS,
            cap=LONGEST_RETRY_MS,
            error=error.code if isinstance(error, errors.MoorageError) else type(error).__name__,
        )
        await self._db.commit(tx)
        row = aside.one()
        self.drained.failed.append(Failure(item.work.name, item.key, row["attempts"], row["retry_at"], error))

    async def _clear(self, now: Instant, item: _Item) -> None:
        tx = Transaction(now)
        tx.run(statements.CLEAR, work=item.work.name, item=item.key)
        await self._db.commit(tx)


def _ask_next(reading: Reading, now: Instant, works: Sequence[DueWork]) -> list[Answer]:
    asked = [reading.ask(work.earliest, now=now) for work in works]
    return [*asked, reading.ask(statements.NEXT_RETRY, works=_names(works))]


def _earliest(answers: Sequence[Answer]) -> Instant | None:
    known = [row["due"] for answer in answers for row in answer.rows if row["due"] is not None]
    return Instant(min(known)) if known else None


def _together(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    """The items in their order, those that may fire beside one another in groups."""
    for _, same in groupby(items, key=lambda item: (item.work.name, item.due)):
        ordered = list(same)
        size = FIRED_AT_ONCE if getattr(ordered[0].work, "parallel", False) else 1
        yield from (ordered[first : first + size] for first in range(0, len(ordered), size))


def _names(works: Sequence[DueWork]) -> str:
    return canonical.dumps([work.name for work in works])

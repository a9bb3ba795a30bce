"""When the windows of a schedule begin: by a cron expression in a time zone, or at an interval (clause schedules.dst).

cronsim says which times of the wall match an expression, without a zone. What that means where clocks change is decided
here, by two rules that Debian's cron has:

- Minute and hour are both given, neither begins with `*`: the expression names times of the day. One that is skipped comes
  at the first instant after the gap, one that is repeated comes once, the first time. Several times of one gap come once.
- Otherwise real time counts: a window begins at every instant whose wall time matches. What is skipped does not come, what
  is repeated comes twice.

Starts are whole seconds for cron, whole milliseconds for intervals.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from itertools import islice, takewhile
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from moorage.kernel.instants import LATEST, Instant
from moorage.kernel.limits import EVERY_SECONDS, ID_CHARACTERS
from moorage.kernel.refusals import refused
from moorage.schedules.zones import zone

_DAY: Final = 86_400

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a time of the wall
_SECOND: Final = timedelta(seconds=1)


class Cadence(Protocol):
    """Where windows begin. A window ends where the next one begins."""

    def after(self, instant: Instant) -> Instant | None:
        """The first start past `instant`; None when none comes, or only past the year 9999."""

    def last(self, now: Instant, count: int) -> list[Instant]:
        """The last starts at or before `now`, at most `count`, in order."""


def starts(cadence: Cadence, instant: Instant) -> Iterator[Instant]:
    """Every start past `instant`."""
    found = cadence.after(instant)
    while found is not None:
        yield found
        found = cadence.after(found)


def cadence_of(cron: str | None, every_ms: int | None, timezone: str, anchor: Instant) -> Cadence:
    """The cadence of a declaration: exactly one of `cron` and `every_ms`; an interval counts from `anchor`.

    Raises RequestInvalid at /cron, /every_seconds or /timezone.
    """
    where = zone(timezone)
    if (cron is None) == (every_ms is None):
        raise refused("/cron", "give either cron or every_seconds")
    if cron is not None:
        return _cron(cron, where)
    if every_ms is None or not 1000 <= every_ms <= int(EVERY_SECONDS) * 1000:
        raise refused("/every_seconds", f"must lie between 1 and {EVERY_SECONDS}")
    return Every(every_ms, anchor)


@dataclass(frozen=True)
class Every:
    """Starts lie a whole number of intervals from `anchor`, before it too."""

    every_ms: int
    anchor: Instant

    def after(self, instant: Instant) -> Instant | None:
        found = self.anchor + ((instant - self.anchor) // self.every_ms + 1) * self.every_ms
        return None if found > LATEST else Instant(found)

    def last(self, now: Instant, count: int) -> list[Instant]:
        latest = self.anchor + (now - self.anchor) // self.every_ms * self.every_ms
        earlier = range(latest, latest - count * self.every_ms, -self.every_ms)
        return [Instant(one) for one in reversed(earlier) if one >= 0]


@dataclass(frozen=True)
class Cron:
    """A cron expression in a zone: five fields, or six with seconds before them."""

    text: str
    zone: ZoneInfo

    @cached_property
    def _forward(self) -> CronSim:
        return CronSim(self.text, _EPOCH)

    @cached_property
    def _backward(self) -> CronSim:
        return CronSim(self.text, _EPOCH, reverse=True)

    @cached_property
    def names_times(self) -> bool:
        """Whether it names times of the day, so that the first rule holds."""
        minute, hour = self.text.split()[-5:-3]
        return not minute.startswith("*") and not hour.startswith("*")

    def after(self, instant: Instant) -> Instant | None:
        try:
            second = instant // 1000
            found = self._named(second) if self.names_times else self._flowing(second)
        except (StopIteration, OverflowError, ValueError):
            # No match within fifty years, or none that a calendar can write.
            return None
        return Instant(found * 1000)

    def last(self, now: Instant, count: int) -> list[Instant]:
        wall, further = self._wall(now // 1000), count
        found: list[Instant] = []
        reached = True
        # Times of the wall that are skipped, or come at one instant, are no starts: it takes further ones, and soon many.
        while reached and len(found) < count:
            wall, reached = self._back(wall, further)
            found = self._between(wall, now)
            further *= 2
        return found[-count:]

    def _back(self, wall: datetime, count: int) -> tuple[datetime, bool]:
        """The match of the wall so many before a time; and whether there are so many."""
        try:
            for _ in range(count):
                wall = _step(self._backward, wall)
        except (StopIteration, OverflowError, ValueError):
            return _EPOCH, False
        return wall, wall > _EPOCH

    def _between(self, wall: datetime, now: Instant) -> list[Instant]:
        """The starts from a time of the wall on up to `now`."""
        first = self._first_at(wall)
        lowest = max(self._past_gap(wall) if first is None else first, 0)
        return list(takewhile(lambda one: one <= now, starts(self, Instant(lowest * 1000 - 1))))

    def _named(self, second: int) -> int:
        """The first rule. What the second pass of a repeated hour would name has come already."""
        wall = self._wall(second)
        while True:
            wall = _step(self._forward, wall)
            first = self._first_at(wall)
            found = self._past_gap(wall) if first is None else first
            if found > second:
                return found

    def _flowing(self, second: int) -> int:
        """The second rule: the wall's next match, as long as its offset holds; from a change on, the search begins anew.

        A day without a change is enough: no clock is moved back that far.
        """
        low, offset, wall = second, self._offset(second), self._wall(second)
        while True:
            matched = _step(self._forward, wall)
            found = _seconds(matched) - offset
            end = min(found, low + _DAY)
            if self._offset(end) != offset:
                low = self._change(low, end)
            elif end == found:
                return found
            else:
                first = self._first_at(matched)
                if first is not None:
                    return first
                low = self._past_gap(matched)
            offset, wall = self._offset(low), self._wall(low) - _SECOND

    def _first_at(self, wall: datetime) -> int | None:
        """The first second at which the wall shows this; None where it is skipped."""
        aware = wall.replace(tzinfo=self.zone)
        second = int(aware.timestamp())
        return second if self._wall(second) == wall else None

    def _past_gap(self, wall: datetime) -> int:
        """The first second after the gap in which this lies."""
        before = wall.replace(tzinfo=self.zone, fold=0).utcoffset() or timedelta()
        late = int((wall - before - _EPOCH).total_seconds())
        return self._change(late - _DAY, late)

    def _change(self, low: int, high: int) -> int:
        """The first second past `low` with the offset of `high`, which is another."""
        offset = self._offset(low)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._offset(middle) == offset else (low, middle)
        return high

    def _offset(self, second: int) -> int:
        found = datetime.fromtimestamp(second, self.zone).utcoffset()
        return 0 if found is None else int(found.total_seconds())

    def _wall(self, second: int) -> datetime:
        return datetime.fromtimestamp(second, self.zone).replace(tzinfo=None, fold=0)


def _step(matches: CronSim, wall: datetime) -> datetime:
    """The match next to a time of the wall."""
    matches.dt = wall
    return next(matches)


def _seconds(wall: datetime) -> int:
    return int((wall - _EPOCH).total_seconds())


@lru_cache(maxsize=256)
def _cron(text: str, where: ZoneInfo) -> Cron:
    """Raises RequestInvalid at /cron for what is no expression, or never matches."""
    if len(text) > ID_CHARACTERS or not text.isascii():
        raise refused("/cron", f"must have at most {ID_CHARACTERS} ASCII characters")
    try:
        CronSim(text, _EPOCH)
    except (CronSimError, ValueError, AssertionError) as error:
        raise refused("/cron", f"is not a cron expression: {error}") from None
    cron = Cron(text, where)
    if cron.after(Instant(0)) is None:
        raise refused("/cron", "never matches")
    return cron


def local(instant: Instant, timezone: str) -> str:
    """The instant as a clock in the zone shows it, RFC 3339 with the zone's offset then; in UTC past the year 9999."""
    moment = datetime.fromtimestamp(instant // 1000, UTC) + timedelta(milliseconds=instant % 1000)
    try:
        return moment.astimezone(zone(timezone)).isoformat()
    except OverflowError:
        # Clocks there are in the year 10000 already.
        return moment.isoformat()


def take(cadence: Cadence, instant: Instant, count: int, until: Instant = LATEST) -> list[Instant]:
    """The first `count` starts past `instant` and at or before `until`, or fewer."""
    return list(islice(takewhile(lambda one: one <= until, starts(cadence, instant)), count))

"""The Bell: who waits for what of one kind, and who is woken (clauses records.claim-wait, history.watch).

It holds no truth. A ring is a hint that something was committed; whoever wakes reads the database, and what a lost ring
would have told is found by looking again every RESCAN_SECONDS. Nothing here touches the platform: the clock and the look
at the database are given, so that the same code runs inside a Durable Object and in a test.

Whom a ring wakes. Waiting claims stand in groups, those of equal patterns in one group, the oldest first. A ring of k
claimable records wakes the k oldest *of each group*: equal patterns compete for the same k records, and the Bell, which
knows ids and patterns by name only, cannot tell which group a record is for. So a ring wakes at most k times as many
claims as there are different patterns, and a record never lies ready beside a sleeping claim that matches it, unless the
ring or a woken claim was lost; then only until the next look, which wakes one of each group, and whoever finds something
rings again. Watches are all woken by every ring.

No ring is missed between a claim's reading of the database and its parking here. A ring is remembered for a while with
how many of each group it may still wake; a claim says what it has seen, or how long ago it read, and is sent back at once
when a newer ring has a wake-up left for its group. `place` keeps the seniority of one that parks again.
"""

import asyncio
from bisect import insort
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

RESCAN_SECONDS: Final = 10.0
"""How long a claim or a watch may sleep beside something that it would take, when the ring for it was lost."""

EARLY_SECONDS: Final = 1.0
"""The same for one that has just come and waits for what is not always rung for; see `Heard`."""

LEAST_SECONDS: Final = 0.05
"""The least time between two looks."""

MARGIN_SECONDS: Final = 1.0
"""How long a request may travel between its reading of the database and its parking."""

_REMEMBERED: Final = 1000

Reason = Literal["ring", "scan", "timeout"]


@dataclass(frozen=True, slots=True)
class Seen:
    """The last ring that a waiter knows of, by the Bell instance that counted it."""

    bell: str
    ring: int


@dataclass(frozen=True, slots=True)
class Wish:
    """One wait, of `seconds` at most.

    `group` names the claim's pattern; None is a watch, which has read up to `position`. `bounded` is true for claims of a
    kind where the end of another claim may make room. `look_in` asks for a look after so many seconds, of which no ring
    will tell: the kind's rate lets something through again. `seen` is what an earlier wait of the same request answered;
    without it, `age_seconds` tells how long ago the request began to read.
    """

    seconds: float
    group: str | None = None
    bounded: bool = False
    position: int = 0
    age_seconds: float = 0.0
    look_in: float | None = None
    seen: Seen | None = None
    place: int | None = None


@dataclass(frozen=True, slots=True)
class Woken:
    """Why a wait ended. `seen` and `place` belong into the next wait of the same request.

    `watches` is how many watch the kind, which tells each how often it should read. `trips` and `rows_read` are what looks
    at the database cost that this waiter made on behalf of all.
    """

    reason: Reason
    seen: Seen | None = None
    place: int | None = None
    watches: int = 0
    trips: int = 0
    rows_read: int = 0


@dataclass(frozen=True, slots=True)
class Ring:
    """What a commit changed of one kind: records that may be claimable now, and claims that ended.

    A ring of nothing is for watches alone. `again` is for a claim that was woken by a look and found something: there may
    be more of which nobody told, so whoever wakes rings again in turn.
    """

    ready: int = 0
    freed: int = 0
    again: bool = False

    def __add__(self, other: "Ring") -> "Ring":
        return Ring(self.ready + other.ready, self.freed + other.freed, self.again or other.again)


@dataclass(frozen=True, slots=True)
class Heard:
    """How many waited, when the bell rang, for what a ring with nothing ready tells: watches, and bounded claims.

    Whoever rings may leave out such rings for less than EARLY_SECONDS after nobody had heard one: who comes in that time
    looks again early.
    """

    watches: int
    bounded: int


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at the database shows: the newest position of history, and whether a record of the kind is claimable."""

    position: int
    ready: bool
    trips: int = 1
    rows_read: int = 0


class Bells(Protocol):
    """The Bells of a deployment, as requests and the Clock see them."""

    def ring(self, rings: Mapping[str, Ring]) -> None:
        """Ring for kinds after a commit. Returns at once and never fails."""

    async def wait(self, kind: str, wish: Wish) -> Woken:
        """Wait for a ring of the kind. Never fails: a Bell that is lost is waited for in vain, but not long."""


@dataclass(slots=True, eq=False)
class _Waiter:
    place: int
    wish: Wish
    woken: "asyncio.Future[Reason]"

    def wake(self, reason: Reason) -> None:
        if not self.woken.done():
            self.woken.set_result(reason)


@dataclass(slots=True)
class _Rung:
    """A ring that is remembered, and how many of each group it may still wake."""

    number: int
    at: float
    ring: Ring
    left: dict[tuple[bool, str], int] = field(default_factory=dict)

    def take(self, group: tuple[bool, str]) -> bool:
        """Use up one wake-up of the group, if there is one."""
        left = self.left.get(group, _wakes(self.ring, group))
        self.left[group] = max(0, left - 1)
        return left > 0


class Bell:
    """The waiters of one kind. `name` tells this instance from any other; `ticks` are seconds on a steady scale."""

    def __init__(self, name: str, ticks: Callable[[], float], look: Callable[[], Awaitable[Look]]) -> None:
        self._name = name
        self._ticks = ticks
        self._look = look
        self._born = ticks()
        self._rings = 0
        self._places = 0
        self._remembered: deque[_Rung] = deque(maxlen=_REMEMBERED)
        self._forgotten = 0
        self._claims: dict[tuple[bool, str], list[_Waiter]] = {}
        self._watches: list[_Waiter] = []
        self._next_look = 0.0
        self._unheard_at = float("-inf")

    @property
    def heard(self) -> Heard:
        """Who would hear a ring now."""
        return Heard(len(self._watches), sum(len(parked) for (bounded, _), parked in self._claims.items() if bounded))

    @property
    def parked(self) -> int:
        """How many claims and watches are parked."""
        return len(self._watches) + sum(map(len, self._claims.values()))

    def ring(self, ring: Ring) -> Heard:
        """Something was committed: wake all watches, and as many of each group of claims as may find a record."""
        heard = self.heard
        if heard.watches == heard.bounded == 0:
            self._unheard_at = self._ticks()
        self._rings += 1
        rung = _Rung(self._rings, self._ticks(), ring)
        for waiter in self._watches:
            waiter.wake("ring")
        for group, parked in self._claims.items():
            number = _wakes(ring, group)
            sleeping = [waiter for waiter in parked if not waiter.woken.done()][:number]
            for waiter in sleeping:
                waiter.wake("scan" if ring.again else "ring")
            rung.left[group] = number - len(sleeping)
        if len(self._remembered) == _REMEMBERED:
            self._forgotten = self._remembered[0].number
        self._remembered.append(rung)
        return heard

    async def wait(self, wish: Wish) -> Woken:
        """Park until a ring, a look that shows something, or the end of the wish; or come back at once, see above."""
        deadline = self._ticks() + wish.seconds
        if self._missed(wish):
            return self._answer("ring", wish.place)
        waiter = self._park(wish)
        spent = [0, 0]
        try:
            while not waiter.woken.done():
                now = self._ticks()
                if now >= deadline:
                    return self._answer("timeout", waiter.place, *spent)
                if now >= self._next_look:
                    await self._scan(spent)
                    continue
                await asyncio.wait([waiter.woken], timeout=min(deadline, self._next_look) - now)
            return self._answer(waiter.woken.result(), waiter.place, *spent)
        finally:
            self._leave(waiter)

    def _answer(self, reason: Reason, place: int | None, trips: int = 0, rows_read: int = 0) -> Woken:
        return Woken(reason, Seen(self._name, self._rings), place, len(self._watches), trips, rows_read)

    def _missed(self, wish: Wish) -> bool:
        """Whether something may have rung since the waiter read, with a wake-up left for it."""
        if wish.seen is not None:
            if wish.seen.bell != self._name or wish.seen.ring < self._forgotten:
                return True
            newer = [rung for rung in self._remembered if rung.number > wish.seen.ring]
        else:
            since = self._ticks() - wish.age_seconds - MARGIN_SECONDS
            if self._born > since:
                return True
            newer = [rung for rung in self._remembered if rung.at > since]
        if wish.group is None:
            return bool(newer)
        group = (wish.bounded, wish.group)
        return any(rung.take(group) for rung in newer)

    def _park(self, wish: Wish) -> _Waiter:
        now = self._ticks()
        if not self._watches and not self._claims:
            self._next_look = now + RESCAN_SECONDS
        # One that comes back, as a watch does after each reading, may have been away when a ring was heard by nobody.
        early = wish.seen is None or now - self._unheard_at < EARLY_SECONDS
        if early and (wish.group is None or wish.bounded):
            self._next_look = min(self._next_look, now + EARLY_SECONDS)
        if wish.look_in is not None:
            self._next_look = min(self._next_look, now + max(wish.look_in, LEAST_SECONDS))
        self._places += 1
        place = self._places if wish.place is None else wish.place
        waiter = _Waiter(place, wish, asyncio.get_running_loop().create_future())
        if wish.group is None:
            self._watches.append(waiter)
        else:
            insort(self._claims.setdefault((wish.bounded, wish.group), []), waiter, key=lambda one: one.place)
        return waiter

    def _leave(self, waiter: _Waiter) -> None:
        wish = waiter.wish
        if wish.group is None:
            self._watches.remove(waiter)
            return
        group = (wish.bounded, wish.group)
        self._claims[group].remove(waiter)
        if not self._claims[group]:
            del self._claims[group]

    async def _scan(self, spent: list[int]) -> None:
        """One look for all who are parked, in case a ring was lost. A look that fails shows nothing."""
        self._next_look = self._ticks() + RESCAN_SECONDS
        try:
            look = await self._look()
        except Exception:
            return
        spent[0] += look.trips
        spent[1] += look.rows_read
        for waiter in self._watches:
            if waiter.wish.position < look.position:
                waiter.wake("scan")
        for parked in self._claims.values():
            sleeping = next((waiter for waiter in parked if not waiter.woken.done()), None)
            if look.ready and sleeping is not None:
                sleeping.wake("scan")


def _wakes(ring: Ring, group: tuple[bool, str]) -> int:
    """How many of a group a ring may wake."""
    bounded, _ = group
    return ring.ready + (ring.freed if bounded else 0)


class HostBells:
    """Bells inside one event loop: for the host, where there is no platform between a request and its Bell."""

    def __init__(self, ticks: Callable[[], float], look: Callable[[str], Awaitable[Look]]) -> None:
        self._ticks = ticks
        self._look = look
        self._bells: dict[str, Bell] = {}
        self.rung: list[tuple[str, Ring]] = []

    def bell(self, kind: str) -> Bell:
        """The Bell of a kind."""
        if kind not in self._bells:
            self._bells[kind] = Bell(f"bell-{kind}", self._ticks, lambda: self._look(kind))
        return self._bells[kind]

    def ring(self, rings: Mapping[str, Ring]) -> None:
        for kind, ring in rings.items():
            self.rung.append((kind, ring))
            self.bell(kind).ring(ring)

    async def wait(self, kind: str, wish: Wish) -> Woken:
        return await self.bell(kind).wait(wish)


def wish_of(data: Mapping[str, Any]) -> Wish:
    """A Wish from its plain data, as `dataclasses.asdict` gives it."""
    seen = data["seen"]
    return Wish(**{**data, "seen": None if seen is None else Seen(**seen)})


def woken_of(data: Mapping[str, Any]) -> Woken:
    """A Woken from its plain data."""
    seen = data["seen"]
    return Woken(**{**data, "seen": None if seen is None else Seen(**seen)})

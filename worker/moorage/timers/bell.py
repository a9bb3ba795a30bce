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
from typing import Any, Final, Literal, Protocol, TypeVar

RESCAN_SECONDS: Final = 10.0
"""How long a claim or a watch may sleep beside something that it would take, when the ring for it was lost."""

EARLY_SECONDS: Final = 1.0
"""The same for one that parks soon after a ring that nobody heard: who rang may not know of it yet; see `Quiet`."""

QUIET_SECONDS: Final = 0.5
"""How long who rings may go by what it heard last."""

EXPECTED_SECONDS: Final = 30.0
"""How long who rings counts on somebody who said that it is about to wait; longer than any wait."""

LEAST_SECONDS: Final = 0.05
"""The least time between two looks."""

MARGIN_SECONDS: Final = 1.0
"""How long a request may travel between its reading of the database and its parking."""

_REMEMBERED: Final = 1000

T = TypeVar("T")

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
    """Who waited when the bell rang: claims in all, those of them that are bounded, and watches.

    Whoever rings may leave out, for less than EARLY_SECONDS, what nobody would have heard: who parks in that time looks
    again early. See `Quiet`.
    """

    claims: int
    bounded: int
    watches: int


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

    def expect(self, kind: str) -> None:
        """Tell, before reading what may then be waited for, that from now on every ring of the kind counts."""

    async def wait(self, kind: str, wish: Wish) -> Woken:
        """Wait for a ring of the kind. Never fails: a Bell that is lost is waited for in vain, but not long."""


class Quiet:
    """What one isolate knows of the kinds for which nobody waits, so that it need not ring after every commit.

    It goes by what the last ring heard, for QUIET_SECONDS, and by who waits in this isolate itself, which is told before it
    reads and so never misses a ring. One that waits in another isolate may miss those of its first half second, and finds
    out by looking after EARLY_SECONDS.
    """

    def __init__(self, ticks: Callable[[], float]) -> None:
        self._ticks = ticks
        self._heard: dict[str, tuple[float, Heard]] = {}
        self._expected: dict[str, float] = {}

    def expect(self, kind: str) -> None:
        """Somebody in this isolate is about to wait for the kind."""
        _remember(self._expected, kind, self._ticks())

    def learn(self, kind: str, heard: Heard) -> None:
        """A ring was heard."""
        _remember(self._heard, kind, (self._ticks(), heard))

    def covers(self, kind: str, ring: Ring) -> bool:
        """Whether the ring may be left out."""
        now = self._ticks()
        if kind not in self._heard or now - self._expected.get(kind, float("-inf")) < EXPECTED_SECONDS:
            return False
        at, heard = self._heard[kind]
        listening = heard.watches + (heard.claims if ring.ready else heard.bounded)
        return now - at < QUIET_SECONDS and listening == 0


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
        # When last a ring was heard by nobody, and by nobody who waits for rings with nothing ready. Nobody knows what rang
        # before this instance.
        self._unheard_at = self._unheard_beside_at = self._born

    @property
    def heard(self) -> Heard:
        """Who would hear a ring now."""
        bounded = sum(len(parked) for (bounded, _), parked in self._claims.items() if bounded)
        return Heard(sum(map(len, self._claims.values())), bounded, len(self._watches))

    def ring(self, ring: Ring) -> Heard:
        """Something was committed: wake all watches, and as many of each group of claims as may find a record."""
        heard = self.heard
        if heard.watches == heard.bounded == 0:
            self._unheard_beside_at = self._ticks()
            if heard.claims == 0:
                self._unheard_at = self._unheard_beside_at
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
        # Whoever rang when nobody heard it may leave out what follows, for a while.
        unheard_at = self._unheard_beside_at if wish.group is None or wish.bounded else self._unheard_at
        if now - unheard_at < EARLY_SECONDS:
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


def _remember(known: dict[str, T], kind: str, value: T) -> None:
    """Note the newest, and forget the oldest where there are many."""
    known.pop(kind, None)
    if len(known) >= _REMEMBERED:
        del known[next(iter(known))]
    known[kind] = value


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

    def expect(self, kind: str) -> None:
        """Every ring is rung."""

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

"""Waiting for events: what a body asks for, and what it gets (clause waits.match)."""

import math
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from moorage.bodies import asking
from moorage.bodies.effects import Effects
from moorage.bodies.errors import TimedOut
from moorage.bodies.values import NOTHING, Shape
from moorage.journal.model import EntryKey
from moorage.kernel import canonical
from moorage.kernel.instants import Instant, after
from moorage.kernel.limits import EVENT_LOOK_BACK_DEFAULT, EVENT_LOOK_BACK_SECONDS, EVENT_WAIT_SECONDS
from moorage.messages.inbox.matching import Filter
from moorage.runs.operations import AwaitEvent

if TYPE_CHECKING:
    from moorage.bodies.core import Core

Seconds = float | timedelta


@dataclass(frozen=True, slots=True)
class Event:
    """An event that a run waited for.

    `id` and `source` are its sender's, `event_id` is its id here. `attributes` are its other CloudEvents attributes as they
    were sent, `keys` by what it was found. `data` is JSON, or what `returns` made of it; None where it has none.
    """

    event_id: str
    id: str
    source: str
    type: str
    keys: tuple[str, ...]
    accepted_at: datetime
    attributes: Mapping[str, Any] = field(default_factory=dict)
    data: Any = None

    @property
    def subject(self) -> str | None:
        """The subject that it was sent with."""
        return self.attributes.get("subject")

    @property
    def time(self) -> str | None:
        """The instant that its sender gave it, as it was sent."""
        return self.attributes.get("time")

    @property
    def cloud_event(self) -> dict[str, Any]:
        """The event as CloudEvents 1.0 in structured mode."""
        told = {"specversion": "1.0", "id": self.id, "source": self.source, "type": self.type, **self.attributes}
        return told if self.data is None else {**told, "data": self.data}


@dataclass(frozen=True, slots=True)
class Arrival:
    """How a wait for an event ended: `state` is received with the `event`, or timed_out at `deadline`."""

    state: Literal["received", "timed_out"]
    event: Event | None = None
    deadline: str | None = None


@dataclass(frozen=True, slots=True)
class EventWait:
    """A wait for an event, which begins when it is awaited.

    `await wait` gives the Event, and raises TimedOut past the timeout; `await wait.outcome()` gives both as an Arrival.
    Either is recorded: a replay reads the same.
    """

    label: str
    filter: Filter
    match: Mapping[str, Any] | None
    seconds: float | None
    look_back: float
    key: EntryKey
    _engine: "Core" = field(repr=False, compare=False)
    _shape: Shape = field(repr=False, compare=False, default=Shape(None))

    def __await__(self) -> Generator[Any, None, Event]:
        return self._event().__await__()

    async def outcome(self) -> Arrival:
        """How it ended, once it has."""
        recorded = canonical.stored(await self._recorded())
        if "timed_out" in recorded:
            return Arrival("timed_out", deadline=recorded["timed_out"])
        told = recorded["event"]
        data = self._engine.shaped(self.label, self._shape, told.get("data"))
        accepted = datetime.fromisoformat(told["accepted_at"])
        event = Event(
            told["event_id"],
            told["id"],
            told["source"],
            told["type"],
            tuple(told["keys"]),
            accepted,
            told["attributes"],
            data,
        )
        return Arrival("received", event)

    async def _event(self) -> Event:
        outcome = await self.outcome()
        if outcome.event is None:
            raise TimedOut(self.label, outcome.deadline or "", "no event came", "EventTimedOut")
        return outcome.event

    async def _recorded(self) -> str:
        engine, key = self._engine, self.key
        branch, token = await engine.begin(self.label)
        try:
            position, entry = engine.ask(branch, key)
            until: Instant | None = None
            if entry is not None:
                until = entry.next_attempt_at
            elif self.seconds is not None:
                until = after(engine.world.now(), self.seconds)
            wanted = AwaitEvent(key, position, self.filter.keys, self.filter.types, self.match, until, self.look_back)
            about = {"keys": list(self.filter.keys), "types": list(self.filter.types)}
            entry = await asking.until_ended(engine, key, entry, lambda: wanted, "event", position, until, None, about)
            return await asking.ended(engine, entry)
        finally:
            engine.leave(branch, token)


class Waits(Effects):
    """The part of `Run` that waits for events."""

    __slots__ = ()

    def wait_event(
        self,
        label: str,
        *,
        keys: Iterable[str] = (),
        types: Iterable[str] = (),
        match: Mapping[str, Any] | None = None,
        timeout: Seconds | None = None,
        look_back: Seconds = float(EVENT_LOOK_BACK_DEFAULT),
        input: Any = NOTHING,  # noqa: A002
        returns: Any = NOTHING,
    ) -> EventWait:
        """Wait for an event: `event = await run.wait_event("paid", keys=[order.id], types=["payment.received"])`.

        It is one that has one of `keys` and is of one of `types`, whichever are named (at least one key or type), and whose
        data fits the pattern `match`. The first such event wakes the wait, also one that was accepted up to `look_back`
        before (seconds or a timedelta; a day by default, EVENT_LOOK_BACK_SECONDS at most). An event that one wait of the run
        got is never another one's. `timeout` counts from when it is first asked.

        The wait is found again by its label and by what it waits for: to wait for the same again, declare the label with
        `each` and tell the waits apart by `input`. `returns` is how pydantic reads the event's data. Raises ValueError for
        what is out of bounds, RequestInvalid and PatternInvalid for what is no filter, CapabilityUnwired.
        """
        engine = self._engine
        engine.require("events")
        seconds = None if timeout is None else _seconds(timeout, "timeout", int(EVENT_WAIT_SECONDS))
        back = _seconds(look_back, "look_back", int(EVENT_LOOK_BACK_SECONDS))
        wanted = Filter.checked(_texts(keys, "keys"), _texts(types, "types"), match)
        identity: dict[str, Any] = {"keys": wanted.keys, "types": wanted.types, "match": match}
        if input is not NOTHING:
            identity["input"] = input
        key = self._key(label, identity)
        return EventWait(label, wanted, match, seconds, back, key, engine, Shape.of(returns))


def _seconds(given: Seconds, name: str, most: int) -> float:
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if isinstance(seconds, bool) or not (math.isfinite(seconds) and 0 <= seconds <= most):
        raise ValueError(f"run.wait_event takes a {name} of 0 to {most} seconds, not {given!r}")
    return float(seconds)


def _texts(given: Iterable[str], name: str) -> list[str]:
    if isinstance(given, str):
        raise TypeError(f"run.wait_event takes a list of {name}, not one text")
    texts = list(given)
    for one in texts:
        if not isinstance(one, str):
            raise TypeError(f"run.wait_event takes {name} that are texts, not {one!r}")
    # A set has another order in the next process, and a wait is found again by what it waits for, in its order.
    return sorted(texts) if isinstance(given, (set, frozenset)) else texts

"""The hub: who watches which run, and what each is told when (clause runs.stream).

Hosts tell it what they stored; telling costs nothing where nobody watches, never waits, and a run's end is never lost among
what is told. A run that somebody begins to watch is read from the durable record, and again whenever the record is said to
have changed, or when nothing was heard of the run for a while: so runs that are hosted elsewhere, and ends that nobody told,
are seen as well. All of it is in memory: with the hub the views go, and whoever watches begins anew, from the record.

Those who watch move their run's channel themselves while they wait. There is no task that could outlive them.
"""

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from moorage.kernel.errors import RunUnknown
from moorage.kernel.limits import STREAM_INTERVAL_MS, STREAM_RING
from moorage.runs.live.model import Snapshot, StepView, Version
from moorage.runs.live.reducer import Change, adopt, differing, reduce, settled
from moorage.runs.model import TERMINAL
from moorage.runs.observing import RunChange

KEPT_SECONDS: Final = 60
"""How long a channel is kept after its run's end was folded, or after the last watcher left."""

INBOX: Final = 1024
"""Changes that are held unfolded. More than that are folded at once; while there is no view yet, they are dropped."""

QUIET_SECONDS: Final = (1, 2, 4, 8, 10)
"""How long nothing may be heard of a watched run until its record is read again, each time a bit longer. Of a run that is
hosted elsewhere nothing is ever heard but its end, so its record is read each time after the first of these."""

_log = logging.getLogger("moorage.live")

Load = Callable[[str], Awaitable[Snapshot | None]]
"""Reads a run's view from the durable record; None when there is no such run."""


@dataclass(frozen=True, slots=True)
class Message:
    """What watchers are sent: the run with all its steps, or the run with those steps that changed."""

    type: Literal["snapshot", "update"]
    version: Version
    text: str
    last: bool
    """Whether the run has ended, so that nothing follows."""
    previous: Version | None = None
    """Of an update: what it follows."""


class _Channel:
    """One watched run. `folded` is its view now, `told` what its watchers have; `stale` says that the record knows more."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.folded: Snapshot | None = None
        self.told: Snapshot | None = None
        self.version = Version(0, 0)
        self.sent_at = float("-inf")
        self.inbox: list[Change] = []
        self.end: RunChange | None = None
        self.stale = True
        self.read_at = float("-inf")
        self.heard_at = float("-inf")
        self.quiet = 0
        self.ring: deque[Message] = deque(maxlen=int(STREAM_RING))
        self.count = 0
        self.watchers = 0
        self.waiting: set[asyncio.Future[None]] = set()
        self.reading = asyncio.Lock()

    @property
    def over(self) -> bool:
        """Whether the watchers were told of the run's end."""
        return self.told is not None and self.told.ended

    def take(self, change: Change) -> None:
        """Hold a change until the next fold. An end has a place of its own, the first one that is told."""
        if isinstance(change, RunChange) and change.status in TERMINAL:
            self.end = self.end or change
            self.wake()
            return
        if len(self.inbox) >= INBOX and not self.fold():
            self.stale = True
            return
        first = not self.inbox
        self.inbox.append(change)
        if first:
            self.wake()

    def fold(self) -> bool:
        """Fold what was told into the view. False when there is none yet, or when it is just being read: what is told
        meanwhile goes on top of what was read. An end is folded at once, since no reading takes it back."""
        if self.folded is None or (self.reading.locked() and self.end is None):
            return False
        changes = [*self.inbox, *([] if self.end is None else [self.end])]
        self.inbox.clear()
        self.folded = reduce(self.folded, changes)
        return True

    def wake(self) -> None:
        """Let all who wait look again."""
        for one in self.waiting:
            if not one.done():
                one.set_result(None)


class Hub:
    """The channels of one process. `ticks` are milliseconds on a steady scale, `started` is the instant of its start."""

    def __init__(
        self,
        load: Load,
        started: int,
        ticks: Callable[[], float],
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self._load = load
        self._epoch = started
        self._ticks = ticks
        self._sleep = sleep
        self._counter = 0
        self._channels: dict[str, _Channel] = {}
        self._leaving: dict[str, float] = {}

    @property
    def watched(self) -> int:
        """How many runs are held in memory."""
        return len(self._channels)

    def hears(self, run_id: str) -> bool:
        """Whether a run is watched, as an Observer: who begins to watch one reads what was stored until then."""
        return run_id in self._channels

    def tell(self, change: Change) -> None:
        """Take note of a change, as an Observer. Never waits and never raises."""
        self._evict()
        channel = self._channels.get(change.run_id)
        if channel is not None:
            channel.heard_at, channel.quiet = self._ticks(), 0
            channel.take(change)

    def changed(self, run_id: str) -> bool:
        """Take the hint that the record of a run has changed; answers whether somebody watches it."""
        self._evict()
        channel = self._channels.get(run_id)
        if channel is None:
            return False
        channel.stale, channel.quiet = True, 0
        channel.wake()
        return channel.watchers > 0

    async def subscribe(self, run_id: str, after: Version | None = None) -> "Subscription":
        """Watch a run: from its whole view on, or from what followed `after` where that is still known.

        Raises RunUnknown, and what reading the record raises.
        """
        self._evict()
        channel = self._channels.get(run_id)
        if channel is None:
            channel = self._channels[run_id] = _Channel(run_id)
        if not channel.over:
            self._leaving.pop(run_id, None)
        if not channel.watchers:
            # Nobody kept an eye on it, and nobody was told of anything just now.
            channel.stale, channel.sent_at = True, float("-inf")
        channel.watchers += 1
        try:
            if channel.folded is None or (channel.stale and not channel.over):
                await self._read(channel)
            if channel.folded is None:
                raise RunUnknown
            self._tell_watchers(channel)
        except BaseException:
            self._left(channel)
            raise
        return Subscription(self, channel, after)

    async def advance(self, channel: _Channel, until: float) -> None:
        """Do the next thing for a channel: read its record, tell its watchers, or wait for either, to `until` at most."""
        now = self._ticks()
        if not channel.over and channel.end is None and self._reading_due(channel) <= now and not channel.reading.locked():
            await self._read_on(channel)
            return
        if self._tell_watchers(channel) or channel.over:
            return
        dues = [until]
        if not channel.reading.locked():
            dues.append(self._reading_due(channel))
        if channel.inbox or channel.folded != channel.told:
            dues.append(channel.sent_at + STREAM_INTERVAL_MS)
        await self._wait(channel, min(dues) - now)

    def leave(self, channel: _Channel) -> None:
        """A watcher goes."""
        self._left(channel)

    def _left(self, channel: _Channel) -> None:
        channel.watchers -= 1
        if channel.watchers or self._channels.get(channel.run_id) is not channel:
            return
        if channel.folded is None or (channel.over and channel.end is None):
            # There is nothing to keep: no such run, or one whose end the record tells.
            del self._channels[channel.run_id]
        elif channel.run_id not in self._leaving:
            self._leave_at(channel)

    def _leave_at(self, channel: _Channel) -> None:
        self._leaving.pop(channel.run_id, None)
        self._leaving[channel.run_id] = self._ticks() + KEPT_SECONDS * 1000

    def _evict(self) -> None:
        now = self._ticks()
        while self._leaving:
            run_id, at = next(iter(self._leaving.items()))
            if at > now:
                return
            del self._leaving[run_id]
            self._channels.pop(run_id, None)

    def _tell_watchers(self, channel: _Channel) -> bool:
        """Tell of what is new, if it is time to; an end is told at once. False when there was nothing to tell."""
        now = self._ticks()
        if channel.over or (channel.end is None and now < channel.sent_at + STREAM_INTERVAL_MS):
            return False
        channel.fold()
        before, after = channel.told, channel.folded
        if after is None or after == before:
            return False
        self._counter += 1
        previous, channel.version = channel.version, Version(self._epoch, self._counter)
        channel.told, channel.sent_at = after, now
        if before is not None:
            channel.ring.append(_message("update", after, differing(before, after), channel.version, previous))
            channel.count += 1
        if after.ended:
            channel.inbox.clear()
            if channel.end is not None:
                self._leave_at(channel)
        channel.wake()
        return True

    def _reading_due(self, channel: _Channel) -> float:
        if channel.stale:
            return channel.read_at + STREAM_INTERVAL_MS
        elsewhere = channel.folded is not None and channel.folded.host != "worker"
        quiet = QUIET_SECONDS[0 if elsewhere else channel.quiet]
        return max(channel.heard_at, channel.read_at) + quiet * 1000

    async def _read_on(self, channel: _Channel) -> None:
        """Read the record again. A failure shows nothing: the next reading will."""
        quiet, before = not channel.stale, channel.folded
        try:
            await self._read(channel)
        except Exception as error:
            _log.warning("a run's record could not be read: %s", type(error).__name__)
            quiet, channel.stale = True, False
        if quiet:
            same = channel.folded is before
            channel.quiet = min(channel.quiet + 1, len(QUIET_SECONDS) - 1) if same else 0

    async def _read(self, channel: _Channel) -> None:
        """Take the record's view over. What is told meanwhile is folded on top: it may be newer, and is harmless if not."""
        waited = channel.reading.locked()
        channel.fold()
        async with channel.reading:
            if waited and not channel.stale and channel.folded is not None:
                return
            channel.stale = False
            try:
                found = await self._load(channel.run_id)
            except BaseException:
                channel.stale = True
                raise
            finally:
                channel.read_at = self._ticks()
            if found is not None:
                held = channel.folded
                channel.folded = settled(found) if held is None else adopt(held, found)
        channel.wake()

    async def _wait(self, channel: _Channel, milliseconds: float) -> None:
        """Wait until the channel has something new, or so long."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = asyncio.ensure_future(self._sleep(max(0.0, milliseconds) / 1000))
        channel.waiting.add(woken)
        try:
            await asyncio.wait((woken, timer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            channel.waiting.discard(woken)
            timer.cancel()


class Subscription:
    """One watcher's place. `next` gives messages in order; who is STREAM_RING messages behind gets the whole view anew."""

    def __init__(self, hub: Hub, channel: _Channel, after: Version | None) -> None:
        self._hub = hub
        self._channel = channel
        self._open = True
        self._place: int | None = self._resumed(after)
        self._ended = False

    @property
    def over(self) -> bool:
        """Whether the last message was given."""
        return self._ended

    async def next(self, seconds: float) -> Message | None:
        """The next message; None when none came within `seconds`, or when the last one was given."""
        until = self._hub._ticks() + seconds * 1000
        while not self._ended:
            message = self._take()
            if message is not None:
                self._ended = message.last
                return message
            if self._channel.over:
                self._ended = True
            elif self._hub._ticks() >= until:
                return None
            else:
                await self._hub.advance(self._channel, until)
        return None

    def close(self) -> None:
        """Watch no more."""
        if self._open:
            self._open = False
            self._hub.leave(self._channel)

    def _take(self) -> Message | None:
        channel = self._channel
        first = channel.count - len(channel.ring)
        if self._place is None or self._place < first:
            self._place = channel.count
            assert channel.told is not None  # noqa: S101 - a subscription is made of a channel that has a view
            return _message("snapshot", channel.told, list(channel.told.steps.values()), channel.version)
        if self._place == channel.count:
            return None
        message = channel.ring[self._place - first]
        self._place += 1
        return message

    def _resumed(self, after: Version | None) -> int | None:
        """The place that follows a version, or None where that is not known any more."""
        channel = self._channel
        if after is None:
            return None
        if after == channel.version:
            return channel.count
        first = channel.count - len(channel.ring)
        return next((first + number for number, one in enumerate(channel.ring) if one.previous == after), None)


def _message(
    type_: Literal["snapshot", "update"],
    view: Snapshot,
    steps: list[StepView],
    version: Version,
    previous: Version | None = None,
) -> Message:
    told = {"type": type_, "version": version.wire(), **view.run_wire(), "steps": [step.wire() for step in steps]}
    return Message(type_, version, json.dumps(told, separators=(",", ":"), allow_nan=False), view.ended, previous)

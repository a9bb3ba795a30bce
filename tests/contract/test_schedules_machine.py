"""Overlap, catch-up, pauses, windows by hand and ends of runs, in any order (clause schedules.window).

A few lines of Python say what becomes of each window: the product has to agree. Whatever happens, no window starts two runs,
each window that came has one row, and what never came is accounted for.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from moorage.catalog.access import Caller
from moorage.catalog.kinds import Kinds
from moorage.kernel.instants import Instant
from moorage.schedules import declare, manual
from moorage.schedules.due import GRACE_MS, ScheduleQueue, Schedules
from moorage.schedules.model import BodyTarget, Declaration
from moorage.schedules.starting import Means
from moorage.timers import clock
from moorage.timers.due import DueWork
from tests.contract.adapters import Store, sqlite_store
from tests.contract.operations import NOW, OneBody
from tests.contract.runs_desk import ORDER

MINUTE = 60_000
EVERY = 10 * MINUTE
REACH = 45 * MINUTE
ROOT = Caller("root")


@dataclass
class Model:
    """What ought to be: the state of each window by its start, the one that runs, and where the schedule stands."""

    overlap: str
    catch_up: str
    next_at: int | None
    rows: dict[int, str] = field(default_factory=dict)
    backfilled: set[int] = field(default_factory=set)
    running: int | None = None

    @property
    def queued(self) -> list[int]:
        return sorted(start for start, state in self.rows.items() if state == "queued")

    def come(self, start: int) -> None:
        """A window comes, and the overlap policy decides."""
        busy, line = self.running is not None, bool(self.queued)
        if self.overlap == "skip":
            self._put(start, "skipped" if busy else "started")
        elif not busy and not line:
            self._put(start, "started")
        else:
            if self.overlap == "coalesce":
                for one in self.queued:
                    if one not in self.backfilled:
                        self.rows[one] = "coalesced"
            self.rows[start] = "queued"

    def _put(self, start: int, state: str) -> None:
        self.rows[start] = state
        if state == "started":
            self.running = start

    def pass_time(self, now: int) -> None:
        """Whatever is due at `now`, as a Clock does that did nothing before."""
        while self.next_at is not None and self.next_at <= now:
            first = self.next_at
            if first in self.rows:
                self.next_at += EVERY
                continue
            wanted = self._wanted(first, now)
            if wanted == first:
                self.come(first)
                self.next_at += EVERY
            else:
                self.rows[first] = "skipped"
                self.next_at = first + ((now - first) // EVERY + 1) * EVERY if wanted is None else wanted
        self.take_turns()

    def _wanted(self, first: int, now: int) -> int | None:
        horizon = now - max(0 if self.catch_up == "none" else REACH, GRACE_MS)
        begun = list(range(first, now + 1, EVERY))
        reachable = [one for one in begun if one >= horizon]
        if not reachable:
            return None
        return reachable[0] if self.catch_up == "all" else begun[-1]

    def take_turns(self) -> None:
        """Let the first that waits start once nothing runs; a paused schedule lets nothing start."""
        if self.next_at is not None and self.running is None and self.queued:
            self._put(self.queued[0], "started")


class ScheduleMachine(RuleBasedStateMachine):
    """The product and the model side by side."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._folder = TemporaryDirectory()
        self._context = sqlite_store(Path(self._folder.name))
        self.store: Store = self._run(self._context.__aenter__())
        self.now = int(NOW)

    def teardown(self) -> None:
        self._run(self._context.__aexit__(None, None, None))
        self._loop.close()
        self._folder.cleanup()

    def _run(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)

    @property
    def means(self) -> Means:
        return Means(Kinds(), OneBody(), self.store.blobs)

    def put(self, paused: bool = False) -> None:
        declaration = Declaration(
            None,
            EVERY,
            "UTC",
            self.model.overlap,  # type: ignore[arg-type]
            self.model.catch_up,  # type: ignore[arg-type]
            REACH,
            BodyTarget(ORDER.name, 1),
            paused,
        )
        self._run(declare.put(self.store.db(), self.means, ROOT, Instant(self.now), "s", declaration))

    def drain(self) -> None:
        works: list[DueWork] = [Schedules(self.means), ScheduleQueue(self.means)]
        drained = self._run(clock.drain(self.store.db, Instant(self.now), works, budget=1000))
        assert not drained.failed

    @initialize(overlap=st.sampled_from(["skip", "coalesce", "enqueue"]), catch_up=st.sampled_from(["all", "last", "none"]))
    def begin(self, overlap: str, catch_up: str) -> None:
        self.model = Model(overlap, catch_up, self.now + EVERY)
        self.put()

    @rule(minutes=st.sampled_from([1, 3, 10, 11, 25, 60, 200]))
    def the_clock_comes_after(self, minutes: int) -> None:
        self.now += minutes * MINUTE
        self.model.pass_time(self.now)
        self.drain()

    @rule(windows=st.integers(1, 6))
    def time_passes_under_a_clock_that_is_never_late(self, windows: int) -> None:
        for _ in range(windows):
            step = self.model.next_at - self.now if self.model.next_at and self.model.next_at > self.now else MINUTE
            self.now += step
            self.model.pass_time(self.now)
            self.drain()

    @precondition(lambda self: self.model.running is not None)
    @rule()
    def what_runs_ends(self) -> None:
        self._run(self.store.sql("UPDATE runs SET status = 'success', ended_at = CAST(? AS INTEGER)", str(self.now)))
        self.model.running = None
        self.model.take_turns()
        self.drain()

    @rule()
    def it_is_paused_or_resumed(self) -> None:
        paused = self.model.next_at is not None
        made = self._run(declare.set_paused(self.store.db(), ROOT, Instant(self.now), "s", paused))
        self.model.next_at = None if paused else self._after(self.now)
        assert made.next_at == self.model.next_at
        self.model.take_turns()
        self.drain()

    def _after(self, instant: int) -> int:
        return instant - (instant - NOW) % EVERY + EVERY

    @rule()
    def somebody_lets_a_window_come(self) -> None:
        self.now += 1
        self.model.come(self.now)
        made, _ = self._run(manual.trigger(self.store.db(), self.means, ROOT, Instant(self.now), "s"))
        assert made.state == self.model.rows[self.now]

    @rule(back=st.integers(1, 12), count=st.integers(1, 6))
    def somebody_fills_a_range(self, back: int, count: int) -> None:
        first = self._after(self.now) - back * EVERY
        end = min(first + count * EVERY, self.now)
        if first >= end:
            return
        added = 0
        for start in range(first, end, EVERY):
            if self.model.rows.get(start) in (None, "skipped", "coalesced"):
                self.model.rows[start] = "queued"
                self.model.backfilled.add(start)
                added += 1
        told = self._run(manual.backfill(self.store.db(), ROOT, Instant(self.now), "s", Instant(first), Instant(end)))
        assert told == (len(range(first, end, EVERY)), added)
        self.model.take_turns()
        self.drain()

    @rule()
    def the_same_declaration_comes_again(self) -> None:
        self.put(paused=self.model.next_at is None)

    @invariant()
    def they_agree(self) -> None:
        if not hasattr(self, "model"):
            return
        rows = self._run(self.store.sql("SELECT window_start, state, run_id FROM schedule_triggers"))
        assert {row["window_start"]: row["state"] for row in rows} == self.model.rows
        runs = [row["run_id"] for row in rows if row["run_id"] is not None]
        assert len(set(runs)) == len(runs) == sum(state == "started" for state in self.model.rows.values())
        assert self._run(self.store.sql("SELECT count(*) AS n FROM runs"))[0]["n"] == len(runs)
        held = [start for start in self.model.queued if start not in self.model.backfilled]
        assert self.model.overlap != "coalesce" or len(held) <= 1
        shown = self._run(declare.show(self.store.db(), ROOT, Instant(self.now), "s"))
        assert (shown.next_at, shown.queued, shown.busy) == (
            self.model.next_at,
            len(self.model.queued),
            self.model.running is not None,
        )


@pytest.fixture(autouse=True)
def _no_loop_is_left() -> Iterator[None]:
    yield
    asyncio.set_event_loop(None)


TestScheduleMachine = pytest.mark.clause("schedules.window")(ScheduleMachine.TestCase)
TestScheduleMachine.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)

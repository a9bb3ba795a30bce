"""One suite for every substrate: the engine drives bodies on it, and must find what the protocol says.

A test module gives a fixture `shore`, a `Shore` over its substrate, and a class that inherits `Conformance`. The substrate
in the Worker and the one over HTTP are held to the same by the same tests (clause runs.substrate).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pytest

from moorage.bodies import Registry, Run, StepFailed, TimedOut, body, each
from moorage.bodies.host import Host
from moorage.guards.model import Guard
from moorage.journal.model import Entry, EntryKey, Fence, Lease, Value
from moorage.kernel.errors import RunMetadataTooLarge, StorageBindingUnavailable
from moorage.kernel.limits import JOURNAL_INLINE_BYTES
from moorage.runs.model import Execution, Minted, Stop
from moorage.runs.operations import Operation, Outcome
from moorage.runs.substrate_port import Substrate
from tests.unit.bodies import programs
from tests.unit.bodies.clock import Clock
from tests.unit.bodies.programs import Outside, Program, program

LEASE = 30.5


class Shore(Protocol):
    """What a test needs of a deployment beside its substrate. Everything in it lives by `clock`."""

    clock: Clock
    substrate: Substrate

    async def open(self, registry: Registry, name: str, given: Any) -> Execution:
        """Open a run of a body of the registry, and take it."""

    async def take(self, registry: Registry, execution_id: str) -> Execution | None:
        """Take an execution."""

    async def show(self, run_id: str) -> Mapping[str, Any]:
        """A run's `status`, `result`, `error`, `metadata` and `next_attempt_at` (milliseconds), those that there are."""

    async def resolve(self, token: str, payload: Any) -> None:
        """Resolve an awakeable."""

    async def send(self, key: str, data: Any, route: bool) -> None:
        """Accept an event of the type `paid` with this key, and route it unless its router died."""

    async def stop(self, run_id: str) -> None:
        """Ask a run to stop."""

    async def declare(self, name: str, window: int | None) -> None:
        """Declare a destination, `https://<name>.test/v1`, and how long it drops a repeated key."""

    async def guards(self) -> Sequence[Guard]:
        """The guards that there are."""

    async def reconcile(self, token: str, evidence: str) -> None:
        """Release a guard by hand."""


class Watched:
    """A substrate whose writes can be counted, lost, and cut off, and which remembers the tokens that it told."""

    def __init__(self, substrate: Substrate, clock: Clock) -> None:
        self._substrate = substrate
        self._clock = clock
        self.killed = asyncio.Event()
        self.kill_at: tuple[int, str] | None = None
        self.lose: set[int] = set()
        self.calls = 0
        self.applied: list[list[str]] = []
        self.tokens: dict[str, str] = {}

    async def apply(self, fence: Fence, operations: Sequence[Operation]) -> list[Outcome]:
        self.calls += 1
        number = self.calls
        await self._maybe_killed(number, "before")
        with self._clock.working():
            outcomes = await self._substrate.apply(fence, operations)
        self.applied.append([one.op for one in operations])
        for outcome in outcomes:
            if isinstance(outcome, Minted):
                self.tokens[outcome.id] = outcome.token
        await self._maybe_killed(number, "after")
        if number in self.lose:
            raise StorageBindingUnavailable
        return outcomes

    async def _maybe_killed(self, number: int, when: str) -> None:
        if self.kill_at == (number, when):
            self.kill_at = None
            self.killed.set()
            await asyncio.get_running_loop().create_future()

    async def refresh(self, fence: Fence) -> list[Entry]:
        with self._clock.working():
            return await self._substrate.refresh(fence)

    async def values(self, fence: Fence, keys: Sequence[EntryKey]) -> list[Value]:
        with self._clock.working():
            return await self._substrate.values(fence, keys)

    async def cursor(self, fence: Fence, name: str) -> tuple[Value | None, int]:
        with self._clock.working():
            return await self._substrate.cursor(fence, name)

    async def renew(self, fences: Sequence[Fence]) -> dict[str, Lease]:
        with self._clock.working():
            return await self._substrate.renew(fences)

    async def stops(self, fences: Sequence[Fence]) -> dict[str, Stop]:
        with self._clock.working():
            return await self._substrate.stops(fences)

    async def register_holder(self, holder: str, name: str) -> None:
        with self._clock.working():
            await self._substrate.register_holder(holder, name)

    async def exit_holder(self, holder: str, reason: str) -> None:
        with self._clock.working():
            await self._substrate.exit_holder(holder, reason)


class Voyage:
    """One run on a shore, on as many hosts as it takes."""

    def __init__(self, shore: Shore, *bodies: Any) -> None:
        self.shore = shore
        self.registry = Registry(bodies)
        self.watched = Watched(shore.substrate, shore.clock)
        self.run_id = ""
        self.events: list[tuple[str, Any, bool]] = []

    def host(self) -> Host:
        clock = self.shore.clock
        return Host(self.registry, self.watched, now=clock.now, sleep=clock.sleep)

    async def to_the_end(self, name: str, given: Any = None) -> Mapping[str, Any]:
        """Open it, and go on after every kill, wait and suspension until it has ended: as the record then shows it."""
        shore, clock, host = self.shore, self.shore.clock, self.host()
        execution = await shore.open(self.registry, name, given)
        self.run_id = execution.run_id
        for _ in range(100):
            task = host.start(execution)
            killed = asyncio.ensure_future(self.watched.killed.wait())
            await clock.drive(asyncio.wait({task, killed}, return_when=asyncio.FIRST_COMPLETED))
            killed.cancel()
            cut_off = self.watched.killed.is_set()
            if cut_off:
                self.watched.killed.clear()
                await clock.drive(host.close())
                host = self.host()
            shown = await shore.show(self.run_id)
            if shown["status"] in ("success", "failed", "canceled"):
                return shown
            await self._wait(shown)
            taken = await shore.take(self.registry, execution.execution_id)
            assert taken is not None, shown
            execution = taken
        raise AssertionError("the run does not end")

    async def _wait(self, shown: Mapping[str, Any]) -> None:
        clock = self.shore.clock
        if shown["status"] == "running":
            clock.advance_to(clock.now() + int(LEASE * 1000))
        elif shown["status"] == "waiting":
            clock.advance_to(shown["next_attempt_at"])
        elif self.events:
            await self.shore.send(*self.events.pop(0))
        elif shown["next_attempt_at"] is not None and not self.watched.tokens:
            clock.advance_to(shown["next_attempt_at"])
        else:
            # Everything that the run asked for outside is answered.
            for name, token in list(self.watched.tokens.items()):
                del self.watched.tokens[name]
                await self.shore.resolve(token, {"ok": True})


PROGRAMS: dict[str, Program] = {
    "steps": [["step", 1, 0], ["step", 2, 0], ["sleep", 0.05], ["step", 3, 0]],
    "branches": [
        ["gather", [["step", 1, 0], ["step", 2, 0]], [["step", 3, 1]], [["sleep", 3], ["step", 4, 0]]],
        ["step", 5, -1],
    ],
    "awakeables": [["ask", 1], ["partial", [["ask", 2]], [["step", 3, -1], ["step", 4, 0]]]],
    "retries": [["sleep", 100], ["step", 1, 2], ["gather", [["step", 2, 1]], [["step", 3, 0]]]],
}


async def journey(shore: Shore, nodes: Program, kill: tuple[str, int, str] | None = None) -> tuple[Any, Voyage, Outside]:
    """Drive a program to its end, with at most one kill: its result, and what was done for it."""
    voyage = Voyage(shore, program)
    outside = programs.outside = Outside()
    outside.killed = voyage.watched.killed
    if kill is not None:
        (voyage.watched if kill[0] == "write" else outside).kill_at = (kill[1], kill[2])
    shown = await voyage.to_the_end("program", nodes)
    assert shown["status"] == "success", (kill, shown)
    by_number: dict[int, list[tuple[str, int]]] = {}
    for key, number, attempt in outside.calls:
        by_number.setdefault(number, []).append((key, attempt))
    for calls in by_number.values():
        assert len({key for key, _ in calls}) == 1
        assert [attempt for _, attempt in calls] == sorted({attempt for _, attempt in calls})
    return shown["result"], voyage, outside


class Conformance:
    """The suite. `stride` leaves out kills where a round trip is dear."""

    stride = 1

    @pytest.mark.clause("runs.substrate", "runs.step-output", "runs.claim-takeover", "runs.idempotency-key")
    @pytest.mark.parametrize("name", list(PROGRAMS))
    async def test_a_kill_at_any_write_and_any_effect_changes_nothing(self, shore: Shore, name: str) -> None:
        nodes = PROGRAMS[name]
        result, voyage, outside = await journey(shore, nodes)
        effects = len(outside.calls)
        places = [("write", number, when) for number in range(1, voyage.watched.calls + 1) for when in ("before", "after")]
        places += [("effect", number, when) for number in range(1, effects + 1) for when in ("before", "after")]
        for place in places[:: self.stride]:
            again, _, outside = await journey(shore, nodes, place)
            assert again == result, place
            assert len(outside.calls) <= effects + 3, place

    @pytest.mark.clause("runs.substrate", "runs.no-double-spend")
    @pytest.mark.parametrize("name", list(PROGRAMS))
    async def test_an_answer_that_is_lost_after_every_write_changes_nothing(self, shore: Shore, name: str) -> None:
        result, _, outside = await journey(shore, PROGRAMS[name])
        effects = len(outside.calls)
        voyage = Voyage(shore, program)
        outside = programs.outside = Outside()
        voyage.watched.lose = set(range(1, 200, 2))
        shown = await voyage.to_the_end("program", PROGRAMS[name])
        assert (shown["status"], shown["result"]) == ("success", result)
        assert len(outside.calls) == effects

    @pytest.mark.clause("runs.substrate")
    async def test_races_and_chance_are_decided_once(self, shore: Shore) -> None:
        nodes: Program = [
            ["first", [["step", 1, 0], ["step", 2, 0]], [["sleep", 100]], [["ask", 3]]],
            ["draw"],
            ["step", 4, 0],
        ]
        for number in range(1, 6):
            for when in ("before", "after"):
                result, _, _ = await journey(shore, nodes, ("write", number, when))
                assert result[0][0] in (0, 1, 2)
                assert result[2] == 40

    @pytest.mark.clause("runs.substrate", "awake.mint")
    async def test_a_replay_mints_nothing_anew(self, shore: Shore) -> None:
        @body("asks", effects=[each("ask"), "look"])
        async def asks(run: Run) -> list[Any]:
            first, second = [await run.awakeable("ask", ttl=60, input=number) for number in range(2)]
            told.append((first.token, first.url, second.token, second.deadline))
            await run.step("look", lambda: 1)
            await run.sleep(10)
            return [await first, await second]

        told: list[Any] = []
        voyage = Voyage(shore, asks)
        voyage.watched.kill_at = (4, "after")
        shown = await voyage.to_the_end("asks")
        assert shown["result"] == [{"ok": True}] * 2
        assert len(told) >= 3
        assert len(set(told)) == 1
        assert sum(ops.count("mint") for ops in voyage.watched.applied) == 2

    @pytest.mark.clause("waits.match", "runs.substrate")
    async def test_events_before_and_after_their_waits_are_met_once_wherever_a_host_is_killed(self, shore: Shore) -> None:
        @body("receives", effects=["early", each("late"), "never", "beside"])
        async def receives(run: Run) -> Any:
            early = await run.wait_event("early", keys=["early"], types=["paid"])
            late = [await run.wait_event("late", keys=["late"], match={"n": {"$gt": 1}}, input=n) for n in range(2)]
            over: str | None = None
            try:
                await run.wait_event("never", keys=["nobody"], timeout=30)
            except TimedOut as error:
                over = error.code
            won = await run.first(run.wait_event("beside", keys=["nobody"]), run.sleep(5))
            told = [early, *late]
            return [[one.data["n"] for one in told], [one.type for one in told], over, won.branch]

        async def drive(kill: tuple[int, str] | None) -> Voyage:
            await shore.send("early", {"n": 0}, False)
            voyage = Voyage(shore, receives)
            voyage.events = [("late", {"n": number}, True) for number in (1, 2, 3)]
            voyage.watched.kill_at = kill
            shown = await voyage.to_the_end("receives")
            assert shown["status"] == "success", (kill, shown)
            assert shown["result"] == [[0, 2, 3], ["paid"] * 3, "EventTimedOut", 1], kill
            return voyage

        writes = (await drive(None)).watched.calls
        shore.clock.advance_to(shore.clock.now() + 2 * 86_400_000)
        for number in range(1, writes + 1, self.stride):
            for when in ("before", "after"):
                await drive((number, when))
                # What was sent to this run is too long ago for the next one.
                shore.clock.advance_to(shore.clock.now() + 2 * 86_400_000)

    async def test_a_large_value_comes_back_whole(self, shore: Shore) -> None:
        large = "ä" * int(JOURNAL_INLINE_BYTES)

        @body("large", effects=[each("make"), "after"])
        async def makes(run: Run) -> int:
            first = await run.step("make", lambda: large)
            small = await run.step("make", lambda: "small", input=2)
            await run.sleep(100)
            again = await run.step("make", lambda: "never")
            return len(first) + len(again) + len(small) + await run.step("after", lambda: 1)

        shown = await Voyage(shore, makes).to_the_end("large")
        assert shown["result"] == 2 * len(large) + 5 + 1

    async def test_metadata_is_kept_and_bounded(self, shore: Shore) -> None:
        @body("tells", effects=[each("one")])
        async def tells(run: Run) -> str:
            run.metadata["seen"] = 1
            await run.step("one", lambda: 1, input=1)
            try:
                run.metadata["much"] = "x" * 17_000
            except RunMetadataTooLarge:
                run.metadata["seen"] = 2
            return "done"

        shown = await Voyage(shore, tells).to_the_end("tells")
        assert shown["metadata"] == {"seen": 2}

    async def test_a_cursor_moves_with_the_journal(self, shore: Shore) -> None:
        @body("moves", effects=["move", "again"])
        async def moves(run: Run) -> Any:
            read = await run.cursor("page")
            moved = await run.commit("move", read, {"page": read.revision + 1})
            try:
                await run.commit("again", read, {"page": 9})
            except StepFailed as error:
                return [moved.position, moved.revision, error.code]

        shown = await Voyage(shore, moves).to_the_end("moves")
        assert shown["result"] == [{"page": 1}, 1, "CursorMoved"]

    @pytest.mark.clause("runs.step-failed")
    async def test_a_failed_run_says_step_and_tag(self, shore: Shore) -> None:
        @body("fails", effects=["one"])
        async def fails(run: Run) -> None:
            def wrong() -> None:
                raise ValueError("no such sku")

            await run.step("one", wrong)

        shown = await Voyage(shore, fails).to_the_end("fails")
        assert shown["status"] == "failed"
        assert shown["error"] == {"tag": "Permanent", "code": "ValueError", "message": "no such sku", "step": "one"}

    @pytest.mark.clause("runs.poll", "runs.one-token")
    async def test_a_stop_is_seen_within_half_a_second_and_closes_the_run(self, shore: Shore) -> None:
        @body("hangs", effects=["one", "hang"])
        async def hangs(run: Run) -> None:
            async def hang() -> None:
                with shore.clock.working():
                    await shore.stop(run.id)
                asked.append(shore.clock.now())
                await asyncio.get_running_loop().create_future()

            await run.step("one", lambda: 1)
            await run.step("hang", hang)

        asked: list[int] = []
        shown = await Voyage(shore, hangs).to_the_end("hangs")
        assert shown["status"] == "canceled"
        assert shore.clock.now() - asked[0] <= 500

"""Guarded effects on every substrate: hosts are killed at every write and every request, and each effect is done once.

An operator looks after what stays guarded, as in `tests.unit.bodies.test_guards_crash`, of which this is the real part.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from moorage.bodies import Run, body
from moorage.bodies.host import Host
from moorage.kernel.errors import ExecutionGuardBlocked
from moorage.runs.model import Execution
from tests.conformance.suite import LEASE, Shore, Voyage
from tests.unit.bodies.payments import Program, guarded, payments_of

WINDOWS: dict[str, int | None] = {"bank": 7200, "printer": None, "press": None}

PROGRAMS: dict[str, Program] = {
    "payments": [["pay", 1, "bank"], ["step", 2], ["pay", 3, "printer"]],
    "branches": [["gather", [["pay", 1, "bank"], ["pay", 2, "press"]], [["step", 3], ["pay", 4, "bank"]]]],
    "entities": [["entity", "x", ["pay", 1, "bank"], ["sleep", 3], ["gather", [["pay", 2, "printer"]], [["step", 3]]]]],
}


class Till:
    """All destinations: each request does its effect once, or again where no window covers its key."""

    def __init__(self, shore: Shore, killed: asyncio.Event) -> None:
        self.shore = shore
        self.killed = killed
        self.asked: list[str] = []
        self.effects: dict[str, int] = {}
        self.first: dict[str, int] = {}
        self.behave: dict[int, str] = {}
        self.kill_at: tuple[int, str] | None = None

    async def answer(self, request: httpx.Request) -> httpx.Response:
        key, name = request.headers["idempotency-key"], request.url.host.partition(".")[0]
        self.asked.append(key)
        number = len(self.asked)
        await self._maybe_killed(number, "before")
        behaviour = self.behave.get(number)
        if behaviour == "refused":
            raise httpx.ConnectError("nobody listens", request=request)
        if behaviour == "503":
            return httpx.Response(503)
        window, now = WINDOWS[name], self.shore.clock.now()
        if key not in self.first or window is None or now >= self.first[key] + window * 1000:
            self.first[key] = now
            self.effects[key] = self.effects.get(key, 0) + 1
        await self._maybe_killed(number, "after")
        if behaviour == "unheard":
            raise httpx.ReadTimeout("silence", request=request)
        return httpx.Response(200, json={"id": key[-8:]})

    async def _maybe_killed(self, number: int, when: str) -> None:
        if self.kill_at == (number, when):
            self.kill_at = None
            self.killed.set()
            await asyncio.get_running_loop().create_future()


class Passage(Voyage):
    """One run with payments on a shore."""

    def __init__(self, shore: Shore, *, orderly: bool = False) -> None:
        super().__init__(shore, guarded)
        self.orderly = orderly
        self.till = Till(shore, self.watched.killed)
        self.operated = 0

    def host(self) -> Host:
        clock = self.shore.clock
        transport = httpx.MockTransport(self.till.answer)
        return Host(self.registry, self.watched, now=clock.now, sleep=clock.sleep, transport=transport)

    async def of(self, nodes: Program) -> Mapping[str, Any]:
        """Drive it to its end, on as many hosts as it takes."""
        shore, host = self.shore, self.host()
        for name, window in WINDOWS.items():
            await shore.declare(name, window)
        taken: Execution | None = await shore.open(self.registry, "guarded", nodes)
        assert taken is not None
        self.run_id, execution_id = taken.run_id, taken.execution_id
        shown: Mapping[str, Any] = {}
        for _ in range(60):
            if taken is not None:
                host = await self._drive(host, taken)
            shown = await shore.show(self.run_id)
            if shown["status"] in ("success", "failed", "canceled"):
                return shown
            if shown["status"] == "running":
                shore.clock.advance_to(shore.clock.now() + int(LEASE * 1000))
            elif shown["next_attempt_at"] is not None:
                shore.clock.advance_to(shown["next_attempt_at"])
            try:
                taken = await shore.take(self.registry, execution_id)
            except ExecutionGuardBlocked:
                taken = None
                await self._operate()
        raise AssertionError(f"the run does not end: {shown}")

    async def _drive(self, host: Host, execution: Execution) -> Host:
        clock, killed = self.shore.clock, asyncio.ensure_future(self.watched.killed.wait())
        await clock.drive(asyncio.wait({host.start(execution), killed}, return_when=asyncio.FIRST_COMPLETED))
        killed.cancel()
        if not self.watched.killed.is_set():
            return host
        self.watched.killed.clear()
        await clock.drive(host.close())
        if self.orderly:
            assert await clock.drive(host.leave("stopped"))
        return self.host()

    async def _operate(self) -> None:
        """Release every guard, as somebody does who finds its key at the till, or does there by hand what it was about."""
        for guard in await self.shore.guards():
            key = guard.idempotency_key
            self.operated += 1
            if key not in self.till.effects and guard.covers(self.shore.clock.now()):
                await self.shore.reconcile(guard.token, f"idempotency:{key}")
                continue
            self.till.effects.setdefault(key, 1)
            await self.shore.reconcile(guard.token, f"receipt:{key}:{key[-8:]}")


async def passage(
    shore: Shore, nodes: Program, kill: tuple[str, int, str] | None = None, *, orderly: bool = False
) -> Passage:
    """Drive a program to its end, with at most one kill, and look whether each effect was done once."""
    made = Passage(shore, orderly=orderly)
    if kill is not None:
        (made.watched if kill[0] == "write" else made.till).kill_at = (kill[1], kill[2])
    shown = await made.of(nodes)
    assert shown["status"] == "success", (kill, shown)
    await settled(made, nodes)
    return made


async def settled(made: Passage, nodes: Program) -> None:
    """Each effect once, and nothing left behind."""
    assert list(made.till.effects.values()) == [1] * len(list(payments_of(nodes))), made.till.effects
    assert set(made.till.asked) <= set(made.till.effects)
    assert list(await made.shore.guards()) == []


class GuardedConformance:
    """The suite. `stride` leaves out kills where a round trip is dear."""

    stride = 1

    @pytest.mark.clause("guards.release", "guards.acquire", "guards.replay", "guards.manual", "guards.holder-gone")
    @pytest.mark.parametrize("orderly", [False, True], ids=["killed", "left"])
    @pytest.mark.parametrize("name", list(PROGRAMS))
    async def test_an_effect_is_done_once_wherever_its_host_is_killed(self, shore: Shore, name: str, orderly: bool) -> None:
        nodes = PROGRAMS[name]
        undisturbed = await passage(shore, nodes)
        assert undisturbed.operated == 0
        writes, requests = undisturbed.watched.calls, len(undisturbed.till.asked)
        places = [("write", number, when) for number in range(1, writes + 1) for when in ("before", "after")]
        places += [("request", number, when) for number in range(1, requests + 1) for when in ("before", "after")]
        for place in places[:: self.stride]:
            await passage(shore, nodes, place, orderly=orderly)

    @pytest.mark.clause("guards.release", "guards.window", "guards.evidence")
    @pytest.mark.parametrize("name", list(PROGRAMS))
    async def test_an_effect_is_done_once_whatever_its_requests_meet(self, shore: Shore, name: str) -> None:
        nodes = PROGRAMS[name]
        for behaviour in ("unheard", "refused", "503"):
            for number in (1, 2):
                made = Passage(shore)
                made.till.behave = {number: behaviour, number + 1: "refused"}
                assert (await made.of(nodes))["status"] == "success"
                await settled(made, nodes)

    @pytest.mark.clause("guards.release")
    async def test_a_guarded_effect_takes_two_round_trips(self, shore: Shore) -> None:
        made = await passage(shore, [["step", 1], ["pay", 2, "bank"]])
        assert made.watched.applied == [
            ["claim"],
            ["record", "claim", "admit_guard"],
            ["release_guard", "record"],
            ["close"],
        ]

    @pytest.mark.clause("guards.acquire", "guards.scope")
    async def test_a_lost_answer_to_an_admission_is_answered_the_same_guard(self, shore: Shore) -> None:
        made = Passage(shore)
        made.watched.lose = set(range(1, 100, 2))
        nodes = PROGRAMS["branches"]
        assert (await made.of(nodes))["status"] == "success"
        await settled(made, nodes)
        assert made.operated == 0
        assert len(made.till.asked) == len(made.till.effects)

    @pytest.mark.clause("guards.callback-limits")
    async def test_a_callback_tells_metadata_and_nothing_else(self, shore: Shore) -> None:
        @body("limits", effects=["pay", "late"])
        async def limits(run: Run) -> str:
            async def send() -> str:
                run.metadata["paying"] = True
                try:
                    await run.step("late", lambda: 1)
                except Exception as error:
                    return type(error).__name__
                return "allowed"

            return str((await run.effect("pay", None, send)).value)

        shown = await Voyage(shore, limits).to_the_end("limits")
        assert (shown["status"], shown["error"]["code"]) == ("failed", "CallbackLimited")
        assert shown["metadata"] == {"paying": True}
        assert list(await shore.guards()) == []

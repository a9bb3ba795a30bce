"""Random sequences of everything that can happen to effects in flight: owners, holders, windows, crashes, operators."""

import asyncio
import random
import tempfile
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from moorage.guards import statements as guards
from moorage.kernel.errors import MoorageError
from moorage.runs import control_statements, statements
from tests.contract.adapters import SqliteStore, Store, sqlite_store
from tests.contract.guard_model import DESTINATIONS, PROCESSES, SCOPES, Play
from tests.contract.watch_house import WatchHouse

T = TypeVar("T")
CLAUSES = (
    "guards.scope",
    "guards.acquire",
    "guards.window",
    "guards.release",
    "guards.replay",
    "guards.manual",
    "guards.live-holder",
    "guards.crash-held",
    "guards.blocked",
    "guards.current-owner",
)


class GuardMachine(RuleBasedStateMachine):
    """Hypothesis chooses what happens next."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.opened: AbstractAsyncContextManager[SqliteStore] = sqlite_store(Path(self.folder.name))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    async def begin(self, store: Store) -> Play:
        return await Play.begin(await WatchHouse.of(store))

    @initialize()
    def open(self) -> None:
        self.play = self.run(self.begin(self.run(self.opened.__aenter__())))
        for who, scope in zip(PROCESSES * 2, SCOPES, strict=True):
            self.take(who, scope)

    def teardown(self) -> None:
        self.run(self.opened.__aexit__(None, None, None))
        self.loop.close()
        self.folder.cleanup()

    who = st.sampled_from(PROCESSES)
    scope = st.sampled_from(SCOPES)
    number = st.integers(0, 20)
    name = st.sampled_from("78")

    def held(self, who: str, number: int) -> str | None:
        """A scope that the process believes to hold."""
        scopes = sorted(self.play.processes[who].fences)
        return scopes[number % len(scopes)] if scopes else None

    def sent(self, who: str, number: int) -> str | None:
        """A scope in which the process has sent something."""
        scopes = sorted(self.play.processes[who].sent)
        return scopes[number % len(scopes)] if scopes else None

    @rule(who=who, scope=scope)
    def take(self, who: str, scope: str) -> None:
        self.run(self.play.take(who, scope))

    @rule(who=who, number=number, destination=st.sampled_from(sorted(DESTINATIONS)), arrives=st.booleans())
    def admit(self, who: str, number: int, destination: str, arrives: bool) -> None:
        if (scope := self.held(who, number)) is not None:
            self.run(self.play.admit(who, scope, destination, arrives))

    @rule(who=who, number=number)
    def answer(self, who: str, number: int) -> None:
        if (scope := self.sent(who, number)) is not None:
            self.run(self.play.answer(who, scope))

    @rule(who=who, number=number)
    def resend(self, who: str, number: int) -> None:
        if (scope := self.sent(who, number)) is not None:
            self.run(self.play.resend(who, scope))

    @rule(who=who)
    def renew(self, who: str) -> None:
        self.run(self.play.renew(who))

    @rule(who=who, number=number)
    def suspend(self, who: str, number: int) -> None:
        if (scope := self.held(who, number)) is not None:
            self.run(self.play.suspend(who, scope))

    @rule(who=who, number=number)
    def close(self, who: str, number: int) -> None:
        if (scope := self.held(who, number)) is not None:
            self.run(self.play.close(who, scope))

    @rule(who=who, number=number, name=name)
    def hold(self, who: str, number: int, name: str) -> None:
        if (scope := self.held(who, number)) is not None:
            self.run(self.play.hold(who, scope, name))

    @rule(who=who, number=number, name=name)
    def let(self, who: str, number: int, name: str) -> None:
        if (scope := self.held(who, number)) is not None:
            self.run(self.play.let(who, scope, name))

    @rule(scope=scope)
    def cancel(self, scope: str) -> None:
        self.run(self.play.cancel(scope))

    @rule(scope=scope)
    def reopen(self, scope: str) -> None:
        self.run(self.play.reopen(scope))

    @rule(who=who, late=st.booleans())
    def crash(self, who: str, late: bool) -> None:
        self.run(self.play.crash(who, late=late))

    @rule(who=who)
    def leave(self, who: str) -> None:
        self.run(self.play.leave(who))

    @rule(who=who)
    def hand_over(self, who: str) -> None:
        self.run(self.play.hand_over(who))

    @precondition(lambda self: self.play.guards)
    @rule(number=number)
    def reconcile(self, number: int) -> None:
        tokens = sorted(self.play.guards)
        self.run(self.play.reconcile(self.play.guards[tokens[number % len(tokens)]]))

    @rule(seconds=st.sampled_from([1, 10, 20, 31, 60]))
    def pass_time(self, seconds: int) -> None:
        self.play.pass_time(seconds)

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "play"):
            self.run(self.play.agrees())


GuardMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.clause(*CLAUSES)
class TestGuardMachine(GuardMachine.TestCase):  # type: ignore[valid-type,misc]
    """The machine as a test."""


HELD = {"admit": 12, "hold": 3, "let": 2, "suspend": 1, "close": 1}
SENT = {"answer": 10, "resend": 2}
ANY = {
    "take": 6,
    "renew": 4,
    "pass_time": 4,
    "reconcile": 3,
    "crash": 1,
    "leave": 1,
    "hand_over": 2,
    "cancel": 1,
    "reopen": 2,
}
"""What happens how often, by what it needs: something that is held, something that was sent, nothing."""


async def one_step(play: Play, chance: random.Random) -> None:
    """One thing that happens, by chance; what goes forward more often than what goes wrong."""
    who = chance.choice(PROCESSES)
    process = play.processes[who]
    held, sent, guards_ = sorted(process.fences), sorted(process.sent), sorted(play.guards)
    may = ANY | (HELD if held else {}) | (SENT if sent else {})
    match chance.choices(list(may), list(may.values()))[0]:
        case "admit":
            destination = chance.choice(["shop", *DESTINATIONS])
            await play.admit(who, chance.choice(held), destination, chance.random() < 0.5)
        case "hold" | "let" as act:
            await getattr(play, act)(who, chance.choice(held), chance.choice("78"))
        case "suspend" | "close" as act:
            await getattr(play, act)(who, chance.choice(held))
        case "answer" | "resend" as act:
            await getattr(play, act)(who, chance.choice(sent))
        case "take":
            await play.take(who, chance.choice(SCOPES))
        case "cancel" | "reopen" as act:
            await getattr(play, act)(chance.choice(SCOPES))
        case "reconcile" if guards_:
            await play.reconcile(play.guards[chance.choice(guards_)])
        case "crash":
            await play.crash(who, late=chance.random() < 0.5)
        case "leave" | "hand_over" | "renew" as act:
            await getattr(play, act)(who)
        case _:
            play.pass_time(chance.choice([1, 10, 31, 60]))


async def walk(store: Store, steps: int, seed: int, every: int = 1) -> Play:
    """A random walk that is compared as it goes."""
    play = await Play.begin(await WatchHouse.of(store))
    chance = random.Random(seed)
    for number in range(steps):
        await one_step(play, chance)
        if number % every == 0:
            await play.agrees()
    await play.agrees()
    return play


@pytest.mark.clause(*CLAUSES)
async def test_a_random_walk_agrees_with_the_model(store: Store) -> None:
    play = await walk(store, 300, 1, every=1 if store.name == "sqlite" else 20)
    ended = {how[:4] for how in play.ended.values()}
    assert {"rele", "repl", "aud_"} <= ended


BREAKS = {
    "a takeover looks at no guard": (
        statements,
        "TAKE",
        "NOT EXISTS (SELECT 1 FROM guard_rows",
        "NOT EXISTS (SELECT 1 WHERE 0",
    ),
    "a takeover asks for no exit": (statements, "TAKE_OVER", "AND h.exited_at IS NOT NULL", ""),
    "a takeover asks for no window": (statements, "TAKE_OVER", "g.since + g.window_seconds * 1000 > :now\n    AND ", ""),
    "scopes above are not protected": (guards, "PROTECT", "WHERE instr(scope, '/') > 0", "WHERE 0"),
    "entities are not protected": (guards, "PROTECT", "AND l.expires_at > :now\n", "AND 0\n"),
    "entities in flight change hands": (guards, "HOLD_ENTITY", "p.row = 'lease:' || leases.key", "0"),
    "what is in flight is retired": (statements, "HELD_AND_UNPROTECTED", "p.row = 'scope:'", "p.row = 'never:'"),
    "every replay begins a window": (guards, "NOTE_REPLAY", "WHERE token IN", "WHERE 0 AND token IN"),
    "what is to be sent again is retired": (control_statements, "RETIRE_EMPTY", "AND u.settled = 0", "AND 0"),
    "what was sent again stays in doubt": (guards, "SETTLE_REPLAY", "WHERE settled = 0", "WHERE 0"),
    "live holders are reconciled": (guards, "IS_NOT_LIVE", "AND e.expires_at > :now", "AND 0"),
}


@pytest.mark.clause("store.negative-controls")
@pytest.mark.parametrize("fault", BREAKS)
async def test_the_model_finds_each_fault(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, right, wrong = BREAKS[fault]
    broken = getattr(module, name).replace(right, wrong)
    assert broken != getattr(module, name)
    monkeypatch.setattr(module, name, broken)
    with pytest.raises((AssertionError, MoorageError, pytest.fail.Exception)):
        await walk_often(tmp_path, 60)


async def test_without_a_fault_it_finds_none(tmp_path: Path) -> None:
    await walk_often(tmp_path, 12)


async def walk_often(folder: Path, times: int) -> None:
    """Random walks, each in a store of its own."""
    for seed in range(times):
        async with sqlite_store(folder / str(seed)) as store:
            await walk(store, 250, seed)

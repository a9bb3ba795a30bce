"""Random sequences of everything that can happen to runs and their owners, under faults, against a model of a few lines."""

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
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from moorage.runs.model import Grain
from tests.contract.adapters import SqliteStore, Store, sqlite_store
from tests.contract.faults import Fault
from tests.contract.runs_desk import RunsDesk
from tests.contract.runs_model import FAULTS, MODES, PLANS, SCOPES, RunsPlay

T = TypeVar("T")
ENDS = ("success", "failed", "canceled")
GRAINS: tuple[Grain, ...] = ("run", "pipeline")
WAITS = (None, 1, 40)
STEPS = ("admit", "admit", "take", "record", "record", "suspend", "close", "stop", "rewind", "fire", "time")
CLAUSES = pytest.mark.clause(
    "runs.owner",
    "runs.live-owner",
    "runs.owner-lease",
    "runs.orphan-reap",
    "runs.pin-release",
    "runs.pinned-plan-changed",
    "runs.rewind-unsafe",
    "runs.rewind-plan-current",
    "runs.rewind-not-pending",
    "runs.two-grains",
    "runs.cancel-race",
    "runs.wake",
    "leases.fence",
)


class RunsMachine(RuleBasedStateMachine):
    """Hypothesis chooses what happens next, and what goes wrong with it."""

    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.opened: AbstractAsyncContextManager[SqliteStore] = sqlite_store(Path(self.folder.name))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @initialize()
    def open(self) -> None:
        self.play = RunsPlay(RunsDesk(self.run(self.opened.__aenter__())))

    def teardown(self) -> None:
        self.run(self.opened.__aexit__(None, None, None))
        self.loop.close()
        self.folder.cleanup()

    scopes = st.sampled_from(SCOPES)
    plans = st.integers(0, len(PLANS) - 1)
    faults = st.sampled_from(FAULTS)
    number = st.integers(0, 40)

    @rule(scope=scopes, plan=plans, mode=st.sampled_from(MODES), fault=faults)
    def admit(self, scope: str, plan: int, mode: str, fault: Fault) -> None:
        self.run(self.play.admit(scope, plan, mode, fault))

    @rule(scope=scopes, plan=plans, fault=faults)
    def take(self, scope: str, plan: int, fault: Fault) -> None:
        self.run(self.play.take(scope, plan, fault))

    @rule(scope=scopes)
    def record(self, scope: str) -> None:
        self.run(self.play.record(scope))

    @rule(number=number, seconds=st.sampled_from(WAITS), fault=faults)
    def suspend(self, number: int, seconds: int | None, fault: Fault) -> None:
        self.run(self.play.suspend(-1 - number, seconds, fault))

    @rule(number=number, status=st.sampled_from(ENDS), fault=faults)
    def close(self, number: int, status: str, fault: Fault) -> None:
        self.run(self.play.close(-1 - number, status, fault))

    @rule(number=number, grain=st.sampled_from(GRAINS), fault=faults)
    def stop(self, number: int, grain: Grain, fault: Fault) -> None:
        self.run(self.play.stop(-1 - number, grain, fault))

    @rule(scope=scopes, force=st.booleans(), fault=faults)
    def rewind(self, scope: str, force: bool, fault: Fault) -> None:
        self.run(self.play.rewind(scope, force, fault))

    @rule(scope=scopes)
    def wake(self, scope: str) -> None:
        self.run(self.play.wake(scope))

    @rule(seconds=st.sampled_from([0.001, 1, 9.999, 10, 30, 45]))
    def pass_time(self, seconds: float) -> None:
        self.play.desk.pass_time(seconds)

    @rule(fault=faults)
    def fire(self, fault: Fault) -> None:
        self.run(self.play.fire(fault))

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "play"):
            self.run(self.play.agrees())
            RunsMachine.steps += 1


RunsMachine.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


@CLAUSES
class TestRunsMachine(RunsMachine.TestCase):  # type: ignore[valid-type,misc]
    """The machine as a test; the model agreed after each of some thousand steps."""

    def runTest(self) -> None:  # noqa: N802 - the name that unittest runs
        RunsMachine.steps = 0
        super().runTest()
        assert RunsMachine.steps >= 3000


async def one_step(play: RunsPlay, chance: random.Random) -> None:
    """Something that may happen."""
    scope, fault, number = chance.choice(SCOPES), chance.choice(FAULTS), -1 - chance.randrange(6)
    plan = chance.choice((0, 0, 0, 1, 2))
    what = chance.choice(
        ("admit", "admit", "take", "record", "record", "suspend", "close", "stop", "rewind", "fire", "time")
    )
    if what == "admit":
        await play.admit(scope, plan, chance.choice(MODES), fault)
    elif what == "take":
        await play.take(scope, plan, fault)
    elif what == "record":
        await play.record(scope)
    elif what == "suspend":
        await play.suspend(number, chance.choice(WAITS), fault)
    elif what == "close":
        await play.close(number, chance.choice(ENDS), fault)
    elif what == "stop":
        await play.stop(number, chance.choice(GRAINS), fault)
    elif what == "rewind":
        await play.rewind(scope, chance.random() < 0.5, fault)
    elif what == "fire":
        await play.fire(fault)
    else:
        play.desk.pass_time(chance.choice((1, 9, 31)))
        await play.wake(scope)


@CLAUSES
async def test_a_random_walk_agrees_with_the_model(store: Store) -> None:
    play = RunsPlay(RunsDesk(store))
    chance = random.Random(10)
    for number in range(150):
        await one_step(play, chance)
        if number % 10 == 9:
            await play.agrees()
    assert {"success", "failed", "canceled", "partial_failure"} <= set(play.statuses.values())

"""Ten thousand random steps of records with faults between them: lost commits and answers, restarts, clock jumps."""

import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from moorage.kernel.limits import IDEMPOTENCY_SECONDS
from tests.contract.adapters import SqliteStore, Store, schema_statements
from tests.contract.faulty_play import FaultyPlay, FileStore
from tests.contract.record_model import Play
from tests.contract.test_record_machine import RecordMachine, one_step

STEPS = 10_000
JUMPS = (5, 60, 3600, IDEMPOTENCY_SECONDS, 40 * IDEMPOTENCY_SECONDS)
REQUESTS = ("publish", "claim", "renew", "release", "settle", "fail", "requeue", "cancel", "fire")
CLAUSES = pytest.mark.clause(
    "records.publish",
    "records.idempotent",
    "records.claim",
    "records.claim-replay",
    "records.settle",
    "records.settle-replay",
    "records.fail",
    "records.recover",
    "leases.fence",
    "history.append",
    "store.atomic",
    "store.transport",
)


@asynccontextmanager
async def file_store(folder: Path) -> AsyncIterator[SqliteStore]:
    """A fresh store in a file."""
    store = FileStore(folder)
    await store.db().initialize(schema_statements())
    try:
        yield store
    finally:
        store.connection.close()


class FaultyRecordMachine(RecordMachine):
    """Everything that the plain machine does, and what may go wrong meanwhile."""

    steps = 0
    lost: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.opened = file_store(Path(self.folder.name))

    async def begin(self, store: Store) -> Play:
        self.faulty = await FaultyPlay.on(store)
        return self.faulty

    @rule(seed=st.integers(0, 10_000))
    def other_troubles(self, seed: int) -> None:
        self.faulty.seed(seed)

    @rule()
    def restart(self) -> None:
        self.faulty.restart()

    @rule(seconds=st.sampled_from(JUMPS), in_time=st.booleans())
    def jump_ahead(self, seconds: int, in_time: bool) -> None:
        self.run(self.faulty.jump(seconds, in_time))

    @rule(seconds=st.integers(1, 3))
    def set_the_clock_back(self, seconds: int) -> None:
        self.faulty.desk.pass_time(-seconds)

    @precondition(lambda self: self.faulty.done)
    @rule(number=RecordMachine.number, changed=st.booleans())
    def an_old_request_arrives_again(self, number: int, changed: bool) -> None:
        self.run(self.faulty.repeat(number, changed))

    @invariant()
    def agrees(self) -> None:
        """The rows at once. A gap in history stays there to be found: it is told now and then, and at the end."""
        if not hasattr(self, "faulty"):
            return
        self.run(self.faulty.rows_agree())
        self.agreed += 1
        if self.agreed % 10 == 0:
            self.run(self.faulty.desk.history_agrees())

    def teardown(self) -> None:
        try:
            self.run(self.faulty.agrees())
        finally:
            super().teardown()
        FaultyRecordMachine.steps += self.agreed
        FaultyRecordMachine.lost.update(self.faulty.lost)


FaultyRecordMachine.TestCase.settings = settings(
    # An example has at most 50 steps, and some have fewer.
    max_examples=STEPS // 38,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


@CLAUSES
class TestRecordMachineUnderFaults(FaultyRecordMachine.TestCase):  # type: ignore[valid-type,misc]
    """The machine as a test; the model agreed after each of ten thousand steps."""

    def runTest(self) -> None:  # noqa: N802 - the name that unittest runs
        FaultyRecordMachine.steps, FaultyRecordMachine.lost = 0, Counter()
        super().runTest()
        assert FaultyRecordMachine.steps >= STEPS
        assert all(FaultyRecordMachine.lost[name] >= 10 for name in REQUESTS), FaultyRecordMachine.lost


@CLAUSES
async def test_a_random_walk_under_faults_agrees_with_the_model(store: Store) -> None:
    play = await FaultyPlay.on(store)
    chance = random.Random(11)
    for number in range(80):
        await one_step(play, chance)
        if number % 4 == 3:
            await play.repeat(chance.randrange(20), chance.random() < 0.3)
        if number % 10 == 9:
            play.restart()
            await play.agrees()
    await play.revoke("ben")
    for seconds in JUMPS:
        await play.jump(seconds, in_time=chance.random() < 0.5)
        await one_step(play, chance)
    await play.agrees()

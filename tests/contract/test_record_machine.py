"""Random sequences of everything that can happen to records, against a model of a few lines."""

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

from tests.contract.adapters import SqliteStore, Store, sqlite_store
from tests.contract.desk import Desk
from tests.contract.record_model import CREDENTIALS, Play

T = TypeVar("T")


class RecordMachine(RuleBasedStateMachine):
    """Hypothesis chooses what happens next."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        # After the first time, which is before any step, once a step.
        self.agreed = -1
        self.folder = tempfile.TemporaryDirectory()
        self.opened: AbstractAsyncContextManager[SqliteStore] = sqlite_store(Path(self.folder.name))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    async def begin(self, store: Store) -> Play:
        return await Play.begin(Desk(store))

    @initialize()
    def open(self) -> None:
        self.play = self.run(self.begin(self.run(self.opened.__aenter__())))
        self.publish([(size, 0, None) for size in (0, 1, 2, 3)] * 2)
        for who in CREDENTIALS:
            self.claim(who, 1, 2, 3)

    def teardown(self) -> None:
        self.run(self.opened.__aexit__(None, None, None))
        self.loop.close()
        self.folder.cleanup()

    sizes = st.tuples(st.integers(0, 3), st.integers(-1, 1), st.none() | st.integers(0, 3))
    who = st.sampled_from(CREDENTIALS)
    number = st.integers(0, 50)

    @rule(sizes=st.lists(sizes, min_size=1, max_size=3))
    def publish(self, sizes: list[tuple[int, int, int | None]]) -> None:
        self.run(self.play.publish(sizes))

    @rule(who=who, minimum=st.integers(0, 3), limit=st.integers(1, 3), seconds=st.integers(1, 4))
    def claim(self, who: str, minimum: int, limit: int, seconds: int) -> None:
        self.run(self.play.claim(who, minimum, limit, seconds))

    @precondition(lambda self: self.play.claims)
    @rule(number=number, seconds=st.integers(1, 4))
    def renew(self, number: int, seconds: int) -> None:
        self.run(self.play.renew(*self.play.pick(number), seconds))

    @precondition(lambda self: self.play.claims)
    @rule(number=number)
    def release(self, number: int) -> None:
        self.run(self.play.release(*self.play.pick(number)))

    @precondition(lambda self: self.play.claims)
    @rule(number=number, result=st.integers(0, 1))
    def settle(self, number: int, result: int) -> None:
        self.run(self.play.settle(*self.play.pick(number), result))

    @precondition(lambda self: self.play.claims)
    @rule(number=number, delay=st.none() | st.integers(0, 3), dead=st.booleans())
    def fail(self, number: int, delay: int | None, dead: bool) -> None:
        self.run(self.play.fail(*self.play.pick(number), delay, dead))

    @precondition(lambda self: self.play.claims)
    @rule(number=number, who=who)
    def write_with_a_foreign_claim(self, number: int, who: str) -> None:
        self.run(self.play.renew(who, self.play.pick(number)[1], 1))

    @rule(number=number)
    def requeue(self, number: int) -> None:
        self.run(self.play.requeue(number))

    @rule(number=number)
    def cancel(self, number: int) -> None:
        self.run(self.play.cancel(number))

    @rule(seconds=st.integers(1, 3))
    def pass_time(self, seconds: int) -> None:
        self.play.desk.pass_time(seconds)

    @rule()
    def fire(self) -> None:
        self.run(self.play.fire())

    @precondition(lambda self: len(self.play.claims) > 9)
    @rule()
    def revoke(self) -> None:
        self.run(self.play.revoke("ben"))

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "play"):
            self.run(self.play.agrees())
            self.agreed += 1


RecordMachine.TestCase.settings = settings(
    max_examples=50,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.clause("records.claim", "records.settle", "records.fail", "records.recover", "leases.fence", "history.append")
class TestRecordMachine(RecordMachine.TestCase):  # type: ignore[valid-type,misc]
    """The machine as a test."""


async def one_step(play: Play, chance: random.Random) -> None:
    """One thing that happens, by chance."""
    choice = chance.randrange(10)
    if choice == 0 or not play.model.records:
        sizes = [(chance.randrange(4), chance.randrange(3) - 1, chance.choice([None, 0, 1, 2])) for _ in range(3)]
        await play.publish(sizes)
    elif choice in (1, 2) or not play.claims:
        await play.claim(chance.choice(CREDENTIALS), chance.randrange(3), chance.randrange(1, 4), chance.randrange(1, 5))
    elif choice == 3:
        play.desk.pass_time(chance.randrange(1, 3))
    elif choice == 4:
        await play.fire()
    elif choice == 5:
        await play.requeue(chance.randrange(50))
    else:
        who, held = chance.choice(play.claims[-6:])
        match choice:
            case 6:
                await play.renew(who, held, chance.randrange(1, 5))
            case 7:
                await play.release(who, held)
            case 8:
                await play.settle(who, held, chance.randrange(2))
            case _:
                await play.fail(who, held, chance.choice([None, 0, 2]), chance.random() < 0.3)


@pytest.mark.clause("records.claim", "records.settle", "records.fail", "records.recover", "leases.fence", "history.append")
async def test_a_random_walk_agrees_with_the_model(store: Any) -> None:
    play = await Play.begin(Desk(store))
    chance = random.Random(7)
    for number in range(120):
        await one_step(play, chance)
        if number % 10 == 9:
            await play.agrees()
    await play.revoke("ben")
    for _ in range(10):
        await one_step(play, chance)
    await play.agrees()

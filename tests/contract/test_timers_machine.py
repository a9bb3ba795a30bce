"""Timers against a model, and whatever comes between a look at a timer and its firing; on the host."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from moorage.kernel.errors import TimerConflict, TimerNotDue, TimerUnknown, Unauthenticated
from moorage.kernel.instants import Instant, render
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Transaction
from moorage.timers import clock, fire, put
from moorage.timers.fire import Timers
from moorage.timers.model import Template, Timer, Wish
from tests.contract.adapters import SqliteStore, at_once, schema_statements, sqlite_store
from tests.contract.desk import Desk, grant

pytestmark = pytest.mark.clause("timers.fire")

NAMES = st.sampled_from(["a", "b"])
STEP = 1000


class Between:
    """A database with something that happens right after the first reading."""

    def __init__(self, behind: Database, act: Callable[[], Awaitable[Any]]) -> None:
        self._behind = behind
        self._act: Callable[[], Awaitable[Any]] | None = act
        self.cost = behind.cost

    async def read(self, reading: Reading) -> None:
        await self._behind.read(reading)
        act, self._act = self._act, None
        if act is not None:
            await act()

    async def commit(self, transaction: Transaction) -> None:
        await self._behind.commit(transaction)

    async def initialize(self, statements: list[str]) -> None:
        await self._behind.initialize(statements)


async def set_(desk: Desk, delay: int, every: int | None = None) -> Timer:
    return await put.put(desk.db(), desk.caller, desk.now, "t", Wish(Template("ping"), delay_ms=delay, every_ms=every))


@pytest.mark.parametrize("every", [None, STEP])
async def test_what_comes_between_a_look_and_a_firing_wins(tmp_path: Path, every: int | None) -> None:
    async with sqlite_store(tmp_path) as store:
        desk = Desk(store)

        async def events() -> int:
            return len(await store.sql("SELECT seq FROM events"))

        await set_(desk, 0, every)
        later = Between(desk.db(), lambda: set_(desk, STEP, every))
        assert await Timers().fire(later, desk.now, "t@1") == 0
        desk.now = Instant(desk.now + STEP)
        gone = Between(desk.db(), lambda: put.delete(desk.db(), desk.caller, desk.now, "t", 2))
        assert await Timers().fire(gone, desk.now, "t@2") == 0
        assert await events() == 0
        await set_(desk, 0, every)
        twice = Between(desk.db(), lambda: fire.fire_timer(desk.db(), desk.now, "t", 4))
        with pytest.raises(TimerNotDue):
            await fire.fire_timer(twice, desk.now, "t", 4)
        assert await events() == 1
        await store.sql("DELETE FROM timers")
        ann = desk.seen_by(await desk.credential("ann", grant("publish")))
        await set_(ann, 0, every)
        revoked = Between(desk.db(), lambda: store.sql("UPDATE credentials SET revoked_at = 1"))
        with pytest.raises(Unauthenticated):
            await Timers().fire(revoked, desk.now, "t@6")
        assert await Timers().fire(desk.db(), desk.now, "t@6") == 1
        assert await events() == 1
        assert await store.sql("SELECT id FROM timers") == []


class TimersMachine(RuleBasedStateMachine):
    """A few timers, set and deleted at revisions right and wrong, under a Clock that is driven or down."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.store = SqliteStore(Path())
        at_once(self.store.db().initialize(schema_statements()))
        self.desk = Desk(self.store)
        # By name: the last revision ever, and what stands now as (fire_at, every, delivery id, revision).
        self.last: Counter[str] = Counter()
        self.standing: dict[str, tuple[int, int | None, str, int]] = {}
        self.expected: list[tuple[str, str]] = []

    def teardown(self) -> None:
        self.store.connection.close()
        self.runner.close()

    @rule(
        name=NAMES,
        delay=st.integers(0, 5),
        every=st.sampled_from([None, STEP, 3 * STEP]),
        at=st.sampled_from([None, "now", "absent", "stale"]),
    )
    def set_one(self, name: str, delay: int, every: int | None, at: str | None) -> None:
        now = self.desk.now
        held = self.standing.get(name)
        current = 0 if held is None else held[3]
        revision = {None: None, "now": current, "absent": 0, "stale": self.last[name] + 1}[at]
        wish = Wish(Template("ping"), delay_ms=delay * STEP, every_ms=every)
        asking = put.put(self.desk.db(), self.desk.caller, now, name, wish, revision)
        if revision is not None and revision != current:
            with pytest.raises(TimerConflict):
                at_once(asking)
            return
        made = at_once(asking)
        if held == (made.fire_at, every, made.delivery_id, made.revision):
            return
        self.last[name] += 1
        assert (made.revision, made.delivery_id) == (self.last[name], f"{name}:{self.last[name]}")
        self.standing[name] = (now + delay * STEP, every, made.delivery_id, made.revision)

    @rule(name=NAMES, right=st.booleans())
    def delete(self, name: str, right: bool) -> None:
        held = self.standing.get(name)
        revision = held[3] if held is not None and right else self.last[name] + 1
        asking = put.delete(self.desk.db(), self.desk.caller, self.desk.now, name, revision)
        if held is None or not right:
            with pytest.raises(TimerUnknown if held is None else TimerConflict):
                at_once(asking)
            return
        at_once(asking)
        self.last[name] += 1
        del self.standing[name]

    @rule(name=NAMES, revision=st.integers(0, 12))
    def fire_by_hand(self, name: str, revision: int) -> None:
        held = self.standing.get(name)
        asking = fire.fire_timer(self.desk.db(), self.desk.now, name, revision)
        if held is None or held[3] != revision or held[0] > self.desk.now:
            with pytest.raises(TimerNotDue):
                at_once(asking)
            return
        at_once(asking)
        self._fired(name)

    @rule(steps=st.integers(0, 7))
    def pass_time(self, steps: int) -> None:
        """The Clock is down."""
        self.desk.now = Instant(self.desk.now + steps * STEP)

    @rule()
    def drain(self) -> None:
        drained = self.runner.run(clock.drain(self.desk.db, self.desk.now, [Timers()]))
        assert not drained.failed
        for name in list(self.standing):
            while name in self.standing and self.standing[name][0] <= self.desk.now:
                self._fired(name)

    def _fired(self, name: str) -> None:
        fire_at, every, id_, _ = self.standing[name]
        self.last[name] += 1
        due = render(Instant(fire_at))
        self.expected.append((id_ if every is None else f"{id_}@{due}", due))
        if every is None:
            del self.standing[name]
        else:
            self.standing[name] = (fire_at + every, every, id_, self.last[name])

    @invariant()
    def agree(self) -> None:
        rows = self.store.connection.execute("SELECT id, fire_at, every_ms, delivery_id, revision FROM timers").fetchall()
        assert {row["id"]: tuple(row)[1:] for row in rows} == self.standing
        found = self.store.connection.execute("SELECT delivery_id, envelope ->> 'time' AS due FROM events").fetchall()
        assert Counter(tuple(row) for row in found) == Counter(self.expected)


TestTimersMachine = TimersMachine.TestCase
TestTimersMachine.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)

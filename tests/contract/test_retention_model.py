"""Retention against a model of a few lines: whatever happens, the Clock removes what the rules say."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.kernel.errors import RecordExists, RecordNotDead, RecordRemoved, RecordUnknown
from tests.contract.adapters import sqlite_store
from tests.contract.desk import Desk, ref
from tests.contract.test_records_retention import HOUR, left

STEP = st.one_of(
    st.tuples(st.just("publish"), st.integers(0, 5), st.booleans()),
    st.tuples(st.just("settle"), st.integers(0, 5), st.booleans()),
    st.tuples(st.just("kill"), st.integers(0, 5), st.booleans()),
    st.tuples(st.just("requeue"), st.integers(0, 5), st.booleans()),
    st.tuples(st.just("wait"), st.integers(0, 90), st.booleans()),
)


@pytest.mark.clause("records.retention", "history.append")
@settings(max_examples=100, deadline=None)
@given(steps=st.lists(STEP, min_size=5, max_size=25))
async def test_whatever_happens_the_clock_removes_what_the_rules_say(steps: list[tuple[str, int, bool]]) -> None:
    """Against a model of a few lines, in a fresh store each time."""
    with tempfile.TemporaryDirectory() as folder:
        async with sqlite_store(Path(folder)) as store:
            desk = Desk(store)
            await desk.declare(retention=HOUR)
            model = Model(desk)
            for step in steps:
                await model.take(*step)
            await model.agrees()


class Model:
    """Which records there must be."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.ended: dict[str, int | None] = {}
        self.parent: dict[str, str] = {}

    async def take(self, what: str, number: int, flag: bool) -> None:
        name = f"r{number}"
        if what == "publish":
            await self.publish(name, flag)
        elif what == "wait":
            self.desk.pass_time(number * 60)
            await self.desk.fire()
            await self.agrees()
        elif what == "requeue":
            await self.requeue(name)
        elif self.ended.get(name, 0) is None:
            [held] = await self.desk.claim({"to": name})
            await (self.desk.settle(ref(held)) if what == "settle" else self.desk.fail(ref(held), dead=True))
            self.ended[name] = self.desk.now

    async def publish(self, name: str, with_parent: bool) -> None:
        parents = [one for one in sorted(await left(self.desk)) if one != name][:1] if with_parent else []
        try:
            await self.desk.publish({"to": name}, id=name, parents=tuple(parents))
        except RecordExists:
            return
        self.ended[name] = None
        if parents:
            self.parent[name] = parents[0]

    async def requeue(self, name: str) -> None:
        try:
            await self.desk.requeue(name)
        except (RecordNotDead, RecordUnknown, RecordRemoved):
            return
        self.ended[name] = None

    async def agrees(self) -> None:
        there = await left(self.desk)
        now = self.desk.now
        for name, ended in self.ended.items():
            if ended is None or now - ended < HOUR * 1000:
                assert name in there, f"{name} went too early"
            needed = any(self.parent.get(one) == name and end is None for one, end in self.ended.items())
            if needed and name in there:
                continue
            if ended is not None and name in there:
                held = (await self.desk.row(name))["held_until"]
                assert now - ended < HOUR * 1000 + 60_000 or (held is not None and held > now - 60_000)
        for child, parent in self.parent.items():
            if self.ended[child] is None:
                assert parent in there, f"{parent} went although {child} lives"
        await self.desk.history_agrees()

"""Random sequences of what can happen to an outbox: publications that are lost or not, subscriptions that change, and
looking on that dies before or after its commit, or while something else is committed."""

import asyncio
import tempfile
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from moorage.messages.outbox.subscriptions import Declaration
from tests.contract.adapters import SqliteStore, Store, sqlite_store
from tests.contract.faults import Fault
from tests.contract.outbox_model import FILTERS, KINDS, NAMES, OF_KINDS, TYPES, Play

T = TypeVar("T")

FAULTS = st.sampled_from([Fault.NONE, Fault.NONE, Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.DUPLICATE])
NAMED = st.sampled_from(NAMES)
STARTS: st.SearchStrategy[int | Literal["now"] | None] = st.sampled_from([None, None, "now", 0, 3, 1000])


@st.composite
def declarations(draw: st.DrawFn) -> Declaration:
    """A subscription; a filter is about bodies of parcels."""
    filter_ = draw(st.sampled_from(FILTERS))
    start, paused = draw(STARTS), draw(st.sampled_from([False, False, True]))
    if filter_ is not None:
        types = draw(st.sampled_from([("record.*",), ("record.published",)]))
        return Declaration("there", types, ("parcels",), filter_, paused, start)
    return Declaration("there", draw(st.sampled_from(TYPES)), draw(st.sampled_from(OF_KINDS)), None, paused, start)


class OutboxMachine(RuleBasedStateMachine):
    """Hypothesis chooses what happens next."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.opened: AbstractAsyncContextManager[SqliteStore] = sqlite_store(Path(self.folder.name))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @initialize()
    def open(self) -> None:
        self.play = self.run(Play.begin(self.run(self.opened.__aenter__())))

    def teardown(self) -> None:
        self.run(self.play.catch_up())
        self.run(self.play.agrees())
        self.run(self.opened.__aexit__(None, None, None))
        self.loop.close()
        self.folder.cleanup()

    @rule(
        kind=st.sampled_from(KINDS), weights=st.lists(st.sampled_from([None, 1, 2, 3]), min_size=1, max_size=6), fault=FAULTS
    )
    def publish(self, kind: str, weights: list[int | None], fault: Fault) -> None:
        self.run(self.play.publish(kind, weights, Fault.NONE if fault is Fault.DUPLICATE else fault))

    @rule(number=st.integers(0, 50))
    def cancel(self, number: int) -> None:
        self.run(self.play.cancel(number))

    @rule()
    def change_destination(self) -> None:
        self.run(self.play.change_destination())

    @rule(name=NAMED, declaration=declarations())
    def declare(self, name: str, declaration: Declaration) -> None:
        self.run(self.play.declare(name, declaration))

    @rule(name=NAMED, on=st.booleans())
    def switch(self, name: str, on: bool) -> None:
        self.run(self.play.switch(name, on))

    @rule(name=NAMED)
    def delete(self, name: str) -> None:
        self.run(self.play.delete(name))

    @rule(name=NAMED, fault=FAULTS)
    def fan_out(self, name: str, fault: Fault) -> None:
        self.run(self.play.fan_out(name, fault))

    @rule(name=NAMED, fault=FAULTS)
    def fan_out_twice_at_once(self, name: str, fault: Fault) -> None:
        self.run(self.play.fan_out(name, fault, lambda: self.play.fan_out(name, Fault.NONE)))

    @rule(name=NAMED, declaration=declarations())
    def fan_out_while_it_is_declared_anew(self, name: str, declaration: Declaration) -> None:
        self.run(self.play.fan_out(name, Fault.NONE, lambda: self.play.declare(name, declaration)))

    @rule(name=NAMED, on=st.booleans())
    def fan_out_while_it_is_switched(self, name: str, on: bool) -> None:
        self.run(self.play.fan_out(name, Fault.NONE, lambda: self.play.switch(name, on)))

    @rule(name=NAMED)
    def fan_out_while_it_is_deleted(self, name: str) -> None:
        self.run(self.play.fan_out(name, Fault.NONE, lambda: self.play.delete(name)))

    @rule(name=NAMED, kind=st.sampled_from(KINDS))
    def fan_out_while_more_is_published(self, name: str, kind: str) -> None:
        self.run(self.play.fan_out(name, Fault.NONE, lambda: self.play.publish(kind, [2], Fault.NONE)))

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "play"):
            self.run(self.play.agrees())


OutboxMachine.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.clause("outbox.atomic", "outbox.deliver")
class TestOutboxMachine(OutboxMachine.TestCase):  # type: ignore[valid-type,misc]
    """One delivery for each committed entry that fits and each subscription, whatever crashes between."""


async def a_story(store: Store) -> Play:
    """The same by hand, for adapters on which random sequences would take too long."""
    play = await Play.begin(store)
    await play.declare("one", Declaration("there", ("record.*",), ("parcels",), {"weight": {"$gte": 2}}, start=0))
    await play.declare("two", Declaration("there", ("*",)))
    await play.publish("parcels", [1, 2, None], Fault.NONE)
    await play.publish("letters", [3], Fault.NONE)
    await play.publish("parcels", [3], Fault.FAIL_BEFORE)
    await play.fan_out("one", Fault.FAIL_BEFORE)
    await play.fan_out("one", Fault.FAIL_AFTER)
    await play.fan_out("two", Fault.DUPLICATE, lambda: play.fan_out("two", Fault.NONE))
    await play.cancel(1)
    await play.fan_out("two", Fault.NONE, lambda: play.declare("two", Declaration("there", ("record.canceled",))))
    return play


@pytest.mark.clause("outbox.atomic")
async def test_a_story_of_an_outbox(store: Store) -> None:
    play = await a_story(store)
    await play.agrees()
    await play.catch_up()
    await play.agrees()
    told = {name for name, _ in play.expected}
    assert told == {"one", "two"}

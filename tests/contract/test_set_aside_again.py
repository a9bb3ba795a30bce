"""Executions that failed, were set aside and are due anew: they come at their own instant, not at that of the failure."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from moorage.kernel.instants import Instant, after
from moorage.messages.inbox.waits import EventWaitTimeouts
from moorage.runs.due import RunsDue
from moorage.runs.operations import Suspend
from moorage.store.ports import Database
from moorage.timers import clock
from moorage.timers.due import DueWork
from tests.contract.adapters import Store, sqlite_store
from tests.contract.quay import HOUR, Quay, wait
from tests.contract.runs_desk import RunsDesk

pytestmark = pytest.mark.clause("timers.alarm")

FAILURES: Final = 13
"""After so many the next try is an hour away."""


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Store]:
    """SQLite alone, for what is the same on every adapter."""
    async with sqlite_store(tmp_path) as one:
        yield one


async def failing(store: Store, now: Instant, work: DueWork, trigger: str) -> Instant:
    """Let the class fail as long as the trigger of the database stands; the instant of its last try."""
    await store.sql(f"CREATE TRIGGER broken BEFORE {trigger} BEGIN SELECT raise(ABORT, 'broken'); END")
    for tried in range(FAILURES):
        now = after(now, HOUR if tried else 0)
        [failed] = (await clock.drain(store.db, now, [work])).failed
        assert failed.attempts == tried + 1
    await store.sql("DROP TRIGGER broken")
    return now


async def fired(store: Store, now: Instant, work: DueWork) -> int:
    drained = await clock.drain(store.db, now, [work])
    assert drained.failed == []
    return sum(drained.fired.values())


@pytest.mark.clause("runs.wake")
async def test_an_execution_that_was_taken_and_sleeps_again(host: Store) -> None:
    desk = RunsDesk(host)
    made = await desk.admit()
    due = await desk.next_due()
    assert due is not None
    desk.now = await failing(host, due, RunsDue(), "UPDATE ON executions")
    fence = await desk.take(made.execution_id)
    assert fence is not None
    until = after(desk.now, 60)
    await desk.suspend(fence, until)
    assert await fired(host, Instant(until - 1), RunsDue()) == 0
    assert await fired(host, until, RunsDue()) == 1
    await fired(host, after(until, HOUR), RunsDue())
    assert await host.sql("SELECT * FROM due_failures") == []


@pytest.mark.clause("waits.match")
async def test_a_wait_beside_one_that_cannot_time_out(host: Store) -> None:
    quay = Quay(host)
    execution = await quay.opened()
    until = after(quay.now, 60)
    later = after(until, FAILURES * HOUR)
    await quay.apply(execution.fence, wait("a", keys=("order-8",), timeout_at=until), wait("b", timeout_at=later))
    await quay.apply(execution.fence, Suspend("suspended", None))
    await quay.send("order-8")
    db: Database = host.db()
    assert await clock.next_due(db, quay.now, [EventWaitTimeouts()]) == until
    await host.sql("CREATE TRIGGER stuck BEFORE UPDATE ON events BEGIN SELECT raise(ABORT, 'stuck'); END")
    await failing(host, until, EventWaitTimeouts(), "INSERT ON kv")
    assert (await clock.drain(host.db, later, [EventWaitTimeouts()])).fired == {"event_wait_timed_out": 1}
    assert await quay.states() == {"a": "active", "b": "timed_out"}

"""A fault of the host's own ends the run, once, and tells no value."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from moorage.bodies import Run, body, each
from moorage.bodies.observe import Report
from moorage.kernel.errors import ExecutionGuardBlocked, LeaseFenced
from moorage.runs.observing import RunChange
from moorage.runs.operations import Claim, Close, Operation, Suspend
from tests.unit.bodies.world import World

SECRET = "sk-live-secret"


@body("breaks", effects=["kept", "then", each("one"), "answer"])
async def breaks(run: Run, where: str) -> Any:
    await run.step("kept", lambda: 1)
    await run.step("then", lambda: 1)
    if where == "branches":
        return await run.gather(run.step("one", lambda: 1, input=1), run.step("one", lambda: 2, input=2))
    if where == "wait":
        return await (await run.awakeable("answer", ttl=60))
    try:
        return await run.step("one", lambda: 1, input=1)
    except Exception:
        # A body cannot take the host's fault for its own.
        return "caught"


def at_claim(operations: Sequence[Operation]) -> None:
    if any(isinstance(one, Claim) and one.key.label == "one" for one in operations):
        raise KeyError(SECRET)


def at_suspension(operations: Sequence[Operation]) -> None:
    if isinstance(operations[-1], Suspend):
        raise KeyError(SECRET)


class Reports:
    def __init__(self) -> None:
        self.taken: list[Report] = []

    def closed(self, report: Report) -> None:
        self.taken.append(report)


@pytest.mark.parametrize("where", ["step", "branches", "wait"])
async def test_an_unforeseen_fault_closes_the_run_and_keeps_what_it_recorded(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    reports = Reports()
    world = World(breaks, spans=reports)
    world.memory.refuse = at_suspension if where == "wait" else at_claim
    assert await world.run("breaks", where) == "failed"
    assert world.row.status == "failed"
    assert world.row.error is not None
    assert (world.row.error["tag"], world.row.error["code"]) == ("Permanent", "InternalError")
    assert world.row.error["message"].startswith("the host failed while it drove the run: KeyError at ")
    assert "kept" in world.entries("done")
    assert not world.host.held
    last = [one for one in world.told.changes if isinstance(one, RunChange)][-1]
    assert (last.status, last.error) == ("failed", world.row.error)
    assert [one.status for one in reports.taken] == ["failed"]
    assert any("KeyError at " in record.getMessage() for record in caplog.records if record.levelno == logging.ERROR)
    assert SECRET not in caplog.text + str(world.row.error)


async def test_a_fault_while_a_guard_stands_leaves_the_run_suspended() -> None:
    world = World(breaks)

    def guarded(operations: Sequence[Operation]) -> None:
        at_claim(operations)
        if isinstance(operations[-1], Close):
            raise ExecutionGuardBlocked("guarded", token="gua_1")

    world.memory.refuse = guarded
    assert await world.run("breaks", "step") == "suspended"
    assert world.row.next_attempt_at is not None
    assert world.row.awaiting == [{"label": "scope-exe_1", "kind": "guard", "guard": "gua_1"}]


async def test_a_run_that_is_somebody_elses_is_not_closed_after_a_fault() -> None:
    world = World(breaks)

    def fenced(operations: Sequence[Operation]) -> None:
        at_claim(operations)
        if isinstance(operations[-1], (Close, Suspend)):
            raise LeaseFenced

    world.memory.refuse = fenced
    assert await asyncio.wait_for(world.run("breaks", "step"), 20) == "lost"
    assert world.row.status == "running"

"""Observers: who wants to hear of a run is told, and nobody else."""

from typing import Any

import pytest

from moorage.bodies import Failed, Retry, Run, body, each
from tests.unit.bodies.world import World

EFFECTS = [each("one")]


@pytest.mark.clause("runs.stream")
async def test_an_observer_is_told_from_when_it_wants_to_hear_of_the_run() -> None:
    listening: list[str] = []

    @body("three", effects=EFFECTS)
    async def three(run: Run) -> None:
        await run.step("one", lambda: 0, input=0)
        await run.step("one", lambda: listening.append(run.id), input=1)
        await run.step("one", lambda: 2, input=2)

    world = World(three)
    world.told.hears = lambda run_id: run_id in listening  # type: ignore[method-assign]
    assert await world.run("three") == "success"
    assert [(one.status, one.started_at is None) for one in world.told.steps("one")] == [
        ("success", True),
        ("running", False),
        ("success", False),
    ]


@pytest.mark.clause("runs.stream")
async def test_a_step_that_is_tried_in_another_opening_has_begun_when_it_was_tried_first() -> None:
    tries: list[int] = []

    def effect() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise Failed("Transient", "not yet")
        return "at last"

    @body("late", effects=["one"])
    async def late(run: Run) -> str:
        return await run.step("one", effect, retry=Retry(attempts=3, base_ms=60_000, jitter_ms=0))

    world = World(late)
    row = await world.to_the_end("late")
    assert (row.result, len(tries)) == ("at last", 3)
    assert {one.started_at for one in world.told.steps("one")} == {entry.started_at for entry in row.entries.values()}


@pytest.mark.clause("runs.stream")
async def test_an_observer_is_told_of_what_ended_while_nobody_held_the_run() -> None:
    @body("asks", effects=["answer"])
    async def asks(run: Run) -> Any:
        answer = await run.awakeable("answer", ttl=3600)
        return await answer

    world = World(asks)
    assert await world.run("asks") == "suspended"
    world.memory.end("awk_answer_" + next(iter(world.row.entries)).input_sha256[:6], {"resolved": "thanks"})
    assert await world.again() == "success"
    waits = [one for one in world.told.steps("answer") if one.kind == "wait"]
    assert [one.status for one in waits] == ["waiting", "success"]
    assert waits[-1].ended_at is not None

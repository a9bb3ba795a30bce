"""Observers: who wants to hear of a run is told, and nobody else."""

import pytest

from moorage.bodies import Run, body, each
from tests.unit.bodies.memory import World

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

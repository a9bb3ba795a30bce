"""Bodies with steps that do nothing, so that what is measured is the engine."""

from typing import Any

from moorage.bodies import Run, body, each


def _same(number: int) -> int:
    return number


@body("steps", effects=[each("step")])
async def steps(run: Run, count: int) -> int:
    """So many steps, one after the other, each recording its number."""
    total = 0
    for number in range(count):
        total += await run.step("step", _same, input=number)
    return total


@body("signal", effects=["signal"])
async def signal(run: Run) -> Any:
    """Wait for one signal, and return it."""
    waiting = await run.awakeable("signal", ttl=3600)
    run.metadata["token"] = waiting.token
    return await waiting

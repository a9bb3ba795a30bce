"""Bodies that tests watch: what changes, how often and how much of it."""

import asyncio

from pydantic import BaseModel

from moorage.bodies import Run, body, each


class Talk(BaseModel):
    """So many steps, each of `pause` seconds, and so many bytes of metadata that change with each."""

    steps: int
    pause: float = 0.0
    bytes: int = 0
    secret: str = ""


@body("stream.talk", effects=[each("say")])
async def talk(run: Run, given: Talk) -> str:
    """Steps in a row that take their time."""

    async def say(number: int) -> str:
        await asyncio.sleep(given.pause)
        return f"{given.secret}{number}"

    for number in range(given.steps):
        if given.bytes:
            run.metadata["said"] = str(number).rjust(given.bytes, ".")
        await run.step("say", say, input=number)
    return given.secret


@body("stream.fail", effects=["first", "second"])
async def fail(run: Run, given: Talk) -> None:
    """One step that ends, and one that fails for good."""

    def refuse() -> None:
        raise ValueError(f"no, {given.secret}")

    await run.step("first", lambda: given.secret)
    await run.step("second", refuse)

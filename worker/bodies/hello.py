"""A first body, for a first run: `POST /runs` with `{"body": "hello", "input": {"name": "world"}}`."""

from pydantic import BaseModel

from moorage.bodies import Run, body


class Hello(BaseModel):
    """Whom to greet."""

    name: str = "world"


@body("hello", effects=["greet"])
async def hello(run: Run, given: Hello) -> str:
    """Greet somebody, in one recorded step."""

    def greet() -> str:
        return f"Hello, {given.name}!"

    greeting: str = await run.step("greet", greet)
    return greeting

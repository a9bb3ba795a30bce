"""Values at the edges of JSON: what is recorded can be read by everybody, and reads the same on every replay."""

from typing import Any

import pytest

from moorage.bodies import Failed, Run, StepFailed, body
from moorage.bodies.values import Shape, Unrecordable, dump
from moorage.kernel.limits import JSON_DEPTH, JSON_VALUES
from tests.unit.bodies.world import World


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@body("gives", effects=["look", "again"])
async def gives(run: Run, given: Any) -> Any:
    found = await run.step("look", lambda: given)
    await run.sleep(60)
    return await run.step("again", lambda told: told, input=found)


@pytest.mark.clause("runs.step-output")
@pytest.mark.parametrize("number", [1e20, 2.0**53, 1.5e16, -1e21, 123456789012345680000.0, 1e300])
async def test_a_number_too_wide_for_an_integer_goes_through_input_step_and_result(number: float) -> None:
    world = World(gives)
    row = await world.to_the_end("gives", {"n": number})
    assert row.status == "success", row.error
    assert row.result == {"n": number}


def test_an_integer_that_a_double_keeps_is_written_as_such_and_no_other_is() -> None:
    assert Shape.of(dict[str, Any]).dump({"n": [10**20]}) == '{"n":[100000000000000000000]}'
    with pytest.raises(Unrecordable):
        dump({"n": 2**53 + 1})


@pytest.mark.clause("runs.step-output")
async def test_a_value_that_nobody_could_read_is_not_recorded() -> None:
    @body("deep", effects=["look"])
    async def deep(run: Run, levels: int) -> Any:
        try:
            await run.step("look", lambda: nested(levels))
        except StepFailed as refused:
            return refused.code
        return nested(levels)

    world = World(deep)
    assert (await world.to_the_end("deep", int(JSON_DEPTH))).status == "success"
    world = World(deep)
    assert (await world.to_the_end("deep", int(JSON_DEPTH) + 1)).result == "ValueUnrecordable"


@pytest.mark.parametrize("value", [nested(int(JSON_DEPTH) + 1), nested(400), [0] * (int(JSON_VALUES) + 2)])
def test_what_could_not_be_taken_in_cannot_be_recorded(value: Any) -> None:
    with pytest.raises(Unrecordable):
        dump(value)
    with pytest.raises(Unrecordable):
        Shape.of(list[Any]).dump(value)


def test_brackets_inside_strings_are_no_nesting() -> None:
    assert dump(["[" * 1000]) == '["' + "[" * 1000 + '"]'


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("nothing to say")


@pytest.mark.clause("runs.error-cap")
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Mute(), "Mute"),
        (Failed("Permanent", Mute()), None),  # type: ignore[arg-type]
        (Failed("Permanent", "x", code="\ud800"), "?"),
        (ValueError("\ud800\0"), "ValueError"),
    ],
)
async def test_an_error_that_can_hardly_be_told_ends_its_run(error: Exception, code: str | None, inside: bool) -> None:
    @body("mute", effects=["say"])
    async def mute(run: Run) -> None:
        def say() -> None:
            raise error

        if inside:
            await run.step("say", say)
        say()

    world = World(mute)
    assert await world.run("mute") == "failed"
    assert world.row.error is not None
    assert world.row.error.get("code") == code


@pytest.mark.parametrize("label", ["\ud800", "x" * 3_000_000, 5, None])
async def test_a_label_that_is_none_ends_its_run(label: Any) -> None:
    @body("odd", effects=["say"])
    async def odd(run: Run) -> None:
        await run.step(label, lambda: None)

    world = World(odd)
    assert await world.run("odd") == "failed"
    assert world.row.error is not None
    assert (world.row.error["code"], len(str(world.row.error)) < 5_000) == ("EffectUndeclared", True)

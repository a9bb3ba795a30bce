"""Declaring bodies, finding them, and what pins them."""

import importlib
from datetime import UTC, datetime
from typing import Any, Self

import pytest
from pydantic import BaseModel, model_validator

from moorage.bodies import BodyMisdeclared, Registry, Run, body, each
from moorage.bodies.digests import Sources
from moorage.kernel import canonical
from moorage.kernel.errors import BodyUnknown, InputInvalid
from tests.unit.bodies.world import World

SAMPLE = "tests.unit.bodies.sample"


async def fine(run: Run) -> None:
    """Nothing."""


async def no_run() -> None:
    """Nothing."""


async def two(run: Run, one: int, other: int) -> None:
    """Nothing."""


async def wrong_first(given: int, run: Run) -> None:
    """Nothing."""


async def clock(run: Run) -> str:
    def effect() -> str:
        return datetime.now(UTC).isoformat()

    return await run.step("a", effect) + str(datetime.now(UTC))


def plain_function(run: Run) -> None:
    """Nothing."""


@pytest.mark.parametrize(
    ("function", "named", "message"),
    [
        (plain_function, {}, "async def"),
        (no_run, {}, "first parameter is missing"),
        (two, {}, "at most one input"),
        (wrong_first, {}, "the first parameter is the Run"),
        (clock, {}, "use run.now()"),
        (fine, {"effects": ["a", "a"]}, "declared twice"),
        (fine, {"effects": ["run.sleep"]}, "the engine's own"),
        (fine, {"effects": [""]}, "1 to 200 characters"),
        (fine, {"effects": "abc"}, "a list of labels"),
        (fine, {"depends": {"prompt": 3}}, "both texts"),
        (fine, {"deadline_seconds": 0}, "more than 0"),
        (fine, {"config": {"api_key": "abc"}}, "config.api_key is named like a credential"),
        (fine, {"config": {"a": {"url": "https://me:pw@x.test/"}}}, "config.a.url is an endpoint with a user"),
        (fine, {"config": {"url": "https://x.test/?key=abc"}}, "a credential in its query"),
        (fine, {"config": {"auth": "Bearer abcdefghijkl"}}, "looks like a credential"),
        (fine, {"config": {"x": object()}}, "config is public JSON"),
    ],
)
@pytest.mark.clause("runs.body-pins")
def test_a_faulty_declaration_is_refused_with_what_is_wrong(function: Any, named: dict[str, Any], message: str) -> None:
    with pytest.raises(BodyMisdeclared) as caught:
        body("name", **named)(function)
    assert message in str(caught.value)
    assert "pw@" not in str(caught.value)
    assert "abcdefgh" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 101])
def test_a_name_is_one_that_can_stand_in_a_path(name: str) -> None:
    with pytest.raises(BodyMisdeclared):
        body(name)(fine)


def test_a_decorator_without_a_name_says_how_to_write_it() -> None:
    with pytest.raises(BodyMisdeclared, match='write @body\\("name"'):
        body(fine)(fine)  # type: ignore[arg-type]


def test_a_package_is_found_with_schemas_and_labels() -> None:
    registry = Registry.of(SAMPLE)
    assert sorted(one.name for one in registry) == ["order", "plain"]
    info = registry.info("order")
    assert info.description == "Take an order."
    assert list(info.effects) == ["reserve", "charge"]
    assert info.input_schema is not None
    assert info.input_schema["required"] == ["sku", "count"]
    assert info.result_schema is not None
    assert info.result_schema["properties"] == {"total": {"title": "Total", "type": "integer"}}
    assert registry.info("plain").input_schema is None
    assert registry.info("order", "remote").host == "remote"
    with pytest.raises(BodyUnknown):
        registry.get("other")


@pytest.mark.clause("runs.body-pins")
def test_a_build_changes_with_what_executes_the_body_and_with_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Registry.of(SAMPLE).build("order")
    assert before == Registry.of(SAMPLE).build("order")
    assert before.dependencies == {"prompt": canonical.digest("v3")}
    assert before.configuration is not None
    read = Sources._source

    def edited(name: str) -> Any:
        def source(self: Sources, module: str) -> str | None:
            text = read(self, module)
            return f"{text}\n# edited" if text is not None and module == f"{SAMPLE}.{name}" else text

        return source

    changed = {}
    for name in ("orders", "prices", "unrelated"):
        monkeypatch.setattr(Sources, "_source", edited(name))
        changed[name] = Registry.of(SAMPLE).build("order").implementation != before.implementation
    assert changed == {"orders": True, "prices": True, "unrelated": False}


def test_two_bodies_of_one_name_are_refused() -> None:
    orders = importlib.import_module(f"{SAMPLE}.orders")
    Registry([orders.order, orders.order])
    with pytest.raises(BodyMisdeclared, match="two bodies are named 'order'"):
        Registry([orders.order, body("order")(fine)])


def test_inputs_are_checked_with_a_pointer_and_without_their_values() -> None:
    registry = Registry.of(SAMPLE)
    registry.check_input("order", {"sku": "a", "count": 1})
    with pytest.raises(InputInvalid) as caught:
        registry.check_input("order", {"sku": "a", "count": "hunter2"})
    assert caught.value.errors == [
        {"pointer": "/count", "message": "Input should be a valid integer, unable to parse string as an integer"}
    ]
    assert "hunter2" not in str(caught.value.problem())
    registry.check_input("plain", None)
    with pytest.raises(InputInvalid):
        registry.check_input("plain", {"a": 1})


@pytest.mark.clause("runs.bodies")
def test_an_input_at_which_its_own_check_breaks_off_is_refused() -> None:
    class Order(BaseModel):
        sku: str
        price: dict[str, int]

        @model_validator(mode="after")
        def priced(self) -> Self:
            self.price["EUR"] += 0
            return self

    @body("priced", effects=[])
    async def priced(run: Run, order: Order) -> None:
        """Nothing."""

    registry = Registry([priced])
    registry.check_input("priced", {"sku": "a", "price": {"EUR": 1}})
    with pytest.raises(InputInvalid, match="the body's own check of it broke off with KeyError") as caught:
        registry.check_input("priced", {"sku": "hunter2", "price": {}})
    assert "hunter2" not in str(caught.value.problem())


async def test_the_functions_own_annotations_shape_what_a_body_sees() -> None:
    class Price:
        pass

    @body("typed", effects=["when", each("set")])
    async def typed(run: Run, given: datetime) -> dict[str, Any]:
        def when() -> datetime:
            return given

        async def some() -> tuple[int, ...]:
            return (1, 2)

        found = await run.step("when", when)
        numbers = await run.step("set", some, input=1)
        loose = await run.step("set", lambda: (1, 2), input=2)
        return {"year": found.year, "numbers": list(numbers), "kind": type(numbers).__name__, "loose": type(loose).__name__}

    world = World(typed)
    assert await world.run("typed", "2027-03-04T05:06:07Z") == "success"
    assert world.row.result == {"year": 2027, "numbers": [1, 2], "kind": "tuple", "loose": "list"}


async def test_a_value_that_is_no_json_fails_its_step() -> None:
    @body("odd", effects=["a"])
    async def odd(run: Run) -> None:
        await run.step("a", lambda: {1, 2} and object())

    world = World(odd)
    assert await world.run("odd") == "failed"
    assert world.row.error is not None
    assert (world.row.error["code"], world.row.error["step"]) == ("ValueUnrecordable", "a")


async def test_drawn_values_are_the_same_on_replay_and_ride_along() -> None:
    @body("draws", effects=["a"])
    async def draws(run: Run) -> list[Any]:
        found = [run.now().isoformat(), run.random(), str(run.uuid())]
        await run.step("a", lambda: 1)
        return found

    world = World(draws)
    assert await world.run("draws") == "success"
    assert world.row.result[0] == "2026-03-01T12:00:00+00:00"
    assert [[one.op for one in batch] for batch in world.memory.applied] == [
        ["put", "put", "put", "claim"],
        ["record", "close"],
    ]

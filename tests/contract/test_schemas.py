"""A kind's JSON Schema: what it refuses of bodies, and what is refused of it."""

from typing import Any

import pytest

from moorage.catalog import schemas
from moorage.kernel.errors import BodyInvalid, RequestInvalid
from moorage.kernel.limits import SCHEMA_DEPTH, SCHEMA_STEPS
from moorage.records.batches import Ending, settle_many
from moorage.records.model import Draft, Settlement
from tests.contract.adapters import Store, dump
from tests.contract.declared import put
from tests.contract.desk import KIND, Desk, ref

ORDER: dict[str, Any] = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "string", "maxLength": 8},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}, "uniqueItems": True},
        "kind": {"enum": ["new", 1, None]},
    },
    "additionalProperties": False,
    "$defs": {"line": {"type": "object", "properties": {"count": {"type": "integer", "minimum": 1}}}},
}


async def declared(store: Store, schema: dict[str, Any]) -> Desk:
    """A desk with the kind `order`."""
    desk = Desk(store)
    await put(store, "order", kinds=desk.kinds, schema=schema)
    return desk


@pytest.mark.clause("records.publish", "catalog.kind")
async def test_a_body_that_does_not_fit_is_refused_with_pointers(store: Store) -> None:
    desk = await declared(store, ORDER)
    before = await dump(store)
    with pytest.raises(BodyInvalid) as caught:
        await desk.publish({"lines": [{"count": 0}, {"count": "x"}], "kind": True}, kind="order")
    pointers = {one["pointer"] for one in caught.value.errors or []}
    assert pointers == {"/body", "/body/lines/0/count", "/body/lines/1/count", "/body/kind"}
    assert {"pointer": "/body", "message": "'id' is a required property"} in (caught.value.errors or [])
    with pytest.raises(BodyInvalid) as caught:
        await desk.publish_all([Draft("order", {"id": "a"}), Draft("order", {"id": "b", "other": 1})])
    assert [one["pointer"] for one in caught.value.errors or []] == ["/records/1/body"]
    assert await dump(store) == before
    await desk.publish({"id": "a", "lines": [{"count": 1.0}, {"count": 2}], "kind": 1.0}, kind="order")
    with pytest.raises(BodyInvalid):
        await desk.publish({"id": "a", "lines": [{"count": 1}, {"count": 1.0}]}, kind="order")


@pytest.mark.clause("records.settle", "records.publish")
async def test_results_of_a_settlement_are_held_to_the_schema(store: Store) -> None:
    desk = await declared(store, ORDER)
    await desk.declare()
    await desk.publish()
    held = ref(await desk.claim_one())
    with pytest.raises(BodyInvalid):
        await desk.settle(held, Draft("order", {}))
    await desk.settle(held, Draft("order", {"id": "a"}))


@pytest.mark.clause("catalog.kind")
async def test_a_new_schema_holds_for_what_comes_and_touches_nothing_that_is_there(store: Store) -> None:
    desk = await declared(store, {"type": "object"})
    record = await desk.publish({"id": 1}, kind="order")
    kind = await put(store, "order", schema=ORDER)
    assert (kind.revision, kind.answer()["schema"]) == (2, ORDER)
    assert await desk.get(record.id) == record
    with pytest.raises(BodyInvalid):
        await desk.publish({"id": 1}, kind="order")
    held = await desk.claim_one(kind="order")
    assert held.record.body == {"id": 1}
    assert (await put(store, "order", schema=ORDER)).revision == 2
    assert (await put(store, "order")).schema == ORDER
    assert (await put(store, "order", schema=None)).schema is None
    await desk.publish({"id": 1}, kind="order")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"properties": {"a": {"pattern": "(a+)+$"}}}, "/schema/properties/a/pattern"),
    ({"patternProperties": {"(a+)+$": {}}}, "/schema/patternProperties"),
    ({"$ref": "https://example.test/schema"}, "/schema/$ref"),
    ({"$ref": "#/$defs/none"}, "/schema/$ref"),
    ({"$ref": "#other"}, "/schema/$ref"),
    ({"$id": "https://example.test/"}, "/schema/$id"),
    ({"items": {"unevaluatedProperties": False}}, "/schema/items/unevaluatedProperties"),
    ({"$schema": "http://json-schema.org/draft-07/schema#"}, "/schema/$schema"),
    ({"type": "strin"}, "/schema/type"),
    ({"minLength": -1}, "/schema/minLength"),
    ({"$ref": "#"}, "/schema"),
    ({"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#"}}}}, "/schema"),
    ({"hidden": {"pattern": "x"}, "$ref": "#/hidden"}, "/schema/$ref/pattern"),
    ({"description": "x" * 70_000}, "/schema"),
    ({"$defs": {str(number): {"$ref": f"#/$defs/{number + 1}"} for number in range(1500)} | {"1500": {}}}, "/schema"),
]


@pytest.mark.clause("catalog.kind")
@pytest.mark.parametrize(("schema", "pointer"), REFUSED, ids=[f"{number}" for number in range(len(REFUSED))])
def test_a_schema_that_reaches_outside_or_may_blow_up_is_refused(schema: dict[str, Any], pointer: str) -> None:
    with pytest.raises(RequestInvalid) as caught:
        schemas.check(schema)
    assert [one["pointer"] for one in caught.value.errors or []] == [pointer]


def test_a_schema_nested_too_deep_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(16):
        schema = {"properties": {"a": schema}}
    schemas.check(schema)
    with pytest.raises(RequestInvalid, match="16 subschemas"):
        schemas.check({"properties": {"a": schema}})


def test_a_property_may_be_called_like_a_keyword() -> None:
    schema = {"properties": {"pattern": {"type": "string"}, "id": {"type": "string"}, "$ref": {"type": "null"}}}
    schemas.check(schema)
    assert schemas.Validator(schema).problems({"pattern": "(", "id": "x", "$ref": None}) == []


def test_what_multiplies_stops_at_a_bound() -> None:
    doubling: dict[str, Any] = {
        str(number): {"allOf": [{"$ref": f"#/$defs/{number + 1}"}, {"$ref": f"#/$defs/{number + 1}"}]}
        for number in range(30)
    }
    schema = {"$ref": "#/$defs/0", "$defs": doubling | {"30": {}}}
    with pytest.raises(RequestInvalid, match="1000 subschemas"):
        schemas.check(schema)
    [problem] = schemas.Validator(schema).problems({})
    assert str(int(SCHEMA_STEPS)) in problem["message"]


def test_what_a_schema_comes_to_is_counted_with_its_references() -> None:
    def wide(number: int) -> dict[str, Any]:
        return {"allOf": [{"$ref": "#/$defs/a"}] * number, "$defs": {"a": {"properties": {"x": {}, "y": True, "z": {}}}}}

    schemas.check(wide(199))
    with pytest.raises(RequestInvalid, match="1000 subschemas"):
        schemas.check(wide(200))
    below = {
        str(n): {"properties": {"a": {"$ref": f"#/$defs/{n + 1}"}, "b": {"$ref": f"#/$defs/{n + 1}"}}} for n in range(30)
    }
    with pytest.raises(RequestInvalid, match="1000 subschemas"):
        schemas.check({"$ref": "#/$defs/0", "$defs": below | {"30": {}}})
    schemas.check({"$defs": below | {"30": {}}})


COSTLY: dict[str, Any] = {"properties": {"many": {"items": {"type": "integer"}}}}
"""A step for each element of `many`, and some."""


def heavy(steps: int) -> Draft:
    return Draft("order", {"many": [1] * steps})


@pytest.mark.clause("records.publish")
async def test_the_bodies_of_one_request_share_their_steps(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = await declared(store, COSTLY)
    half = int(SCHEMA_STEPS) * 2 // 5
    await desk.publish_all([heavy(half), heavy(half)])
    asked: list[int] = []
    problems = schemas.Validator.problems

    def counted(self: schemas.Validator, body: Any, budget: schemas.Budget | None = None) -> schemas.Problems:
        asked.append(len(body["many"]))
        return problems(self, body, budget)

    monkeypatch.setattr(schemas.Validator, "problems", counted)
    with pytest.raises(BodyInvalid) as caught:
        await desk.publish_all([heavy(half), heavy(half), heavy(half), heavy(1)])
    assert [one["pointer"] for one in caught.value.errors or []] == ["/records/2/body"]
    assert asked == [half] * 3


@pytest.mark.clause("records.settle", "records.publish")
async def test_the_results_of_many_settlements_share_their_steps(store: Store) -> None:
    desk = await declared(store, COSTLY)
    await desk.declare()
    await desk.publish_all([Draft(KIND, {}) for _ in range(3)])
    held = await desk.claim(limit=3)
    items = [Ending(ref(one), (heavy(int(SCHEMA_STEPS) * 2 // 5),)) for one in held]
    outcomes = await settle_many(desk.db(), desk.kinds, desk.caller, desk.now, items)
    assert [type(one) for one in outcomes] == [Settlement, Settlement, BodyInvalid]


@pytest.mark.clause("records.publish")
async def test_a_body_too_costly_for_a_schema_replaced_elsewhere_fits_the_new_one(store: Store) -> None:
    desk = await declared(store, COSTLY)
    await desk.publish({}, kind="order")
    await put(store, "order", schema={"type": "object"})
    await desk.publish(heavy(int(SCHEMA_STEPS)).body, kind="order")


def test_a_recursive_schema_follows_the_body_as_deep_as_the_bound() -> None:
    schema: dict[str, Any] = {"properties": {"kids": {"items": {"$ref": "#"}}}, "required": ["id"]}
    schemas.check(schema)
    validator = schemas.Validator(schema)

    def tree(depth: int, leaf: dict[str, Any]) -> dict[str, Any]:
        return leaf if depth == 0 else {"id": 1, "kids": [tree(depth - 1, leaf)]}

    assert validator.problems(tree(20, {"id": 1})) == []
    [problem] = validator.problems(tree(20, {}))
    assert problem["pointer"] == "/kids/0" * 20
    [problem] = validator.problems(tree(60, {"id": 1}))
    assert str(int(SCHEMA_DEPTH)) in problem["message"]


def test_messages_quote_the_schema_and_never_the_body() -> None:
    schema = {"properties": {"a": {"type": "string"}, "b": {"const": 1}}, "additionalProperties": False}
    secret = "whatever was sent"
    problems = schemas.Validator(schema).problems({"a": [secret], "b": secret, secret: 1})
    assert len(problems) == 3
    assert all(secret not in one["message"] for one in problems)


def test_false_refuses_everything() -> None:
    assert schemas.Validator({"properties": {"a": False}}).problems({"a": 1})[0]["pointer"] == "/a"

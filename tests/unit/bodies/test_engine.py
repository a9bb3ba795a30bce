"""Steps, gathers, and what a replay makes of them."""

import pytest
from pydantic import BaseModel

from moorage.bodies import Run, Step, body, each
from tests.unit.bodies.world import World


class Order(BaseModel):
    sku: str
    count: int = 1


class Receipt(BaseModel):
    sku: str
    total: int


calls: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    calls.clear()


@body("order", effects=["reserve", "charge"])
async def order(run: Run, given: Order) -> Receipt:
    async def reserve() -> int:
        calls.append("reserve")
        return 40

    def charge(given: Order, step: Step) -> Receipt:
        calls.append(step.idempotency_key)
        return Receipt(sku=given.sku, total=price + given.count)

    price = await run.step("reserve", reserve)
    return await run.step("charge", charge, input=given)


@pytest.mark.clause("runs.step-output", "runs.substrate")
async def test_a_step_costs_one_round_trip_and_its_value_is_recorded_with_the_next() -> None:
    world = World(order)
    assert await world.run("order", {"sku": "a", "count": 2}) == "success"
    assert world.row.result == {"sku": "a", "total": 42}
    kinds = [[one.op for one in batch] for batch in world.memory.applied]
    assert kinds == [["claim"], ["record", "claim"], ["record", "close"]]


async def test_a_gather_of_200_branches_shares_its_round_trips() -> None:
    @body("many", effects=[each("one")])
    async def many(run: Run) -> int:
        async def one(index: int) -> int:
            return index

        return sum(await run.gather(*(run.step("one", one, input=index) for index in range(200))))

    world = World(many)
    assert await world.run("many") == "success"
    assert world.row.result == 19900
    assert world.memory.calls <= 4

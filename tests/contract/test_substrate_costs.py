"""What the substrate costs: one round trip each, and rows that grow neither with the journal nor with what else there is."""

import pytest

from moorage.kernel.instants import Instant
from moorage.runs.model import Failure, Minted
from moorage.runs.operations import Await, Claimed, Close, Fail, Mint, SetMetadata, StartChild, Suspend
from moorage.store.ports import Cost
from tests.contract.adapters import Store
from tests.contract.harbor import Harbor, claim, key, put, record, value


@pytest.fixture
def harbor(store: Store) -> Harbor:
    return Harbor(store)


@pytest.mark.clause("runs.substrate")
async def test_everything_on_the_way_of_a_run_is_one_round_trip(harbor: Harbor) -> None:
    costs: dict[str, Cost] = {}
    execution = await harbor.opened()
    costs["take"] = harbor.cost
    fence = execution.fence
    await harbor.apply(fence, claim("a"))
    costs["claim"] = harbor.cost
    await harbor.apply(fence, record("a", 1), claim("b"))
    costs["step"] = harbor.cost
    await harbor.apply(fence, Fail(key("b"), 1, Failure("Transient", "x"), Instant(harbor.now + 1)))
    costs["fail"] = harbor.cost
    await harbor.apply(fence, SetMetadata({"a": 1}))
    costs["metadata"] = harbor.cost
    [minted] = await harbor.apply(fence, Mint(key("m"), "0", 60))
    assert isinstance(minted, Minted)
    await harbor.apply(fence, Mint(key("n"), "0", 60))
    costs["mint"] = harbor.cost
    await harbor.apply(fence, Await(key("w"), "1", minted.id))
    costs["await"] = harbor.cost
    await harbor.apply(fence, StartChild(key("c"), "0", "part", value(1)))
    costs["child"] = harbor.cost
    await harbor.substrate.refresh(fence)
    costs["refresh"] = harbor.cost
    await harbor.substrate.renew([fence])
    costs["renew"] = harbor.cost
    await harbor.substrate.stops([fence])
    costs["stops"] = harbor.cost
    await harbor.apply(fence, Suspend("suspended", None))
    costs["suspend"] = harbor.cost
    again = await harbor.held(execution.execution_id)
    costs["wake"] = harbor.cost
    await harbor.apply(again.fence, put("z", 1), Close("success"))
    costs["close"] = harbor.cost
    assert {name: cost.trips for name, cost in costs.items()} == dict.fromkeys(costs, 1)


@pytest.mark.edge
@pytest.mark.clause("runs.substrate")
async def test_a_step_costs_as_many_rows_after_a_thousand_as_after_one(harbor: Harbor) -> None:
    if harbor.store.name != "d1":
        pytest.skip("only the edge's database counts rows read")
    few, many = await harbor.opened(), await harbor.opened()
    for start in range(0, 1000, 500):
        await harbor.apply(many.fence, *(put("p", number, number) for number in range(start, start + 500)))
    told = []
    for execution in (few, many):
        await harbor.apply(execution.fence, claim("a"))
        await harbor.apply(execution.fence, record("a", 1), claim("b"))
        told.append((harbor.cost.rows_read, harbor.cost.rows_written))
    assert told[0] == told[1]
    assert told[0][0] <= 12
    assert told[0][1] <= 3
    waits = []
    for execution in (few, many):
        await harbor.substrate.refresh(execution.fence)
        waits.append((harbor.cost.rows_read, harbor.cost.rows_written))
    assert waits[0] == waits[1]


@pytest.mark.edge
async def test_taking_reads_the_journal_and_writes_its_lease(harbor: Harbor) -> None:
    if harbor.store.name != "d1":
        pytest.skip("only the edge's database counts rows read")
    costs = []
    for size in (0, 100):
        execution = await harbor.opened()
        await harbor.apply(execution.fence, put("z", 0), *(put("p", number, number) for number in range(size)))
        harbor.now = execution.lease.expires_at
        again = await harbor.held(execution.execution_id)
        assert len(again.entries) == size + 1
        costs.append(harbor.cost)
    assert costs[0].rows_written == costs[1].rows_written <= 6
    assert costs[1].rows_read - costs[0].rows_read <= 800
    assert [cost.trips for cost in costs] == [1, 1]
    assert Claimed(1).attempt == 1

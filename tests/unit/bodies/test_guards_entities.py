"""Entities that effects rely on."""

import asyncio
from typing import Any

import pytest

from moorage.bodies import Run
from tests.unit.bodies.harbor import harbor, nothing, only_guard
from tests.unit.bodies.world import World

# --- entities -------------------------------------------------------------------------------------------------------------


def entity_of(world: World) -> tuple[int, str | None, int]:
    return world.memory.watch.leases["entity:customer:7"]


@pytest.mark.clause("guards.scope")
async def test_an_entity_is_held_for_its_block_renewed_and_protected_by_the_guard() -> None:
    rows: list[frozenset[str]] = []

    async def holds(run: Run) -> Any:
        async with run.entity("customer", "7") as lease:
            assert lease.epoch == 1
            await run.effect("print", "printer", "jobs", timeout=200)
            assert entity_of(world)[1] == "exe_1"
        await run.step("before", nothing)
        assert entity_of(world)[1] is None

    async def long() -> None:
        rows.append(only_guard(world).rows)
        await world.clock.sleep(100)

    world, bank = harbor(holds)
    bank.during = long
    assert await world.run("pays") == "success"
    assert rows == [frozenset({"scope:scope-exe_1", "lease:entity:customer:7"})]


@pytest.mark.clause("guards.current-owner")
async def test_who_has_lost_its_entity_sends_nothing_and_lets_go() -> None:
    async def holds(run: Run) -> Any:
        async with run.entity("customer", "7"):
            await run.step("before", steal)
            await run.effect("print", "printer", "jobs")

    async def steal() -> None:
        world.memory.watch.leases["entity:customer:7"] = (2, "exe_other", world.clock.now() + 30_000)  # type: ignore[assignment]

    world, bank = harbor(holds)
    assert await world.run("pays") == "lost"
    assert not bank.asked
    assert not world.memory.watch.guards


@pytest.mark.clause("guards.scope")
async def test_one_execution_at_a_time_holds_an_entity() -> None:
    inside: list[str] = []
    most: list[int] = []

    async def holds(run: Run) -> Any:
        async def work() -> None:
            inside.append(run.id)
            most.append(len(inside))
            await world.clock.sleep(20)
            inside.remove(run.id)

        async with run.entity("customer", "7"):
            await run.step("before", work)

    world, _ = harbor(holds)
    first = world.host.start(world.memory.open("pays", name="exe_a"))
    second = world.host.start(world.memory.open("pays", name="exe_b"))
    ended = await world.clock.drive(asyncio.gather(first, second))
    assert sorted(ended) == ["success", "waiting"]
    waiting = "exe_a" if ended[0] == "waiting" else "exe_b"
    assert world.memory.rows[waiting].awaiting[0]["kind"] == "entity"
    assert await world.again(waiting) == "success"
    assert most == [1, 1]


async def test_a_wait_lets_go_of_the_entity_and_the_next_pass_holds_it_anew() -> None:
    async def holds(run: Run) -> Any:
        async with run.entity("customer", "7") as lease:
            await run.sleep(100)
            return lease.epoch

    world, _ = harbor(holds)
    assert await world.run("pays") == "waiting"
    assert entity_of(world)[1] is None
    assert await world.again() == "success"
    assert world.row.result == 2


async def test_two_blocks_of_one_run_share_their_entity() -> None:
    async def holds(run: Run) -> Any:
        async def one(number: int) -> int:
            async with run.entity("customer", "7") as lease:
                await run.effect("pay", "bank", "charges", json=number)
                return lease.epoch

        epochs = await run.gather(one(1), one(2))
        held = await run.entity("customer", "8")
        return [*epochs, held.epoch]

    world, _ = harbor(holds)
    assert await world.run("pays") == "success"
    assert world.row.result == [1, 1, 1]
    assert {owner for _, owner, _ in world.memory.watch.leases.values()} == {None}

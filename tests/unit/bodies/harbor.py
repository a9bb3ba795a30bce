"""A body with a bank outside, and the moment in which its request is under way."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx

from moorage.bodies import Retry, Run, Sent, body, each
from moorage.bodies.declare import Each
from tests.unit.bodies.bank import Bank, declare
from tests.unit.bodies.world import World

SECRET = "sk-live-0123456789abcdef"
EFFECTS: list[str | Each] = ["before", each("pay"), "print", "proof", "late"]
RETRY = Retry(attempts=3, base_ms=100, jitter_ms=0)


async def nothing() -> int:
    return 1


def harbor(function: Callable[[Run], Any], **named: Any) -> tuple[World, Bank]:
    """A world whose one body is `function`, with a bank outside."""

    @body("pays", effects=EFFECTS, retry=RETRY, **named)
    async def pays(run: Run) -> Any:
        return await function(run)

    transport = httpx.MockTransport(lambda request: httpx.Response(500))
    world = World(pays, transport=transport, secret={"BANK": SECRET}.get)
    bank = Bank(world.memory, world.clock)
    transport.handler = bank.answer
    declare(world.memory)
    return world, bank


async def paying(run: Run) -> Any:
    await run.step("before", nothing)
    sent = await run.effect("pay", "bank", "/charges?by=card", json={"cents": 5})
    assert isinstance(sent, Sent)
    return [sent.value.json()["id"] if sent.value is not None else None, sent.receipt]


async def printing(run: Run) -> Any:
    sent = await run.effect("print", "printer", "jobs", json={"page": 1})
    return [sent.value.status if sent.value is not None else None, sent.receipt]


def only_guard(world: World) -> Any:
    [guard] = world.memory.watch.guards.values()
    return guard


async def begun(world: World, bank: Bank, seconds: float = 10**7, name: str = "exe_1") -> "asyncio.Task[Any]":
    """Drive the body until its request is under way, where it stays for so long."""
    reached = asyncio.Event()

    async def hang() -> None:
        reached.set()
        await world.clock.sleep(seconds)

    bank.during = hang
    task = world.host.start(world.memory.open("pays", name=name))
    await world.clock.drive(reached.wait())
    return task

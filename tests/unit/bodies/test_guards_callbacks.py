"""Callbacks of one's own, and what they may not do."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from moorage.bodies import Dispatch, Failed, InDoubt, Run
from tests.unit.bodies.bank import WINDOW, declare
from tests.unit.bodies.clock import START
from tests.unit.bodies.harbor import SECRET, harbor, nothing

# --- callbacks of one's own -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raised", "ended", "stands"),
    [
        (Failed("Invalid", "no such card"), "failed", False),
        (InDoubt("Transient", "no line"), "suspended", True),
        (ValueError("cannot read the answer"), "suspended", True),
        (httpx.ConnectError("the second request"), "suspended", True),
        (asyncio.CancelledError(), "suspended", True),
    ],
)
@pytest.mark.clause("guards.release")
async def test_a_callback_says_with_failed_what_became_of_it_and_with_nothing_else(
    raised: BaseException, ended: str, stands: bool
) -> None:
    async def own(run: Run) -> Any:
        async def send() -> None:
            raise raised

        return await run.effect("print", "printer", send)

    world, _ = harbor(own)
    assert await world.run("pays") == ended
    assert bool(world.memory.watch.guards) is stands


async def test_a_callback_knows_where_to_send_and_its_value_is_recorded() -> None:
    seen: list[Dispatch] = []

    async def own(run: Run) -> Any:
        def send(given: int, dispatch: Dispatch) -> dict[str, int]:
            seen.append(dispatch)
            return {"receipt": given}

        sent = await run.effect("pay", "bank", send, input=7)
        return [sent.value, sent.receipt]

    world, _ = harbor(own)
    declare(world.memory, secret="env:BANK")
    assert await world.run("pays") == "success"
    assert world.row.result == [{"receipt": 7}, None]
    [dispatch] = seen
    assert dispatch.target is not None
    assert (dispatch.target.url, dispatch.authorization) == ("https://bank.test/v1", f"Bearer {SECRET}")
    assert dispatch.window_ends_at == START + WINDOW * 1000
    assert SECRET not in repr(dispatch)


async def test_a_value_that_cannot_be_recorded_is_no_doubt() -> None:
    async def own(run: Run) -> Any:
        return await run.effect("print", None, lambda: object())

    world, _ = harbor(own)
    assert await world.run("pays") == "failed"
    assert world.row.error is not None
    assert world.row.error["code"] == "ValueUnrecordable"
    assert not world.memory.watch.guards


async def test_a_callback_whose_time_is_over_is_in_doubt() -> None:
    async def own(run: Run) -> Any:
        return (await run.effect("pay", "bank", hang, timeout=5)).value

    async def hang() -> str:
        if not stuck:
            stuck.append(1)
            await asyncio.get_running_loop().create_future()
        return "paid"

    stuck: list[int] = []
    world, _ = harbor(own)
    assert await world.run("pays") == "success"
    assert world.row.result == "paid"
    assert world.row.bounds[0]["bound"] == "call-deadline"
    assert world.memory.watch.drawn == 1


async def _now(run: Run) -> None:
    run.now()


ASKING: dict[str, Callable[[Run], Awaitable[Any]]] = {
    "step": lambda run: run.step("late", nothing),
    "now": _now,
    "sleep": lambda run: run.sleep(1),
    "awakeable": lambda run: run.awakeable("late", ttl=10),
    "publish": lambda run: run.publish("late", []),
    "effect": lambda run: run.effect("late", "bank", "charges"),
    "entity": lambda run: run.entity("customer", "7").__aenter__(),
    "child": lambda run: run.child("late", "pays"),
    "cursor": lambda run: run.cursor("place"),
    "gather": lambda run: run.gather(),
    "unsafe": lambda run: run.journal.unsafe("why not", nothing),
}


@pytest.mark.clause("guards.callback-limits")
@pytest.mark.parametrize("what", list(ASKING))
async def test_a_callback_asks_its_run_for_nothing(what: str) -> None:
    async def own(run: Run) -> Any:
        async def send() -> str:
            run.metadata["seen"] = what
            try:
                await ASKING[what](run)
            except Exception as error:
                return type(error).__name__
            return "allowed"

        return (await run.effect("print", "printer", send)).value

    world, _ = harbor(own)
    assert await world.run("pays") == "failed"
    assert world.row.error is not None
    assert world.row.error["code"] == "CallbackLimited"
    assert world.row.error["step"] == "print"
    # The callback returned, so that what it did is recorded, and its metadata told.
    assert world.row.metadata == {"seen": what}
    [entry] = world.row.entries.values()
    assert entry.value is not None
    assert entry.value.text == '{"sent":"CallbackLimited"}'
    assert not world.memory.watch.guards


@pytest.mark.clause("guards.callback-limits")
async def test_a_callback_that_breaks_off_over_that_leaves_its_guard() -> None:
    async def own(run: Run) -> Any:
        async def send() -> None:
            await run.step("late", nothing)

        return (await run.effect("print", "printer", send)).receipt

    world, bank = harbor(own)
    assert await world.run("pays") == "suspended"
    [entry] = world.row.entries.values()
    assert entry.failure is not None
    assert entry.failure["code"] == "CallbackLimited"
    bank.look_after()
    assert await world.again() == "success"

"""Waiting for runs to end: who is woken, what is remembered, and that nothing is kept of those who left."""

import asyncio
from collections.abc import Awaitable, Sequence

import pytest

from moorage.runs.live import ends
from moorage.runs.live.ends import Ends

LONG = 25.0


async def begun(*waits: Awaitable[bool]) -> Sequence["asyncio.Future[bool]"]:
    tasks = [asyncio.ensure_future(one) for one in waits]
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


async def test_all_who_wait_for_a_run_are_woken_by_its_end_and_nobody_else() -> None:
    some = Ends()
    *mine, other = await begun(*(some.wait("run_1", LONG) for _ in range(50)), some.wait("run_2", LONG))
    assert some.waiting == 51
    some.tell("run_1")
    assert await asyncio.wait_for(asyncio.gather(*mine), LONG - 5) == [True] * 50
    assert (other.done(), some.waiting) == (False, 1)
    other.cancel()
    await asyncio.wait([other])
    assert (some.waiting, some._waiting) == (0, {})


async def test_a_wait_ends_after_its_time() -> None:
    some = Ends()
    assert not await some.wait("run_1", 0.01)
    assert not await some.wait("run_1", 0)
    assert some._waiting == {}


async def test_who_comes_just_after_an_end_hears_of_it_once() -> None:
    some = Ends()
    some.tell("run_1")
    assert await some.wait("run_1", LONG)
    assert not await some.wait("run_1", 0.01, again=True)
    (waiting,) = await begun(some.wait("run_1", LONG, again=True))
    some.tell("run_1")
    assert await asyncio.wait_for(waiting, LONG - 5)


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "REMEMBERED", 3)
    some = Ends()
    for number in (0, 1, 2, 0, 3):
        some.tell(f"run_{number}")
    assert [await some.wait(f"run_{number}", 0) for number in range(4)] == [True, False, True, True]

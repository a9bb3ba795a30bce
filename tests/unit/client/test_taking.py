"""How a worker asks: waiting requests, and polling where waiting is refused."""

import asyncio
from typing import Any

import httpx
import respx

from moorage.client import Moorage, Work
from tests.unit.client.conftest import Impatient

REFUSED = {
    "code": "RequestInvalid",
    "status": 422,
    "tag": "Invalid",
    "retryable": False,
    "errors": [{"pointer": "/wait_seconds", "message": "must be 0"}],
}


async def nothing(_work: Work) -> None:
    raise AssertionError("nothing can be claimed")


@respx.mock(base_url="https://moorage.example")
async def test_where_waiting_is_refused_the_worker_polls(
    respx_mock: respx.MockRouter, remote: Moorage, impatient: Impatient
) -> None:
    worker = remote.work("doc", None, nothing, name="w", wait_seconds=10)
    asked: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(b"wait_seconds" in request.content)
        if len(asked) == 4:
            worker.stop()
        return httpx.Response(422, json=REFUSED) if asked[-1] else httpx.Response(200, json={"claims": []})

    respx_mock.post("/claims").mock(side_effect=answer)
    await asyncio.wait_for(worker.run(), 10)
    assert asked == [True, False, False, False]
    assert impatient.slept[:2] == [0.2, 0.4]


@respx.mock(base_url="https://moorage.example")
async def test_a_waiting_request_that_is_answered_early_and_empty_is_not_repeated_in_a_hurry(
    respx_mock: respx.MockRouter, remote: Moorage, impatient: Impatient
) -> None:
    worker = remote.work("doc", None, nothing, name="w", wait_seconds=10)
    asked = 0

    def answer(_: httpx.Request) -> httpx.Response:
        nonlocal asked
        asked += 1
        if asked == 3:
            worker.stop()
        return httpx.Response(200, json={"claims": []})

    respx_mock.post("/claims").mock(side_effect=answer)
    await asyncio.wait_for(worker.run(), 10)
    assert impatient.slept[:2] == [0.2, 0.4]


@respx.mock(base_url="https://moorage.example")
async def test_an_announced_worker_publishes_its_interest_and_takes_it_back(
    respx_mock: respx.MockRouter, remote: Moorage
) -> None:
    worker = remote.work("doc", {"n": 1}, nothing, name="w", wait_seconds=0, announce=True)
    shown = {"interest": "w", "worker": "w", "subject": "s", "kind": "doc", "expires_at": "2026-11-29T16:35:00Z"}
    again = asyncio.Event()

    def say(_: httpx.Request) -> httpx.Response:
        if said.call_count == 1:
            again.set()
        return httpx.Response(200, json=shown)

    said = respx_mock.put("/interests/w").mock(side_effect=say)
    withdrawn = respx_mock.delete("/interests/w").mock(return_value=httpx.Response(204))
    respx_mock.post("/claims").mock(return_value=httpx.Response(200, json={"claims": []}))
    task = asyncio.create_task(worker.run())
    await asyncio.wait_for(again.wait(), 10)
    assert not withdrawn.called
    worker.stop()
    await asyncio.wait_for(task, 10)
    assert withdrawn.call_count == 1
    assert b'"match":{"n":1}' in said.calls[0].request.content

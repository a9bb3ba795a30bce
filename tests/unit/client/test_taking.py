"""How a worker asks: waiting requests, and polling where waiting is refused."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import respx

from moorage.client import Moorage, Patience, Work
from tests.unit.client.conftest import ROOT, Impatient, World, settled
from tests.unit.client.test_worker import Workshop

REFUSED = {
    "code": "RequestInvalid",
    "status": 422,
    "tag": "Invalid",
    "retryable": False,
    "errors": [{"pointer": "/wait_seconds", "message": "must be 0"}],
}


async def nothing(_work: Work) -> None:
    raise AssertionError("nothing can be claimed")


@pytest.fixture
def api() -> Iterator[respx.MockRouter]:
    """A deployment without sessions."""
    with respx.mock(base_url="https://moorage.example", assert_all_called=False) as router:
        router.post("/sessions").mock(return_value=httpx.Response(404, json={"code": "RouteUnknown", "tag": "Unknown"}))
        yield router


async def test_where_waiting_is_refused_the_worker_polls(
    api: respx.MockRouter, remote: Moorage, impatient: Impatient
) -> None:
    worker = remote.work("doc", None, nothing, name="w", wait_seconds=10)
    asked: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(b"wait_seconds" in request.content)
        if len(asked) == 4:
            worker.stop()
        return httpx.Response(422, json=REFUSED) if asked[-1] else httpx.Response(200, json={"claims": []})

    api.post("/claims").mock(side_effect=answer)
    await asyncio.wait_for(worker.run(), 10)
    assert asked == [True, False, False, False]
    assert impatient.slept[:2] == [0.2, 0.4]


async def test_a_waiting_request_that_is_answered_early_and_empty_is_not_repeated_in_a_hurry(
    api: respx.MockRouter, remote: Moorage, impatient: Impatient
) -> None:
    worker = remote.work("doc", None, nothing, name="w", wait_seconds=10)
    asked = 0

    def answer(_: httpx.Request) -> httpx.Response:
        nonlocal asked
        asked += 1
        if asked == 3:
            worker.stop()
        return httpx.Response(200, json={"claims": []})

    api.post("/claims").mock(side_effect=answer)
    await asyncio.wait_for(worker.run(), 10)
    assert impatient.slept[:2] == [0.2, 0.4]


async def test_an_announced_worker_publishes_its_interest_and_takes_it_back(api: respx.MockRouter, remote: Moorage) -> None:
    worker = remote.work("doc", {"n": 1}, nothing, name="w", wait_seconds=0, announce=True)
    shown = {"interest": "w", "worker": "w", "subject": "s", "kind": "doc", "expires_at": "2026-11-29T16:35:00Z"}
    again = asyncio.Event()

    def say(_: httpx.Request) -> httpx.Response:
        if said.call_count == 1:
            again.set()
        return httpx.Response(200, json=shown)

    said = api.put("/interests/w").mock(side_effect=say)
    withdrawn = api.delete("/interests/w").mock(return_value=httpx.Response(204))
    api.post("/claims").mock(return_value=httpx.Response(200, json={"claims": []}))
    task = asyncio.create_task(worker.run())
    await asyncio.wait_for(again.wait(), 10)
    assert not withdrawn.called
    worker.stop()
    await asyncio.wait_for(task, 10)
    assert withdrawn.call_count == 1
    assert b'"match":{"n":1}' in said.calls[0].request.content


class Losing(httpx.AsyncBaseTransport):
    """Delivers every request, and loses the answers to so many claims; or never brings the answer to one that waits."""

    def __init__(self, inner: httpx.AsyncBaseTransport, losses: int = 0, hangs: bool = False) -> None:
        self.inner, self.losses, self.hangs = inner, losses, hangs
        self.asked: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(f"{request.method} {request.url.path}")
        waits = b'"wait_seconds":' in request.content
        answer = await self.inner.handle_async_request(request)
        if request.url.path != "/claims":
            return answer
        if self.hangs and waits:
            await asyncio.Event().wait()
        if self.losses > 0:
            self.losses -= 1
            raise httpx.ReadError("lost after it was carried out")
        return answer


@pytest.mark.clause("records.claim-replay")
@pytest.mark.parametrize("losses", [1, 5])
async def test_a_claim_whose_answers_are_lost_is_the_same_claim_again(
    world: World, transport: httpx.ASGITransport, moorage: Moorage, losses: int
) -> None:
    (first, second) = [await moorage.records.publish("doc", {"n": n}) for n in (1, 2)]
    losing = Losing(transport, losses)
    patience = Patience(tries=2)
    async with Moorage("http://moorage.test", ROOT, transport=losing, timing=world.clock, patience=patience) as client:
        shop = Workshop(world, client)
        shop.start()
        await world.advance(20)
        await shop.begins(1)
        assert shop.began == [first.id]
        assert (await moorage.records.get(first.id)).attempts == 1
        assert (await moorage.records.get(second.id)).attempts == 0
        shop.worker.stop()
        shop.worker.stop()
        await shop.ends()
    assert losing.asked.count("POST /claims") == losses + 1
    assert losing.asked[-1].startswith("DELETE /sessions/ses_")


@pytest.mark.clause("records.claim-replay")
async def test_a_stop_breaks_off_the_waiting_and_gives_back_what_it_brought_unseen(
    world: World, transport: httpx.ASGITransport, moorage: Moorage
) -> None:
    record = await moorage.records.publish("doc", {"n": 1})
    losing = Losing(transport, hangs=True)
    async with Moorage("http://moorage.test", ROOT, transport=losing, timing=world.clock) as client:
        shop = Workshop(world, client, wait_seconds=20)
        shop.start()
        await settled()
        assert (await moorage.records.get(record.id)).state == "claimed"
        shop.worker.stop()
        await shop.ends()
    found = await moorage.records.get(record.id)
    assert (found.state, found.attempts, shop.began, world.clock.seconds) == ("ready", 0, [], 0)


async def test_a_session_that_has_ended_is_opened_anew(
    world: World, transport: httpx.ASGITransport, moorage: Moorage
) -> None:
    losing = Losing(transport)
    async with Moorage("http://moorage.test", ROOT, transport=losing, timing=world.clock) as client:
        shop = Workshop(world, client)
        shop.start()
        await settled()
        await world.house.advance(3 * 86_400)
        await moorage.records.publish("doc", {"n": 1})
        await world.advance(5)
        await shop.begins(1)
        shop.worker.stop()
        shop.worker.stop()
        await shop.ends()
    assert losing.asked.count("POST /sessions") == 2


async def test_a_session_is_renewed_for_as_long_as_the_worker_runs(
    world: World, transport: httpx.ASGITransport, moorage: Moorage
) -> None:
    losing = Losing(transport)
    async with Moorage("http://moorage.test", ROOT, transport=losing, timing=world.clock) as client:
        shop = Workshop(world, client)
        shop.start()
        for _ in range(4):
            await settled()
            await world.leap(1000)
        shop.worker.stop()
        await shop.ends()
    assert losing.asked.count("POST /sessions") == 1
    assert sum(one.endswith("/renew") for one in losing.asked) == 2

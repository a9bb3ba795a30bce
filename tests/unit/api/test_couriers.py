"""Policies, health and enabling over HTTP, and the whole way of an event to its subscriber (clause outbox.deliver)."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import pytest

from moorage.api.app import build_app
from moorage.api.assembly import due_works
from moorage.api.ringing import RingingDatabase
from moorage.client import Moorage
from moorage.kernel.instants import after
from moorage.kernel.limits import DELIVERY_ATTEMPTS, DELIVERY_CONCURRENCY, DELIVERY_TIMEOUT_SECONDS
from moorage.messages.outbox.courier import Courier
from moorage.messages.outbox.sending import Sender
from moorage.timers import clock
from tests.contract.dock import SECRET, Subscriber
from tests.unit.api.conftest import ROOT, House, client_of

pytestmark = pytest.mark.clause("outbox.deliver")

URL = {"url": "https://there.example.com/hook", "secret": "env:HOOK"}
BOUNDS = {
    "concurrency": int(DELIVERY_CONCURRENCY),
    "max_attempts": int(DELIVERY_ATTEMPTS),
    "timeout_seconds": int(DELIVERY_TIMEOUT_SECONDS),
}


class HostCouriers:
    """Couriers in this process, with no platform in between: makes that of each destination that something is to be sent
    to. `told` says who was told."""

    def __init__(self, make: Callable[[str], Courier]) -> None:
        self._make = make
        self._couriers: dict[str, Courier] = {}
        self.told: list[str] = []

    def tell(self, destinations: Sequence[str]) -> None:
        """Tell each that there is something to send; returns at once."""
        self.told.extend(destinations)
        for destination in destinations:
            if destination not in self._couriers:
                self._couriers[destination] = self._make(destination)
            self._couriers[destination].tell()

    async def settle(self) -> None:
        """Wait until nothing is being sent."""
        for courier in list(self._couriers.values()):
            await courier.settled()


async def put(root: httpx.AsyncClient, **delivery: Any) -> httpx.Response:
    return await root.put("/destinations/there", json={**URL, "delivery": delivery})


async def test_a_policy_is_kept_and_left_out_it_is_the_usual_one(root: httpx.AsyncClient) -> None:
    usual = {"concurrency": 4, "ordered": False, "max_attempts": 24, "timeout_seconds": 15}
    assert (await root.put("/destinations/there", json=URL)).json()["delivery"] == usual
    told = {"concurrency": 1, "ordered": True, "max_attempts": 2, "timeout_seconds": 3}
    assert (await put(root, **told)).json()["delivery"] == told
    assert (await root.get("/destinations/there")).json()["delivery"] == told
    assert [one["delivery"] for one in (await root.get("/destinations")).json()["items"]] == [told]
    assert (await root.put("/destinations/there", json=URL)).json()["delivery"] == usual


@pytest.mark.parametrize("member", BOUNDS)
async def test_each_bound_of_a_policy(root: httpx.AsyncClient, member: str) -> None:
    for value in (1, BOUNDS[member]):
        assert (await put(root, **{member: value})).status_code == 200
    for bad in (0, -1, BOUNDS[member] + 1, 1.5, "4", True, None):
        answer = await put(root, **{member: bad})
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == f"/delivery/{member}"
    assert (await put(root, surprise=1)).status_code == 422


@pytest.mark.clause("catalog.destinations")
async def test_whether_its_secret_is_bound_is_told_as_it_stands(root: httpx.AsyncClient, house: House) -> None:
    """A secret may be bound after the destination is declared, so that is no refusal; nor is it kept."""
    for value, bound in ((None, False), (" ", False), (SECRET, True)):
        if value is not None:
            house.secrets["HOOK"] = value
        told = [(await root.put("/destinations/there", json=URL)).json(), (await root.get("/destinations/there")).json()]
        told += (await root.get("/destinations")).json()["items"]
        assert [one["secret_bound"] for one in told] == [bound] * 3
        assert SECRET not in str(told)
    assert (await root.put("/destinations/there", json={"url": URL["url"]})).json()["secret_bound"] is None


async def test_health_and_enabling(root: httpx.AsyncClient, house: House) -> None:
    await root.put("/destinations/there", json=URL)
    fresh = (await root.get("/destinations/there/health")).json()
    assert (fresh["state"], fresh["failures"], fresh["blocked_until"], fresh["reason"]) == ("closed", 0, None, None)
    house.connection.execute(
        "INSERT INTO couriers (destination, state, failures, reason, updated_at) VALUES ('there', 'disabled', 3, 'gone', 1)"
    )
    assert (await root.get("/destinations/there/health")).json()["state"] == "disabled"
    house.woken.clear()
    enabled = await root.post("/destinations/there/enable")
    assert (enabled.status_code, enabled.json()["state"], enabled.json()["failures"]) == (200, "closed", 0)
    assert house.woken
    for method, path in (("GET", "health"), ("POST", "enable")):
        answer = await root.request(method, f"/destinations/nowhere/{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "DestinationUnknown")


async def test_the_client_s_words_for_it(house: House) -> None:
    transport = httpx.ASGITransport(app=build_app(house.ports()))
    async with Moorage("http://moorage.test", ROOT, transport=transport) as moorage:
        await moorage.wire.call("PUT", "/destinations/there", URL)
        assert (await moorage.deliveries.health("there")).state == "closed"
        assert (await moorage.deliveries.enable("there")).failures == 0


class Way:
    """The whole way of an event, in this process: `drain` lets the Clock do what is due, and the Couriers what follows."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.subscriber = Subscriber(lambda: house.now)
        sender = Sender(self.subscriber, {"HOOK": SECRET}.get)
        self.couriers = HostCouriers(
            lambda name: Courier(name, house.database, lambda: house.now, sender, lambda: 1.0, lambda due: None)
        )

    async def drain(self) -> None:
        nobody: Callable[[Any], None] = lambda told: None  # noqa: E731
        ringing = lambda: RingingDatabase(self.house.database(), nobody, nobody, summon=self.couriers.tell)  # noqa: E731
        await clock.drain(ringing, self.house.now, due_works())
        await self.couriers.settle()


async def test_an_event_goes_all_the_way_and_the_clock_carries_it(house: House) -> None:
    way = Way(house)
    async with client_of(build_app(house.ports())) as root:
        await root.put("/destinations/there", json=URL)
        await root.put("/kinds/parcel", json={})
        declared = {"types": ["record.published"], "destination": "there"}
        assert (await root.put("/subscriptions/all", json=declared)).status_code == 200
        made = (await root.post("/records", json={"kind": "parcel", "body": {"to": "a secret place"}})).json()
        await way.drain()
        [got] = way.subscriber.got
        told = json.loads(got.content)
        assert (told["id"], told["data"]["aggregate_id"]) == (got.id, made["id"])
        assert b"a secret place" not in got.content
        assert "traceparent" not in got.headers
        [shown] = (await root.get("/deliveries")).json()["items"]
        assert (shown["state"], shown["event_id"]) == ("delivered", got.id)
        # Nothing that was told of makes anything more to tell.
        await way.drain()
        assert len(way.subscriber.got) == 1


@pytest.mark.clause("runs.trace-context")
@pytest.mark.parametrize("state", ["shop=1", None])
async def test_what_is_told_of_a_run_carries_its_trace_on(house: House, state: str | None) -> None:
    way = Way(house)
    way.subscriber.answer = lambda got: httpx.Response(500 if got.attempt == 1 else 200)
    async with client_of(build_app(house.ports())) as root:
        await root.put("/destinations/there", json=URL)
        await root.put("/bodies/work", json={"build": {"implementation": "a" * 64}})
        trace = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", **({} if state is None else {"tracestate": state})}
        sent = {"body": "work", "input": None, "notify": ["there"]}
        run = (await root.post("/runs", json=sent, headers=trace)).json()["run_id"]
        await root.post(f"/runs/{run}/stop", json={"scope": "run"})
        await way.drain()
        house.now = after(house.now, 60)
        await way.drain()
        own = (await root.get(f"/runs/{run}")).json()["traceparent"]
    assert own.startswith(f"00-{'a' * 32}-")
    first, second = way.subscriber.got
    assert [(got.headers["traceparent"], got.headers.get("tracestate")) for got in (first, second)] == [(own, state)] * 2
    assert first.content == second.content

"""Hosts outside the Worker with effects in flight: what they leave when they stop, and what when they are killed."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from moorage.api.app import build_app
from moorage.bodies import Run, body
from moorage.client import Host, Moorage, Patience
from moorage.kernel.errors import ExecutionGuardBlocked
from moorage.store.directory import DirectoryBlobs
from moorage.store.sqlite import connect
from tests.unit.api.conftest import ROOT, House

SECRET = "sk-live-0123456789abcdef"


@body("charges", effects=["charge"])
async def charges(run: Run, destination: str) -> list[Any]:
    sent = await run.effect("charge", destination, "charges", json={"cents": 5})
    return [None if sent.value is None else sent.value.json(), sent.receipt]


class Outside:
    """Somebody who answers, or is silent for as long as `silent` is set."""

    def __init__(self) -> None:
        self.asked: list[httpx.Request] = []
        self.silent = asyncio.Event()
        self.reached = asyncio.Event()

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        self.reached.set()
        if self.silent.is_set():
            await asyncio.get_running_loop().create_future()
        return httpx.Response(200, json={"id": "ch_1"})

    @property
    def keys(self) -> set[str]:
        return {one.headers["idempotency-key"] for one in self.asked}


@pytest.fixture
def house(schema: str, tmp_path: Path) -> House:
    connection = connect(":memory:")
    connection.executescript(schema)
    return House(connection, blobs=DirectoryBlobs(tmp_path)).initialized()


@pytest.fixture
async def moorage(house: House) -> AsyncIterator[Moorage]:
    transport = httpx.ASGITransport(app=build_app(house.ports()))
    patience = Patience(tries=3, first_seconds=0.01)
    async with Moorage("http://moorage.test", ROOT, transport=transport, patience=patience) as made:
        for name, window in (("bank", 3600), ("printer", None)):
            declared = {"url": f"https://{name}.test/v1", "secret": "env:BANK", "dedup_window_seconds": window}
            await made.wire.call("PUT", f"/destinations/{name}", declared)
        yield made


def host(moorage: Moorage, outside: Outside, name: str = "one", **more: Any) -> Host:
    secret = {"BANK": SECRET}.get
    return Host(moorage, charges, name=name, transport=httpx.MockTransport(outside), secret=secret, **more)


async def guards(moorage: Moorage) -> list[dict[str, Any]]:
    return list((await moorage.wire.call("GET", "/guards"))["items"])


async def begun(moorage: Moorage, outside: Outside, destination: str, **more: Any) -> tuple[Host, "asyncio.Task[None]", str]:
    """A host that serves, with a request under way that nobody answers."""
    outside.silent.set()
    serving = host(moorage, outside, grace_seconds=0.05, **more)
    task = asyncio.create_task(serving.serve())
    while not await moorage.runs.bodies():  # noqa: ASYNC110 - it offers what it has before it takes anything
        await asyncio.sleep(0.005)
    run = await moorage.runs.start("charges", destination, scope="order-7")
    await asyncio.wait_for(outside.reached.wait(), 20)
    return serving, task, run.run_id


@pytest.mark.clause("guards.identity", "guards.holder-identity", "runs.substrate")
async def test_an_effect_is_guarded_over_http(moorage: Moorage, house: House) -> None:
    outside = Outside()
    async with host(moorage, outside) as one:
        assert await one.run("charges", "bank") == [{"id": "ch_1"}, None]
        [holder] = (await moorage.wire.call("GET", "/holders"))["items"]
        assert (holder["kind"], holder["name"], holder["exited_at"]) == ("remote", "one", None)
    [holder] = (await moorage.wire.call("GET", "/holders"))["items"]
    assert holder["exited_at"] is not None
    [asked] = outside.asked
    assert asked.headers["authorization"] == f"Bearer {SECRET}"
    dumped = "\n".join(house.connection.iterdump())
    assert "0123456789abcdef" not in dumped
    assert await guards(moorage) == []


@pytest.mark.clause("guards.holder-gone", "guards.replay")
async def test_a_host_that_stops_is_gone_and_the_next_one_sends_the_same_key_again(moorage: Moorage, house: House) -> None:
    outside = Outside()
    _, serving, run = await begun(moorage, outside, "bank")
    [guard] = await guards(moorage)
    signal.raise_signal(signal.SIGTERM)
    await asyncio.wait_for(serving, 20)
    shown = await moorage.runs.get(run)
    assert shown.status == "suspended"
    assert shown.awaiting == [{"label": "charge", "kind": "guard", "guard": guard["token"]}]
    [holder] = (await moorage.wire.call("GET", "/holders"))["items"]
    assert (holder["id"], holder["exit_reason"]) == (guard["holder"], "stopped")
    # Time passes; the window covers the key all the same.
    await house.advance(60)
    outside.silent.clear()
    other = host(moorage, outside, "other")
    serving = asyncio.create_task(other.serve())
    assert await asyncio.wait_for(moorage.runs.result(run), 20) == [{"id": "ch_1"}, None]
    assert len(outside.asked) == 2
    assert len(outside.keys) == 1
    other.stop()
    await asyncio.wait_for(serving, 20)


@pytest.mark.clause("guards.holder-gone", "guards.manual", "guards.audit")
async def test_without_a_window_it_waits_for_an_operator_whose_receipt_is_the_value(moorage: Moorage, house: House) -> None:
    outside = Outside()
    first, serving, run = await begun(moorage, outside, "printer")
    first.stop()
    await asyncio.wait_for(serving, 20)
    await house.advance(60)
    other = host(moorage, outside, "other")
    serving = asyncio.create_task(other.serve())
    await asyncio.sleep(0.2)
    assert (await moorage.runs.get(run)).status == "suspended"
    [guard] = await guards(moorage)
    evidence = {"evidence": f"receipt:{guard['idempotency_key']}:ch_9", "operator": "night"}
    await moorage.wire.call("POST", f"/guards/{guard['token']}/reconcile", evidence)
    assert await asyncio.wait_for(moorage.runs.result(run), 20) == [None, "ch_9"]
    assert len(outside.asked) == 1
    other.stop()
    await asyncio.wait_for(serving, 20)


@pytest.mark.clause("guards.crash-held", "guards.holder-gone")
async def test_what_a_host_had_in_flight_that_was_killed_stays_guarded_inside_the_window_too(
    moorage: Moorage, house: House
) -> None:
    outside = Outside()
    killed, serving, _ = await begun(moorage, outside, "bank")
    execution_id = next(iter(killed.held))
    for task in asyncio.all_tasks():
        # Nothing of it goes on, and nothing of it says so.
        if task.get_name().startswith("execution ") or task.get_name() == "keeper":
            task.cancel()
    killed._core._held.clear()
    await house.advance(60)
    [guard] = await guards(moorage)
    assert guard["class"] == "replay-safe"
    with pytest.raises(ExecutionGuardBlocked) as blocked:
        await host(moorage, outside, "other").open("charges", "bank", scope="order-7")
    assert blocked.value.members["token"] == guard["token"]
    assert guard["execution_id"] == execution_id
    serving.cancel()
    await asyncio.wait([serving])

"""A run's live view across broken connections, made of the messages that the hub itself makes."""

import itertools
from contextlib import aclosing
from typing import Any

import httpx
import pytest
import respx

from moorage.client import Moorage, Problem
from moorage.client.live import Folding, View, follow
from moorage.kernel.instants import Instant
from moorage.runs.live.hub import Hub, Message, Subscription
from moorage.runs.live.model import Snapshot
from moorage.runs.model import Status
from moorage.runs.observing import RunChange, StepChange, StepStatus
from tests.unit.client.conftest import Impatient
from tests.unit.client.test_watch import stream

RUN = "run_1"
PATH = f"/runs/{RUN}/stream"


class Told:
    """A hub with one watched run, whose every change is one message."""

    def __init__(self, started: int = 1) -> None:
        ticks = itertools.count(0, 1000)
        self.record = Snapshot(RUN, "exe_1", "order", RUN, "running", 1, Instant(1000))
        self.hub = Hub(self.load, started, lambda: next(ticks))
        self.subscription: Subscription | None = None

    async def load(self, _: str) -> Snapshot:
        return self.record

    async def message(self) -> Message:
        self.subscription = self.subscription or await self.hub.subscribe(RUN)
        found = await self.subscription.next(60)
        assert found is not None
        return found

    async def step(self, label: str, status: StepStatus, attempt: int = 1) -> Message:
        self.hub.tell(StepChange(RUN, label, "0" * 64, "step", "1", status, attempt, Instant(1000)))
        return await self.message()

    async def run(self, status: Status) -> Message:
        self.hub.tell(RunChange(RUN, status, 1, Instant(2000)))
        return await self.message()


def event(message: Message) -> bytes:
    return f"id: {message.version.text}\nevent: {message.type}\ndata: {message.text}\n\n".encode()


async def seen(remote: Moorage) -> list[View]:
    async with aclosing(follow(remote.wire, RUN)) as views:
        return [view async for view in views]


def states(views: list[View]) -> list[tuple[str, dict[str, str]]]:
    return [(view.run["status"], {step["label"]: step["status"] for step in view.steps}) for view in views]


@respx.mock(base_url="https://moorage.example")
async def test_a_view_goes_on_where_the_stream_broke_and_ends_with_the_run(
    respx_mock: respx.MockRouter, remote: Moorage, impatient: Impatient
) -> None:
    told = Told()
    whole, first, second = await told.message(), await told.step("a", "running"), await told.step("a", "success")
    end = await told.run("success")
    route = respx_mock.get(PATH).mock(
        side_effect=[
            stream(b"retry: 1000\n", event(whole), event(first)),
            httpx.ConnectError("restarting"),
            stream(event(second)[:-1]),
            stream(event(first), event(second), event(end), breaks=False),
        ]
    )
    assert states(await seen(remote)) == [
        ("running", {}),
        ("running", {"a": "running"}),
        ("running", {"a": "success"}),
        ("success", {"a": "success"}),
    ]
    sent = [call.request.headers.get("last-event-id") for call in route.calls]
    assert sent == [None, first.version.text, first.version.text, first.version.text]
    assert impatient.slept == [1.0, 1.0, 1.0]


@respx.mock(base_url="https://moorage.example")
async def test_a_hub_that_started_anew_is_followed_from_its_whole_view(
    respx_mock: respx.MockRouter, remote: Moorage
) -> None:
    old, new = Told(1), Told(2)
    await old.message()
    before = [await old.step("a", "running"), await old.step("b", "running")]
    late = await old.step("b", "success")
    after = [await new.message(), await new.run("failed")]
    respx_mock.get(PATH).mock(
        side_effect=[stream(*map(event, before)), stream(event(after[0]), event(late), event(after[1]))]
    )
    assert states(await seen(remote)) == [
        ("running", {"a": "running"}),
        ("running", {"a": "running", "b": "running"}),
        ("running", {}),
        ("failed", {}),
    ]


async def test_a_message_that_was_held_already_changes_nothing() -> None:
    told, folding = Told(), Folding()
    messages: list[dict[str, Any]] = [
        httpx.Response(200, text=one.text).json()
        for one in (await told.message(), await told.step("a", "running"), await told.step("a", "success"))
    ]
    assert [folding.fold(one) is not None for one in messages] == [True, True, True]
    assert [folding.fold(one) for one in messages[:2]] == [None, None]


@respx.mock(base_url="https://moorage.example")
async def test_a_run_that_may_not_be_seen_is_asked_for_once(respx_mock: respx.MockRouter, remote: Moorage) -> None:
    route = respx_mock.get(PATH).mock(return_value=httpx.Response(404, json={"code": "RunUnknown", "tag": "Unknown"}))
    with pytest.raises(Problem, match="RunUnknown"):
        await seen(remote)
    assert route.call_count == 1

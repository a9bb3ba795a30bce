"""Watching a run through the application on the host: who may, what it sends, and what else is asked of the route."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from moorage.api.app import build_app
from moorage.api.lives import HostLives
from moorage.api.ports import Ports
from moorage.kernel.instants import Instant
from moorage.runs.live.hub import Hub
from moorage.runs.live.record import load
from moorage.runs.observing import RunChange, StepChange
from tests.unit.api.conftest import ROOT, House, client_of
from tests.unit.api.test_requests import problem

pytestmark = pytest.mark.clause("runs.stream")

RUN = "run_01k00000000000000000000000"
PATH = f"/runs/{RUN}/stream"


@pytest.fixture
def ports(house: House) -> Ports:
    """Ports whose hub the test tells, and a run that is under way."""
    house.connection.execute(
        "INSERT INTO runs (run_id, execution_id, body, scope, host, runner, status, attempt, started_at, created_by, "
        "trace_id, span_id) VALUES (?, 'exe_1', 'order', ?, 'worker', 'r:00', 'running', 1, 1000, 'ann', 't', 's')",
        (RUN, RUN),
    )
    return house.ports()


@pytest.fixture
def lives(ports: Ports) -> HostLives:
    assert isinstance(ports.lives, HostLives)
    return ports.lives


@pytest.fixture
async def web(ports: Ports) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(build_app(ports)) as one:
        yield one


def end(house: House, lives: HostLives) -> None:
    """The run ends, and its host tells."""
    house.connection.execute(
        "UPDATE runs SET status = 'success', ended_at = 2000, result_size = 4, result = 'true', steps = ? WHERE run_id = ?",
        ('{"total":0,"items":[]}', RUN),
    )
    lives.hub.tell(StepChange(RUN, "one", "a" * 64, "step", "0", "success", 1, Instant(1000), Instant(1500), None, 9))
    lives.hub.tell(RunChange(RUN, "success", 1, Instant(2000), result_bytes=4))


def events(text: str) -> list[tuple[str, dict[str, Any]]]:
    """The id and the message of each event; the names are the messages' types."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        if "data" in fields:
            message = json.loads(fields["data"])
            assert fields["event"] == message["type"]
            found.append((fields["id"], message))
    return found


async def test_a_run_is_watched_to_its_end_and_nothing_follows(
    web: httpx.AsyncClient, house: House, lives: HostLives
) -> None:
    watching = asyncio.create_task(web.get(PATH, headers={"accept": "text/event-stream"}))
    while not ((channel := lives.hub._channels.get(RUN)) and channel.waiting):  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    end(house, lives)
    answer = await watching
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.text.startswith("retry: 1000\n\n")
    (first, snapshot), (last, update) = events(answer.text)
    assert (snapshot["type"], snapshot["status"], snapshot["steps"]) == ("snapshot", "running", [])
    assert (update["type"], update["status"], update["result_bytes"]) == ("update", "success", 4)
    assert [step["label"] for step in update["steps"]] == ["one"]
    assert not first.endswith(".end")
    assert last.endswith(".end")
    assert (await web.get(PATH, headers={"last-event-id": last})).status_code == 204
    (again,) = events((await web.get(PATH, headers={"last-event-id": first})).text)
    assert again == (last, update)


async def test_a_stream_ends_in_time_and_goes_on_from_a_version(
    web: httpx.AsyncClient, house: House, lives: HostLives
) -> None:
    ((first, _),) = events((await web.get(PATH, params={"max_seconds": 0.05})).text)
    nothing = await web.get(PATH, params={"max_seconds": 0.05, "after": first})
    assert events(nothing.text) == []
    elsewhere = await web.get(PATH, params={"max_seconds": 0.05, "after": "1.1"})
    assert [message["type"] for _, message in events(elsewhere.text)] == ["snapshot"]
    end(house, lives)
    assert [message["status"] for _, message in events((await web.get(PATH, params={"after": first})).text)] == ["success"]


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ({"after": "x"}, {}),
        ({"after": "1"}, {}),
        ({"max_seconds": 0}, {}),
        ({"max_seconds": 301}, {}),
        ({"from": "1"}, {}),
        ({}, {"last-event-id": "17"}),
        ({}, {"last-event-id": "17.end"}),
        ({}, {"last-event-id": ""}),
    ],
)
async def test_what_makes_no_sense_is_refused(
    web: httpx.AsyncClient, query: dict[str, Any], headers: dict[str, str]
) -> None:
    problem(await web.get(PATH, params=query, headers=headers), 422, "RequestInvalid")


@pytest.mark.parametrize("headers", [{}, {"upgrade": "websocket", "connection": "Upgrade"}])
async def test_nobody_learns_anything_without_a_credential(ports: Ports, headers: dict[str, str]) -> None:
    for path in (PATH, "/runs/run_0/stream", f"{PATH}?after=x"):
        async with client_of(build_app(ports), None) as nobody:
            answer = await nobody.get(path, headers=headers)
        problem(answer, 401, "RunStreamUnauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"


async def test_who_may_not_see_a_run_is_told_that_there_is_none(web: httpx.AsyncClient, ports: Ports) -> None:
    problem(await web.get("/runs/run_0/stream"), 404, "RunUnknown")
    for subject, grants, status in (
        ("ann", [], 200),
        ("bob", [], 404),
        ("cyd", [{"actions": ["publish"]}], 404),
        ("dan", [{"actions": ["read"], "kinds": ["other"]}], 404),
        ("eve", [{"actions": ["read"], "kinds": ["ord*"]}], 200),
        ("flo", [{"actions": ["read"], "match": {"a": 1}}], 404),
    ):
        made = (await web.post("/credentials", json={"subject": subject, "grants": grants})).json()
        async with client_of(build_app(ports), made["token"]) as one:
            for asked in ({}, {"last-event-id": "1.1.end"}):
                answer = await one.get(PATH, params={"max_seconds": 0.01}, headers=asked)
                assert answer.status_code == (204 if asked and status == 200 else status), subject


async def test_a_credential_that_is_revoked_sees_no_more(
    web: httpx.AsyncClient, ports: Ports, lives: HostLives, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def allowed(credential: str) -> bool:
        asked.append(credential)
        return await still(credential)

    still = lives._allowed
    monkeypatch.setattr(lives, "_allowed", allowed)
    monkeypatch.setattr("moorage.runs.live.watching.CREDENTIAL_CACHE_SECONDS", 0.05)
    monkeypatch.setattr("moorage.runs.live.watching.HEARTBEAT_SECONDS", 0.05)
    grants = [{"actions": ["read"], "kinds": ["order"]}]
    made = (await web.post("/credentials", json={"subject": "guest", "grants": grants})).json()
    async with client_of(build_app(ports), made["token"]) as guest:
        watching = asyncio.create_task(guest.get(PATH))
        while len(asked) < 2:  # noqa: ASYNC110 - so that a silence was told of
            await asyncio.sleep(0.005)
        assert not watching.done()
        await web.delete(f"/credentials/{made['id']}")
        answer = await asyncio.wait_for(watching, 60)
    assert ": nothing new" in answer.text
    assert answer.text.rstrip().rpartition("\n")[0].endswith("event: problem")
    assert json.loads(answer.text.rstrip().rpartition("data: ")[2])["code"] == "RunStreamUnauthorized"


async def test_a_server_without_sockets_says_so(web: httpx.AsyncClient) -> None:
    problem(await web.get(PATH, headers={"upgrade": "websocket", "connection": "Upgrade"}), 503, "CapabilityUnwired")


async def test_head_opens_nothing(web: httpx.AsyncClient, lives: HostLives) -> None:
    for headers in ({}, {"upgrade": "websocket"}):
        answer = await web.head(PATH, headers=headers)
        assert (answer.status_code, answer.content) == (200, b"")
    assert lives.hub.watched == 0
    problem(await web.post(PATH), 405, "MethodNotAllowed")


async def test_a_record_that_cannot_be_read_is_an_error_and_no_stream(house: House, ports: Ports) -> None:
    async def fail(run_id: str) -> Any:
        await load(house.database(), run_id)
        raise OSError("no")

    broken = HostLives(Hub(fail, 1, lambda: 0.0), lambda: 0.0, lambda credential: asyncio.sleep(0, True))
    app = build_app(house.ports(lives=broken))
    async with client_of(app, ROOT) as one:
        problem(await one.get(PATH), 500, "InternalError")
    assert broken.hub.watched == 0

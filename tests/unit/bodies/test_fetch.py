"""Recorded outbound HTTP."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from moorage.bodies import ONCE, Retry, Run, StepFailed, body
from moorage.bodies.fetch import Response
from tests.unit.bodies.clock import START
from tests.unit.bodies.world import World

SECRET = "Bearer sk-live-0123456789abcdef"

Handler = Callable[[httpx.Request], httpx.Response]


class Server:
    """Somebody outside who answers in order, and remembers what was asked."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def calling(server: Server, **named: Any) -> World:
    @body("calls", effects=["pay"], retry=Retry(jitter_ms=0), deadline_seconds=600)
    async def calls(run: Run) -> Any:
        told: dict[str, Any] = {"json": {"amount": 5}, **named}
        answer = await run.fetch("pay", "https://pay.test/charges?key=hidden", headers={"Authorization": SECRET}, **told)
        return [answer.status, dict(answer.headers), answer.text]

    return World(calls, transport=httpx.MockTransport(server))


@pytest.mark.clause("runs.idempotency-key", "runs.trace-context")
async def test_every_attempt_carries_one_key_and_the_runs_trace() -> None:
    server = Server(httpx.Response(503), httpx.ConnectError("gone"), httpx.Response(200, json={"id": "ch_1"}))
    world = calling(server)
    row = await world.to_the_end("calls")
    assert row.result == [200, {"content-type": "application/json"}, '{"id":"ch_1"}']
    assert [one.method for one in server.asked] == ["POST"] * 3
    assert len({one.headers["idempotency-key"] for one in server.asked}) == 1
    assert {one.headers["traceparent"][:35] for one in server.asked} == {f"00-{'a' * 32}"}
    assert server.asked[0].content == b'{"amount":5}'


async def test_an_address_that_nothing_is_sent_to_is_not_tried_again() -> None:
    server = Server(httpx.UnsupportedProtocol("only http and https are sent"))
    row = await calling(server).to_the_end("calls")
    assert row.status == "failed"
    assert row.error is not None
    assert (row.error["tag"], row.error["code"]) == ("Permanent", "UnsupportedProtocol")
    assert len(server.asked) == 1


async def test_no_secret_of_the_request_is_recorded_or_told() -> None:
    for server in (
        Server(httpx.Response(401, text="bad key sk-live-0123456789abcdef")),
        Server(httpx.ConnectError("cannot reach https://pay.test/charges?key=hidden")),
        Server(httpx.Response(200, headers={"set-cookie": SECRET, "x-other": "1"})),
    ):
        world = calling(server)
        await world.to_the_end("calls")
        kept = repr([world.row.entries, world.row.error, world.row.metadata, world.told.changes, world.row.result])
        assert "0123456789abcdef" not in kept
        assert "hidden" not in kept or "ConnectError" in kept


@pytest.mark.parametrize(
    ("status", "tag", "times"),
    [
        *[
            (400, "Invalid", 1),
            (401, "Unauthenticated", 1),
            (403, "Forbidden", 1),
            (404, "Unknown", 1),
            (409, "Conflict", 1),
        ],
        *[(302, "Permanent", 1), (418, "Permanent", 1), (501, "Permanent", 1), (413, "TooLarge", 1)],
        *[(408, "Transient", 5), (429, "RateLimited", 5), (500, "Transient", 5), (502, "Transient", 5)],
    ],
)
@pytest.mark.clause("runs.retryable-classes", "runs.one-layer")
async def test_statuses_and_what_becomes_of_them(status: int, tag: str, times: int) -> None:
    server = Server(httpx.Response(status, headers={"location": "https://evil.test/"}))
    world = calling(server)
    row = await world.to_the_end("calls")
    assert row.error is not None
    assert (row.error["tag"], row.error["code"], row.error["step"]) == (tag, f"Http{status}", "pay")
    assert row.error["message"].startswith(f"POST https://pay.test/charges answered {status}")
    assert len(server.asked) == times
    assert {str(one.url.host) for one in server.asked} == {"pay.test"}


async def test_accepted_statuses_are_answers() -> None:
    world = calling(Server(httpx.Response(404, text="none")), accept=[404])
    assert (await world.to_the_end("calls")).result == [404, {"content-type": "text/plain; charset=utf-8"}, "none"]


@pytest.mark.clause("runs.retry-after", "runs.not-before")
@pytest.mark.parametrize(
    ("header", "wait"),
    [
        ([("Retry-After", "3")], 3000),
        ([("rEtRy-AfTeR", " 3 ")], 3000),
        ([("Retry-After", "Sun, 01 Mar 2026 12:00:05 GMT")], 5000),
        ([("Retry-After", "Sunday, 01-Mar-26 12:00:05 GMT")], 5000),
        ([("Retry-After", "Sun Mar  1 12:00:05 2026")], 5000),
        ([("Retry-After", "3"), ("retry-after", "120")], 120_000),
        *[([("Retry-After", junk)], 1000) for junk in ("-5", "+5", "1.5", "5s", "soon", "NaN", "Infinity", "", "0")],
    ],
)
async def test_the_next_attempt_comes_when_the_server_said(header: list[tuple[str, str]], wait: int) -> None:
    server = Server(httpx.Response(429, headers=header), httpx.Response(200))
    world = calling(server, retry=Retry(base_ms=1000, jitter_ms=0))
    assert (await world.to_the_end("calls")).status == "success"
    assert world.clock.now() - START == wait
    assert len(server.asked) == 2


@pytest.mark.parametrize("header", ["31536000", "99999999999999999999"])
@pytest.mark.clause("runs.retry-after")
async def test_a_huge_wait_ends_the_run_at_its_deadline_without_sleeping(header: str) -> None:
    world = calling(Server(httpx.Response(429, headers={"Retry-After": header})))
    row = await world.to_the_end("calls")
    assert row.error is not None
    assert row.error["code"] == "RunDeadline"
    assert world.clock.now() == START


@pytest.mark.clause("runs.bound-hit")
async def test_a_call_that_takes_too_long_is_transient_names_its_bound_and_is_recorded() -> None:
    server = Server(httpx.ReadTimeout("too slow"), httpx.Response(200))
    world = calling(server)
    row = await world.to_the_end("calls")
    assert row.status == "success"
    assert row.bounds == [{"label": "pay", "attempt": 1, "bound": "call-deadline"}]


@pytest.mark.clause("runs.bound-hit")
async def test_memory_and_a_steps_timeout_are_bounds_too() -> None:
    import asyncio

    tries: list[int] = []

    async def effect() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise MemoryError
        if len(tries) == 2:
            await asyncio.get_running_loop().create_future()
        return len(tries)

    @body("bounds", effects=["one"], retry=Retry(jitter_ms=0))
    async def bounds(run: Run) -> int:
        return await run.step("one", effect, timeout=5)

    world = World(bounds)
    row = await world.to_the_end("bounds")
    assert row.result == 3
    assert row.bounds == [
        {"label": "one", "attempt": 1, "bound": "linear-memory"},
        {"label": "one", "attempt": 2, "bound": "call-deadline"},
    ]


async def test_bytes_come_back_as_bytes_and_too_many_are_refused() -> None:
    raw = bytes(range(256))

    @body("bytes", effects=["get", "much"])
    async def takes(run: Run) -> Any:
        answer = await run.fetch("get", "https://files.test/a", keep=["X-Kind"])
        try:
            await run.fetch("much", "https://files.test/much")
        except StepFailed as error:
            return [answer.content == raw, answer.headers["x-kind"], error.tag.value, error.code]

    def serve(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/much":
            return httpx.Response(200, content=b"x" * (9 * 1024 * 1024))
        return httpx.Response(200, content=raw, headers={"X-Kind": "k"})

    world = World(takes, transport=httpx.MockTransport(serve))
    assert (await world.to_the_end("bytes")).result == [True, "k", "TooLarge", "AnswerTooLarge"]


async def test_a_rotated_credential_is_the_same_step() -> None:
    tokens = iter(["one", "two"])

    @body("rotates", effects=["get"])
    async def rotates(run: Run) -> int:
        token = await run.journal.unsafe("a credential is read where it is used", lambda: fresh())
        return (await run.fetch("get", "https://api.test/", headers={"Authorization": token}, retry=ONCE)).status

    async def fresh() -> str:
        return next(tokens)

    server = Server(httpx.Response(200))
    world = World(rotates, transport=httpx.MockTransport(server))
    await world.run("rotates")
    from dataclasses import replace

    execution = replace(world.row.execution, entries=tuple(world.row.entries.values()))
    world.row.owner = "host"
    assert await world.clock.drive(world.host.run(execution)) == "success"
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "GE T"},
        {"method": "CONNECT"},
        {"method": "é"},
        {"headers": {"a\nb": "c"}},
        {"headers": {"": "c"}},
        {"headers": {"authorization": "secret\r\nx: y"}},
        {"headers": {"authorization": "secret\ud800"}},
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": float("nan")},
    ],
)
async def test_what_can_be_no_request_is_refused_at_once_without_a_word_of_its_headers(wrong: dict[str, Any]) -> None:
    @body("asks", effects=["get"])
    async def asks(run: Run) -> None:
        await run.fetch("get", "https://api.test/", **wrong)

    world = World(asks, transport=httpx.MockTransport(lambda request: httpx.Response(200)))
    assert await world.run("asks") == "failed"
    assert world.row.error is not None
    assert (world.row.error["code"], world.row.error["tag"]) == ("ValueError", "Permanent")
    assert "secret" not in world.row.error["message"]
    assert world.entries() == []


@pytest.mark.parametrize("content", [b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b"{", b"\xff", b""])
def test_an_answer_that_is_no_json_or_nested_without_end_is_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - as json.loads does
        Response(200, {}, content).json()


def test_an_answer_s_json_is_read() -> None:
    assert Response(200, {}, '{"a":[1,0.5,"é",null]}'.encode()).json() == {"a": [1, 0.5, "é", None]}

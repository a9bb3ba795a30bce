"""Watching across broken connections, and reading event streams."""

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import httpx
import pytest
import respx

from moorage.client import Moorage, Problem, Unanswered
from moorage.client.sse import Event, Parser
from tests.unit.client.conftest import Impatient
from tests.unit.client.test_faults import RECORD


async def each(lines: list[str]) -> AsyncIterator[str]:
    for line in lines:
        yield line


async def parsed(text: str, parser: Parser | None = None) -> list[Event]:
    return [event async for event in (parser or Parser()).events(each(text.split("\n")))]


async def test_events_are_read_as_the_standard_says() -> None:
    text = "retry: 1500\nid: 7\n\n: a comment\n\nid: 8\nevent: a\ndata: one\ndata:two\n\ndata\n\nid: 9\ndata: x\nwhat: y\n\n"
    parser = Parser()
    assert await parsed(text, parser) == [Event("8", "a", "one\ntwo"), Event("8", "message", ""), Event("9", "message", "x")]
    assert (parser.id, parser.retry_seconds) == ("9", 1.5)


async def test_an_id_without_an_event_moves_along_and_one_broken_off_does_not() -> None:
    parser = Parser()
    await parsed("id: 5\n\n", parser)
    assert parser.id == "5"
    assert await parsed("id: 6\ndata: x", parser) == []
    assert parser.id == "5"
    await parsed("id: 7\ndata: x\n\nid: 8\ndata", parser)
    assert parser.id == "7"


def told(position: int) -> dict[str, Any]:
    at = "2026-11-29T16:35:00.123Z"
    entry = {"position": position, "subject": "rec_1", "revision": position, "type": "record.published", "actor": "root"}
    return {**entry, "at": at, "kind": "doc", "data": {}, "content_sha256": None, "record": RECORD}


def event(position: int) -> bytes:
    return f"id: {position}\nevent: record.published\ndata: {json.dumps(told(position))}\n\n".encode()


class Broken(httpx.AsyncByteStream):
    """A stream that gives these pieces, and then ends in order or breaks."""

    def __init__(self, *pieces: bytes, breaks: bool = True) -> None:
        self.pieces, self.breaks = pieces, breaks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece
        if self.breaks:
            raise httpx.ReadError("broken")


def stream(*pieces: bytes, breaks: bool = True) -> httpx.Response:
    headers = {"content-type": "text/event-stream; charset=utf-8"}
    return httpx.Response(200, headers=headers, stream=Broken(*pieces, breaks=breaks))


async def positions(remote: Moorage, count: int, **asked: Any) -> list[int]:
    found: list[int] = []
    async with aclosing(remote.watch("doc", **asked)) as changes:
        async for change in changes:
            assert change.record is not None
            found.append(change.position)
            if len(found) == count:
                break
    return found


@respx.mock(base_url="https://moorage.example")
async def test_a_watch_goes_on_where_it_broke(respx_mock: respx.MockRouter, remote: Moorage, impatient: Impatient) -> None:
    route = respx_mock.get("/watch").mock(
        side_effect=[
            stream(b"retry: 1000\nid: 3\n\n"),
            stream(event(4), event(5)[:-1]),
            httpx.ConnectError("restarting"),
            stream(event(5), b": nothing new\n\n", event(6), breaks=False),
            stream(event(7)),
        ]
    )
    assert await positions(remote, 4, match={"n": 1}) == [4, 5, 6, 7]
    sent = [call.request for call in route.calls]
    assert dict(sent[0].url.params) == {"kind": "doc", "match": '{"n":1}', "after": "now"}
    assert [one.headers.get("last-event-id") for one in sent] == [None, "3", "4", "4", "6"]
    assert impatient.slept == [1.0, 1.0, 1.0, 1.0]


@respx.mock(base_url="https://moorage.example")
async def test_a_watch_begins_where_it_is_told_to(respx_mock: respx.MockRouter, remote: Moorage) -> None:
    route = respx_mock.get("/watch").mock(side_effect=[stream(event(1))])
    assert await positions(remote, 1, after=0) == [1]
    assert dict(route.calls[0].request.url.params) == {"kind": "doc", "after": "0"}


@respx.mock(base_url="https://moorage.example")
async def test_a_watch_that_is_ended_for_good_says_why(respx_mock: respx.MockRouter, remote: Moorage) -> None:
    problem = {"code": "Unauthenticated", "status": 401, "tag": "Unauthenticated", "detail": "revoked"}
    ending = f"event: problem\ndata: {json.dumps(problem)}\n\n".encode()
    respx_mock.get("/watch").mock(side_effect=[stream(event(1), ending)])
    with pytest.raises(Problem, match="Unauthenticated: revoked"):
        await positions(remote, 2)


@respx.mock(base_url="https://moorage.example")
async def test_a_watch_that_is_refused_is_not_tried_again(respx_mock: respx.MockRouter, remote: Moorage) -> None:
    refusal = httpx.Response(404, json={"code": "KindUnknown", "tag": "Unknown"})
    route = respx_mock.get("/watch").mock(return_value=refusal)
    with pytest.raises(Problem):
        await positions(remote, 1)
    assert route.call_count == 1


@respx.mock(base_url="https://moorage.example")
async def test_something_else_than_a_stream_is_refused(respx_mock: respx.MockRouter, remote: Moorage) -> None:
    respx_mock.get("/watch").mock(return_value=httpx.Response(200, html="<h1>Welcome</h1>"))
    with pytest.raises(Problem, match="no event stream"):
        await positions(remote, 1)


@respx.mock(base_url="https://moorage.example")
async def test_a_deployment_that_stays_away_is_told(
    respx_mock: respx.MockRouter, remote: Moorage, impatient: Impatient
) -> None:
    respx_mock.get("/watch").mock(side_effect=httpx.ReadError("away"))
    with pytest.raises(Unanswered):
        await positions(remote, 1)
    assert len(impatient.slept) < 20

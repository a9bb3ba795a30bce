"""An event stream of the deployment, across every break of the connection."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final

import httpx

from moorage.client.problems import Problem, Unanswered
from moorage.client.sse import Parser
from moorage.client.wire import Wire

SILENCE_SECONDS: Final = 60.0
"""A stream that says nothing for so long, not even a comment, is taken for dead and opened again."""


async def messages(wire: Wire, path: str, query: Mapping[str, Any] | None = None) -> AsyncGenerator[Any, None]:
    """The JSON of its events, without end. A broken connection is opened again and goes on where it broke.

    Raises Problem when the stream is refused or ended for good, and Unanswered when the deployment cannot be reached for as
    long as the wire is patient.
    """
    parser = Parser()
    failures = 0
    while True:
        try:
            async with aclosing(_connection(wire, path, query, parser)) as found:
                async for message in found:
                    failures = 0
                    yield message
        except (Unanswered, httpx.TransportError) as error:
            failures += 1
            wait = wire.patience.wait(failures, parser.retry_seconds, wire.chance())
            if wait is None:
                raise error if isinstance(error, Unanswered) else Unanswered(f"GET {path}: {error}") from error
        else:
            # The other side ended the stream in order, as it does before it restarts.
            wait = parser.retry_seconds or wire.patience.first_seconds
        await wire.timing.sleep(wait)


async def _connection(wire: Wire, path: str, query: Mapping[str, Any] | None, parser: Parser) -> AsyncGenerator[Any, None]:
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    if parser.id is not None:
        headers["Last-Event-ID"] = parser.id

    def make() -> httpx.Request:
        return wire.request("GET", path, query=query, headers=headers, silence_seconds=SILENCE_SECONDS)

    async with wire.stream(make, True, path) as answer:
        if answer.headers.get("content-type", "").partition(";")[0].strip() != "text/event-stream":
            raise Problem(answer.status_code, {"detail": "the answer is no event stream"})
        async for event in parser.events(answer.aiter_lines()):
            found = json.loads(event.data)
            if event.name == "problem":
                raise Problem(found.get("status", 503), found, retry_after=found.get("retry_after"))
            yield found

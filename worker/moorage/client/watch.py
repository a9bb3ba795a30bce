"""Watch what happens, across every break of the connection (clause history.watch)."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import httpx

from moorage.client.models import Change
from moorage.client.problems import Problem, Unanswered
from moorage.client.sse import Parser
from moorage.client.wire import Wire
from moorage.kernel import canonical

SILENCE_SECONDS = 60.0
"""A stream that says nothing for so long, not even a comment, is taken for dead and opened again."""


async def watch(
    wire: Wire, kind: str, match: Mapping[str, Any] | None = None, *, after: int | None = None
) -> AsyncGenerator[Change, None]:
    """What happens to a kind's records that match, in the order of the commits, each once.

    It begins past the position `after`, 0 being the start of history, or with what happens from now on. A broken connection
    is opened again and goes on where it broke. Raises Problem when the watch is refused or ended for good, and Unanswered
    when the deployment cannot be reached for as long as the wire is patient.
    """
    query = {
        "kind": kind,
        "match": canonical.compact(dict(match)) if match else None,
        "after": "now" if after is None else after,
    }
    parser = Parser()
    failures = 0
    while True:
        try:
            async with aclosing(_stream(wire, query, parser)) as changes:
                async for change in changes:
                    failures = 0
                    yield change
        except (Unanswered, httpx.TransportError) as error:
            failures += 1
            wait = wire.patience.wait(failures, parser.retry_seconds, wire.chance())
            if wait is None:
                raise error if isinstance(error, Unanswered) else Unanswered(f"GET /watch: {error}") from error
        else:
            # The other side ended the stream in order, as it does before it restarts.
            wait = parser.retry_seconds or wire.patience.first_seconds
        await wire.timing.sleep(wait)


async def _stream(wire: Wire, query: Mapping[str, Any], parser: Parser) -> AsyncGenerator[Change, None]:
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    if parser.id is not None:
        headers["Last-Event-ID"] = parser.id

    def make() -> httpx.Request:
        return wire.request("GET", "/watch", query=query, headers=headers, silence_seconds=SILENCE_SECONDS)

    async with wire.stream(make, True, "/watch") as answer:
        if answer.headers.get("content-type", "").partition(";")[0].strip() != "text/event-stream":
            raise Problem(answer.status_code, {"detail": "the answer is no event stream"})
        async for event in parser.events(answer.aiter_lines()):
            found = json.loads(event.data)
            if event.name == "problem":
                raise Problem(found.get("status", 503), found, retry_after=found.get("retry_after"))
            yield Change.model_validate(found)

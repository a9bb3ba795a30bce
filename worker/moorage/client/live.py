"""A run's live view, across every break of the connection (clause runs.stream)."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import httpx

from moorage.client.paging import segment
from moorage.client.problems import Problem, Unanswered
from moorage.client.sse import Parser
from moorage.client.wire import Wire

SILENCE_SECONDS: Final = 60.0
"""A stream that says nothing for so long, not even a comment, is taken for dead and opened again."""

_ENDS: Final = frozenset({"success", "failed", "partial_failure", "canceled"})


@dataclass(frozen=True, slots=True)
class View:
    """A run and its steps as they were told last, as JSON. `change` is the message that told of it.

    The run has no `result`, only its `result_bytes`; a step's output is a reference and a size.
    """

    run: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any]]
    change: Mapping[str, Any]

    @property
    def ended(self) -> bool:
        """Whether the run goes no further."""
        return self.run["status"] in _ENDS


class Folding:
    """Messages of a stream folded into a view. What is not past the highest version that was held is passed over."""

    def __init__(self) -> None:
        self._version = (-1, -1)
        self._steps: dict[tuple[str, str], Mapping[str, Any]] = {}

    def fold(self, message: Mapping[str, Any]) -> View | None:
        """The view after a message; None when it was passed over."""
        version = (message["version"]["epoch"], message["version"]["counter"])
        if version < self._version or (version == self._version and message["type"] != "snapshot"):
            return None
        self._version = version
        if message["type"] == "snapshot":
            self._steps.clear()
        for step in message["steps"]:
            self._steps[step["label"], step["input_sha256"]] = step
        run = {name: value for name, value in message.items() if name not in ("type", "version", "steps")}
        return View(run, list(self._steps.values()), message)


async def follow(wire: Wire, run_id: str) -> AsyncGenerator[View, None]:
    """A run's view whenever it changes, until it has ended. A broken connection is opened again and goes on.

    Raises Problem when the run may not be seen, and Unanswered when the deployment cannot be reached for as long as the wire
    is patient.
    """
    path = f"/runs/{segment(run_id)}/stream"
    parser, folding, failures = Parser(), Folding(), 0
    while True:
        try:
            async with aclosing(_messages(wire, path, parser)) as messages:
                async for message in messages:
                    failures = 0
                    view = folding.fold(message)
                    if view is not None:
                        yield view
                    if message["status"] in _ENDS:
                        return
        except (Unanswered, httpx.TransportError) as error:
            failures += 1
            wait = wire.patience.wait(failures, parser.retry_seconds, wire.chance())
            if wait is None:
                raise error if isinstance(error, Unanswered) else Unanswered(f"GET {path}: {error}") from error
        else:
            wait = parser.retry_seconds or wire.patience.first_seconds
        await wire.timing.sleep(wait)


async def _messages(wire: Wire, path: str, parser: Parser) -> AsyncGenerator[Mapping[str, Any], None]:
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    if parser.id is not None:
        headers["Last-Event-ID"] = parser.id

    def make() -> httpx.Request:
        return wire.request("GET", path, headers=headers, silence_seconds=SILENCE_SECONDS)

    async with wire.stream(make, True, path) as answer:
        if answer.headers.get("content-type", "").partition(";")[0].strip() != "text/event-stream":
            raise Problem(answer.status_code, {"detail": "the answer is no event stream"})
        async for event in parser.events(answer.aiter_lines()):
            found = json.loads(event.data)
            if event.name == "problem":
                raise Problem(found.get("status", 503), found, retry_after=found.get("retry_after"))
            yield found

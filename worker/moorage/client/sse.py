"""Server-sent events, as far as a client needs them."""

from collections.abc import AsyncIterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream; `id` is the last that the stream has told."""

    id: str | None
    name: str
    data: str


@dataclass
class Parser:
    """Lines to events, by the rules of the HTML standard.

    `id` is where to resume: the last that a whole event told, also one without data. `retry_seconds` is what the stream asks
    for before a reconnect.
    """

    id: str | None = None
    retry_seconds: float | None = None
    _told: str | None = None

    async def events(self, lines: AsyncIterator[str]) -> AsyncIterator[Event]:
        """The events of a stream; one that the stream breaks off in is not there."""
        name, data = "", list[str]()
        self._told = self.id
        async for line in lines:
            if line:
                field, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if field == "data":
                    data.append(value)
                elif field == "event":
                    name = value
                else:
                    self._note(field, value)
                continue
            # Only now: an event that the stream breaks off in has to come again.
            self.id = self._told
            if data:
                yield Event(self.id, name or "message", "\n".join(data))
            name, data = "", []

    def _note(self, field: str, value: str) -> None:
        if field == "id" and "\0" not in value:
            self._told = value
        elif field == "retry" and value.isascii() and value.isdigit():
            self.retry_seconds = int(value) / 1000

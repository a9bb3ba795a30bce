"""A run's live view, across every break of the connection (clause runs.stream)."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from moorage.client.paging import segment
from moorage.client.streams import messages
from moorage.client.wire import Wire

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
    folding = Folding()
    async with aclosing(messages(wire, f"/runs/{segment(run_id)}/stream")) as found:
        async for message in found:
            view = folding.fold(message)
            if view is not None:
                yield view
            if message["status"] in _ENDS:
                return

"""An event loop whose time is its own: it jumps to the next timer when there is nothing else to do."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

LIMIT_SECONDS = 10_000.0


class VirtualLoop(asyncio.SelectorEventLoop):
    """Sleeps take no time, and happen in their order."""

    def __init__(self) -> None:
        super().__init__()
        self._virtual = 1000.0

    def time(self) -> float:
        return self._virtual

    def _run_once(self) -> None:
        waiting: Any = self._scheduled  # type: ignore[attr-defined]
        if not self._ready and waiting:  # type: ignore[attr-defined]
            self._virtual = max(self._virtual, waiting[0].when())
            assert self._virtual < LIMIT_SECONDS, "a test waits for ever"
        super()._run_once()  # type: ignore[misc]


def run(main: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result, on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)

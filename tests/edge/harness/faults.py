"""A D1 binding that fails on command, so that the real adapter's transport rule meets real platform errors."""

import asyncio
from typing import Any

import js

LOST = "D1_ERROR: Network connection lost."


class FaultyBinding:
    """Passes everything on, but does to the first `times` batches what `kind` says, and counts them all.

    `fail_before`: nothing is sent. `lose_answer`: sent and applied, then the answer is lost. `hang`: no answer for
    `seconds`, nothing sent.
    """

    def __init__(self, binding: Any, kind: str | None, times: int, seconds: float) -> None:
        self._behind = getattr(binding, "_binding", binding)
        self._kind = kind
        self._left = times if kind else 0
        self._seconds = seconds
        self.batches = 0

    def prepare(self, sql: str) -> Any:
        return self._behind.prepare(sql)

    async def batch(self, statements: Any) -> Any:
        self.batches += 1
        if self._left <= 0:
            return await self._behind.batch(statements)
        self._left -= 1
        if self._kind == "hang":
            await asyncio.sleep(self._seconds)
        elif self._kind == "lose_answer":
            await self._behind.batch(statements)
        return await js.Promise.reject(js.Error.new(LOST))

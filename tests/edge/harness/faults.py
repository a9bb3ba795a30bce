"""Bindings that fail on command, so that the real adapters' transport rule meets real platform errors."""

import asyncio
from collections.abc import Awaitable, Callable
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


class FaultyBucket:
    """An R2 binding that loses the first `times` requests, before they are sent or after, and counts them all."""

    def __init__(self, bucket: Any, kind: str | None, times: int) -> None:
        self._bucket = bucket
        self._kind = kind
        self._left = times if kind else 0
        self.requests = 0

    async def head(self, key: str) -> Any:
        return await self._meet(lambda: self._bucket.head(key))

    async def get(self, key: str, *options: Any) -> Any:
        return await self._meet(lambda: self._bucket.get(key, *options))

    async def put(self, key: str, content: Any, options: Any) -> Any:
        return await self._meet(lambda: self._bucket.put(key, content, options))

    async def delete(self, key: str) -> Any:
        return await self._meet(lambda: self._bucket.delete(key))

    async def list(self, options: Any) -> Any:
        return await self._meet(lambda: self._bucket.list(options))

    async def _meet(self, send: Callable[[], Awaitable[Any]]) -> Any:
        self.requests += 1
        if self._left <= 0:
            return await send()
        self._left -= 1
        if self._kind == "lose_answer":
            await send()
        return await js.Promise.reject(js.Error.new("Network connection lost."))

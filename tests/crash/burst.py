"""Clients that write without pause, remember what was acknowledged, and repeat what was not."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.edge.client import fresh

BATCH = 4
RESULTS = 2
BACK_WITHIN_SECONDS = 60.0


@dataclass
class Acknowledged:
    """What the edge said that it had done. `records` are answers by the operation that made them."""

    records: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    settled: dict[str, dict[str, Any]] = field(default_factory=dict)
    resolved: dict[str, Any] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    claims: int = 0
    repeated: int = 0

    def writes(self) -> int:
        """How many writes were acknowledged."""
        return len(self.records) + len(self.settled) + len(self.resolved) + len(self.failed) + self.claims


class Burst:
    """Several clients against one edge, each with a loop of its own kind of write. A write without an answer is sent
    again, word by word and with its Idempotency-Key, until it has one."""

    def __init__(self, api: httpx.AsyncClient, kind: str) -> None:
        self.api = api
        self.kind = kind
        self.acknowledged = Acknowledged()
        self._stop = asyncio.Event()
        self._progress = asyncio.Event()

    async def reach(self, writes: int) -> None:
        """Return when that many writes more have been acknowledged."""
        goal = self.acknowledged.writes() + writes
        while self.acknowledged.writes() < goal:
            self._progress.clear()
            await self._progress.wait()

    async def run(self, until: Callable[[], Awaitable[None]]) -> None:
        """Write until `until` returns, and then until every write that was begun has its answer."""
        self._stop.clear()
        makers = [self._publish, self._publish, self._publish_batch, self._work, self._work, self._fail, self._promise]
        async with asyncio.TaskGroup() as group:
            for make in makers:
                group.create_task(self._loop(make))
            await until()
            self._stop.set()

    async def _loop(self, make: Callable[[], Awaitable[None]]) -> None:
        while not self._stop.is_set():
            await make()

    async def _send(self, path: str, body: Any, key: str | None = None) -> Any:
        """The answer's JSON. Every answer must be a success: there is no other reason to refuse these."""
        headers = {} if key is None else {"idempotency-key": key}
        deadline = asyncio.get_running_loop().time() + BACK_WITHIN_SECONDS
        for attempt in itertools.count():
            try:
                answer = await self.api.post(path, json=body, headers=headers)
            except httpx.TransportError:
                assert asyncio.get_running_loop().time() < deadline, "the edge did not come back"
                self.acknowledged.repeated += attempt == 0
                await asyncio.sleep(0.05)  # workerd is being started again; nothing tells when it listens
                continue
            assert answer.is_success, f"{path}: {answer.status_code} {answer.text}"
            self._progress.set()
            return answer.json()
        raise AssertionError

    def _draft(self, operation: str) -> dict[str, Any]:
        return {"kind": self.kind, "body": {"operation": operation, "n": 1}, "metadata": {"operation": operation}}

    async def _publish(self) -> None:
        operation = fresh("single")
        self.acknowledged.records[operation] = [await self._send("/records", self._draft(operation), operation)]

    async def _publish_batch(self) -> None:
        operation = fresh("batch")
        body = {"records": [self._draft(operation) for _ in range(BATCH)]}
        self.acknowledged.records[operation] = (await self._send("/records/batch", body, operation))["records"]

    async def _claim(self) -> list[dict[str, Any]]:
        body = {"kind": self.kind, "worker": "w", "limit": 2, "match": {"n": 1}}
        claims: list[dict[str, Any]] = (await self._send("/claims", body, fresh("claim")))["claims"]
        self.acknowledged.claims += 1
        return claims

    async def _work(self) -> None:
        for claim in await self._claim():
            record = claim["record"]["id"]
            results = [{"kind": self.kind, "body": {"operation": record, "n": 2}} for _ in range(RESULTS)]
            body = {"epoch": claim["lease"]["epoch"], "results": results}
            self.acknowledged.settled[record] = await self._send(f"/claims/{record}/settle", body)

    async def _fail(self) -> None:
        for claim in await self._claim():
            record, epoch = claim["record"]["id"], claim["lease"]["epoch"]
            await self._send(f"/claims/{record}/renew", {"epoch": epoch})
            body = {"epoch": epoch, "error": {"tag": "Transient", "message": "try again"}}
            shown = (await self._send(f"/claims/{record}/fail", body, fresh("fail")))["record"]
            self.acknowledged.failed[record] = max(self.acknowledged.failed.get(record, 0), shown["attempts"])

    async def _promise(self) -> None:
        operation = fresh("promise")
        minted = await self._send("/awakeables", {"ttl_seconds": 3600, "label": operation}, operation)
        payload = {"of": operation}
        assert await self._send(f"/awake/{minted['token']}", payload) == payload
        self.acknowledged.resolved[minted["token"]] = payload

"""Somebody outside whose effects cost something: a bank that drops repeated keys, a printer that does not, a press."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

from tests.unit.bodies.clock import Clock
from tests.unit.bodies.memory import Memory

WINDOW = 3600


class Bank:
    """All destinations in one: each request does its effect once, or again where no window covers its key.

    `behave` says of the n-th request what becomes of it: "refused" before it left, "503" and "504" as answers, "400";
    "unseen" is lost on its way, "unheard" after its effect. `kill_at` ends the host at the n-th request, and what it had
    sent may arrive `late`.
    """

    def __init__(self, memory: Memory, clock: Clock) -> None:
        self.memory = memory
        self.clock = clock
        self.asked: list[httpx.Request] = []
        self.effects: dict[str, int] = {}
        self.first: dict[str, int] = {}
        self.behave: dict[int, str] = {}
        self.kill_at: tuple[int, str] | None = None
        self.late: list[tuple[str, str]] = []
        self.unguarded: list[str] = []
        self.busy = self.most = 0
        self.during: Callable[[], Awaitable[None]] | None = None

    @property
    def keys(self) -> list[str]:
        return [one.headers["idempotency-key"] for one in self.asked]

    @property
    def transport(self) -> httpx.AsyncBaseTransport:
        return httpx.MockTransport(self.answer)

    async def answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        number, key, name = len(self.asked), request.headers["idempotency-key"], request.url.host.partition(".")[0]
        if not any(guard.idempotency_key == key for guard in self.memory.watch.guards.values()):
            self.unguarded.append(key)
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            return await self._answer(number, key, name, request)
        finally:
            self.busy -= 1

    async def _answer(self, number: int, key: str, name: str, request: httpx.Request) -> httpx.Response:
        behaviour = self.behave.get(number, "")
        await self._maybe_killed(number, "before", name, key)
        if self.during is not None:
            await self.during()
        await asyncio.sleep(0)
        match behaviour:
            case "refused":
                raise httpx.ConnectError("nobody listens", request=request)
            case "400" | "503":
                return httpx.Response(int(behaviour))
            case "unseen":
                raise httpx.ReadError("gone", request=request)
        self.happen(name, key)
        await self._maybe_killed(number, "after", name, key)
        match behaviour:
            case "unheard":
                raise httpx.ReadTimeout("silence", request=request)
            case "504":
                return httpx.Response(504)
        return httpx.Response(200, json={"id": self.receipt(key)})

    def happen(self, name: str, key: str) -> None:
        """The effect, unless the destination drops the key."""
        window, now = self.memory.watch.destinations[name].window, self.clock.now()
        known = key in self.first and window is not None and now < self.first[key] + window * 1000
        if not known:
            self.first[key] = now
            self.effects[key] = self.effects.get(key, 0) + 1

    def receipt(self, key: str) -> str:
        return f"rcpt-{key[-8:]}"

    async def _maybe_killed(self, number: int, when: str, name: str, key: str) -> None:
        if self.kill_at == (number, when):
            self.kill_at = None
            if when == "before":
                self.late.append((name, key))
            self.memory.killed.set()
            await asyncio.get_running_loop().create_future()

    def arrive(self) -> None:
        """What was under way when the host was killed arrives after all, where repeating it is promised to be harmless."""
        for name, key in self.late:
            if self.memory.watch.destinations[name].window is not None:
                self.happen(name, key)
        self.late.clear()

    # --- an operator --------------------------------------------------------------------------------------------------

    def look_after(self) -> int:
        """Release every guard, as somebody does who looks here for its key; how many there were."""
        tokens = list(self.memory.watch.guards)
        for token in tokens:
            guard = self.memory.watch.guards[token]
            key = guard.idempotency_key
            if key not in self.effects and guard.covers(self.clock.now()):
                self.memory.reconcile(token, f"idempotency:{key}")
                continue
            if key not in self.effects:
                # Nobody would drop a second request: it is done by hand, and the receipt says so.
                self.effects[key] = 1
            self.memory.reconcile(token, f"receipt:{key}:{self.receipt(key)}")
        return len(tokens)


def declare(memory: Memory, **secrets: Any) -> None:
    """A bank that drops repeated keys for an hour, a printer that drops none, and a press that publishes."""
    memory.watch.declare("bank", window=WINDOW, **secrets)
    memory.watch.declare("printer")
    memory.watch.declare("press", publication=True)

"""Requests that gather while the one before them is under way, and then go as one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from moorage.client.problems import ClientFailure, Problem
from moorage.kernel.limits import CLAIM_BATCH

I = TypeVar("I")  # noqa: E741 - an item
O = TypeVar("O")  # noqa: E741 - its outcome


class Gathering(Generic[I, O]):
    """Sends items one by one while they come seldom, and up to CLAIM_BATCH together when they come fast.

    Nothing waits for company: an item goes at once unless a request is under way. `one` and `many` are the two ways to
    send; where a batch is refused as a whole its items go one by one, so that each has the outcome of its own.
    """

    def __init__(
        self, one: Callable[[I], Awaitable[O]], many: Callable[[Sequence[I]], Awaitable[Sequence[O | Problem]]]
    ) -> None:
        self._one = one
        self._many = many
        self._waiting: list[tuple[I, asyncio.Future[O]]] = []
        self._sending: asyncio.Task[None] | None = None

    async def send(self, item: I) -> O:
        """The item's outcome. Raises Problem, Unanswered."""
        outcome: asyncio.Future[O] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, outcome))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_all())
        return await outcome

    async def _send_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[: int(CLAIM_BATCH)], self._waiting[int(CLAIM_BATCH) :]
            wanted = [(item, outcome) for item, outcome in batch if not outcome.done()]
            if len(wanted) > 1:
                wanted = await self._send_many(wanted)
            for item, outcome in wanted:
                await self._send_one(item, outcome)

    async def _send_many(self, batch: list[tuple[I, "asyncio.Future[O]"]]) -> list[tuple[I, "asyncio.Future[O]"]]:
        """Send a batch; answers what has to go one by one."""
        try:
            found = await self._many([item for item, _ in batch])
        except Problem as problem:
            if problem.final:
                return batch
            _fail([outcome for _, outcome in batch], problem)
        except Exception as error:
            _fail([outcome for _, outcome in batch], error)
        else:
            for (_, outcome), one in zip(batch, found, strict=True):
                if isinstance(one, Problem):
                    _fail([outcome], one)
                elif not outcome.done():
                    outcome.set_result(one)
        return []

    async def _send_one(self, item: I, outcome: "asyncio.Future[O]") -> None:
        try:
            found = await self._one(item)
        except ClientFailure as failure:
            _fail([outcome], failure)
        else:
            if not outcome.done():
                outcome.set_result(found)


def _fail(outcomes: Sequence["asyncio.Future[O]"], error: Exception) -> None:
    for outcome in outcomes:
        if not outcome.done():
            outcome.set_exception(error)

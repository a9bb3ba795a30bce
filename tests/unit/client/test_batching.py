"""What gathers while a request is under way goes as one, and each item keeps an outcome of its own."""

import asyncio
from collections.abc import Sequence

import pytest

from moorage.client import Problem, Unanswered
from moorage.client.batching import Gathering
from moorage.kernel.limits import CLAIM_BATCH


class Counter:
    """Answers n with 2n, keeps what it was asked, and can be made to hesitate, refuse or fail."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.refuses: set[int] = set()
        self.batches: Exception | None = None
        self.gathering: Gathering[int, int] = Gathering(self.one, self.many)

    async def one(self, item: int) -> int:
        self.asked.append([item])
        await self.open.wait()
        if item in self.refuses:
            raise Problem(409, {"code": "LeaseFenced"})
        return 2 * item

    async def many(self, items: Sequence[int]) -> list[int | Problem]:
        self.asked.append(list(items))
        if self.batches is not None:
            raise self.batches
        return [Problem(409, {"code": "LeaseFenced"}) if item in self.refuses else 2 * item for item in items]


async def test_one_goes_at_once_and_the_rest_together() -> None:
    counter = Counter()
    counter.open.clear()
    first = asyncio.create_task(counter.gathering.send(1))
    await asyncio.sleep(0.001)
    rest = [asyncio.create_task(counter.gathering.send(n)) for n in range(2, 2 + int(CLAIM_BATCH) + 5)]
    await asyncio.sleep(0)
    assert counter.asked == [[1]]
    counter.open.set()
    assert await asyncio.gather(first, *rest) == [2 * n for n in range(1, 2 + int(CLAIM_BATCH) + 5)]
    assert [len(batch) for batch in counter.asked] == [1, int(CLAIM_BATCH), 5]


async def test_one_items_refusal_is_its_own() -> None:
    counter = Counter()
    counter.refuses = {2}
    found = await asyncio.gather(*(counter.gathering.send(n) for n in (1, 2, 3)), return_exceptions=True)
    assert (found[0], found[2]) == (2, 6)
    assert isinstance(found[1], Problem)


@pytest.mark.parametrize("status", [404, 405, 413, 422])
async def test_a_batch_that_is_refused_as_a_whole_goes_one_by_one(status: int) -> None:
    counter = Counter()
    counter.refuses, counter.batches = {2}, Problem(status, {"code": "Whatever"})
    found = await asyncio.gather(*(counter.gathering.send(n) for n in (1, 2, 3)), return_exceptions=True)
    assert (found[0], found[2], counter.asked) == (2, 6, [[1, 2, 3], [1], [2], [3]])
    assert isinstance(found[1], Problem)
    assert found[1].code == "LeaseFenced"


@pytest.mark.parametrize("error", [Unanswered("lost"), Problem(503, {"code": "Busy", "retryable": True})])
async def test_a_batch_that_was_not_answered_is_everybodys_failure(error: Exception) -> None:
    counter = Counter()
    counter.batches = error
    found = await asyncio.gather(*(counter.gathering.send(n) for n in (1, 2, 3)), return_exceptions=True)
    assert found == [error] * 3
    assert counter.asked == [[1, 2, 3]]


async def test_what_is_not_waited_for_any_more_is_not_sent() -> None:
    counter = Counter()
    counter.open.clear()
    first = asyncio.create_task(counter.gathering.send(1))
    await asyncio.sleep(0.001)
    second = asyncio.create_task(counter.gathering.send(2))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.sleep(0)
    counter.open.set()
    assert await first == 2
    assert await counter.gathering.send(3) == 6
    assert counter.asked == [[1], [3]]

"""Sending again what was not answered: the rule alone, without a platform."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from moorage.kernel.errors import InternalError, MoorageError, StorageBindingUnavailable
from moorage.store.transport import Patience, once, resend

pytestmark = pytest.mark.clause("store.transport")

QUICK = Patience(seconds=0.02, pause=0)


class Line:
    """Answers "yes" after the given outcomes: an error is raised, None never answers."""

    def __init__(self, *outcomes: MoorageError | None) -> None:
        self.outcomes = list(outcomes)
        self.sent = 0

    async def send(self) -> str:
        self.sent += 1
        if self.outcomes:
            outcome = self.outcomes.pop(0)
            if outcome is None:
                await asyncio.Event().wait()
            else:
                raise outcome
        return "yes"


@pytest.mark.parametrize("lost", [StorageBindingUnavailable(), None], ids=["lost", "silent"])
@pytest.mark.parametrize("times", [0, 1, 2])
async def test_at_most_three_attempts(lost: MoorageError | None, times: int) -> None:
    line = Line(*[lost] * times)
    assert await resend(line.send, QUICK) == "yes"
    assert line.sent == times + 1


@pytest.mark.parametrize("lost", [StorageBindingUnavailable(), None], ids=["lost", "silent"])
async def test_the_fourth_is_not_made(lost: MoorageError | None) -> None:
    line = Line(*[lost] * 3)
    with pytest.raises(StorageBindingUnavailable):
        await resend(line.send, QUICK)
    assert line.sent == 3


async def test_an_error_that_is_an_answer_is_raised_at_once() -> None:
    line = Line(InternalError())
    with pytest.raises(InternalError):
        await resend(line.send, QUICK)
    assert line.sent == 1


@pytest.mark.parametrize("send_with", [resend, lambda send, patience: once(send, patience.seconds)])
async def test_whoever_asked_may_stop_waiting(
    send_with: Callable[[Callable[[], Awaitable[str]], Patience], Awaitable[str]],
) -> None:
    """A cancelled request is not a lost answer: nothing is sent again."""
    line = Line(None)
    waiting = asyncio.ensure_future(send_with(line.send, Patience(seconds=60)))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert line.sent == 1


async def test_once_is_once() -> None:
    line = Line(None)
    with pytest.raises(StorageBindingUnavailable, match=r"no answer within 0\.02 s"):
        await once(line.send, QUICK.seconds)
    assert line.sent == 1

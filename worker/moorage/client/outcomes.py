"""What a handler's end means for its record."""

import asyncio
from collections.abc import Sequence
from typing import Any

from moorage.client.drafts import Draft
from moorage.client.jobs import FailWork
from moorage.client.problems import Problem, Unanswered
from moorage.kernel.errors import FailureTag, MoorageError
from moorage.kernel.limits import TEXT_CHARACTERS


def drafts_of(handling: "asyncio.Future[Any]") -> Sequence[Draft]:
    """The results of a handler that has ended. Raises what it raised, and FailWork when it returned anything else."""
    if handling.cancelled():
        raise FailWork(FailureTag.CANCELED, "the handler cancelled itself")
    returned = handling.result()
    if returned is None:
        return ()
    results = [returned] if isinstance(returned, Draft) else returned
    if isinstance(results, Sequence) and all(isinstance(one, Draft) for one in results):
        return results
    raise FailWork(FailureTag.PERMANENT, f"the handler returned {type(returned).__name__}; return Drafts or None")


def failure_of(error: BaseException) -> FailWork:
    """How to report an exception: FailWork as it says, a problem under its own tag, a time-out as one, and anything else
    as Permanent, under its class's name. The record is tried again all the same, as often as its kind says."""
    if isinstance(error, FailWork):
        return _bounded(error.tag, error.message, error)
    if isinstance(error, (Problem, MoorageError)):
        return _bounded(error.tag, str(error))
    if isinstance(error, Unanswered):
        return _bounded(FailureTag.TRANSIENT, str(error))
    if isinstance(error, TimeoutError):
        return _bounded(FailureTag.TIMED_OUT, str(error) or "TimeoutError")
    text = str(error)
    name = type(error).__name__
    return _bounded(FailureTag.PERMANENT, f"{name}: {text}" if text else name)


def _bounded(tag: FailureTag, message: str, said: FailWork | None = None) -> FailWork:
    # What was said may hold half a surrogate pair, which no JSON can.
    text = message.encode("utf-8", "replace").decode("utf-8")[: int(TEXT_CHARACTERS)]
    if said is None:
        return FailWork(tag, text)
    return FailWork(tag, text, retry_after=said.retry_after, dead_letter=said.dead_letter)

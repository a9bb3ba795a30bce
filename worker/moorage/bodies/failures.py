"""What a step's exception means: one of the closed set of tags (clauses runs.retryable-classes, runs.bound-hit)."""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import httpx

from moorage.bodies.errors import Failed, StepFailed, StepMisuse, text_of
from moorage.bodies.values import Unrecordable
from moorage.kernel.errors import FailureTag, MoorageError
from moorage.kernel.instants import Instant
from moorage.kernel.retry_after import retry_after
from moorage.runs.errors_text import stored
from moorage.runs.model import Failure

CALL_DEADLINE: Final = "call-deadline"
LINEAR_MEMORY: Final = "linear-memory"

_BY_STATUS: Final = {
    400: FailureTag.INVALID,
    401: FailureTag.UNAUTHENTICATED,
    403: FailureTag.FORBIDDEN,
    404: FailureTag.UNKNOWN,
    408: FailureTag.TRANSIENT,
    409: FailureTag.CONFLICT,
    410: FailureTag.UNKNOWN,
    413: FailureTag.TOO_LARGE,
    422: FailureTag.INVALID,
    425: FailureTag.TRANSIENT,
    429: FailureTag.RATE_LIMITED,
    500: FailureTag.TRANSIENT,
    501: FailureTag.PERMANENT,
    502: FailureTag.TRANSIENT,
    503: FailureTag.TRANSIENT,
    504: FailureTag.TRANSIENT,
    505: FailureTag.PERMANENT,
}


@dataclass(frozen=True, slots=True)
class Classified:
    """An exception as a failure, the wait that a server asked for, and the bound that was struck."""

    failure: Failure
    retry_after: float | None = None
    bound: str | None = None


class CallDeadline(Exception):
    """The effect took longer than its step's timeout."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"took longer than {seconds:g} seconds")


def classify(error: BaseException, now: Instant) -> Classified:
    """The failure that an exception of an effect stands for. Messages carry no URL's query and no header."""
    if isinstance(error, Failed):
        return Classified(failure(error.tag, error.message, error.code), error.retry_after)
    if isinstance(error, StepFailed):
        return Classified(failure(error.tag, error.message, error.code))
    if isinstance(error, StepMisuse):
        return Classified(failure(FailureTag.PERMANENT, str(error), error.code))
    if isinstance(error, MoorageError):
        return Classified(failure(error.tag, error.detail, error.code), error.retry_after)
    if isinstance(error, httpx.HTTPStatusError):
        return by_status(error.request, error.response, now)
    if isinstance(error, (CallDeadline, httpx.TimeoutException, asyncio.TimeoutError)):
        return _struck(CALL_DEADLINE, error)
    if isinstance(error, MemoryError):
        return _struck(LINEAR_MEMORY, error)
    if isinstance(error, httpx.UnsupportedProtocol):
        # The address is refused before anything is sent, and would be again.
        return Classified(failure(FailureTag.PERMANENT, _said(error), type(error).__name__))
    if isinstance(error, (httpx.TransportError, ConnectionError)):
        return Classified(failure(FailureTag.TRANSIENT, _said(error), type(error).__name__))
    if isinstance(error, Unrecordable):
        tag = FailureTag.TOO_LARGE if error.too_large else FailureTag.PERMANENT
        return Classified(failure(tag, f"the value cannot be recorded: {error}", "ValueUnrecordable"))
    return Classified(failure(FailureTag.PERMANENT, _said(error), type(error).__name__))


def by_status(request: httpx.Request, response: httpx.Response, now: Instant) -> Classified:
    """An HTTP answer as a failure: 429, and any answer that may be tried again and says when, is RateLimited."""
    status = response.status_code
    tag = _BY_STATUS.get(status, FailureTag.TRANSIENT if status >= 500 else FailureTag.PERMANENT)
    wait = retry_after(response.headers.get_list("retry-after"), now)
    if tag == FailureTag.TRANSIENT and wait is not None:
        tag = FailureTag.RATE_LIMITED
    message = f"{request.method} {request.url.scheme}://{request.url.netloc.decode('ascii', 'replace').rpartition('@')[2]}"
    message += f"{request.url.path} answered {status} {_phrase(status)}".rstrip()
    return Classified(failure(tag, message, f"Http{status}"), wait if tag == FailureTag.RATE_LIMITED else None)


def failure(tag: FailureTag | str, message: str, code: str | None = None, step: str | None = None) -> Failure:
    """A failure with its message masked and capped (clause runs.error-cap)."""
    return stored(Failure(str(tag), message, code, step))


def _struck(bound: str, error: BaseException) -> Classified:
    message = f"{bound}: {_said(error)}"
    return Classified(failure(FailureTag.TRANSIENT, message, type(error).__name__), bound=bound)


def _said(error: BaseException) -> str:
    return text_of(error) or type(error).__name__


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""

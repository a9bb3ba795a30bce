"""How a request can end badly: with a problem that Moorage answered, or without an answer that can be used."""

from collections.abc import Mapping
from typing import Any, Self

import httpx

from moorage.kernel.errors import FailureTag, MoorageError

_BY_STATUS = {
    401: FailureTag.UNAUTHENTICATED,
    403: FailureTag.FORBIDDEN,
    404: FailureTag.UNKNOWN,
    409: FailureTag.CONFLICT,
    413: FailureTag.TOO_LARGE,
    429: FailureTag.RATE_LIMITED,
    502: FailureTag.TRANSIENT,
    503: FailureTag.TRANSIENT,
    504: FailureTag.TRANSIENT,
}


class ClientFailure(Exception):
    """A request did not end as asked."""


class Unanswered(ClientFailure):
    """No usable answer came. A request that changes something may or may not have been carried out."""


class Problem(ClientFailure):
    """An error that Moorage answered (clause kernel.problem).

    Branch on `tag` or `code`, never on text. `retry_after` is in seconds; `errors` name what is wrong by JSON pointer;
    `members` are the whole problem document; `request_id` names the request in the deployment's log.
    """

    def __init__(
        self, status: int, members: Mapping[str, Any], *, retry_after: float | None = None, request_id: str | None = None
    ) -> None:
        self.status = status
        self.members = dict(members)
        self.code = str(members.get("code", f"Http{status}"))
        self.tag = _tag(members.get("tag"), status)
        self.detail = str(members.get("detail", ""))
        self.retryable = bool(members.get("retryable", self.tag in (FailureTag.TRANSIENT, FailureTag.RATE_LIMITED)))
        self.retry_after = retry_after
        self.errors: list[dict[str, str]] = members.get("errors") or []
        self.request_id = request_id
        super().__init__(f"{self.code}: {self.detail}" if self.detail else self.code)

    @property
    def final(self) -> bool:
        """Whether the request itself is at fault: the same again, later, will be answered the same."""
        return self.status < 500 and not self.retryable

    @classmethod
    def of(cls, answer: httpx.Response) -> Self:
        """The problem in an answer whose body has been read. An error of something between us, a proxy's page for
        instance, is one too: with a `code` made of its status."""
        try:
            found = answer.json()
        except ValueError:
            found = None
        is_problem = isinstance(found, dict) and isinstance(found.get("code"), str)
        members = found if is_problem else {"detail": f"the answer is no problem document: {answer.text[:200]!r}"}
        wait = seconds_of(answer.headers.get("retry-after"))
        told = members.get("retry_after")
        if wait is None and isinstance(told, (int, float)) and not isinstance(told, bool):
            wait = max(0.0, float(told))
        return cls(answer.status_code, members, retry_after=wait, request_id=answer.headers.get("x-request-id"))

    @classmethod
    def unsent(cls, error: MoorageError) -> Self:
        """What cannot be sent, told as Moorage would tell of it."""
        return cls(error.status, error.problem())


def seconds_of(header: str | None) -> float | None:
    """A Retry-After header in seconds; None when it is absent or is a date, which needs a clock that agrees with theirs."""
    if header is None or not header.strip().isascii() or not header.strip().isdigit():
        return None
    return float(header.strip()[:9])


def _tag(told: Any, status: int) -> FailureTag:
    try:
        return FailureTag(told)
    except ValueError:
        return _BY_STATUS.get(status, FailureTag.INVALID if 400 <= status < 500 else FailureTag.PERMANENT)

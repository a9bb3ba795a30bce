"""Every error as `application/problem+json`, and what the log learns of it (clause kernel.problem).

A client's error is its own business and is not logged. A failure of ours is logged with the request's id, its route as
declared (never as sent: a path may hold a token) and a traceback from which secrets are taken out.
"""

import logging
import math
import traceback
from collections.abc import Iterable, Sequence
from typing import Any

from moorage.api.answers import Problem, retry_after_header
from moorage.kernel.errors import (
    InternalError,
    MoorageError,
    RequestInvalid,
    RunStreamUnauthorized,
    StorageBindingUnavailable,
    StorageLimitExceeded,
    Unauthenticated,
)
from moorage.kernel.limits import RETRY_AFTER_SECONDS
from moorage.kernel.masking import MASK, mask

_log = logging.getLogger("moorage")

_ERRORS_SHOWN = 50
_TEXT_SHOWN = 300

# Their details quote the database, which speaks of tables and statements: for the log, not for the client.
_INTERNAL_DETAIL = (StorageBindingUnavailable, StorageLimitExceeded, InternalError)


def answer(error: MoorageError, request_id: str) -> Problem:
    """The error as a response."""
    body = error.problem()
    headers: dict[str, str] = {}
    if error.errors is not None:
        # A pointer repeats names that the client sent; a token put there by mistake must not come back.
        body["detail"] = redact(error.detail, ())
        body["errors"] = [{**one, "pointer": redact(one["pointer"], ())} for one in error.errors]
    if isinstance(error, _INTERNAL_DETAIL):
        body["detail"] = error.meaning()
        body["request_id"] = request_id
    if isinstance(error, (Unauthenticated, RunStreamUnauthorized)):
        headers["www-authenticate"] = "Bearer"
    if error.retry_after is not None:
        if not math.isfinite(error.retry_after):
            body["retry_after"] = int(RETRY_AFTER_SECONDS)
        headers["retry-after"] = retry_after_header(error.retry_after)
    return Problem(body, error.status, headers)


def note(error: BaseException, request_id: str, route: str, secrets: Iterable[str]) -> None:
    """Log a failure that is ours; say nothing of one that is the client's."""
    if isinstance(error, MoorageError) and error.status < 500:
        return
    if isinstance(error, MoorageError) and not isinstance(error, _INTERNAL_DETAIL):
        _log.error("%s %s: %s: %s", request_id, route, error.code, redact(error.detail, secrets))
        return
    told = "".join(traceback.format_exception(error))
    _log.error("%s %s failed\n%s", request_id, route, redact(told, secrets))


def redact(text: str, secrets: Iterable[str]) -> str:
    """The text without these secrets and without anything that looks like a credential."""
    for secret in secrets:
        if len(secret) > 3:
            text = text.replace(secret, MASK)
    return mask(text)


def invalid(errors: Sequence[Any]) -> RequestInvalid:
    """pydantic's findings as RequestInvalid. `pointer` is a JSON pointer into the body, or begins with /query."""
    found = [{"pointer": _pointer(error["loc"]), "message": _message(error)} for error in errors[:_ERRORS_SHOWN]]
    first = found[0]
    where = first["pointer"] or "the body"
    return RequestInvalid(f"{where}: {first['message']}", errors=found)


def _pointer(loc: Sequence[str | int]) -> str:
    parts = loc[1:] if loc and loc[0] == "body" else loc
    return "".join("/" + str(part)[:_TEXT_SHOWN].replace("~", "~0").replace("/", "~1") for part in parts)


def _message(error: Any) -> str:
    """pydantic's sentence. It never quotes the input, which may be a secret or be huge."""
    if error["type"] == "extra_forbidden":
        return "is not a known field"
    if error["type"] == "missing":
        return "is required"
    return str(error["msg"]).removeprefix("Value error, ")[:_TEXT_SHOWN]

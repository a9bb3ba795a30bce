"""What the Clock has set aside: GET /clock/failures, and trying it again (clause timers.alarm)."""

from typing import Annotated

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from moorage.api.answers import Answer, page
from moorage.api.fields import Cursor, Default, Limit, PageShown, Sent, Shown, ShownInstant, fails, page_of
from moorage.api.requests import ApiRequest
from moorage.api.routing import router
from moorage.kernel.errors import CursorMismatch
from moorage.kernel.limits import TEXT_CHARACTERS
from moorage.timers import failures

api = router("system")

_Work = Annotated[str, Field(min_length=1, max_length=int(TEXT_CHARACTERS))]


class FailureShown(Shown):
    """An item that failed when the Clock fired it. `work` is its class, as `lease_expired`; `item` names it within that,
    often with the instant, in milliseconds, by which one occasion is told from the next. `error` is the code or the name of
    the last error, never its text."""

    work: str
    item: str
    attempts: int
    error: str
    retry_at: ShownInstant


class RetrySent(Sent):
    """What is tried again: one `item` of the class `work`, all of that class, or everything."""

    work: _Work | None = None
    item: _Work | None = None


class RetriedShown(Shown):
    """How many items are tried now that would have been later."""

    retried: int


@api.get("/clock/failures", response_model=PageShown[FailureShown], responses=fails(CursorMismatch))
async def list_failures(
    request: ApiRequest,
    limit: Limit = Default,
    cursor: Cursor = None,
    work: Annotated[
        str | None, Query(min_length=1, max_length=int(TEXT_CHARACTERS), description="Only those of this class.")
    ] = None,
) -> Response:
    """What failed when the Clock fired it and is tried again later, by class and item."""
    found = await failures.list_failures(request.db, request.caller, page_of(limit, cursor), work)
    return page(found, lambda one: one.answer())


@api.post("/clock/failures/retry", response_model=RetriedShown)
async def retry_failures(request: ApiRequest, sent: RetrySent) -> Response:
    """Try at once what is set aside, at most CLOCK_RETRY_BATCH items, those first that would have come first. The same
    again finds only what failed anew. Of a class that this version does not know nothing can be tried."""
    retried = await failures.retry(request.db, request.caller, request.now, request.ports.works, sent.work, sent.item)
    for shard in retried.shards:
        request.wake(request.now, shard)
    return Answer({"retried": retried.items})

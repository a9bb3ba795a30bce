"""Correlations: which work a key of the outside belongs to."""

from typing import Annotated

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from moorage.api.answers import Answer, page
from moorage.api.fields import Cursor, Default, Limit, PageShown, Sent, Shown, ShownInstant, fails, page_of
from moorage.api.requests import ApiRequest
from moorage.api.routing import router
from moorage.api.run_shapes import KeySent
from moorage.kernel.errors import CorrelationConflict, CursorMismatch
from moorage.kernel.limits import CORRELATIONS, EVENT_ATTRIBUTE_CHARACTERS, SCOPE_CHARACTERS
from moorage.kernel.refusals import refused
from moorage.messages.inbox import correlate
from moorage.messages.inbox.correlate import ExternalKey
from moorage.runs.scopes import check_derived

api = router("events")

_Named = Query(min_length=1, max_length=int(EVENT_ATTRIBUTE_CHARACTERS))


class CorrelationSent(Sent):
    """Keys that are to belong to a work: the scope under which its runs open."""

    work: str = Field(min_length=1, max_length=int(SCOPE_CHARACTERS))
    keys: list[KeySent] = Field(min_length=1, max_length=int(CORRELATIONS))


class CorrelationShown(Shown):
    """A key and the work that it belongs to."""

    source: str
    external_id: str
    work: str
    attached_at: ShownInstant
    attached_by: str


class CorrelationsShown(Shown):
    """Keys as they stand."""

    items: list[CorrelationShown]


@api.put("/correlations", response_model=CorrelationsShown, responses=fails(CorrelationConflict))
async def attach_keys(request: ApiRequest, sent: CorrelationSent) -> Response:
    """Attach keys to a work, all or none. A key belongs to one work, for ever; the same again changes nothing."""
    check_derived(sent.work)  # no run could ever open under another, and the key would be its own all the same
    keys = [one.key() for one in sent.keys]
    attached = await correlate.attach(request.db, request.caller, request.now, sent.work, keys)
    return Answer({"items": [one.answer() for one in attached]})


@api.get("/correlations", response_model=PageShown[CorrelationShown], responses=fails(CursorMismatch))
async def list_keys(
    request: ApiRequest,
    limit: Limit = Default,
    cursor: Cursor = None,
    work: Annotated[
        str | None, Query(min_length=1, max_length=int(SCOPE_CHARACTERS), description="The work whose keys are listed.")
    ] = None,
    source: Annotated[str | None, _Named] = None,
    external_id: Annotated[str | None, _Named] = None,
) -> Response:
    """The keys of a `work`, by source and id; or the one key of a `source` and an `external_id`, with its work."""
    if source is not None and external_id is not None and work is None and cursor is None:
        found = await correlate.of_key(request.db, request.caller, ExternalKey(source, external_id))
    elif work is not None and source is None and external_id is None:
        found = await correlate.of_work(request.db, request.caller, work, page_of(limit, cursor))
    else:
        raise refused("/query/work", "or a source and an external_id are to be named, and not both")
    return page(found, lambda one: one.answer())

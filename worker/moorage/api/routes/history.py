"""History: what happened, by position and by subject."""

from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from moorage.api.answers import Answer
from moorage.api.fields import Cursor, Default, JsonObject, Limit, PageShown, Shown, ShownInstant, fails, page_of
from moorage.api.requests import ApiRequest
from moorage.api.routing import router
from moorage.history.query import Entry, entries
from moorage.kernel.errors import CursorMismatch, Forbidden, RecordRemoved, RecordUnknown
from moorage.kernel.instants import render
from moorage.kernel.limits import ID_CHARACTERS
from moorage.kernel.pages import PageRequest
from moorage.records import query

api = router("history")


class EntryShown(Shown):
    """One thing that happened. `position` orders all entries; `revision` counts the subject's from 1, without gaps."""

    position: int
    subject: str
    revision: int
    type: str
    kind: str | None
    actor: str
    at: ShownInstant
    data: JsonObject
    content_sha256: str | None


@api.get("/history", response_model=PageShown[EntryShown], responses=fails(CursorMismatch))
async def list_history(
    request: ApiRequest,
    limit: Limit = Default,
    cursor: Cursor = None,
    after: Annotated[int, Query(ge=0, le=2**53 - 1, description="Only entries past this position.")] = 0,
    subject: Annotated[
        str | None, Query(min_length=1, max_length=2 * int(ID_CHARACTERS), description="Only entries of this subject.")
    ] = None,
) -> Response:
    """Entries in order, oldest first, after a position or a cursor.

    The whole history needs a grant to operate on every kind; a record's own entries, a grant to read the record or, once it
    was removed, every record of its kind.
    """
    if not request.caller.may("operate"):
        await _demand_readable(request, subject)
    return await history_page(request, page_of(limit, cursor), subject, after)


async def history_page(request: ApiRequest, asked: PageRequest, subject: str | None, after: int = 0) -> Response:
    """A page of history. Raises CursorMismatch."""
    filters = ["history", subject, after]
    start = asked.after(filters, int) or [after]
    found = await entries(request.db, start[0], asked.limit + 1, subject)
    shown = asked.page(found, filters, lambda entry: [entry.position], shown_entry)
    return Answer({"items": shown.items, "next_cursor": shown.next_cursor})


async def _demand_readable(request: ApiRequest, subject: str | None) -> None:
    if subject is None:
        raise Forbidden("the whole history needs a grant to operate on every kind; name a record as its subject")
    try:
        await query.get(request.db, request.ports.kinds, request.caller, request.now, subject)
    except RecordRemoved:
        return
    except RecordUnknown:
        raise Forbidden("the credential does not grant reading this subject's history") from None


def shown_entry(entry: Entry) -> dict[str, Any]:
    """An entry as `EntryShown` says."""
    return {
        "position": entry.position,
        "subject": entry.subject,
        "revision": entry.revision,
        "type": entry.type,
        "kind": entry.kind,
        "actor": entry.actor,
        "at": render(entry.at),
        "data": entry.data,
        "content_sha256": entry.content_sha256,
    }

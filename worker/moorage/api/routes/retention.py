"""How records end and leave without a claim: cancelling one, and what a kind's retention would remove."""

from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from moorage.api import shapes
from moorage.api.answers import Answer
from moorage.api.fields import Default, KindName, Limit, Reason, RecordId, Sent, Shown, ShownInstant, fails
from moorage.api.requests import ApiRequest
from moorage.api.routing import router
from moorage.api.shapes import RecordShown
from moorage.kernel.errors import IdempotencyConflict, KindUnknown, RecordEnded, RecordRemoved, RecordUnknown
from moorage.kernel.instants import render
from moorage.kernel.limits import RETENTION_SECONDS
from moorage.records import cancel, retention
from moorage.records.model import State
from moorage.records.retention import Candidate, next_look

api = router("retention")


class CancelSent(Sent):
    """Why the record is not to be worked on; history keeps it."""

    reason: Reason


class CandidateShown(Shown):
    """A record that is old enough to be removed."""

    id: str
    state: State
    ended_at: ShownInstant


class PreviewShown(Shown):
    """What a kind's retention would look at now. `candidates` and `held` are counted no further than a limit; what is
    `held` is put off, or within the reach of an Idempotency-Key."""

    kind: str
    retention_seconds: int | None
    candidates: int
    held: int
    oldest: list[CandidateShown]


@api.post(
    "/records/{record}/cancel",
    response_model=RecordShown,
    responses=fails(RecordUnknown, RecordRemoved, RecordEnded, IdempotencyConflict),
)
async def cancel_record(request: ApiRequest, record: RecordId, sent: CancelSent) -> Response:
    """End a ready, waiting or claimed record as dead. Whoever holds it is fenced.

    It takes a grant to operate on the record, or to be its creator with a grant to publish it.
    """
    canceled = await cancel.cancel(
        request.db, request.ports.kinds, request.caller, request.now, record, sent.reason, request.key()
    )
    request.wake(next_look(request.ports.kinds, canceled), "upkeep")
    return Answer(shapes.record(canceled))


@api.get("/kinds/{kind}/retention", response_model=PreviewShown, responses=fails(KindUnknown))
async def preview_retention(
    request: ApiRequest,
    kind: KindName,
    limit: Limit = Default,
    retention_seconds: Annotated[
        int | None, Query(ge=1, le=int(RETENTION_SECONDS), description="Suppose that the kind kept its records so long.")
    ] = None,
) -> Response:
    """The terminal records that are old enough to be removed now: how many, and the oldest of them.

    Age is all that is looked at. A record that a live record names as a parent stays when its turn comes.
    """
    found = await retention.preview(
        request.db, request.ports.kinds, request.caller, request.now, kind, limit, retention_seconds
    )
    return Answer(
        {
            "kind": found.kind.name,
            "retention_seconds": found.retention_seconds,
            "candidates": found.candidates,
            "held": found.held,
            "oldest": [_candidate(one) for one in found.oldest],
        }
    )


def _candidate(one: Candidate) -> dict[str, Any]:
    return {"id": one.id, "state": one.state, "ended_at": render(one.ended_at)}

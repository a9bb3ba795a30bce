"""Interests of workers, and which of them a proposed record would reach."""

from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import Field
from starlette.responses import Response

from moorage.api.answers import Answer, nothing, page
from moorage.api.fields import Cursor, Default, JsonObject, Limit, PageShown, Sent, Shown, ShownInstant, fails, page_of
from moorage.api.requests import ApiRequest
from moorage.api.routing import router
from moorage.kernel.errors import BodyInvalid, CursorMismatch, InterestUnknown, KindUnknown, PatternInvalid
from moorage.kernel.instants import render
from moorage.kernel.limits import INTEREST_TTL_SECONDS
from moorage.records import interests
from moorage.records.interests import Interest
from moorage.records.model import Draft

api = router("interests")

Worker = Annotated[str, Path(description="The worker's name, as it claims under.")]


class InterestSent(Sent):
    """What a worker looks for, and how long that is to be believed."""

    kind: str
    match: JsonObject = Field(default_factory=dict)
    ttl_seconds: float = Field(default=60, ge=1, le=int(INTEREST_TTL_SECONDS))


class ReachShown(Shown):
    """An interest that a proposed record would match; `interest` and `worker` are the worker's name."""

    interest: str
    worker: str
    subject: str
    expires_at: ShownInstant


class InterestShown(ReachShown):
    """A worker's interest."""

    kind: str
    match: JsonObject
    created_at: ShownInstant


class DryRunSent(Sent):
    """A record that somebody might publish."""

    kind: str
    body: JsonObject


class DryRunShown(Shown):
    """The live interests that the record would match; `truncated` when the kind has more than were asked."""

    matches: list[ReachShown]
    truncated: bool


@api.put("/interests/{worker}", response_model=InterestShown, responses=fails(KindUnknown, PatternInvalid))
async def put_interest(request: ApiRequest, worker: Worker, sent: InterestSent) -> Response:
    """Say what a worker looks for, or renew it; it takes the place of what this worker said before.

    It takes a grant to claim records of the kind, and is a hint: claims do not ask for it.
    """
    declared = await interests.declare(
        request.db, request.ports.kinds, request.caller, request.now, worker, sent.kind, sent.match, sent.ttl_seconds
    )
    request.wake(interests.swept_at(declared), "upkeep")
    return Answer(_shown(declared))


@api.delete("/interests/{worker}", status_code=204, response_class=Response, responses=fails(InterestUnknown))
async def delete_interest(request: ApiRequest, worker: Worker) -> Response:
    """Withdraw the interest of the caller's own worker of this name."""
    await interests.withdraw(request.db, request.caller, request.now, worker)
    return nothing()


@api.get("/interests", response_model=PageShown[InterestShown], responses=fails(CursorMismatch))
async def list_interests(
    request: ApiRequest,
    limit: Limit = Default,
    cursor: Cursor = None,
    kind: Annotated[str | None, Query(description="Only interests in this kind.")] = None,
) -> Response:
    """The live interests by worker: the caller's own, and those in kinds of which it may read every record."""
    found = await interests.list_interests(request.db, request.caller, request.now, page_of(limit, cursor), kind)
    return page(found, _shown)


@api.post("/records/dry-run", response_model=DryRunShown, responses=fails(KindUnknown, BodyInvalid))
async def dry_run(request: ApiRequest, sent: DryRunSent) -> Response:
    """Which live interests a record would match if it were published now. Nothing is written.

    The record is checked as a publication would be. An interest counts as far as the credential that declared it may
    still claim: within its grants, and not past its revocation.
    """
    draft = Draft(sent.kind, sent.body)
    found, truncated = await interests.dry_run(request.db, request.ports.kinds, request.caller, request.now, draft)
    return Answer({"matches": [_reach(one) for one in found], "truncated": truncated})


def _reach(one: Interest) -> dict[str, Any]:
    return {
        "interest": one.worker,
        "worker": one.worker,
        "subject": one.subject,
        "expires_at": render(one.expires_at),
    }


def _shown(one: Interest) -> dict[str, Any]:
    return {**_reach(one), "kind": one.kind, "match": one.match, "created_at": render(one.created_at)}

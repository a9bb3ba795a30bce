"""Awakeables: promises that the outside resolves by posting to a token.

A token in a path is a secret: it reaches neither the log nor an error.
"""

from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import Field
from starlette.responses import Response

from moorage.api import public
from moorage.api.answers import Answer, page
from moorage.api.auth import as_sender
from moorage.api.fields import (
    ANY_BODY,
    Cursor,
    Default,
    JsonObject,
    Limit,
    Line,
    PageShown,
    Sent,
    SentInstant,
    Shown,
    ShownInstant,
    fails,
    page_of,
)
from moorage.api.requests import ApiRequest
from moorage.api.routing import opened, router
from moorage.awakeables import listing, mint, payloads, resolve
from moorage.awakeables.model import Draft, Rejection, State
from moorage.catalog.senders import Sender
from moorage.kernel.errors import (
    AwakeableAlreadyResolved,
    AwakeableRejected,
    AwakeableTimedOut,
    AwakeableUnknown,
    BlobBusy,
    CursorMismatch,
    FailureTag,
    IdempotencyConflict,
    JsonInvalid,
    PayloadTooLarge,
    RateLimited,
    UnsupportedMediaType,
    UploadTimedOut,
)
from moorage.kernel.instants import render
from moorage.kernel.limits import AWAKE_TTL_SECONDS, ID_CHARACTERS, TEXT_CHARACTERS

api = router("awakeables")

Token = Annotated[str, Path(description="The token, as it was given at minting.")]
AwakeableId = Annotated[str, Path(max_length=int(ID_CHARACTERS), description="The id, as it was given at minting.")]
_ENDED = (AwakeableUnknown, AwakeableAlreadyResolved, AwakeableRejected, AwakeableTimedOut)


class MintSent(Sent):
    """A promise: its deadline is `created_at` (now unless given) and `ttl_seconds`. With a `subject`, that one alone
    may resolve it."""

    ttl_seconds: float = Field(gt=0, le=int(AWAKE_TTL_SECONDS))
    created_at: SentInstant | None = None
    subject: Line | None = None
    label: Line | None = None
    metadata: JsonObject = Field(default_factory=dict)


class MintedShown(Shown):
    """The awakeable. The token is its whole authority and is told here only; `url` is where to post."""

    id: str
    token: str
    created_at: ShownInstant
    deadline: ShownInstant
    url: str


class RejectSent(Sent):
    """Why the promise will not be kept."""

    tag: Annotated[FailureTag, Field(strict=False)]
    message: str = Field(max_length=int(TEXT_CHARACTERS))


class RejectionShown(Shown):
    """Why an awakeable was rejected."""

    tag: FailureTag
    message: str


class AwakeableShown(Shown):
    """An awakeable. Its minter and operators see all; whoever merely holds the token, the first five."""

    id: str
    state: State
    created_at: ShownInstant
    deadline: ShownInstant
    ended_at: ShownInstant | None
    subject: str | None = None
    label: str | None = None
    metadata: JsonObject | None = None
    created_by: str | None = None
    execution_id: str | None = None
    ended_by: str | None = None
    error: RejectionShown | None = None
    payload: Any = None


@api.post("/awakeables", status_code=201, response_model=MintedShown, responses=fails(IdempotencyConflict))
async def mint_awakeable(request: ApiRequest, sent: MintSent) -> Response:
    """Make a promise that someone outside resolves once, before its deadline."""
    draft = Draft(sent.ttl_seconds, sent.created_at, sent.subject, sent.label, sent.metadata)
    minted = await mint.mint(request.db, request.caller, request.now, draft, request.key())
    one = minted.awakeable
    request.wake(one.deadline, "runs")
    shown = {
        "id": one.id,
        "token": minted.token,
        "created_at": render(one.created_at),
        "deadline": render(one.deadline),
        "url": f"{request.origin}/awake/{minted.token}",
    }
    return Answer(shown, 201)


@api.get("/awakeables", response_model=PageShown[AwakeableShown], responses=fails(CursorMismatch))
async def list_awakeables(
    request: ApiRequest,
    limit: Limit = Default,
    cursor: Cursor = None,
    state: Annotated[State | None, Query(description="Only those in this state.")] = None,
) -> Response:
    """Awakeables in the order of minting, for operators; never their tokens."""
    found = await listing.list_awakeables(request.db, request.caller, request.now, page_of(limit, cursor), state)
    return page(found, lambda one: one.wire())


@api.get("/awakeables/{awakeable}", response_model=AwakeableShown, responses=fails(AwakeableUnknown))
async def show_by_id(request: ApiRequest, awakeable: AwakeableId) -> Response:
    """One awakeable with its payload, for whoever minted it and for operators, also when it is bound to another subject."""
    shown = await resolve.show_one(request.db, request.caller, request.now, awakeable, request.ports.blobs)
    return Answer(shown.wire())


@api.post(
    "/awake/{token}",
    response_model=Any,
    responses=fails(*_ENDED, JsonInvalid, PayloadTooLarge, UnsupportedMediaType, RateLimited, BlobBusy, UploadTimedOut),
    openapi_extra={**opened("own"), **ANY_BODY},
)
async def resolve_awakeable(
    request: ApiRequest,
    token: Token,
    sender: Annotated[
        str | None,
        Query(max_length=int(ID_CHARACTERS), description="The webhook sender whose signature the request carries."),
    ] = None,
) -> Response:
    """Keep the promise with any payload; the answer is the payload as recorded, also to the same payload again.

    With `sender` the request is admitted by that sender's signature over the raw body, otherwise by a bearer token.
    """
    raw = await request.body()

    async def act(_: Sender | None = None) -> Response:
        payload = payloads.read(request.headers.get("content-type"), raw)
        resolved = await resolve.resolve(request.db, request.caller, request.now, token, payload, request.ports.blobs)
        return Response(resolved.payload, media_type="application/json")

    if sender is not None:
        return await as_sender(request, sender, raw, act)
    await request.admit()
    public.check_page(request.caller, request.headers)
    return await act()


@api.get("/awake/{token}", response_model=AwakeableShown, responses=fails(AwakeableUnknown))
async def show_awakeable(request: ApiRequest, token: Token) -> Response:
    """How the promise stands. Resumes nothing. One bound to a subject is unknown to every other."""
    shown = await resolve.show(request.db, request.caller, request.now, token, request.ports.blobs)
    return Answer(shown.wire())


@api.post("/awake/{token}/reject", response_model=AwakeableShown, responses=fails(*_ENDED, RateLimited))
async def reject_awakeable(request: ApiRequest, token: Token, sent: RejectSent) -> Response:
    """Break the promise: whoever waits sees a failure with this tag."""
    public.check_page(request.caller, request.headers)
    rejection = Rejection(sent.tag, sent.message)
    ended = await resolve.reject(request.db, request.caller, request.now, token, rejection)
    return Answer(ended.outline())

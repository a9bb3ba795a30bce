"""Guards of effects that may be in flight, who executes, and what operators released (clauses guards.inspect, guards.manual,
guards.audit)."""

from typing import Annotated, Literal

from fastapi import Path, Query
from pydantic import Field
from starlette.responses import Response

from moorage.api.answers import Answer, page
from moorage.api.fields import (
    Cursor,
    Default,
    JsonObject,
    Limit,
    PageShown,
    Reason,
    Sent,
    Shown,
    ShownInstant,
    fails,
    page_of,
)
from moorage.api.requests import ApiRequest
from moorage.api.routing import router
from moorage.guards import holders, listing, reconcile
from moorage.guards.listing import Wanted
from moorage.guards.model import Audit, EvidenceClass, Holder
from moorage.kernel.errors import (
    CursorMismatch,
    ExecutionGuardEvidenceMismatch,
    ExecutionGuardHeld,
    Forbidden,
    GuardReleased,
    GuardUnknown,
    HolderUnknown,
    IdempotencyConflict,
)
from moorage.kernel.limits import ID_CHARACTERS, SCOPE_CHARACTERS, TEXT_CHARACTERS
from moorage.runs import authority

api = router("guards")

Token = Annotated[str, Path(max_length=int(ID_CHARACTERS), description="A guard's token.")]
HolderId = Annotated[str, Path(max_length=int(ID_CHARACTERS), description="A holder's id.")]
_Scope = Annotated[str | None, Query(max_length=int(SCOPE_CHARACTERS), description="The guard that protects this scope.")]
_Execution = Annotated[str | None, Query(max_length=int(ID_CHARACTERS), description="Guards of this execution.")]
_Destination = Annotated[str | None, Query(max_length=int(ID_CHARACTERS), description="Guards of effects that go there.")]
_Class = Annotated[EvidenceClass | None, Query(alias="class", description="Guards that it takes this to release.")]
_Token = Annotated[str | None, Query(max_length=int(ID_CHARACTERS), description="Only the release of this guard.")]


class EntryKeyShown(Shown):
    """An entry of the journal."""

    label: str
    input_sha256: str


class GuardShown(Shown):
    """An effect that may be in flight. `class` says what it takes to release it; the window counts from `since`, which is
    earlier than its admission when an earlier request with the key may have arrived."""

    token: str
    class_: EvidenceClass = Field(alias="class")
    publication: bool
    scopes: list[str] = Field(description="The protected scopes: the execution's own and every one above it.")
    lease_keys: list[str] = Field(description="The protected leases.")
    execution_id: str
    run_id: str
    scope: str
    attempt: int
    epoch: int
    holder: str
    holder_name: str | None
    holder_exited_at: ShownInstant | None = Field(description="When its holder said that it has stopped; null: it did not.")
    lease_expires_at: ShownInstant | None = Field(description="Until when the execution has an owner; null: it has none.")
    entry_key: EntryKeyShown
    idempotency_key: str = Field(description="What its requests carry as Idempotency-Key: look for it at the destination.")
    destination: str | None
    admitted_at: ShownInstant
    since: ShownInstant
    window_seconds: int | None
    window_ends_at: ShownInstant | None = None


class ClassCountsShown(Shown):
    """How many guards there are of each class."""

    replay_safe: int = Field(alias="replay-safe")
    receipt_required: int = Field(alias="receipt-required")
    unknown: int


class GuardsSummaryShown(Shown):
    """What is in flight, or may be."""

    open: int
    by_class: ClassCountsShown
    oldest_admitted_at: ShownInstant | None
    oldest_seconds: int | None


class ReconcileSent(Sent):
    """What was found at the destination, and who vouches for it: `idempotency:<key>` while the destination's window covers
    the guard's key, which is then sent again, or `receipt:<key>:<id>`, after which it is not."""

    evidence: str = Field(min_length=1, max_length=2 * int(TEXT_CHARACTERS))
    operator: str = Field(min_length=1, max_length=int(ID_CHARACTERS))


class ReconciledShown(Shown):
    """The guard is released; `audit` is the record of that. `receipt` is what the step was recorded with."""

    released: Literal[True]
    audit: str
    receipt: str | None = None


class AuditShown(Shown):
    """What an operator released: the guard as it was, and on which evidence. `actor` is whose credential asked."""

    id: str
    token: str
    guard: JsonObject
    evidence: str
    operator: str
    actor: str
    released_at: ShownInstant


class HolderSent(Sent):
    """Who is about to execute: an id of its own, `hld_` and 26 random characters of Crockford's base 32, and a name."""

    id: str = Field(min_length=1, max_length=int(ID_CHARACTERS))
    name: str = Field(min_length=1, max_length=int(TEXT_CHARACTERS))


class ExitSent(Sent):
    """Why the holder stops."""

    reason: Reason = "stopped"


class HolderShown(Shown):
    """Who executes, or did. Without `exited_at` it may have requests under way, however long it has been silent."""

    id: str
    kind: Literal["worker", "remote"]
    name: str
    subject: str
    registered_at: ShownInstant
    exited_at: ShownInstant | None
    exit_reason: str | None


@api.get("/guards", response_model=PageShown[GuardShown], responses=fails(CursorMismatch))
async def list_guards(
    request: ApiRequest,
    limit: Limit = Default,
    cursor: Cursor = None,
    scope: _Scope = None,
    execution: _Execution = None,
    destination: _Destination = None,
    class_: _Class = None,
) -> Response:
    """Open guards, the oldest first."""
    wanted = Wanted(scope, execution, destination, class_)
    now = request.now
    found = await listing.list_guards(request.db, request.caller, now, page_of(limit, cursor), wanted)
    return page(found, lambda guard: guard.wire(now))


@api.get("/guards/summary", response_model=GuardsSummaryShown)
async def summarize_guards(request: ApiRequest) -> Response:
    """How many guards are open, by class, and since when the oldest is: what to watch, and to be woken by."""
    request.caller.demand("operate")
    return Answer(dict(await listing.count(request.db, request.now)))


@api.get("/guards/{token}", response_model=GuardShown, responses=fails(GuardUnknown))
async def show_guard(request: ApiRequest, token: Token) -> Response:
    """One open guard."""
    return Answer((await listing.show(request.db, request.caller, token)).wire(request.now))


@api.post(
    "/guards/{token}/reconcile",
    response_model=ReconciledShown,
    responses=fails(GuardUnknown, GuardReleased, ExecutionGuardHeld, ExecutionGuardEvidenceMismatch),
)
async def reconcile_guard(request: ApiRequest, token: Token, sent: ReconcileSent) -> Response:
    """Release a guard on evidence. It is written down for good who vouched for what; what the guard kept waiting goes on."""
    done = await reconcile.reconcile(request.db, request.caller, request.now, token, sent.evidence, sent.operator)
    told: JsonObject = {"released": True, "audit": done.audit}
    return Answer(told if done.receipt is None else {**told, "receipt": done.receipt})


@api.get("/holders", response_model=PageShown[HolderShown], responses=fails(CursorMismatch))
async def list_holders(request: ApiRequest, limit: Limit = Default, cursor: Cursor = None) -> Response:
    """Who executes and who did, in the order of their ids."""
    found = await listing.list_holders(request.db, request.caller, page_of(limit, cursor))
    return page(found, Holder.wire)


@api.post("/holders", status_code=201, response_model=HolderShown, responses=fails(IdempotencyConflict, HolderUnknown))
async def register_holder(request: ApiRequest, sent: HolderSent) -> Response:
    """Register oneself before one's first guard. Asked again it answers the same; one that has exited does not come back."""
    _demand_execute(request)
    made = await holders.register(request.db, request.caller, request.now, sent.id, sent.name)
    return Answer(made.wire(), 201)


@api.post("/holders/{holder}/exit", response_model=HolderShown, responses=fails(HolderUnknown))
async def exit_holder(request: ApiRequest, holder: HolderId, sent: ExitSent) -> Response:
    """Say that one has stopped and that nothing that one sent is under way: only the holder itself may, and nothing else
    says it."""
    _demand_execute(request)
    found = await holders.exit_(request.db, request.caller, request.now, holder, sent.reason)
    return Answer(found.wire())


@api.get("/audit", response_model=PageShown[AuditShown], responses=fails(CursorMismatch))
async def list_audit(request: ApiRequest, limit: Limit = Default, cursor: Cursor = None, token: _Token = None) -> Response:
    """What operators released, the oldest first. Nothing of it is ever changed."""
    found = await listing.list_audit(request.db, request.caller, page_of(limit, cursor), token)
    return page(found, Audit.wire)


def _demand_execute(request: ApiRequest) -> None:
    if not authority.executes_somewhere(request.caller):
        raise Forbidden("the credential does not grant execute on any body")

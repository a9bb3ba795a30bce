"""The catalog: kinds, credentials, senders, destinations, scopes."""

from typing import Any

from pydantic import Field
from starlette.responses import Response

from moorage.api.answers import Answer, nothing, page
from moorage.api.fields import (
    Cursor,
    Default,
    JsonObject,
    KindName,
    Limit,
    Name,
    PageShown,
    Shown,
    ShownInstant,
    fails,
    page_of,
)
from moorage.api.requests import ApiRequest
from moorage.api.routing import router
from moorage.catalog import destinations, scopes, senders
from moorage.catalog.access import Action
from moorage.catalog.declare import declare
from moorage.catalog.model import (
    CredentialDeclaration,
    DestinationDeclaration,
    KindDeclaration,
    Method,
    Scheme,
    ScopeDeclaration,
    SenderDeclaration,
)
from moorage.catalog.paths import PathType
from moorage.kernel.errors import (
    CredentialUnknown,
    CursorMismatch,
    DestinationUnknown,
    IdempotencyConflict,
    KindConflict,
    KindUnknown,
    PatternInvalid,
    ScopeConflict,
    ScopeUnknown,
    SenderUnknown,
)
from moorage.records.retention import look_after_declaring

api = router("catalog")


class RetryShown(Shown):
    """The delays after failed attempts."""

    delay_seconds: float
    factor: float
    max_delay_seconds: float


class ConcurrencyShown(Shown):
    """How many claimed records may share a value at a path."""

    path: str
    limit: int


class RateShown(Shown):
    """A token bucket."""

    per_second: float
    burst: int


class ClaimPolicyShown(Shown):
    """How records of the kind are claimed; a null bound is none."""

    lease_seconds: int
    max_attempts: int
    retry: RetryShown
    concurrency: ConcurrencyShown | None
    depth_limit: int | None
    ttl_seconds: int | None
    rate: RateShown | None


class KindShown(Shown):
    """A kind; `revision` counts the declarations that changed it."""

    kind: str
    revision: int
    paths: dict[str, PathType]
    json_schema: JsonObject | None = Field(alias="schema")
    claim: ClaimPolicyShown
    retention_seconds: int | None
    created_at: ShownInstant
    updated_at: ShownInstant
    created_by: str


class GrantShown(Shown):
    """Actions on kinds; no kinds means all of them."""

    actions: list[Action]
    kinds: list[str]
    match: JsonObject | None = None


class CredentialShown(Shown):
    """A credential, without its token."""

    id: str
    subject: str
    grants: list[GrantShown]
    created_at: ShownInstant
    created_by: str
    expires_at: ShownInstant | None
    revoked_at: ShownInstant | None
    public: bool
    origins: list[str] | None
    rate: RateShown | None


class CredentialMade(CredentialShown):
    """A new credential. The token is told here only."""

    token: str


class SenderEventShown(Shown):
    """How a sender's webhooks become events; null is as its scheme says."""

    id: str | None
    type: str | None
    keys: list[str]
    scope: str | None


class SenderShown(Shown):
    """A webhook sender; `secrets` is how many it has."""

    name: str
    scheme: Scheme
    subject: str
    tolerance_seconds: int
    secrets: int
    event: SenderEventShown | None
    created_at: ShownInstant
    updated_at: ShownInstant


class PolicyShown(Shown):
    """How deliveries are made to a destination."""

    concurrency: int
    ordered: bool
    max_attempts: int
    timeout_seconds: int


class DestinationShown(Shown):
    """An outbound destination; `secret` is the name of a binding, and `secret_bound` whether the deployment has it now."""

    name: str
    url: str
    methods: list[Method]
    secret: str | None
    secret_bound: bool | None
    dedup_window_seconds: int | None
    publication: bool
    delivery: PolicyShown
    created_at: ShownInstant
    updated_at: ShownInstant


class ScopeShown(Shown):
    """A scope."""

    id: str
    parent: str | None
    config: JsonObject
    created_at: ShownInstant
    updated_at: ShownInstant


@api.put("/kinds/{kind}", response_model=KindShown, responses=fails(KindConflict))
async def put_kind(request: ApiRequest, kind: KindName, sent: KindDeclaration) -> Response:
    """Declare a kind, or declare it again with more paths. A path may neither go nor change its type."""
    declared = await declare(request.db, request.caller, request.now, request.ports.kinds, kind, sent)
    request.wake(look_after_declaring(declared, request.now), "upkeep")
    return Answer(declared.answer())


@api.get("/kinds", response_model=PageShown[KindShown], responses=fails(CursorMismatch))
async def list_kinds(request: ApiRequest, limit: Limit = Default, cursor: Cursor = None) -> Response:
    """The kinds that the caller has some grant on, by name."""
    found = await request.ports.kinds.list_kinds(request.db, request.caller, page_of(limit, cursor))
    return page(found, lambda one: one.answer())


@api.get("/kinds/{kind}", response_model=KindShown, responses=fails(KindUnknown))
async def show_kind(request: ApiRequest, kind: KindName) -> Response:
    """One kind."""
    found = await request.ports.kinds.show(request.db, request.caller, request.now, kind)
    return Answer(found.answer())


@api.post(
    "/credentials",
    status_code=201,
    response_model=CredentialMade,
    responses=fails(PatternInvalid, IdempotencyConflict),
)
async def create_credential(request: ApiRequest, sent: CredentialDeclaration) -> Response:
    """Make a credential. Its token is answered once; under an Idempotency-Key, to the same bearer again."""
    made, token = await request.ports.credentials.create(
        request.db, request.caller, request.now, request.ports.kinds, sent, request.key()
    )
    return Answer({**made.answer(), "token": token}, 201)


@api.get("/credentials", response_model=PageShown[CredentialShown], responses=fails(CursorMismatch))
async def list_credentials(request: ApiRequest, limit: Limit = Default, cursor: Cursor = None) -> Response:
    """The credentials that the caller may see, oldest first, revoked ones too."""
    found = await request.ports.credentials.list_credentials(request.db, request.caller, page_of(limit, cursor))
    return page(found, lambda one: one.answer())


@api.get("/credentials/{id}", response_model=CredentialShown, responses=fails(CredentialUnknown))
async def show_credential(request: ApiRequest, id: Name) -> Response:  # noqa: A002 - the name in the path
    """One credential."""
    return Answer((await request.ports.credentials.show(request.db, request.caller, id)).answer())


@api.delete("/credentials/{id}", status_code=204, response_class=Response, responses=fails(CredentialUnknown))
async def revoke_credential(request: ApiRequest, id: Name) -> Response:  # noqa: A002 - the name in the path
    """Revoke a credential for good. Its writes stop at once, its reads within seconds."""
    await request.ports.credentials.revoke(request.db, request.caller, request.now, id)
    return nothing()


@api.put("/senders/{name}", response_model=SenderShown, responses=fails(ScopeUnknown))
async def put_sender(request: ApiRequest, name: Name, sent: SenderDeclaration) -> Response:
    """Declare a webhook sender, or declare it anew with other secrets. No answer ever holds a secret."""
    stored = await senders.put(request.db, request.caller, request.now, name, sent, request.ports.secret)
    return Answer(stored.answer())


@api.get("/senders", response_model=PageShown[SenderShown], responses=fails(CursorMismatch))
async def list_senders(request: ApiRequest, limit: Limit = Default, cursor: Cursor = None) -> Response:
    """The webhook senders, by name."""
    found = await senders.list_senders(request.db, request.caller, page_of(limit, cursor))
    return page(found, lambda one: one.answer())


@api.get("/senders/{name}", response_model=SenderShown, responses=fails(SenderUnknown))
async def show_sender(request: ApiRequest, name: Name) -> Response:
    """One webhook sender."""
    return Answer((await senders.show(request.db, request.caller, name)).answer())


@api.delete("/senders/{name}", status_code=204, response_class=Response, responses=fails(SenderUnknown))
async def delete_sender(request: ApiRequest, name: Name) -> Response:
    """Remove a webhook sender: its requests are refused from now on."""
    await senders.delete(request.db, request.caller, request.now, name)
    return nothing()


@api.put("/destinations/{name}", response_model=DestinationShown)
async def put_destination(request: ApiRequest, name: Name, sent: DestinationDeclaration) -> Response:
    """Declare an outbound destination, or declare it anew."""
    allow_local = request.ports.settings.allow_local
    stored = await destinations.put(request.db, request.caller, request.now, name, sent, allow_local=allow_local)
    return Answer(_destination(request, stored))


@api.get("/destinations", response_model=PageShown[DestinationShown], responses=fails(CursorMismatch))
async def list_destinations(request: ApiRequest, limit: Limit = Default, cursor: Cursor = None) -> Response:
    """The outbound destinations, by name."""
    found = await destinations.list_destinations(request.db, request.caller, page_of(limit, cursor))
    return page(found, lambda one: _destination(request, one))


@api.get("/destinations/{name}", response_model=DestinationShown, responses=fails(DestinationUnknown))
async def show_destination(request: ApiRequest, name: Name) -> Response:
    """One outbound destination."""
    return Answer(_destination(request, await destinations.show(request.db, request.caller, name)))


@api.put("/scopes/{id}", response_model=ScopeShown, responses=fails(ScopeConflict))
async def put_scope(request: ApiRequest, id: Name, sent: ScopeDeclaration) -> Response:  # noqa: A002 - as above
    """Declare a scope, or declare it anew. Its parent must exist, and scopes make no cycle."""
    return Answer((await scopes.put(request.db, request.caller, request.now, id, sent)).answer())


@api.get("/scopes", response_model=PageShown[ScopeShown], responses=fails(CursorMismatch))
async def list_scopes(request: ApiRequest, limit: Limit = Default, cursor: Cursor = None) -> Response:
    """The scopes, by id."""
    found = await scopes.list_scopes(request.db, request.caller, page_of(limit, cursor))
    return page(found, lambda one: one.answer())


@api.get("/scopes/{id}", response_model=ScopeShown, responses=fails(ScopeUnknown))
async def show_scope(request: ApiRequest, id: Name) -> Response:  # noqa: A002 - as above
    """One scope."""
    return Answer((await scopes.show(request.db, request.caller, id)).answer())


def _destination(request: ApiRequest, one: destinations.Destination) -> dict[str, Any]:
    return {**one.answer(), "secret_bound": one.secret_bound(request.ports.secret)}

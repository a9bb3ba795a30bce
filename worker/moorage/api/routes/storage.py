"""The storage for operators: whether database, bucket and deployment belong together, and binding them."""

from typing import Annotated, Any

from pydantic import Field
from starlette.responses import Response

from moorage.api.answers import Answer
from moorage.api.fields import Sent, Shown, ShownInstant, fails
from moorage.api.requests import ApiRequest
from moorage.api.routing import router
from moorage.kernel.errors import ExecutionRecoveryMismatch, StorageCapabilityMissing
from moorage.kernel.instants import render
from moorage.kernel.limits import ID_CHARACTERS
from moorage.store import inspection, recovery
from moorage.store.inspection import Finding
from moorage.store.ports import Frontiers
from moorage.store.recovery import Found

api = router("storage")


class FindingShown(Shown):
    """One thing that was looked at. `detail` says what was found, and where it is not well, what to do."""

    name: str
    ok: bool
    detail: str


class IdentityShown(Shown):
    """What the database is bound to."""

    identity: str
    project: str
    schema_number: int = Field(alias="schema")
    generation: int
    object_key: str
    created_at: ShownInstant
    updated_at: ShownInstant


class StorageShown(Shown):
    """How the storage stands. `ok` is true when work that has effects is admitted."""

    ok: bool
    project: str
    profile: str
    state: recovery.State | None = Field(description="How database and bucket stand to each other; null without a bucket.")
    identity: IdentityShown | None
    findings: list[FindingShown]
    rows: dict[str, int] = Field(description="Rows of the tables that hold what is under way.")


class InitializedShown(Shown):
    """`initialized` is false when all was bound already."""

    initialized: bool
    identity: IdentityShown


class InitializeSent(Sent):
    """`give_up` names the identity that shall count no longer, where storage that a restore left is to begin anew."""

    give_up: Annotated[str | None, Field(max_length=int(ID_CHARACTERS))] = None


@api.get("/storage", response_model=StorageShown)
async def show_storage(request: ApiRequest) -> Response:
    """Whether the storage is whole: bindings, schema, recovery identity, and the guards that are held. It takes a grant to
    operate on everything."""
    request.caller.demand("operate")
    ports = request.ports
    found = None if ports.frontiers is None else await recovery.look(request.db, ports.frontiers, ports.settings.project)
    rows = await inspection.rows(request.db)
    findings = inspection.findings(found, rows, ports.settings.profile, ports.settings.missing)
    return Answer(
        {
            "ok": all(one.ok for one in findings),
            "project": ports.settings.project,
            "profile": ports.settings.profile,
            "state": found and found.state,
            "identity": None if found is None else _identity(found),
            "findings": [_finding(one) for one in findings],
            "rows": rows,
        }
    )


@api.post(
    "/storage/initialize",
    response_model=InitializedShown,
    responses=fails(ExecutionRecoveryMismatch, StorageCapabilityMissing),
)
async def initialize_storage(request: ApiRequest, sent: InitializeSent) -> Response:
    """Bind database, bucket and project to one another, where they are bound to nothing. It may be asked again: what is
    bound stays as it is, and what an interrupted one left is finished. It takes a grant to operate on everything.

    A restore of half the storage is refused with ExecutionRecoveryMismatch, which says what `give_up` would have to name.
    """
    request.caller.demand("operate")
    ports = request.ports
    found, initialized = await recovery.initialize(
        request.db, _frontiers(request), request.now, ports.settings.project, sent.give_up
    )
    return Answer({"initialized": initialized, "identity": _identity(found)})


def _frontiers(request: ApiRequest) -> Frontiers:
    if request.ports.frontiers is None:
        raise StorageCapabilityMissing("the deployment has no binding BLOBS")
    return request.ports.frontiers


def _finding(one: Finding) -> dict[str, Any]:
    return {"name": one.name, "ok": one.ok, "detail": one.detail}


def _identity(found: Found) -> dict[str, Any] | None:
    row = found.identity
    if row is None:
        return None
    return {
        "identity": row.identity,
        "project": row.project,
        "schema": row.schema,
        "generation": row.generation,
        "object_key": row.object_key,
        "created_at": render(row.created_at),
        "updated_at": render(row.updated_at),
    }

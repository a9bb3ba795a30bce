"""Bodies: what can be run, where it runs, and under which build."""

from typing import Annotated, Literal

from fastapi import Path
from pydantic import Field
from starlette.responses import Response

from moorage.api.answers import Answer, nothing
from moorage.api.execution_shapes import BuildSent
from moorage.api.fields import Cursor, Default, JsonObject, Limit, PageShown, Sent, Shown, ShownInstant, fails, page_of
from moorage.api.operation_parts import Label
from moorage.api.requests import ApiRequest
from moorage.api.routing import router
from moorage.kernel.errors import BodyConflict, BodyUnknown, CursorMismatch
from moorage.kernel.limits import BODY_NAME_CHARACTERS, TEXT_CHARACTERS
from moorage.runs import authority, remote_bodies
from moorage.runs.model import BodyInfo
from moorage.runs.remote_bodies import body_wire

api = router("bodies")

BodyNamed = Annotated[str, Path(max_length=int(BODY_NAME_CHARACTERS), description="A body's name.")]


class BodySent(Sent):
    """A body that a host offers: what pins its executions, and what is told of it."""

    build: BuildSent
    effects: list[Label] = Field(default_factory=list, max_length=remote_bodies.MOST_EFFECTS)
    description: str = Field(default="", max_length=int(TEXT_CHARACTERS))
    input_schema: JsonObject | None = None
    result_schema: JsonObject | None = None


class BuildShown(Shown):
    """What executes a body, and one digest of it all."""

    body: str
    implementation: str
    dependencies: dict[str, str]
    configuration: str | None
    digest: str


class BodyShown(Shown):
    """A registered body. `effects` is the closed list of its labels; who offered it is told of one outside the Worker."""

    name: str
    host: Literal["worker", "remote"]
    build: BuildShown
    effects: list[str]
    description: str
    input_schema: JsonObject | None
    result_schema: JsonObject | None
    registered_by: str | None = None
    updated_at: ShownInstant | None = None


@api.get("/bodies", response_model=PageShown[BodyShown], responses=fails(CursorMismatch))
async def list_bodies(request: ApiRequest, limit: Limit = Default, cursor: Cursor = None) -> Response:
    """The bodies of which the caller may start or see runs: those of the Worker on the first page, then those that hosts
    outside it offer, by name."""
    found = await remote_bodies.list_bodies(request.db, request.caller, page_of(limit, cursor))
    own = [] if cursor is not None else [one for one in request.ports.bodies.infos() if _is_seen(request, one)]
    items = [body_wire(one) for one in own] + [one.wire() for one in found.items]
    return Answer({"items": items, "next_cursor": found.next_cursor})


@api.get("/bodies/{name}", response_model=BodyShown, responses=fails(BodyUnknown))
async def show_body(request: ApiRequest, name: BodyNamed) -> Response:
    """One body."""
    own = request.ports.bodies.get(name)
    if own is not None and _is_seen(request, own):
        return Answer(body_wire(own))
    return Answer((await remote_bodies.show(request.db, request.caller, name)).wire())


@api.put("/bodies/{name}", response_model=BodyShown, responses=fails(BodyConflict))
async def offer_body(request: ApiRequest, name: BodyNamed, sent: BodySent) -> Response:
    """Offer a body that a host outside the Worker executes, or offer it anew under another build. What is pending stays
    bound to the build under which it began."""
    info = BodyInfo(
        name=name,
        host="remote",
        build=sent.build.build(name),
        effects=sent.effects,
        description=sent.description,
        input_schema=sent.input_schema,
        result_schema=sent.result_schema,
    )
    taken = {one.name for one in request.ports.bodies.infos()}
    return Answer((await remote_bodies.register(request.db, request.caller, request.now, info, taken)).wire())


@api.delete("/bodies/{name}", status_code=204, response_class=Response, responses=fails(BodyUnknown))
async def withdraw_body(request: ApiRequest, name: BodyNamed) -> Response:
    """Offer a body no more. Nothing new can be started; what is pending stays, for hosts that have it."""
    await remote_bodies.remove(request.db, request.caller, request.now, name)
    return nothing()


def _is_seen(request: ApiRequest, info: BodyInfo) -> bool:
    return authority.sees(request.caller, info.name)

"""What the deployment is and can do: /health, /capabilities, /limits, /errors, /openapi.json, /docs."""

from typing import Any

from pydantic import Field
from starlette.responses import Response

import moorage
from moorage.api.answers import Answer
from moorage.api.fields import Shown, ShownInstant
from moorage.api.lateness import Seen
from moorage.api.requests import ApiRequest
from moorage.api.routing import opened, router
from moorage.kernel import errors, limits
from moorage.kernel.instants import Instant, render
from moorage.store.recovery import PROFILE
from moorage.store.schema import RECORD_FORMAT, SCHEMA
from moorage.timers.clock import Standing

api = router("system")


class HealthProblem(Shown):
    """Why requests are refused."""

    code: str
    detail: str


class ShardShown(Shown):
    """One part of the Clock. `lateness_seconds` is by how much its earliest item is overdue, `next_due` when that is or was
    due; `set_aside` counts, up to 1000, the items that failed and are tried again later."""

    lateness_seconds: float
    next_due: ShownInstant | None
    set_aside: int


class ClockHealthShown(Shown):
    """The Clock, which fires what is due."""

    shards: dict[str, ShardShown]


class OutboxHealthShown(Shown):
    """What is told to destinations: `lag_seconds` is the age of the oldest event that was not turned into deliveries yet."""

    lag_seconds: float


class HealthShown(Shown):
    """`ok` is false while requests would be refused; `problem` says why. Without `root_access` no root token is set. `clock`
    and `outbox` may be some seconds old, and are null while the database cannot tell."""

    ok: bool
    version: str
    profile: str
    runtime: str
    schema_number: int = Field(alias="schema", description="The number of the database schema that this version needs.")
    record_format: int
    root_access: bool
    problem: HealthProblem | None
    clock: ClockHealthShown | None
    outbox: OutboxHealthShown | None


class CapabilitiesShown(Shown):
    """What is there to be used."""

    version: str
    profile: str
    runtime: str
    database: bool
    blobs: bool
    test_clock: bool
    capabilities: list[str]


class LimitShown(Shown):
    """A bound, inclusive."""

    value: int
    unit: str
    meaning: str


class ErrorShown(Shown):
    """One error that an answer's `code` may name."""

    code: str
    status: int
    tag: errors.FailureTag
    retryable: bool
    meaning: str


class ErrorsShown(Shown):
    """Every error."""

    items: list[ErrorShown]


@api.get("/health", response_model=HealthShown, openapi_extra=opened("open"))
async def health(request: ApiRequest) -> Response:
    """Whether requests are served, and if not, why. Takes no credential and always answers 200."""
    ports = request.ports
    problem: dict[str, str] | None = None
    try:
        await ports.gate.pass_through(ports.database)
    except errors.DeploymentError as error:
        shown = error if isinstance(error, errors.ExecutionSchemaIncompatible) else type(error)()
        problem = {"code": shown.code, "detail": shown.detail}
    clock = None if problem else await ports.lateness.read(ports.database, request.now)
    return Answer(
        {
            "ok": problem is None,
            "version": moorage.__version__,
            "profile": PROFILE,
            "runtime": ports.settings.runtime,
            "schema": SCHEMA,
            "record_format": RECORD_FORMAT,
            "root_access": ports.settings.root_access,
            "problem": problem,
            "clock": None if clock is None else _clock(clock),
            "outbox": None if clock is None else {"lag_seconds": clock.outbox},
        }
    )


def _clock(seen: Seen) -> dict[str, Any]:
    return {"shards": {shard: _shard(standing, seen.at) for shard, standing in seen.shards.items()}}


def _shard(standing: Standing, now: Instant) -> dict[str, Any]:
    due = standing.next_due
    return {
        "lateness_seconds": standing.lateness(now) / 1000,
        "next_due": None if due is None else render(due),
        "set_aside": standing.set_aside,
    }


@api.get("/capabilities", response_model=CapabilitiesShown)
async def capabilities(request: ApiRequest) -> Response:
    """Which parts of the product this deployment has."""
    ports = request.ports
    return Answer(
        {
            "version": moorage.__version__,
            "profile": PROFILE,
            "runtime": ports.settings.runtime,
            "database": True,
            "blobs": ports.blobs is not None,
            "test_clock": ports.test_clock is not None,
            "capabilities": "records patterns claims dead-letters artifacts history awakeables senders".split(),
        }
    )


@api.get("/limits", response_model=dict[str, LimitShown])
async def limits_(request: ApiRequest) -> Response:
    """Every bound of the product, with its unit and meaning. A value equal to the bound is accepted."""
    return Answer(limits.published())


@api.get("/errors", response_model=ErrorsShown)
async def errors_(request: ApiRequest) -> Response:
    """Every error that an answer may carry, generated from the code that raises them."""
    return Answer({"items": errors.reference()})


@api.get("/openapi.json", response_model=dict[str, Any], openapi_extra=opened("open"))
async def openapi(request: ApiRequest) -> Response:
    """This interface as an OpenAPI document. Takes no credential: it holds nothing that the source does not."""
    return Response(request.exchange.document.text, media_type="application/json")


@api.get(
    "/docs",
    response_class=Response,
    responses={200: {"content": {"text/html": {"schema": {"type": "string"}}}}},
    openapi_extra=opened("open"),
)
async def docs(request: ApiRequest) -> Response:
    """This interface as a page to read. Takes no credential, and needs nothing from elsewhere."""
    return Response(request.exchange.document.page, media_type="text/html; charset=utf-8")

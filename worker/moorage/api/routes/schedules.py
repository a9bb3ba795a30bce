"""Schedules: start a body or publish a record again and again."""

from typing import Annotated, Any

from fastapi import Query
from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator
from starlette.responses import Response

from moorage.api.answers import Answer, nothing, page
from moorage.api.fields import (
    Cursor,
    Default,
    JsonObject,
    Limit,
    Name,
    PageShown,
    Sent,
    SentInstant,
    Shown,
    ShownInstant,
    fails,
    page_of,
)
from moorage.api.operation_parts import BodyName, ScopeName
from moorage.api.requests import ApiRequest
from moorage.api.routes.timers import FailingShown
from moorage.api.routing import router
from moorage.journal.wake import REPAIR_MS
from moorage.kernel.errors import (
    BlobBusy,
    BodyInvalid,
    BodyUnknown,
    CursorMismatch,
    ExecutionRecoveryMismatch,
    IdempotencyConflict,
    InputInvalid,
    KindConflict,
    KindUnknown,
    MoorageError,
    RunMetadataTooLarge,
    ScheduleConflict,
    ScheduleUnknown,
    StorageCapabilityMissing,
)
from moorage.kernel.instants import Instant, parse
from moorage.kernel.limits import (
    CATCH_UP_SECONDS,
    EVERY_SECONDS,
    ID_CHARACTERS,
    RECORD_PRIORITY,
    SCHEDULE_PREVIEW,
)
from moorage.schedules import declare, manual, preview
from moorage.schedules.model import BodyTarget, CatchUp, Declaration, Overlap, RecordTarget, Schedule, State, Target
from moorage.schedules.starting import Means

api = router("schedules")

_COUNT = 10
_DECLARING = (
    ScheduleUnknown,
    ScheduleConflict,
    BodyUnknown,
    InputInvalid,
    KindUnknown,
    BodyInvalid,
    RunMetadataTooLarge,
)
_CHANGING: tuple[type[MoorageError], ...] = (ScheduleUnknown, ScheduleConflict)


class CadenceSent(Sent):
    """When windows begin: by a cron expression of five fields (six with seconds before them) in a time zone, or every so
    many seconds from the declaration on."""

    cron: Annotated[str, Field(min_length=1, max_length=int(ID_CHARACTERS))] | None = None
    every_seconds: Annotated[float, Field(ge=1, le=int(EVERY_SECONDS))] | None = None
    timezone: str = Field(default="UTC", description="A zone of the IANA database.")

    @property
    def every_ms(self) -> int | None:
        """The interval in milliseconds."""
        return None if self.every_seconds is None else round(self.every_seconds * 1000)


class ScheduledRecordSent(Sent):
    """The record that each window publishes."""

    kind: str
    body: JsonObject
    metadata: JsonObject = Field(default_factory=dict)
    priority: int = Field(default=0, ge=-int(RECORD_PRIORITY), le=int(RECORD_PRIORITY))


class BodyTargetSent(Sent):
    """The run that each window starts."""

    body: BodyName
    input: Any = None
    scope: ScopeName | None = None

    def target(self) -> Target:
        """What the room takes."""
        return BodyTarget(self.body, self.input, self.scope)


class RecordTargetSent(Sent):
    """The record that each window publishes."""

    record: ScheduledRecordSent

    def target(self) -> Target:
        """What the room takes."""
        told = self.record
        return RecordTarget(told.kind, told.body, told.metadata, told.priority)


def _of_its_field(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Read a target as what its field says it is, so that what is wrong with it is told by the path that it has."""
    if isinstance(value, dict):
        return (RecordTargetSent if "record" in value else BodyTargetSent).model_validate(value)
    return handler(value)


TargetSent = Annotated[BodyTargetSent | RecordTargetSent, WrapValidator(_of_its_field)]


class ScheduleSent(CadenceSent):
    """A schedule. Its windows start a run or publish a record, as whoever declares it.

    `overlap` is what becomes of a window while what the one before started has not ended. `catch_up` says which windows that
    were missed still come, unless they are older than `catch_up_seconds`.
    """

    overlap: Overlap = "skip"
    catch_up: CatchUp = "last"
    catch_up_seconds: float = Field(default=86400, ge=0, le=int(CATCH_UP_SECONDS))
    target: TargetSent
    paused: bool = False

    def declaration(self) -> Declaration:
        """What the room takes."""
        return Declaration(
            self.cron,
            self.every_ms,
            self.timezone,
            self.overlap,
            self.catch_up,
            round(self.catch_up_seconds * 1000),
            self.target.target(),
            self.paused,
        )


class PreviewSent(CadenceSent):
    """A cadence to look at, past `after`, now unless it is given; the other fields of a declaration may be there too."""

    count: int = Field(default=_COUNT, ge=1, le=int(SCHEDULE_PREVIEW))
    after: SentInstant | None = None
    overlap: Overlap = "skip"
    catch_up: CatchUp = "last"
    catch_up_seconds: float = Field(default=86400, ge=0, le=int(CATCH_UP_SECONDS))
    target: TargetSent | None = None
    paused: bool = False


class BackfillSent(Sent):
    """A past range: windows that began from `start` on and before `end`."""

    start: SentInstant
    end: SentInstant


class CurrentShown(Shown):
    """What the schedule started last, and whether that has ended."""

    trigger_id: str
    ended: bool
    run_id: str | None
    record: str | None


class ScheduleShown(Shown):
    """A schedule. `next_at` is null while it is paused; `queued` windows wait for their turn. `failing` is null unless the
    Clock could not see to a window that has begun."""

    name: str
    cron: str | None = None
    every_seconds: float | None = None
    timezone: str
    overlap: Overlap
    catch_up: CatchUp
    catch_up_seconds: float
    target: JsonObject
    paused: bool
    next_at: ShownInstant | None
    current: CurrentShown | None
    queued: int
    created_by: str
    created_at: ShownInstant
    updated_at: ShownInstant
    failing: FailingShown | None = None


class WindowShown(Shown):
    """A window that is to come; `local` is its start as clocks in the zone show it."""

    window_start: ShownInstant
    window_end: ShownInstant
    local: str
    trigger_id: str | None = None


class WindowsShown(Shown):
    """Windows in order; fewer than asked for where no more come."""

    items: list[WindowShown]


class TriggerShown(Shown):
    """What became of a window. `trigger_id` is the same for ever. `error` has the `code` of what kept it from starting, or
    the `reason` why it was skipped."""

    trigger_id: str
    schedule: str
    window_start: ShownInstant
    window_end: ShownInstant
    state: State
    run_id: str | None
    record: str | None
    backfill: bool
    created_at: ShownInstant
    started_at: ShownInstant | None
    error: JsonObject | None


class BackfilledShown(Shown):
    """How many windows the range has, and how many of them wait for their turn now."""

    windows: int
    queued: int


_CREATED: dict[int | str, dict[str, Any]] = {
    201: {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/ScheduleShown"}}}}
}
_AGAIN: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/TriggerShown"}}}}
}


def means(request: ApiRequest) -> Means:
    """What starting takes, as this deployment has it."""
    ports = request.ports
    return Means(ports.kinds, ports.bodies, ports.blobs, ports.settings.runners)


def _wake(request: ApiRequest, schedule: Schedule) -> None:
    """Tell the Clock of its next window, or that what waits may have its turn now."""
    request.wake(request.now if schedule.queued and not schedule.paused else schedule.next_at, "time")


@api.put("/schedules/{name}", response_model=ScheduleShown, responses=_CREATED | fails(*_DECLARING, KindConflict))
async def put_schedule(request: ApiRequest, name: Name, sent: ScheduleSent) -> Response:
    """Declare a schedule, or declare it anew. It acts as the caller. The same declaration again changes nothing; another
    cadence counts from now."""
    stored, new = await declare.put(request.db, means(request), request.caller, request.now, name, sent.declaration())
    _wake(request, stored)
    return Answer(stored.answer(), 201 if new else 200)


@api.get("/schedules", response_model=PageShown[ScheduleShown], responses=fails(CursorMismatch))
async def list_schedules(request: ApiRequest, limit: Limit = Default, cursor: Cursor = None) -> Response:
    """The schedules that the caller may see, by name. A page may be short and have a next cursor."""
    found = await declare.list_schedules(request.db, request.caller, request.now, page_of(limit, cursor))
    return page(found, lambda one: one.answer())


@api.post("/schedules/preview", response_model=WindowsShown)
async def preview_schedule(request: ApiRequest, sent: PreviewSent) -> Response:
    """The windows that a schedule would have; nothing is stored."""
    now = request.now
    found = preview.of_declaration(now, sent.cron, sent.every_ms, sent.timezone, sent.after, sent.count)
    return Answer({"items": found})


@api.get("/schedules/{name}", response_model=ScheduleShown, responses=fails(ScheduleUnknown))
async def show_schedule(request: ApiRequest, name: Name) -> Response:
    """One schedule."""
    return Answer((await declare.show(request.db, request.caller, request.now, name)).answer())


@api.delete("/schedules/{name}", status_code=204, responses=fails(*_CHANGING, IdempotencyConflict))
async def delete_schedule(request: ApiRequest, name: Name) -> Response:
    """Delete a schedule. What it started goes on; what waited does not. Under the same name later no window comes twice."""
    await declare.delete(request.db, request.caller, request.now, name, request.key({}))
    return nothing()


@api.post("/schedules/{name}/pause", response_model=ScheduleShown, responses=fails(*_CHANGING))
async def pause_schedule(request: ApiRequest, name: Name) -> Response:
    """Pause a schedule: its windows pass, and those that wait go on waiting."""
    return Answer((await declare.set_paused(request.db, request.caller, request.now, name, True)).answer())


@api.post("/schedules/{name}/resume", response_model=ScheduleShown, responses=fails(*_CHANGING))
async def resume_schedule(request: ApiRequest, name: Name) -> Response:
    """Let a paused schedule go on, from the next window on."""
    stored = await declare.set_paused(request.db, request.caller, request.now, name, False)
    _wake(request, stored)
    return Answer(stored.answer())


@api.post(
    "/schedules/{name}/trigger",
    status_code=201,
    response_model=TriggerShown,
    responses=_AGAIN
    | fails(*_CHANGING, KindConflict, IdempotencyConflict, BlobBusy, ExecutionRecoveryMismatch, StorageCapabilityMissing),
)
async def trigger_schedule(request: ApiRequest, name: Name) -> Response:
    """Let a window come now, paused or not; its start is this instant, and the overlap policy holds for it."""
    await request.ports.admit_effects()
    made, new = await manual.trigger(request.db, means(request), request.caller, request.now, name, request.key({}))
    if made.run_id is not None:
        request.wake(Instant(request.now + REPAIR_MS), "runs")
    if made.state == "queued":
        request.wake(request.now, "time")
    return Answer(made.answer(), 201 if new else 200)


@api.post(
    "/schedules/{name}/backfill",
    status_code=202,
    response_model=BackfilledShown,
    responses=fails(*_CHANGING, IdempotencyConflict),
)
async def backfill_schedule(request: ApiRequest, name: Name, sent: BackfillSent) -> Response:
    """Let the windows of a past range come that started nothing yet, in order and one after the other."""
    windows, queued = await manual.backfill(
        request.db, request.caller, request.now, name, sent.start, sent.end, request.key()
    )
    request.wake(request.now if queued else None, "time")
    return Answer({"windows": windows, "queued": queued}, 202)


@api.get("/schedules/{name}/next", response_model=WindowsShown, responses=fails(ScheduleUnknown))
async def next_windows(
    request: ApiRequest,
    name: Name,
    count: Annotated[int, Query(ge=1, le=int(SCHEDULE_PREVIEW), description="How many windows.")] = _COUNT,
    after: Annotated[
        str | None,
        Query(max_length=40, description="Windows that begin after this RFC 3339 instant, now unless it is given."),
    ] = None,
) -> Response:
    """The windows that are to come, as if the schedule were not paused."""
    past = None if after is None else parse(after)
    return Answer({"items": await preview.of_schedule(request.db, request.caller, request.now, name, past, count)})


@api.get(
    "/schedules/{name}/triggers",
    response_model=PageShown[TriggerShown],
    responses=fails(ScheduleUnknown, CursorMismatch),
)
async def list_triggers(request: ApiRequest, name: Name, limit: Limit = Default, cursor: Cursor = None) -> Response:
    """What became of the schedule's windows, the latest window first."""
    found = await declare.list_triggers(request.db, request.caller, request.now, name, page_of(limit, cursor))
    return page(found, lambda one: one.answer())

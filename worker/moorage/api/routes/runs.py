"""Runs: start a body, see how it goes, stop it, run it again."""

import logging
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Path, Query
from starlette.responses import Response

from moorage.api.answers import Answer, Lines
from moorage.api.bodies import any_body, check_again, check_input, find_body
from moorage.api.ending import once_ended
from moorage.api.execution_shapes import OpenSent
from moorage.api.fields import Cursor, fails
from moorage.api.requests import ApiRequest
from moorage.api.routing import router
from moorage.api.run_shapes import (
    RestartSent,
    RunSent,
    RunShown,
    RunsShown,
    StartedShown,
    StepsShown,
    StoppedShown,
    StopSent,
)
from moorage.journal.model import Value
from moorage.kernel import canonical
from moorage.kernel.errors import (
    BlobCorrupt,
    BlobMissing,
    BodyUnknown,
    CancelTargetNotInFlight,
    CancelUnauthorized,
    CorrelationConflict,
    CursorMismatch,
    DestinationUnknown,
    EffectUnsettled,
    EntryUnknown,
    ExecutionBusy,
    ExecutionGuardBlocked,
    ExecutionPinMismatch,
    ExecutionRecoveryMismatch,
    ExecutionRewindUnsafe,
    ExecutionUnknown,
    HistoryBoundSpelling,
    IdempotencyConflict,
    InputInvalid,
    MoorageError,
    RunJournalRetired,
    RunMetadataTooLarge,
    RunUnknown,
    StorageCapabilityMissing,
)
from moorage.kernel.limits import (
    BODY_NAME_CHARACTERS,
    EXPORT_ITEMS,
    ID_CHARACTERS,
    RUNS_ITEMS,
    SCOPE_CHARACTERS,
    WAIT_SECONDS,
)
from moorage.runs import admission, listing, record, restart, stop
from moorage.runs.admission import Admitted, Start
from moorage.runs.export import export
from moorage.runs.listing import Wanted
from moorage.runs.model import Status
from moorage.runs.tracing_context import trace_of

api = router("runs")

RunId = Annotated[str, Path(max_length=int(ID_CHARACTERS), description="A run's id.")]
_Body = Annotated[str | None, Query(max_length=int(BODY_NAME_CHARACTERS), description="Only runs of this body.")]
_Since = Annotated[
    str | None,
    Query(
        max_length=40, description="Only runs that started then or later: YYYY-MM-DD, or an RFC 3339 instant that ends in Z."
    ),
]
_StatusOnly = Annotated[Status | None, Query(description="Only runs with this status.")]
WaitSeconds = Annotated[
    float, Query(ge=0, le=int(WAIT_SECONDS), allow_inf_nan=False, description="How long to wait for the run's end.")
]
_MOST = 10**9

_log = logging.getLogger("moorage.api")

OPENING = (
    BodyUnknown,
    InputInvalid,
    RunMetadataTooLarge,
    ExecutionBusy,
    ExecutionPinMismatch,
    ExecutionGuardBlocked,
    ExecutionUnknown,
    ExecutionRecoveryMismatch,
    StorageCapabilityMissing,
    IdempotencyConflict,
)
"""What opening an execution may raise."""

_NDJSON: dict[int | str, dict[str, Any]] = {200: {"content": {"application/x-ndjson": {"schema": {"type": "string"}}}}}
_ANY: dict[int | str, dict[str, Any]] = {200: {"content": {"application/json": {"schema": {}}}}}
_AGAIN: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/StartedShown"}}}}
}


@api.post(
    "/runs",
    status_code=202,
    response_model=StartedShown,
    responses=_AGAIN | fails(*OPENING, DestinationUnknown, CorrelationConflict),
)
async def start_run(request: ApiRequest, sent: RunSent, wait_seconds: WaitSeconds = 0) -> Response:
    """Start a run of a body. The answer refers to a row that is there already; `Location` is where the run is to be seen.

    Under a scope whose execution is pending the new run goes on with it: with its pins, its input, and what was recorded.
    When it is held, or bound to something else, the answer is 409, and a run that has failed says so. The same
    Idempotency-Key with the same content is the same run: 200 with its status.

    With `wait_seconds` the answer comes as soon as the run has ended, or with its state after that time, and shows the run.
    """
    await request.ports.admit_effects()
    info = await find_body(request, sent.body)
    check_input(request, info, sent.input)
    ports = request.ports
    admitted = await admission.admit(
        request.db,
        ports.blobs,
        request.caller,
        request.now,
        info,
        await start_of(request, sent),
        request.key(),
        shards=ports.settings.runners,
    )
    _hand_over(request, admitted)
    return _started(admitted, await _awaited(request, admitted, wait_seconds) if wait_seconds else None)


async def _awaited(request: ApiRequest, admitted: Admitted, seconds: float) -> record.Run | None:
    """The run that was admitted, once it has ended or after `seconds`. It was admitted, whatever becomes of the waiting."""
    try:
        return await once_ended(request, admitted.run_id, admitted.runner, seconds)
    except MoorageError as error:
        _log.warning("a run that was started could not be shown: %s", error.code)
        return None


async def start_of(request: ApiRequest, sent: RunSent | OpenSent) -> Start:
    """What is to be opened, as the caller, in its trace, under the configuration of its scope."""
    configuration = await request.ports.configurations.of(request.db, request.now, sent.scope)
    return Start(
        scope=sent.scope,
        input=Value.of(canonical.dumps(sent.input)),
        subject=request.caller.subject,
        credential=request.caller.credential,
        trace=trace_of(request.headers.get("traceparent"), request.headers.get("tracestate")),
        metadata=sent.metadata,
        config=configuration.values,
        retry=None if sent.retry is None else sent.retry.model_dump(),
        config_revision=configuration.revision,
        notify=tuple(sent.notify) if isinstance(sent, RunSent) else (),
        correlations=tuple(one.key() for one in sent.correlations) if isinstance(sent, RunSent) else (),
    )


def _hand_over(request: ApiRequest, admitted: Admitted) -> None:
    """Hand a run that was admitted over to its Runner, and tell the Clock to make sure."""
    if admitted.execution is not None:
        request.ports.runners.start(admitted.execution)
    request.wake(admitted.due, "runs")


def _started(admitted: Admitted, run: record.Run | None = None) -> Response:
    """The answer that a run was admitted, and how it stands where that was waited for."""
    shown: dict[str, Any] = {
        "run_id": admitted.run_id,
        "execution_id": admitted.execution_id,
        "status": admitted.status if run is None else run.status,
    }
    if run is not None:
        shown["run"] = run.wire()
    return Answer(shown, 200 if admitted.due is None else 202, {"location": f"/runs/{admitted.run_id}"})


@api.get("/runs", response_model=RunsShown, responses=fails(CursorMismatch, HistoryBoundSpelling))
async def list_runs(
    request: ApiRequest,
    body: _Body = None,
    scope: Annotated[
        str | None, Query(max_length=int(SCOPE_CHARACTERS), description="Only runs of exactly this scope.")
    ] = None,
    status: _StatusOnly = None,
    since: _Since = None,
    limit: Annotated[
        int | None, Query(ge=1, le=_MOST, description=f"Runs of a page: 5 unless it is given, and {RUNS_ITEMS} at most.")
    ] = None,
    cursor: Cursor = None,
) -> Response:
    """The runs that the caller may see: those that it started, and those of bodies on which it may read, execute or
    operate. Newest first, in a window that the answer repeats."""
    page = listing.page_request(limit, cursor)
    found = await listing.list_runs(request.db, request.caller, _wanted(body, scope, status, since), page)
    return Answer(found.wire())


@api.get("/runs/export", responses=_NDJSON | fails(HistoryBoundSpelling))
async def export_runs(
    request: ApiRequest,
    body: _Body = None,
    status: _StatusOnly = None,
    since: _Since = None,
    limit: Annotated[
        int | None,
        Query(ge=1, le=_MOST, description=f"Runs at most: 500 unless it is given, and never over {EXPORT_ITEMS}."),
    ] = None,
) -> Response:
    """The same as lines of JSON: the first tells the window, how many runs follow, and whether there were more."""
    wanted = _wanted(body, None, status, since)
    lines = export(request.db, request.caller, request.now, wanted, limit)
    first = await anext(lines)
    return Lines(_encoded(first, lines))


@api.get("/runs/{run_id}", response_model=RunShown, responses=fails(RunUnknown, BlobMissing, BlobCorrupt))
async def show_run(request: ApiRequest, run_id: RunId, wait_seconds: WaitSeconds = 0) -> Response:
    """One run, with its result once it succeeded. With `wait_seconds` the answer comes as soon as it has ended, or with its
    state after that time."""
    shown = await record.show(request.db, request.ports.blobs, request.caller, run_id)
    if wait_seconds and not shown.has_ended:
        shown = await once_ended(request, run_id, shown.runner, wait_seconds)
    return Answer(shown.wire())


@api.get("/runs/{run_id}/steps", response_model=StepsShown, responses=fails(RunUnknown))
async def list_steps(request: ApiRequest, run_id: RunId) -> Response:
    """The steps of a run, what they recorded by reference alone."""
    return Answer((await record.steps(request.db, request.caller, run_id)).wire())


@api.get(
    "/runs/{run_id}/steps/output",
    responses=_ANY | fails(RunUnknown, EntryUnknown, RunJournalRetired, BlobMissing, BlobCorrupt),
)
async def show_output(
    request: ApiRequest,
    run_id: RunId,
    ref: Annotated[str, Query(max_length=2 * int(ID_CHARACTERS), description="The reference of the step's output.")],
) -> Response:
    """What a step recorded, as long as the journal of its execution lives. It takes a grant to read, or to operate on, the
    body, or having started the run."""
    value = await record.output(request.db, request.ports.blobs, request.caller, run_id, ref)
    return Response(value.text, media_type="application/json")


@api.post(
    "/runs/{run_id}/stop",
    response_model=StoppedShown,
    responses=fails(RunUnknown, CancelUnauthorized, CancelTargetNotInFlight),
)
async def stop_run(request: ApiRequest, run_id: RunId, sent: StopSent) -> Response:
    """Ask that a run stop, or every run in flight under its scope and below it; the answer names them.

    A run stops between two steps, and only then it is canceled; what its effects have begun stays as it is. Asking again
    overwrites what was asked before.
    """
    stopped = await stop.stop(request.db, request.caller, request.now, run_id, sent.scope, sent.reason)
    return Answer({"run_ids": stopped})


@api.post(
    "/runs/{run_id}/restart",
    status_code=202,
    response_model=StartedShown,
    responses=_AGAIN
    | fails(
        RunUnknown,
        RunJournalRetired,
        EntryUnknown,
        ExecutionRewindUnsafe,
        ExecutionGuardBlocked,
        EffectUnsettled,
        BodyUnknown,
        InputInvalid,
        BlobMissing,
        BlobCorrupt,
        ExecutionRecoveryMismatch,
        StorageCapabilityMissing,
        IdempotencyConflict,
    ),
)
async def restart_run(request: ApiRequest, run_id: RunId, sent: RestartSent) -> Response:
    """Run again, in a fresh execution under the build that is registered now, from what an earlier run recorded before
    `from_step`. It takes grants to execute and to operate on the body. Where that build does not take the old input nothing
    is given up."""
    await request.ports.admit_effects()
    trace = trace_of(request.headers.get("traceparent"), request.headers.get("tracestate"))
    admitted = await restart.restart(
        request.db,
        request.ports.blobs,
        request.caller,
        request.now,
        run_id,
        lambda name: any_body(request, name),
        trace,
        sent.reason,
        sent.from_step,
        request.key(),
        check=lambda info, value: check_again(request, info, value),
        shards=request.ports.settings.runners,
    )
    _hand_over(request, admitted)
    return _started(admitted)


def _wanted(body: str | None, scope: str | None, status: Status | None, since: str | None) -> Wanted:
    return Wanted(body, scope, status, None if since is None else listing.bound(since))


async def _encoded(first: str, lines: AsyncIterator[str]) -> AsyncIterator[bytes]:
    yield first.encode()
    async for line in lines:
        yield line.encode()

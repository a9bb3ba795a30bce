"""Watching a run: a socket, or server-sent events (clause runs.stream)."""

from typing import Annotated, Any, Literal

from fastapi import Path, Query
from starlette.responses import Response

from moorage.api.answers import nothing
from moorage.api.fields import JsonObject, Shown, ShownInstant, fails
from moorage.api.handed import SWITCHING, FeedAnswer, SocketAnswer, wants_socket
from moorage.api.lives import Watching
from moorage.api.requests import ApiRequest
from moorage.api.routing import opened, router
from moorage.journal.model import Kind
from moorage.kernel.errors import CapabilityUnwired, RequestInvalid, RunUnknown
from moorage.kernel.limits import WATCH_SECONDS
from moorage.kernel.refusals import refused
from moorage.runs.live.model import Version, version_of
from moorage.runs.live.record import runner_of_visible
from moorage.runs.live.watching import resumed
from moorage.runs.model import Status
from moorage.runs.observing import StepStatus

api = router("runs")

_MAX = int(WATCH_SECONDS)


class VersionShown(Shown):
    """Where a view stands. Versions compare by `epoch`, then by `counter`; what is not past the highest that you hold is
    old news."""

    epoch: int
    counter: int


class OutputShown(Shown):
    """A step's output by reference: whoever may have it asks for it at the run's steps."""

    ref: str
    bytes: int


class StepViewShown(Shown):
    """A step of the view, whole; it replaces the step with the same `label` and `input_sha256`."""

    label: str
    input_sha256: str
    kind: Kind
    position: str
    status: StepStatus
    attempt: int
    started_at: ShownInstant | None
    ended_at: ShownInstant | None
    next_attempt_at: ShownInstant | None
    output: OutputShown | None
    ref: str | None
    error: JsonObject | None


class RunMessage(Shown):
    """A message of the view. A `snapshot` has every step, an `update` those that changed; the run's members are always all
    there. Nothing follows one whose `status` is an end."""

    type: Literal["snapshot", "update"]
    version: VersionShown
    run_id: str
    execution_id: str
    body: str
    scope: str
    status: Status
    attempt: int
    started_at: ShownInstant
    ended_at: ShownInstant | None
    next_attempt_at: ShownInstant | None
    awaiting: list[JsonObject]
    error: JsonObject | None
    metadata: JsonObject
    result_bytes: int | None
    host: Literal["worker", "remote"]
    steps: list[StepViewShown]


_TEXT: dict[str, Any] = {"type": "string"}
_EVENT: dict[str, Any] = {
    "type": "object",
    "description": "One event of the stream; `data` is the message as JSON.",
    "properties": {"id": _TEXT, "event": _TEXT, "data": _TEXT},
    "required": ["data"],
}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    SWITCHING: {"description": "The request asked for a socket; each message is one text frame."},
    200: {"content": {"text/event-stream": {"schema": _EVENT}}},
    204: {"description": "Last-Event-ID is that of a run's last message: there is nothing more."},
}


@api.get(
    "/runs/{run_id}/stream",
    response_model=RunMessage,
    responses=_ANSWERS | fails(RunUnknown, CapabilityUnwired),
    openapi_extra=opened("stream"),
)
async def stream(
    request: ApiRequest,
    run_id: Annotated[str, Path(description="A run's id.")],
    after: Annotated[
        str | None,
        Query(
            pattern=r"^[0-9]{1,15}\.[0-9]{1,15}$", description="A version, `epoch.counter`: only what follows it, if known."
        ),
    ] = None,
    max_seconds: Annotated[float, Query(gt=0, le=_MAX, description="When the stream ends, to be opened again.")] = _MAX,
) -> Response:
    """A run and its steps as they change: first a snapshot, then updates in order, ten a second at most, to the run's end.

    With `Upgrade: websocket` each message is a text frame. The socket closes with 1000 after the message that tells of the
    run's end, with 1001 after `max_seconds`, with 1013 when nothing was read for a minute, and with 1008 when the credential
    may see the run no more or when the client sends anything: a socket only reads. After 15 seconds without news there is a
    message `{"type":"ping","version":…}`.

    Otherwise the messages are events: `id` is the version, `event` the message's type. The stream ends after the run does,
    or after `max_seconds`; a client connects again with `Last-Event-ID`, which supersedes `after`, and goes on where it was,
    or from a new snapshot. An `id` that ends in `.end` is that of the last message: with it the answer is 204, which lets an
    EventSource rest. An event `problem` says why a stream ends for good. A client that is too slow gets a new snapshot.
    """
    at = _version(request, after)
    runner = await runner_of_visible(request.db, request.caller, run_id)
    if at == "ended":
        return nothing()
    watching = Watching(run_id, runner, at, request.caller.credential, max_seconds)
    if wants_socket(request):
        return SocketAnswer(await request.ports.lives.socket(watching))
    return FeedAnswer(None if request.is_head else await request.ports.lives.events(watching))


def _version(request: ApiRequest, after: str | None) -> Version | Literal["ended"] | None:
    """Where the client stands. Raises RequestInvalid for a Last-Event-ID that is none of ours."""
    told = request.headers.get("last-event-id")
    if told is None:
        return None if after is None else version_of(after)
    found = resumed(told)
    if found is None:
        raise _invalid()
    return found


def _invalid() -> RequestInvalid:
    pointer, message = "/header/last-event-id", "must be the id of an event of this stream"
    return refused(pointer, message, f"{pointer}: {message}")

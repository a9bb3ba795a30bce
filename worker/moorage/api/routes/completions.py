"""Completions: to whom the end of one run is told (clause completion.subscribe)."""

from typing import Annotated

from fastapi import Path
from starlette.responses import Response

from moorage.api.answers import Answer
from moorage.api.fields import Shown, ShownInstant, fails
from moorage.api.requests import ApiRequest
from moorage.api.routes.runs import RunId
from moorage.api.routing import router
from moorage.kernel.errors import DestinationUnknown, RunUnknown
from moorage.kernel.limits import ID_CHARACTERS
from moorage.runs import notify

api = router("runs")

DestinationName = Annotated[str, Path(max_length=int(ID_CHARACTERS), description="A destination's name.")]


class CompletionShown(Shown):
    """That the run's end is told to a destination, since when, and who asked."""

    destination: str
    created_at: ShownInstant
    created_by: str


class CompletionsShown(Shown):
    """To whom a run's end is told, by name."""

    items: list[CompletionShown]


@api.get("/runs/{run_id}/notify", response_model=CompletionsShown, responses=fails(RunUnknown))
async def list_completions(request: ApiRequest, run_id: RunId) -> Response:
    """To whom the run's end is told."""
    found = await notify.listed(request.db, request.caller, run_id)
    return Answer({"items": [one.answer() for one in found]})


@api.put(
    "/runs/{run_id}/notify/{destination}",
    response_model=CompletionShown,
    responses=fails(RunUnknown, DestinationUnknown),
)
async def put_completion(request: ApiRequest, run_id: RunId, destination: DestinationName) -> Response:
    """Have the run's end told to a destination that an operator declared, once; at once when the run has ended already. What
    is told names the run and how it ended; the result is read there. It takes a grant to execute the body."""
    project = request.ports.settings.project
    asked = await notify.ask(request.db, request.caller, request.now, run_id, destination, project)
    request.wake(request.now, "messages")
    return Answer(asked.answer())

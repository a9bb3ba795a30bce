"""Jobs: what runs and tasks have in common."""

from typing import Annotated

from fastapi import Path
from starlette.responses import Response

from moorage.api.answers import Answer
from moorage.api.fields import fails
from moorage.api.requests import ApiRequest
from moorage.api.routing import router
from moorage.api.run_shapes import JobShown
from moorage.kernel.errors import RunUnknown
from moorage.kernel.limits import ID_CHARACTERS
from moorage.runs import record

api = router("jobs")

JobId = Annotated[str, Path(max_length=int(ID_CHARACTERS), description="A run's id.")]


@api.get("/jobs/{job}", response_model=JobShown, responses=fails(RunUnknown))
async def show_job(request: ApiRequest, job: JobId) -> Response:
    """How a run stands, in six words: what ended well names its result, and what failed the code of its error."""
    return Answer(await record.job(request.db, request.caller, job))

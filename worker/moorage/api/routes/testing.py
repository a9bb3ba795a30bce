"""The test clock. These routes exist only where `MOORAGE_TEST_CLOCK=1`."""

from pydantic import Field
from starlette.responses import Response

from moorage.api.answers import Answer
from moorage.api.fields import Sent, Shown, ShownInstant
from moorage.api.ports import TestClock
from moorage.api.requests import ApiRequest
from moorage.api.routing import router
from moorage.kernel.errors import StorageCapabilityMissing
from moorage.kernel.instants import render

api = router("testing")

_CENTURY = 100 * 366 * 86400


class ClockShown(Shown):
    """The product's now, and how far it is ahead of real time."""

    now: ShownInstant
    offset_seconds: float


class AdvanceSent(Sent):
    """How far to move the product's clock."""

    advance_seconds: float = Field(ge=0, le=_CENTURY)


class AdvancedShown(Shown):
    """The new now, and how many of what fired on the way."""

    now: ShownInstant
    fired: dict[str, int]


@api.get("/testing/clock", response_model=ClockShown)
async def show_clock(request: ApiRequest) -> Response:
    """The product's clock."""
    now, offset = await _clock(request).read()
    return Answer({"now": render(now), "offset_seconds": offset})


@api.post("/testing/clock", response_model=AdvancedShown)
async def advance_clock(request: ApiRequest, sent: AdvanceSent) -> Response:
    """Move the product's clock forward. Everything that becomes due fires, in order, before this answers."""
    request.caller.demand("admin")
    now, fired = await _clock(request).advance(sent.advance_seconds)
    return Answer({"now": render(now), "fired": dict(fired)})


def _clock(request: ApiRequest) -> TestClock:
    clock = request.ports.test_clock
    if clock is None:
        raise StorageCapabilityMissing("this deployment has no test clock")
    return clock

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
from moorage.store.ports import Cost

api = router("testing")

_CENTURY = 100 * 366 * 86400


class ClockShown(Shown):
    """The product's now, and how far it is ahead of real time."""

    now: ShownInstant
    offset_seconds: float


class AdvanceSent(Sent):
    """How far to move the product's clock."""

    advance_seconds: float = Field(ge=0, le=_CENTURY)


class CostShown(Shown):
    """Round trips and rows, as the database counts them."""

    trips: int
    rows_read: int
    rows_written: int


class MoveCostShown(Shown):
    """What firing cost, looking for what is due included, and the routing of events that were accepted on the way."""

    firing: CostShown
    routing: CostShown


class AdvancedShown(Shown):
    """The new now, how many of what fired on the way, and what that cost."""

    now: ShownInstant
    fired: dict[str, int]
    cost: MoveCostShown


@api.get("/testing/clock", response_model=ClockShown)
async def show_clock(request: ApiRequest) -> Response:
    """The product's clock."""
    now, offset = await _clock(request).read()
    return Answer({"now": render(now), "offset_seconds": offset})


@api.post("/testing/clock", response_model=AdvancedShown)
async def advance_clock(request: ApiRequest, sent: AdvanceSent) -> Response:
    """Move the product's clock forward. Everything that becomes due fires, in order, before this answers."""
    request.caller.demand("admin")
    moved = await _clock(request).advance(sent.advance_seconds)
    cost = {"firing": _cost(moved.firing), "routing": _cost(moved.routing)}
    return Answer({"now": render(moved.now), "fired": dict(moved.fired), "cost": cost})


def _cost(cost: Cost) -> dict[str, int]:
    return {"trips": cost.trips, "rows_read": cost.rows_read, "rows_written": cost.rows_written}


def _clock(request: ApiRequest) -> TestClock:
    clock = request.ports.test_clock
    if clock is None:
        raise StorageCapabilityMissing("this deployment has no test clock")
    return clock

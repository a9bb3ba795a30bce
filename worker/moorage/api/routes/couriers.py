"""How destinations answer deliveries, and sending to one again (clause outbox.deliver)."""

from starlette.responses import Response

from moorage.api.answers import Answer
from moorage.api.fields import Name, Shown, ShownInstant, fails
from moorage.api.requests import ApiRequest
from moorage.api.routing import router
from moorage.kernel.errors import DestinationUnknown
from moorage.messages.outbox import circuit
from moorage.messages.outbox.circuit import Circuit

api = router("deliveries")


class HealthShown(Shown):
    """How a destination has answered lately: its circuit, the failures in a row, and until when nothing is sent to it."""

    destination: str
    state: Circuit
    failures: int
    blocked_until: ShownInstant | None
    reason: str | None
    updated_at: ShownInstant


@api.get("/destinations/{name}/health", response_model=HealthShown, responses=fails(DestinationUnknown))
async def show_health(request: ApiRequest, name: Name) -> Response:
    """How a destination has answered deliveries lately."""
    return Answer((await circuit.show(request.db, request.caller, name)).answer())


@api.post("/destinations/{name}/enable", response_model=HealthShown, responses=fails(DestinationUnknown))
async def enable_destination(request: ApiRequest, name: Name) -> Response:
    """Send deliveries to a destination again: one that was gone, or whose circuit is open. What was kept for it is due."""
    health = await circuit.enable(request.db, request.caller, request.now, name)
    request.wake(request.now, "messages")
    return Answer(health.answer())

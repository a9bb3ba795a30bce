"""Sessions, in which a worker numbers its claims so that a lost answer is the same claim again."""

from typing import Annotated, Any

from fastapi import Path
from pydantic import Field
from starlette.responses import Response

from moorage.api.answers import Answer, nothing
from moorage.api.fields import Sent, Shown, ShownInstant, fails
from moorage.api.requests import ApiRequest
from moorage.api.routing import router
from moorage.kernel.errors import IdempotencyConflict, SessionExpired, SessionUnknown
from moorage.kernel.instants import render
from moorage.kernel.limits import SESSION_SECONDS
from moorage.records import sessions
from moorage.records.sessions import DEFAULT_SECONDS, Session

api = router("claims")

SessionId = Annotated[str, Path(description="A session's id.")]


class SessionSent(Sent):
    """How long the session is to last from now."""

    ttl_seconds: float = Field(default=DEFAULT_SECONDS, ge=1, le=int(SESSION_SECONDS))


class CursorShown(Shown):
    """The latest completed claim of a consumer."""

    consumer: str
    sequence: int
    completed_at: ShownInstant


class SessionShown(Shown):
    """A session, and how far its consumers have come."""

    session: str
    created_at: ShownInstant
    expires_at: ShownInstant
    consumers: list[CursorShown] | None = None


def _answer(session: Session) -> dict[str, Any]:
    return {"session": session.id, "created_at": render(session.created_at), "expires_at": render(session.expires_at)}


@api.post("/sessions", status_code=201, response_model=SessionShown, responses=fails(IdempotencyConflict))
async def open_session(request: ApiRequest, sent: SessionSent) -> Response:
    """Open a session. Only credentials of the same subject may claim in it."""
    opened = await sessions.open_session(request.db, request.caller, request.now, sent.ttl_seconds, request.key())
    request.wake(sessions.forgotten_at(opened), "records")
    return Answer(_answer(opened), 201)


@api.get("/sessions/{session}", response_model=SessionShown, responses=fails(SessionUnknown))
async def show_session(request: ApiRequest, session: SessionId) -> Response:
    """A session of the caller's, and the latest completed claim of each consumer."""
    found = await sessions.show(request.db, request.caller, session)
    consumers = [
        {"consumer": one.consumer, "sequence": one.sequence, "completed_at": render(one.completed_at)}
        for one in found.consumers
    ]
    return Answer({**_answer(found), "consumers": consumers})


@api.post("/sessions/{session}/renew", response_model=SessionShown, responses=fails(SessionUnknown, SessionExpired))
async def renew_session(request: ApiRequest, session: SessionId, sent: SessionSent) -> Response:
    """Let a session that has not ended last longer; a shorter wish leaves it as it is."""
    renewed = await sessions.renew(request.db, request.caller, request.now, session, sent.ttl_seconds)
    return Answer(_answer(renewed))


@api.delete("/sessions/{session}", status_code=204, response_class=Response, responses=fails(SessionUnknown))
async def close_session(request: ApiRequest, session: SessionId) -> Response:
    """End a session at once. What was claimed in it stays claimed."""
    await sessions.close(request.db, request.caller, request.now, session)
    return nothing()

"""Which bodies there are, for requests: those that the Worker executes, and those that hosts outside it offer."""

from typing import Any

from moorage.api.requests import ApiRequest
from moorage.kernel.errors import BodyUnknown
from moorage.runs import authority, remote_bodies
from moorage.runs.protocol import BodyInfo
from moorage.store.ports import Database


async def find_body(request: ApiRequest, name: str) -> BodyInfo:
    """The body that the caller may execute. Raises Forbidden, whether or not there is such a body, and BodyUnknown."""
    authority.demand(request.caller, "execute", name)
    return await any_body(request, request.db, name)


async def any_body(request: ApiRequest, db: Database, name: str) -> BodyInfo:
    """A body of this name; the Worker's own before another's. Raises BodyUnknown."""
    found = request.ports.bodies.get(name) or await remote_bodies.find(db, name)
    if found is None:
        raise BodyUnknown(f"no body {name!r} is registered")
    return found


def check_input(request: ApiRequest, info: BodyInfo, value: Any) -> None:
    """Raise InputInvalid unless the input is what the body declares."""
    if info.host == "worker":
        request.ports.bodies.check_input(info.name, value)
    else:
        remote_bodies.check_input(info, value)

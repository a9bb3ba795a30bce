"""Which bodies there are, for requests: those that the Worker executes, and those that hosts outside it offer."""

from typing import Any

from moorage.api.requests import ApiRequest
from moorage.runs import authority, inputs, remote_bodies
from moorage.runs.model import BodyInfo


async def find_body(request: ApiRequest, name: str) -> BodyInfo:
    """The body that the caller may execute. Raises Forbidden, whether or not there is such a body, and BodyUnknown."""
    authority.demand(request.caller, "execute", name)
    return await any_body(request, name)


async def any_body(request: ApiRequest, name: str) -> BodyInfo:
    """A body of this name; the Worker's own before another's. Raises BodyUnknown."""
    own = request.ports.bodies.get(name)
    return own if own is not None else (await remote_bodies.find(request.db, name)).info


def check_input(request: ApiRequest, info: BodyInfo, value: Any) -> None:
    """Raise InputInvalid unless the input is what the body declares.

    The Worker has its own bodies' types. What a host outside it declares is told to clients, and checked by that host.
    """
    if info.host == "worker":
        request.ports.bodies.check_input(info.name, value)


def check_again(request: ApiRequest, info: BodyInfo, value: Any) -> None:
    """The same for an input that another build took: of a host's body the schema is asked, as far as the house can."""
    if info.host == "worker":
        check_input(request, info, value)
    else:
        inputs.check(info.input_schema, value)

"""How a route is declared and what happens around each: schema, admission, body, operation, cost, errors."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal

from fastapi import APIRouter
from fastapi.datastructures import DefaultPlaceholder
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from moorage.api import problems
from moorage.api.answers import Answer
from moorage.api.reference import ACCESS
from moorage.api.requests import EXCHANGE, ROUTE, ApiRequest, Exchange, refuse_unknown_query
from moorage.history.seals import due_after
from moorage.kernel.errors import InternalError, MoorageError, RunStreamUnauthorized, Unauthenticated
from moorage.kernel.instants import after
from moorage.kernel.limits import IDEMPOTENCY_SECONDS

Handler = Callable[[Request], Awaitable[Response]]
Access = Literal["credential", "stream", "open", "own"]


_JSON: Final = (b"content-type", b"application/json")


def router(tag: str) -> APIRouter:
    """A router for one room. Unless a route says otherwise it takes a credential and, if it has a body, JSON."""
    return APIRouter(tags=[tag], route_class=Route, default_response_class=Answer)


def opened(access: Access) -> dict[str, Any]:
    """`openapi_extra` of a route that admits in another way: "open" to all, doing its "own" admission, or as for a "stream",
    where a credential is refused in the stream's own words."""
    return {ACCESS: access}


class Route(APIRoute):
    """A route of ours: FastAPI validates and documents, this does the rest.

    `answer` is the shape of the answer. It is kept for the document and built when that is first asked for, which is
    seldom: forty such shapes would be a good part of the time that an isolate takes to start.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], *, response_model: Any = None, **declared: Any) -> None:
        self.answer: Any = None if isinstance(response_model, DefaultPlaceholder) else response_model
        super().__init__(path, endpoint, response_model=None, **declared)

    def get_route_handler(self) -> Handler:  # type: ignore[override]
        inner = super().get_route_handler()
        access: Access = (self.openapi_extra or {}).get(ACCESS, "credential")
        known_query = frozenset(field.alias for field in self.dependant.query_params)
        takes_json = self.body_field is not None

        async def handle(request: Request) -> Response:
            exchange: Exchange = request.scope[EXCHANGE]
            try:
                prepared = await _prepare(request, exchange, access, takes_json)
                refuse_unknown_query(prepared, known_query)
                response = await inner(prepared)
                if exchange.keyed:
                    exchange.ports.wake(after(exchange.now, IDEMPOTENCY_SECONDS), "upkeep")
            except RequestValidationError as error:
                response = problems.answer(problems.invalid(error.errors()), exchange.id)
            except MoorageError as error:
                response = _failure(error, request, error)
            # The last resort: whatever was not foreseen is ours, and the client learns only its request's id.
            except Exception as error:
                response = _failure(error, request, InternalError())
            if exchange.db.cost.rows_written:
                # What was written is told of in history, and that will be sealed. All requests of a span name one instant,
                # so that an isolate tells the Clock of it once.
                exchange.ports.wake(due_after(exchange.ports.now()), "upkeep")
            _tell_cost(exchange, response)
            return response

        return handle


async def _prepare(request: Request, exchange: Exchange, access: Access, takes_json: bool) -> ApiRequest:
    prepared = ApiRequest(request.scope, request.receive)
    if access != "open":
        await exchange.ports.gate.pass_through(exchange.ports.database)
    if access in ("credential", "stream"):
        await _admit(prepared, access)
    if access != "open" and request.method not in ("GET", "HEAD"):
        prepared.check_key()
        if access != "own":  # whoever sends webhooks cannot mend their headers, and overwrites nothing
            prepared.refuse_preconditions()
    if takes_json:
        await prepared.json()
        prepared = _as_json(prepared)
    exchange.now = exchange.ports.now()
    return prepared


async def _admit(request: ApiRequest, access: Access) -> None:
    try:
        await request.admit()
    except Unauthenticated as error:
        raise RunStreamUnauthorized(error.detail) if access == "stream" else error from None


def _as_json(request: ApiRequest) -> ApiRequest:
    """The same request, its type told plainly: FastAPI looks at the header again, and less strictly."""
    headers = [pair for pair in request.scope["headers"] if pair[0] != b"content-type"]
    plain = ApiRequest({**request.scope, "headers": [*headers, _JSON]}, request.receive)
    plain.take_body_of(request)
    return plain


def _failure(error: Exception, request: Request, shown: MoorageError) -> Response:
    exchange: Exchange = request.scope[EXCHANGE]
    sent = request.headers.get("authorization", "").split()
    secrets = [*exchange.ports.settings.secrets, *sent[1:], *request.path_params.values()]
    problems.note(error, exchange.id, f"{request.method} {request.scope[ROUTE]}", secrets)
    return problems.answer(shown, exchange.id)


def _tell_cost(exchange: Exchange, response: Response) -> None:
    """Server-Timing for a credential that may operate on every kind: what the request cost, as the database counts.

    Rows tell of records, also of those that an answer passes over, so nobody else is told.
    """
    if exchange.caller is None or not exchange.caller.may("operate"):
        return
    cost = exchange.db.cost
    total = exchange.ports.ticks() - exchange.started
    told = (
        f'd1;dur={cost.milliseconds:.1f};desc="trips={cost.trips} read={cost.rows_read} written={cost.rows_written}", '
        f"total;dur={total:.1f}"
    )
    response.raw_headers.append((b"server-timing", told.encode()))

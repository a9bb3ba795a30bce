"""The application: an ASGI callable over FastAPI's routes.

FastAPI declares, validates and documents. Finding the route, CORS, HEAD, OPTIONS, 404, 405 and the request id are done
here, once for every route, because they must hold for paths and methods that no route has.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from moorage.api import cors, problems, public
from moorage.api.paths import Found, Index
from moorage.api.ports import Ports
from moorage.api.reference import Document
from moorage.api.requests import EXCHANGE, HEAD, ROUTE, Exchange
from moorage.api.ringing import ringing
from moorage.api.routes import routes, testing_routes
from moorage.api.routing import Route
from moorage.kernel import ids
from moorage.kernel.errors import MoorageError, RouteUnknown

PORTS = "moorage.ports"
"""Scope key under which the edge passes the Ports of one request."""


class Surface:
    """A set of routes: their index and their document."""

    def __init__(self, own: Sequence[Route]) -> None:
        self.index = Index((method, route.path, route) for route in own for method in sorted(route.methods or ()))
        self.document = Document(own)


class Application:
    """The ASGI application. `ports` serve every request whose scope brings none of its own."""

    def __init__(self, ports: Ports | None = None) -> None:
        self._ports = ports
        self._usual = Surface(routes())
        self._testing = Surface([*routes(), *testing_routes()])

    @property
    def document(self) -> Document:
        """The document of the routes that every deployment has."""
        return self._usual.document

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        ports = scope.get(PORTS) or self._ports
        if scope["type"] != "http" or ports is None:
            raise RuntimeError(f"cannot serve {scope['type']}")
        surface = self._usual if ports.test_clock is None else self._testing
        now = ports.now()
        db = ringing(ports)
        exchange = Exchange(ports, db, ids.new("req", now), now, ports.ticks(), surface.document)
        headers = Headers(scope=scope)
        finish = _finisher(send, exchange, headers, head=scope["method"] == "HEAD")
        try:
            found = surface.index.find((scope.get("raw_path") or scope["path"].encode()).decode("latin-1"))
            response = await _preflight(scope["method"], headers, found, exchange)
            response = response or _without_route(scope["method"], headers, found, exchange)
        except MoorageError as error:
            await problems.answer(error, exchange.id)(scope, receive, finish)
            return
        if response is not None:
            await response(scope, receive, finish)
        else:
            await _run(found, {**scope, EXCHANGE: exchange}, receive, finish)


def build_app(ports: Ports | None = None) -> Application:
    """The application; see `Application`. Building it touches no clock, no randomness and nothing outside."""
    return Application(ports)


async def _preflight(method: str, headers: Headers, found: Found[Route], exchange: Exchange) -> Response | None:
    """The answer to a preflight that some public credential lets pass, or None; the database is asked for no other one."""
    allowed = exchange.ports.settings.allowed_origins
    if method != "OPTIONS" or "POST" not in found.methods or "*" in allowed or headers.get("origin") in allowed:
        return None
    template = found.route("POST")[1]
    if (headers.get("access-control-request-method", ""), template) not in public.ROUTES:
        return None
    await exchange.ports.gate.pass_through(exchange.ports.database)
    exchange.public_origin = await public.preflighted(exchange.db, exchange.now, headers, template)
    if exchange.public_origin is None:
        return None
    response = Response(status_code=204, headers={"allow": cors.allow(found.advertised)})
    response.raw_headers += cors.for_preflight(headers, {exchange.public_origin}, {"POST"})
    return response


def _without_route(method: str, headers: Headers, found: Found[Route], exchange: Exchange) -> Response | None:
    """The answer to a preflight, or None when a route answers. Raises RouteUnknown and MethodNotAllowed."""
    if not found.places:
        raise RouteUnknown
    methods = found.methods
    if method == "OPTIONS":
        response = Response(status_code=204, headers={"allow": cors.allow(found.advertised)})
        response.raw_headers += cors.for_preflight(headers, exchange.ports.settings.allowed_origins, methods)
        return response
    if _as_get(method) not in methods:
        response = problems.answer(cors.refusal(method, found.advertised), exchange.id)
        response.raw_headers.append((b"allow", cors.allow(found.advertised).encode()))
        return response
    return None


def _as_get(method: str) -> str:
    return "GET" if method == "HEAD" else method


async def _run(found: Found[Route], scope: Scope, receive: Receive, send: Send) -> None:
    method = _as_get(scope["method"])
    route, template, parameters = found.route(method)
    async with AsyncExitStack() as stack:
        scope[HEAD] = scope["method"] == "HEAD"
        scope.update(method=method, route=route, endpoint=route.endpoint, path_params=parameters)
        scope[ROUTE] = template
        scope["fastapi_middleware_astack"] = stack
        await route.app(scope, receive, send)


def _finisher(send: Send, exchange: Exchange, headers: Headers, head: bool) -> Send:
    """`send` that adds what every answer carries, and keeps the body of a HEAD to itself."""
    extra = [(b"x-request-id", exchange.id.encode())]
    allowed = exchange.ports.settings.allowed_origins

    async def finish(message: Message) -> None:
        if message["type"] == "http.response.start":
            origin = exchange.public_origin or public.origin_of(exchange.caller, headers)
            shared = cors.for_answer(headers, allowed if origin is None else {*allowed, origin})
            message = {**message, "headers": [*message["headers"], *extra, *shared]}
        elif head and message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return finish

"""One request on its way in: who asks, when, with what body.

`ApiRequest` is what routes take. Its JSON comes from `kernel.canonical.loads` and from nowhere else: the platform's own
parser dies of deep nesting and takes every other request of the isolate with it.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from starlette.requests import Request

from moorage.api import public
from moorage.api.ports import Ports
from moorage.api.reference import Document
from moorage.api.streams import STREAM, ReceivedStream
from moorage.catalog.access import Caller
from moorage.idempotency import keys
from moorage.kernel import canonical, ids
from moorage.kernel.errors import (
    LengthRequired,
    PayloadTooLarge,
    RequestInvalid,
    Unauthenticated,
    UnsupportedMediaType,
)
from moorage.kernel.instants import Instant
from moorage.kernel.limits import REQUEST_BYTES
from moorage.kernel.refusals import refused
from moorage.store.ports import ByteStream, Database
from moorage.timers.due import Shard

EXCHANGE = "moorage.exchange"
ROUTE = "moorage.route"
HEAD = "moorage.head"
"""Scope keys: the Exchange, the route as declared, and whether the client asks for the head of the answer alone."""

_HOST = re.compile(r"(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
_JSON_TYPE = re.compile(r"application/(?:json|[a-z0-9.!#$&^_+-]+\+json)[ \t]*(?:;.*)?", re.IGNORECASE)


@dataclass(slots=True)
class Exchange:
    """What is known of one request and its answer. `now` is the product's clock, `started` is in ticks."""

    ports: Ports
    db: Database
    id: str
    now: Instant
    started: float
    document: Document
    caller: Caller | None = None
    keyed: bool = False
    public_origin: str | None = None


class ApiRequest(Request):
    """A request that has been admitted, with its body read."""

    @cached_property
    def exchange(self) -> Exchange:
        found: Exchange = self.scope[EXCHANGE]
        return found

    @property
    def ports(self) -> Ports:
        return self.exchange.ports

    @property
    def db(self) -> Database:
        return self.exchange.db

    @property
    def now(self) -> Instant:
        return self.exchange.now

    @property
    def caller(self) -> Caller:
        """Who asks. Raises Unauthenticated where nobody was admitted, which only an open route can meet."""
        if self.exchange.caller is None:
            raise Unauthenticated
        return self.exchange.caller

    @property
    def is_head(self) -> bool:
        """Whether the client asks for the head of the answer alone."""
        return bool(self.scope.get(HEAD))

    @property
    def origin(self) -> str:
        """The scheme and host by which the client reached us, or nothing when its Host header is not plain."""
        host = self.headers.get("host", "")
        return f"{self.scope['scheme']}://{host}" if _HOST.fullmatch(host) else ""

    async def admit(self) -> None:
        """Admit the caller whose bearer token the request carries.

        Raises Unauthenticated, which repeats nothing of what was sent, and Forbidden for a public credential anywhere but
        on the routes of its actions.
        """
        found = self.headers.getlist("authorization")
        if len(found) > 1:
            raise Unauthenticated("several Authorization headers")
        exchange = self.exchange
        shown = found[0] if found else None
        caller = await exchange.ports.credentials.admit(exchange.db, exchange.now, shown)
        public.refuse_elsewhere(caller, self.method, self.scope[ROUTE])
        exchange.caller = caller

    def wake(self, due: Instant | None, shard: Shard) -> None:
        """Tell the Clock of this shard that something is due then; None says that nothing is."""
        if due is not None:
            self.ports.wake(due, shard)

    def key(self, told: Any = None) -> keys.Key | None:
        """The request's use of its Idempotency-Key, or None without one; it binds route, parameters and body.

        `told` stands for a body that is not JSON.

        Raises IdInvalid for a malformed key, RequestInvalid for several.
        """
        header = self.check_key()
        self.exchange.keyed = header is not None
        route = f"{self.method} {self.scope[ROUTE]}"
        content = [self.path_params, self._json if told is None else told]
        return keys.key_for(self.caller.subject, header, route, content)

    def check_key(self) -> str | None:
        """The Idempotency-Key header, on any route. Raises IdInvalid for a malformed key, RequestInvalid for several."""
        found = self.headers.getlist("idempotency-key")
        if len(found) > 1:
            raise RequestInvalid("several Idempotency-Key headers")
        return ids.check_key(found[0]) if found else None

    def refuse_preconditions(self) -> None:
        """Raise RequestInvalid for If-Match and If-None-Match: a change that passed over them would overwrite what the
        client wanted to keep (RFC 9110, 13.1)."""
        for name in ("if-match", "if-none-match"):
            if name in self.headers:
                message = (
                    "is honored by no route that changes something; where a route takes a `revision`, send that instead"
                )
                raise refused(f"/header/{name}", message, f"{name} {message}")

    def byte_stream(self) -> ByteStream:
        """The raw body, to be read once and as it comes.

        Raises LengthRequired unless its length was told, RequestInvalid for a length that is no number.
        """
        told = self.headers.getlist("content-length")
        if not told or "transfer-encoding" in self.headers:
            raise LengthRequired()
        if len(told) > 1 or not told[0].isdecimal() or len(told[0]) > 15:
            raise RequestInvalid("Content-Length is not one number of bytes")
        native: ByteStream | None = self.scope.get(STREAM)
        return native or ReceivedStream(self.receive, int(told[0]))

    async def body(self) -> bytes:
        """The raw body. Raises PayloadTooLarge past REQUEST_BYTES: before reading when its length was told."""
        if not hasattr(self, "_body"):
            told = self.headers.get("content-length", "")
            if told.isdecimal() and (len(told) > 15 or int(told) > REQUEST_BYTES):
                raise _too_large()
            self._body = await self._read()
        return self._body

    async def _read(self) -> bytes:
        pieces: list[bytes] = []
        size, more = 0, True
        while more:
            message = await self.receive()
            if message["type"] != "http.request":
                raise RequestInvalid("the body ended before it was complete")
            pieces.append(message.get("body", b""))
            more = message.get("more_body", False)
            size += len(pieces[-1])
            if size > REQUEST_BYTES:
                raise _too_large()
        return b"".join(pieces)

    def take_body_of(self, other: "ApiRequest") -> None:
        """Take over a body that was read and parsed already."""
        self._body = other._body
        self._json = other._json

    async def json(self) -> Any:
        """The body as JSON. Raises UnsupportedMediaType for another declared type, JsonInvalid for bad JSON."""
        if not hasattr(self, "_json"):
            declared = self.headers.get("content-type", "")
            if declared and _JSON_TYPE.fullmatch(declared.strip()) is None:
                raise UnsupportedMediaType("this route takes application/json", accepted=["application/json"])
            raw = await self.body()
            self._json = canonical.loads(raw) if raw else None
        return self._json


def refuse_unknown_query(request: Request, known: Collection[str]) -> None:
    """Raise RequestInvalid for a query parameter that the route does not have, or that is given twice."""
    if not request.scope["query_string"]:
        return
    errors: list[dict[str, str]] = []
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name not in known:
            errors.append({"pointer": f"/query/{name[:100]}", "message": "is not a known query parameter"})
        elif name in seen:
            errors.append({"pointer": f"/query/{name[:100]}", "message": "is given more than once"})
        seen.add(name)
        if len(errors) == 20:
            break
    if errors:
        first = errors[0]
        raise RequestInvalid(f"{first['pointer']}: {first['message']}", errors=errors)


def _too_large() -> PayloadTooLarge:
    return PayloadTooLarge(f"a request body has at most {REQUEST_BYTES} bytes", limit=int(REQUEST_BYTES))

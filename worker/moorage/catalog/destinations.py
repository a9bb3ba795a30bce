"""Outbound destinations: where requests may be sent, and what the other side promises (clause catalog.destinations)."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, urlsplit

from moorage.catalog import statements
from moorage.catalog.access import Caller
from moorage.catalog.model import METHODS, DeliveryDeclaration, DestinationDeclaration, Method, secret_name
from moorage.history.append import Event, append
from moorage.kernel import canonical
from moorage.kernel.errors import DestinationUnknown, RequestInvalid
from moorage.kernel.hosts import is_public
from moorage.kernel.ids import check_client_id
from moorage.kernel.instants import Instant, render
from moorage.kernel.masking import is_a_secret, names_a_secret
from moorage.kernel.pages import Page, PageRequest
from moorage.kernel.refusals import refused
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Transaction

_SCHEME: Final = "env:"
_URL = re.compile(r"[\x21-\x7e]+")
_HOST = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")


@dataclass(frozen=True, slots=True)
class Destination:
    """A destination. `secret` is the name of a binding, as `env:NAME`; `dedup_window_seconds` None means that the
    destination does not deduplicate. `delivery` is how deliveries are made to it."""

    name: str
    url: str
    methods: tuple[Method, ...]
    secret: str | None
    dedup_window_seconds: int | None
    publication: bool
    delivery: DeliveryDeclaration
    created_at: Instant
    updated_at: Instant

    @classmethod
    def of(cls, row: Row) -> "Destination":
        """The destination that a row holds."""
        own = {name: value for name, value in row.items() if name not in DeliveryDeclaration.model_fields}
        methods, publication = tuple(json.loads(row["methods"])), bool(row["publication"])
        return cls(**{**own, "methods": methods, "publication": publication, "delivery": policy_of(row)})

    def secret_bound(self, bindings: Callable[[str], str | None]) -> bool | None:
        """Whether the deployment has the secret now; None for a destination without one.

        One that is not bound is no refusal: it may be bound later, and hosts outside bring bindings of their own.
        """
        return None if self.secret is None else bool((bindings(self.secret.removeprefix(_SCHEME)) or "").strip())

    def answer(self) -> dict[str, Any]:
        """What a client is shown."""
        return {
            "name": self.name,
            "url": self.url,
            "methods": list(self.methods),
            "secret": self.secret,
            "dedup_window_seconds": self.dedup_window_seconds,
            "publication": self.publication,
            "delivery": self.delivery.model_dump(),
            "created_at": render(self.created_at),
            "updated_at": render(self.updated_at),
        }


async def put(
    db: Database,
    caller: Caller,
    now: Instant,
    name: str,
    declaration: DestinationDeclaration,
    *,
    allow_local: bool = False,
) -> Destination:
    """Declare a destination, or declare it anew. `allow_local` is for development: http, and hosts of this network.

    Raises Forbidden, IdInvalid, and RequestInvalid for a URL that carries a credential or leads inside, or for a secret
    that is not a reference.
    """
    caller.demand("admin")
    check_client_id(name, "a destination's name")
    check_url(declaration.url, allow_local=allow_local)
    if declaration.secret is not None and secret_name(declaration.secret, "/secret") is None:
        raise refused("/secret", "must be a reference, env:NAME: a destination's secret itself is not stored")
    tx = Transaction(now)
    caller.guard(tx)
    tx.run(
        statements.DECLARE_DESTINATION,
        name=name,
        url=declaration.url,
        methods=canonical.dumps([method for method in METHODS if method in declaration.methods]),
        secret=declaration.secret,
        dedup_window_seconds=declaration.dedup_window_seconds,
        publication=declaration.publication,
    )
    tx.run(statements.DECLARE_POLICY, name=name, **declaration.delivery.model_dump())
    stored = tx.run(statements.DESTINATION, name=name)
    append(tx, caller.subject, Event(f"destination:{name}", "destination.declared", declaration.model_dump()))
    await db.commit(tx)
    return Destination.of(stored.one())


def policy_of(row: Row) -> DeliveryDeclaration:
    """The policy that a destination's row holds; where it has none, the policy of one that names none."""
    told = {name: row[name] for name in DeliveryDeclaration.model_fields if row[name] is not None}
    return DeliveryDeclaration(**{**told, "ordered": bool(told.get("ordered", False))})


async def show(db: Database, caller: Caller, name: str) -> Destination:
    """One destination. Raises Forbidden, DestinationUnknown."""
    caller.demand("operate")
    reading = Reading()
    row = reading.ask(statements.DESTINATION, name=name)
    await db.read(reading)
    return Destination.of(row.one(DestinationUnknown()))


async def list_destinations(db: Database, caller: Caller, page: PageRequest) -> Page[Destination]:
    """The destinations by name. Raises Forbidden, CursorMismatch."""
    caller.demand("operate")
    filters = ["destinations"]
    after = page.after(filters, str) or [""]
    reading = Reading()
    rows = reading.ask(statements.DESTINATIONS, after=after[0], limit=page.limit + 1)
    await db.read(reading)
    return page.page(rows.rows, filters, lambda row: [row["name"]], Destination.of)


def check_url(url: str, *, allow_local: bool) -> None:
    """Raise RequestInvalid at /url unless requests may go there. The message never repeats the URL."""
    parts = _parsed(url)
    if parts.scheme != "https" and not (allow_local and parts.scheme == "http"):
        raise _refused("must begin with https://")
    if parts.username is not None or parts.password is not None:
        raise _refused("must not carry a user or password")
    if parts.fragment:
        raise _refused("must not have a fragment")
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if names_a_secret(name) or is_a_secret(value):
            raise _refused("must not carry a credential in its query; name a secret instead")
    if not allow_local and not is_public(parts.hostname or ""):
        raise _refused("must lead to a public host")


def _parsed(url: str) -> SplitResult:
    if _URL.fullmatch(url) is None or "\\" in url:
        raise _refused("may hold visible ASCII characters only, and no backslash")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _refused("is not a URL") from None
    if port == 0 or not parts.hostname or _HOST.fullmatch(parts.hostname) is None:
        raise _refused("is not a URL with a host")
    return parts


def _refused(message: str) -> RequestInvalid:
    return refused("/url", message)

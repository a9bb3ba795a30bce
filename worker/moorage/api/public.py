"""What a public credential may do over HTTP, and what browsers are told of it (clauses catalog.credentials, edge.cors-head).

It may publish one record at a time, or resolve awakeables whose token its page was given, and pages of its origins may call
these routes. CORS answers nothing else for it.
"""

from collections.abc import Mapping
from typing import Final

from starlette.datastructures import Headers

from moorage.catalog import public
from moorage.catalog.access import Action, Caller
from moorage.kernel.errors import Forbidden
from moorage.kernel.instants import Instant
from moorage.records.model import Draft
from moorage.store.ports import Database

ROUTES: Final[Mapping[tuple[str, str], Action]] = {
    ("POST", "/records"): "publish",
    ("POST", "/awake/{token}"): "resume",
    ("POST", "/awake/{token}/reject"): "resume",
}
"""The routes that admit public credentials, and the action that each takes."""

_ORIGIN_CHARACTERS: Final = 300


def refuse_elsewhere(caller: Caller, method: str, template: str) -> None:
    """Raise Forbidden for a public credential anywhere but on the routes of its actions."""
    if not caller.public:
        return
    action = ROUTES.get((method, template))
    if action is None or not any(grant.gives(action) for grant in caller.grants):
        raise Forbidden("a public credential publishes single records or resolves awakeables, as granted, and no more")


def check_page(caller: Caller, headers: Headers) -> None:
    """Raise Forbidden for a public credential that is used from a page of another origin."""
    if caller.public and caller.origins and headers.get("origin") not in caller.origins:
        raise Forbidden("the credential is for pages of other origins")


def check_draft(caller: Caller, draft: Draft, headers: Headers) -> None:
    """Raise Forbidden for what a public credential may not publish: from another page, or what would tell of other records.

    A chosen id tells whether it was used, and parents tell whether they exist.
    """
    if not caller.public:
        return
    check_page(caller, headers)
    if draft.id is not None or draft.parents:
        raise Forbidden("a public credential chooses no id and names no parents")


def origin_of(caller: Caller | None, headers: Headers) -> str | None:
    """The page's origin, when the caller's public credential may be used there; None for every other request."""
    origin = headers.get("origin")
    if caller is None or not caller.public or origin is None or len(origin) > _ORIGIN_CHARACTERS:
        return None
    return origin if not caller.origins or origin in caller.origins else None


async def preflighted(db: Database, now: Instant, headers: Headers, template: str) -> str | None:
    """The origin of a preflight that a public credential lets pass, or None."""
    origin, method = headers.get("origin"), headers.get("access-control-request-method")
    action = ROUTES.get((method or "", template))
    if origin is None or len(origin) > _ORIGIN_CHARACTERS or action is None:
        return None
    return origin if await public.is_admitted(db, now, origin, action) else None

"""Seals: the hash chain over history, made, listed, given out and verified."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from moorage.api.answers import Answer, page
from moorage.api.fields import Cursor, Default, Limit, PageShown, Sent, Shown, ShownInstant, fails, page_of
from moorage.api.requests import ApiRequest
from moorage.api.routing import router
from moorage.history import seals
from moorage.history.seals import Ends, Link, Seal
from moorage.history.verify import SealedEntry, Verified, sealed_entries, verify
from moorage.kernel.errors import CursorMismatch
from moorage.kernel.instants import EARLIEST, LATEST, Instant, render
from moorage.kernel.limits import VERIFY_BATCH
from moorage.records import evidence

api = router("history")

Position = Annotated[int, Field(ge=1, le=2**53 - 1)]


class LinkSent(Sent):
    """A link that was noted earlier: the last one that `POST /seals` or `GET /seals` gave at some time."""

    position: Position
    link: str = Field(pattern=r"^[0-9a-f]{64}$")


class VerifySent(Sent):
    """Which part of the chain to verify. Go on with `after` = the answer's `next` until that is null.

    With `content` the body of each record that still exists is compared with the digest in the entry of its publication.
    """

    after: int = Field(default=0, ge=0, le=2**53 - 1)
    limit: int = Field(default=int(VERIFY_BATCH), ge=1, le=int(VERIFY_BATCH))
    head: LinkSent | None = None
    content: bool = False


class LinkShown(Shown):
    """The link of the entry at a position: a statement about every entry up to it."""

    position: int
    link: str


class SealedShown(Shown):
    """How many entries this request sealed, the end of the chain (note it elsewhere), and what is left to be sealed."""

    sealed: int
    head: LinkShown | None
    unsealed: int


class SealShown(Shown):
    """A stretch of entries that was sealed at once: the last one's position and link."""

    position: int
    link: str
    entries: int
    sealed_at: ShownInstant


class SealedEntryShown(Shown):
    """A sealed entry: the text that its link is made of, and the stored link; null where the seal is missing."""

    position: int
    entry: str
    link: str | None


class BrokenShown(Shown):
    """The first position at which the chain does not hold."""

    position: int
    reason: str


class VerifiedShown(Shown):
    """What was verified. `broken` is there when `ok` is false, `next` while there is more; `unsealed` entries follow the
    chain and are not protected yet."""

    ok: bool
    checked: int
    head: LinkShown | None
    unsealed: int
    broken: BrokenShown | None = None
    next: int | None = None


@api.post("/seals", response_model=SealedShown)
async def seal_history(request: ApiRequest) -> Response:
    """Seal what has happened, without waiting for the Clock. Asking again while nothing happens changes nothing."""
    request.caller.demand("operate")
    done = await seals.seal_now(request.db, request.now, request.caller.guard)
    return Answer({"sealed": done.sealed, **_ends(done.ends)})


@api.get("/seals", response_model=PageShown[SealShown], responses=fails(CursorMismatch))
async def list_seals(
    request: ApiRequest,
    limit: Limit = Default,
    cursor: Cursor = None,
    order: Annotated[Literal["asc", "desc"], Query(description="Oldest or newest first.")] = "asc",
) -> Response:
    """Seals; the newest one's link is worth noting outside."""
    request.caller.demand("operate")
    return page(await seals.list_seals(request.db, page_of(limit, cursor), backwards=order == "desc"), _seal)


@api.get("/seals/entries", response_model=PageShown[SealedEntryShown], responses=fails(CursorMismatch))
async def list_sealed_entries(
    request: ApiRequest,
    limit: Limit = Default,
    cursor: Cursor = None,
    after: Annotated[int, Query(ge=0, le=2**53 - 1, description="Only entries past this position.")] = 0,
) -> Response:
    """Sealed entries as they are stored, for whoever verifies them elsewhere. A page may be short before the last one."""
    request.caller.demand("operate")
    return page(await sealed_entries(request.db, page_of(limit, cursor), after), _sealed_entry)


@api.post("/seals/verify", response_model=VerifiedShown)
async def verify_seals(request: ApiRequest, sent: VerifySent) -> Response:
    """Verify a part of the chain and find the first position at which it does not hold."""
    request.caller.demand("operate")
    noted = None if sent.head is None else Link(sent.head.position, sent.head.link)
    if not sent.content:
        return _verified(await verify(request.db, sent.after, sent.limit, noted))
    publications = await evidence.published(request.db, sent.after, sent.limit)
    found = await verify(request.db, sent.after, publications.until - sent.after, noted)
    other = await evidence.compare(request.db, publications)
    if other is not None and (found.broken is None or other.position < found.broken.position):
        found = replace(found, broken=other, next=None)
    return _verified(found)


def _verified(found: Verified) -> Answer:
    shown: dict[str, Any] = {
        "ok": found.broken is None,
        "checked": found.checked,
        "head": _link(found.last),
        "unsealed": found.unsealed,
    }
    if found.broken is not None:
        shown["broken"] = {"position": found.broken.position, "reason": found.broken.reason}
    if found.next is not None:
        shown["next"] = found.next
    return Answer(shown)


def _ends(ends: Ends) -> dict[str, Any]:
    return {"head": _link(ends.head), "unsealed": ends.unsealed}


def _link(link: Link | None) -> dict[str, Any] | None:
    return None if link is None else {"position": link.position, "link": link.link}


def _seal(one: Seal) -> dict[str, Any]:
    # Whatever was written into the table, the list can be looked at.
    sealed_at = Instant(min(max(one.sealed_at, EARLIEST), LATEST))
    return {"position": one.position, "link": one.link, "entries": one.entries, "sealed_at": render(sealed_at)}


def _sealed_entry(one: SealedEntry) -> dict[str, Any]:
    return {"position": one.position, "entry": one.text, "link": one.link}

"""An import of a feed that is read page by page, goes on where the last run ended, and bears with a server's limits.

moorage runs start import --scope shop-feed --input '{"feed":"https://shop.example.test"}'
"""

from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, HttpUrl

from moorage.bodies import Retry, Run, body, each

PATIENT = Retry(attempts=8, base_ms=500)
"""For a server that says when to come again: its Retry-After is obeyed, and a long one suspends the run."""


class Feed(BaseModel):
    """Where to read."""

    feed: HttpUrl


class Page(BaseModel):
    """A page, and where the next one begins; None after the last."""

    items: list[dict[str, Any]]
    next: str | None


class Imported(BaseModel):
    """What a run brought in."""

    pages: int
    items: int


@body("import", effects=[each("page"), each("land")], retry=PATIENT)
async def import_(run: Run, given: Feed) -> Imported:
    """Read every page after the cursor; each page's records and the cursor's move are one commit."""
    cursor = await run.cursor("feed")
    pages = items = 0
    after: str | None = cursor.position or "0"
    while after is not None:
        answer = await run.fetch("page", f"{str(given.feed).rstrip('/')}/feed?after={quote(after)}")
        page = Page.model_validate(answer.json())
        records = [{"kind": "feed.item", "body": item} for item in page.items]
        cursor = await run.commit("land", cursor, page.next or "", records=records)
        pages, items, after = pages + 1, items + len(page.items), page.next
    return Imported(pages=pages, items=items)

"""Lists, a page after the other."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from moorage.client.models import Page

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


def segment(name: str) -> str:
    """A name as one segment of a path, whatever it holds."""
    return quote(name, safe="~")


def page_of(model: type[M], answer: Any) -> Page[M]:
    """A page from its JSON."""
    return Page([model.model_validate(item) for item in answer["items"]], answer["next_cursor"])


async def every(fetch: Callable[[str | None], Awaitable[Page[T]]]) -> AsyncGenerator[T, None]:
    """Every item of a list, fetching pages as they are needed."""
    cursor: str | None = None
    while True:
        page = await fetch(cursor)
        for item in page.items:
            yield item
        if page.next_cursor is None:
            return
        cursor = page.next_cursor

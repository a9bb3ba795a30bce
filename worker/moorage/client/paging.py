"""Lists, a page after the other."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from moorage.client.models import Page
from moorage.client.problems import Problem
from moorage.kernel.errors import IdInvalid

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


def segment(name: str) -> str:
    """A name as one segment of a path, whatever it holds. Raises Problem, as Moorage would say it, for what is no segment:
    the path without it would name something else."""
    if name in ("", ".", ".."):
        detail = f"{name!r} is no id or name: an id has 1 character or more, and is neither '.' nor '..'"
        raise Problem.unsent(IdInvalid(detail))
    try:
        return quote(name, safe="~")
    except UnicodeEncodeError:
        raise Problem.unsent(IdInvalid(f"{name!r} is not UTF-8")) from None


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

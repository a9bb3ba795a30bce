"""Pages of lists: a cursor is opaque, names the last item seen by its immutable seek key, and binds the list's filters."""

import base64
import binascii
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from moorage.kernel import canonical
from moorage.kernel.errors import CursorMismatch, JsonInvalid
from moorage.kernel.limits import CURSOR_CHARACTERS, PAGE_DEFAULT

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """At most a page of items, and the cursor of the next page, or None at the end."""

    items: list[T]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What a client asks of a list: 1..PAGE_ITEMS items after a cursor."""

    limit: int = int(PAGE_DEFAULT)
    cursor: str | None = None

    def after(self, filters: Any, *types: type) -> list[Any] | None:
        """The seek key that the cursor holds, or None for the first page.

        Raises CursorMismatch when the cursor is malformed, of another listing, or made under other filters.
        """
        if self.cursor is None:
            return None
        try:
            if len(self.cursor) > CURSOR_CHARACTERS:
                raise CursorMismatch()
            raw = base64.b64decode(self.cursor.encode("ascii"), altchars=b"-_", validate=True)
            found = canonical.loads(raw)
        except (UnicodeEncodeError, binascii.Error, JsonInvalid):
            raise CursorMismatch() from None
        match found:
            case [str() as bound, list() as key] if _same_types(key, types):
                if hmac.compare_digest(bound, _digest(filters)):
                    return key
        raise CursorMismatch()

    def page(
        self, rows: Sequence[R], filters: Any, key: Callable[[R], list[Any]], item: Callable[[R], T], met: int = 0
    ) -> Page[T]:
        """The page from rows that were asked for with `limit + 1`: the extra one only tells that there is more.

        `met` is how many rows there were, where some were left out because the answer was full.
        """
        shown = rows[: self.limit]
        more = max(len(rows), met) > len(shown)
        cursor = encode(filters, key(shown[-1])) if more else None
        return Page([item(row) for row in shown], cursor)


def encode(filters: Any, key: list[Any]) -> str:
    """The cursor after `key` in the listing with these filters."""
    return base64.urlsafe_b64encode(canonical.dumps([_digest(filters), key]).encode()).decode("ascii")


def _digest(filters: Any) -> str:
    return canonical.digest(canonical.dumps(filters))[:16]


def _same_types(key: list[Any], types: Sequence[type]) -> bool:
    return len(key) == len(types) and all(type(part) is expected for part, expected in zip(key, types, strict=True))

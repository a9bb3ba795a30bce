"""Conditional and partial reads of content that never changes: If-None-Match, Range, If-Range (RFC 9110)."""

import re

from moorage.kernel.errors import RangeUnsatisfiable
from moorage.store.ports import BlobRange

_RANGE = re.compile(r"bytes[ \t]*=[ \t]*(?:([0-9]{1,15})-([0-9]{0,15})|-([0-9]{1,15}))[ \t]*")


def unchanged(if_none_match: str | None, etag: str) -> bool:
    """Whether the client has the content already: one of the tags it names is this one, or `*`."""
    if if_none_match is None:
        return False
    named = [one.strip().removeprefix("W/") for one in if_none_match.split(",")]
    return "*" in named or etag in named


def requested(range_: str | None, if_range: str | None, etag: str, size: int) -> BlobRange | None:
    """The part that is asked for, or None for all of it.

    Several ranges at once, other units and malformed headers are passed over, as the standard allows, and so is a range
    under an If-Range that names other content. Raises RangeUnsatisfiable for a range that holds no byte.
    """
    if range_ is None or (if_range is not None and if_range.strip() != etag):
        return None
    found = _RANGE.fullmatch(range_.strip())
    if found is None:
        return None
    first, last, suffix = found.groups()
    if suffix is not None:
        start, end = max(0, size - int(suffix)), size - 1
    else:
        start, end = int(first), min(int(last), size - 1) if last else size - 1
        if last and int(last) < start:
            return None
    if start > end:
        raise RangeUnsatisfiable(f"the content has {size} bytes", size=size)
    return BlobRange(start, end - start + 1)

"""Long lists as statement parameters: JSON arrays, each within the size of a bound value."""

from collections.abc import Iterable, Iterator
from typing import Final

CHUNK_BYTES: Final = 1_000_000
"""Bytes of one array; half of what the platform binds, so that an element that comes last still fits."""


def json_arrays(elements: Iterable[str]) -> Iterator[str]:
    """The elements, each a JSON text, in their order as arrays of at most CHUNK_BYTES.

    An element that is longer by itself makes an array of its own. No element, no array.
    """
    held: list[str] = []
    filled = 0
    for element in elements:
        size = len(element.encode()) + 1
        if held and filled + size > CHUNK_BYTES:
            yield f"[{','.join(held)}]"
            held, filled = [], 0
        held.append(element)
        filled += size
    if held:
        yield f"[{','.join(held)}]"

"""Which route a path names.

The path is taken as it was sent, split at its slashes, and each segment is decoded exactly once. So a `%2F` never ends
a segment, an id never reaches another route, and every id that the product accepts can stand in a path (clause
edge.cors-head).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from urllib.parse import unquote_to_bytes

from moorage.kernel.errors import IdInvalid

R = TypeVar("R")

_MALFORMED = re.compile(r"%(?![0-9A-Fa-f]{2})")


def segments(raw_path: str) -> list[str]:
    """The decoded segments of a path; one trailing slash means nothing.

    Raises IdInvalid (400) when a percent sequence is malformed or the decoded text is not UTF-8.
    """
    if _MALFORMED.search(raw_path):
        raise IdInvalid("the path has a malformed percent sequence")
    path = raw_path.removeprefix("/").removesuffix("/")
    if "%" not in path and path.isascii():
        return path.split("/")
    try:
        return [unquote_to_bytes(part).decode("utf-8") for part in path.split("/")]
    except UnicodeError:
        raise IdInvalid("the path is not UTF-8") from None


@dataclass(slots=True)
class Place(Generic[R]):
    """A path of the interface, with the route of each method. A segment that is None stands for a parameter."""

    template: str
    shape: tuple[str | None, ...]
    names: tuple[str, ...]
    methods: dict[str, R] = field(default_factory=dict)

    def parameters(self, found: list[str]) -> dict[str, str] | None:
        """The parameters of a path that has this place's number of segments, or None when it names another place."""
        values: list[str] = []
        for expected, segment in zip(self.shape, found, strict=True):
            if expected is None:
                if not segment:
                    return None
                values.append(segment)
            elif expected != segment:
                return None
        return dict(zip(self.names, values, strict=True))


@dataclass(frozen=True, slots=True)
class Found(Generic[R]):
    """The places that a path names, most literal first, with what its parameters are in each."""

    places: list[tuple[Place[R], dict[str, str]]]

    @property
    def methods(self) -> set[str]:
        """Every method that some place has."""
        return {method for place, _ in self.places for method in place.methods}

    @property
    def advertised(self) -> set[str]:
        """The methods of the most literal place. `/records/query` is there to post to, though a record may be so called."""
        return set(self.places[0][0].methods)

    def route(self, method: str) -> tuple[R, str, dict[str, str]]:
        """The route of one of `methods`, its template and parameters."""
        return next(
            (place.methods[method], place.template, parameters)
            for place, parameters in self.places
            if method in place.methods
        )


class Index(Generic[R]):
    """All places, found by the number of their segments and the first of them."""

    def __init__(self, routes: Iterable[tuple[str, str, R]]) -> None:
        places: dict[str, Place[R]] = {}
        for method, template, route in routes:
            place = places.setdefault(template, _place(template))
            place.methods[method] = route
        self._places: Mapping[tuple[int, str], list[Place[R]]] = _grouped(places.values())

    def find(self, raw_path: str) -> Found[R]:
        """What the path names; nothing when it names no place. Raises IdInvalid as `segments` does."""
        parts = segments(raw_path)
        matches: list[tuple[Place[R], dict[str, str]]] = []
        for place in self._places.get((len(parts), parts[0]), ()):
            parameters = place.parameters(parts)
            if parameters is not None:
                matches.append((place, parameters))
        return Found(matches)


def _place(template: str) -> Place[R]:
    parts = template.removeprefix("/").split("/")
    names = tuple(part[1:-1] for part in parts if part.startswith("{"))
    return Place(template, tuple(None if part.startswith("{") else part for part in parts), names)


def _grouped(places: Iterable[Place[R]]) -> dict[tuple[int, str], list[Place[R]]]:
    grouped: dict[tuple[int, str], list[Place[R]]] = {}
    for place in sorted(places, key=lambda place: len(place.names)):
        grouped.setdefault((len(place.shape), place.shape[0] or ""), []).append(place)
    return grouped

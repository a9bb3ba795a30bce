"""Filters of subscriptions: patterns with the one meaning that patterns have everywhere, kept with what reading them takes.

Over the bodies of one declared kind a filter may name its declared paths, and operands are held to their types; a filter
over what an entry itself tells may name any path.
"""

from collections.abc import Mapping
from typing import Any

from moorage.catalog import paths
from moorage.catalog.kinds import Kind
from moorage.catalog.paths import DeclaredPath
from moorage.kernel import canonical
from moorage.kernel.errors import PatternInvalid, RequestInvalid
from moorage.records.patterns import Pattern, parse


class AnyPath(dict[str, DeclaredPath]):
    """Paths where none is declared: every path is, as of any type. It fills with those that a pattern names.

    Raises PatternInvalid for what is no path.
    """

    def get(self, text: str, default: Any = None) -> Any:
        if text not in self:
            if text.startswith("$"):
                return default
            try:
                self[text] = DeclaredPath(text, paths.parse_path(text), "any", 1)
            except RequestInvalid as error:
                raise PatternInvalid(error.detail) from None
        return self[text]


def check(match: Mapping[str, Any], kind: Kind | None) -> str:
    """The filter as it is stored. Raises PatternInvalid.

    It keeps the types of the kind's paths with it: these never change, so nothing has to be looked up when it is applied.
    """
    parse(dict(match), AnyPath() if kind is None else kind.paths)
    types = None if kind is None else {text: path.type for text, path in kind.paths.items()}
    return canonical.dumps({"match": dict(match), "paths": types})


def match_of(stored: str) -> Mapping[str, Any]:
    """The pattern as it was declared."""
    found: Mapping[str, Any] = canonical.stored(stored)["match"]
    return found


def read(stored: str) -> tuple[Pattern, bool]:
    """The pattern of a stored filter, and whether it is about bodies of records rather than the data of entries."""
    found = canonical.stored(stored)
    types = found["paths"]
    return parse(found["match"], AnyPath() if types is None else paths.declare(types)), types is not None

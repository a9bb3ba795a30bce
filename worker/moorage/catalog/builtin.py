"""Kinds that are the product's own: it declares them when it needs them, and alone publishes to them."""

from collections.abc import Mapping
from typing import Final

from moorage.catalog.model import KindDeclaration
from moorage.catalog.paths import PathType
from moorage.kernel.errors import KindConflict
from moorage.kernel.refusals import refused

ARTIFACT: Final = "artifact"

BUILT_IN: Final[Mapping[str, Mapping[str, PathType]]] = {
    ARTIFACT: {"digest": "string", "media_type": "string", "size": "number"},
}
"""The kinds and the paths that they have, no more and no fewer."""


def check_declaration(name: str, declaration: KindDeclaration) -> None:
    """Raise KindConflict for a declaration that would change what a built-in kind's bodies are.

    How its records are claimed and how long they are kept is the operator's to say, as with every kind.
    """
    paths = BUILT_IN.get(name)
    if paths is None:
        return
    if declaration.paths != paths:
        raise KindConflict(f"the kind {name!r} is built in, with the paths {', '.join(paths)}")
    if declaration.json_schema is not None:
        raise KindConflict(f"the kind {name!r} is built in and takes no schema")


def check_publisher(names: set[str]) -> None:
    """Raise RequestInvalid when one of the kinds is built in: clients publish to it by its own route."""
    found = sorted(names & BUILT_IN.keys())
    if found:
        message = f"records of the kind {found[0]!r} are made by POST /{found[0]}s"
        raise refused("/kind", message, message)

"""Scopes of executions: what clients may call them, what they are called otherwise, and what lies below one.

A scope is one or more segments with slashes between them; what begins with a scope and a slash lies below it. A client's
segment is an id (`kernel.ids.check_client_id`). Two forms are made here and are no client's to choose, so that they never
meet: the id of a run, as the first segment, for an execution whose scope nobody named; and a segment with a `+`, which no
client's id holds, for a child.
"""

import re
from typing import Final

from moorage.kernel import canonical
from moorage.kernel.errors import IdInvalid
from moorage.kernel.ids import check_client_id
from moorage.kernel.limits import ID_CHARACTERS, SCOPE_CHARACTERS

_RUN = re.compile(r"run_[0-9a-z]{26}(?:/|\Z)")
_DERIVED_SEGMENT = re.compile(r"[A-Za-z0-9._~:@-]*\+[0-9a-f]{16}")
_OTHER = re.compile(r"[^A-Za-z0-9._~:@-]")
_LABEL: Final = 40
_HASH: Final = 16


def check_declared(scope: str) -> str:
    """A scope that a client names, unchanged.

    Raises IdInvalid for an empty segment, `.` or `..`, characters that an id may not hold, more than ID_CHARACTERS in all,
    and for a scope that only Moorage gives.
    """
    if is_derived(scope):
        raise IdInvalid("a scope may neither begin with a run's id nor hold a '+'")
    if len(scope) > ID_CHARACTERS:
        raise IdInvalid(f"a scope must have 1 to {ID_CHARACTERS} characters")
    for segment in scope.split("/"):
        check_client_id(segment, "each segment of a scope")
    return scope


def is_derived(scope: str) -> bool:
    """Whether the scope has a form that only Moorage gives."""
    return "+" in scope or _RUN.match(scope) is not None


def check_derived(scope: str) -> str:
    """A scope of a form that only Moorage gives, as a client repeats it. Raises IdInvalid for what it never gives."""
    if len(scope) > SCOPE_CHARACTERS:
        raise IdInvalid(f"a scope has at most {SCOPE_CHARACTERS} characters")
    for segment in scope.split("/"):
        if _DERIVED_SEGMENT.fullmatch(segment) is None:
            check_client_id(segment, "each segment of a scope")
    return scope


def child_scope(parent: str, label: str, input_sha256: str) -> str:
    """The scope of a child that was started under `label` with this input: below its parent's, the same each time.

    Raises IdInvalid past SCOPE_CHARACTERS: children of children are nested too deep.
    """
    told = canonical.digest(f"{label}\0{input_sha256}")[:_HASH]
    scope = f"{parent}/{_OTHER.sub('-', label)[:_LABEL]}+{told}"
    if len(scope) > SCOPE_CHARACTERS:
        raise IdInvalid(f"runs are nested too deep: a child's scope would pass {SCOPE_CHARACTERS} characters")
    return scope


def below(scope: str) -> tuple[str, str]:
    """The bounds, inclusive and exclusive, between which every scope below this one lies, and none else."""
    return f"{scope}/", f"{scope}0"  # 0 follows the slash

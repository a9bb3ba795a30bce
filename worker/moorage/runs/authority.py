"""Who may do what with runs: a grant is on a body's name, which stands among its `kinds`.

A grant that a pattern narrows is about records and gives nothing here. Whoever started a run may always look at it.
"""

from typing import Final

from moorage.catalog.access import Action, Caller
from moorage.kernel.errors import Forbidden

SEEING: Final[tuple[Action, ...]] = ("read", "execute", "operate")
"""Each of these on a body shows its runs."""


def holds(caller: Caller, action: Action, body: str) -> bool:
    """Whether the caller may do `action` on this body."""
    return caller.is_root or any(grant.match is None and grant.covers(action, body) for grant in caller.grants)


def demand(caller: Caller, action: Action, body: str) -> None:
    """Raise Forbidden unless the caller `holds` it."""
    if not holds(caller, action, body):
        raise Forbidden(f"the credential does not grant {action} on body {body!r}")


def sees(caller: Caller, body: str) -> bool:
    """Whether the caller may look at every run of this body."""
    return any(holds(caller, action, body) for action in SEEING)


def seen_bodies(caller: Caller) -> list[str] | None:
    """The names and prefixes of the bodies all of whose runs the caller may look at; None for every body."""
    names: set[str] = set()
    for action in SEEING:
        given = caller.whole(action)
        if given is None:
            return None
        names.update(given)
    return sorted(names)


def executes_somewhere(caller: Caller) -> bool:
    """Whether the caller may execute some body."""
    whole = caller.whole("execute")
    return whole is None or bool(whole)

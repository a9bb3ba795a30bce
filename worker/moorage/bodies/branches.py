"""Where a body is: its branches, and the positions of what it asks for (clause runs.fan-out-join).

A position is the branch's path and a counter: `3` in the body itself, `2.1/0` in branch 1 of the gather at 2.
"""

from contextvars import ContextVar
from typing import Final


class Branch:
    """One sequence of a body: the body itself, or one coroutine of a gather or a first."""

    __slots__ = ("_lost", "_outer", "busy", "count", "path", "refused")

    def __init__(self, path: str = "", outer: "Branch | None" = None) -> None:
        self.path = path
        self.count = 0
        self.busy: str | None = None
        self.refused = 0
        self._outer = outer
        self._lost = False

    @property
    def lost(self) -> bool:
        """Whether this branch, or one that it lies inside, lost a first and was canceled."""
        return self._lost or (self._outer is not None and self._outer.lost)

    def lose(self) -> None:
        """Another branch of the first has won."""
        self._lost = True

    def position(self) -> str:
        """Where the next thing stands."""
        return f"{self.path}{self.count}"

    def child(self, position: str, index: int) -> "Branch":
        """Branch `index` of the join at `position`."""
        return Branch(f"{position}.{index}/", self)


BRANCH: Final[ContextVar[Branch]] = ContextVar("moorage_branch")

CALLBACK: Final[ContextVar["str | None"]] = ContextVar("moorage_callback", default=None)
"""The label of the guarded effect whose callback is executing."""


def split(position: str) -> tuple[str, int]:
    """A position's branch path and counter. Raises ValueError when it is not one."""
    path, slash, counter = position.rpartition("/")
    return path + slash, int(counter)


def ancestors(position: str) -> list[tuple[str, int]]:
    """The joins that a position lies inside, as their own paths and counters, innermost first."""
    found = []
    path, _ = split(position)
    while path:
        join, _, _ = path[:-1].rpartition(".")
        place = split(join)
        found.append(place)
        path = place[0]
    return found

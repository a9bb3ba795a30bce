"""What a Run hands out: a cursor, its metadata, and the way around the journal (clause runs.escape-hatch)."""

from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, TypeVar

import pydantic_core

from moorage.bodies.errors import EffectOutsideStep

if TYPE_CHECKING:
    from moorage.bodies.core import Core

T = TypeVar("T")


class Cursor:
    """A committed position of the scope, and its revision; 0 before the first commit."""

    __slots__ = ("name", "position", "revision")

    def __init__(self, name: str, position: Any, revision: int) -> None:
        self.name = name
        self.position = position
        self.revision = revision

    def __repr__(self) -> str:
        return f"Cursor({self.name!r}, {self.position!r}, revision={self.revision})"


class Journal:
    """The one way around the journal."""

    __slots__ = ("_engine",)

    def __init__(self, engine: "Core") -> None:
        self._engine = engine

    async def unsafe(self, label: str, effect: Callable[[], Awaitable[T]]) -> T:
        """Run an idempotent read without recording it: it runs again in every replay, and may answer otherwise.

        `label` says at the call site why that is harmless, and makes the place easy to find. Raises whatever it raises.
        """
        engine = self._engine
        if not label:
            raise EffectOutsideStep("run.journal.unsafe takes a label that says which read goes unrecorded")
        branch, token = await engine.begin(label)
        try:
            return await effect()
        finally:
            engine.leave(branch, token)


class Metadata(MutableMapping[str, Any]):
    """The run's metadata as a mapping; a change is told with the next operation."""

    __slots__ = ("_engine",)

    def __init__(self, engine: "Core") -> None:
        self._engine = engine

    def __getitem__(self, name: str) -> Any:
        return self._engine.metadata[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._engine.set_metadata({**self._engine.metadata, name: pydantic_core.to_jsonable_python(value)})

    def __delitem__(self, name: str) -> None:
        left = dict(self._engine.metadata)
        del left[name]
        self._engine.set_metadata(left)

    def __iter__(self) -> Iterator[str]:
        return iter(self._engine.metadata)

    def __len__(self) -> int:
        return len(self._engine.metadata)

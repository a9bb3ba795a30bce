"""What was recorded, and whether the body asks for the same again (clause runs.effect-boundary)."""

import hashlib
from collections.abc import Iterable, Mapping

from moorage.bodies.branches import Branch, ancestors, split
from moorage.bodies.errors import EffectUndeclared, ReplayDivergence, StepLabelReused
from moorage.journal.model import ENDED, Entry, EntryKey

_ADVICE = (
    "A replay must ask for the same steps in the same order: let nothing outside the recorded steps decide which step "
    "comes next, restore the code that recorded this, or rewind the execution."
)


class Replay:
    """The journal of one execution in memory, with what this pass of the body has asked for."""

    def __init__(self, effects: Mapping[str, bool], entries: Iterable[Entry]) -> None:
        self.entries: dict[EntryKey, Entry] = {}
        self._effects = effects
        self._places: dict[str, EntryKey] = {}
        self._joins: set[tuple[str, int]] = set()
        self._last: dict[str, int] = {}
        self._asked: set[EntryKey] = set()
        self._left: list[str] = []
        self._labels: dict[str, str] = {}
        for entry in entries:
            self.entries[entry.key] = entry
            self._places[entry.position] = entry.key
            inside = ancestors(entry.position)
            self._joins.update(inside)
            for path, count in (split(entry.position), *inside):
                if self._last.get(path, -1) < count:
                    self._last[path] = count

    def declared(self, label: str, input_sha256: str) -> None:
        """Raises EffectUndeclared, StepLabelReused."""
        several = self._effects.get(label)
        if several is None:
            known = ", ".join(repr(one) for one in self._effects) or "none"
            raise EffectUndeclared(f"{label!r} is not among the body's effects ({known}): add it to effects=[...]", label)
        if not several and self._labels.setdefault(label, input_sha256) != input_sha256:
            raise StepLabelReused(
                f"{label!r} was asked for with another input in this run: declare it as each({label!r}), or use two labels",
                label,
            )

    def ask(self, branch: Branch, key: EntryKey) -> tuple[str, Entry | None]:
        """The position at which the branch asks for this key, and what is recorded. Raises ReplayDivergence."""
        path, count = branch.path, branch.count
        branch.count = count + 1
        position = f"{path}{count}"
        entry = self.entries.get(key)
        if self._last.get(path, -1) >= count:
            recorded = self._places.get(position)
            if recorded is not None and recorded != key:
                raise ReplayDivergence(
                    f"at {position} the body recorded {_named(recorded)}, and now asks for {_named(key)}. {_ADVICE}"
                )
            if (path, count) in self._joins:
                raise ReplayDivergence(
                    f"at {position} the body had a gather or a first, and now asks for {_named(key)}. {_ADVICE}"
                )
        if entry is None and self._is_late(position, path, count):
            raise ReplayDivergence(
                f"at {position} the body now asks for {_named(key)}, before steps that it recorded. {_ADVICE}"
            )
        self._asked.add(key)
        return position, entry

    def _is_late(self, position: str, path: str, count: int) -> bool:
        """Whether something was recorded that came after this place, so that nothing new can stand here."""
        if self._last.get(path, -1) >= count:
            return True
        return path != "" and any(self._last.get(outer, -1) > place for outer, place in ancestors(position))

    def join(self, branch: Branch, kind: str) -> str:
        """The position of a join of the branch, `run.gather` or `run.first`. Raises ReplayDivergence."""
        position = branch.position()
        recorded = self._places.get(position)
        if recorded is not None and recorded.label != kind:
            raise ReplayDivergence(f"at {position} the body recorded {_named(recorded)}, and now has {kind!r}. {_ADVICE}")
        branch.count += 1
        return position

    def mark(self, key: EntryKey) -> None:
        """This was asked for, at its own place."""
        self._asked.add(key)

    def leave(self, branch_path: str) -> None:
        """Expect nothing more of a branch that lost, nor of what lies inside it."""
        self._left.append(branch_path)

    def open_under(self, branch_path: str) -> list[Entry]:
        """The entries of a branch, and of what lies inside it, that have not ended."""
        return [one for one in self.entries.values() if one.state not in ENDED and one.position.startswith(branch_path)]

    def check_complete(self) -> None:
        """Raises ReplayDivergence when the body returned without asking for something that it had recorded."""
        for key, entry in self.entries.items():
            if key in self._asked or entry.state == "canceled" or any(map(entry.position.startswith, self._left)):
                continue
            raise ReplayDivergence(
                f"the body returned without asking for {_named(key)}, recorded at {entry.position}. {_ADVICE}"
            )


def placed(label: str, position: str, detail: object = "") -> EntryKey:
    """The key of something that the engine names by its place: `run.sleep` at 3."""
    return EntryKey(label, hashlib.sha256(f"{position}\0{detail}".encode()).hexdigest())


def _named(key: EntryKey) -> str:
    return f"{key.label!r} (input {key.input_sha256[:8]})"

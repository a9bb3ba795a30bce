"""Writing entries: every plain operation of a host in one statement (clauses runs.step-output, runs.entry-key)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from moorage.journal import statements
from moorage.journal.model import Entry, EntryKey, Fence, Kind, State, Value
from moorage.kernel import canonical
from moorage.kernel.errors import EntryUnknown
from moorage.kernel.instants import Instant
from moorage.store.chunks import CHUNK_BYTES
from moorage.store.transaction import Answer, Row, Transaction

APART_BYTES: Final = 200_000
"""A write of more than this is a statement of its own, its value in a parameter of its own."""


@dataclass(frozen=True, slots=True)
class Write:
    """What an entry shall become. Without a `kind` it must be there already. `value` must be small enough for its row, or
    a blob; `failure` is canonical JSON."""

    key: EntryKey
    state: State
    kind: Kind | None = None
    position: str = ""
    attempt: int = 1
    ref: str | None = None
    next_attempt_at: Instant | None = None
    value: Value | None = None
    failure: str | None = None

    def columns(self) -> list[Any]:
        """What the statement reads."""
        key, value = self.key, self.value
        size, blob, text = (0, None, None) if value is None else (value.size, value.blob, value.text)
        return [
            key.label,
            key.input_sha256,
            self.position,
            self.kind,
            self.state,
            self.attempt,
            self.ref,
            self.next_attempt_at,
            size,
            blob,
            self.failure,
            None if blob is not None else text,
        ]


class Written:
    """What became of writes once they are committed, by their places."""

    def __init__(self) -> None:
        self._placed: list[tuple[Answer, Write]] = []
        self._found: dict[int, dict[tuple[str, str], Row]] = {}

    def add(self, answer: Answer, writes: Sequence[Write]) -> None:
        """Called while planning, for each statement."""
        self._placed += [(answer, write) for write in writes]

    def row(self, place: int) -> Row | None:
        """The row that the write of this place made; None when what stood there stands."""
        answer, write = self._placed[place]
        rows = self._found.get(id(answer))
        if rows is None:
            rows = self._found[id(answer)] = {(row["label"], row["input_sha256"]): row for row in answer.rows}
        return rows.get((write.key.label, write.key.input_sha256))

    def entry(self, place: int, row: Row, fence: Fence, now: Instant, failure: dict[str, Any] | None = None) -> Entry:
        """The entry that the write of this place made, from its row, with the value that was written."""
        write = self._placed[place][1]
        return Entry(
            key=write.key,
            kind=row["kind"],
            position=row["position"],
            state=write.state,
            attempt=row["attempt"],
            epoch=fence.epoch,
            started_at=row["started_at"],
            ended_at=None if write.state in ("pending", "waiting") else now,
            ref=row["ref"],
            next_attempt_at=write.next_attempt_at,
            value=write.value,
            failure=failure,
        )


def write(tx: Transaction, fence: Fence, writes: Sequence[Write]) -> Written:
    """Add the writes to a fenced transaction, in their order.

    The commit raises EntryUnknown when a write without a kind finds no entry.
    """
    written = Written()
    if any(one.kind is None for one in writes):
        tx.refuse("journal.kind", EntryUnknown())
    for rows, value, group in _groups(writes):
        answer = tx.run(statements.WRITE, execution=fence.execution_id, epoch=fence.epoch, writes=rows, value=value)
        written.add(answer, group)
    return written


def _groups(writes: Sequence[Write]) -> Iterator[tuple[str, str | None, list[Write]]]:
    """The writes for one statement each: no entry twice, bounded in size, a large value apart."""
    texts: list[str] = []
    group: list[Write] = []
    keys: set[EntryKey] = set()
    filled = 0
    for one in writes:
        value = one.value
        columns = one.columns()
        large = value is not None and value.blob is None and value.size > APART_BYTES
        if large:
            columns[-1] = None
        text = canonical.compact(columns)
        size = len(text) if text.isascii() else canonical.size(text)
        if group and (large or one.key in keys or filled + size > CHUNK_BYTES):
            yield f"[{','.join(texts)}]", None, group
            texts, group, keys, filled = [], [], set(), 0
        if large and value is not None:
            yield f"[{text}]", value.text, [one]
            continue
        texts.append(text)
        group.append(one)
        keys.add(one.key)
        filled += size
    if group:
        yield f"[{','.join(texts)}]", None, group

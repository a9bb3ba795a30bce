"""What each operation does to an execution in memory (the reference model; `memory` is the substrate around it)."""

from dataclasses import dataclass, field, replace
from typing import Any

from moorage.journal.model import ENDED, Entry, EntryKey, Value
from moorage.kernel import canonical
from moorage.kernel.errors import CursorMoved, EntryUnknown, ExecutionWoken
from moorage.kernel.instants import Instant, after, render
from moorage.messages.inbox.matching import Filter
from moorage.runs.model import Execution, Minted, Stop
from moorage.runs.operations import (
    Await,
    AwaitEvent,
    Claim,
    Claimed,
    Close,
    CommitCursor,
    Done,
    Fail,
    GiveUp,
    Mint,
    Operation,
    Outcome,
    Publish,
    Put,
    Record,
    Recorded,
    SetMetadata,
    StartChild,
    Suspend,
)
from tests.unit.bodies.clock import START, Clock


@dataclass
class Row:
    """One execution with its run, as the house would keep it."""

    execution: Execution
    entries: dict[EntryKey, Entry] = field(default_factory=dict)
    epoch: int = 1
    owner: str | None = "host"
    expires_at: Instant = START
    status: str = "running"
    result: Any = None
    error: dict[str, Any] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    next_attempt_at: Instant | None = None
    awaiting: list[dict[str, Any]] = field(default_factory=list)
    stop: Stop | None = None
    bounds: list[dict[str, Any]] = field(default_factory=list)


class Rows:
    """What has been recorded and what has ended outside, and each operation's effect on one row."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.rows: dict[str, Row] = {}
        self.ends: dict[str, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self.waits: dict[tuple[str, EntryKey], tuple[AwaitEvent, int]] = {}
        self.consumed: set[tuple[str, int]] = set()
        self.cursors: dict[str, tuple[Value, int]] = {}
        self.published: list[Any] = []

    def _one(self, row: Row, operation: Operation) -> Outcome:  # noqa: C901 - one case for each operation
        now = self.clock.now()
        match operation:
            case Claim(until=None):
                return self._claim(row, operation.key, operation.kind, operation.position)
            case Claim():
                found = row.entries.get(operation.key)
                if found is not None:
                    again = found.state == "waiting" and found.next_attempt_at == operation.until
                    return Claimed(found.attempt) if again else Recorded(found)
                row.entries[operation.key] = Entry(
                    operation.key,
                    operation.kind,
                    operation.position,
                    "waiting",
                    1,
                    row.epoch,
                    now,
                    next_attempt_at=operation.until,
                )
                return Claimed(1)
            case Record():
                found = self._known(row, operation.key)
                if found.state in ENDED or (found.state == "waiting" and (found.next_attempt_at or 0) > now):
                    return Recorded(found)
                return self._end(row, replace(found, state="done", value=operation.value))
            case Put():
                if (found := row.entries.get(operation.key)) is not None:
                    return Recorded(found)
                return self._new(row, operation, operation.kind, operation.value)
            case Fail():
                found = self._known(row, operation.key)
                if found.state != "pending" or found.attempt != operation.attempt:
                    return Recorded(found)
                if operation.bound is not None:
                    row.bounds.append({"label": operation.key.label, "attempt": operation.attempt, "bound": operation.bound})
                if operation.next_attempt_at is None:
                    return self._end(row, replace(found, state="failed", failure=operation.failure.wire()))
                waiting = replace(
                    found, state="waiting", next_attempt_at=operation.next_attempt_at, failure=operation.failure.wire()
                )
                row.entries[operation.key] = waiting
                return Recorded(waiting)
            case GiveUp():
                found = self._known(row, operation.key)
                return Recorded(found) if found.state in ENDED else self._end(row, replace(found, state="canceled"))
            case _:
                return self._other(row, operation, now)

    def _other(self, row: Row, operation: Operation, now: Instant) -> Outcome:  # noqa: C901 - the same
        match operation:
            case Mint():
                found = row.entries.get(operation.key)
                if found is None:
                    deadline = after(now, operation.ttl_seconds)
                    self._new(row, operation, "awakeable", Value.of(f'{{"deadline":{deadline}}}'))
                return self._minted(row.entries[operation.key])
            case Await():
                return self._outside(row, operation.key, "wait", operation.position, operation.awakeable)
            case AwaitEvent():
                return self._await_event(row, operation)
            case StartChild():
                return self._outside(
                    row, operation.key, "child", operation.position, f"run_child_{operation.key.input_sha256[:6]}"
                )
            case Publish():
                if (found := row.entries.get(operation.key)) is not None:
                    return Recorded(found)
                self.published += operation.records
                ids = [f"rec_{len(self.published)}_{index}" for index in range(len(operation.records))]
                return self._new(row, operation, "publish", Value.of(canonical.dumps({"records": ids})))
            case CommitCursor():
                if (found := row.entries.get(operation.key)) is not None:
                    return Recorded(found)
                if self.cursors.get(operation.name, (None, 0))[1] != operation.expected:
                    raise CursorMoved
                self.cursors[operation.name] = (operation.value, operation.expected + 1)
                text = f'{{"position":{operation.value.text},"revision":{operation.expected + 1}}}'
                return self._new(row, operation, "cursor", Value.of(text))
            case SetMetadata():
                row.metadata = dict(operation.metadata)
            case Suspend():
                if self._settle(row) or row.stop is not None:
                    raise ExecutionWoken
                row.status, row.owner = operation.status, None
                row.next_attempt_at, row.awaiting = operation.next_attempt_at, [dict(one) for one in operation.awaiting]
            case Close():
                row.status, row.owner = operation.status, None
                row.result = None if operation.result is None else canonical.loads((operation.result.text or "").encode())
                row.error = None if operation.error is None else operation.error.wire()
        return Done()

    def _claim(self, row: Row, key: EntryKey, kind: Any, position: str) -> Outcome:
        now, found = self.clock.now(), row.entries.get(key)
        if found is None:
            row.entries[key] = Entry(key, kind, position, "pending", 1, row.epoch, now)
            return Claimed(1)
        if found.state == "pending" and found.epoch == row.epoch:
            return Claimed(found.attempt, found.ref)
        if found.state == "pending" or (found.state == "waiting" and (found.next_attempt_at or 0) <= now):
            row.entries[key] = replace(found, state="pending", attempt=found.attempt + 1, epoch=row.epoch)
            return Claimed(found.attempt + 1)
        return Recorded(found)

    def _minted(self, entry: Entry) -> Minted:
        name = f"awk_{entry.key.label}_{entry.key.input_sha256[:6]}"
        deadline = Instant(int(str(entry.value.text if entry.value else "").split(":")[1].rstrip("}")))
        return Minted(name, f"token-{name}", deadline, f"https://moorage.test/awake/token-{name}")

    def _outside(self, row: Row, key: EntryKey, kind: Any, position: str, ref: str) -> Outcome:
        if key not in row.entries:
            row.entries[key] = Entry(key, kind, position, "pending", 1, row.epoch, self.clock.now(), ref=ref)
        self._settle(row)
        found = row.entries[key]
        return Recorded(found) if found.state in ENDED else Claimed(1, ref)

    def _await_event(self, row: Row, operation: AwaitEvent) -> Outcome:
        now, key = self.clock.now(), operation.key
        if key not in row.entries:
            since = render(after(now, -operation.look_back_seconds))
            boundary = next((n for n, one in enumerate(self.events) if one["accepted_at"] >= since), len(self.events))
            self.waits[(row.execution.execution_id, key)] = (operation, boundary)
            row.entries[key] = Entry(
                key, "event", operation.position, "pending", 1, row.epoch, now, next_attempt_at=operation.timeout_at
            )
        self._settle(row)
        found = row.entries[key]
        return Recorded(found) if found.state in ENDED else Claimed(1)

    def _event_of(self, row: Row, entry: Entry) -> dict[str, Any] | None:
        """How a wait for an event has ended, if it has: the first event that fits and that the execution has not had."""
        name = row.execution.execution_id
        wanted, boundary = self.waits[(name, entry.key)]
        filter_ = Filter.checked(wanted.keys, wanted.types, wanted.match)
        for number, one in enumerate(self.events):
            data = canonical.dumps(one["data"]) if "data" in one else None
            fits = number >= boundary and filter_.fits(one["type"], one["keys"], data)
            if fits and (name, number) not in self.consumed:
                self.consumed.add((name, number))
                return {"event": one}
        if wanted.timeout_at is not None and wanted.timeout_at <= self.clock.now():
            return {"timed_out": render(wanted.timeout_at)}
        return None

    def _settle(self, row: Row) -> list[Entry]:
        ended = []
        for key, entry in row.entries.items():
            if entry.kind == "event" and entry.state == "pending" and (told := self._event_of(row, entry)) is not None:
                value = Value.of(canonical.dumps(told))
                row.entries[key] = replace(entry, state="done", ended_at=self.clock.now(), value=value)
                ended.append(row.entries[key])
            if entry.kind in ("wait", "child") and entry.state == "pending" and entry.ref in self.ends:
                value = Value.of(canonical.dumps(self.ends[entry.ref]))
                row.entries[key] = replace(entry, state="done", ended_at=self.clock.now(), value=value)
                ended.append(row.entries[key])
        return ended

    def _known(self, row: Row, key: EntryKey) -> Entry:
        if key not in row.entries:
            raise EntryUnknown
        return row.entries[key]

    def _new(self, row: Row, operation: Any, kind: Any, value: Value) -> Recorded:
        now = self.clock.now()
        entry = Entry(operation.key, kind, operation.position, "done", 1, row.epoch, now, now, value=value)
        row.entries[operation.key] = entry
        return Recorded(entry)

    def _end(self, row: Row, entry: Entry) -> Recorded:
        row.entries[entry.key] = replace(entry, ended_at=self.clock.now())
        return Recorded(row.entries[entry.key])

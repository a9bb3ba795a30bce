"""A substrate in memory: the reference model that the engine is tested against, with faults at every place.

It keeps what `runs.substrate_port` says and nothing else: fences, entries that never change once they ended, waits of time,
awakeables and children that end from outside. Each apply is atomic. Faults: `fail_before` and `fail_after` make a call raise
StorageBindingUnavailable, without and with its effect; `kill_at` ends the host at the n-th call, before or after its effect:
the call never answers, `killed` is set, and the test lets go of the host.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from moorage.bodies import Body, Registry
from moorage.bodies.host import Host
from moorage.journal.model import ENDED, Entry, EntryKey, Fence, Lease, Value, input_hash
from moorage.kernel import canonical
from moorage.kernel.errors import (
    CursorMoved,
    EntryUnknown,
    ExecutionGuardBlocked,
    ExecutionWoken,
    LeaseExpired,
    LeaseFenced,
    StorageBindingUnavailable,
)
from moorage.kernel.instants import Instant, after, render
from moorage.messages.inbox.matching import Filter
from moorage.runs.guarding import GUARDING
from moorage.runs.model import CAPABILITIES, Execution, Minted, Pins, Stop, Trace
from moorage.runs.observing import RunChange, StepChange
from moorage.runs.operations import (
    AdmitGuard,
    Await,
    AwaitEvent,
    Claim,
    Claimed,
    Close,
    CommitCursor,
    Done,
    Fail,
    GiveUp,
    HoldEntity,
    LetEntity,
    Mint,
    Operation,
    Outcome,
    Publish,
    Put,
    Record,
    Recorded,
    ReleaseGuard,
    SetMetadata,
    StartChild,
    Suspend,
)
from tests.unit.bodies.watch import Watch

T = TypeVar("T")

START = Instant(1_772_366_400_000)
"""2026-03-01T12:00:00Z, a Sunday."""


class Clock:
    """A clock that moves only when everything waits for it, and nothing real is under way (`working`)."""

    def __init__(self, now: Instant = START) -> None:
        self.instant = now
        self.busy = 0
        self._done = 0
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    def now(self) -> Instant:
        return self.instant

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        entry = (after(self.instant, seconds), next(self._numbers), future)
        self._sleepers.append(entry)
        try:
            await future
        finally:
            if entry in self._sleepers:
                self._sleepers.remove(entry)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Something real happens in here."""
        self.busy += 1
        try:
            yield
        finally:
            self.busy -= 1
            self._done += 1

    def advance_to(self, instant: int) -> None:
        self.instant = Instant(max(self.instant, instant))
        for due in sorted(one for one in self._sleepers if one[0] <= self.instant):
            self._sleepers.remove(due)
            if not due[2].done():
                due[2].set_result(None)

    async def drive(self, work: Awaitable[T], *, until: float = 10 * 366 * 86400) -> T:
        """Await work, moving the clock whenever nothing else can happen."""
        task = asyncio.ensure_future(work)
        last = after(self.instant, until)
        for _ in range(20_000):
            if task.done():
                return task.result()
            done = self._done
            for _ in range(12):
                await asyncio.sleep(0)
            if task.done() or done != self._done:
                # What really ended meanwhile has its consequences still before it.
                continue
            if self.busy:
                # A real round trip is under way: it takes no time of this clock.
                await asyncio.sleep(0.0005)
            elif self._sleepers and (earliest := min(self._sleepers)[0]) <= last:
                self.advance_to(earliest)
            else:
                # What was left to be recorded is flushed after two real milliseconds.
                await asyncio.sleep(0.003)
        raise AssertionError("the work does not end")


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


class Memory:
    """The substrate, and what tests do to it from outside."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self.registry = registry
        self.clock = clock
        self.rows: dict[str, Row] = {}
        self.ends: dict[str, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self.waits: dict[tuple[str, EntryKey], tuple[AwaitEvent, int]] = {}
        self.consumed: set[tuple[str, int]] = set()
        self.cursors: dict[str, tuple[Value, int]] = {}
        self.published: list[Any] = []
        self.applied: list[list[Operation]] = []
        self.calls = 0
        self.fail_before: set[int] = set()
        self.fail_after: set[int] = set()
        self.kill_at: tuple[int, str] | None = None
        self.killed = asyncio.Event()
        self.refuse: Callable[[Sequence[Operation]], None] | None = None
        self.latency: Callable[[], Awaitable[None]] | None = None
        self.watch = Watch()

    # --- from outside -------------------------------------------------------------------------------------------------

    def open(
        self,
        body: str,
        given: Any = None,
        *,
        name: str = "exe_1",
        scope: str | None = None,
        capabilities: frozenset[str] = CAPABILITIES,
    ) -> Execution:
        text = canonical.dumps(given)
        execution = Execution(
            execution_id=name,
            run_id=name.replace("exe", "run"),
            body=body,
            scope=scope or f"scope-{name}",
            lease=Lease(1, "host", after(self.clock.now(), 30)),
            pins=Pins(self.registry.build(body), input_hash(given)),
            input=Value.of(text),
            trace=Trace("a" * 32, "b" * 16),
            capabilities=capabilities,
            started_at=self.clock.now(),
        )
        self.rows[name] = Row(execution, expires_at=after(self.clock.now(), 30))
        return execution

    async def take(self, name: str) -> Execution | None:
        row = self.rows[name]
        if row.status in ("success", "failed", "canceled") or (row.owner is not None and row.expires_at > self.clock.now()):
            return None
        self.watch.give_way(name, row.execution.scope, self.clock.now())
        row.epoch += 1
        row.owner, row.expires_at, row.status = "host", after(self.clock.now(), 30), "running"
        self._settle(row)
        lease = Lease(row.epoch, "host", row.expires_at, row.epoch)
        return replace(
            row.execution,
            lease=lease,
            entries=tuple(row.entries.values()),
            stop=row.stop,
            metadata=row.metadata,
            minted={one.key: self._minted(one) for one in row.entries.values() if one.kind == "awakeable"},
        )

    def lapse(self, name: str = "exe_1") -> None:
        self.rows[name].expires_at = self.clock.now()

    def reconcile(self, token: str, evidence: str) -> None:
        """An operator releases a guard: with a receipt the step is recorded as having happened."""
        guard, now = self.watch.guards[token], self.clock.now()
        row = self.rows[guard.execution]
        live = row.owner is not None and row.expires_at > now
        receipt = self.watch.reconcile(token, evidence, now, live=live)
        entry = row.entries[guard.key]
        if receipt is not None and entry.state not in ENDED:
            value = Value.of(canonical.dumps({"receipt": receipt, "reconciled": True}))
            row.entries[guard.key] = replace(entry, state="done", value=value, next_attempt_at=None, ended_at=now)

    def end(self, ref: str, outcome: dict[str, Any]) -> None:
        """An awakeable or a child ends."""
        self.ends[ref] = outcome

    def arrive(self, *keys: str, type_: str = "paid", data: Any = None, subject: str | None = None) -> None:
        """An event is accepted, and found by whoever looks."""
        number = len(self.events) + 1
        told: dict[str, Any] = {
            "accepted_at": render(self.clock.now()),
            "attributes": {} if subject is None else {"subject": subject},
            "event_id": f"evt_{number}",
            "id": f"d{number}",
            "keys": list(keys),
            "source": "/shop",
            "type": type_,
        }
        self.events.append(told if data is None else {**told, "data": data})

    # --- the substrate ------------------------------------------------------------------------------------------------

    async def apply(self, fence: Fence, operations: Sequence[Operation]) -> list[Outcome]:
        self.calls += 1
        number = self.calls
        await self.maybe_killed(number, "before")
        await asyncio.sleep(0)
        if self.latency is not None:
            await self.latency()
        if number in self.fail_before:
            raise StorageBindingUnavailable
        outcomes = self._apply(fence, operations)
        self.applied.append(list(operations))
        await self.maybe_killed(number, "after")
        if number in self.fail_after:
            raise StorageBindingUnavailable
        return outcomes

    async def maybe_killed(self, number: int, when: str) -> None:
        if self.kill_at == (number, when):
            self.kill_at = None
            self.killed.set()
            await asyncio.get_running_loop().create_future()

    def _apply(self, fence: Fence, operations: Sequence[Operation]) -> list[Outcome]:
        row = self._held(fence)
        if self.refuse is not None:
            self.refuse(operations)
        changed = replace(row, entries=dict(row.entries), metadata=dict(row.metadata), bounds=list(row.bounds))
        watch = self.watch.copy()
        # A release stands before whatever is recorded, and an entity and an entry before the callback that relies on them.
        for release in (one for one in operations if isinstance(one, ReleaseGuard)):
            watch.release(fence.execution_id, fence.epoch, release)
        self._check_close(watch, changed, operations[-1])
        plain = {number: self._one(changed, one) for number, one in enumerate(operations) if not isinstance(one, GUARDING)}
        guarded = [(number, one) for number, one in enumerate(operations) if isinstance(one, GUARDING)]
        for number, one in sorted(guarded, key=lambda found: _ORDER[type(found[1])]):
            plain[number] = self._guard(watch, changed, one)
        self.rows[fence.execution_id], self.watch = changed, watch
        return [plain[number] for number in range(len(operations))]

    def _guard(self, watch: Watch, row: Row, operation: Operation) -> Outcome:
        execution, now = row.execution, self.clock.now()
        match operation:
            case HoldEntity():
                return watch.hold(execution.execution_id, operation, now)
            case AdmitGuard():
                entry = self._known(row, operation.key)
                if entry.state != "pending":
                    return Recorded(entry)
                return watch.admit(execution.execution_id, execution.scope, row.epoch, operation, now)
            case LetEntity():
                watch.let(execution.execution_id, operation)
        return Done()

    def _check_close(self, watch: Watch, row: Row, last: Operation) -> None:
        if not isinstance(last, Close) or last.status == "canceled":
            return
        own = watch.of(row.execution.execution_id)
        guard = own[0] if own else watch.protecting(f"scope:{row.execution.scope}")
        if guard is not None and (own or last.status == "success"):
            raise ExecutionGuardBlocked(token=guard.token)

    def _held(self, fence: Fence) -> Row:
        row = self.rows[fence.execution_id]
        if row.epoch != fence.epoch or row.owner is None:
            raise LeaseFenced
        if row.expires_at <= self.clock.now():
            raise LeaseExpired
        return row

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

    async def refresh(self, fence: Fence) -> list[Entry]:
        row = self._held(fence)
        return self._settle(row)

    async def values(self, fence: Fence, keys: Sequence[EntryKey]) -> list[Value]:
        row = self._held(fence)
        return [value for key in keys if (value := row.entries[key].value) is not None]

    async def cursor(self, fence: Fence, name: str) -> tuple[Value | None, int]:
        return self.cursors.get(name, (None, 0))

    async def renew(self, fences: Sequence[Fence]) -> dict[str, Lease]:
        found = {}
        for fence in fences:
            row = self.rows[fence.execution_id]
            if row.epoch == fence.epoch and row.owner is not None and row.expires_at > self.clock.now():
                row.expires_at = after(self.clock.now(), 30)
                self.watch.renew(fence.execution_id, self.clock.now())
                found[fence.execution_id] = Lease(row.epoch, "host", row.expires_at, row.epoch)
        return found

    async def register_holder(self, holder: str, name: str) -> None:
        self.watch.register(holder)

    async def exit_holder(self, holder: str, reason: str) -> None:
        self.watch.exit(holder)

    async def stops(self, fences: Sequence[Fence]) -> dict[str, Stop]:
        found = ((one.execution_id, self.rows[one.execution_id].stop) for one in fences)
        return {name: stop for name, stop in found if stop is not None}


_ORDER = {ReleaseGuard: 0, HoldEntity: 1, AdmitGuard: 2, LetEntity: 3}


class Told:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.changes: list[StepChange | RunChange] = []

    def hears(self, run_id: str) -> bool:
        return True

    def tell(self, change: StepChange | RunChange) -> None:
        self.changes.append(change)

    def steps(self, label: str) -> list[StepChange]:
        return [one for one in self.changes if isinstance(one, StepChange) and one.label == label]


class World:
    """A registry, a clock, a memory, and a host: what a test of bodies needs."""

    def __init__(self, *bodies: Body, **host: Any) -> None:
        self.registry = Registry(bodies)
        self.clock = Clock()
        self.memory = Memory(self.registry, self.clock)
        self.told = Told()
        self._named = host
        self.host = self.another_host()

    def another_host(self, now: Callable[[], Instant] | None = None) -> Host:
        return Host(
            self.registry,
            self.memory,
            take=self.memory.take,
            now=now or self.clock.now,
            sleep=self.clock.sleep,
            observer=self.told,
            **self._named,
        )

    @property
    def row(self) -> Row:
        return self.memory.rows["exe_1"]

    async def run(self, body: str, given: Any = None, **named: Any) -> str:
        """Open and drive once: how the host let go."""
        return await self.clock.drive(self.host.run(self.memory.open(body, given, **named)))

    async def again(self, name: str = "exe_1") -> str:
        """Take what is due and drive it once."""
        row = self.memory.rows[name]
        if row.status == "waiting" and row.next_attempt_at is not None:
            self.clock.advance_to(row.next_attempt_at)
        taken = await self.memory.take(name)
        assert taken is not None, row
        return await self.clock.drive(self.host.run(taken))

    async def to_the_end(self, body: str, given: Any = None) -> Row:
        """Open, and take again whenever its instant comes, until the run has ended or waits for something outside."""
        await self.run(body, given)
        for _ in range(200):
            if self.row.status != "waiting" and not (self.row.status == "suspended" and self.row.next_attempt_at):
                break
            if self.row.next_attempt_at is not None:
                self.clock.advance_to(self.row.next_attempt_at)
            await self.again()
        return self.row

    def entries(self, state: str | None = None) -> list[str]:
        return [one.key.label for one in self.row.entries.values() if state in (None, one.state)]

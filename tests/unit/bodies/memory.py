"""A substrate in memory: the reference model that the engine is tested against, with faults at every place.

It keeps what `runs.substrate_port` says and nothing else: fences, entries that never change once they ended, waits of time,
awakeables and children that end from outside. Each apply is atomic. Faults: `fail_before` and `fail_after` make a call raise
StorageBindingUnavailable, without and with its effect; `kill_at` ends the host at the n-th call, before or after its effect:
the call never answers, `killed` is set, and the test lets go of the host.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from moorage.bodies import Registry
from moorage.journal.model import ENDED, Entry, EntryKey, Fence, Lease, Value, input_hash
from moorage.kernel import canonical
from moorage.kernel.errors import (
    ExecutionGuardBlocked,
    LeaseExpired,
    LeaseFenced,
    StorageBindingUnavailable,
)
from moorage.kernel.instants import after, render
from moorage.runs.guarding import GUARDING
from moorage.runs.model import CAPABILITIES, Execution, Pins, Stop, Trace
from moorage.runs.operations import (
    AdmitGuard,
    Close,
    Done,
    HoldEntity,
    LetEntity,
    Operation,
    Outcome,
    Recorded,
    ReleaseGuard,
)
from tests.unit.bodies.clock import Clock
from tests.unit.bodies.rows import Row, Rows
from tests.unit.bodies.watch import Watch


class Memory(Rows):
    """The substrate, and what tests do to it from outside."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        super().__init__(clock)
        self.registry = registry
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

"""Runs and their owners as a few lines of Python, and a play in which both the product and the model take part."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from moorage.journal import wake
from moorage.journal.model import Fence
from moorage.kernel import canonical
from moorage.kernel.errors import (
    CancelTargetNotInFlight,
    ExecutionBusy,
    ExecutionPinMismatch,
    ExecutionRewindNotPending,
    ExecutionRewindPlanCurrent,
    ExecutionRewindUnsafe,
    LeaseFenced,
    MoorageError,
    StorageBindingUnavailable,
)
from moorage.kernel.instants import Instant, after
from moorage.kernel.limits import OWNER_LEASE_SECONDS
from moorage.runs import admission, hosting, letting_go, rewind, statements, stop
from moorage.runs.admission import HANDOFF_SECONDS
from moorage.runs.due import RunsDue
from moorage.runs.model import BodyInfo, Failure, Grain
from moorage.runs.operations import Close, Suspend
from moorage.store.ports import Database
from moorage.store.transaction import Transaction
from moorage.timers import clock
from tests.contract.faults import Fault, FaultyDatabase, Plan
from tests.contract.runs_desk import HOST, ORDER, REBUILT, REMOTE, ROOT, RunsDesk

SCOPES: Final = ("a", "a/b", "a/c", "b")
PLANS: Final[tuple[BodyInfo, ...]] = (ORDER, REBUILT, REMOTE)
MODES: Final = ("handoff", "offered", "held")
FAULTS: Final = (Fault.NONE, Fault.NONE, Fault.NONE, Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.DUPLICATE)
_LIVE: Final = ("running", "waiting", "suspended")


@dataclass(slots=True)
class Pending:
    """An execution as the model knows it. `until` is the end of its owner's lease, None while nobody owns it."""

    execution_id: str
    run_id: str
    plan: int
    host: str
    epoch: int
    until: Instant | None
    recorded: int = 0
    otherwise: bool = False


@dataclass(slots=True)
class RunsPlay:
    """Every step is taken by the product, under a fault, and by the model; `agrees` compares them."""

    desk: RunsDesk
    pending: dict[str, Pending] = field(default_factory=dict)
    statuses: dict[str, str] = field(default_factory=dict)
    scopes: dict[str, str] = field(default_factory=dict)
    unopened: set[str] = field(default_factory=set)
    fences: list[Fence] = field(default_factory=list)
    labels: int = 0

    # --- what happens ---

    async def admit(self, scope: str, plan: int, mode: str, fault: Fault) -> None:
        """Open a scope: for its Runner, for whoever takes it, or for a host that holds it at once."""
        now, info, start = self.desk.now, PLANS[plan], self.desk.start_of(scope)
        held = mode == "held"

        async def act(db: Database) -> None:
            if held:
                await hosting.open_(db, self.desk.store.blobs, ROOT, now, info, start, HOST)
            else:
                await admission.admit(db, None, ROOT, now, info, start, handoff=mode == "handoff")

        error = await self._attempt(act, fault)
        if fault is Fault.FAIL_BEFORE:
            return
        [row] = await self._unknown()
        run_id, found = row["run_id"], self.pending.get(scope)
        self.scopes[run_id] = scope
        if found is not None and (self._is_live(found) or found.plan != plan):
            expected = ExecutionBusy if self._is_live(found) else ExecutionPinMismatch
            assert fault is Fault.FAIL_AFTER or isinstance(error, expected), error
            found.otherwise = found.otherwise or found.plan != plan
            self.statuses[run_id] = "failed"
            self.unopened.add(run_id)
            return
        assert fault is Fault.FAIL_AFTER or error is None, error
        self.statuses[run_id] = "running"
        if found is None:
            lease = OWNER_LEASE_SECONDS if held else HANDOFF_SECONDS
            owned = held or (mode == "handoff" and info.host == "worker")
            until = after(now, lease) if owned else None
            found = Pending(row["execution_id"], run_id, plan, info.host, int(owned), until)
            self.pending[scope] = found
        else:
            self._end(found, "partial_failure")
            found.run_id, found.epoch = run_id, found.epoch + int(held)
            found.until = after(now, OWNER_LEASE_SECONDS) if held else None
        if found.until is not None:
            self.fences.append(Fence(found.execution_id, found.epoch))

    async def take(self, scope: str, plan: int, fault: Fault) -> None:
        """A host that has this plan's build tries to take what is pending."""
        found = self.pending.get(scope)
        if found is None:
            return
        until, build = after(self.desk.now, OWNER_LEASE_SECONDS), PLANS[plan].build
        told: dict[str, Any] = {"execution": found.execution_id, "owner": HOST, "expires_at": until}

        async def act(db: Database) -> None:
            tx = Transaction(self.desk.now)
            tx.run(statements.TAKE, **told, builds=canonical.compact({build.body: build.digest}))
            tx.run(statements.RUNNING, **told)
            await db.commit(tx)

        await self._attempt(act, fault)
        may = not self._is_live(found) and found.plan == plan and self.statuses[found.run_id] in _LIVE
        if fault is Fault.FAIL_BEFORE or not may:
            return
        found.epoch, found.until = found.epoch + 1, until
        self.statuses[found.run_id] = "running"
        self.fences.append(Fence(found.execution_id, found.epoch))

    async def record(self, scope: str) -> None:
        """The owner records a step."""
        found = self.pending.get(scope)
        if found is None or not self._is_live(found):
            return
        self.labels += 1
        await self.desk.note(found.execution_id, f"step-{self.labels}")
        found.recorded += 1

    async def suspend(self, number: int, seconds: int | None, fault: Fault) -> None:
        """Whoever holds, or once held, an execution lets go of it."""
        if not self.fences:
            return
        fence = self.fences[number % len(self.fences)]
        until = None if seconds is None else after(self.desk.now, seconds)
        status = "suspended" if until is None else "waiting"

        async def act(db: Database) -> None:
            tx = self._fenced(fence)
            letting_go.suspend(tx, fence, Suspend(status, until))  # type: ignore[arg-type]
            await db.commit(tx)

        found = await self._write(fence, act, fault)
        if found is not None:
            found.until = None
            self.statuses[found.run_id] = status

    async def close(self, number: int, status: str, fault: Fault) -> None:
        """Whoever holds, or once held, an execution ends its run."""
        if not self.fences:
            return
        fence = self.fences[number % len(self.fences)]
        failure = Failure("Permanent", "boom") if status == "failed" else None

        async def act(db: Database) -> None:
            tx = self._fenced(fence)
            letting_go.close(tx, fence, Close(status, None, failure))  # type: ignore[arg-type]
            await db.commit(tx)

        found = await self._write(fence, act, fault)
        if found is not None:
            self._end(found, status)
            self._release(found, always=status == "success")

    async def stop(self, number: int, grain: Grain, fault: Fault) -> None:
        """Stop a run, whatever has become of it."""
        if not self.statuses:
            return
        run_id = list(self.statuses)[number % len(self.statuses)]
        scope = self.scopes[run_id]
        named = [one for name, one in self.pending.items() if name == scope or name.startswith(f"{scope}/")]
        aimed = [
            one for one in named if self.statuses[one.run_id] in _LIVE and (grain == "pipeline" or one.run_id == run_id)
        ]
        answers: list[str] = []

        async def act(db: Database) -> None:
            answers.extend(await stop.stop(db, ROOT, self.desk.now, run_id, grain))

        error = await self._attempt(act, fault if aimed else Fault.NONE)
        if not aimed:
            assert isinstance(error, CancelTargetNotInFlight), error
            return
        if fault is Fault.FAIL_BEFORE:
            return
        assert error is None or fault is Fault.FAIL_AFTER, error
        if error is None:
            assert answers == sorted(one.run_id for one in aimed)
        for one in aimed:
            if not self._is_live(one):
                self._end(one, "canceled")
                self._release(one)

    async def rewind(self, scope: str, force: bool, fault: Fault) -> None:
        """Retire what is pending, if it may be."""
        found = self.pending.get(scope)
        name = "exe_none" if found is None else found.execution_id
        expected: type[Exception] | None = None
        if found is None:
            expected = ExecutionRewindNotPending
        elif self._is_live(found) or self.statuses[found.run_id] == "waiting":
            expected = ExecutionRewindUnsafe
        elif not (force or found.otherwise):
            expected = ExecutionRewindPlanCurrent

        async def act(db: Database) -> None:
            await rewind.rewind(db, ROOT, self.desk.now, name, "stuck", force)

        error = await self._attempt(act, fault if expected is None else Fault.NONE)
        if expected is not None or found is None:
            assert expected is not None
            assert isinstance(error, expected), error
            return
        if fault is Fault.FAIL_BEFORE:
            return
        [row] = await self._unknown()
        self._end(found, "partial_failure")
        self.statuses[row["run_id"]], self.scopes[row["run_id"]] = "canceled", scope
        self.unopened.add(row["run_id"])
        del self.pending[scope]

    async def wake(self, scope: str) -> None:
        """Something that the execution may wait for has ended."""
        if scope in self.pending:
            tx = Transaction(self.desk.now)
            wake.wake(tx, "SELECT :woken", woken=self.pending[scope].execution_id)
            await self.desk.db().commit(tx)

    async def fire(self, fault: Fault) -> None:
        """The Clock does what is due; if its first commit went wrong it sets the item aside, and comes again."""
        faulty = FaultyDatabase(self.desk.db(), Plan([fault]))
        await clock.drain(lambda: faulty, self.desk.now, [RunsDue()])
        self.desk.pass_time(2)
        drained = await clock.drain(self.desk.db, self.desk.now, [RunsDue()])
        assert not drained.failed
        for one in self.pending.values():
            if one.host == "remote" and one.until is not None and one.until <= self.desk.now:
                self._end(one, "partial_failure")
                one.until = None

    # --- what is compared ---

    async def agrees(self) -> None:
        """The rows are what the model says, nobody in flight is forgotten, and every run ended at most once."""
        store, now = self.desk.store, self.desk.now
        executions = {row["scope"]: row for row in await store.sql("SELECT * FROM executions")}
        recorded = await store.sql("SELECT execution_id, count(*) AS n FROM journal GROUP BY execution_id")
        journal = {row["execution_id"]: row["n"] for row in recorded}
        rows = {row["run_id"]: row for row in await store.sql("SELECT run_id, status, ended_at FROM runs")}
        assert {run: row["status"] for run, row in rows.items()} == self.statuses
        assert set(executions) == set(self.pending)
        for scope, one in self.pending.items():
            row = executions[scope]
            told = (row["execution_id"], row["run_id"], row["epoch"], row["build"], row["host"])
            assert told == (one.execution_id, one.run_id, one.epoch, PLANS[one.plan].build.digest, one.host)
            assert row["expires_at"] == one.until
            assert journal.pop(one.execution_id, 0) == one.recorded
            status = self.statuses[one.run_id]
            looked_after = row["wake_at"] is not None or row["claimable"] == 1
            assert status not in ("running", "waiting") or looked_after, (status, row)
            if status not in _LIVE:
                assert (row["owner"], row["claimable"]) == (None, 0), (status, row)
                assert one.recorded or status == "partial_failure"
            assert row["claimable"] == 0 or not (one.until and one.until > now)
        assert journal == {}
        await self._ended_once()

    async def _ended_once(self) -> None:
        told = await self.desk.store.sql(
            "SELECT subject, count(*) AS n FROM history WHERE type IN ('run.closed', 'run.reaped') GROUP BY subject"
        )
        ends = {row["subject"]: row["n"] for row in told}
        over = {run for run, status in self.statuses.items() if status not in _LIVE} - self.unopened
        assert ends == dict.fromkeys(over, 1)

    # --- how ---

    def _is_live(self, one: Pending) -> bool:
        return one.until is not None and one.until > self.desk.now

    def _end(self, one: Pending, status: str) -> None:
        if self.statuses[one.run_id] in _LIVE:
            self.statuses[one.run_id] = status

    def _release(self, one: Pending, always: bool = False) -> None:
        if always or not one.recorded:
            self.pending = {scope: other for scope, other in self.pending.items() if other is not one}
        one.until = None

    def _fenced(self, fence: Fence) -> Transaction:
        tx = Transaction(self.desk.now)
        tx.require(statements.HELD_AND_OPEN, LeaseFenced(), execution=fence.execution_id, epoch=fence.epoch)
        return tx

    async def _write(self, fence: Fence, act: Callable[[Database], Awaitable[None]], fault: Fault) -> Pending | None:
        """What a write under the fence changed; None when it had to be refused, or was lost."""
        found = next((one for one in self.pending.values() if one.execution_id == fence.execution_id), None)
        may = found is not None and self._is_live(found) and found.epoch == fence.epoch
        error = await self._attempt(act, fault if may else Fault.NONE)
        assert may or isinstance(error, LeaseFenced), error
        assert not may or error is None or isinstance(error, StorageBindingUnavailable), error
        return found if may and fault is not Fault.FAIL_BEFORE else None

    async def _attempt(self, act: Callable[[Database], Awaitable[None]], fault: Fault) -> MoorageError | None:
        try:
            await act(FaultyDatabase(self.desk.db(), Plan([fault])))
        except MoorageError as error:
            return error
        return None

    async def _unknown(self) -> list[dict[str, Any]]:
        rows = await self.desk.store.sql("SELECT run_id, execution_id FROM runs")
        return [row for row in rows if row["run_id"] not in self.statuses]

"""What the tests of runs work with: one body in two builds, a clock that only the test moves, and a host that is a few lines
of SQL, so that what is tested is not what records."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from moorage.catalog.access import Caller, Grant
from moorage.history.query import Entry as Told
from moorage.history.query import entries
from moorage.idempotency.keys import Key, key_for
from moorage.journal.model import NO_INPUT, Fence, Kind, State, Value
from moorage.kernel import canonical
from moorage.kernel.errors import LeaseFenced
from moorage.kernel.instants import Instant, after
from moorage.kernel.limits import OWNER_LEASE_SECONDS
from moorage.runs import admission, export, hosting, letting_go, listing, record, restart, rewind, statements, stop
from moorage.runs.admission import Admitted, Start
from moorage.runs.due import RunRetention, RunsDue
from moorage.runs.listing import Listing, Wanted
from moorage.runs.model import BodyInfo, Build, Execution, Failure, Grain
from moorage.runs.operations import Close, Suspend
from moorage.runs.record import Run, Steps
from moorage.runs.tracing_context import trace_of
from moorage.store.ports import Cost, Database
from moorage.store.transaction import Reading, Row, Transaction
from moorage.timers import clock
from tests.contract.adapters import Store

START = Instant(1_800_000_000_000)
ROOT = Caller("root")
BUILD = Build("order", "a" * 64, {"prompt": "c" * 64})
OTHER = Build("order", "b" * 64, {"prompt": "c" * 64})
ORDER = BodyInfo("order", "worker", BUILD, ("reserve", "charge"))
REBUILT = BodyInfo("order", "worker", OTHER, ("reserve", "charge"))
REMOTE = BodyInfo("fetch", "remote", Build("fetch", "d" * 64), ("get",))
WORKS = (RunsDue(), RunRetention())
HOST = "host-1"


class RunsDesk:
    """One store, seen by `caller` at the instant `now`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = START
        self.caller = ROOT
        self.cost = Cost()

    def db(self) -> Database:
        """A new instance; `cost` is the last one's."""
        db = self.store.db()
        self.cost = db.cost
        return db

    def seen_by(self, caller: Caller) -> "RunsDesk":
        """The same store and instant for another caller."""
        other = RunsDesk(self.store)
        other.now, other.caller = self.now, caller
        return other

    async def credential(self, subject: str, *grants: Grant) -> Caller:
        """A live credential with these grants."""
        await self.store.sql(
            "INSERT INTO credentials (id, token_sha256, subject, grants, created_at, created_by) VALUES (?, ?, ?, ?, ?, ?)",
            f"crd_{subject}",
            f"crd_{subject}",
            subject,
            "[]",
            str(self.now),
            "root",
        )
        return Caller(subject, grants, f"crd_{subject}")

    def pass_time(self, seconds: float) -> None:
        """Let time pass; nothing fires by itself."""
        self.now = after(self.now, seconds)

    async def fire(self) -> dict[str, int]:
        """Let the Clock fire what is due now; what it counted by class."""
        drained = await clock.drain(self.db, self.now, WORKS)
        assert not drained.failed
        return drained.fired

    async def next_due(self) -> Instant | None:
        """What the Clock would be armed for."""
        return await clock.next_due(self.db(), self.now, WORKS)

    # --- opening ---

    def start_of(self, scope: str | None = None, input_: Any = 1, **more: Any) -> Start:
        """A start by the caller."""
        more.setdefault("trace", trace_of(None))
        return Start(scope, Value.of(canonical.dumps(input_)), self.caller.subject, self.caller.credential, **more)

    def key(self, text: str, content: Any = None) -> Key:
        """An idempotency key over some content."""
        key = key_for(self.caller.subject, text, "POST /runs", content)
        assert key is not None
        return key

    async def admit(
        self,
        scope: str | None = None,
        input_: Any = 1,
        info: BodyInfo = ORDER,
        key: Key | None = None,
        *,
        handoff: bool = True,
        **more: Any,
    ) -> Admitted:
        start = self.start_of(scope, input_, **more)
        return await admission.admit(self.db(), self.store.blobs, self.caller, self.now, info, start, key, handoff=handoff)

    async def open_remote(
        self, scope: str | None = None, input_: Any = 1, info: BodyInfo = REMOTE, holder: str = HOST
    ) -> Execution:
        start = self.start_of(scope, input_)
        return await hosting.open_(self.db(), self.store.blobs, self.caller, self.now, info, start, holder)

    # --- a host ---

    async def take(self, execution_id: str, owner: str = HOST, build: Build | None = None) -> Fence | None:
        """Take an execution that nobody holds, as a host does."""
        built = build or (BUILD if await self._body(execution_id) == "order" else REMOTE.build)
        tx = Transaction(self.now)
        until = after(self.now, OWNER_LEASE_SECONDS)
        builds = canonical.compact({built.body: built.digest})
        taken = tx.run(statements.TAKE, execution=execution_id, owner=owner, expires_at=until, builds=builds)
        tx.run(statements.RUNNING, execution=execution_id, owner=owner, expires_at=until)
        await self.db().commit(tx)
        row = taken.first()
        return None if row is None else Fence(execution_id, row["epoch"])

    async def note(
        self,
        execution_id: str,
        label: str,
        state: State = "done",
        *,
        position: str = "0",
        value: Any = 7,
        blob: str | None = None,
        kind: Kind = "step",
        input_sha256: str = NO_INPUT,
        ref: str | None = None,
        until: Instant | None = None,
    ) -> None:
        """An entry of the journal, as the host's writes left it."""
        text = canonical.dumps(value) if state == "done" and blob is None else None
        await self.store.sql(
            "INSERT INTO journal (execution_id, label, input_sha256, position, kind, state, attempt, epoch, ref, "
            "next_attempt_at, started_at, ended_at, size, blob, failure, value) "
            "VALUES (?, ?, ?, ?, ?, ?, 1, 1, ?, CAST(? AS INTEGER), CAST(? AS INTEGER), CAST(? AS INTEGER), "
            "CAST(? AS INTEGER), ?, ?, ?)",
            execution_id,
            label,
            input_sha256,
            position,
            kind,
            state,
            ref,
            until,
            self.now,
            self.now if state in ("done", "failed") else None,
            len(text) if text else 0,
            blob,
            canonical.dumps({"message": "boom", "tag": "Permanent"}) if state == "failed" else None,
            text,
        )
        if blob is not None:
            await self.store.sql("INSERT INTO blob_references (sha256, holder) VALUES (?, ?)", blob, execution_id)

    async def suspend(self, fence: Fence, until: Instant | None = None) -> None:
        tx = await self._fenced(fence)
        status = "suspended" if until is None else "waiting"
        letting_go.suspend(tx, fence, Suspend(status, until))  # type: ignore[arg-type]
        await self.db().commit(tx)

    async def close(self, fence: Fence, status: str = "success", result: Any = "done", step: str | None = None) -> None:
        tx = await self._fenced(fence)
        value = Value.of(canonical.dumps(result)) if status == "success" else None
        error = Failure("Permanent", "boom", step=step) if status == "failed" else None
        letting_go.close(tx, fence, Close(status, value, error), value)  # type: ignore[arg-type]
        await self.db().commit(tx)

    async def _fenced(self, fence: Fence) -> Transaction:
        tx = Transaction(self.now)
        tx.require(statements.HELD_AND_OPEN, LeaseFenced(), execution=fence.execution_id, epoch=fence.epoch)
        return tx

    async def _body(self, execution_id: str) -> str:
        row = await self.execution(execution_id)
        return "" if row is None else str(row["body"])

    # --- looking and control ---

    async def show(self, run_id: str) -> Run:
        return await record.show(self.db(), self.store.blobs, self.caller, run_id)

    async def status(self, run_id: str) -> str:
        return (await self.show(run_id)).status

    async def steps(self, run_id: str) -> Steps:
        return await record.steps(self.db(), self.caller, run_id)

    async def output(self, run_id: str, reference: str) -> Any:
        value = await record.output(self.db(), self.store.blobs, self.caller, run_id, reference)
        assert value.text is not None
        return json.loads(value.text)

    async def job(self, run_id: str) -> dict[str, Any]:
        return await record.job(self.db(), self.caller, run_id)

    async def page(self, wanted: Wanted | None = None, limit: int | None = None, cursor: str | None = None) -> Listing:
        asked = listing.page_request(limit, cursor)
        return await listing.list_runs(self.db(), self.caller, wanted or Wanted(), asked)

    async def export(self, wanted: Wanted | None = None, limit: int | None = None) -> Sequence[Mapping[str, Any]]:
        lines = export.export(self.db(), self.caller, self.now, wanted or Wanted(), limit, "test")
        return [json.loads(line) async for line in lines]

    async def stop(self, run_id: str, scope: Grain = "run", reason: str | None = None) -> Sequence[str]:
        return await stop.stop(self.db(), self.caller, self.now, run_id, scope, reason)

    async def rewind(self, execution_id: str, reason: str = "stuck", *, force: bool = False) -> rewind.Rewound:
        return await rewind.rewind(self.db(), self.caller, self.now, execution_id, reason, force)

    async def restart(
        self,
        run_id: str,
        from_step: str | None = None,
        info: BodyInfo = ORDER,
        key: Key | None = None,
        check: Callable[[BodyInfo, Any], None] = lambda info, value: None,
    ) -> Admitted:
        async def body(name: str) -> BodyInfo:
            assert name == info.name
            return info

        trace = trace_of(None)
        db, blobs = self.db(), self.store.blobs
        return await restart.restart(
            db, blobs, self.caller, self.now, run_id, body, trace, "mended", from_step, key, check=check
        )

    # --- rows ---

    async def execution(self, execution_id: str) -> Row | None:
        rows = await self.store.sql("SELECT * FROM executions WHERE execution_id = ?", execution_id)
        return rows[0] if rows else None

    async def run(self, run_id: str) -> Row:
        [row] = await self.store.sql("SELECT * FROM runs WHERE run_id = ?", run_id)
        return row

    async def journal(self, execution_id: str) -> dict[str, str]:
        """The states of an execution's entries by their labels."""
        rows = await self.store.sql("SELECT label, state FROM journal WHERE execution_id = ? ORDER BY label", execution_id)
        return {row["label"]: row["state"] for row in rows}

    async def told(self, subject: str) -> list[Told]:
        """The history of a run, an execution or a body."""
        return await entries(self.db(), 0, 500, subject)

    async def types(self, subject: str) -> list[str]:
        return [entry.type for entry in await self.told(subject)]


class Watched:
    """A database that notes which executions its commits poke."""

    def __init__(self, store: Store) -> None:
        self._db = store.db()
        self.cost = self._db.cost
        self.poked: list[str] = []

    async def read(self, reading: Reading) -> None:
        await self._db.read(reading)

    async def commit(self, transaction: Transaction) -> None:
        await self._db.commit(transaction)
        self.poked += [row["execution_id"] for answer in transaction.poked for row in answer.rows]

    async def initialize(self, statements: list[str]) -> None:
        await self._db.initialize(statements)

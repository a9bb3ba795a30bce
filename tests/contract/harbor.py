"""What the tests of the substrate work with: bodies, a clock that only the test moves, runs that are opened and taken."""

from collections.abc import Mapping, Sequence
from typing import Any

from moorage.awakeables import resolve
from moorage.awakeables.payloads import Payload
from moorage.catalog.access import Caller, Grant
from moorage.catalog.kinds import Kinds
from moorage.journal.model import NO_INPUT, Entry, EntryKey, Fence, Value, input_hash
from moorage.kernel import canonical
from moorage.kernel.instants import Instant, after
from moorage.runs import admission
from moorage.runs.model import BodyInfo, Build, Execution, Trace
from moorage.runs.operations import Claim, Operation, Outcome, Put, Record, Recorded
from moorage.runs.substrate import LocalSubstrate
from moorage.runs.take import Tokens, take
from moorage.store.ports import Cost, Database
from moorage.timers.due import Shard
from tests.contract.adapters import Store
from tests.contract.faults import FaultyDatabase, Plan

START = Instant(1_800_000_000_000)
ROOT = Caller("root")
KEYS = ("a derivation key of the test's own", "an older one")
BODIES = {
    name: BodyInfo(name, "worker", Build(name, canonical.digest(f"code of {name}")), ("a", "b"))
    for name in ("order", "part", "other")
}
TOKENS = Tokens(KEYS, "https://moor.test")
TRACE = Trace("1" * 32, "2" * 16)


def key(label: str, *given: Any) -> EntryKey:
    """The key of a step: its label, and its input if one is given."""
    return EntryKey(label, input_hash(given[0]) if given else NO_INPUT)


def value(told: Any) -> Value:
    """A value as canonical JSON."""
    return Value.of(canonical.dumps(told))


def claim(label: str, *given: Any, position: str = "0") -> Claim:
    """The claim of a step."""
    return Claim(key(label, *given), "step", position)


def record(label: str, told: Any, *given: Any) -> Record:
    """The recording of a step."""
    return Record(key(label, *given), value(told))


def put(label: str, told: Any, *given: Any) -> Put:
    """A step without an effect."""
    return Put(key(label, *given), "now", "0", value(told))


def entry(outcome: Outcome) -> Entry:
    """The entry of a `Recorded`."""
    assert isinstance(outcome, Recorded)
    return outcome.entry


def text(outcome: Outcome) -> str | None:
    """The text of a recorded value."""
    told = entry(outcome).value
    return None if told is None else told.text


async def credential(store: Store, subject: str, *grants: Grant) -> Caller:
    """A live credential with these grants."""
    told = [{"actions": sorted(one.actions), "kinds": list(one.kinds), "match": one.match} for one in grants]
    await store.sql(
        "INSERT INTO credentials (id, token_sha256, subject, grants, created_at, created_by) VALUES (?, ?, ?, ?, 1, 'root')",
        f"crd_{subject}",
        f"crd_{subject}",
        subject,
        canonical.dumps(told),
    )
    return Caller(subject, grants, f"crd_{subject}")


class Harbor:
    """One store at the instant `now`. Every call has a Database of its own; `cost` is the last one's."""

    def __init__(self, store: Store, caller: Caller = ROOT) -> None:
        self.store = store
        self.now = START
        self.caller = caller
        self.kinds = Kinds()
        self.cost = Cost()
        self.faults: Plan | None = None
        self.woken: list[Instant] = []
        self.substrate = LocalSubstrate(
            self.db, store.blobs, lambda: self.now, self.kinds, KEYS, "https://moor.test", BODIES.get, self._wake
        )

    def _wake(self, due: Instant, _shard: Shard) -> None:
        self.woken.append(due)

    def db(self) -> Database:
        """A new instance, which fails as `faults` says."""
        db = self.store.db()
        self.cost = db.cost
        return db if self.faults is None else FaultyDatabase(db, self.faults)

    def pass_time(self, seconds: float) -> None:
        """Let time pass; nothing fires by itself."""
        self.now = after(self.now, seconds)

    async def open(
        self, body: str = "order", given: Any = None, scope: str | None = None, handoff: bool = False, **more: Any
    ) -> str:
        """Open a run and answer its execution's id."""
        start = admission.Start(scope, value(given), self.caller.subject, self.caller.credential, TRACE, **more)
        info = BODIES[body]
        admitted = await admission.admit(
            self.store.db(), self.store.blobs, self.caller, self.now, info, start, handoff=handoff
        )
        return admitted.execution_id

    async def take(self, execution: str, owner: str = "ann", builds: Mapping[str, str] | None = None) -> Execution | None:
        """Take an execution."""
        held = {name: info.build.digest for name, info in BODIES.items()} if builds is None else builds
        return await take(self.db(), self.store.blobs, self.now, execution, owner, held, TOKENS)

    async def held(self, execution: str, owner: str = "ann") -> Execution:
        """Take an execution that is to be had."""
        taken = await self.take(execution, owner)
        assert taken is not None
        return taken

    async def opened(self, body: str = "order", given: Any = None, scope: str | None = None) -> Execution:
        """Open a run and take it."""
        return await self.held(await self.open(body, given, scope))

    async def apply(self, fence: Fence, *operations: Operation) -> list[Outcome]:
        """Apply operations."""
        return await self.substrate.apply(fence, operations)

    async def resolve(self, token: str, payload: Any) -> None:
        """Resolve an awakeable."""
        await resolve.resolve(self.store.db(), ROOT, self.now, token, Payload.of(payload), self.store.blobs)

    async def rows(self, table: str) -> Sequence[dict[str, Any]]:
        """Every row of a table."""
        return await self.store.sql(f"SELECT * FROM {table}")  # noqa: S608

    async def run(self, run_id: str) -> dict[str, Any]:
        """A run's row."""
        [row] = await self.store.sql("SELECT * FROM runs WHERE run_id = ?", run_id)
        return row

    async def row(self, execution: str) -> dict[str, Any] | None:
        """An execution's row, if it has not been retired."""
        rows = await self.store.sql("SELECT * FROM executions WHERE execution_id = ?", execution)
        return rows[0] if rows else None

"""What the tests of guards work with: a harbor whose hosts have holders, destinations, and operators who release by hand."""

from collections.abc import Sequence
from typing import Any

from moorage.catalog import destinations
from moorage.catalog.access import Caller
from moorage.catalog.model import DestinationDeclaration
from moorage.guards import listing, reconcile
from moorage.guards.listing import Wanted
from moorage.guards.model import EntityLease, Seen, new_holder
from moorage.guards.reconcile import Reconciled
from moorage.journal.model import EntryKey, Fence
from moorage.kernel.pages import PageRequest
from moorage.runs import rewind
from moorage.runs.model import Execution
from moorage.runs.operations import AdmitGuard, Admitted, Claim, EntityHeld, HoldEntity, ReleaseGuard
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Transaction
from tests.contract.adapters import Store
from tests.contract.harbor import ROOT, Harbor, key, record

WINDOW = 3600
STEP = key("charge")
OPERATOR = "night@example.com"


def admit(holder: str, step: EntryKey = STEP, destination: str | None = None, **more: Any) -> AdmitGuard:
    """The admission of a callback."""
    return AdmitGuard(step, holder, destination, **more)


def claims(step: EntryKey = STEP) -> Claim:
    """The claim of an effect's entry."""
    return Claim(step, "step", "0")


def admitted(outcome: object) -> Admitted:
    """What an admission was answered with."""
    assert isinstance(outcome, Admitted)
    return outcome


class Listening:
    """A database that keeps what is committed."""

    def __init__(self, behind: Database, sent: list[Transaction]) -> None:
        self._behind = behind
        self._sent = sent
        self.cost = behind.cost

    async def read(self, reading: Reading) -> None:
        await self._behind.read(reading)

    async def commit(self, transaction: Transaction) -> None:
        self._sent.append(transaction)
        await self._behind.commit(transaction)

    async def initialize(self, statements: list[str]) -> None:
        await self._behind.initialize(statements)


class WatchHouse(Harbor):
    """A harbor with one registered holder, a bank that deduplicates for WINDOW seconds, a press that publishes, and a
    printer that promises nothing."""

    holder = ""

    @classmethod
    async def of(cls, store: Store) -> "WatchHouse":
        """One over a fresh store."""
        house = cls(store)
        house.holder = await house.engine()
        await house.declare("bank", dedup_window_seconds=WINDOW)
        await house.declare("press", publication=True)
        await house.declare("printer")
        return house

    async def declare(self, name: str, **more: Any) -> None:
        """A destination."""
        told = {"url": f"https://{name}.test/in", "methods": ["POST"], **more}
        await destinations.put(self.db(), ROOT, self.now, name, DestinationDeclaration.model_validate(told))

    def listen(self) -> list[Transaction]:
        """Every transaction that is sent from now on."""
        sent: list[Transaction] = []
        plain = self.substrate.database

        def listening() -> Database:
            return Listening(plain(), sent)

        self.substrate.database = listening
        return sent

    async def engine(self, name: str = "r:00") -> str:
        """The id of an engine that has started."""
        holder = new_holder(self.now)
        await self.substrate.register_holder(holder, name)
        return holder

    async def leave(self, holder: str | None = None) -> None:
        """An engine stops in order."""
        await self.substrate.exit_holder(holder or self.holder, "stopped")

    async def begin(
        self,
        fence: Fence,
        step: EntryKey = STEP,
        destination: str | None = None,
        holder: str | None = None,
        entities: Sequence[EntityLease] = (),
        publication: bool = False,
    ) -> Admitted:
        """Claim an entry and admit its callback: from now on its request may be on its way."""
        wanted = admit(holder or self.holder, step, destination, entities=entities, publication=publication)
        return admitted((await self.apply(fence, claims(step), wanted))[1])

    async def end(self, fence: Fence, token: str, step: EntryKey = STEP, value: Any = "done") -> None:
        """The callback has returned."""
        await self.apply(fence, ReleaseGuard(token, self.holder), record(step.label, value))

    async def working(
        self, scope: str | None = None, destination: str | None = None, **more: Any
    ) -> tuple[Execution, Admitted]:
        """An execution that is held, with one effect in flight."""
        execution = await self.opened(scope=scope)
        return execution, await self.begin(execution.fence, destination=destination, **more)

    async def hold(self, fence: Fence, name: str = "7", namespace: str = "customer") -> EntityLease:
        """Hold an entity."""
        [held] = await self.apply(fence, HoldEntity(namespace, name))
        assert isinstance(held, EntityHeld)
        return held.lease

    def lapse(self, execution: Execution | None = None) -> None:
        """Let the owner's lease run out."""
        self.pass_time(31)
        assert execution is None or self.now >= execution.lease.expires_at

    async def reconcile(self, token: str, evidence: str, operator: str = OPERATOR, caller: Caller = ROOT) -> Reconciled:
        """Release by hand."""
        return await reconcile.reconcile(self.db(), caller, self.now, token, evidence, operator)

    async def guards(self, **wanted: Any) -> list[Seen]:
        """What operators see."""
        page = await listing.list_guards(self.db(), ROOT, self.now, PageRequest(100), Wanted(**wanted))
        return page.items

    async def open_guards(self) -> list[str]:
        """The tokens of the guards that there are."""
        return [guard.token for guard in await self.guards()]

    async def audit(self) -> list[Row]:
        """What was released by hand."""
        return await self.store.sql("SELECT * FROM guard_audit ORDER BY id")

    async def protected(self) -> list[str]:
        """Every protected row."""
        return [row["row"] for row in await self.store.sql("SELECT row FROM guard_rows ORDER BY row")]

    async def rewind(self, execution: str, settled: Sequence[str] = ()) -> rewind.Rewound:
        """Retire a pending execution by hand."""
        return await rewind.rewind(self.db(), ROOT, self.now, execution, "stuck", force=True, settled=settled)

    async def entries(self, execution: str) -> dict[str, Row]:
        """The journal's rows by their labels."""
        rows = await self.store.sql("SELECT * FROM journal WHERE execution_id = ?", execution)
        return {row["label"]: row for row in rows}

    async def types(self, subject: str) -> list[str]:
        """What history tells of something."""
        rows = await self.store.sql("SELECT type FROM history WHERE subject = ? ORDER BY position", subject)
        return [row["type"] for row in rows]

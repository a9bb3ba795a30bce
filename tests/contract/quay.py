"""What the tests of waits for events work with: a harbor in which events are accepted and routed."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from moorage.journal.model import Entry
from moorage.kernel import canonical
from moorage.kernel.instants import Instant
from moorage.messages.inbox import accept, routing, waits
from moorage.messages.inbox.model import EventDraft
from moorage.runs.model import Execution
from moorage.runs.operations import AwaitEvent
from moorage.store.ports import Cost, Database
from moorage.store.transaction import Reading, Transaction
from tests.contract.adapters import Store
from tests.contract.harbor import Harbor, entry, key

HOUR = 3600


def wait(
    label: str = "paid",
    *given: Any,
    keys: Sequence[str] = ("order-7",),
    types: Sequence[str] = (),
    match: Mapping[str, Any] | None = None,
    timeout_at: Instant | None = None,
    look_back: float = HOUR,
) -> AwaitEvent:
    """A wait for an event."""
    return AwaitEvent(key(label, *given), "0", keys, types, match, timeout_at, look_back)


class Interrupted:
    """A database in which something happens before its n-th commit, or right after its n-th reading."""

    def __init__(self, db: Database, meanwhile: Callable[[], Awaitable[None]], *, commit: int = 0, reading: int = 0) -> None:
        self.cost: Cost = db.cost
        self._db = db
        self._meanwhile = meanwhile
        self._commit = commit
        self._reading = reading
        self.commits = 0
        self.readings = 0

    async def read(self, reading: Reading) -> None:
        await self._db.read(reading)
        self.readings += 1
        if self.readings == self._reading:
            await self._meanwhile()

    async def commit(self, transaction: Transaction) -> None:
        self.commits += 1
        if self.commits == self._commit:
            await self._meanwhile()
        await self._db.commit(transaction)

    async def initialize(self, statements: list[str]) -> None:
        await self._db.initialize(statements)


class Quay(Harbor):
    """A harbor with events."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.sent = 0
        self.between: Callable[[Database], Database] | None = None

    def db(self) -> Database:
        """A new instance; the next one is what `between` makes of it."""
        between, self.between = self.between, None
        return super().db() if between is None else between(super().db())

    async def send(
        self,
        *keys: str,
        type_: str = "payment.received",
        data: Any = None,
        id_: str | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> int:
        """Accept an event, and answer its seq."""
        self.sent += 1
        text = None if data is None else canonical.dumps(data)
        draft = EventDraft("/shop", id_ or f"d{self.sent}", type_, dict(attributes or {}), text, keys)
        tx = Transaction(self.now)
        answer = accept.plan(tx, draft, actor="subject:shop")
        await self.store.db().commit(tx)
        return int(answer.one()["seq"])

    async def route(self, seq: int, db: Database | None = None) -> int:
        """Route an event."""
        return await routing.route(db or self.store.db(), self.now, seq)

    async def arrive(self, *keys: str, **more: Any) -> int:
        """Accept an event and route it."""
        seq = await self.send(*keys, **more)
        await self.route(seq)
        return seq

    async def time_out(self, execution: Execution, db: Database | None = None) -> int:
        """Time out what is over of an execution."""
        return await waits.time_out(db or self.store.db(), self.now, execution.execution_id)

    async def states(self) -> dict[str, str]:
        """The states of all waits by their labels."""
        return {row["label"]: row["state"] for row in await self.rows("event_waits")}

    async def terms(self) -> list[str]:
        """The terms of the waits that are active."""
        return sorted(row["term"] for row in await self.rows("event_wait_terms"))

    async def event(self, seq: int) -> dict[str, Any]:
        """An event's row."""
        [row] = await self.store.sql("SELECT * FROM events WHERE seq = ?", seq)
        return row


def received(outcome: Any) -> dict[str, Any]:
    """What was recorded of a wait."""
    told = (outcome if isinstance(outcome, Entry) else entry(outcome)).value
    assert told is not None
    assert told.text is not None
    assert canonical.dumps(json.loads(told.text)) == told.text
    assert told.size == canonical.size(told.text)
    found: dict[str, Any] = json.loads(told.text)
    return found

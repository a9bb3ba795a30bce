"""Ports that fail on purpose: what an operation meets when the network does."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from moorage.kernel.errors import StorageBindingUnavailable
from moorage.store.ports import Cost, Database
from moorage.store.transaction import Answer, Reading, Statement, Transaction


class Fault(Enum):
    """What happens to one call of the port."""

    NONE = "none"
    FAIL_BEFORE = "nothing was sent"
    FAIL_AFTER = "applied, and the answer was lost"
    DELAY = "sent when the plan's gate opens"
    DUPLICATE = "delivered twice, as a network may"


@dataclass(slots=True)
class Plan:
    """What happens to the commits and the reads, call by call, and nothing past the end. `gate` frees the delayed."""

    commits: Sequence[Fault] = ()
    reads: Sequence[Fault] = ()
    gate: asyncio.Event = field(default_factory=asyncio.Event)


class FaultyDatabase:
    """The port `db` with a plan of faults. `sent` counts the commits that reached it."""

    def __init__(self, db: Database, plan: Plan) -> None:
        self._db = db
        self._plan = plan
        self._commits = iter(plan.commits)
        self._reads = iter(plan.reads)
        self.cost: Cost = db.cost
        self.sent = 0

    async def read(self, reading: Reading) -> None:
        await self._meet(next(self._reads, Fault.NONE), lambda: self._db.read(reading))

    async def commit(self, transaction: Transaction) -> None:
        fault = next(self._commits, Fault.NONE)
        twin = _twin(transaction)
        await self._meet(fault, lambda: self._send(transaction))
        if fault is Fault.DUPLICATE:
            await self._deliver_again(twin)

    async def initialize(self, statements: list[str]) -> None:
        await self._db.initialize(statements)

    async def _send(self, transaction: Transaction) -> None:
        self.sent += 1
        await self._db.commit(transaction)

    async def _deliver_again(self, twin: Transaction) -> None:
        """The second delivery's outcome reaches nobody."""
        try:
            await self._send(twin)
        except Exception:
            return

    async def _meet(self, fault: Fault, send: Callable[[], Awaitable[None]]) -> None:
        if fault is Fault.FAIL_BEFORE:
            raise StorageBindingUnavailable("the test lost the request")
        if fault is Fault.DELAY:
            await self._plan.gate.wait()
        await send()
        if fault is Fault.FAIL_AFTER:
            raise StorageBindingUnavailable("the test lost the answer")


def _twin(transaction: Transaction) -> Transaction:
    """The same plan with answers of its own."""
    twin = Transaction(transaction.now)
    twin.statements = [Statement(one.sql, one.values, Answer()) for one in transaction]
    twin.conflicts = list(transaction.conflicts)
    twin.refusals = dict(transaction.refusals)
    return twin

"""Kinds and records as the catalog's tests need them, and a database on which others are at work too."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from moorage.catalog.access import Action, Caller, Grant
from moorage.catalog.declare import declare
from moorage.catalog.kinds import Kind, Kinds
from moorage.catalog.model import KindDeclaration
from moorage.kernel import canonical
from moorage.kernel.instants import Instant
from moorage.store.ports import Cost, Database
from moorage.store.transaction import Reading, Transaction
from tests.contract.adapters import Store

NOW = Instant(1_800_000_000_000)
ROOT = Caller("root")
RECORD = """
INSERT INTO records (
    seq, id, kind, body, body_sha256, metadata, priority, state, available, created_at, created_by, attempts, epoch
) SELECT entry.value ->> 0, 'rec_' || (entry.value ->> 0), entry.value ->> 1, entry.value ->> 2, '', '{}', 0, 'ready',
    1, 0, 'root', 0, 0
FROM json_each(?) AS entry
"""


def caller(*actions: Action, kinds: tuple[str, ...] = (), credential: str = "crd_none") -> Caller:
    """Somebody with one grant; there is no such credential unless a test made it."""
    return Caller("someone", (Grant(frozenset(actions), kinds),), credential)


async def put(
    store: Store, name: str, by: Caller = ROOT, now: int = NOW, kinds: Kinds | None = None, **declaration: Any
) -> Kind:
    """Declare a kind as a client would say it."""
    declared = KindDeclaration.model_validate(declaration)
    return await declare(store.db(), by, Instant(now), kinds or Kinds(), name, declared)


async def publish(store: Store, kind: str, *bodies: Any, first: int = 1) -> None:
    """Records of a kind as an earlier declaration left them: with no slot filled."""
    rows = [[first + number, kind, canonical.dumps(body)] for number, body in enumerate(bodies)]
    await store.sql(RECORD, json.dumps(rows, ensure_ascii=False))


class Interrupted:
    """A database on which something else happens right before each of the first commits."""

    def __init__(self, inner: Database, happenings: list[Callable[[], Awaitable[object]]]) -> None:
        self._inner = inner
        self._happenings = happenings
        self.commits = 0

    @property
    def cost(self) -> Cost:
        return self._inner.cost

    @cost.setter
    def cost(self, cost: Cost) -> None:
        self._inner.cost = cost

    async def read(self, reading: Reading) -> None:
        await self._inner.read(reading)

    async def commit(self, transaction: Transaction) -> None:
        self.commits += 1
        if self._happenings:
            await self._happenings.pop(0)()
        await self._inner.commit(transaction)

    async def initialize(self, statements: list[str]) -> None:
        await self._inner.initialize(statements)

"""Executions and entries put into a store by SQL, for rooms that only meet them."""

from typing import Any

from moorage.journal.model import NO_INPUT
from moorage.kernel import canonical
from moorage.kernel.instants import Instant
from moorage.store.ports import Cost, Database
from moorage.store.transaction import Reading, Row, Transaction
from tests.contract.adapters import Store

NOW = Instant(1_800_000_000_000)


async def an_execution(store: Store, name: str, **columns: Any) -> str:
    """An execution that nobody owns, with these columns set otherwise."""
    row: dict[str, Any] = {
        "execution_id": name,
        "scope": f"scope-{name}",
        "body": "order",
        "host": "worker",
        "runner": "r:00",
        "build": "b",
        "plan_reference": "p",
        "pins": "{}",
        "run_id": f"run-{name}",
        "attempt": 1,
        "epoch": 1,
        "subject": "root",
        "opened_at": NOW,
        "input_sha256": NO_INPUT,
        "input_size": 4,
        "input": "null",
        **columns,
    }
    places = ", ".join("?" * len(row))
    await store.sql(f"INSERT INTO executions ({', '.join(row)}) VALUES ({places})", *row.values())  # noqa: S608
    return name


async def an_entry(store: Store, execution: str, label: str, kind: str, state: str, **columns: Any) -> None:
    """An entry; `value` is given as JSON and stored as canonical text."""
    value = columns.pop("value", None)
    text = None if value is None else canonical.dumps(value)
    row: dict[str, Any] = {
        "execution_id": execution,
        "label": label,
        "input_sha256": NO_INPUT,
        "position": "1",
        "kind": kind,
        "state": state,
        "attempt": 1,
        "epoch": 1,
        "started_at": NOW,
        "ended_at": NOW if state == "done" else None,
        "size": 0 if text is None else canonical.size(text),
        "value": text,
        **columns,
    }
    places = ", ".join("?" * len(row))
    await store.sql(f"INSERT INTO journal ({', '.join(row)}) VALUES ({places})", *row.values())  # noqa: S608


class Poked:
    """A database that notes whom its commits poke."""

    def __init__(self, inner: Database) -> None:
        self._inner = inner
        self.pokes: list[str] = []

    @property
    def cost(self) -> Cost:
        return self._inner.cost

    @cost.setter
    def cost(self, cost: Cost) -> None:
        self._inner.cost = cost

    async def read(self, reading: Reading) -> None:
        await self._inner.read(reading)

    async def commit(self, transaction: Transaction) -> None:
        await self._inner.commit(transaction)
        self.pokes += [row["execution_id"] for answer in transaction.poked for row in answer.rows]

    async def initialize(self, statements: list[str]) -> None:
        await self._inner.initialize(statements)


async def row_of(store: Store, execution: str) -> Row:
    """The execution's row."""
    return (await store.sql("SELECT * FROM executions WHERE execution_id = ?", execution))[0]

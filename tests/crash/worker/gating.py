"""Imported before worker/entry.py on the local edge that tests kill: databases ask at `MOORAGE_GATE` before and after each
commit that writes to a journal, and go on once they are answered. Never deployed."""

import json
import re
from typing import Any

import js

from moorage.edge import storage
from moorage.edge.convert import options
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Transaction

_WRITES_JOURNAL = re.compile(r"(INSERT\s+INTO|UPDATE|DELETE\s+FROM)\s+journal\b", re.IGNORECASE)
_EXECUTION = re.compile(r"exe_[0-9a-z]{26}")


class Gated:
    """A database whose commits stop at the gate."""

    def __init__(self, behind: Database, gate: str) -> None:
        self._behind = behind
        self._gate = gate
        self.cost = behind.cost

    async def read(self, reading: Reading) -> None:
        await self._behind.read(reading)

    async def initialize(self, statements: list[str]) -> None:
        await self._behind.initialize(statements)

    async def commit(self, transaction: Transaction) -> None:
        executions, recording = _journals_of(transaction)
        if not executions:
            await self._behind.commit(transaction)
            return
        await self._ask("before", executions, recording)
        await self._behind.commit(transaction)
        await self._ask("after", executions, recording)

    async def _ask(self, when: str, executions: list[str], recording: bool) -> None:
        body = json.dumps({"when": when, "executions": executions, "recording": recording})
        answer = await js.fetch(self._gate, options({"method": "POST", "body": body}))
        await answer.text()


def _journals_of(transaction: Transaction) -> tuple[list[str], bool]:
    """The executions whose journal a transaction writes to, and whether it may do more than end waits: whoever takes an
    execution does that."""
    found: set[str] = set()
    recording = False
    for statement in transaction.statements:
        if verb := _WRITES_JOURNAL.search(statement.sql):
            recording = recording or verb[1].upper() != "UPDATE"
            for value in statement.values:
                found.update(_EXECUTION.findall(value if isinstance(value, str) else ""))
    return sorted(found), recording


_open = storage.database


def _gated(env: Any) -> Database:
    gate = getattr(env, "MOORAGE_GATE", "")
    return Gated(_open(env), gate) if gate else _open(env)


# Before the rooms of the edge are imported: each takes the function by its name.
storage.database = _gated

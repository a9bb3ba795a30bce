"""The Database port on D1."""

from typing import Any

from pyodide.ffi import JsException

from moorage.edge.convert import array, bound, message_of, plain, raw
from moorage.store.failures import storage_error
from moorage.store.ports import Cost
from moorage.store.transaction import Answer, Batch, Reading, Statement, Transaction
from moorage.store.transport import PATIENCE, Patience, once, resend

Result = dict[str, Any]


class D1Database:
    """One request's view of a D1 binding. `cost` adds up what D1 itself counted, and every send, answered or not."""

    def __init__(self, binding: Any, patience: Patience = PATIENCE) -> None:
        self._binding = raw(binding, "DB")
        self._patience = patience
        self.cost = Cost()

    async def read(self, reading: Reading) -> None:
        if len(reading):
            _fill(reading, await resend(lambda: self._send(reading.statements, None), self._patience))

    async def commit(self, transaction: Transaction) -> None:
        if len(transaction):
            results = await once(lambda: self._send(transaction.statements, transaction), self._patience.write_seconds)
            _fill(transaction, results)

    async def initialize(self, statements: list[str]) -> None:
        batch = [Statement(sql, (), Answer()) for sql in statements]
        await resend(lambda: self._send(batch, None), self._patience)

    async def _send(self, statements: list[Statement], foreseen: Transaction | None) -> list[Result]:
        """One batch, once. A conflict is an answer, so it is never taken for a failure of transport."""
        binding = self._binding
        self.cost.trips += 1
        try:
            prepared = [binding.prepare(item.sql).bind(*bound(item.values)) for item in statements]
            results: list[Result] = plain(await binding.batch(array(prepared)))
        except JsException as error:
            raise _error(message_of(error), foreseen) from None
        for result in results:
            meta = result["meta"]
            self.cost.rows_read += meta.get("rows_read", 0)
            self.cost.rows_written += meta.get("rows_written", 0)
            self.cost.milliseconds += meta.get("duration", 0.0)
        return results


def _error(message: str, foreseen: Transaction | None) -> Exception:
    conflict = foreseen.conflict_of(message) if foreseen is not None else None
    return conflict if conflict is not None else storage_error(message)


def _fill(batch: Batch, results: list[Result]) -> None:
    for statement, result in zip(batch, results, strict=True):
        statement.answer.fill(result["results"], result["meta"].get("changes", 0))

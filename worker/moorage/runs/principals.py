"""As whom a run acts: the credential that started it, with the grants that it has now (clause catalog.grants)."""

from dataclasses import dataclass
from typing import Any

from moorage.catalog.access import Caller
from moorage.catalog.credentials import grants_of
from moorage.kernel import canonical
from moorage.kernel.errors import LeaseFenced, Unauthenticated
from moorage.runs import statements
from moorage.runs.model import Trace
from moorage.store.ports import Database
from moorage.store.transaction import Reading


@dataclass(frozen=True, slots=True)
class Principal:
    """Who acts, and in which run. Nothing of it changes while the execution has the same owner."""

    caller: Caller
    run_id: str
    scope: str
    trace: Trace
    config: dict[str, Any]
    config_revision: str | None


async def principal_of(db: Database, execution_id: str) -> Principal:
    """The principal of an execution, in one round trip. Root is who has no credential.

    Whatever it writes guards that the credential is alive (`Caller.guard`). Raises LeaseFenced when there is no such
    execution, Unauthenticated when its credential is gone.
    """
    reading = Reading()
    found = reading.ask(statements.PRINCIPAL, execution=execution_id)
    await db.read(reading)
    row = found.one(LeaseFenced())
    if row["credential"] is not None and row["grants"] is None:
        raise Unauthenticated("the credential that started the run is gone")
    grants = grants_of(row["grants"]) if row["grants"] else ()
    return Principal(
        caller=Caller(row["subject"], grants, row["credential"]),
        run_id=row["run_id"],
        scope=row["scope"],
        trace=Trace(row["trace_id"], row["span_id"], row["parent_span"], row["trace_state"]),
        config=canonical.stored(row["config"]),
        config_revision=row["config_revision"],
    )

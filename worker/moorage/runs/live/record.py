"""A run's view as the durable record tells it: what a view begins with, and falls back on (clauses runs.stream,
runs.machine-state). Reading is all that happens here."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from moorage.catalog.access import Caller
from moorage.kernel.errors import RunUnknown
from moorage.runs import authority
from moorage.runs.live.model import Snapshot, StepView
from moorage.runs.model import Status, Trace
from moorage.runs.record import Step
from moorage.runs.record_statements import JOURNAL_OF_RUN
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row

# One run without its input and its result, and what was kept of its steps if it has ended.
_RUN: Final = """
SELECT run_id, execution_id, body, scope, status, attempt, started_at, ended_at, next_attempt_at, awaiting, error, metadata,
    result_size, host, steps, trace_id, span_id, parent_span, trace_state
FROM runs WHERE run_id = :run_id
"""

# Whose run it is, and who keeps its hub.
_SEEN: Final = "SELECT body, created_by, runner FROM runs WHERE run_id = :run_id"


async def load(db: Database, run_id: str) -> Snapshot | None:
    """The view of a run; None when there is no such run. One round trip."""
    found = await load_traced(db, run_id)
    return None if found is None else found[1]


async def load_traced(db: Database, run_id: str) -> tuple[Trace, Snapshot] | None:
    """The view of a run, and its trace; None when there is no such run. One round trip."""
    reading = Reading()
    run = reading.ask(_RUN, run_id=run_id)
    journal = reading.ask(JOURNAL_OF_RUN, run_id=run_id)
    await db.read(reading)
    if not run.rows:
        return None
    row = run.one()
    trace = Trace(row["trace_id"], row["span_id"], row["parent_span"], row["trace_state"])
    return trace, _view(row, journal.rows)


async def runner_of_visible(db: Database, caller: Caller, run_id: str) -> str:
    """The Runner that keeps the hub of a run. Raises RunUnknown, also for a run that the caller may not see."""
    reading = Reading()
    found = reading.ask(_SEEN, run_id=run_id)
    await db.read(reading)
    row = found.first()
    if row is None or not (row["created_by"] == caller.subject or authority.sees(caller, row["body"])):
        raise RunUnknown()
    return str(row["runner"])


def _view(row: Row, journal: Iterable[Row]) -> Snapshot:
    entries: Iterable[Mapping[str, Any]] = journal if row["steps"] is None else json.loads(row["steps"])["items"]
    steps = [_step(entry, row["status"]) for entry in entries]
    return Snapshot(
        run_id=row["run_id"],
        execution_id=row["execution_id"],
        body=row["body"],
        scope=row["scope"],
        status=row["status"],
        attempt=row["attempt"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        next_attempt_at=row["next_attempt_at"],
        awaiting=json.loads(row["awaiting"] or "[]"),
        error=_json(row["error"]),
        metadata=json.loads(row["metadata"]),
        result_bytes=row["result_size"],
        host=row["host"],
        steps={step.key: step for step in steps},
    )


def _step(entry: Mapping[str, Any], run: Status) -> StepView:
    step = Step.of({**entry, "failure": _json(entry["failure"])}, run)
    return StepView(
        label=step.key.label,
        input_sha256=step.key.input_sha256,
        kind=entry["kind"],
        position=step.position,
        status=step.status,
        attempt=step.attempt,
        started_at=step.started_at,
        ended_at=step.ended_at,
        next_attempt_at=step.next_attempt_at,
        output_bytes=step.output_bytes,
        ref=step.ref,
        error=None if step.status == "success" else step.error,
    )


def _json(found: Any) -> Any:
    """A column's JSON text; what stands in a row's steps was parsed with them."""
    return json.loads(found) if isinstance(found, str) else found

"""One run as others see it, its steps, and what one of them recorded (clause runs.outputs-by-reference)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from moorage.catalog.access import Caller
from moorage.journal.model import EntryKey, State, Value
from moorage.kernel import canonical
from moorage.kernel.errors import (
    EntryUnknown,
    FailureTag,
    Forbidden,
    RunJournalRetired,
    RunUnknown,
    StorageCapabilityMissing,
)
from moorage.kernel.instants import Instant, render
from moorage.runs import authority
from moorage.runs import record_statements as statements
from moorage.runs.model import TERMINAL, Grain, Status, Stop, Trace
from moorage.runs.observing import StepStatus
from moorage.runs.tracing_context import traceparent
from moorage.store.ports import Blobs, Database
from moorage.store.transaction import Reading, Row

_STEP_STATUS: Final[Mapping[State, StepStatus]] = {
    "pending": "running",
    "waiting": "waiting",
    "done": "success",
    "failed": "failed",
    "canceled": "canceled",
}
REWIND: Final = "rewind"
"""Stored in the place of how far a stop reaches: the run records a rewind."""

STOPPED: Final = {"tag": FailureTag.CANCELED.value, "message": "the run was stopped while this was under way"}
LEFT: Final = {"tag": FailureTag.TRANSIENT.value, "message": "the run ended while this was under way"}
"""The error of a step that was under way when its run was stopped, and when it ended otherwise."""


def grain(stored: str | None) -> Grain:
    """What a stored stop reaches. A scope that nobody knows reads as `run` (clause runs.two-grains)."""
    return "pipeline" if stored == "pipeline" else "run"


@dataclass(frozen=True, slots=True)
class Run:
    """One opening of an execution, from its opening on. `result` is known where one run is shown, once it succeeded.

    A `rewound` run opened nothing: it records that its execution was rewound, and why is the reason of its `stop`.
    """

    run_id: str
    execution_id: str
    body: str
    scope: str
    host: str
    runner: str
    status: Status
    attempt: int
    started_at: Instant
    created_by: str
    trace: Trace
    plan_reference: str | None = None
    config_revision: str | None = None
    ended_at: Instant | None = None
    next_attempt_at: Instant | None = None
    parent_run: str | None = None
    restarted_from: str | None = None
    stop: Stop | None = None
    rewound: bool = False
    result_bytes: int | None = None
    result_blob: str | None = None
    result: Value | None = None
    error: Mapping[str, Any] | None = None
    awaiting: list[Any] | None = None
    bounds: list[Any] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, row: Row) -> "Run":
        """The run that a row holds."""
        stop = None
        if row["stop_requested_at"] is not None:
            stop = Stop(row["stop_requested_at"], grain(row["stop_scope"]), row["stop_reason"])
        same = (
            "run_id", "execution_id", "body", "scope", "host", "runner", "status", "attempt", "started_at", "created_by",
            "plan_reference", "config_revision", "ended_at", "next_attempt_at", "parent_run", "restarted_from",
            "result_blob",
        )  # fmt: skip
        return cls(
            **{name: row[name] for name in same},
            trace=Trace(row["trace_id"], row["span_id"], row["parent_span"], row["trace_state"]),
            stop=stop,
            rewound=row["stop_scope"] == REWIND,
            result_bytes=row["result_size"],
            result=_result(row),
            error=_json(row["error"]),
            awaiting=_json(row["awaiting"]),
            bounds=_json(row["bounds"]),
            metadata=_json(row["metadata"]) or {},
        )

    @property
    def has_ended(self) -> bool:
        """Whether the run goes no further."""
        return self.status in TERMINAL

    def wire(self) -> dict[str, Any]:
        """As JSON. What is not known, or not yet, is left out."""
        known = {
            "run_id": self.run_id,
            "execution_id": self.execution_id,
            "body": self.body,
            "scope": self.scope,
            "status": self.status,
            "attempt": self.attempt,
            "started_at": render(self.started_at),
            "ended_at": _rendered(self.ended_at),
            "error": self.error,
            "next_attempt_at": _rendered(self.next_attempt_at),
            "awaiting": self.awaiting,
            "host": self.host,
            "plan_reference": self.plan_reference,
            "config_revision": self.config_revision,
            "created_by": self.created_by,
            "traceparent": traceparent(self.trace),
            "metadata": dict(self.metadata),
            "stop": None if self.stop is None else _stop(self.stop),
            "rewound_execution": self.execution_id if self.rewound else None,
            "parent_run": self.parent_run,
            "restarted_from": self.restarted_from,
            "bounds": self.bounds,
            "result_bytes": self.result_bytes,
        }
        told = {name: value for name, value in known.items() if value is not None}
        if self.result is not None and self.result.text is not None:
            told["result"] = canonical.stored(self.result.text)
        return told


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a run, without what it recorded: `reference` names that for `output`."""

    key: EntryKey
    kind: str
    position: str
    status: StepStatus
    attempt: int
    started_at: Instant
    ended_at: Instant | None = None
    next_attempt_at: Instant | None = None
    output_bytes: int | None = None
    error: Mapping[str, Any] | None = None
    ref: str | None = None

    @classmethod
    def of(cls, entry: Mapping[str, Any], run: Status) -> "Step":
        """The step that an entry of the journal tells of, in a run that is, or ended, so.

        What was under way when the run ended has failed; in a stopped run with the tag Canceled.
        """
        status, error = _STEP_STATUS[entry["state"]], entry["failure"]
        if entry["state"] in ("pending", "waiting") and run in TERMINAL:
            status, error = "failed", (STOPPED if run == "canceled" else error or LEFT)
        elif entry["state"] == "pending" and (entry["next_attempt_at"] is not None or entry["kind"] in ("wait", "child")):
            status = "waiting"
        return cls(
            key=EntryKey(entry["label"], entry["input_sha256"]),
            kind=entry["kind"],
            position=entry["position"],
            status=status,
            attempt=entry["attempt"],
            started_at=entry["started_at"],
            ended_at=entry["ended_at"],
            next_attempt_at=entry["next_attempt_at"] if status == "waiting" else None,
            output_bytes=entry["size"],
            error=error,
            ref=entry["ref"],
        )

    @property
    def reference(self) -> str:
        """What names the step's output within its run."""
        return f"{self.key.label}@{self.key.input_sha256}"

    def wire(self) -> dict[str, Any]:
        """As JSON, without what is not known."""
        output = None if self.output_bytes is None else {"ref": self.reference, "bytes": self.output_bytes}
        told = {
            "label": self.key.label,
            "input_sha256": self.key.input_sha256,
            "kind": self.kind,
            "position": self.position,
            "status": self.status,
            "attempt": self.attempt,
            "started_at": render(self.started_at),
            "ended_at": _rendered(self.ended_at),
            "next_attempt_at": _rendered(self.next_attempt_at),
            "output": output,
            "error": self.error,
            "ref": self.ref,
        }
        return {name: value for name, value in told.items() if value is not None}


Outputs = Literal["kept", "retired"]
"""Whether what the steps recorded can still be read."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a run in the order in which they began. `total` is more than there are where not all were kept.

    `outputs` that are `retired` went with the execution's journal: their references name nothing that can be read any more.
    """

    items: list[Step]
    total: int
    outputs: Outputs = "kept"

    def wire(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "items": [step.wire() for step in self.items],
            "total": self.total,
            "truncated": len(self.items) < self.total,
            "outputs": self.outputs,
        }


async def show(db: Database, blobs: Blobs | None, caller: Caller, run_id: str) -> Run:
    """One run with its result, in one round trip; a large result takes a reading of the bucket.

    Raises RunUnknown, also for a run that the caller may not see; BlobMissing, BlobCorrupt.
    """
    reading = Reading()
    found = reading.ask(statements.SHOW, run_id=run_id)
    await db.read(reading)
    row = _visible(caller, found.first())
    run = Run.of(row)
    if run.result is None or run.result.blob is None:
        return run
    return Run.of({**row, "result": (await _load(blobs, run.result.blob)).decode()})


async def steps(db: Database, caller: Caller, run_id: str) -> Steps:
    """The steps of a run: from its journal while it is in flight, and what was kept of it afterwards. One round trip.

    Raises RunUnknown.
    """
    reading = Reading()
    found = reading.ask(statements.STEPS_OF_RUN, run_id=run_id)
    journal = reading.ask(statements.JOURNAL_OF_RUN, run_id=run_id)
    alive = reading.ask(statements.IS_UNRETIRED, run_id=run_id)
    await db.read(reading)
    row = _visible(caller, found.first())
    if row["ended_at"] is None:
        entries = [{**entry, "failure": _json(entry["failure"])} for entry in journal.rows]
        return Steps([Step.of(entry, row["status"]) for entry in entries], len(entries))
    kept = _json(row["steps"]) or {"items": [], "total": 0}
    return Steps(
        [Step.of(entry, row["status"]) for entry in kept["items"]], kept["total"], "kept" if alive.rows else "retired"
    )


async def output(db: Database, blobs: Blobs | None, caller: Caller, run_id: str, reference: str) -> Value:
    """What a step recorded, by its reference, while the journal of the run's execution lives.

    It takes a grant to read or operate on the body, or having started the run. Raises RunUnknown, Forbidden, EntryUnknown,
    RunJournalRetired, BlobMissing, BlobCorrupt.
    """
    label, _, input_sha256 = reference.rpartition("@")
    reading = Reading()
    found = reading.ask(statements.STEPS_OF_RUN, run_id=run_id)
    alive = reading.ask(statements.IS_UNRETIRED, run_id=run_id)
    entry = reading.ask(statements.OUTPUT, run_id=run_id, label=label, input_sha256=input_sha256)
    await db.read(reading)
    row = _visible(caller, found.first())
    if row["created_by"] != caller.subject and not any(
        authority.holds(caller, action, row["body"]) for action in ("read", "operate")
    ):
        raise Forbidden("what a step recorded takes a grant to read, or to operate on, the body")
    if not alive.rows:
        raise RunJournalRetired(
            "the run's journal was retired with its execution: what its steps gave is kept only while it can be resumed"
        )
    value = entry.one(EntryUnknown())
    if value["state"] != "done":
        raise EntryUnknown()
    text = value["value"] if value["blob"] is None else (await _load(blobs, value["blob"])).decode()
    return Value(text, value["size"], value["blob"])


async def job(db: Database, caller: Caller, run_id: str) -> dict[str, Any]:
    """A run in the words that runs and tasks have in common: accepted, running, waiting, completed, failed or cancelled.

    Raises RunUnknown.
    """
    reading = Reading()
    found = reading.ask(statements.JOB, run_id=run_id)
    await db.read(reading)
    row = _visible(caller, found.first())
    told: dict[str, Any] = {"job_id": run_id, "state": _JOB_STATE[row["status"]]}
    if row["status"] == "running" and not row["held"]:
        told["state"] = "accepted"
    if told["state"] == "completed":
        told["result_ref"] = f"/runs/{run_id}"
    if told["state"] == "failed":
        error = _json(row["error"]) or {}
        told["error_code"] = error.get("code") or error.get("tag") or FailureTag.PERMANENT.value
    return told


_JOB_STATE: Final[Mapping[Status, str]] = {
    "running": "running",
    "waiting": "waiting",
    "suspended": "waiting",
    "success": "completed",
    "failed": "failed",
    "partial_failure": "failed",
    "canceled": "cancelled",
}


def _visible(caller: Caller, row: Row | None) -> Row:
    if row is None or not (row["created_by"] == caller.subject or authority.sees(caller, row["body"])):
        raise RunUnknown()
    return row


async def _load(blobs: Blobs | None, digest: str) -> bytes:
    if blobs is None:
        raise StorageCapabilityMissing("a value of this size needs the bucket")
    return await blobs.get(digest)


def _result(row: Row) -> Value | None:
    if row["result_size"] is None or "result" not in row:
        return None
    return Value(row["result"], row["result_size"], row["result_blob"])


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _rendered(instant: Instant | None) -> str | None:
    return None if instant is None else render(instant)


def _stop(stop: Stop) -> dict[str, Any]:
    told = {"requested_at": render(stop.requested_at), "scope": stop.scope, "reason": stop.reason}
    return {name: value for name, value in told.items() if value is not None}

"""What a host says and what Moorage hears are the same, in both directions (clause runs.substrate)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from moorage.api.operations import OperationSent
from moorage.guards.model import EntityLease, Target
from moorage.journal.model import NO_INPUT, Entry, EntryKey, Lease, Value
from moorage.kernel import canonical
from moorage.kernel.instants import Instant
from moorage.runs import operations as apply_operations
from moorage.runs import wire
from moorage.runs.model import Build, Execution, Failure, Minted, Pins, Stop, Trace
from moorage.runs.operations import Operation, Outcome

HEARD: TypeAdapter[Any] = TypeAdapter(OperationSent)

texts = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=20)
numbers = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
values = json_values.map(lambda value: Value.of(canonical.dumps(value)))
blobs = st.builds(lambda number: Value(None, number, f"{number:064x}"), st.integers(0, 2**20))
held = values | blobs
instants = st.integers(0, 4_102_444_800_000).map(Instant)
digests = st.integers(0, 2**256 - 1).map(lambda number: f"{number:064x}")
keys = st.builds(EntryKey, texts, st.just(NO_INPUT) | digests)
positions = st.sampled_from(["0", "12", "2.1/0", "2.1/0.3/4"])
objects = st.dictionaries(texts, json_values, max_size=3)
failures = st.builds(Failure, st.sampled_from(["Transient", "Permanent"]), texts, st.none() | texts, st.none() | texts)
maybe_instant = st.none() | instants
records = st.lists(
    st.fixed_dictionaries({"kind": st.just("doc"), "body": objects}, optional={"priority": st.integers(-5, 5)}),
    min_size=1,
    max_size=3,
)

leases = st.lists(st.builds(EntityLease, texts, texts, st.integers(1, 9)), max_size=2)
targets = st.builds(Target, texts, texts, st.lists(st.sampled_from(["GET", "POST"])).map(tuple), st.none() | texts)

operations: st.SearchStrategy[Operation] = st.one_of(
    st.builds(apply_operations.Claim, keys, st.sampled_from(["step", "sleep"]), positions, maybe_instant),
    st.builds(apply_operations.Record, keys, held),
    st.builds(apply_operations.Put, keys, st.sampled_from(["now", "random"]), positions, held),
    st.builds(apply_operations.Fail, keys, st.integers(1, 100), failures, maybe_instant, st.none() | texts),
    st.builds(apply_operations.GiveUp, keys),
    st.builds(apply_operations.Mint, keys, positions, st.floats(0.001, 1e6), st.none() | texts, objects),
    st.builds(apply_operations.Await, keys, positions, st.just("awk_1")),
    st.builds(
        apply_operations.AwaitEvent,
        keys,
        positions,
        st.lists(texts, max_size=2),
        st.lists(texts, max_size=2),
        st.none() | objects,
        maybe_instant,
        st.floats(0, 604_800),
    ),
    st.builds(apply_operations.StartChild, keys, positions, st.just("b"), held, st.none() | st.just("s/1")),
    st.builds(apply_operations.Publish, keys, positions, records),
    st.builds(apply_operations.CommitCursor, keys, positions, texts, held, st.integers(0, 9), records | st.just([])),
    st.builds(apply_operations.AdmitGuard, keys, texts, st.none() | texts, st.booleans(), leases),
    st.builds(apply_operations.ReleaseGuard, texts, texts),
    st.builds(apply_operations.HoldEntity, texts, texts),
    st.builds(apply_operations.LetEntity, texts, texts),
    st.builds(apply_operations.SetMetadata, objects),
    st.builds(apply_operations.Suspend, st.just("suspended"), maybe_instant, st.lists(objects, max_size=2)),
    st.builds(apply_operations.Suspend, st.just("waiting"), instants, st.just([])),
    st.builds(apply_operations.Close, st.just("success"), held),
    st.builds(apply_operations.Close, st.just("failed"), st.none(), failures),
    st.just(apply_operations.Close("canceled")),
)

entries = st.builds(
    Entry,
    keys,
    st.sampled_from(["step", "wait"]),
    positions,
    st.sampled_from(["pending", "waiting", "done", "failed", "canceled"]),
    st.integers(0, 9),
    st.integers(1, 9),
    instants,
    maybe_instant,
    st.none() | st.just("awk_1"),
    maybe_instant,
    st.none() | held | st.builds(Value, st.none(), st.integers(0, 9)),
    st.none() | objects,
)
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(apply_operations.Claimed, st.integers(1, 9), st.none() | st.just("run_1")),
    st.builds(apply_operations.Recorded, entries),
    st.builds(Minted, texts, texts, instants, texts),
    st.builds(apply_operations.Admitted, texts, texts, instants, st.booleans(), maybe_instant, st.none() | targets),
    st.builds(apply_operations.Doubtful, texts, st.sampled_from(["replay-safe", "receipt-required", "unknown"])),
    st.builds(apply_operations.EntityHeld, st.builds(EntityLease, texts, texts, st.integers(1, 9)), instants),
    st.just(apply_operations.Done()),
)
builds = st.builds(Build, texts, digests, st.dictionaries(texts, digests, max_size=2), st.none() | digests)
executions = st.builds(
    Execution,
    execution_id=st.just("exe_1"),
    run_id=st.just("run_1"),
    body=texts,
    scope=texts,
    lease=st.builds(Lease, st.integers(1, 9), texts, instants, st.integers(1, 9)),
    pins=st.builds(Pins, builds, digests),
    input=held,
    trace=st.builds(Trace, st.just("1" * 32), st.just("2" * 16), st.none() | st.just("3" * 16), st.none() | texts),
    entries=st.lists(entries, max_size=3),
    stop=st.none() | st.builds(Stop, instants, st.sampled_from(["run", "pipeline"]), st.none() | texts),
    metadata=objects,
    config=objects,
    retry=st.none() | objects,
    capabilities=st.frozensets(texts, max_size=2),
    started_at=instants,
    minted=st.dictionaries(keys, st.builds(Minted, texts, texts, instants, texts), max_size=2),
)


def over_the_wire(told: Any) -> Any:
    """What the other side makes of it: Moorage by its own strict reader."""
    return canonical.loads(json.dumps(told, ensure_ascii=False, allow_nan=False).encode())


@pytest.mark.clause("runs.substrate", "kernel.canonical-json")
@given(operations)
def test_an_operation_is_heard_as_it_was_meant(operation: Operation) -> None:
    heard = HEARD.validate_python(over_the_wire(wire.operation_wire(operation))).operation()
    assert heard == operation


@given(outcomes)
def test_an_outcome_is_heard_as_it_was_meant(outcome: Outcome) -> None:
    assert wire.outcome_of(json.loads(json.dumps(wire.outcome_wire(outcome)))) == outcome


@given(executions)
def test_an_execution_is_heard_as_it_was_meant(execution: Execution) -> None:
    assert wire.execution_of(json.loads(json.dumps(wire.execution_wire(execution)))) == execution


def test_an_outcome_of_a_later_deployment_is_refused() -> None:
    with pytest.raises(ValueError, match="wished"):
        wire.outcome_of({"outcome": "wished"})


KEY = {"label": "a"}
AT = {"position": "0"}
BLOB = {"sha256": "0" * 64, "size": 3}


@pytest.mark.parametrize(
    "sent",
    [
        {"op": "wish"},
        {"label": "a"},
        {"op": "record", **KEY},
        {"op": "record", **KEY, "value": None, "blob": BLOB},
        {"op": "record", **KEY, "value": 1, "more": 1},
        {"op": "record", "label": "", "value": 1},
        {"op": "record", "label": "x" * 201, "value": 1},
        {"op": "record", "label": 5, "value": 1},
        {"op": "record", "label": "a", "input_sha256": "A" * 64, "value": 1},
        {"op": "record", **KEY, "blob": {"sha256": "0" * 64, "size": 2**40}},
        {"op": "claim", **KEY, **AT, "kind": "wish"},
        {"op": "claim", **KEY, "kind": "step", "position": "first"},
        *({"op": "claim", **KEY, "kind": "step", "position": at} for at in ("", "1..2//3", "2.", "3/", "1/2", "2.1", "-1")),
        {"op": "claim", **KEY, **AT, "kind": "step", "until": "soon"},
        {"op": "fail", **KEY, "attempt": 0, "failure": {"tag": "Transient", "message": "m"}},
        {"op": "fail", **KEY, "attempt": 1, "failure": {"tag": "Wished", "message": "m"}},
        {"op": "mint", **KEY, **AT, "ttl_seconds": 0},
        {"op": "publish", **KEY, **AT, "records": []},
        {"op": "publish", **KEY, **AT, "records": [{"kind": "k", "body": {}, "id": "mine"}]},
        {"op": "commit_cursor", **KEY, **AT, "name": "n", "value": 1, "expected": -1},
        {"op": "suspend", "status": "waiting"},
        {"op": "suspend", "status": "running"},
        {"op": "close", "status": "success"},
        {"op": "close", "status": "partial_failure"},
        {"op": "close", "status": "failed"},
        {"op": "close", "status": "canceled", "result": None},
        {"op": "close", "status": "success", "result": 1, "error": {"tag": "Permanent", "message": "m"}},
    ],
)
def test_what_makes_no_sense_is_refused(sent: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        HEARD.validate_python(sent)

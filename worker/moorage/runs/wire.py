"""The substrate as JSON: what a remote host and Moorage say to each other (clause runs.substrate).

Both sides use this module, so that neither can drift. `docs/hosts.md` says the same in words. Values stand as JSON where
they are small enough for their row, and by the digest of their canonical text where they are not; `Value.text` is always
the canonical text, so that what was recorded here and what was recorded there are the same bytes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from moorage.guards.model import EntityLease, Target
from moorage.journal.model import Entry, EntryKey, Lease, Value
from moorage.kernel import canonical
from moorage.kernel.instants import Instant, parse, render
from moorage.runs.model import Execution, Failure, Minted, Pins, Stop, Trace
from moorage.runs.operations import (
    AdmitGuard,
    Admitted,
    Await,
    AwaitEvent,
    Claim,
    Claimed,
    Close,
    CommitCursor,
    Done,
    Doubtful,
    EntityHeld,
    Fail,
    GiveUp,
    HoldEntity,
    LetEntity,
    Mint,
    Operation,
    Outcome,
    Publish,
    Put,
    Record,
    Recorded,
    ReleaseGuard,
    SetMetadata,
    StartChild,
    Suspend,
)

Json = dict[str, Any]

# --- Pieces ----------------------------------------------------------------------------------------------------------


def value_wire(value: Value, name: str = "value") -> Json:
    """A value under `name`, or its `blob` where its text is not at hand; with its `size` in bytes."""
    if value.text is not None:
        return {name: canonical.stored(value.text), "size": value.size}
    told: Json = {"size": value.size}
    return told if value.blob is None else {**told, "blob": value.blob}


def value_of(told: Mapping[str, Any], name: str = "value") -> Value:
    """The value that `value_wire` told. Without a text it has to be loaded."""
    if name in told:
        text = canonical.dumps(told[name])
        return Value(text, canonical.size(text), told.get("blob"))
    return Value(None, told["size"], told.get("blob"))


def key_wire(key: EntryKey) -> Json:
    """An entry's key."""
    return {"label": key.label, "input_sha256": key.input_sha256}


def key_of(told: Mapping[str, Any]) -> EntryKey:
    """The key that `key_wire` told."""
    return EntryKey(told["label"], told["input_sha256"])


def lease_wire(lease: Lease) -> Json:
    """An owner's lease."""
    return {
        "epoch": lease.epoch,
        "owner": lease.owner,
        "expires_at": render(lease.expires_at),
        "attempt": lease.attempt,
    }


def lease_of(told: Mapping[str, Any]) -> Lease:
    """The lease that `lease_wire` told."""
    return Lease(told["epoch"], told["owner"], parse(told["expires_at"]), told["attempt"])


def stop_wire(stop: Stop) -> Json:
    """A stop that was asked for."""
    told: Json = {"requested_at": render(stop.requested_at), "scope": stop.scope}
    return told if stop.reason is None else {**told, "reason": stop.reason}


def stop_of(told: Mapping[str, Any]) -> Stop:
    """The stop that `stop_wire` told."""
    return Stop(parse(told["requested_at"]), told["scope"], told.get("reason"))


def entry_wire(entry: Entry) -> Json:
    """A row of the journal; what it does not have is left out."""
    told: Json = {
        **key_wire(entry.key),
        "kind": entry.kind,
        "position": entry.position,
        "state": entry.state,
        "attempt": entry.attempt,
        "epoch": entry.epoch,
        "started_at": render(entry.started_at),
    }
    _add(told, ended_at=_instant(entry.ended_at), ref=entry.ref, next_attempt_at=_instant(entry.next_attempt_at))
    _add(told, failure=entry.failure)
    return told if entry.value is None else {**told, **value_wire(entry.value)}


def entry_of(told: Mapping[str, Any]) -> Entry:
    """The entry that `entry_wire` told."""
    return Entry(
        key=key_of(told),
        kind=told["kind"],
        position=told["position"],
        state=told["state"],
        attempt=told["attempt"],
        epoch=told["epoch"],
        started_at=parse(told["started_at"]),
        ended_at=_parsed(told.get("ended_at")),
        ref=told.get("ref"),
        next_attempt_at=_parsed(told.get("next_attempt_at")),
        value=value_of(told) if "size" in told else None,
        failure=told.get("failure"),
    )


# --- Executions ------------------------------------------------------------------------------------------------------


def execution_wire(one: Execution) -> Json:
    """An execution as its host gets it."""
    trace: Json = {"trace_id": one.trace.trace_id, "span_id": one.trace.span_id}
    _add(trace, parent_span=one.trace.parent_span, state=one.trace.state)
    given = value_wire(one.input, "input")
    told: Json = {
        "execution_id": one.execution_id,
        "run_id": one.run_id,
        "body": one.body,
        "scope": one.scope,
        "lease": lease_wire(one.lease),
        "pins": one.pins.wire(),
        **{f"input_{name}" if name != "input" else name: found for name, found in given.items()},
        "trace": trace,
        "entries": [entry_wire(entry) for entry in one.entries],
        "metadata": dict(one.metadata),
        "config": dict(one.config),
        "capabilities": sorted(one.capabilities),
        "started_at": render(one.started_at),
    }
    if one.minted:
        told["minted"] = [{**key_wire(key), **_minted(awakeable)} for key, awakeable in one.minted.items()]
    _add(told, retry=None if one.retry is None else dict(one.retry), stop=None if one.stop is None else stop_wire(one.stop))
    return told


def execution_of(told: Mapping[str, Any]) -> Execution:
    """The execution that `execution_wire` told."""
    given = {name.removeprefix("input_"): found for name, found in told.items() if name.startswith("input")}
    trace = told["trace"]
    return Execution(
        execution_id=told["execution_id"],
        run_id=told["run_id"],
        body=told["body"],
        scope=told["scope"],
        lease=lease_of(told["lease"]),
        pins=Pins.of(told["pins"]),
        input=value_of(given, "input"),
        trace=Trace(trace["trace_id"], trace["span_id"], trace.get("parent_span"), trace.get("state")),
        entries=[entry_of(entry) for entry in told["entries"]],
        stop=stop_of(told["stop"]) if told.get("stop") else None,
        metadata=told["metadata"],
        config=told["config"],
        retry=told.get("retry"),
        capabilities=frozenset(told["capabilities"]),
        started_at=parse(told["started_at"]),
        minted={key_of(one): _minted_of(one) for one in told.get("minted", ())},
    )


def _minted(one: Minted) -> Json:
    return {"id": one.id, "token": one.token, "deadline": render(one.deadline), "url": one.url}


def _minted_of(told: Mapping[str, Any]) -> Minted:
    return Minted(told["id"], told["token"], parse(told["deadline"]), told["url"])


# --- Operations ------------------------------------------------------------------------------------------------------


def operation_wire(operation: Operation) -> Json:
    """An operation as JSON; what has its default is left out."""
    told: Json = {"op": operation.op}
    match operation:
        case SetMetadata():
            return {**told, "metadata": dict(operation.metadata)}
        case ReleaseGuard():
            return {**told, "token": operation.token, "holder": operation.holder}
        case HoldEntity() | LetEntity():
            return {**told, "namespace": operation.namespace, "key": operation.key}
        case Suspend():
            _add(told, status=operation.status, next_attempt_at=_instant(operation.next_attempt_at))
            return {**told, "awaiting": [dict(one) for one in operation.awaiting]}
        case Close():
            _add(told, status=operation.status, error=None if operation.error is None else operation.error.wire())
            return told if operation.result is None else {**told, **_sent(operation.result, "result")}
        case AwaitEvent():
            told.update(**key_wire(operation.key), position=operation.position)
            told.update(look_back_seconds=operation.look_back_seconds)
            _add(told, keys=list(operation.keys) or None, types=list(operation.types) or None)
            match = None if operation.match is None else dict(operation.match)
            _add(told, match=match, timeout_at=_instant(operation.timeout_at))
            return told
        case _:
            return {**told, **key_wire(operation.key), **_keyed(operation)}


def _keyed(
    operation: Claim | Record | Put | Fail | GiveUp | Mint | Await | StartChild | Publish | CommitCursor | AdmitGuard,
) -> Json:
    """What an operation on an entry tells beside its key."""
    told: Json = {}
    match operation:
        case Claim():
            _add(told, kind=operation.kind, position=operation.position, until=_instant(operation.until))
        case Record():
            told.update(_sent(operation.value, "value"))
        case Put():
            told.update(kind=operation.kind, position=operation.position, **_sent(operation.value, "value"))
        case Fail():
            told.update(attempt=operation.attempt, failure=operation.failure.wire())
            _add(told, next_attempt_at=_instant(operation.next_attempt_at), bound=operation.bound)
        case GiveUp():
            pass
        case Mint():
            told.update(position=operation.position, ttl_seconds=operation.ttl_seconds)
            _add(told, subject=operation.subject, metadata=dict(operation.metadata) or None)
        case Await():
            told.update(position=operation.position, awakeable=operation.awakeable)
        case StartChild():
            told.update(position=operation.position, body=operation.body, **_sent(operation.input, "input"))
            _add(told, scope=operation.scope)
        case Publish():
            told.update(position=operation.position, records=[dict(one) for one in operation.records])
        case CommitCursor():
            told.update(position=operation.position, name=operation.name, expected=operation.expected)
            told.update(_sent(operation.value, "value"))
            _add(told, records=[dict(one) for one in operation.records] or None)
        case AdmitGuard():
            told.update(holder=operation.holder)
            _add(told, destination=operation.destination, publication=operation.publication or None)
            _add(told, entities=[_entity_wire(one) for one in operation.entities] or None)
    return told


def _entity_wire(lease: EntityLease) -> Json:
    return {"namespace": lease.namespace, "key": lease.key, "epoch": lease.epoch}


def _sent(value: Value, name: str) -> Json:
    """A value on its way in: its size is nobody's word."""
    if value.text is not None:
        return {name: canonical.stored(value.text)}
    return {"blob": {"sha256": value.blob, "size": value.size}}


# --- Outcomes --------------------------------------------------------------------------------------------------------


def outcome_wire(outcome: Outcome) -> Json:
    """What became of an operation."""
    match outcome:
        case Claimed():
            told: Json = {"outcome": "claimed", "attempt": outcome.attempt}
            _add(told, ref=outcome.ref)
            return told
        case Recorded():
            return {"outcome": "recorded", "entry": entry_wire(outcome.entry)}
        case Minted():
            return {"outcome": "minted", **_minted(outcome)}
        case Admitted():
            return _admitted_wire(outcome)
        case Doubtful():
            return {"outcome": "doubtful", "token": outcome.token, "evidence_class": outcome.evidence_class}
        case EntityHeld():
            lease = _entity_wire(outcome.lease)
            return {"outcome": "entity_held", **lease, "expires_at": render(outcome.expires_at)}
        case Done():
            return {"outcome": "done"}


def _admitted_wire(outcome: Admitted) -> Json:
    told: Json = {
        "outcome": "admitted",
        "token": outcome.token,
        "idempotency_key": outcome.idempotency_key,
        "admitted_at": render(outcome.admitted_at),
        "publication": outcome.publication,
        "replayed": outcome.replayed,
    }
    _add(told, window_ends_at=_instant(outcome.window_ends_at))
    if (target := outcome.target) is not None:
        sent = {"name": target.name, "url": target.url, "methods": list(target.methods), "secret": target.secret}
        told.update(destination=sent)
    return told


def _admitted_of(told: Mapping[str, Any]) -> Admitted:
    sent = told.get("destination")
    return Admitted(
        told["token"],
        told["idempotency_key"],
        parse(told["admitted_at"]),
        told["publication"],
        _parsed(told.get("window_ends_at")),
        None if sent is None else Target(sent["name"], sent["url"], tuple(sent["methods"]), sent["secret"]),
        told.get("replayed", False),
    )


def outcome_of(told: Mapping[str, Any]) -> Outcome:
    """The outcome that `outcome_wire` told. Raises ValueError for one that this host does not know."""
    match told["outcome"]:
        case "claimed":
            return Claimed(told["attempt"], told.get("ref"))
        case "recorded":
            return Recorded(entry_of(told["entry"]))
        case "minted":
            return _minted_of(told)
        case "admitted":
            return _admitted_of(told)
        case "doubtful":
            return Doubtful(told["token"], told["evidence_class"])
        case "entity_held":
            return EntityHeld(EntityLease(told["namespace"], told["key"], told["epoch"]), parse(told["expires_at"]))
        case "done":
            return Done()
        case other:
            raise ValueError(f"the outcome {other!r} is not known")


def failure_of(told: Mapping[str, Any]) -> Failure:
    """The failure that `Failure.wire` told."""
    return Failure(told["tag"], told["message"], told.get("code"), told.get("step"))


def entries_of(told: Sequence[Mapping[str, Any]]) -> list[Entry]:
    """Several entries."""
    return [entry_of(one) for one in told]


def _add(told: Json, **found: Any) -> None:
    told.update({name: one for name, one in found.items() if one is not None})


def _instant(value: Instant | None) -> str | None:
    return None if value is None else render(value)


def _parsed(value: str | None) -> Instant | None:
    return None if value is None else parse(value)

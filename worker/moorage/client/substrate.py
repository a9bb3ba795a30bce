"""The substrate over HTTP: what a host outside the Worker asks of Moorage (clause runs.substrate).

Whatever is sent here may be sent again: an operation on an entry that has been carried out answers what it did the first
time, under the same lease. So a request whose answer was lost is repeated by itself, and only when no answer comes for as
long as the wire is patient is the execution given up, for whoever takes it next.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import httpx

from moorage.client.paging import segment
from moorage.client.problems import Problem, Unanswered
from moorage.client.wire import Wire
from moorage.journal.model import Entry, EntryKey, Fence, Lease, Value
from moorage.kernel import canonical, errors
from moorage.kernel.errors import BlobCorrupt, MoorageError, StorageBindingUnavailable
from moorage.kernel.limits import JOURNAL_INLINE_BYTES, JSON_DEPTH, JSON_VALUES, REQUEST_BYTES
from moorage.runs import wire as codec
from moorage.runs.model import Execution, Stop
from moorage.runs.operations import Close, CommitCursor, Operation, Outcome, Put, Record, StartChild

_KNOWN: Final = {cls.__name__: cls for cls in errors.every_error()}

_WRAPPING: Final = 6
"""Levels of nesting that a request adds around a value."""

_BODY_BYTES: Final = int(REQUEST_BYTES) * 3 // 4
_BODY_VALUES: Final = int(JSON_VALUES) * 3 // 4
"""What one request of operations may come to; further ones go into the next."""

_OPERATION_VALUES: Final = 40
"""What an operation comes to beside its value."""


def error_of(failure: Problem | Unanswered) -> MoorageError:
    """The error of the core that a problem tells, so that a host need not know what stands between."""
    if isinstance(failure, Unanswered):
        return StorageBindingUnavailable(f"no answer: {failure}")
    kind = _KNOWN.get(failure.code, StorageBindingUnavailable if failure.status >= 500 else errors.RequestInvalid)
    general = ("type", "title", "status", "detail", "code", "tag", "retryable", "retry_after", "errors")
    members = {name: value for name, value in failure.members.items() if name not in general}
    return kind(failure.detail or failure.code, errors=failure.errors or None, retry_after=failure.retry_after, **members)


class HttpSubstrate:
    """`Substrate` of one deployment, with what a host needs beside it: opening, taking, and waiting."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    # --- The substrate ------------------------------------------------------------------------------------------------

    async def apply(self, fence: Fence, operations: Sequence[Operation]) -> list[Outcome]:
        """See `Substrate.apply`. Lists that are too large for a request are committed in order, in as few as it takes."""
        placed = [await self._placed(fence, operation) for operation in operations]
        outcomes: list[Outcome] = []
        for batch in _batches(placed):
            sent = {"epoch": fence.epoch, "operations": batch}
            told = await self._call("POST", _path(fence, "journal"), sent)
            outcomes += [codec.outcome_of(one) for one in told["outcomes"]]
        return outcomes

    async def refresh(self, fence: Fence) -> list[Entry]:
        """See `Substrate.refresh`."""
        told = await self._call("POST", _path(fence, "refresh"), {"epoch": fence.epoch})
        return codec.entries_of(told["entries"])

    async def values(self, fence: Fence, keys: Sequence[EntryKey]) -> list[Value]:
        """See `Substrate.values`. Large ones come one by one, as bytes."""
        found: list[Value] = []
        while len(found) < len(keys):
            wanted = [codec.key_wire(key) for key in keys[len(found) : len(found) + 100]]
            told = await self._call("POST", _path(fence, "values"), {"epoch": fence.epoch, "keys": wanted})
            values = [codec.value_of(one) for one in told["values"]]
            found += [await self.loaded(fence, value) for value in values]
        return found

    async def cursor(self, fence: Fence, name: str) -> tuple[Value | None, int]:
        """See `Substrate.cursor`."""
        path = f"{_path(fence, 'cursors')}/{segment(name)}"
        told = await self._call("GET", path, query={"epoch": fence.epoch})
        return (codec.value_of(told) if told["revision"] else None), told["revision"]

    async def renew(self, fences: Sequence[Fence]) -> dict[str, Lease]:
        """See `Substrate.renew`."""
        told = await self._call("POST", "/executions/renew", {"items": _items(fences)})
        return {one["execution_id"]: codec.lease_of(one["lease"]) for one in told["items"] if one.get("lease")}

    async def stops(self, fences: Sequence[Fence]) -> dict[str, Stop]:
        """See `Substrate.stops`."""
        told = await self._call("POST", "/executions/stops", {"items": _items(fences)})
        return {one["execution_id"]: codec.stop_of(one["stop"]) for one in told["items"] if one.get("stop")}

    async def register_holder(self, holder: str, name: str) -> None:
        """See `Substrate.register_holder`."""
        await self._call("POST", "/holders", {"id": holder, "name": name})

    async def exit_holder(self, holder: str, reason: str) -> None:
        """See `Substrate.exit_holder`."""
        await self._call("POST", f"/holders/{segment(holder)}/exit", {"reason": reason})

    # --- What a host needs beside it ----------------------------------------------------------------------------------

    async def open(self, sent: Mapping[str, Any], key: str | None = None) -> Execution:
        """Open or resume an execution and hold it; `sent` is the body of `POST /executions`."""
        return codec.execution_of(await self._call("POST", "/executions", dict(sent), key=key, repeatable=key is not None))

    async def take(self, sent: Mapping[str, Any]) -> list[Execution]:
        """Take executions that are due; `sent` is the body of `POST /executions/claim`. It is sent once: what a lost answer
        took is free again when its lease ends."""
        told = await self._call("POST", "/executions/claim", dict(sent), repeatable=False)
        return [codec.execution_of(one) for one in told["executions"]]

    async def due(self, bodies: Sequence[Mapping[str, Any]], wait_seconds: float) -> bool:
        """Whether there is something to take for these bodies, as soon as there is or after so long."""
        sent = {"bodies": list(bodies), "wait_seconds": wait_seconds}
        told = await self._call("POST", "/executions/wait", sent, wait_seconds=wait_seconds)
        return bool(told["due"])

    async def wait(self, execution_id: str, wait_seconds: float) -> dict[str, Any]:
        """How an execution stands, as soon as there is something to do for it or after so long."""
        path = f"/executions/{segment(execution_id)}/wait"
        told: dict[str, Any] = await self._call("POST", path, {"wait_seconds": wait_seconds}, wait_seconds=wait_seconds)
        return told

    async def loaded(self, fence: Fence, value: Value) -> Value:
        """A value with its text. Raises BlobMissing, BlobCorrupt."""
        if value.text is not None or value.blob is None:
            return value
        raw = await self._bytes("GET", f"{_path(fence, 'blobs')}/{value.blob}", fence)
        if hashlib.sha256(raw).hexdigest() != value.blob:
            raise BlobCorrupt(f"the bytes of blob {value.blob} are others", sha256=value.blob)
        return replace(value, text=raw.decode())

    async def _placed(self, fence: Fence, operation: Operation) -> Operation:
        """The operation with its value as a blob, if it is too large, too long or too deep to stand in a request."""
        match operation:
            case Record() | Put() | CommitCursor() if _is_large(operation.value):
                return replace(operation, value=await self._stored(fence, operation.value))
            case StartChild() if _is_large(operation.input):
                return replace(operation, input=await self._stored(fence, operation.input))
            case Close() if operation.result is not None and _is_large(operation.result):
                return replace(operation, result=await self._stored(fence, operation.result))
            case _:
                return operation

    async def _stored(self, fence: Fence, value: Value) -> Value:
        text = value.text or ""
        raw = await self._bytes("PUT", _path(fence, "blobs"), fence, text.encode())
        told = json.loads(raw)
        return Value(None, told["size"], told["sha256"])

    async def _bytes(self, method: str, path: str, fence: Fence, content: bytes | None = None) -> bytes:
        headers = {} if content is None else {"Content-Type": "application/json"}
        query = {"epoch": fence.epoch}

        def make() -> httpx.Request:
            return self._wire.request(method, path, query=query, headers=headers, content=content)

        try:
            answer = await self._wire.send(make, True, path)
        except (Problem, Unanswered) as failure:
            raise error_of(failure) from failure
        return answer.content

    async def _call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        key: str | None = None,
        repeatable: bool = True,
        wait_seconds: float = 0,
    ) -> Any:
        try:
            return await self._wire.call(
                method, path, body, query=query, key=key, repeatable=repeatable, wait_seconds=wait_seconds
            )
        except (Problem, Unanswered) as failure:
            raise error_of(failure) from failure


def _path(fence: Fence, what: str) -> str:
    return f"/executions/{segment(fence.execution_id)}/{what}"


def _items(fences: Sequence[Fence]) -> list[dict[str, Any]]:
    return [{"execution_id": fence.execution_id, "epoch": fence.epoch} for fence in fences]


def _is_large(value: Value) -> bool:
    if value.text is None:
        return False
    return value.size > JOURNAL_INLINE_BYTES or _openings(value.text) > _BODY_VALUES // 2 or _is_deep(value.text)


def _openings(text: str) -> int:
    return text.count(",") + text.count("[") + text.count("{")


def _is_deep(text: str) -> bool:
    most = int(JSON_DEPTH) - _WRAPPING
    return text.count("[") + text.count("{") > most and canonical.depth(canonical.loads(text.encode())) > most


def _batches(operations: Sequence[Operation]) -> Iterator[list[dict[str, Any]]]:
    """The operations as JSON, in lists that a request can hold. `Suspend` and `Close` stay in the last one."""
    batch: list[dict[str, Any]] = []
    held, values = 0, 0
    for operation in operations:
        told = codec.operation_wire(operation)
        text = canonical.compact(told)
        more, many = canonical.size(text), _openings(text) + _OPERATION_VALUES
        if batch and (held + more > _BODY_BYTES or values + many > _BODY_VALUES):
            yield batch
            batch, held, values = [], 0, 0
        batch.append(told)
        held, values = held + more, values + many
    if batch:
        yield batch

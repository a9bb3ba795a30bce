"""The edge's adapters from the host: each call travels to the harness Worker, and runs there on the real D1 and R2."""

import base64
import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

import httpx

from moorage.kernel import errors
from moorage.kernel.instants import Instant
from moorage.store import schema
from moorage.store.ports import BlobRange, Blobs, ByteStream, Cost, Frontiers, HeldBytes, StoredBlob
from moorage.store.sqlite import connect
from moorage.store.transaction import Batch, Reading, Row, Scalar, Transaction
from moorage.store.transport import Patience
from tests.contract.adapters import schema_statements

_CODES = {cls.__name__: cls for cls in errors.every_error()}


@dataclass(frozen=True, slots=True)
class Fault:
    """What the binding does to the first `times` batches of a call: `fail_before`, `lose_answer` or `hang`."""

    kind: str
    times: int = 1
    seconds: float = 1.0
    patience: Patience = field(default_factory=Patience)


class Harness:
    """The harness Worker at an address."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def ask(self, path: str, wanted: dict[str, Any]) -> dict[str, Any]:
        """One call. Raises the error that the adapter raised."""
        response = await self._client.post(path, content=json.dumps(wanted))
        response.raise_for_status()
        answer: dict[str, Any] = response.json()
        return answer


def raised(answer: dict[str, Any]) -> None:
    """Raise what the Worker's adapter raised, if it did."""
    error = answer.get("error")
    if error is not None:
        raise _CODES[error["code"]](error["detail"], **error["members"])


class RemoteDatabase:
    """The Database port, answered by `edge.d1.D1Database` in workerd. `batches` counts what reached the binding."""

    def __init__(self, harness: Harness, fault: Fault | None = None) -> None:
        self._harness = harness
        self._fault = fault
        self.cost = Cost()
        self.batches = 0

    async def read(self, reading: Reading) -> None:
        _fill(reading, await self._ask("read", {"statements": reading.describe()}))

    async def commit(self, transaction: Transaction) -> None:
        wanted = {
            "statements": transaction.describe(),
            "conflicts": len(transaction.conflicts),
            "refusals": list(transaction.refusals),
        }
        answer = await self._ask("commit", wanted)
        name = answer.get("foreseen")
        if name is not None:
            raise transaction.conflicts[int(name)] if re.fullmatch(r"\d+", name) else transaction.refusals[name]
        _fill(transaction, answer)

    async def initialize(self, statements: list[str]) -> None:
        await self._ask("initialize", {"statements": [{"sql": sql, "values": []} for sql in statements]})

    async def _ask(self, verb: str, wanted: dict[str, Any]) -> dict[str, Any]:
        fault = {"fault": asdict(self._fault)} if self._fault else {}
        answer = await self._harness.ask(f"/database/{verb}", wanted | fault)
        trips, rows_read, rows_written, milliseconds = answer["cost"]
        self.cost.trips += trips
        self.cost.rows_read += rows_read
        self.cost.rows_written += rows_written
        self.cost.milliseconds += milliseconds
        self.batches += answer["batches"]
        raised(answer)
        return answer


def _fill(batch: Batch, answer: dict[str, Any]) -> None:
    for statement, (rows, changes) in zip(batch, answer["answers"], strict=True):
        statement.answer.fill(rows, changes)


@dataclass(frozen=True, slots=True)
class RemoteStream:
    """What was read of an object in the Worker, and whether it broke off."""

    content: bytes
    size: int
    broken: str | None
    sha256: str

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self.content:
            yield self.content
        if self.broken is not None:
            raise errors.BlobCorrupt(self.broken, reference=self.sha256)


class RemoteBlobs:
    """The Blobs port, answered by `edge.r2.R2Blobs` in workerd. `requests` counts what reached the bucket."""

    def __init__(self, harness: Harness, fault: Fault | None = None) -> None:
        self._harness = harness
        self._fault = fault
        self.requests = 0

    async def put(self, content: bytes) -> str:
        answer = await self._ask("put", {"content": base64.b64encode(content).decode()})
        return str(answer["sha256"])

    async def get(self, sha256: str, span: BlobRange | None = None) -> bytes:
        wanted = {"sha256": sha256, "span": [span.offset, span.length] if span else None}
        return base64.b64decode((await self._ask("get", wanted))["content"])

    async def put_stream(self, content: ByteStream, sha256: str) -> None:
        held = b"".join([piece async for piece in content])
        wanted = {"content": base64.b64encode(held).decode(), "sha256": sha256, "native": not isinstance(content, HeldBytes)}
        await self._ask("put_stream", wanted)

    async def spool(self, content: ByteStream, name: str) -> str:
        held = b"".join([piece async for piece in content])
        answer = await self._ask("spool", {"content": base64.b64encode(held).decode(), "name": name})
        return str(answer["sha256"])

    async def adopt(self, name: str, sha256: str) -> None:
        await self._ask("adopt", {"name": name, "sha256": sha256})

    async def discard(self, name: str) -> None:
        await self._ask("discard", {"name": name})

    async def discard_before(self, instant: Instant) -> int:
        return int((await self._ask("discard_before", {"instant": instant}))["discarded"])

    async def open(self, sha256: str, span: BlobRange | None = None) -> ByteStream:
        wanted = {"sha256": sha256, "span": [span.offset, span.length] if span else None}
        native, plain = [await self._ask("open", {**wanted, "native": native}) for native in (True, False)]
        assert (native["content"], native["size"]) == (plain["content"], plain["size"])
        assert (native["broken"] is None) == (plain["broken"] is None)
        return RemoteStream(base64.b64decode(native["content"]), native["size"], native["broken"], sha256)

    async def page(self, after: str, limit: int) -> Sequence[StoredBlob]:
        answer = await self._ask("page", {"after": after, "limit": limit})
        return [StoredBlob(sha256, size, Instant(uploaded)) for sha256, size, uploaded in answer["items"]]

    async def size(self, sha256: str) -> int | None:
        size: int | None = (await self._ask("size", {"sha256": sha256}))["size"]
        return size

    async def delete(self, sha256: str) -> None:
        await self._ask("delete", {"sha256": sha256})

    async def list(self) -> AsyncIterator[str]:
        for digest in (await self._ask("list", {}))["digests"]:
            yield digest

    async def _ask(self, verb: str, wanted: dict[str, Any]) -> dict[str, Any]:
        fault = {"fault": asdict(self._fault)} if self._fault else {}
        answer = await self._harness.ask(f"/blobs/{verb}", wanted | fault)
        self.requests += answer["requests"]
        raised(answer)
        return answer


class RemoteFrontiers:
    """The Frontiers port, answered by `edge.r2.R2Frontiers` in workerd."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness

    async def keep(self, identity: str, content: bytes) -> None:
        await self._ask("keep", {"identity": identity, "content": base64.b64encode(content).decode()})

    async def read(self, identity: str) -> bytes | None:
        content = (await self._ask("read", {"identity": identity}))["content"]
        return None if content is None else base64.b64decode(content)

    async def identities(self) -> Sequence[str]:
        identities: list[str] = (await self._ask("identities", {}))["identities"]
        return identities

    async def _ask(self, verb: str, wanted: dict[str, Any]) -> dict[str, Any]:
        answer = await self._harness.ask(f"/frontiers/{verb}", wanted)
        raised(answer)
        return answer


_SCHEMA = """
SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL
AND substr(name, 1, 3) NOT IN ('_cf', 'd1_') AND substr(name, 1, 7) <> 'sqlite_' ORDER BY name
"""
_APPEND_ONLY = "guard_audit"
"""No row of it can be deleted, so that it is made anew."""
_FACTS = [sql for sql in schema_statements() if re.search(r"(INSERT INTO|UPDATE) moorage\b", sql) or _APPEND_ONLY in sql]


@lru_cache(maxsize=1)
def _expected() -> list[Row]:
    """The schema as SQLite holds it; the edge's database writes it down in the same words."""
    connection = connect(":memory:")
    for statement in schema_statements():
        connection.execute(statement)
    return [dict(row) for row in connection.execute(_SCHEMA)]


def _clearing() -> dict[str, str]:
    return {name: f"DELETE FROM {name}" for name in schema.TABLES - {_APPEND_ONLY}}  # noqa: S608


class D1Store:
    """D1 and R2 under workerd."""

    name = "d1"

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.harness = Harness(client)
        self.blobs: Blobs = RemoteBlobs(self.harness)
        self.frontiers: Frontiers = RemoteFrontiers(self.harness)

    def db(self, fault: Fault | None = None) -> RemoteDatabase:
        return RemoteDatabase(self.harness, fault)

    async def sql(self, sql: str, *values: Scalar) -> list[Row]:
        return (await self._batch((sql, values)))[0]

    async def sql_batch(self, statements: Sequence[str]) -> list[list[Row]]:
        return await self._batch(*((sql, ()) for sql in statements))

    async def damage_blob(self, sha256: str, content: bytes) -> None:
        await self.harness.ask("/blobs/damage", {"sha256": sha256, "content": base64.b64encode(content).decode()})

    async def keys(self) -> list[str]:
        """Every key of the bucket, whatever its prefix."""
        keys: list[str] = (await self.harness.ask("/blobs/keys", {}))["keys"]
        return keys

    async def reset(self) -> None:
        """Make the store fresh: what a test left is gone, what it dropped or changed is there again."""
        wanted = {"schema": _SCHEMA, "clear": _clearing(), "facts": _FACTS}
        found = (await self.harness.ask("/reset", wanted))["found"]
        if found != _expected():
            # Whatever is not as it should be is dropped, and the schema applied to the rest.
            right = {one["name"] for one in _expected() if one in found}
            wrong = [one["name"] for one in found if one["type"] == "table" and one["name"] not in right]
            await self.sql_batch([*(f'DROP TABLE "{name}"' for name in wrong), *schema_statements()])

    async def _batch(self, *statements: tuple[str, tuple[Scalar, ...]]) -> list[list[Row]]:
        wanted = [{"sql": sql, "values": list(values)} for sql, values in statements]
        results: list[list[Row]] = (await self.harness.ask("/sql", {"statements": wanted}))["results"]
        return results

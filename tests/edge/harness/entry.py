"""The harness Worker: a transaction arrives as data, runs through the real adapter, and its outcome leaves as data.

POST /database/{read,commit,initialize}, /sql, /reset, /blobs/{put,get,size,delete,list,damage,keys}, and for streams
/blobs/{put_stream,spool,adopt,discard,discard_before,open,page}; /frontiers/{keep,read,identities}.
An error of the adapter is answered with its code and detail; a conflict with the number of its precondition or the name of
its uniqueness.
"""

import base64
import json
from typing import Any
from urllib.parse import urlsplit

import js
from faults import FaultyBinding, FaultyBucket  # type: ignore[import-not-found]
from pyodide.ffi import JsException, to_js
from workers import Response, WorkerEntrypoint

from moorage.edge.convert import array, bound, plain, raw
from moorage.edge.d1 import D1Database
from moorage.edge.r2 import R2Blobs, R2Frontiers
from moorage.edge.streams import Incoming, pieces
from moorage.kernel.errors import BlobCorrupt, MoorageError
from moorage.kernel.instants import Instant
from moorage.store.blobkeys import BLOB_PREFIX
from moorage.store.ports import BlobRange, HeldBytes
from moorage.store.transaction import Answer, Batch, Reading, Statement, Transaction
from moorage.store.transport import PATIENCE, Patience


class Foreseen(Exception):
    """Stands for the error that the caller built, named by what tells it apart."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Default(WorkerEntrypoint):  # type: ignore[misc]
    """One route for each thing that a port can be asked."""

    async def fetch(self, request: Any) -> Any:
        path = urlsplit(request.url).path
        wanted = json.loads(await request.text())
        try:
            room, _, verb = path.strip("/").partition("/")
            answer = await self._database(verb, wanted) if room == "database" else await self._other(room, verb, wanted)
        except MoorageError as error:
            answer = _refusal(error)
        return Response(json.dumps(answer), headers={"content-type": "application/json"})

    async def _database(self, verb: str, wanted: dict[str, Any]) -> dict[str, Any]:
        fault = wanted.get("fault") or {}
        binding = FaultyBinding(self.env.DB, fault.get("kind"), fault.get("times", 1), fault.get("seconds", 1.0))
        patience = Patience(**fault["patience"]) if "patience" in fault else PATIENCE
        db = D1Database(binding, patience)
        answer = await _run(db, verb, wanted)
        cost = db.cost
        spent = [cost.trips, cost.rows_read, cost.rows_written, cost.milliseconds]
        return answer | {"cost": spent, "batches": binding.batches}

    async def _other(self, room: str, verb: str, wanted: dict[str, Any]) -> dict[str, Any]:
        if room == "sql":
            return {"results": await self._sql(wanted["statements"])}
        bucket = raw(self.env.BLOBS, "BLOBS")
        if room == "reset":
            return {"found": await self._reset(bucket, wanted)}
        if verb == "keys":
            return {"keys": [found.key for found in (await bucket.list()).objects]}
        if verb == "damage":
            await bucket.put(BLOB_PREFIX + wanted["sha256"], to_js(base64.b64decode(wanted["content"])))
            return {}
        if room == "frontiers":
            return await _frontiers(R2Frontiers(bucket), verb, wanted)
        fault = wanted.get("fault") or {}
        faulty = FaultyBucket(bucket, fault.get("kind"), fault.get("times", 1))
        try:
            answer = await _blobs(R2Blobs(faulty), verb, wanted)
        except MoorageError as error:
            answer = _refusal(error)
        return answer | {"requests": faulty.requests}

    async def _reset(self, bucket: Any, wanted: dict[str, Any]) -> list[dict[str, Any]]:
        """Empty both stores in as few calls as can be; answers what the database's schema is afterwards."""
        [found] = await self._sql([{"sql": wanted["schema"], "values": []}])
        tables = [one["name"] for one in found if one["type"] == "table"]
        clear = [wanted["clear"].get(name) or f'DROP TABLE "{name}"' for name in tables]
        if wanted["clear"].keys() - set(tables):
            # A trigger that writes to a table which a test took away would let no statement through.
            clear = [f'DROP TRIGGER "{one["name"]}"' for one in found if one["type"] == "trigger"] + clear
        statements = [*clear, *(wanted["facts"] if "moorage" in tables else []), wanted["schema"]]
        answers = await self._sql([{"sql": sql, "values": []} for sql in statements])
        for found_object in (await bucket.list()).objects:
            await bucket.delete(found_object.key)
        return answers[-1]

    async def _sql(self, statements: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        database = raw(self.env.DB, "DB")
        prepared = [database.prepare(item["sql"]).bind(*bound(item["values"])) for item in statements]
        return [result["results"] for result in plain(await database.batch(array(prepared)))]


def _refusal(error: MoorageError) -> dict[str, Any]:
    return {"error": {"code": error.code, "detail": error.detail, "members": dict(error.members)}}


async def _run(db: D1Database, verb: str, wanted: dict[str, Any]) -> dict[str, Any]:
    batch: Batch = Reading() if verb == "read" else Transaction(Instant(0))
    batch.statements = [Statement(item["sql"], tuple(item["values"]), Answer()) for item in wanted["statements"]]
    try:
        if verb == "initialize":
            await db.initialize([statement.sql for statement in batch])
            return {}
        if isinstance(batch, Transaction):
            batch.conflicts = [Foreseen(str(ordinal)) for ordinal in range(wanted["conflicts"])]
            batch.refusals = {name: Foreseen(name) for name in wanted["refusals"]}
            await db.commit(batch)
        elif isinstance(batch, Reading):
            await db.read(batch)
    except Foreseen as broken:
        return {"foreseen": broken.name}
    except MoorageError as error:
        return _refusal(error)
    return {"answers": [[statement.answer.rows, statement.answer.changes] for statement in batch]}


def _incoming(wanted: dict[str, Any]) -> Incoming:
    """Bytes as the body of a request would bring them: as the platform's own stream."""
    content = base64.b64decode(wanted["content"])
    return Incoming(js.Response.new(to_js(content)), len(content))


async def _put_stream(blobs: R2Blobs, wanted: dict[str, Any]) -> dict[str, Any]:
    content: Any = _incoming(wanted) if wanted["native"] else HeldBytes(base64.b64decode(wanted["content"]))
    await blobs.put_stream(content, wanted["sha256"])
    return {}


async def _spool(blobs: R2Blobs, wanted: dict[str, Any]) -> dict[str, Any]:
    return {"sha256": await blobs.spool(_incoming(wanted), wanted["name"])}


async def _adopt(blobs: R2Blobs, wanted: dict[str, Any]) -> dict[str, Any]:
    await blobs.adopt(wanted["name"], wanted["sha256"])
    return {}


async def _discard(blobs: R2Blobs, wanted: dict[str, Any]) -> dict[str, Any]:
    await blobs.discard(wanted["name"])
    return {}


async def _discard_before(blobs: R2Blobs, wanted: dict[str, Any]) -> dict[str, Any]:
    return {"discarded": await blobs.discard_before(Instant(wanted["instant"]))}


async def _open(blobs: R2Blobs, wanted: dict[str, Any]) -> dict[str, Any]:
    """Read through the platform's own stream, as an answer would be; `broken` tells how it broke off."""
    span = BlobRange(*wanted["span"]) if wanted["span"] else None
    content: Any = await blobs.open(wanted["sha256"], span)
    read = b""
    try:
        if wanted["native"]:
            async for piece in pieces(js.Response.new(content.native()).body):
                read += piece.to_bytes()
        else:
            async for part in content:
                read += part
    except (BlobCorrupt, JsException) as error:
        return {"size": content.size, "content": base64.b64encode(read).decode(), "broken": str(error)}
    return {"size": content.size, "content": base64.b64encode(read).decode(), "broken": None}


async def _page(blobs: R2Blobs, wanted: dict[str, Any]) -> dict[str, Any]:
    found = await blobs.page(wanted["after"], wanted["limit"])
    return {"items": [[one.sha256, one.size, one.uploaded] for one in found]}


async def _frontiers(frontiers: R2Frontiers, verb: str, wanted: dict[str, Any]) -> dict[str, Any]:
    if verb == "keep":
        await frontiers.keep(wanted["identity"], base64.b64decode(wanted["content"]))
        return {}
    if verb == "read":
        content = await frontiers.read(wanted["identity"])
        return {"content": None if content is None else base64.b64encode(content).decode()}
    return {"identities": list(await frontiers.identities())}


_STREAMS = {
    "put_stream": _put_stream,
    "spool": _spool,
    "adopt": _adopt,
    "discard": _discard,
    "discard_before": _discard_before,
    "open": _open,
    "page": _page,
}


async def _blobs(blobs: R2Blobs, verb: str, wanted: dict[str, Any]) -> dict[str, Any]:
    if verb in _STREAMS:
        return await _STREAMS[verb](blobs, wanted)
    if verb == "put":
        return {"sha256": await blobs.put(base64.b64decode(wanted["content"]))}
    if verb == "get":
        span = BlobRange(*wanted["span"]) if wanted["span"] else None
        return {"content": base64.b64encode(await blobs.get(wanted["sha256"], span)).decode()}
    if verb == "size":
        return {"size": await blobs.size(wanted["sha256"])}
    if verb == "delete":
        await blobs.delete(wanted["sha256"])
        return {}
    return {"digests": [digest async for digest in blobs.list()]}

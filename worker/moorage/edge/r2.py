"""The Blobs port on R2."""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from pyodide.ffi import JsException, to_js

from moorage.edge.convert import absent, array, message_of, options, raw
from moorage.edge.streams import Incoming, Outgoing, Verified, digest_of, sendable
from moorage.kernel.errors import InternalError, MoorageError, RequestInvalid, StorageBindingUnavailable
from moorage.kernel.instants import Instant
from moorage.store.blobkeys import (
    BLOB_PREFIX,
    RECOVERY_PREFIX,
    UPLOAD_PREFIX,
    blob_key,
    corrupt,
    mismatch,
    missing,
    recovery_key,
    upload_key,
    verify,
)
from moorage.store.ports import BlobRange, ByteStream, StoredBlob
from moorage.store.transport import PATIENCE, Patience, resend

Answer = TypeVar("Answer")

_UNAVAILABLE: Final = ("(10001)", "(10043)", "(10054)", "(10058)")
"""R2's numbers for an internal error, unavailability, a lost client and too many requests at once."""

_OTHER_DIGEST: Final = "(10037)"


class R2Blobs:
    """Content-addressed objects in one bucket. Requests may be sent again, as equal bytes have equal keys, but for those
    that bring a stream: its bytes come only once."""

    def __init__(self, binding: Any, patience: Patience = PATIENCE) -> None:
        self._bucket = raw(binding, "BLOBS")
        self._patience = patience

    async def put(self, content: bytes) -> str:
        sha256 = hashlib.sha256(content).hexdigest()
        # A refused conditional put costs as much as a put, so look first: blobs are often there already.
        if await self.size(sha256) is not None:
            return sha256
        key = blob_key(sha256)
        condition = {"sha256": sha256, "onlyIf": {"etagDoesNotMatch": "*"}}
        await self._ask(lambda: self._bucket.put(key, to_js(content), options(condition)))
        return sha256

    async def put_stream(self, content: ByteStream, sha256: str) -> None:
        key = blob_key(sha256)
        if await self.size(sha256) is None:
            body = await sendable(content)
            await self._once(content, lambda: self._bucket.put(key, body, options({"sha256": sha256})), sha256)
        elif await self._read(content) != sha256:
            raise mismatch(sha256)

    async def spool(self, content: ByteStream, name: str) -> str:
        key, body = upload_key(name), await sendable(content)
        await self._once(content, lambda: self._bucket.put(key, body, options({})))
        found = await self._ask(lambda: self._bucket.get(key))
        if absent(found):
            raise StorageBindingUnavailable("the bucket lost an upload")
        return await _told(lambda: digest_of(found.body))

    async def adopt(self, name: str, sha256: str) -> None:
        key = upload_key(name)
        if await self.size(sha256) is None:
            found = await self._ask(lambda: self._bucket.get(key))
            if absent(found):
                raise missing(sha256)
            await _told(lambda: self._bucket.put(blob_key(sha256), found.body, options({"sha256": sha256})))
        await self._ask(lambda: self._bucket.delete(key))

    async def discard(self, name: str) -> None:
        key = upload_key(name)
        await self._ask(lambda: self._bucket.delete(key))

    async def discard_before(self, instant: Instant) -> int:
        wanted = {"prefix": UPLOAD_PREFIX, "limit": 1000}
        found = await self._ask(lambda: self._bucket.list(options(wanted)))
        old = [one.key for one in found.objects if _uploaded(one) < instant]
        if old:
            await self._ask(lambda: self._bucket.delete(array(old)))
        return len(old)

    async def open(self, sha256: str, span: BlobRange | None = None) -> ByteStream:
        key = blob_key(sha256)
        if span is not None:
            return await self._open_part(sha256, span)
        found = await self._ask(lambda: self._bucket.get(key))
        if absent(found):
            raise missing(sha256)
        content = Verified(found.body, int(found.size), sha256)
        await content.begin()
        return content

    async def _open_part(self, sha256: str, span: BlobRange) -> ByteStream:
        key, end = blob_key(sha256), span.offset + span.length
        wanted = {"range": {"offset": span.offset, "length": span.length}}
        try:
            found = await self._ask(lambda: self._bucket.get(key, options(wanted)))
        except MoorageError:
            # A range past the end is refused in several ways, none of which says so.
            size = await self.size(sha256)
            if size is not None and end > size:
                raise corrupt(sha256) from None
            raise
        if absent(found):
            raise missing(sha256)
        if end > found.size:
            raise corrupt(sha256)
        return Outgoing(found.body, span.length)

    async def get(self, sha256: str, span: BlobRange | None = None) -> bytes:
        content = await self._whole(sha256) if span is None else await self._part(sha256, span)
        if content is None:
            raise missing(sha256)
        if span is None:
            verify(content, sha256)
        return content

    async def size(self, sha256: str) -> int | None:
        key = blob_key(sha256)
        found = await self._ask(lambda: self._bucket.head(key))
        return None if absent(found) else int(found.size)

    async def delete(self, sha256: str) -> None:
        key = blob_key(sha256)
        await self._ask(lambda: self._bucket.delete(key))

    async def page(self, after: str, limit: int) -> Sequence[StoredBlob]:
        wanted = {"prefix": BLOB_PREFIX, "limit": limit, **({"startAfter": BLOB_PREFIX + after} if after else {})}
        found = await self._ask(lambda: self._bucket.list(options(wanted)))
        return [StoredBlob(one.key.removeprefix(BLOB_PREFIX), int(one.size), _uploaded(one)) for one in found.objects]

    async def list(self) -> AsyncIterator[str]:
        cursor: str | None = None
        while True:
            wanted = {"prefix": BLOB_PREFIX} if cursor is None else {"prefix": BLOB_PREFIX, "cursor": cursor}
            page = await self._ask(partial(self._bucket.list, options(wanted)))
            for found in page.objects:
                yield found.key.removeprefix(BLOB_PREFIX)
            if not page.truncated:
                return
            cursor = page.cursor

    async def _whole(self, sha256: str) -> bytes | None:
        key = blob_key(sha256)
        return await self._ask(lambda: self._body(self._bucket.get(key)))

    async def _part(self, sha256: str, span: BlobRange) -> bytes | None:
        key = blob_key(sha256)
        size = await self.size(sha256)
        if size is None:
            return None
        length = min(span.length, size - span.offset)
        if length <= 0:
            return b""
        wanted = {"range": {"offset": span.offset, "length": length}}
        return await self._ask(lambda: self._body(self._bucket.get(key, options(wanted))))

    async def _body(self, got: Awaitable[Any]) -> bytes | None:
        found = await got
        return None if absent(found) else bytes((await found.arrayBuffer()).to_bytes())

    async def _read(self, content: ByteStream) -> str:
        """The digest of bytes that are there already."""
        if isinstance(content, Incoming) and content.size:
            try:
                return await digest_of(content.native())
            except JsException:
                raise RequestInvalid("the body ended before it was complete") from None
        return hashlib.sha256(b"".join([piece async for piece in content])).hexdigest()

    async def _once(self, content: ByteStream, put: Callable[[], Awaitable[Any]], sha256: str = "") -> None:
        """Send a stream. It has all the time that it takes: how fast the client sends is not the bucket's doing."""
        try:
            await put()
        except JsException as error:
            message = message_of(error)
            if _OTHER_DIGEST in message:
                raise mismatch(sha256) from None
            if isinstance(content, Incoming) and "(10" not in message:
                raise RequestInvalid(f"the body ended before it was complete: {message[:100]}") from None
            raise _error(message) from None

    async def _ask(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        return await resend(lambda: _told(ask), self._patience)


class R2Frontiers:
    """The objects of recovery identities. They are written and read as a whole, so every request may be sent again."""

    def __init__(self, binding: Any, patience: Patience = PATIENCE) -> None:
        self._bucket = raw(binding, "BLOBS")
        self._patience = patience

    async def keep(self, identity: str, content: bytes) -> None:
        key = recovery_key(identity)
        await self._ask(lambda: self._bucket.put(key, to_js(content)))

    async def read(self, identity: str) -> bytes | None:
        key = recovery_key(identity)
        return await self._ask(lambda: self._body(key))

    async def identities(self) -> Sequence[str]:
        wanted = {"prefix": RECOVERY_PREFIX, "limit": 1000}
        found = await self._ask(lambda: self._bucket.list(options(wanted)))
        keys = [str(one.key) for one in found.objects if str(one.key).endswith(".json")]
        return [key.removeprefix(RECOVERY_PREFIX).removesuffix(".json") for key in keys]

    async def _body(self, key: str) -> bytes | None:
        found = await self._bucket.get(key)
        return None if absent(found) else bytes((await found.arrayBuffer()).to_bytes())

    async def _ask(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        return await resend(lambda: _told(ask), self._patience)


async def _told(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """What the bucket answers, however long that takes, with its errors as ours."""
    try:
        return await ask()
    except JsException as error:
        raise _error(message_of(error)) from None


def _uploaded(found: Any) -> Instant:
    """When a listed object was written."""
    return Instant(int(found.uploaded.getTime()))


def _error(message: str) -> MoorageError:
    """A numbered error is R2's answer, and the same request gets it again; anything else is a lost one."""
    numbered = message.rstrip().endswith(")") and "(10" in message
    if numbered and not any(number in message for number in _UNAVAILABLE):
        return InternalError(f"the bucket refused: {message}")
    return StorageBindingUnavailable(f"the bucket failed: {message}")

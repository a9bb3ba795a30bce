"""The Blobs port on R2."""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeVar

from pyodide.ffi import JsException, to_js

from moorage.edge.convert import absent, message_of, options, raw
from moorage.kernel.errors import BlobMissing, InternalError, MoorageError, StorageBindingUnavailable
from moorage.store.blobkeys import BLOB_PREFIX, blob_key, verify
from moorage.store.ports import BlobRange
from moorage.store.transport import PATIENCE, Patience, resend

Answer = TypeVar("Answer")

_UNAVAILABLE: Final = ("(10001)", "(10043)", "(10054)", "(10058)")
"""R2's numbers for an internal error, unavailability, a lost client and too many requests at once."""


class R2Blobs:
    """Content-addressed objects in one bucket. Every request here may be sent again: equal bytes have equal keys."""

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

    async def get(self, sha256: str, span: BlobRange | None = None) -> bytes:
        content = await self._whole(sha256) if span is None else await self._part(sha256, span)
        if content is None:
            raise BlobMissing(f"no object for {sha256}", reference=sha256)
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

    async def _ask(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        async def send() -> Answer:
            try:
                return await ask()
            except JsException as error:
                raise _error(message_of(error)) from None

        return await resend(send, self._patience)


def _error(message: str) -> MoorageError:
    """A numbered error is R2's answer, and the same request gets it again; anything else is a lost one."""
    numbered = message.rstrip().endswith(")") and "(10" in message
    if numbered and not any(number in message for number in _UNAVAILABLE):
        return InternalError(f"the bucket refused: {message}")
    return StorageBindingUnavailable(f"the bucket failed: {message}")

"""The one place where object keys are made; `r2_layout/` describes what they look like."""

import hashlib
import re
from collections.abc import AsyncIterator

from moorage.kernel.errors import BlobCorrupt, BlobMissing, DigestMismatch

BLOB_PREFIX = "blobs/"
UPLOAD_PREFIX = "uploads/"
RECOVERY_PREFIX = "recovery/"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_UPLOAD = re.compile(r"[a-z0-9_]{1,100}")
_IDENTITY = re.compile(r"rcv_[a-z0-9]{26}")


def blob_key(sha256: str) -> str:
    """`blobs/<sha256>` (clause blobs.key). Raises BlobMissing for what is not a digest: no object can have it."""
    if not is_digest(sha256):
        raise BlobMissing(f"not a SHA-256 digest: {sha256[:80]!r}", reference=sha256[:80])
    return BLOB_PREFIX + sha256


def upload_key(name: str) -> str:
    """`uploads/<name>`, where bytes wait whose digest is not known yet. Raises ValueError for a name not of ours."""
    if _UPLOAD.fullmatch(name) is None:
        raise ValueError("not the name of an upload")
    return UPLOAD_PREFIX + name


def recovery_key(identity: str) -> str:
    """`recovery/<identity>.json`, the object of a recovery identity. Raises ValueError for what is not one."""
    if _IDENTITY.fullmatch(identity) is None:
        raise ValueError("not a recovery identity")
    return f"{RECOVERY_PREFIX}{identity}.json"


def is_digest(text: str) -> bool:
    """Whether the text is a SHA-256 in lower-case hex."""
    return _SHA256.fullmatch(text) is not None


def verify(content: bytes, sha256: str) -> None:
    """Raise BlobCorrupt unless `content` has the digest (clause blobs.verify)."""
    if hashlib.sha256(content).hexdigest() != sha256:
        raise corrupt(sha256)


def corrupt(sha256: str) -> BlobCorrupt:
    """The error for an object whose bytes are not those of its digest."""
    return BlobCorrupt(f"the object's bytes do not have the digest {sha256}", reference=sha256)


def missing(sha256: str) -> BlobMissing:
    """The error for a digest without an object."""
    return BlobMissing(f"no object for {sha256}", reference=sha256)


def mismatch(declared: str) -> DigestMismatch:
    """The error for incoming bytes that do not have the declared digest."""
    return DigestMismatch(f"the bytes do not have the declared SHA-256 {declared}; nothing was stored")


async def verified(pieces: AsyncIterator[bytes], sha256: str) -> AsyncIterator[bytes]:
    """The pieces; the last one only once all of them together have the digest. Raises BlobCorrupt instead of it."""
    digest = hashlib.sha256()
    held = b""
    async for piece in pieces:
        digest.update(piece)
        if held:
            yield held
        held = piece
    if digest.hexdigest() != sha256:
        raise corrupt(sha256)
    if held:
        yield held

"""The one place where object keys are made; `r2_layout/` describes what they look like."""

import hashlib
import re

from moorage.kernel.errors import BlobCorrupt, BlobMissing

BLOB_PREFIX = "blobs/"
_SHA256 = re.compile(r"[0-9a-f]{64}")


def blob_key(sha256: str) -> str:
    """`blobs/<sha256>` (clause blobs.key). Raises BlobMissing for what is not a digest: no object can have it."""
    if _SHA256.fullmatch(sha256) is None:
        raise BlobMissing(f"not a SHA-256 digest: {sha256[:80]!r}", reference=sha256[:80])
    return BLOB_PREFIX + sha256


def verify(content: bytes, sha256: str) -> None:
    """Raise BlobCorrupt unless `content` has the digest (clause blobs.verify)."""
    if hashlib.sha256(content).hexdigest() != sha256:
        raise BlobCorrupt(f"the object's bytes do not have the digest {sha256}", reference=sha256)

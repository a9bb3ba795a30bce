"""Artifacts: bytes in and out as streams, and what is left of them once they are shredded."""

import base64
import binascii
import re
from typing import Annotated, Any

from fastapi import Path, Query
from starlette.responses import Response

from moorage.api import problems, ranges, shapes
from moorage.api.answers import Answer
from moorage.api.fields import Reason, Sent, fails
from moorage.api.requests import HEAD, ApiRequest
from moorage.api.routing import router
from moorage.api.shapes import RecordShown
from moorage.api.streams import StreamAnswer
from moorage.kernel.errors import (
    ArtifactShredded,
    BlobBusy,
    BlobCorrupt,
    BlobMissing,
    DigestMismatch,
    IdempotencyConflict,
    KindUnknown,
    LengthRequired,
    PayloadTooLarge,
    RangeUnsatisfiable,
    RecordExists,
    RecordRemoved,
    RecordUnknown,
    StorageCapabilityMissing,
    UploadTimedOut,
)
from moorage.kernel.limits import ARTIFACT_ATTACH_SECONDS, ID_CHARACTERS
from moorage.kernel.refusals import refused
from moorage.records.artifacts import content, shred
from moorage.records.artifacts.model import ANY_BYTES, Artifact, Upload, check_media_type
from moorage.records.artifacts.upload import Uploading
from moorage.store.ports import Blobs

api = router("artifacts")

ArtifactId = Annotated[str, Path(description="An artifact's id: that of its record.")]

_SHA256 = re.compile(r"(?:^|,)[ \t]*sha-256[ \t]*=[ \t]*:([^:,]*):", re.IGNORECASE)
_BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_UPLOAD: dict[str, Any] = {
    "parameters": [
        {
            "name": "Content-Digest",
            "in": "header",
            "required": False,
            "description": "`sha-256=:<base64>:`, RFC 9530. Other bytes are refused, and the upload costs one write instead "
            "of two.",
            "schema": {"type": "string", "pattern": "^sha-256=:[A-Za-z0-9+/]{43}=:$"},
        }
    ],
    "requestBody": {"description": "The bytes, of any type.", "required": True, "content": {"*/*": _BINARY}},
}
_CONTENT: dict[int | str, dict[str, Any]] = {
    200: {"description": "", "content": {"*/*": _BINARY}},
    206: {"description": "", "content": {"*/*": _BINARY}},
    304: {"description": "The client has the bytes already."},
}

# The bytes are whatever an uploader sent: no browser may run them as a page of this origin, or guess what they are.
_HARMLESS = {
    "content-disposition": "attachment",
    "content-security-policy": "sandbox; default-src 'none'",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "cache-control": "private, no-cache",
}


class ShredSent(Sent):
    """Why the bytes have to go."""

    reason: Reason


class ArtifactShown(RecordShown):
    """An artifact's record: its body holds `digest` (SHA-256 in hex), `media_type` and `size` in bytes. `shredded` tells
    that the bytes were removed for good."""

    shredded: bool


@api.post(
    "/artifacts",
    status_code=201,
    response_model=ArtifactShown,
    responses=fails(
        KindUnknown,
        LengthRequired,
        PayloadTooLarge,
        DigestMismatch,
        RecordExists,
        BlobBusy,
        UploadTimedOut,
        IdempotencyConflict,
    ),
    openapi_extra=_UPLOAD,
)
async def upload_artifact(
    request: ApiRequest,
    id: Annotated[  # noqa: A002 - the name of the parameter on the wire
        str | None,
        Query(max_length=int(ID_CHARACTERS), description="An id of the client's choice; never reused."),
    ] = None,
    attach_within_seconds: Annotated[
        float | None,
        Query(
            gt=0,
            le=int(ARTIFACT_ATTACH_SECONDS),
            description="Shred the artifact unless a record has named it as a parent by then. Without, what the deployment "
            "says holds; unless it says something the artifact is kept.",
        ),
    ] = None,
) -> Response:
    """Upload bytes as they are and publish a record of kind `artifact` for them.

    The length has to be told in Content-Length. Equal bytes are stored once, however often they are uploaded.
    """
    blobs = _blobs(request)
    body = request.byte_stream()
    media_type = check_media_type(request.headers.get("content-type", ANY_BYTES).strip())
    attach_within = attach_within_seconds or request.ports.settings.attach_seconds
    upload = Upload(body.size, media_type, _declared(request), id, attach_within)
    uploading = Uploading(request.db, blobs, request.ports.kinds, request.caller, request.ports.now)
    told = [media_type, id, attach_within_seconds]
    try:
        made = await uploading.run(upload, body, lambda digest: request.key([*told, digest]))
    finally:
        request.wake(uploading.wake_at, "upkeep")
    return Answer(_shown(made), 201)


@api.get("/artifacts/{artifact}", response_model=ArtifactShown, responses=fails(RecordUnknown, RecordRemoved))
async def show_artifact(request: ApiRequest, artifact: ArtifactId) -> Response:
    """An artifact's record. It is there for good, also when the bytes are not."""
    return Answer(_shown(await _find(request, artifact)))


@api.get(
    "/artifacts/{artifact}/content",
    response_class=Response,
    responses={
        **_CONTENT,
        **fails(RecordUnknown, RecordRemoved, ArtifactShredded, RangeUnsatisfiable, BlobMissing, BlobCorrupt),
    },
)
async def read_artifact(request: ApiRequest, artifact: ArtifactId) -> Response:
    """An artifact's bytes, or the one range of them that is asked for.

    All of them are verified on their way: where they turn out not to have the digest, the answer breaks off before its
    last byte. A range is not verified.
    """
    blobs = _blobs(request)
    found = await _find(request, artifact)
    if found.shredded:
        raise ArtifactShredded()
    etag = f'"{found.digest}"'
    headers = {**_HARMLESS, "etag": etag, "accept-ranges": "bytes"}
    if ranges.unchanged(request.headers.get("if-none-match"), etag):
        return Response(status_code=304, headers=headers)
    headers |= {"content-type": found.media_type, "repr-digest": _digest_field(found.digest)}
    try:
        span = ranges.requested(request.headers.get("range"), request.headers.get("if-range"), etag, found.size)
    except RangeUnsatisfiable as error:
        refusal = problems.answer(error, request.exchange.id)
        refusal.raw_headers.append((b"content-range", f"bytes */{found.size}".encode()))
        return refusal
    status, size = 200, found.size
    if span is not None:
        status, size = 206, span.length
        headers["content-range"] = f"bytes {span.offset}-{span.offset + span.length - 1}/{found.size}"
    if request.scope[HEAD]:
        return StreamAnswer(None, size, status, headers)
    return StreamAnswer(await content.read(request.db, blobs, found, span), size, status, headers)


@api.post("/artifacts/{artifact}/shred", response_model=ArtifactShown, responses=fails(RecordUnknown, RecordRemoved))
async def shred_artifact(request: ApiRequest, artifact: ArtifactId, sent: ShredSent) -> Response:
    """Remove an artifact's bytes for good. Record, digest, lineage and history stay, and so do equal bytes of others."""
    shredded = await shred.shred(
        request.db, _blobs(request), request.ports.kinds, request.caller, request.now, artifact, sent.reason
    )
    request.wake(request.now, "upkeep")
    return Answer(_shown(shredded))


async def _find(request: ApiRequest, artifact: str) -> Artifact:
    return await content.show(request.db, request.ports.kinds, request.caller, request.now, artifact)


def _blobs(request: ApiRequest) -> Blobs:
    if request.ports.blobs is None:
        raise StorageCapabilityMissing("the deployment has no binding BLOBS")
    return request.ports.blobs


def _shown(one: Artifact) -> dict[str, Any]:
    return {**shapes.record(one.record), "shredded": one.shredded}


def _declared(request: ApiRequest) -> str | None:
    """The SHA-256 that the request declares, in hex. Raises RequestInvalid for one that is malformed."""
    header = ",".join(request.headers.getlist("content-digest"))
    if not header.strip():
        return None
    found = _SHA256.findall(header)
    try:
        [digest] = [base64.b64decode(one, validate=True) for one in found]
    except (ValueError, binascii.Error):
        digest = b""
    if len(digest) != 32:
        message = "is not one sha-256=:<base64 of 32 bytes>:"
        raise refused("/header/content-digest", message, f"Content-Digest {message}")
    return digest.hex()


def _digest_field(digest: str) -> str:
    return f"sha-256=:{base64.b64encode(bytes.fromhex(digest)).decode()}:"

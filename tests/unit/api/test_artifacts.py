"""Artifacts over HTTP, on the host."""

import base64
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from moorage.api.app import build_app
from moorage.api.ports import Settings
from moorage.kernel.limits import ARTIFACT_BYTES, ARTIFACT_MEMORY_BYTES
from moorage.store.directory import DirectoryBlobs
from moorage.store.ports import BlobRange, ByteStream
from tests.unit.api.conftest import House, client_of

BYTES = bytes(range(256)) * 8
LARGE = b"large" * (int(ARTIFACT_MEMORY_BYTES) // 5 + 1)
HOUR = 3600


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def declared(content: bytes) -> dict[str, str]:
    digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
    return {"content-digest": f"sha-256=:{digest}:", "content-type": "text/plain; charset=utf-8"}


def stored(folder: Path) -> list[str]:
    """Every file of the bucket."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    return tmp_path / "bucket"


@pytest.fixture
async def api(house: House, bucket: Path) -> AsyncIterator[httpx.AsyncClient]:
    house.blobs = DirectoryBlobs(bucket)
    async with client_of(build_app(house.ports())) as client:
        yield client


async def upload(api: httpx.AsyncClient, content: bytes = BYTES, query: str = "", **headers: str) -> dict[str, Any]:
    sent = {**declared(content), **headers}
    answer = await api.post(f"/artifacts{query}", content=content, headers=sent)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def shred(api: httpx.AsyncClient, artifact: str) -> httpx.Response:
    return await api.post(f"/artifacts/{artifact}/shred", json={"reason": "the subject asked"})


def refused(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    problem: dict[str, Any] = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code), answer.text
    return problem


# --- upload ---


@pytest.mark.clause("artifacts.publish")
@pytest.mark.parametrize("content", [b"", b"\0", BYTES, LARGE], ids=lambda one: f"{len(one)} bytes")
@pytest.mark.parametrize("known", [True, False], ids=["declared", "unknown"])
async def test_bytes_come_back_as_they_went_in(api: httpx.AsyncClient, bucket: Path, content: bytes, known: bool) -> None:
    headers = declared(content) if known else {"content-type": "text/plain; charset=utf-8"}
    answer = await api.post("/artifacts", content=content, headers=headers)
    made = answer.json()
    assert answer.status_code == 201
    assert made["kind"] == "artifact"
    assert made["shredded"] is False
    assert made["body"] == {"digest": sha256(content), "media_type": "text/plain; charset=utf-8", "size": len(content)}
    read = await api.get(f"/artifacts/{made['id']}/content")
    assert (read.status_code, read.content) == (200, content)
    assert read.headers["content-type"] == "text/plain; charset=utf-8"
    assert stored(bucket) == [f"blobs/{sha256(content)}"]
    assert (await api.get(f"/artifacts/{made['id']}")).json() == made
    assert (await api.get(f"/records/{made['id']}")).json() == {k: v for k, v in made.items() if k != "shredded"}


@pytest.mark.clause("artifacts.publish")
async def test_without_a_type_bytes_are_bytes(api: httpx.AsyncClient) -> None:
    made = (await api.post("/artifacts", content=BYTES)).json()
    assert made["body"]["media_type"] == "application/octet-stream"


@pytest.mark.clause("artifacts.publish")
@pytest.mark.parametrize("content", [b"", b"other", LARGE], ids=lambda one: f"{len(one)} bytes")
@pytest.mark.parametrize("there", [True, False], ids=["stored before", "new"])
async def test_a_wrong_declared_digest_is_refused_and_leaves_nothing(
    api: httpx.AsyncClient, house: House, bucket: Path, content: bytes, there: bool
) -> None:
    """Also where the declared object is there: who does not have the bytes does not get a record of them."""
    if there:
        await upload(api)
    before = stored(bucket)
    answer = await api.post("/artifacts", content=content, headers=declared(BYTES))
    refused(answer, 422, "DigestMismatch")
    await house.advance(2 * HOUR)
    assert stored(bucket) == before
    found = await api.post("/records/query", json={"kind": "artifact"})
    assert len(found.json()["items"]) == there


@pytest.mark.clause("artifacts.publish")
async def test_an_aborted_upload_leaves_nothing(api: httpx.AsyncClient, house: House, bucket: Path) -> None:
    async def short() -> AsyncIterator[bytes]:
        yield b"only a part"

    for headers in (declared(BYTES), {}):
        for size in (len(BYTES), len(LARGE)):
            sent = {**headers, "content-length": str(size)}
            refused(await api.post("/artifacts", content=short(), headers=sent), 422, "RequestInvalid")
    await house.advance(2 * HOUR)
    assert stored(bucket) == []
    assert (await api.post("/records/query", json={"kind": "artifact"})).json()["items"] == []


@pytest.mark.clause("artifacts.publish", "kernel.limits")
async def test_the_length_must_be_told_and_is_bounded(api: httpx.AsyncClient) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield BYTES

    refused(await api.post("/artifacts", content=chunks()), 411, "LengthRequired")
    for told, status, code in (
        (str(ARTIFACT_BYTES + 1), 413, "PayloadTooLarge"),
        ("9" * 16, 422, "RequestInvalid"),
        ("-1", 422, "RequestInvalid"),
        ("x", 422, "RequestInvalid"),
    ):
        refused(await api.post("/artifacts", content=b"", headers={"content-length": told}), status, code)


@pytest.mark.clause("artifacts.publish")
@pytest.mark.parametrize(
    "digest", ["sha-256=abc", "sha-256=:abc:", "sha-512=:AAAA:", "sha-256=:" + "A" * 43 + "=:, sha-256=:" + "B" * 43 + "=:"]
)
async def test_a_malformed_digest_is_refused(api: httpx.AsyncClient, digest: str) -> None:
    problem = refused(await api.post("/artifacts", content=BYTES, headers={"content-digest": digest}), 422, "RequestInvalid")
    assert problem["errors"][0]["pointer"] == "/header/content-digest"


@pytest.mark.clause("artifacts.publish")
@pytest.mark.parametrize("media_type", ["text", "a/b, c/d", "text/plain; x", "a/" + "b" * 300, 'a/b; c="\\"'])
async def test_a_media_type_that_is_none_is_refused(api: httpx.AsyncClient, media_type: str) -> None:
    refused(await api.post("/artifacts", content=BYTES, headers={"content-type": media_type}), 422, "RequestInvalid")


@pytest.mark.clause("records.idempotent", "artifacts.publish")
async def test_a_key_gives_the_first_artifact_again(api: httpx.AsyncClient, house: House, bucket: Path) -> None:
    keyed = {"idempotency-key": "k"}
    first = await upload(api, BYTES, "", **keyed)
    assert await upload(api, BYTES, "", **keyed) == first
    other = await api.post("/artifacts", content=b"other", headers={**declared(b"other"), "idempotency-key": "k"})
    refused(other, 409, "IdempotencyConflict")
    await house.advance(2 * HOUR)
    assert stored(bucket) == [f"blobs/{sha256(BYTES)}"]
    assert (await api.get(f"/artifacts/{first['id']}/content")).content == BYTES


@pytest.mark.clause("records.publish", "artifacts.publish")
async def test_a_client_may_choose_the_id_once(api: httpx.AsyncClient, bucket: Path) -> None:
    made = await upload(api, query="?id=report:2026")
    assert made["id"] == "report:2026"
    answer = await api.post("/artifacts?id=report:2026", content=b"again", headers=declared(b"again"))
    refused(answer, 409, "RecordExists")
    assert stored(bucket) == [f"blobs/{sha256(BYTES)}"]
    refused(await api.post("/artifacts?id=rec_1", content=b""), 400, "IdInvalid")


# --- the kind ---


@pytest.mark.clause("artifacts.publish", "catalog.kind")
async def test_the_kind_is_there_by_itself_and_nobody_changes_what_it_is(api: httpx.AsyncClient) -> None:
    refused(await api.put("/kinds/artifact", json={"paths": {"digest": "number"}}), 409, "KindConflict")
    refused(await api.put("/kinds/artifact", json={}), 409, "KindConflict")
    await upload(api)
    paths = {"digest": "string", "media_type": "string", "size": "number"}
    assert (await api.get("/kinds/artifact")).json()["paths"] == paths
    refused(await api.put("/kinds/artifact", json={"paths": {**paths, "more": "string"}}), 409, "KindConflict")
    policy = {"paths": paths, "claim": {"lease_seconds": 5}}
    assert (await api.put("/kinds/artifact", json=policy)).json()["claim"]["lease_seconds"] == 5
    await upload(api, b"more")


@pytest.mark.clause("artifacts.publish")
async def test_nobody_publishes_to_the_kind_another_way(api: httpx.AsyncClient) -> None:
    made = await upload(api)
    forged = {"kind": "artifact", "body": {"digest": "0" * 64, "media_type": "a/b", "size": 1}}
    refused(await api.post("/records", json=forged), 422, "RequestInvalid")
    refused(await api.post("/records/batch", json={"records": [forged]}), 422, "RequestInvalid")
    claims = (await api.post("/claims", json={"kind": "artifact", "worker": "w"})).json()["claims"]
    epoch = claims[0]["lease"]["epoch"]
    settled = await api.post(f"/claims/{made['id']}/settle", json={"epoch": epoch, "results": [forged]})
    refused(settled, 422, "RequestInvalid")


# --- reading ---


@pytest.mark.clause("artifacts.publish")
@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ("bytes=0-0", 0, 0),
        ("bytes=5-9", 5, 9),
        ("bytes=2040-", 2040, 2047),
        ("bytes=-3", 2045, 2047),
        ("bytes=9-99999", 9, 2047),
    ],
)
async def test_a_range_is_that_part(api: httpx.AsyncClient, asked: str, first: int, last: int) -> None:
    made = await upload(api)
    for method in ("GET", "HEAD"):
        part = await api.request(method, f"/artifacts/{made['id']}/content", headers={"range": asked})
        assert part.status_code == 206
        assert part.headers["content-range"] == f"bytes {first}-{last}/2048"
        assert part.headers["content-length"] == str(last - first + 1)
        assert part.content == (BYTES[first : last + 1] if method == "GET" else b"")


@pytest.mark.clause("artifacts.publish")
@pytest.mark.parametrize("asked", ["bytes=2048-", "bytes=-0", "bytes=9999-99999"])
async def test_a_range_outside_is_unsatisfiable(api: httpx.AsyncClient, asked: str) -> None:
    made = await upload(api)
    answer = await api.get(f"/artifacts/{made['id']}/content", headers={"range": asked})
    refused(answer, 416, "RangeUnsatisfiable")
    assert answer.headers["content-range"] == "bytes */2048"


@pytest.mark.clause("artifacts.publish")
@pytest.mark.parametrize("asked", ["bytes=0-1,4-5", "bytes=9-3", "items=0-1", "bytes=", "bytes=a-b", "bytes=-"])
async def test_what_is_no_single_range_is_passed_over(api: httpx.AsyncClient, asked: str) -> None:
    made = await upload(api)
    answer = await api.get(f"/artifacts/{made['id']}/content", headers={"range": asked})
    assert (answer.status_code, answer.content) == (200, BYTES)


@pytest.mark.clause("artifacts.publish")
async def test_the_digest_is_the_tag(api: httpx.AsyncClient) -> None:
    made = await upload(api)
    where = f"/artifacts/{made['id']}/content"
    tag = f'"{sha256(BYTES)}"'
    head = await api.head(where)
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", tag)
    assert head.headers["content-length"] == "2048"
    for named in (tag, f'"x", {tag}', f"W/{tag}", "*"):
        same = await api.get(where, headers={"if-none-match": named})
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    assert (await api.get(where, headers={"if-none-match": '"x"'})).status_code == 200
    for named, status in ((tag, 206), ('"x"', 200)):
        assert (await api.get(where, headers={"range": "bytes=0-1", "if-range": named})).status_code == status


@pytest.mark.clause("artifacts.publish")
async def test_no_browser_runs_what_an_uploader_sent(api: httpx.AsyncClient) -> None:
    made = await upload(api, b"<script>alert(1)</script>", **{"content-type": "text/html"})
    headers = (await api.get(f"/artifacts/{made['id']}/content")).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"].startswith("sandbox")
    assert headers["content-disposition"] == "attachment"


@pytest.mark.clause("blobs.verify")
async def test_missing_and_damaged_bytes_are_never_given_out(api: httpx.AsyncClient, bucket: Path) -> None:
    made = await upload(api)
    file = bucket / "blobs" / sha256(BYTES)
    file.write_bytes(b"y" + BYTES[1:])
    refused(await api.get(f"/artifacts/{made['id']}/content"), 500, "BlobCorrupt")
    file.write_bytes(BYTES[:10])
    answer = await api.get(f"/artifacts/{made['id']}/content", headers={"range": "bytes=5-20"})
    refused(answer, 500, "BlobCorrupt")
    file.unlink()
    problem = refused(await api.get(f"/artifacts/{made['id']}/content"), 500, "BlobMissing")
    assert problem["reference"] == sha256(BYTES)


@pytest.mark.clause("artifacts.publish")
async def test_other_records_are_no_artifacts(api: httpx.AsyncClient) -> None:
    await api.put("/kinds/note", json={})
    note = (await api.post("/records", json={"kind": "note", "body": {}})).json()["id"]
    for where in (note, "nothing"):
        refused(await api.get(f"/artifacts/{where}"), 404, "RecordUnknown")
        refused(await api.get(f"/artifacts/{where}/content"), 404, "RecordUnknown")
        refused(await shred(api, where), 404, "RecordUnknown")


# --- shredding ---


@pytest.mark.clause("artifacts.shred")
async def test_shredding_removes_the_bytes_and_keeps_the_rest(api: httpx.AsyncClient, bucket: Path) -> None:
    made = await upload(api)
    await api.put("/kinds/note", json={})
    note = {"kind": "note", "body": {}, "parents": [made["id"]]}
    child = (await api.post("/records", json=note)).json()["id"]
    answer = await shred(api, made["id"])
    assert answer.json() == {**made, "shredded": True}
    assert stored(bucket) == []
    for method in ("GET", "HEAD"):
        gone = await api.request(method, f"/artifacts/{made['id']}/content")
        assert gone.status_code == 410
    refused(await api.get(f"/artifacts/{made['id']}/content"), 410, "ArtifactShredded")
    assert (await api.get(f"/artifacts/{made['id']}")).json() == {**made, "shredded": True}
    lineage = (await api.get(f"/records/{child}/lineage")).json()["items"]
    assert [one["record"]["id"] for one in lineage] == [made["id"]]
    told = (await api.get(f"/records/{made['id']}/history")).json()["items"]
    assert [one["type"] for one in told] == ["record.published", "artifact.shredded"]
    assert told[1]["data"] == {"digest": sha256(BYTES), "reason": "the subject asked"}
    assert (await shred(api, made["id"])).json() == answer.json()
    assert len((await api.get(f"/records/{made['id']}/history")).json()["items"]) == 2


@pytest.mark.clause("artifacts.shred", "blobs.order")
async def test_equal_bytes_stay_until_the_last_artifact_is_shredded(
    api: httpx.AsyncClient, house: House, bucket: Path
) -> None:
    first, second = await upload(api), await upload(api)
    assert stored(bucket) == [f"blobs/{sha256(BYTES)}"]
    await shred(api, first["id"])
    await house.advance(48 * HOUR)
    assert (await api.get(f"/artifacts/{second['id']}/content")).content == BYTES
    await shred(api, second["id"])
    assert stored(bucket) == []
    again = await upload(api)
    assert (await api.get(f"/artifacts/{again['id']}/content")).content == BYTES
    refused(await api.get(f"/artifacts/{first['id']}/content"), 410, "ArtifactShredded")


class During(DirectoryBlobs):
    """A bucket in which something else happens just before bytes are stored, or before they are read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.before_put: Any = None
        self.before_open: Any = None

    async def put_stream(self, content: ByteStream, sha256: str) -> None:
        await super().put_stream(content, sha256)
        if self.before_put is not None:
            happening, self.before_put = self.before_put, None
            await happening()

    async def open(self, sha256: str, span: BlobRange | None = None) -> ByteStream:
        if self.before_open is not None:
            happening, self.before_open = self.before_open, None
            await happening()
        return await super().open(sha256, span)


@pytest.mark.clause("artifacts.shred", "blobs.order")
async def test_shredding_during_an_equal_upload_takes_no_bytes_from_it(house: House, bucket: Path) -> None:
    blobs = house.blobs = During(bucket)
    async with client_of(build_app(house.ports())) as api:
        first = await upload(api)
        blobs.before_put = lambda: shred(api, first["id"])
        second = await upload(api)
        refused(await api.get(f"/artifacts/{first['id']}/content"), 410, "ArtifactShredded")
        assert (await api.get(f"/artifacts/{second['id']}/content")).content == BYTES
        await house.advance(48 * HOUR)
        assert (await api.get(f"/artifacts/{second['id']}/content")).content == BYTES


@pytest.mark.clause("artifacts.shred")
async def test_shredding_between_look_and_read_is_told_as_shredded(house: House, bucket: Path) -> None:
    blobs = house.blobs = During(bucket)
    async with client_of(build_app(house.ports())) as api:
        made = await upload(api)
        blobs.before_open = lambda: shred(api, made["id"])
        refused(await api.get(f"/artifacts/{made['id']}/content"), 410, "ArtifactShredded")


@pytest.mark.clause("artifacts.publish")
async def test_an_upload_that_takes_too_long_publishes_nothing(house: House, bucket: Path) -> None:
    blobs = house.blobs = During(bucket)
    async with client_of(build_app(house.ports())) as api:
        blobs.before_put = lambda: house.advance(HOUR)
        answer = await api.post("/artifacts", content=BYTES, headers=declared(BYTES))
        refused(answer, 409, "UploadTimedOut")
        await house.advance(HOUR)
        assert stored(bucket) == []


# --- collection ---


@pytest.mark.clause("artifacts.orphan")
async def test_what_nobody_attached_in_time_is_collected(api: httpx.AsyncClient, house: House, bucket: Path) -> None:
    kept = await upload(api, b"kept")
    attached = await upload(api, b"attached", "?attach_within_seconds=60")
    orphan = await upload(api, b"orphan", "?attach_within_seconds=60")
    await api.put("/kinds/note", json={})
    note = {"kind": "note", "body": {}, "parents": [attached["id"]]}
    assert (await api.post("/records", json=note)).status_code == 201
    await house.advance(59)
    assert (await api.get(f"/artifacts/{orphan['id']}/content")).content == b"orphan"
    fired = (await house.advance(1)).fired
    assert fired["artifact_orphaned"] == 2
    refused(await api.get(f"/artifacts/{orphan['id']}/content"), 410, "ArtifactShredded")
    await house.advance(48 * HOUR)
    assert stored(bucket) == sorted(f"blobs/{sha256(one)}" for one in (b"kept", b"attached"))
    assert (await api.get(f"/artifacts/{kept['id']}/content")).content == b"kept"
    told = (await api.get(f"/records/{orphan['id']}/history")).json()["items"]
    assert [one["type"] for one in told] == ["record.published", "artifact.orphaned"]


@pytest.mark.clause("blobs.sweep")
async def test_the_daily_sweep_deletes_what_nothing_refers_to(api: httpx.AsyncClient, house: House, bucket: Path) -> None:
    made = await upload(api)
    (bucket / "blobs" / sha256(b"stray")).write_bytes(b"stray")
    (bucket / "uploads").mkdir()
    (bucket / "uploads" / "upl_left").write_bytes(b"left")
    await house.advance(23 * HOUR)
    assert len(stored(bucket)) == 3
    fired = (await house.advance(HOUR)).fired
    assert (fired["blob_sweep"], fired["blob_deleted"]) == (1, 1)
    assert stored(bucket) == [f"blobs/{sha256(BYTES)}"]
    assert (await api.get(f"/artifacts/{made['id']}/content")).content == BYTES
    fired = (await house.advance(48 * HOUR)).fired
    assert fired["blob_sweep"] == 1  # a test clock that passes two days sweeps once, at the end


@pytest.mark.clause("artifacts.shred", "records.retention")
async def test_bytes_follow_a_record_that_retention_removes(api: httpx.AsyncClient, house: House, bucket: Path) -> None:
    made = await upload(api)
    paths = {"digest": "string", "media_type": "string", "size": "number"}
    await api.put("/kinds/artifact", json={"paths": paths, "retention_seconds": 60})
    claims = (await api.post("/claims", json={"kind": "artifact", "worker": "w"})).json()["claims"]
    epoch = claims[0]["lease"]["epoch"]
    assert (await api.post(f"/claims/{made['id']}/settle", json={"epoch": epoch})).status_code == 200
    await house.advance(2 * HOUR)
    refused(await api.get(f"/artifacts/{made['id']}"), 410, "RecordRemoved")
    assert stored(bucket) == []


# --- grants ---


async def credential(api: httpx.AsyncClient, *grants: dict[str, Any]) -> dict[str, str]:
    made = await api.post("/credentials", json={"subject": "team", "grants": list(grants)})
    assert made.status_code == 201, made.text
    return {"authorization": f"Bearer {made.json()['token']}"}


def granted(*actions: str, **match: Any) -> dict[str, Any]:
    return {"actions": list(actions), "kinds": ["artifact"], **({"match": match} if match else {})}


@pytest.mark.clause("catalog.grants")
async def test_each_thing_takes_its_grant(api: httpx.AsyncClient) -> None:
    made = await upload(api)
    publisher, reader = await credential(api, granted("publish")), await credential(api, granted("read"))
    operator = await credential(api, granted("operate"))
    nobody = await credential(api, {"actions": ["publish", "read", "operate"], "kinds": ["note"]})
    where = f"/artifacts/{made['id']}"
    reason = {"reason": "r"}
    assert (await api.post("/artifacts", content=b"1", headers=publisher)).status_code == 201
    refused(await api.post("/artifacts", content=b"1", headers=reader), 403, "Forbidden")
    refused(await api.post("/artifacts", content=b"1", headers=nobody), 404, "KindUnknown")
    assert (await api.get(f"{where}/content", headers=reader)).content == BYTES
    for other in (publisher, operator, nobody):
        refused(await api.get(where, headers=other), 404, "RecordUnknown")
        refused(await api.get(f"{where}/content", headers=other), 404, "RecordUnknown")
    refused(await api.post(f"{where}/shred", json=reason, headers=reader), 403, "Forbidden")
    refused(await api.post(f"{where}/shred", json=reason, headers=nobody), 404, "RecordUnknown")
    assert (await api.post(f"{where}/shred", json=reason, headers=operator)).status_code == 200


@pytest.mark.clause("catalog.grants")
async def test_a_grant_narrowed_by_pattern_holds_for_bytes(api: httpx.AsyncClient, bucket: Path) -> None:
    await upload(api)
    text = {"content-type": "text/plain"}
    small = await credential(api, granted("publish", "read", "operate", size={"$lte": 10}, media_type="text/plain"))
    assert (await api.post("/artifacts", content=b"small", headers={**small, **text})).status_code == 201
    before = stored(bucket)
    for content, headers in ((b"much too large", text), (b"small", {}), (b"much too large", declared(b"much too large"))):
        refused(await api.post("/artifacts", content=content, headers={**small, **headers}), 403, "Forbidden")
    assert stored(bucket) == before
    other = await upload(api, b"hidden", **{"content-type": "image/png"})
    refused(await api.get(f"/artifacts/{other['id']}/content", headers=small), 404, "RecordUnknown")
    refused(await api.post(f"/artifacts/{other['id']}/shred", json={"reason": "r"}, headers=small), 404, "RecordUnknown")


async def test_without_a_bucket_there_are_no_artifacts(house: House, root: httpx.AsyncClient) -> None:
    refused(await root.post("/artifacts", content=b"1"), 503, "StorageCapabilityMissing")


@pytest.mark.clause("artifacts.orphan")
async def test_a_deployment_may_say_how_long_artifacts_wait_to_be_attached(house: House, bucket: Path) -> None:
    house.blobs = DirectoryBlobs(bucket)
    ports = house.ports(settings=Settings(attach_seconds=HOUR))
    async with client_of(build_app(ports)) as api:
        by_default, longer = await upload(api, b"1"), await upload(api, b"2", f"?attach_within_seconds={2 * HOUR}")
        await house.advance(HOUR)
        refused(await api.get(f"/artifacts/{by_default['id']}/content"), 410, "ArtifactShredded")
        assert (await api.get(f"/artifacts/{longer['id']}/content")).content == b"2"
        await house.advance(HOUR)
        refused(await api.get(f"/artifacts/{longer['id']}/content"), 410, "ArtifactShredded")

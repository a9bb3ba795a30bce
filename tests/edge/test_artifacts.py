"""Artifacts on the real edge: large bodies through the isolate, aborted uploads, races, damage, the sweep."""

import asyncio
import base64
import hashlib
import os
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from ops.local.edge import LocalEdge
from tests.edge.client import bearer, client, crowd, good, problem
from tests.edge.conftest import EdgeFactory
from tests.edge.http import await_log

pytestmark = pytest.mark.edge

MIB = 1024 * 1024
LARGE = 50 * MIB
PEAK_MIB = 100
"""What workerd may grow by while 50 MiB pass through; the isolate has 128 MiB in all."""


@pytest.fixture(scope="module")
def own(edge_factory: EdgeFactory) -> Iterator[LocalEdge]:
    """An edge of these tests' own: they measure its memory, damage its bucket and move its clock by days."""
    edge = edge_factory(vars={"MOORAGE_TEST_CLOCK": "1"})
    yield edge
    edge.stop()


@pytest.fixture
def api(own: LocalEdge) -> Iterator[httpx.Client]:
    with client(own) as made:
        yield made


def unique(size: int) -> bytes:
    """Bytes that no other test has."""
    piece = os.urandom(min(size, MIB))
    return (piece * (size // len(piece) + 1))[:size] if size else b""


def declared(content: bytes) -> dict[str, str]:
    digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
    return {"content-digest": f"sha-256=:{digest}:"}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def upload(api: httpx.Client, content: bytes, **headers: str) -> dict[str, Any]:
    made: dict[str, Any] = good(api.post("/artifacts", content=content, headers={**declared(content), **headers}))
    return made


def advance(api: httpx.Client, seconds: float) -> dict[str, int]:
    fired: dict[str, int] = good(api.post("/testing/clock", json={"advance_seconds": seconds}))["fired"]
    return fired


def objects(edge: LocalEdge) -> dict[str, Path]:
    """What lies in the local bucket: every key, and the file that holds its bytes."""
    folder = edge.config.state / "r2"
    [database] = [file for file in folder.rglob("*.sqlite") if file.name != "metadata.sqlite"]
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        rows = connection.execute("SELECT key, blob_id FROM _mf_objects").fetchall()
    finally:
        connection.close()
    return {key: next(folder.glob(f"*/blobs/{blob}"), folder / blob) for key, blob in rows}


def key_of(content: bytes) -> str:
    return f"blobs/{sha256(content)}"


def memory(pid: int, name: str) -> float:
    """MiB of a process: VmRSS now, or VmHWM, the most since it was last forgotten."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no {name}")


def forget_peak(pid: int) -> float:
    """Start to watch the peak; answers what is used now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return memory(pid, "VmRSS")


@pytest.mark.clause("artifacts.publish")
@pytest.mark.parametrize("known", [True, False], ids=["declared", "unknown"])
def test_fifty_mebibytes_pass_both_ways_and_are_never_held(own: LocalEdge, api: httpx.Client, known: bool) -> None:
    content = unique(LARGE)
    upload(api, unique(MIB))
    pid = own.workerd_pid()
    start = forget_peak(pid)
    made = good(api.post("/artifacts", content=content, headers=declared(content) if known else {}))
    up = memory(pid, "VmHWM") - start
    start = forget_peak(pid)
    read = hashlib.sha256()
    with api.stream("GET", f"/artifacts/{made['id']}/content") as answer:
        assert answer.headers["content-length"] == str(LARGE)
        for piece in answer.iter_bytes():
            read.update(piece)
    down = memory(pid, "VmHWM") - start
    print(f"up {up:.0f} MiB, down {down:.0f} MiB")
    assert made["body"] == {"digest": sha256(content), "media_type": "application/octet-stream", "size": LARGE}
    assert read.hexdigest() == sha256(content)
    assert max(up, down) < PEAK_MIB
    good(api.post(f"/artifacts/{made['id']}/shred", json={"reason": "the test is over"}))


@pytest.mark.clause("artifacts.publish")
def test_a_slow_reader_makes_nothing_pile_up(own: LocalEdge, api: httpx.Client) -> None:
    content = unique(LARGE)
    made = upload(api, content)
    pid = own.workerd_pid()
    start = forget_peak(pid)
    with api.stream("GET", f"/artifacts/{made['id']}/content") as answer:
        pieces = answer.iter_bytes(MIB)
        assert next(pieces) == content[:MIB]
        # Whatever the isolate would read ahead of its reader, it has read after these requests.
        for _ in range(20):
            good(api.get(f"/artifacts/{made['id']}"))
        assert memory(pid, "VmHWM") - start < PEAK_MIB
        assert b"".join(pieces) == content[MIB:]
    good(api.post(f"/artifacts/{made['id']}/shred", json={"reason": "the test is over"}))


@pytest.mark.clause("artifacts.publish")
@pytest.mark.parametrize("size", [0, 1, 300_000, 2 * MIB])
def test_parts_heads_and_tags(api: httpx.Client, size: int) -> None:
    content = unique(size)
    made = good(api.post("/artifacts", content=content, headers={"content-type": "image/png"}))
    where = f"/artifacts/{made['id']}/content"
    whole = api.get(where)
    assert (whole.status_code, whole.content) == (200, content)
    assert whole.headers["content-type"] == "image/png"
    assert whole.headers["content-disposition"] == "attachment"
    head = api.head(where)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(size)
    assert api.get(where, headers={"if-none-match": head.headers["etag"]}).status_code == 304
    for asked, first, last in (("bytes=0-0", 0, 0), ("bytes=100-200", 100, 200), ("bytes=-5", max(0, size - 5), size - 1)):
        part = api.get(where, headers={"range": asked})
        if first >= size:
            assert problem(part, 416)["code"] == "RangeUnsatisfiable"
        else:
            assert part.status_code == 206
            assert part.content == content[first : last + 1]
            assert part.headers["content-range"] == f"bytes {first}-{min(last, size - 1)}/{size}"


@pytest.mark.clause("artifacts.publish")
@pytest.mark.parametrize("size", [1000, 2 * MIB])
def test_a_wrong_digest_is_refused_and_leaves_nothing(own: LocalEdge, api: httpx.Client, size: int) -> None:
    before = objects(own).keys()
    content = unique(size)
    answer = api.post("/artifacts", content=content, headers=declared(unique(size)))
    assert problem(answer, 422)["code"] == "DigestMismatch"
    assert objects(own).keys() == before


@pytest.mark.clause("artifacts.publish")
def test_a_length_must_be_told(api: httpx.Client) -> None:
    answer = api.post("/artifacts", content=iter([b"a", b"b"]))
    assert problem(answer, 411)["code"] == "LengthRequired"


@pytest.mark.clause("artifacts.publish")
@pytest.mark.parametrize("known", [True, False], ids=["declared", "unknown"])
def test_an_aborted_upload_leaves_nothing(own: LocalEdge, api: httpx.Client, known: bool) -> None:
    content = unique(4 * MIB)
    # The first request declares the kind, so that the second has nothing to do but the bytes.
    upload(api, unique(10))
    before = objects(own).keys()
    parts = urlsplit(own.url)
    headers = {"host": parts.netloc, "content-length": str(len(content)), **bearer(own.root_token)}
    headers |= declared(content) if known else {}
    head = "POST /artifacts HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
    with socket.create_connection((parts.hostname, parts.port)) as connection:
        connection.sendall(head.encode() + content[: 2 * MIB])
    advance(api, 2 * 3600)
    assert objects(own).keys() == before
    found = good(api.post("/records/query", json={"kind": "artifact", "match": {"digest": sha256(content)}}))
    assert found["items"] == []
    made = upload(api, content)
    assert api.get(f"/artifacts/{made['id']}/content").content == content


@pytest.mark.clause("blobs.write", "artifacts.publish")
async def test_twenty_equal_uploads_at_once_are_one_object(own: LocalEdge) -> None:
    content = unique(200_000)
    before = objects(own).keys()
    async with crowd(own) as many:
        for headers in (declared(content), {}):
            answers = await asyncio.gather(*(many.post("/artifacts", content=content, headers=headers) for _ in range(20)))
            made = [good(answer) for answer in answers]
            assert len({one["id"] for one in made}) == 20
            assert {one["body"]["digest"] for one in made} == {sha256(content)}
            assert objects(own).keys() == before | {key_of(content)}
            reads = await asyncio.gather(*(many.get(f"/artifacts/{one['id']}/content") for one in made))
            assert all(answer.content == content for answer in reads)


@pytest.mark.clause("artifacts.shred", "blobs.order")
async def test_uploads_and_shreds_of_equal_bytes_race(own: LocalEdge) -> None:
    """No artifact that is alive ever lacks its bytes, whatever the order in which things happen."""
    content = unique(50_000)
    async with crowd(own) as many:

        async def live(number: int) -> dict[str, Any] | None:
            answer = await many.post("/artifacts", content=content, headers=declared(content))
            if answer.status_code == 409:
                assert answer.json()["code"] == "BlobBusy"
                return None
            made: dict[str, Any] = good(answer)
            if number % 2:
                good(await many.post(f"/artifacts/{made['id']}/shred", json={"reason": "race"}))
                return None
            return made

        for _ in range(3):
            kept = [one for one in await asyncio.gather(*(live(number) for number in range(20))) if one]
            assert kept
            for one in kept:
                answer = await many.get(f"/artifacts/{one['id']}/content")
                assert (answer.status_code, answer.content) == (200, content)
            for one in kept:
                good(await many.post(f"/artifacts/{one['id']}/shred", json={"reason": "next round"}))
            gone = await many.get(f"/artifacts/{kept[0]['id']}/content")
            assert gone.status_code == 410


@pytest.mark.clause("blobs.verify")
@pytest.mark.parametrize("size", [1000, 2 * MIB])
def test_damaged_bytes_are_never_complete(own: LocalEdge, api: httpx.Client, size: int) -> None:
    content = unique(size)
    made = upload(api, content)
    file = objects(own)[key_of(content)]
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    where = f"{own.url}/artifacts/{made['id']}/content"
    if size < MIB:
        answer = api.get(where)
        assert (answer.status_code, answer.json()["code"]) == (500, "BlobCorrupt")
    else:
        with pytest.raises(httpx.RemoteProtocolError):
            api.get(where)
    await_log(own, f"BlobCorrupt: the object's bytes do not have the digest {sha256(content)}")
    file.unlink()
    assert api.get(f"/artifacts/{made['id']}").status_code == 200


@pytest.mark.clause("artifacts.shred")
def test_shredding_deletes_the_object_and_keeps_the_record(own: LocalEdge, api: httpx.Client) -> None:
    content = unique(100_000)
    first, second = upload(api, content), upload(api, content)
    good(api.post(f"/artifacts/{first['id']}/shred", json={"reason": "asked"}))
    assert problem(api.get(f"/artifacts/{first['id']}/content"), 410)["code"] == "ArtifactShredded"
    assert key_of(content) in objects(own)
    assert api.get(f"/artifacts/{second['id']}/content").content == content
    before = objects(own).keys()
    good(api.post(f"/artifacts/{second['id']}/shred", json={"reason": "asked"}))
    assert objects(own).keys() == before - {key_of(content)}
    assert problem(api.get(f"/artifacts/{second['id']}/content"), 410)["code"] == "ArtifactShredded"
    assert good(api.get(f"/artifacts/{first['id']}"))["shredded"] is True
    told = good(api.get(f"/records/{first['id']}/history"))["items"]
    assert told[-1]["data"]["reason"] == "asked"


@pytest.mark.clause("blobs.sweep", "artifacts.orphan")
def test_the_clock_sweeps_and_collects(own: LocalEdge, api: httpx.Client) -> None:
    kept = upload(api, unique(1000))
    content = unique(1000)
    orphan = good(api.post("/artifacts?attach_within_seconds=60", content=content, headers=declared(content)))
    before = objects(own).keys()
    fired = advance(api, 60)
    assert (fired["artifact_orphaned"], fired["blob_deleted"]) == (1, 1)
    assert objects(own).keys() == before - {key_of(content)}
    assert problem(api.get(f"/artifacts/{orphan['id']}/content"), 410)["code"] == "ArtifactShredded"
    assert advance(api, 25 * 3600)["blob_sweep"] >= 1
    assert api.get(f"/artifacts/{kept['id']}/content").status_code == 200

"""Artifacts as the client sends and fetches them."""

import base64
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import respx

from moorage.client import DigestMismatch, Moorage, Unanswered
from moorage.client.artifacts import whole_file
from tests.unit.client.test_faults import RECORD, busy

BYTES = bytes(range(256)) * 3000
DIGEST = hashlib.sha256(BYTES).digest()
BODY = {"digest": DIGEST.hex(), "media_type": "text/plain", "size": len(BYTES)}
ARTIFACT = {**RECORD, "kind": "artifact", "body": BODY, "shredded": False}


class Pieces(httpx.AsyncByteStream):
    """These bytes, breaking off after so many where told to."""

    def __init__(self, raw: bytes, broken_after: int | None = None) -> None:
        self.raw, self.broken_after = raw, broken_after

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self.broken_after is None:
            yield self.raw
            return
        yield self.raw[: self.broken_after]
        raise httpx.ReadError("broken")


def names(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir()]


@pytest.fixture
def api() -> Any:
    with respx.mock(base_url="https://moorage.example", assert_all_called=False) as router:
        router.get("/artifacts/rec_1").mock(return_value=httpx.Response(200, json=ARTIFACT))
        yield router


@pytest.mark.parametrize("kind", ["file", "bytes"])
async def test_an_upload_is_streamed_with_its_digest_and_sent_again_whole(
    api: respx.MockRouter, remote: Moorage, tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(BYTES)
    bodies: list[bytes] = []

    async def take(request: httpx.Request) -> httpx.Response:
        bodies.append(await request.aread())
        return busy() if len(bodies) == 1 else httpx.Response(201, json=ARTIFACT)

    route = api.post("/artifacts").mock(side_effect=take)
    seen: list[int] = []
    source = file if kind == "file" else BYTES
    made = await remote.artifacts.upload(source, "text/plain", attach_within_seconds=60, progress=seen.append)
    assert (made.body, made.shredded, bodies) == (BODY, False, [BYTES, BYTES])
    assert sum(seen) == 2 * len(BYTES)
    sent = route.calls[0].request
    assert sent.headers["content-digest"] == f"sha-256=:{base64.b64encode(DIGEST).decode()}:"
    assert (sent.headers["content-length"], sent.headers["content-type"]) == (str(len(BYTES)), "text/plain")
    assert "transfer-encoding" not in sent.headers
    assert sent.headers["idempotency-key"] == route.calls[1].request.headers["idempotency-key"]
    assert dict(sent.url.params) == {"attach_within_seconds": "60"}


async def test_a_download_goes_on_where_it_broke(api: respx.MockRouter, remote: Moorage, tmp_path: Path) -> None:
    cut = 100_001
    route = api.get("/artifacts/rec_1/content").mock(
        side_effect=[
            httpx.Response(200, stream=Pieces(BYTES, cut)),
            httpx.Response(206, stream=Pieces(BYTES[cut:], 50)),
            httpx.Response(200, stream=Pieces(BYTES)),
        ]
    )
    seen: list[int] = []
    target = tmp_path / "out"
    assert await remote.artifacts.download("rec_1", target, progress=seen.append) == len(BYTES)
    assert (target.read_bytes(), sum(seen)) == (BYTES, len(BYTES))
    asked = [call.request.headers.get("range") for call in route.calls]
    assert asked == [None, f"bytes={cut}-", f"bytes={cut + 50}-"]


def test_a_pipe_is_written_into_and_a_link_leads_where_it_led(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    reader = os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK)
    for name in ("pipe", "link", "link"):
        with whole_file(tmp_path / name) as file:
            file.write(b"some")
    assert os.read(reader, 10) == b"some"
    os.close(reader)
    assert (tmp_path / "file").read_bytes() == b"some"
    assert [(tmp_path / "pipe").is_fifo(), (tmp_path / "link").is_symlink(), len(names(tmp_path))] == [True, True, 3]


async def test_other_bytes_are_no_download(api: respx.MockRouter, remote: Moorage, tmp_path: Path) -> None:
    api.get("/artifacts/rec_1/content").mock(return_value=httpx.Response(200, stream=Pieces(BYTES[:-1] + b"!")))
    target = tmp_path / "out"
    target.write_bytes(b"what was there")
    with pytest.raises(DigestMismatch):
        await remote.artifacts.download("rec_1", target)
    assert names(tmp_path) == ["out"]
    assert target.read_bytes() == b"what was there"


async def test_a_download_that_never_gets_on_ends(api: respx.MockRouter, remote: Moorage, tmp_path: Path) -> None:
    api.get("/artifacts/rec_1/content").mock(side_effect=lambda _: httpx.Response(206, stream=Pieces(b"", 0)))
    with pytest.raises(Unanswered, match="broke off after 0 bytes"):
        await remote.artifacts.download("rec_1", tmp_path / "out")
    assert names(tmp_path) == []

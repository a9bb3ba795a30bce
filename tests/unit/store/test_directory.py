"""Blobs in a directory: what a writer that dies midway leaves."""

import os
from pathlib import Path

import pytest

from moorage.store.directory import DirectoryBlobs


@pytest.mark.clause("blobs.write")
@pytest.mark.parametrize(("module", "step"), [(os, "fsync"), (Path, "replace")], ids=["fsync", "replace"])
async def test_a_writer_that_dies_midway_leaves_no_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object, step: str
) -> None:
    blobs = DirectoryBlobs(tmp_path)

    def dies(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as broken:
        broken.setattr(module, step, dies)
        with pytest.raises(OSError, match="no space left"):
            await blobs.put(b"content")
    assert [one async for one in blobs.list()] == []
    assert os.listdir(tmp_path) == ["blobs"]  # noqa: PTH208
    sha256 = await blobs.put(b"content")
    assert await blobs.get(sha256) == b"content"


@pytest.mark.clause("blobs.write")
async def test_a_second_writer_changes_nothing(tmp_path: Path) -> None:
    blobs = DirectoryBlobs(tmp_path)
    sha256 = await blobs.put(b"content")
    before = (tmp_path / "blobs" / sha256).stat()
    assert await blobs.put(b"content") == sha256
    after = (tmp_path / "blobs" / sha256).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)

"""What a backup holds, and the manifest that makes it one.

A backup is a folder: `database.sqlite`, an object of the bucket in each `objects/<sha256>`, the bucket's side of the
recovery identity in `recovery/<identity>.json`, and `manifest.json`, which is written last: without it a folder is no
restore point.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from moorage.kernel import canonical
from ops.failure import CommandFailed

FORMAT: Final = "moorage-backup-1"
NAME: Final = "manifest.json"
DATABASE: Final = "database.sqlite"
OBJECTS: Final = "objects"
RECOVERY: Final = "recovery"

_PATH = re.compile(r"database\.sqlite|objects/[0-9a-f]{64}|recovery/rcv_[a-z0-9]{26}\.json")
_PIECE: Final = 1024 * 1024


class BackupInvalid(CommandFailed):
    """A folder is no backup, or not one that can be read here."""


@dataclass(frozen=True)
class File:
    """A file of the backup, its path relative to the folder."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a backup holds. `position` is the last entry of history in it, `head` the end of its chain as POSITION:LINK."""

    created_at: str
    version: str
    project: str
    identity: str
    generation: int
    schema: int
    record_format: int
    position: int
    head: str | None
    rows: Mapping[str, int]
    files: Sequence[File]

    @property
    def objects(self) -> list[str]:
        """The digests of the bucket's objects."""
        return [Path(one.path).name for one in self.files if one.path.startswith(f"{OBJECTS}/")]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(one.size for one in self.files)

    def text(self) -> str:
        """The manifest as it stands in the folder."""
        return canonical.dumps({"format": FORMAT, **asdict(self)}) + "\n"

    def write(self, folder: Path) -> str:
        """Write the manifest, as a whole or not at all, once everything else is on disk; answers its digest."""
        part = folder / f".{NAME}.part"
        with part.open("w", encoding="utf-8") as file:
            file.write(self.text())
            file.flush()
            os.fsync(file.fileno())
        part.replace(folder / NAME)
        _sync(folder)
        return canonical.digest(self.text())


def read(folder: Path) -> Manifest:
    """The manifest of a backup. Raises BackupInvalid when there is none, or none that this release reads."""
    file = folder / NAME
    try:
        told = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise BackupInvalid(f"{folder} has no {NAME}: it is no backup, or one that was not completed") from None
    except (OSError, ValueError, RecursionError) as error:
        raise BackupInvalid(f"{file} is damaged: {error}") from None
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        found = told.get("format") if isinstance(told, dict) else None
        raise BackupInvalid(f"{file} has format {found!r}; this release reads {FORMAT!r}")
    try:
        return _manifest(told)
    except (KeyError, TypeError, ValueError) as error:
        raise BackupInvalid(f"{file} is damaged: {error!r}") from None


def described(folder: Path, path: str) -> File:
    """A file of the folder with its size and digest. Raises BackupInvalid when it cannot be read."""
    try:
        size, sha256 = _measured(folder / path)
    except OSError as error:
        raise BackupInvalid(f"{folder / path} cannot be read: {error.strerror}") from None
    return File(path, size, sha256)


def damage(folder: Path, files: Sequence[File]) -> Iterator[tuple[File, str | None]]:
    """Read every file again; what is wrong with each, or None."""
    for one in files:
        try:
            size, sha256 = _measured(folder / one.path)
        except FileNotFoundError:
            yield one, f"{one.path} is missing"
        except OSError as error:
            yield one, f"{one.path} cannot be read: {error.strerror}"
        else:
            if size != one.size:
                yield one, f"{one.path} has {size} bytes, and {one.size} were backed up"
            elif sha256 != one.sha256 or not _is_named_rightly(one):
                yield one, f"{one.path} does not hold the bytes that were backed up"
            else:
                yield one, None


def settle_on_disk(file: Path) -> None:
    """Have the bytes of a file on disk before anything that counts on them."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def _manifest(told: dict[str, Any]) -> Manifest:
    files = [File(str(one["path"]), int(one["size"]), str(one["sha256"])) for one in told["files"]]
    strange = [one.path for one in files if _PATH.fullmatch(one.path) is None]
    if strange:
        raise ValueError(f"unknown file {strange[0][:100]!r}")
    if len({one.path for one in files}) < len(files):
        raise ValueError("a file is named twice")
    if DATABASE not in {one.path for one in files}:
        raise ValueError("no database is named")
    members = {name: told[name] for name in Manifest.__dataclass_fields__ if name != "files"}
    numbers = ("generation", "schema", "record_format", "position")
    if any(type(members[name]) is not int for name in numbers) or not isinstance(members["rows"], dict):
        raise ValueError("a member has another type")
    if members["head"] is not None and re.fullmatch(r"[1-9]\d{0,15}:[0-9a-f]{64}", str(members["head"])) is None:
        raise ValueError("head is not POSITION:LINK")
    return Manifest(**members, files=files)


def _is_named_rightly(one: File) -> bool:
    return not one.path.startswith(f"{OBJECTS}/") or one.path == f"{OBJECTS}/{one.sha256}"


def _measured(file: Path) -> tuple[int, str]:
    digest = hashlib.sha256()
    size = 0
    with file.open("rb") as opened:
        while piece := opened.read(_PIECE):
            digest.update(piece)
            size += len(piece)
    return size, digest.hexdigest()


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

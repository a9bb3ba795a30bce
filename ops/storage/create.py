"""Taking a backup: the database at one instant, whatever it refers to, and a manifest that is written last.

The database is copied first and its objects afterwards, while writers go on. An object that goes away in between is one that
nothing refers to any more, so the database is copied again; what was copied before stays. Only a copy of which every object
is there becomes a backup.
"""

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import moorage
from moorage.kernel.errors import MoorageError
from moorage.kernel.instants import Instant, render
from moorage.store.blobkeys import blob_key
from moorage.store.recovery import Identity
from moorage.store.schema import RECORD_FORMAT, SCHEMA
from ops.failure import CommandFailed
from ops.storage import contents, manifest
from ops.storage.contents import Contents
from ops.storage.manifest import DATABASE, OBJECTS, RECOVERY, Manifest, described
from ops.storage.sources import Source

ROUNDS: Final = 5
"""How often the database is copied again, because objects went away while they were copied."""


class BackupFailed(CommandFailed):
    """No backup was made; what was written of it is no restore point."""


Progress = Callable[[str], None]


def create(source: Source, folder: Path, now: Instant, tell: Progress = lambda line: None) -> tuple[Manifest, str]:
    """Back up into a folder that is not there yet, or empty; answers the manifest and its digest.

    Raises BackupFailed, naming what is missing or damaged, SourceUnusable and BackupInvalid. The folder then has no
    manifest.
    """
    _make(folder)
    told = _copy(source, folder, tell)
    identity = _bound(told)
    _copy_frontier(source, folder, identity)
    wrong = asyncio.run(_faults(folder / DATABASE, told.head))
    if wrong:
        raise BackupFailed(f"the copy is not consistent: {'; '.join(wrong)}")
    paths = [DATABASE, *(f"{OBJECTS}/{one}" for one in _copied(folder)), f"{RECOVERY}/{identity.identity}.json"]
    for path in paths:
        manifest.settle_on_disk(folder / path)
    made = Manifest(
        created_at=render(now),
        version=moorage.__version__,
        project=identity.project,
        identity=identity.identity,
        generation=identity.generation,
        schema=SCHEMA,
        record_format=RECORD_FORMAT,
        position=told.position,
        head=told.head,
        rows=told.rows,
        files=[described(folder, path) for path in paths],
    )
    return made, made.write(folder)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # the database holds signing secrets
        if any(folder.iterdir()):
            raise BackupFailed(f"{folder} is not empty")
        (folder / OBJECTS).mkdir()
        (folder / RECOVERY).mkdir()
    except OSError as error:
        raise BackupFailed(f"{folder} cannot be used: {error.strerror}") from None


def _copy(source: Source, folder: Path, tell: Progress) -> Contents:
    missing: list[str] = []
    for _ in range(ROUNDS):
        (folder / DATABASE).unlink(missing_ok=True)
        source.database(folder / DATABASE)
        told, on_the_way = asyncio.run(_look(folder / DATABASE))
        tell(f"the database, up to position {told.position} of history")
        missing = _copy_objects(source, folder, told.objects)
        if not missing:
            _drop_others(folder, told.objects)
            _copy_objects(source, folder, on_the_way - told.objects)
            return told
        tell(f"{len(missing)} objects went away meanwhile; the database is copied again")
    shown = ", ".join(blob_key(one) for one in missing[:5])
    raise BackupFailed(f"the database refers to objects that are not in the bucket: {shown}")


def _copy_objects(source: Source, folder: Path, digests: frozenset[str]) -> list[str]:
    """Copy what is not there yet; the digests of which there is no object. Raises BackupFailed for a damaged one."""
    missing: list[str] = []
    for sha256 in sorted(digests - set(_copied(folder))):
        part = folder / f".{sha256}.part"
        try:
            if not source.object(blob_key(sha256), part):
                missing.append(sha256)
            elif _digest(part) != sha256:
                raise BackupFailed(f"{blob_key(sha256)} is damaged: its bytes do not have its digest")
            else:
                part.replace(folder / OBJECTS / sha256)
        finally:
            part.unlink(missing_ok=True)
    return missing


def _drop_others(folder: Path, digests: frozenset[str]) -> None:
    for one in set(_copied(folder)) - digests:
        (folder / OBJECTS / one).unlink()


def _copied(folder: Path) -> list[str]:
    return sorted(one.name for one in (folder / OBJECTS).iterdir())


def _bound(told: Contents) -> Identity:
    identity = told.identity
    if identity is None or identity.confirmed_at is None:
        raise BackupFailed("the storage is bound to no recovery identity: `moorage storage check` says more")
    return identity


def _copy_frontier(source: Source, folder: Path, identity: Identity) -> None:
    target = folder / RECOVERY / f"{identity.identity}.json"
    if not source.object(identity.object_key, target):
        raise BackupFailed(f"{identity.object_key} is not in the bucket: `moorage storage check` says more")
    if _digest(target) != identity.object_sha256:
        raise BackupFailed(f"{identity.object_key} is not the object that the database is bound to")


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


async def _look(database: Path) -> tuple[Contents, frozenset[str]]:
    with contents.opened(database) as snapshot:
        try:
            return await contents.look(snapshot), contents.on_the_way(snapshot)
        except MoorageError as error:
            raise BackupFailed(f"the database is not one that this release can back up: {error.detail}") from None


async def _faults(database: Path, head: str | None) -> list[str]:
    with contents.opened(database) as snapshot:
        return await contents.faults(snapshot, head)

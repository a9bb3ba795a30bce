"""Verifying a backup: every byte of it is read again, and the database is asked what it says."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from moorage.kernel.errors import MoorageError
from moorage.store.schema import RECORD_FORMAT, SCHEMA
from ops.storage import contents, manifest
from ops.storage.manifest import DATABASE, NAME, OBJECTS, RECOVERY, Manifest


@dataclass
class Verdict:
    """What was found: the manifest, and what is wrong in words. A backup without a fault is a restore point."""

    manifest: Manifest
    faults: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not self.faults


def verify(folder: Path, read: Callable[[int], None] = lambda size: None) -> Verdict:
    """Verify a backup; `read` is told the bytes of each file that was read. Raises BackupInvalid without a manifest."""
    told = manifest.read(folder)
    verdict = Verdict(told)
    for one, wrong in manifest.damage(folder, told.files):
        read(one.size)
        if wrong is not None:
            verdict.faults.append(wrong)
    named = {one.path for one in told.files} | {NAME}
    strays = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    verdict.faults += [f"{path} is not in the manifest" for path in strays if path not in named][:20]
    for name, number, supported in (("schema", told.schema, SCHEMA), ("record format", told.record_format, RECORD_FORMAT)):
        if number != supported:
            verdict.faults.append(f"the backup has {name} {number}, this release {supported}: use the release that made it")
    if verdict.holds:
        # SQLite would rather change a damaged file than call it one, so the database is asked only when its bytes are right.
        verdict.faults += asyncio.run(_of_database(folder, told))
    return verdict


async def _of_database(folder: Path, told: Manifest) -> list[str]:
    with contents.opened(folder / DATABASE) as snapshot:
        snapshot.connection.execute("PRAGMA query_only = ON")
        wrong = await contents.faults(snapshot, told.head)
        if wrong:
            return wrong
        try:
            found = await contents.look(snapshot)
        except MoorageError as error:
            return [error.detail]
    missing = sorted(found.objects - set(told.objects))
    wrong = [f"{OBJECTS}/{one} is missing: the database refers to it" for one in missing]
    if (found.position, found.head, found.rows) != (told.position, told.head, dict(told.rows)):
        wrong.append(f"{NAME} does not describe this database")
    return wrong + _of_identity(told, found)


def _of_identity(told: Manifest, found: contents.Contents) -> list[str]:
    identity = found.identity
    if identity is None or identity.confirmed_at is None:
        return ["the database is bound to no recovery identity"]
    if (identity.project, identity.identity, identity.generation) != (told.project, told.identity, told.generation):
        return [f"{NAME} names another recovery identity than the database"]
    digests = {one.path: one.sha256 for one in told.files}
    path = f"{RECOVERY}/{identity.identity}.json"
    if digests.get(path) != identity.object_sha256:
        return [f"{path} is not the object that the database is bound to"]
    return []

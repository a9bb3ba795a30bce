"""Restoring a backup into the state folder of a local edge that has never run and does not run.

Everything is verified before anything is written. Then the objects are written and read again, and the database, fenced, is
put in its place last. Until then a note stands in the folder, with which neither an edge nor another restore opens it: what
an interrupted restore left could be taken for a fresh folder.
"""

import asyncio
import hashlib
import json
import shutil
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from moorage.kernel import canonical
from moorage.kernel.instants import Instant
from moorage.store.blobkeys import blob_key
from ops.failure import CommandFailed
from ops.local.config import read_config
from ops.local.state import StateFolder
from ops.setup import paths
from ops.storage import contents
from ops.storage.fencing import Fenced, fence
from ops.storage.manifest import DATABASE, OBJECTS, Manifest
from ops.storage.sources import LocalState, bindings
from ops.storage.verify import verify

_OBJECTS_SCRIPT = paths.ROOT / "ops" / "local" / "node" / "objects.mjs"
_HOLDS_STORAGE = ("d1", "r2", "do")


class RestoreFailed(CommandFailed):
    """Nothing was restored that could be opened."""


def restore(folder: Path, state: Path, now: Instant, wrangler_config: Path | None = None) -> tuple[Manifest, Fenced]:
    """Restore a backup; answers its manifest and who was fenced.

    Raises RestoreFailed for a backup that does not hold, a folder that has storage or is in the backup, StateUnusable for
    one in use.
    """
    config = wrangler_config or paths.ROOT / "wrangler.toml"
    verdict = verify(folder)
    if not verdict.holds:
        raise RestoreFailed(f"{folder} is no restore point: {'; '.join(verdict.faults[:5])}")
    if state.resolve().is_relative_to(folder.resolve()):
        raise RestoreFailed(f"{state} is in the backup itself, which would be none any more")
    used = [name for name in _HOLDS_STORAGE if (state / name).exists() and any((state / name).iterdir())]
    if used:
        raise RestoreFailed(f"{state} has storage already ({', '.join(used)}); a backup is restored into an empty folder")
    target = StateFolder(state)
    target.open()
    try:
        target.note_restore()
        work = target.run / "restored"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(mode=0o700)
        shutil.copyfile(folder / DATABASE, work / DATABASE)
        fenced = asyncio.run(_fence(work / DATABASE, now, canonical.digest(verdict.manifest.text())))
        _put_objects(folder, state, work, config, verdict.manifest, fenced)
        _place(work / DATABASE, target, config)
        target.restore_is_done()
        shutil.rmtree(work)
        return verdict.manifest, fenced
    finally:
        target.close()


async def _fence(database: Path, now: Instant, backup: str) -> Fenced:
    with contents.opened(database) as snapshot:
        return await fence(snapshot, now, backup)


def _put_objects(folder: Path, state: Path, work: Path, config: Path, told: Manifest, fenced: Fenced) -> None:
    frontier = work / "frontier.json"
    frontier.write_text(fenced.identity.text(), encoding="utf-8")
    files = {blob_key(one): folder / OBJECTS / one for one in told.objects}
    files[fenced.identity.object_key] = frontier
    _, _, bucket = bindings(read_config(config))
    lines = [json.dumps({"key": key, "file": str(file.absolute())}) for key, file in files.items()]
    _run_node([str(state.absolute()), bucket], "\n".join(lines) + "\n")
    _read_again(state, work, config, files)


def _run_node(arguments: Sequence[str], told: str) -> None:
    command = [str(paths.node()), str(_OBJECTS_SCRIPT), *arguments]
    done = subprocess.run(command, input=told, env=paths.node_env(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RestoreFailed(f"the objects could not be written: {' '.join(done.stderr.split()) or done.returncode}")


def _read_again(state: Path, work: Path, config: Path, files: dict[str, Path]) -> None:
    """What was written is what was backed up."""
    written = LocalState(state, config, is_whole=False)
    found = work / "object"
    for key, file in files.items():
        if not written.object(key, found) or _digest(found) != _digest(file):
            raise RestoreFailed(f"{key} was not written as it was backed up")


def _place(database: Path, target: StateFolder, config: Path) -> None:
    identifier, _, _ = bindings(read_config(config))
    file = target.d1_file(identifier)
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(database)) as restored:
        restored.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        restored.execute("PRAGMA journal_mode = DELETE")
    database.replace(file)


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()

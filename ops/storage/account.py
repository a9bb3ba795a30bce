"""Preparing a backup for an account: fenced, as the SQL that D1 takes, with the commands that put it there.

Nothing leaves this machine here. wrangler does the rest, with the account's own credential, command by command, so that
whoever restores sees each.
"""

import asyncio
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moorage.kernel import canonical
from moorage.kernel.instants import Instant
from moorage.store.blobkeys import blob_key
from ops.failure import CommandFailed
from ops.local.config import read_config
from ops.setup import paths
from ops.storage import contents
from ops.storage.fencing import Fenced, fence
from ops.storage.manifest import DATABASE, OBJECTS, Manifest
from ops.storage.sources import bindings
from ops.storage.verify import verify

STATEMENT_BYTES: Final = 100_000
"""What D1 takes as one statement of an import."""

SQL: Final = "restore.sql"
FRONTIER: Final = "recovery.json"


@dataclass(frozen=True)
class Prepared:
    """What was written and what is to be run, in order. `too_long` counts rows whose statement D1 does not take."""

    manifest: Manifest
    fenced: Fenced
    commands: list[str]
    too_long: int


def prepare(folder: Path, target: Path, now: Instant, wrangler_config: Path | None = None) -> Prepared:
    """Write `restore.sql` and the recovery object into a folder that is not there yet, or empty.

    Raises CommandFailed for a backup that does not hold.
    """
    verdict = verify(folder)
    if not verdict.holds:
        raise CommandFailed(f"{folder} is no restore point: {'; '.join(verdict.faults[:5])}")
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(target.iterdir()):
        raise CommandFailed(f"{target} is not empty")
    work = target / DATABASE
    shutil.copyfile(folder / DATABASE, work)
    fenced = asyncio.run(_fence(work, now, canonical.digest(verdict.manifest.text())))
    too_long = 0
    with closing(sqlite3.connect(work)) as database, (target / SQL).open("w", encoding="utf-8") as out:
        for statement in statements(database):
            too_long += len(statement.encode()) > STATEMENT_BYTES
            out.write(statement + "\n")
    work.unlink()
    (target / FRONTIER).write_text(fenced.identity.text(), encoding="utf-8")
    commands = _commands(folder, target, verdict.manifest, fenced, wrangler_config)
    return Prepared(verdict.manifest, fenced, commands, too_long)


def statements(database: sqlite3.Connection) -> Iterator[str]:
    """The whole database as statements, without the transaction that D1 does not take and what D1 keeps for itself."""
    own = ("CREATE TABLE _cf_", 'INSERT INTO "_cf_', "CREATE TABLE sqlite_", 'INSERT INTO "sqlite_', 'DELETE FROM "sqlite_')
    for statement in database.iterdump():
        if statement not in ("BEGIN TRANSACTION;", "COMMIT;") and not statement.startswith(own):
            yield statement


async def _fence(database: Path, now: Instant, backup: str) -> Fenced:
    with contents.opened(database) as snapshot:
        return await fence(snapshot, now, backup)


def _commands(folder: Path, target: Path, told: Manifest, fenced: Fenced, wrangler_config: Path | None) -> list[str]:
    _, database, bucket = bindings(read_config(wrangler_config or paths.ROOT / "wrangler.toml"))
    files = {blob_key(one): folder / OBJECTS / one for one in told.objects}
    files[fenced.identity.object_key] = target / FRONTIER
    put = [f"./moorage wrangler r2 object put {bucket}/{key} --remote --file {file}" for key, file in files.items()]
    return [*put, f"./moorage wrangler d1 execute {database} --remote --file {target / SQL}"]

"""Applies a Worker's D1 migrations to the local database, with wrangler, as a deployment does."""

import hashlib
import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

from ops.bundle import wrangler_env
from ops.failure import CommandFailed
from ops.local.config import D1, WorkerConfig
from ops.local.snapshot import CACHE
from ops.local.state import StateFolder
from ops.setup import paths


class MigrationFailed(CommandFailed):
    """wrangler could not apply a migration."""


def apply(config: WorkerConfig, state: StateFolder) -> None:
    """Bring every database of `config` up to its migration files. Costs nothing when all are applied.

    wrangler takes two seconds and more, so what it makes of an empty database is kept and copied into later empty ones.
    Raises MigrationFailed with wrangler's words.
    """
    for database in config.d1:
        file = state.d1_file(database.id)
        if database.migrations is None or not _missing(database.migrations, file):
            continue
        kept = CACHE / f"migrated-{_fingerprint(database.migrations)}.sqlite"
        fresh = not file.exists()
        if fresh and kept.is_file():
            _copy(kept, file)
        else:
            _run_wrangler(config, database, state)
            if fresh:
                _copy(file, kept)


def are_missing(config: WorkerConfig, state: StateFolder) -> bool:
    """Whether `apply` has something to do. Raises MigrationFailed without a folder of migrations."""
    return any(one.migrations is not None and _missing(one.migrations, state.d1_file(one.id)) for one in config.d1)


def _fingerprint(folder: Path) -> str:
    digest = hashlib.sha256((paths.NODE_MODULES / "wrangler" / "package.json").read_bytes())
    for file in sorted(folder.glob("*.sql")):
        digest.update(f"{file.name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _copy(source: Path, target: Path) -> None:
    """Copy a database with what is still in its write-ahead log; `target` appears whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.{os.getpid()}")
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(part)) as new:
        old.backup(new)
        new.execute("PRAGMA journal_mode = DELETE")
    part.replace(target)


def _missing(folder: Path, database: Path) -> list[str]:
    if not folder.is_dir():
        raise MigrationFailed(f"there is no migrations folder {folder}")
    applied = _applied(database)
    return sorted(file.name for file in folder.glob("*.sql") if file.name not in applied)


def _applied(database: Path) -> set[str]:
    if not database.is_file():
        return set()
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            return {name for (name,) in connection.execute("SELECT name FROM d1_migrations")}
    except sqlite3.OperationalError:
        # No migration was ever applied to it, or it cannot be read here; wrangler will say.
        return set()


def _run_wrangler(config: WorkerConfig, database: D1, state: StateFolder) -> None:
    # wrangler keeps local state in `<persist-to>/v3`; that name is led to the state folder.
    led = state.run / "wrangler"
    led.mkdir(exist_ok=True)
    link = led / "v3"
    if not link.is_symlink():
        link.symlink_to(state.path)
    command = [*paths.wrangler(), "d1", "migrations", "apply", database.name, "--local"]
    command += ["--config", str(config.path), "--persist-to", str(led)]
    done = subprocess.run(
        command, cwd=config.path.parent, env=wrangler_env() | {"CI": "1"}, capture_output=True, text=True, check=False
    )
    if done.returncode or _missing(database.migrations or Path(), state.d1_file(database.id)):
        said = " ".join((done.stderr.strip() or done.stdout.strip()).split())
        raise MigrationFailed(f"the migrations of {database.name} were not applied: {said}")

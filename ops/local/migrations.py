"""Applies a Worker's D1 migrations to the local database, with wrangler, as a deployment does."""

import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

from ops.bundle import wrangler_env
from ops.failure import CommandFailed
from ops.local.config import D1, WorkerConfig
from ops.local.state import StateFolder
from ops.setup import paths


class MigrationFailed(CommandFailed):
    """wrangler could not apply a migration."""


def apply(config: WorkerConfig, state: StateFolder) -> None:
    """Bring every database of `config` up to its migration files. Costs nothing when all are applied.

    Raises MigrationFailed with wrangler's words.
    """
    for database in config.d1:
        if database.migrations is not None and _missing(database.migrations, state.d1_file(database.id)):
            _run_wrangler(config, database, state)


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

"""Where a backup is taken from: the state folder of a local edge, or an account by way of wrangler."""

import shutil
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, Protocol

from moorage.store.blobkeys import RECOVERY_PREFIX, blob_key
from ops.bundle import wrangler_env
from ops.failure import CommandFailed
from ops.local.config import WorkerConfig, read_config
from ops.local.state import StateFolder
from ops.setup import paths

_BUSY_SECONDS: Final = 30.0
_ABSENT: Final = ("specified key does not exist", "NoSuchKey", "10007")


class SourceUnusable(CommandFailed):
    """There is nothing to back up there, or it cannot be read."""


class Source(Protocol):
    """A database and a bucket that may be in use."""

    def database(self, target: Path) -> None:
        """Write the whole database, as it is at one instant, into a file that is not there yet."""

    def object(self, key: str, target: Path) -> bool:
        """Write the bytes of an object into a file; False when there is no such object now."""


def bindings(config: WorkerConfig) -> tuple[str, str, str]:
    """The id and the name of the database, and the name of the bucket. Raises SourceUnusable."""
    database = next((one for one in config.d1 if one.binding == "DB"), None)
    bucket = config.r2.get("BLOBS")
    if database is None or bucket is None:
        raise SourceUnusable(f"{config.path} has no D1 database DB or no R2 bucket BLOBS")
    return database.id, database.name, bucket


class LocalState:
    """The state folder of a local edge, running or not. Nothing of it is changed. Without its database it is not whole."""

    def __init__(self, state: Path, wrangler_config: Path | None = None, *, is_whole: bool = True) -> None:
        identifier, _, self.bucket = bindings(read_config(wrangler_config or paths.ROOT / "wrangler.toml"))
        folder = StateFolder(state)
        self._database = folder.d1_file(identifier)
        self._objects = folder.r2_file(self.bucket)
        self._bytes = folder.r2_blobs(self.bucket)
        if is_whole and not self._database.is_file():
            raise SourceUnusable(f"{state} is not the state folder of a local edge: it has no database")

    def database(self, target: Path) -> None:
        # One step of SQLite's own backup is one read transaction: what is in the write-ahead log is in it, and writers
        # are not held up.
        try:
            with closing(_open(self._database)) as live, closing(sqlite3.connect(target)) as copy:
                live.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.Error as error:
            raise SourceUnusable(f"the database {self._database} cannot be read: {error}") from None

    def object(self, key: str, target: Path) -> bool:
        if not self._objects.is_file():
            return False
        try:
            with closing(_open(self._objects)) as known:
                found = known.execute("SELECT blob_id FROM _mf_objects WHERE key = ?", [key]).fetchone()
        except sqlite3.Error as error:
            raise SourceUnusable(f"the bucket {self._objects} cannot be read: {error}") from None
        if found is None:
            return False
        if found[0] is None:
            raise SourceUnusable(f"{key} was uploaded in parts, which Moorage never does")
        try:
            shutil.copyfile(self._bytes / found[0], target)
        except FileNotFoundError:
            return False
        return True


def _open(file: Path) -> sqlite3.Connection:
    """A connection that reads. It is opened for writing, because only that finds a log that a crash left behind."""
    connection = sqlite3.connect(file, timeout=_BUSY_SECONDS, isolation_level=None)
    connection.execute("PRAGMA query_only = ON")
    return connection


class Wrangler:
    """The database and the bucket that wrangler.toml names, read by wrangler: in the account, or where `where` says.

    An export blocks the database for its time, which makes it the state of one instant. Its text leaves out what SQLite
    keeps about itself and holds every row.
    """

    def __init__(self, wrangler_config: Path | None = None, where: Sequence[str] = ("--remote",)) -> None:
        self._config = wrangler_config or paths.ROOT / "wrangler.toml"
        self._where = list(where)
        _, self._name, self.bucket = bindings(read_config(self._config))

    def commands(self) -> list[str]:
        """What is run, for a dry run: the export, and the reading of one object."""
        return [
            " ".join(["wrangler", *self._export(Path("database.sql"))]),
            " ".join(["wrangler", *self._get(blob_key("0" * 64).replace("0" * 64, "<sha256>"), Path("objects/<sha256>"))]),
            " ".join(["wrangler", *self._get(f"{RECOVERY_PREFIX}<identity>.json", Path("recovery/<identity>.json"))]),
        ]

    def database(self, target: Path) -> None:
        text = target.with_suffix(".sql")
        try:
            self._run(self._export(text))
            with closing(sqlite3.connect(target)) as fresh:
                fresh.executescript(text.read_text(encoding="utf-8"))
        except (sqlite3.Error, OSError) as error:
            raise SourceUnusable(f"the export of {self._name} cannot be read: {error}") from None
        finally:
            text.unlink(missing_ok=True)

    def object(self, key: str, target: Path) -> bool:
        done = self._wrangler(self._get(key, target))
        if done.returncode == 0 and target.is_file():
            return True
        said = " ".join((done.stderr + done.stdout).split())
        if any(word in said for word in _ABSENT):
            return False
        raise SourceUnusable(f"wrangler could not read {key}: {said}")

    def _export(self, target: Path) -> list[str]:
        return ["d1", "export", self._name, *self._where, "--output", str(target), "--skip-confirmation"]

    def _get(self, key: str, target: Path) -> list[str]:
        return ["r2", "object", "get", f"{self.bucket}/{key}", *self._where, "--file", str(target)]

    def _run(self, arguments: Sequence[str]) -> None:
        done = self._wrangler(arguments)
        if done.returncode:
            said = " ".join((done.stderr.strip() or done.stdout.strip()).split())
            raise SourceUnusable(f"wrangler {' '.join(arguments[:2])} failed: {said}")

    def _wrangler(self, arguments: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        command = [*paths.wrangler(), *arguments, "--config", str(self._config)]
        environment = wrangler_env() | {"CI": "1"}
        return subprocess.run(command, cwd=self._config.parent, env=environment, capture_output=True, text=True, check=False)

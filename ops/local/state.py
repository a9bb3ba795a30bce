"""The state folder: D1, R2 and Durable Objects on disk, the root token, and who is using it."""

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from ops.failure import CommandFailed

FORMAT = 1
"""The number of the folder's layout. A folder with a higher one was written by a newer Moorage."""

_D1_OBJECT = "miniflare-D1DatabaseObject"
_R2_OBJECT = "miniflare-R2BucketObject"
_GONE_WITHIN_SECONDS = 5.0


class StateUnusable(CommandFailed):
    """The state folder belongs to a newer Moorage, is broken, or is in use."""


class StateFolder:
    """A locked state folder. `d1/`, `r2/` and `do/` are Miniflare's; the rest is described by the methods."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lock: int | None = None

    def open(self) -> None:
        """Create or check the folder and lock it until `close`. Raises StateUnusable.

        Processes that an earlier, killed owner left behind are ended first: they would go on writing.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)  # the database holds signing secrets
            self.run.mkdir(exist_ok=True)
            lock = os.open(self.run / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateUnusable(f"cannot use the state folder {self.path}: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise StateUnusable(f"another moorage is running on the state folder {self.path}") from error
        self._lock = lock
        try:
            self._check_restored()
            self._check_format()
        except StateUnusable:
            self.close()
            raise
        self._end_leftovers()

    def close(self) -> None:
        """Let others use the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def run(self) -> Path:
        """What only the running edge needs; made anew at each start."""
        return self.path / "run"

    def _check_format(self) -> None:
        file = self.path / "state.json"
        try:
            number = json.loads(file.read_text())["format"]
            if not isinstance(number, int):
                raise TypeError(number)
        except FileNotFoundError:
            _replace(file, json.dumps({"format": FORMAT}) + "\n")
            return
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise StateUnusable(f"{file} is broken; it should say {json.dumps({'format': FORMAT})}") from error
        if number > FORMAT:
            raise StateUnusable(
                f"the state folder {self.path} has format {number}, written by a newer Moorage; this one knows {FORMAT}"
            )

    def _check_restored(self) -> None:
        if self._restore.exists():
            raise StateUnusable(
                f"a restore into {self.path} did not end, and what it left is no deployment: remove it and restore again"
            )

    def note_restore(self) -> None:
        """Note that a backup is being restored into the folder. Until `restore_is_done` nothing opens it."""
        _replace(self._restore, "")

    def restore_is_done(self) -> None:
        """All that was backed up is in its place."""
        self._restore.unlink()

    @property
    def _restore(self) -> Path:
        return self.path / "to-be-restored"

    def root_token(self, given: str | None) -> str:
        """The root token: the given one, else the one kept in the folder, else a new one, which is then kept."""
        file = self.path / "root-token"
        if given is None and file.is_file():
            return file.read_text().strip()
        token = given or secrets.token_urlsafe(32)
        _replace(file, token + "\n", mode=0o600)
        return token

    def note_set_up(self) -> None:
        """Note that the storage is about to be made or brought to another schema, until `set_up_is_done`."""
        _replace(self._set_up, "")

    def set_up_is_done(self) -> None:
        """The storage is made and bound."""
        self._set_up.unlink(missing_ok=True)

    @property
    def is_to_be_set_up(self) -> bool:
        """Whether a start that made the storage has yet to bind it, this one or one that was interrupted."""
        return self._set_up.exists()

    @property
    def _set_up(self) -> Path:
        return self.path / "to-be-set-up"

    def d1_file(self, database_id: str) -> Path:
        """Where Miniflare keeps the SQLite file of a D1 database: named after its object id, an HMAC of the id."""
        return self.path / "d1" / _D1_OBJECT / _file_of(_D1_OBJECT, database_id)

    def r2_file(self, bucket: str) -> Path:
        """Where Miniflare keeps what it knows of a bucket's objects, as `d1_file`."""
        return self.path / "r2" / _R2_OBJECT / _file_of(_R2_OBJECT, bucket)

    def r2_blobs(self, bucket: str) -> Path:
        """The folder of the bytes of a bucket's objects."""
        return self.path / "r2" / bucket / "blobs"

    def write_private(self, name: str, text: str) -> Path:
        """Write a file of the running edge that only its owner may read, for it may hold the root token."""
        file = self.run / name
        _replace(file, text, mode=0o600)
        return file

    def remember_processes(self, pids: Iterable[int]) -> None:
        """Note which processes use the folder, for whoever comes after a SIGKILL."""
        _replace(self.run / "processes.json", json.dumps(sorted(pids)))

    def _end_leftovers(self) -> None:
        try:
            noted = json.loads((self.run / "processes.json").read_text())
        except (OSError, ValueError):
            return
        # A number may belong to another program by now, so only what still looks like ours is ended.
        mine = [pid for pid in noted if any(word in command_line(pid) for word in ("workerd", "serve.mjs"))]
        end(mine)


def _file_of(durable_object: str, name: str) -> str:
    key = hashlib.sha256(durable_object.encode()).digest()
    object_id = hmac.new(key, name.encode(), hashlib.sha256).digest()[:16]
    check = hmac.new(key, object_id, hashlib.sha256).digest()[:16]
    return f"{(object_id + check).hex()}.sqlite"


def command_line(pid: int) -> str:
    """The program and arguments of a process, or nothing when there is no such process (a zombie is none)."""
    listed = subprocess.run(["ps", "-o", "stat=,args=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, args = listed.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else args.strip()


def children(pid: int) -> dict[int, str]:
    """The direct children of a process with their command lines."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
    rows = (line.split(None, 2) for line in listed.stdout.splitlines())
    return {int(row[0]): row[2] for row in rows if len(row) == 3 and int(row[1]) == pid}


def end(pids: Iterable[int]) -> None:
    """SIGKILL processes and wait until they are gone."""
    waiting = set(pids)
    for pid in waiting:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    deadline = time.monotonic() + _GONE_WITHIN_SECONDS
    while any(command_line(pid) for pid in waiting):
        if time.monotonic() > deadline:
            raise StateUnusable(f"a process that uses the state folder does not end: {sorted(waiting)}")
        time.sleep(0.02)


def _replace(file: Path, text: str, mode: int = 0o644) -> None:
    part = file.with_name(file.name + ".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as stream:
        stream.write(text)
    part.replace(file)

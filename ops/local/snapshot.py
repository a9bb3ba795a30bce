"""The memory snapshot that isolates start from, made once for a version of Pyodide and of what is in it."""

import fcntl
import hashlib
import subprocess
from pathlib import Path

from ops.failure import CommandFailed
from ops.setup import paths

CACHE = paths.ROOT / "build" / "edge"
"""Holds snapshots and the bytecode of earlier starts; safe to delete."""

_HERE = Path(__file__).parent
_PARTS = ("inside/prelude.py", "workerd/snapshot.mjs", "workerd/pyodide_host.mjs", "workerd/not_node.mjs")


class SnapshotFailed(CommandFailed):
    """The memory snapshot could not be made."""


def ensure_snapshot(compatibility_date: str) -> str:
    """The name of the snapshot file in CACHE, made now (about five seconds) if it is not there yet.

    Two processes may ask at once. Raises SnapshotFailed.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    name = f"snapshot-{_fingerprint(compatibility_date)}.bin"
    target = CACHE / name
    if target.is_file():
        return name
    with (CACHE / "snapshot.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_file():
            _make(target, compatibility_date)
    return name


def _make(target: Path, compatibility_date: str) -> None:
    for old in CACHE.glob("snapshot-*.bin"):
        old.unlink()
    script = str(_HERE / "node" / "snapshot.mjs")
    command = [str(paths.node()), script, str(target), compatibility_date]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
        raise SnapshotFailed(f"the interpreter's memory snapshot could not be made: {said}")


def _fingerprint(compatibility_date: str) -> str:
    digest = hashlib.sha256(compatibility_date.encode())
    digest.update((paths.NODE_MODULES / "pyodide" / "package.json").read_bytes())
    digest.update((paths.NODE_MODULES / "workerd" / "package.json").read_bytes())
    for part in _PARTS:
        digest.update((_HERE / part).read_bytes())
    return digest.hexdigest()[:16]

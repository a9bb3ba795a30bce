"""The bundle: what `wrangler deploy` uploads, written to a folder. The local edge runs exactly these files."""

import fcntl
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.failure import CommandFailed
from ops.setup import paths

VENDORED = "python_modules"
BODIES = "bodies"
"""The package beside the entry module that the Worker registers bodies from."""

NOT_MODULES = frozenset({"README.md"})
"""What wrangler writes beside the modules for the reader of the folder."""


@dataclass(frozen=True)
class Bundle:
    """A written bundle. `modules` are names relative to `path`, with slashes, sorted; sizes are in bytes."""

    path: Path
    modules: tuple[str, ...]
    raw_bytes: int
    gzip_bytes: int

    @property
    def own_modules(self) -> tuple[str, ...]:
        """The modules that are not vendored packages."""
        return tuple(name for name in self.modules if not name.startswith(f"{VENDORED}/"))


def build_bundle(root: Path, out: Path, config: Path | None = None, bodies: Path | None = None) -> Bundle:
    """Writes what wrangler would upload from `root` to `out`, or takes what is there when no input changed since.

    `bodies` is a folder that takes the place of `worker/bodies`. `config` names another wrangler.toml, for a Worker that
    exists for tests: its folder holds its own entry module, and the `moorage` package and the vendored packages of `root`
    are added to it. Two processes may ask for the same `out` at once. Raises CommandFailed with wrangler's own words when
    it refuses.
    """
    out = out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    record = out.parent / f"{out.name}.json"
    with _alone(out.parent / f"{out.name}.lock"):
        wanted = _fingerprint(root, config, bodies)
        made = _recorded(record, wanted, out)
        if made is None:
            record.unlink(missing_ok=True)
            made = _make(root, out, config, bodies)
            entry = {"inputs": wanted, "raw_bytes": made.raw_bytes, "gzip_bytes": made.gzip_bytes}
            record.write_text(json.dumps(entry | {"modules": made.modules}))
    return made


def _recorded(record: Path, wanted: str, out: Path) -> Bundle | None:
    try:
        entry = json.loads(record.read_text())
    except (OSError, ValueError):
        return None
    if entry["inputs"] != wanted or not out.is_dir():
        return None
    return Bundle(out, tuple(entry["modules"]), entry["raw_bytes"], entry["gzip_bytes"])


def _make(root: Path, out: Path, config: Path | None, bodies: Path | None) -> Bundle:
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f"{out.name}-") as work:
        project = root
        if config is not None:
            project = _compose(root, config, Path(work) / "project")
        elif bodies is not None:
            project = with_bodies(root, bodies, Path(work) / "project")
        written = Path(work) / "out"
        _wrangler_dry_run(project, written)
        bundle = _measure(written)
        shutil.rmtree(out, ignore_errors=True)
        written.rename(out)
    return Bundle(out, bundle.modules, bundle.raw_bytes, bundle.gzip_bytes)


def _compose(root: Path, config: Path, project: Path) -> Path:
    """A project folder for another Worker: its own files, `moorage` beside its entry module, our vendored packages."""
    sources = config.parent
    shutil.copytree(sources, project, ignore=shutil.ignore_patterns("__pycache__", ".wrangler"))
    if config.name != "wrangler.toml":
        (project / config.name).replace(project / "wrangler.toml")
    entry = project / tomllib.loads(config.read_text())["main"]
    package = root / "worker" / "moorage"
    shutil.copytree(package, entry.parent / "moorage", ignore=shutil.ignore_patterns("__pycache__"))
    (project / VENDORED).symlink_to(root / VENDORED)
    return project


def with_bodies(root: Path, bodies: Path, project: Path) -> Path:
    """Makes `project` a folder that wrangler deploys as it does `root`, with another folder of bodies; returns it."""
    shutil.rmtree(project, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__", ".*")
    project.mkdir(parents=True)
    shutil.copy2(root / "wrangler.toml", project / "wrangler.toml")
    shutil.copytree(root / "worker", project / "worker", ignore=ignored)
    shutil.rmtree(project / "worker" / BODIES, ignore_errors=True)
    shutil.copytree(bodies, project / "worker" / BODIES, ignore=ignored)
    (project / "worker" / BODIES / "__init__.py").touch()
    for shared in (VENDORED, "d1_schema"):
        if (root / shared).exists():
            (project / shared).symlink_to((root / shared).absolute())
    return project


def _wrangler_dry_run(project: Path, out: Path) -> None:
    command = [*paths.wrangler(), "deploy", "--dry-run", "--outdir", str(out), "--config", "wrangler.toml"]
    options: dict[str, Any] = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    done = subprocess.run(command, cwd=project, env=wrangler_env(), **options)
    if done.returncode:
        raise CommandFailed(f"wrangler could not make the bundle: {_reason(done.stdout + done.stderr)}")


def _reason(said: str) -> str:
    """wrangler's error in its own words: from the line that announces it to the next empty one."""
    said = re.sub(r"\x1b\[[0-9;]*m", "", said)
    _, announced, after = said.partition("[ERROR] ")
    paragraph = (after if announced else said.strip()).split("\n\n")[0]
    return " ".join(paragraph.split())


def wrangler_env() -> dict[str, str]:
    """The environment for wrangler: no telemetry, no look for updates, its logs in the build folder."""
    logs = paths.ROOT / "build" / "wrangler-logs"
    return paths.node_env() | {"WRANGLER_HIDE_BANNER": "true", "WRANGLER_LOG_PATH": str(logs)}


def _measure(folder: Path) -> Bundle:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    named = {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}
    modules = {name: content for name, content in named.items() if name not in NOT_MODULES}
    everything = b"".join(modules.values())
    return Bundle(folder, tuple(modules), len(everything), len(gzip.compress(everything, 6)))


def _fingerprint(root: Path, config: Path | None, bodies: Path | None) -> str:
    """A digest of everything that decides the bundle: sources by content, the vendored packages by size and time."""
    digest = hashlib.sha256()
    own = [root / "wrangler.toml"] if config is None else _sources(config.parent)
    given = [] if bodies is None else _sources(bodies)
    for file in [*own, *_sources(root / "worker"), *given, root / "package-lock.json"]:
        digest.update(f"{file}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    for file in _sources(root / VENDORED):
        found = file.stat()
        digest.update(f"{file}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _sources(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise CommandFailed(f"there is no {folder}; run ./moorage setup")
    return sorted(file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)

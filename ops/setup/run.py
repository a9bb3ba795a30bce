"""Running set-up's steps: stamps, the lock, the log, and what the reader sees."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ops.setup import paths


class SetupFailed(Exception):
    """A step did not finish. The text is one line for the reader; the details are in the log."""


@dataclass(frozen=True)
class Step:
    """One thing that set-up makes.

    `inputs` (files and plain strings) decide whether it has to be made again; `outputs` are what must exist for it to
    count as made. `make` gets True when an earlier, finished result may be updated in place.
    """

    name: str
    inputs: Sequence[Path | str]
    outputs: Sequence[Path]
    make: Callable[[bool], None]

    @property
    def stamp(self) -> Path:
        return paths.STATE / f"{self.name.replace(' ', '-').lower()}.stamp"

    def fingerprint(self) -> str:
        """A digest of the inputs, in hex."""
        digest = hashlib.sha256()
        for item in self.inputs:
            content = item.read_bytes() if isinstance(item, Path) else item.encode()
            digest.update(len(content).to_bytes(8, "big") + content)
        return digest.hexdigest()

    def is_current(self) -> bool:
        """Whether a finished result of exactly these inputs is in place."""
        return self._stamped() == self.fingerprint() and self._is_whole()

    def may_be_updated(self) -> bool:
        """Whether a finished result is in place, of these inputs or of earlier ones."""
        return self._stamped() is not None and self._is_whole()

    def _stamped(self) -> str | None:
        return self.stamp.read_text() if self.stamp.is_file() else None

    def _is_whole(self) -> bool:
        return all(path.exists() for path in self.outputs)


def bring_up_to_date(step: Step) -> None:
    """Makes `step` unless it is current. Raises SetupFailed.

    The stamp goes away before the work and comes back after it, so work that was cut short is always done afresh.
    """
    if step.is_current():
        return
    fingerprint, in_place = step.fingerprint(), step.may_be_updated()
    step.stamp.unlink(missing_ok=True)
    began = time.monotonic()
    say(f"  {step.name:<20}", end="")
    log(f"--- {step.name}")
    try:
        step.make(in_place)
    except BaseException:
        say(f" stopped after {time.monotonic() - began:.1f} s")
        raise
    write_whole(step.stamp, fingerprint)
    say(f"{time.monotonic() - began:6.1f} s")


def say(text: str, end: str = "\n") -> None:
    """Progress goes to stderr, so that a command's stdout stays its own."""
    print(text, end=end, file=sys.stderr, flush=True)


def log(text: str) -> None:
    with paths.LOG.open("a", encoding="utf-8") as out:
        out.write(text + "\n")


def write_whole(path: Path, text: str) -> None:
    """Writes a file that is either all there or not at all."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_text(text)
    part.replace(path)


_lock_fd: int | None = None


def call(args: Sequence[str | Path], env: Mapping[str, str], cwd: Path = paths.ROOT) -> None:
    """Runs a program with its output in the log. Raises SetupFailed with the line that says most.

    The child inherits the lock: if set-up is killed alone, the next run waits until what it had started is over too.
    """
    log("$ " + " ".join(str(arg) for arg in args))
    with paths.LOG.open("ab") as out:
        start = out.tell()
        process = subprocess.Popen(
            [str(arg) for arg in args],
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            pass_fds=() if _lock_fd is None else (_lock_fd,),
        )
        try:
            code = process.wait()
        except BaseException:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
            process.kill()
            process.wait()
            raise
    if code:
        with paths.LOG.open("rb") as written:
            written.seek(start)
            said = written.read().decode(errors="replace")
        raise SetupFailed(f"{_telling_line(said) or f'exit status {code}'} (details in {paths.LOG})")


def _telling_line(output: str) -> str:
    """What a failed program said about why: the first line that speaks of an error, else the last."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if line.lower().startswith(("error", "npm error", "x ", "×", "fatal"))]
    chosen = telling[0] if telling else lines[-1] if lines else ""
    return chosen[:300]


def swap_in(new: Path, place: Path) -> None:
    """Puts a finished folder in its place. The old one goes to the trash first, so there is never a mixture of both."""
    if place.exists() or place.is_symlink():
        trash = paths.STATE / f"trash-{place.name}-{os.getpid()}-{time.monotonic_ns()}"
        place.rename(trash)
    new.rename(place)
    sweep()


def workspace(name: str) -> Path:
    """A fresh folder beside the final place, so that a rename brings it there."""
    folder = paths.STATE / f"tmp-{name}-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def sweep() -> None:
    """Removes what an interrupted run left behind. Only the holder of the lock may call it."""
    for pattern in ("tmp-*", "trash-*"):
        for folder in paths.STATE.glob(pattern):
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def sole_run() -> Iterator[None]:
    """Holds the set-up lock, waiting for another run to finish first. Signals end the run as Ctrl-C does."""
    global _lock_fd
    paths.STATE.mkdir(exist_ok=True)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    fd = os.open(paths.STATE / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("Another set-up of this folder is running; waiting for it.")
        fcntl.flock(fd, fcntl.LOCK_EX)
    _lock_fd = fd
    try:
        yield
    finally:
        _lock_fd = None
        os.close(fd)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)


def _stop(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)

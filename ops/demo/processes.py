"""Processes that the story starts, and ends whatever happens."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ops.setup import paths

END_SECONDS = 20.0


class Process:
    """A module of this package running as a separate program; a context manager that kills it in the end.

    `name` is for people, `told` goes in as one JSON line, `folder` takes what comes out.
    """

    def __init__(self, module: str, name: str, told: dict[str, Any], folder: Path) -> None:
        self.name = name
        self._said = folder / f"{name}.jsonl"
        self._errors = folder / f"{name}.err"
        with self._said.open("wb") as out, self._errors.open("wb") as errors:
            # A session of its own: Ctrl-C reaches the story alone, which then ends its processes in order.
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"ops.demo.{module}"],
                cwd=paths.ROOT,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=errors,
                start_new_session=True,
            )
        self._stdin = self._process.stdin
        # A process that died at once has its error read later, so a broken pipe says nothing new.
        if self._stdin is not None:
            with suppress(BrokenPipeError):
                self._stdin.write(json.dumps(told).encode() + b"\n")
                self._stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def said(self) -> Iterator[Any]:
        """The whole lines it has written so far, as JSON."""
        for line in self._said.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                yield json.loads(line)

    def complaint(self) -> str:
        """The last line that it wrote to its standard error, or nothing."""
        lines = self._errors.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def kill(self) -> int:
        """SIGKILL it, if it runs, and return its exit status: a negative signal number."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
        if self._stdin is not None:
            with suppress(BrokenPipeError):
                self._stdin.close()
        return self._process.wait()

    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def stop(self) -> int:
        """Tell it to stop, wait, and return its exit status. Kills it after END_SECONDS."""
        if self._stdin is not None:
            with suppress(BrokenPipeError):
                self._stdin.close()
        try:
            return self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            return self.kill()

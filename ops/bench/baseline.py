"""The baseline: one bare D1 insert by a plain JavaScript Worker, on the same machine in the same run."""

import subprocess
from contextlib import suppress
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Self

import httpx

from ops.failure import CommandFailed
from ops.setup import paths

_SCRIPT = Path(__file__).parent / "baseline.mjs"


class Baseline:
    """A running baseline Worker; a context manager. `prepare` lets it make its table first."""

    def __init__(self, state: Path, script: Path = _SCRIPT, *, prepare: bool = True) -> None:
        self._state = state
        self._script = script
        self._prepare = prepare
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        self._state.mkdir(parents=True)
        self._process = subprocess.Popen(
            [str(paths.node()), str(self._script), str(self._state)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=paths.node_env(),
            text=True,
        )
        line = self._process.stdout.readline().strip() if self._process.stdout else ""
        if not line.startswith("http"):
            self.__exit__(None, None, None)
            raise CommandFailed("the baseline Worker did not start")
        self.url = line
        if self._prepare:
            httpx.put(line, timeout=30).raise_for_status()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._process is None:
            return
        if self._process.stdin:
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)
        self._process.kill()
        self._process.wait()

    def milliseconds(self, repeat: int) -> float:
        """The median time of one insert through HTTP."""
        with httpx.Client(base_url=self.url, timeout=30) as client:
            times = [client.post("/").raise_for_status().elapsed.total_seconds() * 1000 for _ in range(repeat + 5)]
        return median(times[5:])

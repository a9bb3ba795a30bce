"""Starts and stops a local edge: one Node process with Miniflare, one workerd below it, one state folder."""

import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from ops.failure import CommandFailed
from ops.local import migrations
from ops.local.config import WorkerConfig, read_config
from ops.local.entrypoints import entry_classes
from ops.local.snapshot import CACHE, ensure_snapshot
from ops.local.state import StateFolder, children, end
from ops.setup import paths

START_SECONDS = 90.0
"""How long a start may take before it counts as failed; on an idle machine it takes two."""

STOP_SECONDS = 10.0
ANSWER_SECONDS = 60.0
_SERVE = Path(__file__).parent / "node" / "serve.mjs"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class EdgeFailed(CommandFailed):
    """The local edge could not start or did not answer; the text is one line that says why."""


@dataclass(frozen=True)
class EdgeConfig:
    """What to run and where.

    `bundle` is a folder that `wrangler deploy --dry-run --outdir` wrote from `wrangler_config`; `port` 0 means any free
    one; `vars` are added to those of the config; `log` is a file for what the terminal would see (default: in `state`);
    with `echo` the terminal does see it.

    Where the storage is made or brought to another schema by this start and wrangler.toml names a project, it is bound to
    it (clause store.recovery-identity), which a start of finished storage never does; `initialize` False leaves that out.
    """

    state: Path
    bundle: Path
    wrangler_config: Path
    port: int = 0
    root_token: str | None = None
    vars: Mapping[str, str] = field(default_factory=dict)
    log: Path | None = None
    echo: bool = False
    initialize: bool = True


ALLOW_LOCAL = "MOORAGE_ALLOW_LOCAL_DESTINATIONS"
"""With 1 the Worker may reach this machine and its networks; without, workerd refuses, whatever name leads there."""

_COLLECTORS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""What whoever starts the edge lets it reach all the same."""


class LocalEdge:
    """A running local edge; a context manager. Clauses edge.local and edge.cold-start.

    After `start`: `url` without a trailing slash, `root_token`, `node_pid`, and `boot_ms`, milliseconds of the
    interpreter's start by phase with their `total`.
    """

    def __init__(self, config: EdgeConfig) -> None:
        self.config = config
        self.url = ""
        self.root_token = ""
        self.node_pid = 0
        self.boot_ms: dict[str, int] = {}
        self._state = StateFolder(config.state)
        self._worker: WorkerConfig | None = None
        self._process: subprocess.Popen[str] | None = None
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._asked = 0
        self._readers: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Start and return once requests are answered. Raises CommandFailed, EdgeFailed for most, with one line."""
        worker = read_config(self.config.wrangler_config)
        classes = entry_classes(self.config.bundle, worker.entry)
        known = {one.name for one in classes if one.kind == "durable-object"}
        for name in worker.durable_objects.values():
            if name not in known:
                raise EdgeFailed(f"{worker.entry}.py has no Durable Object class {name}, which wrangler.toml binds")
        self._state.open()
        try:
            self._worker = worker
            self._check_port()
            self.root_token = self._state.root_token(self.config.root_token)
            snapshot = ensure_snapshot(worker.compatibility_date)
            if self._wants_identity(worker) and migrations.are_missing(worker, self._state):
                self._state.note_set_up()
            migrations.apply(worker, self._state)
            plan = self._plan(worker, snapshot) | {"classes": [vars(one) for one in classes]}
            self._launch(plan)
            self._await_start()
            if self._state.is_to_be_set_up and self._wants_identity(worker):
                self._initialize_storage()
        except BaseException:
            self.kill()
            raise

    def _wants_identity(self, worker: WorkerConfig) -> bool:
        return self.config.initialize and "MOORAGE_PROJECT" in worker.vars

    def _initialize_storage(self) -> None:
        """What `moorage storage initialize` does. Storage that a restore left in halves is told of, and served as it is."""
        request = urllib.request.Request(f"{self.url}/storage/initialize", b"{}", method="POST")  # noqa: S310 - our own
        request.add_header("Authorization", f"Bearer {self.root_token}")
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS):  # noqa: S310 - our own
                self._state.set_up_is_done()
        except urllib.error.HTTPError as refused:
            told = refused.read().decode("utf-8", "replace")
            with suppress(ValueError):
                told = json.loads(told)["detail"]
            sys.stderr.write(f"moorage: the storage is not bound, and no runs are admitted: {told}\n")
        except OSError as error:
            raise EdgeFailed(f"the storage could not be initialized: {error}; start again") from error

    def _check_port(self) -> None:
        if self.config.port == 0:
            return
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", self.config.port))
            except OSError as error:
                raise EdgeFailed(f"port {self.config.port} cannot be used: {error.strerror}") from error

    def _plan(self, worker: WorkerConfig, snapshot: str) -> dict[str, Any]:
        served = self._state.run / "served"
        served.mkdir(exist_ok=True)
        variables = {**self._address(), **worker.vars, **self.config.vars, "MOORAGE_ROOT_TOKEN": self.root_token}
        return {
            "name": worker.name,
            "port": self.config.port,
            "bundle": str(self.config.bundle.absolute()),
            "bytecodeFolder": str(CACHE / "bytecode"),
            "runFolder": str(served),
            "cacheFolder": str(CACHE),
            "snapshotName": snapshot,
            "state": str(self._state.path),
            "compatibilityDate": worker.compatibility_date,
            # The platform's own interpreter cannot be fetched here, and ours takes its place.
            "compatibilityFlags": [one for one in worker.compatibility_flags if not one.startswith("python_workers")],
            "vars": variables,
            "inside": variables.get(ALLOW_LOCAL) == "1",
            "trusted": [url for name in _COLLECTORS if (url := variables.get(name))],
            "d1": [{"binding": one.binding, "id": one.id} for one in worker.d1],
            "r2": [{"binding": binding, "name": name} for binding, name in worker.r2.items()],
            "durableObjects": [{"binding": key, "className": name} for key, name in worker.durable_objects.items()],
            "entryModule": worker.entry,
            "crons": list(worker.crons),
        }

    def _address(self) -> dict[str, str]:
        """The edge's own address, where it is known before the start."""
        return {"MOORAGE_URL": f"http://127.0.0.1:{self.config.port}"} if self.config.port else {}

    def _launch(self, plan: dict[str, Any]) -> None:
        file = self._state.write_private("plan.json", json.dumps(plan))
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        self._log_path.write_text("")
        self._events = queue.Queue()
        # A session of its own: Ctrl-C reaches this process, which then stops Node in order.
        process = subprocess.Popen(
            [str(paths.node()), str(_SERVE), str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=paths.node_env(),
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        self._process = process
        self.node_pid = process.pid
        self._state.remember_processes([process.pid])
        self._readers = [
            threading.Thread(target=self._read_events, args=(process.stdout,), daemon=True),
            threading.Thread(target=self._read_log, args=(process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read_events(self, stream: TextIO) -> None:
        for line in stream:
            event = json.loads(line)
            if event["event"] == "boot":
                self.boot_ms = {**event["phases"], "total": event["ms"]}
            elif event["event"] == "restarted":
                self._note_processes()
            else:
                self._events.put(event)
        # Node is gone, perhaps killed: its workerd must not go on writing to the state folder.
        with suppress(ProcessLookupError):
            os.killpg(self.node_pid, signal.SIGKILL)
        self._events.put({"event": "ended"})

    def _read_log(self, stream: TextIO) -> None:
        for line in stream:
            if self.config.echo:
                sys.stderr.write(line)
            # Opened for each line: a disk that was full and has room again gets what comes next.
            with suppress(OSError), self._log_path.open("a", encoding="utf-8") as log:
                log.write(_COLOUR.sub("", line))

    def _await_start(self) -> None:
        event = self._next_event(START_SECONDS, "start")
        while event["event"] not in {"listening", "boot-failed", "failed", "ended"}:
            event = self._next_event(START_SECONDS, "start")
        if event["event"] == "listening":
            self.url = event["url"]
            self._note_processes()
            return
        if event["event"] == "ended":
            raise EdgeFailed(f"the local edge ended while starting; see {self._log_path}")
        if event.get("code") == "ERR_ADDRESS_IN_USE":
            raise EdgeFailed(f"port {self.config.port} is in use")
        raise EdgeFailed(" ".join(str(event["message"]).split()))

    def _next_event(self, seconds: float, what: str) -> dict[str, Any]:
        try:
            return self._events.get(timeout=seconds)
        except queue.Empty as error:
            raise EdgeFailed(f"the local edge did not {what} within {seconds:.0f} s; see {self._log_path}") from error

    def _note_processes(self) -> None:
        self._state.remember_processes([self.node_pid, *self._workerds()])

    def _workerds(self) -> list[int]:
        return [pid for pid, args in children(self.node_pid).items() if "workerd" in args.split()[0]]

    def workerd_pid(self) -> int:
        """The process that runs the Worker; another one after a restart. Raises EdgeFailed while there is none."""
        found = self._workerds()
        if not found:
            raise EdgeFailed("workerd is not running")
        return found[0]

    def kill_workerd(self) -> None:
        """SIGKILL workerd, as a crash would end it. Miniflare starts it again on the same port."""
        end([self.workerd_pid()])

    def kill(self) -> None:
        """SIGKILL Node and workerd, as a power cut would end them, and let go of the state folder."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._let_go()

    def stop(self) -> None:
        """Stop in order: running requests end, nothing is left behind. Does nothing when not running."""
        if self._process is None or self._process.stdin is None:
            return
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        self.kill()

    def _let_go(self) -> None:
        for reader in self._readers:
            reader.join(STOP_SECONDS)
        if self._process is not None:
            for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
                if stream is not None:
                    with suppress(BrokenPipeError):
                        stream.close()
        self._process = None
        self._readers = []
        self._state.close()

    def wait(self) -> int:
        """Wait until Node ends, which it does not by itself; return its exit status."""
        return 0 if self._process is None else self._process.wait()

    def trigger_cron(self, cron: str | None = None) -> None:
        """Fire one cron expression, or all of the config's, and return when the handler has. Raises EdgeFailed."""
        if self._process is None or self._process.stdin is None:
            raise EdgeFailed("the local edge is not running")
        self._asked += 1
        try:
            self._process.stdin.write(json.dumps({"id": self._asked, "cron": cron}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise EdgeFailed("the local edge ended") from error
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            event = self._next_event(max(0.0, deadline - time.monotonic()), "answer")
            if event["event"] == "ended":
                raise EdgeFailed("the local edge ended")
            if event["event"] == "answer" and event["id"] == self._asked:
                break
        if "error" in event or any(outcome != "ok" for outcome in event["outcomes"]):
            raise EdgeFailed(f"the cron handler failed: {event.get('error', 'see the log')}")

    @property
    def _log_path(self) -> Path:
        return self.config.log or self._state.path / "edge.log"

    def logs(self) -> str:
        """Everything the terminal would have seen since the start."""
        return self._log_path.read_text(encoding="utf-8")

    def d1_path(self, binding: str = "DB") -> Path:
        """The SQLite file of a D1 binding. Copy it together with its `-wal` file."""
        worker = self._worker or read_config(self.config.wrangler_config)
        return self._state.d1_file(next(one.id for one in worker.d1 if one.binding == binding))

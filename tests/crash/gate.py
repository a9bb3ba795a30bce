"""Where runs stop on command: before and after every write to their journal, and around every request that they make.

A gate numbers the points that each run passes. Armed with a number for a run, it holds that run at its point of that
number, so that one kill finds several exactly where they were wanted.
"""

import json
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler
from types import TracebackType
from typing import Final, Self

from tests.examples.upstream import Seen, Server

HELD_SECONDS: Final = 60.0
"""How long a run is held at most; a test that forgot to open fails by then."""


class Gate:
    """A gate; a context manager that serves `url` for writes. Runs are told apart by names that the test gives them.

    `holds_takes` says whether taking an execution is a point too. A host outside the Worker takes several with one request,
    which must not be held by one of them.
    """

    def __init__(self) -> None:
        self.holds_takes = True
        self._changed = threading.Condition()
        self._names: dict[str, str] = {}
        self._passed: defaultdict[str, list[str]] = defaultdict(list)
        self._armed: Mapping[str, int] | None = None
        self._held: dict[str, str] = {}
        gate = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                for execution in asked["executions"]:
                    gate.wrote(execution, asked["when"], asked["recording"])
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.open()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def name(self, execution: str, name: str) -> None:
        """Give an execution a name. Until it has one its first write waits, while the gate counts."""
        with self._changed:
            self._names[execution] = name
            self._changed.notify_all()

    def wrote(self, execution: str, when: str, recording: bool) -> None:
        """An execution's journal is about to be written to, or was."""
        if not recording and not self.holds_takes:
            return
        with self._changed:
            self._changed.wait_for(lambda: self._armed is None or execution in self._names, HELD_SECONDS)
            name = self._names.get(execution, execution)
        self.reach(name, f"{when} a write")

    def arrived(self, seen: Seen) -> None:
        """A request came, and nothing was done about it yet."""
        self.reach(seen.tag, f"request of {seen.name}")

    def done(self, seen: Seen) -> None:
        """A request had its effect, and has no answer yet."""
        self.reach(seen.tag, f"answer to {seen.name}")

    def reach(self, name: str, what: str) -> None:
        """Pass a point, or stand at it while the gate holds it."""
        with self._changed:
            self._passed[name].append(what)
            if self._armed is None or self._armed.get(name) != len(self._passed[name]):
                self._changed.notify_all()
                return
            self._held[name] = what
            self._changed.notify_all()
            self._changed.wait_for(lambda: name not in self._held, HELD_SECONDS)

    def arm(self, points: Mapping[str, int]) -> None:
        """Begin to count anew, and hold each run that has a number here at its point of that number."""
        with self._changed:
            self._passed.clear()
            self._held.clear()
            self._names.clear()
            self._armed = dict(points)
            self._changed.notify_all()

    def wait(self, names: Iterable[str], seconds: float) -> bool:
        """Whether each of these is held within so long."""
        wanted = set(names)
        with self._changed:
            return self._changed.wait_for(lambda: wanted <= self._held.keys(), seconds)

    def held(self) -> Mapping[str, str]:
        """Who is held, and at what."""
        with self._changed:
            return dict(self._held)

    def passed(self, name: str) -> list[str]:
        """The points that a run passed, in order, the one where it is held included."""
        with self._changed:
            return list(self._passed[name])

    def open(self) -> None:
        """Let everybody go, and hold nobody more."""
        with self._changed:
            self._armed = None
            self._held.clear()
            self._changed.notify_all()

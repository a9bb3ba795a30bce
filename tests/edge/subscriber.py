"""A subscriber of deliveries on this machine: it keeps what came, byte for byte, and answers as a test says."""

import json
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ops.setup import paths

VERIFY = """
import { Webhook } from "standardwebhooks";
import { Webhook as Svix } from "svix";
import { readFileSync } from "node:fs";
const { secret, deliveries } = JSON.parse(readFileSync(0, "utf8"));
for (const { headers, body } of deliveries) {
  const raw = Buffer.from(body, "base64");
  new Webhook(secret).verify(raw.toString("utf8"), headers);
  new Svix(secret).verify(raw, headers);
  for (const bad of [Buffer.concat([raw, Buffer.from(" ")]), raw.subarray(1)]) {
    let refused = 0;
    for (const library of [new Webhook(secret), new Svix(secret)]) {
      try { library.verify(bad.toString("utf8"), headers); } catch { refused += 1; }
    }
    if (refused !== 2) throw new Error("other bytes were taken");
  }
}
console.log(deliveries.length);
"""
"""Both libraries of npm take each delivery over its raw bytes, and neither takes other bytes."""


@dataclass(frozen=True)
class Got:
    """A delivery as it came. `at` is on this machine's steady clock."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


Answer = tuple[int, Sequence[tuple[str, str]]]
Answering = Callable[[Got, int], Answer]


class Subscriber:
    """What came, in the order in which it came. `answer` gets a delivery and how often its event came to its path; `seconds`
    is how long each answer takes. `most` is how many were under way at once."""

    def __init__(self) -> None:
        self.url = ""
        self.got: list[Got] = []
        self.times: Counter[tuple[str, str]] = Counter()
        self.answer: Answering = lambda got, times: (204, ())
        self.seconds = 0.0
        self.most = 0
        self._under_way = 0
        self._lock = threading.Lock()

    def take(self, got: Got) -> Answer:
        """Keep a delivery and say how it is answered."""
        with self._lock:
            self.got.append(got)
            self.times[got.path, got.id] += 1
            times = self.times[got.path, got.id]
            self._under_way += 1
            self.most = max(self.most, self._under_way)
        try:
            time.sleep(self.seconds)
            return self.answer(got, times)
        finally:
            with self._lock:
                self._under_way -= 1

    def of(self, path: str) -> list[Got]:
        """What came to a path."""
        return [got for got in self.got if got.path == path]

    def until(self, number: int, path: str, seconds: float = 20) -> list[Got]:
        """What came to a path once so many have."""
        end = time.monotonic() + seconds
        while len(self.of(path)) < number:
            assert time.monotonic() < end, f"{len(self.of(path))} of {number} came to {path}"
            time.sleep(0.01)
        return self.of(path)

    def check_bytes(self) -> None:
        """Whatever came more than once was the same each time."""
        bodies = defaultdict(set)
        for got in self.got:
            bodies[got.id].add(got.body)
        assert all(len(told) == 1 for told in bodies.values())


@contextmanager
def subscriber(port: int = 0) -> Iterator[Subscriber]:
    """A running one; it ends with the block."""
    one = Subscriber()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, extra = one.take(Got(self.path, headers, body, time.monotonic()))
            try:
                self.send_response(status)
                for name, value in extra:
                    self.send_header(name, value)
                if status != 204:
                    self.send_header("content-length", "0")
                self.end_headers()
            except OSError:
                self.close_connection = True

        do_GET = do_POST  # noqa: N815 - the names are the standard library's

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that was killed is what some tests are about."""

    server = Server(("127.0.0.1", port), Handler)
    one.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield one
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def verified_by_npm(secret: str, deliveries: Sequence[Got]) -> int:
    """How many deliveries npm's libraries verified; all of them, or this raises."""
    import base64

    told = [{"headers": one.headers, "body": base64.b64encode(one.body).decode()} for one in deliveries]
    command = [str(paths.node()), "--input-type=module", "-e", VERIFY]
    given = json.dumps({"secret": secret, "deliveries": told})
    done = subprocess.run(command, input=given, cwd=paths.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout)

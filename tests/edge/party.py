"""Another party for runs on the real edge: a server on this machine that bodies send requests to."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Answer = tuple[int, dict[str, str], Any]
Route = Callable[[dict[str, Any]], Answer]


class Party:
    """What was asked of the server, and how it answers. `asked` counts requests by path, `keys` lists the idempotency keys.

    `/count/<name>` answers how often it was asked; `/flaky/<name>?fails=n&after=s` answers 503 that often first;
    `/hang` answers nothing until `let_go`, and notes in `left` when a client gave up; `on` adds routes.
    """

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.keys: dict[str, list[str]] = {}
        self.bodies: dict[str, list[Any]] = {}
        self.at: dict[str, list[float]] = {}
        self.left: list[float] = []
        self.url = ""
        self._lock = threading.Lock()
        self._go = threading.Event()
        self._routes: dict[str, Route] = {}

    def token(self, run: str) -> str:
        """The token that a run has handed to `/hand`; waits for it."""
        end = time.monotonic() + 30
        while time.monotonic() < end:
            for told in list(self.bodies.get("/hand", ())):
                if told["run"] == run:
                    return str(told["token"])
            time.sleep(0.005)
        raise AssertionError(f"{run} handed over no token")

    def on(self, path: str, route: Route) -> None:
        """Answer a path with what `route` makes of the request's JSON."""
        self._routes[path] = route

    def let_go(self) -> None:
        """Answer what hangs."""
        self._go.set()
        self._go = threading.Event()

    def note(self, path: str, key: str | None, body: Any) -> int:
        """Count a request; answers how often its path was asked."""
        with self._lock:
            self.asked[path] += 1
            self.keys.setdefault(path, []).append(key or "")
            self.bodies.setdefault(path, []).append(body)
            self.at.setdefault(path, []).append(time.monotonic())
            return self.asked[path]

    def answer(self, path: str, query: dict[str, list[str]], body: Any, times: int) -> Answer:
        """What a path is answered."""
        if path in self._routes:
            return self._routes[path](body)
        if path.startswith("/flaky/") and times <= int(query["fails"][0]):
            return 503, {"retry-after": query["after"][0]} if "after" in query else {}, {"fails": times}
        if path.startswith("/hang"):
            self._go.wait(60)
        return 200, {}, {"times": times}


@contextmanager
def party() -> Iterator[Party]:
    """A running server; it ends with the block."""
    one = Party()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one(self) -> None:
            parts = urlsplit(self.path)
            size = int(self.headers.get("content-length") or 0)
            text = self.rfile.read(size)
            body = json.loads(text) if text else None
            times = one.note(parts.path, self.headers.get("idempotency-key"), body)
            if parts.path.startswith("/hang"):
                threading.Thread(target=self._watch, daemon=True).start()
            status, headers, told = one.answer(parts.path, parse_qs(parts.query), body, times)
            content = json.dumps(told).encode()
            try:
                self.send_response(status)
                for name, value in {**headers, "content-type": "application/json"}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            except OSError:
                self.close_connection = True

        def _watch(self) -> None:
            """Notice that the client has gone: a peek at its connection gives nothing then."""
            import socket

            try:
                if self.connection.recv(1, socket.MSG_PEEK) == b"":
                    one.left.append(time.monotonic())
            except OSError:
                one.left.append(time.monotonic())

        do_GET = do_POST = do_PUT = handle_one  # noqa: N815 - the names are the standard library's

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 1024  # hundreds of runs come at once

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that was killed is what some tests are about."""

    server = Server(("127.0.0.1", 0), Handler)
    one.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield one
    finally:
        one.let_go()
        server.shutdown()
        server.server_close()
        thread.join(5)

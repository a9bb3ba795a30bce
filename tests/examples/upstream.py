"""The other side of the examples: a shop, a bank, a carrier, a feed and the regions' books, as one small HTTP server.

It honours `Idempotency-Key` as a good vendor does: the first request under a key has the effect, later ones get its answer.
So what it counts tells two things: how often a request came, and how often something happened.
"""

import itertools
import json
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

ITEMS: Final = 7
PAGE: Final = 3
REGIONS: Final = {"north": 120, "south": 80, "west": 45}


@dataclass(frozen=True)
class Seen:
    """One request as it arrived; `number` counts from 1."""

    number: int
    method: str
    path: str
    query: Mapping[str, str]
    key: str | None
    body: Any
    trace: str | None


@dataclass(frozen=True)
class Answer:
    """What a request is answered with. With `drop` the connection is closed instead, after the effect; `effect` False
    leaves the effect out."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    drop: bool = False
    effect: bool = True


TOO_MANY: Final = Answer(429, {"error": "slow down"}, {"Retry-After": "1"}, effect=False)
BROKEN: Final = Answer(503, {"error": "try later"}, effect=False)
DROPPED: Final = Answer(drop=True)


class Upstream:
    """The server, on a port of its own; a context manager.

    `next_answers[path]` are given in turn instead of the usual answer. `arrived` is called with each request before
    anything is done about it, and `done` after its effect and before its answer: both in the server's thread, so that a
    test may kill whoever asked at exactly that point.
    """

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.effects: dict[str, Any] = {}
        self.next_answers: defaultdict[str, deque[Answer]] = defaultdict(deque)
        self.arrived: Callable[[Seen], None] = lambda _: None
        self.done: Callable[[Seen], None] = lambda _: None
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                upstream._serve(self)

            def do_POST(self) -> None:
                upstream._serve(self)

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def forget(self) -> None:
        """Begin to count anew."""
        with self._lock:
            self.seen.clear()
            self.effects.clear()
            self.next_answers.clear()
            self._numbers = itertools.count(1)
        self.arrived = self.done = lambda _: None

    def times(self, path: str) -> int:
        """How often a path was asked for."""
        return sum(one.path == path for one in self.seen)

    def keys(self) -> dict[str, Counter[str]]:
        """The keys that each path's requests carried, with how often."""
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for one in self.seen:
            found[one.path][one.key or ""] += 1
        return found

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        size = int(handler.headers.get("content-length") or 0)
        text = handler.rfile.read(size)
        parts = urlsplit(handler.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        headers = handler.headers
        with self._lock:
            seen = Seen(
                next(self._numbers),
                handler.command,
                parts.path,
                query,
                headers.get("idempotency-key"),
                json.loads(text) if text else None,
                headers.get("traceparent"),
            )
            self.seen.append(seen)
            waiting = self.next_answers[parts.path]
            told = waiting.popleft() if waiting else Answer()
        self.arrived(seen)
        usual = self._effect(seen) if told.effect else Answer()
        self.done(seen)
        if told.drop:
            handler.close_connection = True
            return
        try:
            self._answer(handler, usual if told == Answer() else told)
        except OSError:
            handler.close_connection = True  # whoever asked is gone

    def _effect(self, seen: Seen) -> Answer:
        """What happens, once for each key of an unsafe request."""
        if seen.method == "GET":
            return _look_up(seen)
        with self._lock:
            known = seen.key and self.effects.get(seen.key)
            if known is None or known == "":
                known = {"id": f"{seen.path.strip('/').replace('/', '-')}-{len(self.effects) + 1}"}
                self.effects[seen.key or f"no key {seen.number}"] = known
            return Answer(201, known)

    def _answer(self, handler: BaseHTTPRequestHandler, answer: Answer) -> None:
        content = json.dumps(answer.body).encode()
        handler.send_response(answer.status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(content)),
            **answer.headers,
        }.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content)


def _look_up(seen: Seen) -> Answer:
    """What is read: a page of the feed, or a region's book."""
    if seen.path == "/feed":
        first = int(seen.query.get("after", "0"))
        items = [{"id": f"item-{n}", "amount": n * 10} for n in range(first + 1, min(first + PAGE, ITEMS) + 1)]
        last = first + len(items)
        return Answer(200, {"items": items, "next": str(last) if last < ITEMS else None})
    place = seen.path.removeprefix("/regions/").removesuffix("/sales")
    if place in REGIONS:
        return Answer(200, {"total": REGIONS[place]})
    return Answer(404, {"error": f"there is no region {place}"})

"""The other side of the examples: a shop, a bank, a carrier, a feed and the regions' books, as one small HTTP server.

It honours `Idempotency-Key` as a good vendor does: the first request under a key has the effect, later ones get its answer.
So what it counts tells two things: how often a request came, and how often something happened.

The first segment of every path is a tag, by which runs are told apart: an example is given `<url>/<tag>` to ask.
"""

import hashlib
import itertools
import json
import sys
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
    """One request as it arrived; `number` counts from 1, `path` is what follows the tag."""

    number: int
    tag: str
    method: str
    path: str
    query: Mapping[str, str]
    key: str | None
    body: Any
    trace: str | None

    @property
    def name(self) -> str:
        """What it asks for, tag and key aside."""
        query = "&".join(f"{name}={value}" for name, value in sorted(self.query.items()))
        return f"{self.method} {self.path}{'?' if query else ''}{query}"


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


class Server(ThreadingHTTPServer):
    """An HTTP server whose clients may be killed at any time: a connection that breaks is no fault of anybody's."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Upstream:
    """The server, on a port of its own; a context manager.

    `next_answers[tag, path]` are given in turn instead of the usual answer. `arrived` is called with each request before
    anything is done about it, and `done` after its effect and before its answer: both in the server's thread, so that a
    test may kill whoever asked at exactly that point.
    """

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.effects: dict[str, Any] = {}
        self.next_answers: defaultdict[tuple[str, str], deque[Answer]] = defaultdict(deque)
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

        self._server = Server(("127.0.0.1", 0), Handler)
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

    def base(self, tag: str) -> str:
        """The address that a run of this tag asks."""
        return f"{self.url}/{tag}"

    def of(self, tag: str) -> list[Seen]:
        """What came under a tag, in order."""
        return [one for one in self.seen if one.tag == tag]

    def keys(self, tag: str) -> dict[str, Counter[str]]:
        """The keys that each request under a tag carried, with how often; the request by method, path, query and body."""
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for one in self.of(tag):
            found[one.name][one.key or ""] += 1
        return dict(found)

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        size = int(handler.headers.get("content-length") or 0)
        text = handler.rfile.read(size)
        if len(text) < size:
            handler.close_connection = True  # whoever asked was killed before it had asked
            return
        parts = urlsplit(handler.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        headers = handler.headers
        with self._lock:
            seen = Seen(
                next(self._numbers),
                parts.path.split("/")[1],
                handler.command,
                "/" + parts.path.lstrip("/").partition("/")[2],
                query,
                headers.get("idempotency-key"),
                json.loads(text) if text else None,
                headers.get("traceparent"),
            )
            self.seen.append(seen)
            waiting = self.next_answers[seen.tag, seen.path]
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
        made = hashlib.sha256(json.dumps([seen.path, _untold(seen.body)], sort_keys=True).encode()).hexdigest()[:8]
        with self._lock:
            key = seen.key or f"no key {seen.number}"
            known = self.effects.setdefault(key, {"id": f"{seen.path.strip('/').replace('/', '-')}-{made}"})
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


def _untold(body: Any) -> Any:
    """What is the same for every run of an example: not who asks, nor where it wants to be answered."""
    return {name: value for name, value in body.items() if name not in ("order", "url")} if isinstance(body, dict) else body


def _look_up(seen: Seen) -> Answer:
    """What is read: a page of the feed, or a region's book."""
    if seen.path == "/feed":
        first = int(seen.query.get("after", "0"))
        items = [
            {"feed": seen.tag, "id": f"item-{n}", "amount": n * 10} for n in range(first + 1, min(first + PAGE, ITEMS) + 1)
        ]
        last = first + len(items)
        return Answer(200, {"items": items, "next": str(last) if last < ITEMS else None})
    place = seen.path.removeprefix("/regions/").removesuffix("/sales")
    if place in REGIONS:
        return Answer(200, {"total": REGIONS[place]})
    return Answer(404, {"error": f"there is no region {place}"})

"""A bank that is asked for payments, and that answers as other parties do on their worst day.

It counts what it has done by idempotency key. Where it promises a window it does nothing again for a key it knows, and
forgets the key when the window is over; where it promises none it pays each time it is asked.
"""

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Literal, Self

Trouble = Literal["slow", "late", "hang", "drop", "cut", "busy", "later", "broken", "between", "lost-between"]
"""What happens to one request: it waits before it is paid, or after; it is paid and has no answer in time, or none at all;
it is cut off unpaid; it is refused with 429 (and a date), or 500; it is paid, or not, and something between says 502."""

TROUBLES: Final[tuple[Trouble, ...]] = (
    "slow",
    "late",
    "hang",
    "drop",
    "cut",
    "busy",
    "later",
    "broken",
    "between",
    "lost-between",
)
SLOW_SECONDS: Final = 0.5
HANG_SECONDS: Final = 2.5
LATER_SECONDS: Final = 40
"""More than a run sits out."""

Payment = tuple[str, int]
"""The tag of an order, and the number of the payment in it."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is what this is about."""


@dataclass
class Paid:
    """What the bank did under one key."""

    payment: Payment
    receipt: str
    times: int = 1
    first: float = field(default=0.0)


class Bank:
    """The bank, which serves while its context lasts. `troubles` are those of a payment's first requests, in order;
    `windows` says of each destination how long its keys are kept. `now` is the driven clock, as far as it was told."""

    def __init__(self, windows: Mapping[str, int | None], slack: float) -> None:
        self.troubles: defaultdict[Payment, Sequence[Trouble]] = defaultdict(tuple)
        self.paid: dict[str, Paid] = {}
        self.keys: defaultdict[Payment, set[str]] = defaultdict(set)
        self.asked: Counter[Payment] = Counter()
        self.met: Counter[str] = Counter()
        self.last = time.monotonic()
        self.offset = 0.0
        self._windows = windows
        self._slack = slack
        self._lock = threading.Lock()
        self._address = ("127.0.0.1", 0)
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._address[1]}"

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def open(self) -> None:
        """Listen, at the same address as before."""
        self._server = _Server(self._address, type("Handler", (_Handler,), {"bank": self}))
        self._address = ("127.0.0.1", self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        """Refuse connections from now on."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    # --- what it does -------------------------------------------------------------------------------------------------

    def arrived(self, payment: Payment, key: str) -> Trouble | None:
        """A request has come: what happens to it."""
        with self._lock:
            self.last = time.monotonic()
            self.keys[payment].add(key)
            number = self.asked[payment]
            self.asked[payment] += 1
            troubles = self.troubles[payment]
            trouble = troubles[number] if number < len(troubles) else None
            self.met[trouble or "none"] += 1
            return trouble

    def pay(self, destination: str, payment: Payment, key: str) -> str:
        """Pay, unless the key is known: the receipt."""
        with self._lock:
            self.last = time.monotonic()
            window = self._windows[destination]
            now = time.time() + self.offset
            known = self.paid.get(key)
            if known is None:
                known = self.paid[key] = Paid(payment, f"rcp-{len(self.paid) + 1}", first=now)
            elif window is None or now >= known.first + window + self._slack:
                known.times += 1
            return known.receipt

    def of(self, payment: Payment) -> list[Paid]:
        """What was done for a payment, under whatever keys."""
        with self._lock:
            return [self.paid[key] for key in self.keys[payment] if key in self.paid]


class _Handler(BaseHTTPRequestHandler):
    # One request each connection: a bank that is closed answers nobody.
    protocol_version = "HTTP/1.0"
    bank: Bank

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        payment, key = (asked["tag"], asked["number"]), self.headers.get("idempotency-key") or ""
        trouble = self.bank.arrived(payment, key)
        if trouble in ("cut", "busy", "later", "broken", "lost-between"):
            self._refuse(trouble)
        else:
            self._pay(self.path.split("/")[1], payment, key, trouble)

    def _pay(self, destination: str, payment: Payment, key: str, trouble: Trouble | None) -> None:
        if trouble == "slow":
            time.sleep(SLOW_SECONDS)
        receipt = self.bank.pay(destination, payment, key)
        if trouble in ("late", "hang"):
            time.sleep(SLOW_SECONDS if trouble == "late" else HANG_SECONDS)
        if trouble == "between":
            self._answer(502, {})
        elif trouble != "drop":
            self._answer(200, {"receipt": receipt})

    def _refuse(self, trouble: Trouble) -> None:
        if trouble == "later":
            self._answer(429, {}, {"Retry-After": str(LATER_SECONDS)})
        elif trouble != "cut":
            self._answer({"busy": 429, "broken": 500}.get(trouble, 502), {})

    def _answer(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Type": "application/json"}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Says nothing."""

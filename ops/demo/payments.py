"""A payment service as a process of its own: it charges whatever it is asked to, as often as it is asked.

One JSON line of instructions comes in; its address goes out, then a line for each charge as soon as it is made. The first
charge's answer never comes, as if the network had lost it. It ends when its standard input does.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FIRST = 1001


class Desk(BaseHTTPRequestHandler):
    """Takes requests to charge."""

    made: list[str] = []  # noqa: RUF012 - one for all requests
    lock = threading.Lock()

    def do_POST(self) -> None:
        """Charge, note it, and answer; the first time only charge."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.lock:
            charge = f"ch_{FIRST + len(self.made)}"
            self.made.append(charge)
        report(charge=charge, key=self.headers.get("Idempotency-Key"), cents=asked["cents"])
        if charge == f"ch_{FIRST}":
            threading.Event().wait()
        answer = json.dumps({"id": charge}).encode()
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""


def report(**facts: Any) -> None:
    """One line for the story."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Serve until standard input ends."""
    sys.stdin.readline()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Desk)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    report(url=f"http://127.0.0.1:{server.server_address[1]}")
    sys.stdin.read()


if __name__ == "__main__":
    main()

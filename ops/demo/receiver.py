"""A team's chat as a process of its own: it takes what is delivered to it, and says whether the signature holds.

One JSON line with its secret comes in; its address goes out, then a line for each delivery. It ends when its standard
input does.
"""

import json
import sys
import threading
from http.server import ThreadingHTTPServer
from typing import Any

from standardwebhooks import Webhook

from ops.receive import Received, desk


def report(**facts: Any) -> None:
    """One line for the story."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def keep(received: Received) -> int:
    """Tell the story, and take it."""
    report(delivery=received.headers.get("webhook-id"), signature=received.signature, event=received.wire()["body"])
    return 200


def main() -> None:
    """Serve until standard input ends."""
    secret = json.loads(sys.stdin.readline())["secret"]
    server = ThreadingHTTPServer(("127.0.0.1", 0), desk([Webhook(secret)], keep))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    report(url=f"http://127.0.0.1:{server.server_address[1]}")
    sys.stdin.read()


if __name__ == "__main__":
    main()

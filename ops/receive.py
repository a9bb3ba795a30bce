"""`moorage receive`: a destination on this machine, to try deliveries with before there is a real one."""

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated, Any

import typer
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from moorage.catalog.signatures import standard_key
from ops import remote
from ops.failure import CommandFailed
from ops.timeline import printable

LARGEST = 1 << 20
"""Bytes of a body that are read; no delivery of Moorage has as many."""

Keep = Callable[["Received"], int]


@dataclass(frozen=True)
class Received:
    """A request as it came. `signature` is `verified`, `unsigned` or `wrong`, or `unchecked` where no secret is known."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    signature: str

    def wire(self) -> dict[str, Any]:
        """The request as JSON; a body that is none is told as text."""
        try:
            body = json.loads(self.body)
        except ValueError:
            body = self.body.decode(errors="replace")
        return {"path": self.path, "signature": self.signature, "headers": dict(self.headers), "body": body}

    def line(self) -> str:
        """The request in one line."""
        event = self.wire()["body"]
        told = event if isinstance(event, dict) else {}
        kept = ("webhook-id", "moorage-attempt", "moorage-generation")
        event_id, attempt, generation = (self.headers.get(name, "-") for name in kept)
        again = "" if generation in {"1", "-"} else f"  generation {generation}"
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        what = f"{told.get('type', '-')}  {told.get('subject', '-')}"
        return printable(f"{now}  {self.signature:<9}  {event_id}  {what}  try {attempt}{again}")


def command(
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port on 127.0.0.1; 0 takes any free one.")] = 9000,
    secret: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The environment's name of the secret that deliveries are signed with."),
    ] = None,
    status: Annotated[int, typer.Option(min=200, max=599, help="What to answer what is not forged.")] = 200,
    limit: Annotated[int | None, typer.Option(min=1, help="End after so many.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each request whole, as JSON, one a line.")] = False,
) -> None:
    """Receive deliveries on this machine, verify their signatures, and print them, until Ctrl-C.

    What is forged or unsigned is answered 401, when a secret is named. The edge must have been started with --allow-local.

    Example: moorage receive --port 9000 --secret CRM_SECRET
    """
    verifiers = _verifiers(secret)
    told, lock, over = 0, threading.Lock(), threading.Event()

    def keep(received: Received) -> int:
        nonlocal told
        with lock:
            if as_json:
                remote.print_json(received.wire())
            else:
                print(received.line(), flush=True)
            told += 1
            if told == limit:
                over.set()
        return 401 if received.signature in {"wrong", "unsigned"} else status

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), desk(verifiers, keep))
    except OSError as error:
        raise CommandFailed(f"port {port}: {error.strerror}") from None
    server.daemon_threads = False  # whoever is being answered gets the answer
    with server:
        print(f"listening on http://127.0.0.1:{server.server_address[1]}", file=sys.stderr, flush=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            over.wait()
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        finally:
            server.shutdown()


def _verifiers(name: str | None) -> list[Webhook] | None:
    """One for each secret of a binding, which may hold several with spaces between while one takes the place of another."""
    if name is None:
        return None
    if not os.environ.get(name, "").strip():
        raise CommandFailed(f"the environment has no {name}")
    keys = [standard_key(secret) for secret in os.environ[name].split()]
    if None in keys:
        # The library would take what the deployment refuses to sign with.
        raise CommandFailed(f"{name} is no secret of Standard Webhooks: base64 behind whsec_")
    return [Webhook(key) for key in keys if key is not None]


def desk(verifiers: list[Webhook] | None, keep: Keep) -> type[BaseHTTPRequestHandler]:
    """A handler of requests that takes deliveries, whose signature any of `verifiers` may have made, and hands each to
    `keep`, which says with what status to answer."""

    class Desk(BaseHTTPRequestHandler):
        """Takes deliveries."""

        timeout = 5

        def do_POST(self) -> None:
            """Look at the signature, keep what came, and answer."""
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal() or int(length) > LARGEST:
                self._answer(413)
                return
            body = self.rfile.read(int(length))
            headers = {name.lower(): value for name, value in self.headers.items()}
            self._answer(keep(Received(self.path, headers, body, _judged(verifiers, headers, body))))

        do_PUT = do_PATCH = do_POST  # a destination may name these instead  # noqa: N815

        def _answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Say nothing."""

    return Desk


def _judged(verifiers: list[Webhook] | None, headers: Mapping[str, str], body: bytes) -> str:
    if verifiers is None:
        return "unchecked"
    if "webhook-signature" not in headers:
        return "unsigned"
    return "verified" if any(_verifies(one, headers, body) for one in verifiers) else "wrong"


def _verifies(verifier: Webhook, headers: Mapping[str, str], body: bytes) -> bool:
    try:
        verifier.verify(body, dict(headers), json_parse=False)
    except (WebhookVerificationError, ValueError):
        return False
    return True

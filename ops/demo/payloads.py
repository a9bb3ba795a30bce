"""Real GitHub webhook payloads, as the npm package @octokit/webhooks-examples records them."""

import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Any

import rfc8785

from ops.failure import CommandFailed
from ops.setup import paths

EXAMPLES = paths.NODE_MODULES / "@octokit" / "webhooks-examples" / "api.github.com" / "index.json"


@dataclass(frozen=True)
class Delivery:
    """One webhook: the event's name, which GitHub sends as a header, and the payload."""

    event: str
    payload: dict[str, Any]

    @property
    def body(self) -> dict[str, Any]:
        """The record's body: the payload with the event's name beside it."""
        return {"event": self.event, **self.payload}


def deliveries() -> list[Delivery]:
    """Every example, in the package's order. Raises CommandFailed when the package is not there."""
    if not EXAMPLES.is_file():
        raise CommandFailed("the example payloads are not installed; run ./moorage setup --again")
    events = json.loads(EXAMPLES.read_text(encoding="utf-8"))
    return [Delivery(event["name"], payload) for event in events for payload in event["examples"]]


def at(body: Any, path: str) -> Any:
    """What lies at a dotted path, or None."""
    for key in path.split("."):
        body = body.get(key) if isinstance(body, dict) else None
    return body


def signed(raw: bytes, secret: str, delivery: str = "72d3162e-cc78-11e3-81ab-4c9367dc0958") -> dict[str, str]:
    """The headers under which GitHub would deliver these bytes: its signature is HMAC-SHA256 in hex over the body."""
    signature = hmac.new(secret.encode(), raw, hashlib.sha256).hexdigest()
    named = {"Content-Type": "application/json", "X-GitHub-Event": "workflow_run", "X-GitHub-Delivery": delivery}
    return {**named, "X-Hub-Signature-256": f"sha256={signature}"}


def digest(value: Any) -> str:
    """SHA-256 over the RFC 8785 encoding, computed apart from the product: equal for equal JSON values alone."""
    return hashlib.sha256(rfc8785.dumps(value)).hexdigest()

"""Senders of webhooks for tests on the real edge: they sign, and what they did is looked at from outside."""

import hashlib
import hmac
import http.client
import json
import sqlite3
from contextlib import closing, suppress
from typing import Any
from urllib.parse import urlsplit

import httpx

from ops.local.edge import LocalEdge
from tests.edge.client import client, fresh, good

SECRET = "case-secret-1"
FORM = "application/x-www-form-urlencoded"


def signature(body: bytes, secret: str = SECRET) -> str:
    """The hexadecimal HMAC-SHA256 of a body."""
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


class Shop:
    """A sender of its own, which signs as GitHub does and has no credential."""

    def __init__(self, edge: LocalEdge, **event: Any) -> None:
        self.edge, self.name = edge, fresh("shop")
        self.path = f"/webhooks/{self.name}"
        declared = {"scheme": "github", "secrets": [SECRET], "subject": "shop"} | ({"event": event} if event else {})
        with client(edge) as api:
            good(api.put(f"/senders/{self.name}", json=declared))

    def headers(self, body: bytes, delivery: str | None = None, **more: str) -> dict[str, str]:
        """The headers of a delivery, with an id of its own unless one is given; what is given as "" is left out."""
        told = {
            "content-type": "application/json",
            "x-hub-signature-256": f"sha256={signature(body)}",
            "x-github-delivery": fresh("d") if delivery is None else delivery,
            **{name.replace("_", "-"): value for name, value in more.items()},
        }
        return {name: value for name, value in told.items() if value}

    def send(self, body: bytes, delivery: str | None = None, **more: str) -> httpx.Response:
        """One delivery."""
        return httpx.post(self.edge.url + self.path, content=body, headers=self.headers(body, delivery, **more), timeout=60)

    def send_raw(self, body: bytes, headers: list[tuple[str, bytes]]) -> tuple[int, Any]:
        """One delivery with headers exactly as they are; status and answer."""
        connection = http.client.HTTPConnection(urlsplit(self.edge.url).netloc, timeout=60)
        with closing(connection):
            connection.putrequest("POST", self.path, skip_accept_encoding=True)
            for name, value in [*headers, ("content-length", str(len(body)).encode())]:
                connection.putheader(name, value)
            with suppress(BrokenPipeError, ConnectionResetError):  # who is refused early is answered before all is sent
                connection.endheaders(body)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if b"json" in answer.getheader("content-type", "").encode() else text

    def events(self) -> list[dict[str, Any]]:
        """What is stored of it, oldest first, as the API shows it."""
        found: list[dict[str, Any]] = []
        cursor = None
        with client(self.edge) as api:
            while True:
                page = {"source": self.path, "limit": "500"} | ({"cursor": cursor} if cursor else {})
                answer = good(api.get("/events", params=page))
                found += answer["items"]
                cursor = answer["next_cursor"]
                if cursor is None:
                    return found

    def rows(self) -> tuple[int, int]:
        """How many events of it the database itself holds, and how many entries of history that say one was accepted."""
        with closing(sqlite3.connect(f"file:{self.edge.d1_path()}?mode=ro", uri=True)) as database:
            events = database.execute("SELECT count(*) FROM events WHERE source = ?", (self.path,)).fetchone()
            told = database.execute(
                "SELECT count(*) FROM history WHERE type = 'event.accepted' AND data ->> 'source' = ?", (self.path,)
            ).fetchone()
        return events[0], told[0]

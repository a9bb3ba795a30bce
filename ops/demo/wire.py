"""HTTP as every part of the demo speaks it: the standard library, one connection a request, no retries."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlencode, urlsplit

ANSWER_SECONDS = 60.0


class Unanswered(Exception):
    """The connection ended without an answer; whether the request was carried out is unknown."""


class Refused(Exception):
    """An answer was another one than the story can go on with."""


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    raw: bytes

    @property
    def value(self) -> Any:
        """The body as JSON. Raises Refused when it is none."""
        try:
            return json.loads(self.raw)
        except ValueError:
            raise Refused(f"an answer with status {self.status} is not JSON") from None

    @property
    def outcome(self) -> str:
        """The status, and the name of the error if it is one."""
        if self.status < 400:
            return str(self.status)
        try:
            return f"{self.status} {json.loads(self.raw)['code']}"
        except (ValueError, KeyError, TypeError):
            return str(self.status)


class Client:
    """Speaks to Moorage at `url` with one credential, or with none."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url
        self._token = token
        self._address = urlsplit(url).netloc

    def send(self, method: str, path: str, raw: bytes | None, headers: Mapping[str, str]) -> Answer:
        """One request with these bytes. Raises Unanswered."""
        known = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        connection = HTTPConnection(self._address, timeout=ANSWER_SECONDS)
        try:
            connection.request(method, path, raw, {**known, **headers})
            response = connection.getresponse()
            return Answer(response.status, response.read())
        except (OSError, HTTPException) as error:
            raise Unanswered(f"{method} {path.partition('?')[0]}: {error}") from error
        finally:
            connection.close()

    def call(self, method: str, path: str, body: Any = None, key: str | None = None, **query: Any) -> Answer:
        """One request with a JSON body, if any, and an Idempotency-Key, if given. Raises Unanswered."""
        headers = {"Idempotency-Key": key} if key else {}
        raw = None
        if body is not None:
            raw = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        return self.send(method, path + (f"?{urlencode(query)}" if query else ""), raw, headers)

    def get(self, path: str, **query: Any) -> Any:
        """The JSON at a path. Raises Refused unless it is there."""
        return self._accepted(self.call("GET", path, **query), f"GET {path}")

    def put(self, path: str, body: Any) -> Any:
        """Put and return the answer's JSON. Raises Refused."""
        return self._accepted(self.call("PUT", path, body), f"PUT {path}")

    def post(self, path: str, body: Any, key: str | None = None) -> Any:
        """Post and return the answer's JSON. Raises Refused."""
        return self._accepted(self.call("POST", path, body, key), f"POST {path}")

    def query(self, kind: str, match: Any = None, state: str | None = None, page: int = 100) -> list[Any]:
        """Every record of a kind that matches, over as many pages as it takes. Raises Refused."""
        asked = {"kind": kind, "match": match or {}, "limit": page} | ({"state": state} if state else {})
        found: list[Any] = []
        cursor = None
        while True:
            answer = self.post("/records/query", asked | ({"cursor": cursor} if cursor else {}))
            found += answer["items"]
            cursor = answer["next_cursor"]
            if cursor is None:
                return found

    def history(self, **query: Any) -> Iterator[Any]:
        """Entries of the history, oldest first. Raises Refused."""
        cursor: dict[str, Any] = {}
        while True:
            answer = self.get("/history", limit=500, **query, **cursor)
            yield from answer["items"]
            if answer["next_cursor"] is None:
                return
            cursor = {"cursor": answer["next_cursor"]}

    @staticmethod
    def _accepted(answer: Answer, what: str) -> Any:
        if answer.status >= 400:
            detail = answer.value.get("detail", "") if answer.raw else ""
            raise Refused(f"{what} was answered {answer.outcome}: {detail}")
        return answer.value

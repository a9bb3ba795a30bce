"""A small HTTP client for tests of the local edge."""

import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from ops.local.edge import LocalEdge


def ask(edge: LocalEdge, path: str, body: bytes | None = None) -> tuple[int, str]:
    """One request on a connection of its own: status and text."""
    return ask_url(edge.url + path, body)


def ask_url(url: str, body: bytes | None = None, token: str | None = None) -> tuple[int, str]:
    """One request on a connection of its own: status and text."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    try:
        connection.request("GET" if body is None else "POST", parts.path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def get(edge: LocalEdge, path: str, body: bytes | None = None) -> Any:
    """The JSON of an answer that must be a 200."""
    status, text = ask(edge, path, body)
    assert status == 200, f"{path}: {status} {text}"
    return json.loads(text)


def get_when_back(edge: LocalEdge, path: str) -> Any:
    """As `get`, but patient with a workerd that is being started again."""
    end = time.monotonic() + 60
    while True:
        try:
            return get(edge, path)
        except (OSError, http.client.HTTPException):
            if time.monotonic() > end:
                raise


def ask_all(edge: LocalEdge, path: str, times: int) -> list[tuple[int, str]]:
    """The same request many times at once."""
    with ThreadPoolExecutor(times) as pool:
        return list(pool.map(lambda _: ask(edge, path), range(times)))


def await_log(edge: LocalEdge, text: str, after: int = 0, seconds: float = 20, times: int = 1) -> str:
    """Wait until the edge's log, which comes through a pipe of its own, has the text so often: all of it past `after`."""
    end = time.monotonic() + seconds
    while (shown := edge.logs()[after:]).count(text) < times:
        assert time.monotonic() < end, shown
        time.sleep(0.02)
    return shown


def until(edge: LocalEdge, path: str, key: str, tries: int = 400) -> Any:
    """Ask again until the answered object has `key`: for work that ends after the answer that began it."""
    for _ in range(tries):
        answer = get(edge, path)
        if key in answer:
            return answer
    raise AssertionError(f"{path} never had {key}")

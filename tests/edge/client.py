"""HTTP clients of a local edge for tests, and what every answer must be."""

import uuid
from collections.abc import Mapping
from typing import Any

import httpx

from ops.local.edge import LocalEdge

SECONDS = 60.0
PROBLEM_MEMBERS = {"type", "title", "status", "detail", "code", "tag", "retryable"}


def fresh(prefix: str) -> str:
    """A name that no other test uses, so that tests may share an edge."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def bearer(token: str | None) -> dict[str, str]:
    """The headers of a credential; none without a token."""
    return {} if token is None else {"authorization": f"Bearer {token}"}


def client(edge: LocalEdge, token: str | None = None) -> httpx.Client:
    """A client with the root token, or another one."""
    return httpx.Client(base_url=edge.url, headers=bearer(token or edge.root_token), timeout=SECONDS)


def crowd(edge: LocalEdge, connections: int = 20) -> httpx.AsyncClient:
    """A client with the root token that sends from this many connections at once."""
    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
    return httpx.AsyncClient(base_url=edge.url, headers=bearer(edge.root_token), timeout=SECONDS, limits=limits)


def good(answer: httpx.Response) -> Any:
    """The JSON of an answer that must be a success; None for 204."""
    assert answer.is_success, f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text[:500]}"
    return None if answer.status_code == 204 else answer.json()


def problem(answer: httpx.Response, *statuses: int) -> dict[str, Any]:
    """The problem of an answer that must be an error, of one of these statuses where some are named; never a 5xx."""
    where = f"{answer.request.method} {str(answer.request.url)[:200]}: {answer.status_code} {answer.text[:500]}"
    assert 400 <= answer.status_code < 500, where
    assert not statuses or answer.status_code in statuses, where
    assert answer.headers["content-type"] == "application/problem+json", where
    assert answer.headers["x-request-id"].startswith("req_"), where
    if answer.request.method == "HEAD":
        return {}
    body: dict[str, Any] = answer.json()
    assert body.keys() >= PROBLEM_MEMBERS, where
    assert body["status"] == answer.status_code, where
    return body


def declare(api: httpx.Client, kind: str, paths: Mapping[str, str] | None = None, **claim: Any) -> str:
    """Declare a kind and answer its name."""
    good(api.put(f"/kinds/{kind}", json={"paths": dict(paths or {}), "claim": claim}))
    return kind


def still_works(api: httpx.Client) -> None:
    """An ordinary publish, claim and settle, as after every hostile request."""
    kind = declare(api, fresh("ordinary"))
    record = good(api.post("/records", json={"kind": kind, "body": {"n": 1}}))["id"]
    (claim,) = good(api.post("/claims", json={"kind": kind, "worker": "w"}))["claims"]
    assert claim["record"]["id"] == record
    epoch = claim["lease"]["epoch"]
    assert good(api.post(f"/claims/{record}/settle", json={"epoch": epoch}))["record"]["state"] == "consumed"


def publish(api: httpx.Client, kind: str, body: Any, **more: Any) -> dict[str, Any]:
    """Publish one record and answer it."""
    record: dict[str, Any] = good(api.post("/records", json={"kind": kind, "body": body, **more}))
    return record


def found(api: httpx.Client, kind: str, match: dict[str, Any]) -> list[dict[str, Any]]:
    """The records of a kind that match, as a query answers them."""
    items: list[dict[str, Any]] = good(api.post("/records/query", json={"kind": kind, "match": match, "limit": 500}))[
        "items"
    ]
    return items

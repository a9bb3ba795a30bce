"""The HTTP interface on the real edge: what the bridge, the isolate and the platform's own parser could break."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from moorage.kernel.limits import REQUEST_BYTES
from moorage.store.schema import RECORD_FORMAT, SCHEMA
from ops.local.edge import LocalEdge

pytestmark = pytest.mark.edge


@pytest.fixture
def root(edge: LocalEdge) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {edge.root_token}"}
    with httpx.Client(base_url=edge.url, headers=headers, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def document(edge: LocalEdge) -> Any:
    return httpx.get(f"{edge.url}/openapi.json", timeout=60).json()


def raw(edge: LocalEdge, request: bytes) -> bytes:
    """Send bytes as they are and give what comes back, up to the end of the head."""
    address = urlsplit(edge.url)
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        connection.sendall(request)
        received = b""
        while b"\r\n\r\n" not in received:
            piece = connection.recv(65536)
            if not piece:
                break
            received += piece
    return received


@pytest.mark.clause("edge.capabilities", "edge.local")
def test_health_needs_no_credential(edge: LocalEdge) -> None:
    answer = httpx.get(f"{edge.url}/health", timeout=60)
    assert answer.status_code == 200
    told = answer.json()
    assert set(told.pop("clock")["shards"]) == {"records", "runs", "time", "messages", "upkeep"}
    assert set(told.pop("outbox")) == {"lag_seconds"}
    assert told | {"runtime": ""} == {
        "ok": True,
        "version": answer.json()["version"],
        "profile": "cloudflare-d1-r2",
        "runtime": "",
        "schema": SCHEMA,
        "record_format": RECORD_FORMAT,
        "root_access": True,
        "problem": None,
    }
    assert answer.json()["runtime"].startswith("Python 3.14")


@pytest.mark.clause("records.publish", "records.claim", "records.settle")
def test_the_main_job(root: httpx.Client) -> None:
    root.put("/kinds/http.main", json={"paths": {"n": "number"}}).raise_for_status()
    sent = {"kind": "http.main", "body": {"n": 1, "text": "é\u0000😀"}}
    record = root.post("/records", json=sent).json()
    assert record["body"] == sent["body"]
    claim = root.post("/claims", json={"kind": "http.main", "match": {"n": 1}, "worker": "w"}).json()["claims"][0]
    settle = {"epoch": claim["lease"]["epoch"], "results": [{"kind": "http.main", "body": {"n": 2}}]}
    settled = root.post(f"/claims/{record['id']}/settle", json=settle)
    assert (settled.status_code, settled.json()["record"]["state"]) == (200, "consumed")
    timing = settled.headers["server-timing"]
    assert 'desc="trips=1 read=' in timing


@pytest.mark.clause("kernel.canonical-json")
@pytest.mark.parametrize("size", [12_000, 1_048_576])
def test_nested_brackets_end_in_400_on_every_route_and_the_isolate_lives_on(
    root: httpx.Client, edge: LocalEdge, document: Any, size: int
) -> None:
    before = edge.workerd_pid()
    asked = 0
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if "application/json" not in operation.get("requestBody", {}).get("content", {}):
                continue
            # A webhook is not looked into before its signature has verified.
            refusal = (401, "Unauthenticated") if path == "/webhooks/{sender}" else (400, "JsonInvalid")
            for body in (b"[" * size, b"[" * (size // 2) + b"]" * (size // 2), b'{"a":' * (size // 5)):
                headers = {"content-type": "application/json"}
                url = path.replace("{", "").replace("}", "")
                answer = root.request(method, url, content=body, headers=headers)
                assert (answer.status_code, answer.json()["code"]) == refusal, (method, path)
                asked += 1
    assert asked > 30
    assert root.get("/health").json()["ok"] is True
    assert edge.workerd_pid() == before


@pytest.mark.clause("kernel.limits")
def test_a_body_that_is_too_large_is_refused_before_it_is_sent(edge: LocalEdge) -> None:
    head = (
        f"POST /records HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {edge.root_token}\r\n"
        f"content-type: application/json\r\ncontent-length: {REQUEST_BYTES + 1}\r\n\r\n"
    )
    assert raw(edge, head.encode()).startswith(b"HTTP/1.1 413 ")


@pytest.mark.clause("kernel.limits")
def test_a_body_of_untold_length_is_refused_at_the_limit(root: httpx.Client) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(REQUEST_BYTES // 1_000_000 + 2):
            yield b" " * 1_000_000

    answer = root.post("/records", content=pieces(), headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (413, "PayloadTooLarge")


def test_a_body_of_untold_length_is_read_whole(root: httpx.Client) -> None:
    root.put("/kinds/http.chunked", json={}).raise_for_status()
    text = json.dumps({"kind": "http.chunked", "body": {"text": "é" * 100_000}}).encode()
    pieces = iter([text[at : at + 7001] for at in range(0, len(text), 7001)])
    answer = root.post("/records", content=pieces, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["body"]["text"]) == (201, "é" * 100_000)


@pytest.mark.clause("edge.cors-head")
@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"/records/%ZZ", 400),
        (b"/records/%", 400),
        (b"/records/%ff", 400),
        (b"/records/a%00b", 404),
        (b"/records/a%2Fhistory", 404),
        (b"/records%2Fa", 404),
        (b"/records/%2e%2e", 404),
        (b"//records", 404),
        (b"/kinds?limit=%ff", 422),
        (b"/kinds?limit=1&limit=2", 422),
        (b"/kinds/", 200),
        (b"/kinds?" + b"&" * 8000, 200),
        (b"/" + b"a/" * 4000, 404),
    ],
)
def test_odd_request_targets_are_answered(edge: LocalEdge, target: bytes, status: int) -> None:
    head = b"GET " + target + b" HTTP/1.1\r\nhost: x\r\nauthorization: Bearer " + edge.root_token.encode() + b"\r\n\r\n"
    assert raw(edge, head).split()[1] == str(status).encode()


@pytest.mark.parametrize("name", [b"authorization", b"idempotency-key", b"content-type", b"origin", b"traceparent"])
@pytest.mark.parametrize("value", [b"\xff\xfe", b"a" * 8000, b"\x01", b"%00", b'"'])
def test_odd_header_bytes_never_end_in_a_5xx(edge: LocalEdge, name: bytes, value: bytes) -> None:
    head = b"POST /records/query HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n"
    if name != b"authorization":
        head += b"authorization: Bearer " + edge.root_token.encode() + b"\r\n"
    answer = raw(edge, head + name + b": " + value + b"\r\n\r\n{}")
    assert answer.split()[1][:1] == b"4"


@pytest.mark.clause("edge.cors-head")
def test_head_tells_what_get_would_without_its_body(root: httpx.Client) -> None:
    headers = {"accept-encoding": "identity"}
    head, got = root.head("/limits", headers=headers), root.get("/limits", headers=headers)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(got.content))


@pytest.mark.clause("edge.cors-head")
def test_options_is_answered_without_a_credential(edge: LocalEdge) -> None:
    answer = httpx.options(f"{edge.url}/claims", timeout=60)
    assert (answer.status_code, answer.headers["allow"]) == (204, "OPTIONS, POST")


def test_many_requests_at_once_are_all_answered(edge: LocalEdge, root: httpx.Client) -> None:
    root.put("/kinds/http.many", json={}).raise_for_status()

    def publish(number: int) -> int:
        headers = {"authorization": f"Bearer {edge.root_token}"}
        sent = {"kind": "http.many", "body": {"n": number}}
        return httpx.post(f"{edge.url}/records", json=sent, headers=headers, timeout=60).status_code

    with ThreadPoolExecutor(40) as pool:
        assert set(pool.map(publish, range(200))) == {201}


@pytest.mark.clause("catalog.credentials")
def test_no_token_reaches_the_terminal(edge: LocalEdge, root: httpx.Client) -> None:
    token = root.post("/awakeables", json={"ttl_seconds": 60}).json()["token"]
    for method, path in (("GET", f"/awake/{token}"), ("POST", f"/awake/{token}x"), ("PUT", f"/awake/{token}")):
        root.request(method, path, json=1)
    root.get("/kinds", headers={"authorization": f"Bearer {token}"})
    assert token not in edge.logs()
    assert edge.root_token not in edge.logs()

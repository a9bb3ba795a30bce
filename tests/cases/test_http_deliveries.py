"""Signed deliveries from outside over HTTP on the real edge: cases C16, C17 and C27 from the field."""

import hashlib
import hmac
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from ops.local.edge import LocalEdge
from tests.edge.client import client, declare, found, fresh, good, problem, publish, still_works

pytestmark = pytest.mark.edge

SECRET = "case-secret-1"
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def api(edge: LocalEdge) -> Iterator[httpx.Client]:
    with client(edge) as made:
        yield made


@pytest.fixture(autouse=True)
def ordinary_work_goes_on(api: httpx.Client) -> Iterator[None]:
    yield
    still_works(api)


# --- C16 and C17: signatures over the bytes, and content types ---


@pytest.fixture(scope="module")
def sender(api: httpx.Client) -> str:
    name = fresh("hook")
    good(api.put(f"/senders/{name}", json={"scheme": "github", "secrets": [SECRET], "subject": "github"}))
    return name


def signature(body: bytes) -> str:
    return hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()


class Delivery:
    """A signed request to a token of its own, by somebody without any bearer token."""

    def __init__(self, edge: LocalEdge, api: httpx.Client, sender: str) -> None:
        self._url, self._api, self._sender = edge.url, api, sender
        self._token = good(api.post("/awakeables", json={"ttl_seconds": 3600}))["token"]

    def send(self, body: bytes, signed: str | None, name: str = "X-Hub-Signature-256", **headers: str) -> httpx.Response:
        """Post the body; `signed` is the hexadecimal signature."""
        shown = {"content-type": "application/json"} | headers | ({} if signed is None else {name: f"sha256={signed}"})
        url = f"{self._url}/awake/{self._token}?sender={self._sender}"
        return httpx.post(url, content=body, headers={name: value for name, value in shown.items() if value}, timeout=60)

    def state(self) -> str:
        state: str = good(self._api.get(f"/awake/{self._token}"))["state"]
        return state


@pytest.fixture
def delivery(edge: LocalEdge, api: httpx.Client, sender: str) -> Delivery:
    return Delivery(edge, api, sender)


EXACT = [
    b'{"b": 1,  "a":2}',
    b'{"a":1.0}',
    b'{"a":1e3}',
    b'{"s":"\\u00e9"}',
    '{"s":"é"}'.encode(),
    b'{"a":1}\r\n',
    b'{\n  "a": [\n    1\n  ]\n}\n',
    b"",
]


@pytest.mark.clause("awake.senders")
@pytest.mark.parametrize("body", EXACT)
def test_c16_the_exact_bytes_are_what_is_signed(delivery: Delivery, body: bytes) -> None:
    assert signature(EXACT[0]) == "1ca8a1207b095fd91bb85551926525ed3229710409b633e933cb73b1cb0ffc70"
    right = signature(body)
    for changed in (body + b" ", b" " + body, body.replace(b":", b": ") + b"\n"):
        assert problem(delivery.send(changed, right), 401)["code"] == "Unauthenticated"
    for wrong in ("0" * 64, right[:-1], right + "0", "", None):
        problem(delivery.send(body, wrong), 401)
    assert delivery.state() == "pending"
    assert good(delivery.send(body, right.upper(), "x-HUB-signature-256")) == json.loads(body or b"null")
    assert delivery.state() == "resolved"


@pytest.mark.clause("awake.senders", "awake.content-types")
def test_c16_the_signature_is_looked_at_before_the_json(delivery: Delivery) -> None:
    for bad in (b"{", b'{"a":1,"a":2}', b"[" * 12_000, b"\xff"):
        problem(delivery.send(bad, "0" * 64), 401)
        assert problem(delivery.send(bad, signature(bad)), 400)["code"] == "JsonInvalid"
    assert delivery.state() == "pending"


FORM = b"payload=%7B%22zen%22%3A%22Keep+it+simple%22%2C%22sum%22%3A%221%2B1%22%2C%22n%22%3A1%7D"
IN_FORM = {"payload": ['{"zen":"Keep it simple","sum":"1+1","n":1}']}


@pytest.mark.clause("awake.content-types", "awake.senders")
@pytest.mark.parametrize(
    ("content_type", "body", "payload"),
    [
        ("application/x-www-form-urlencoded", FORM, IN_FORM),
        ("application/x-www-form-urlencoded; charset=utf-8", FORM, IN_FORM),
        ("text/plain", b"hello", "hello"),
        ("", b'{"a":1}', {"content_type": "application/octet-stream", "base64": "eyJhIjoxfQ=="}),
        ("application/json; charset=utf-8", b'{"a":1}', {"a": 1}),
        ("application/vnd.example.v3+json", b'{"a":1}', {"a": 1}),
        ("application/json", b"", None),
        (
            "multipart/form-data; boundary=x",
            b"--x--",
            {"content_type": "multipart/form-data; boundary=x", "base64": "LS14LS0="},
        ),
        ("application/x-www-form-urlencoded", b"a=1&a=2&b", {"a": ["1", "2"], "b": [""]}),
    ],
)
def test_c17_each_content_type_has_one_payload(delivery: Delivery, content_type: str, body: bytes, payload: Any) -> None:
    if body == FORM:
        assert signature(body) == "7c2b0aaf8e71e41bf663b97a5fd3bd80ac247869194586fd4851098fe75e2599"
    # A refused delivery uses nothing up: the right one afterwards is the first.
    problem(delivery.send(body + b"\xff", signature(body + b"\xff"), **{"content-type": "text/plain; charset=no"}), 415)
    assert delivery.state() == "pending"
    assert good(delivery.send(body, signature(body), **{"content-type": content_type})) == payload


# --- C27: the same key twice ---


@pytest.mark.clause("kernel.canonical-json")
@pytest.mark.parametrize("twice", ['{"amount":1,"amount":9000}', '{"a":{"b":1,"b":2}}', '{"a":0,"a":-0}'])
def test_c27_a_key_that_stands_twice_is_refused_on_every_way_in(api: httpx.Client, delivery: Delivery, twice: str) -> None:
    kind = declare(api, fresh("c27"), {"amount": "number"})
    record = publish(api, kind, {"amount": 5})["id"]
    (claim,) = good(api.post("/claims", json={"kind": kind, "worker": "w"}))["claims"]
    epoch = claim["lease"]["epoch"]
    ways = {
        "/records": f'{{"kind":"{kind}","body":{twice}}}',
        "/records/batch": f'{{"records":[{{"kind":"{kind}","body":{{}}}},{{"kind":"{kind}","body":{twice}}}]}}',
        "/records/query": f'{{"kind":"{kind}","match":{twice}}}',
        "/claims": f'{{"kind":"{kind}","worker":"w","match":{twice}}}',
        f"/claims/{record}/settle": f'{{"epoch":{epoch},"results":[{{"kind":"{kind}","body":{twice}}}]}}',
    }
    for path, content in ways.items():
        assert problem(api.post(path, content=content, headers=JSON), 400)["code"] == "JsonInvalid"
    assert problem(delivery.send(twice.encode(), signature(twice.encode())), 400)["code"] == "JsonInvalid"
    assert delivery.state() == "pending"
    assert len(found(api, kind, {})) == 1
    good(api.post(f"/claims/{record}/settle", json={"epoch": epoch}))


def test_c27_keys_that_other_languages_treat_specially_are_plain_data(api: httpx.Client, delivery: Delivery) -> None:
    kind = declare(api, fresh("c27"), {"__proto__.x": "number", "constructor": "number"})
    raw = b'{"__proto__":{"x":1},"constructor":2}'
    record = publish(api, kind, json.loads(raw))
    assert [one["id"] for one in found(api, kind, {"__proto__.x": 1, "constructor": 2})] == [record["id"]]
    answer = delivery.send(raw, signature(raw))
    assert answer.content == raw

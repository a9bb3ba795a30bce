"""Webhooks over HTTP on the real edge: cases C15, C16 and C17 from the field, GitHub's own payloads, and hostile senders."""

import asyncio
import json
import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote_plus

import httpx
import pytest

from ops.local.edge import LocalEdge
from tests.cases.test_real_input import payloads
from tests.cases.webhooks import FORM, SECRET, Shop, signature
from tests.edge.client import client, crowd, good, problem, still_works
from tests.edge.edges import EdgeFactory

pytestmark = [pytest.mark.edge, pytest.mark.clause("inbox.accept", "awake.senders")]


@pytest.fixture(scope="module")
def own(edge_factory: EdgeFactory) -> LocalEdge:
    """An edge that a test may start again."""
    return edge_factory(vars={"MOORAGE_TEST_CLOCK": "1"})


@pytest.fixture(autouse=True)
def ordinary_work_goes_on(own: LocalEdge) -> Iterator[None]:
    yield
    with client(own) as api:
        still_works(api)


async def at_once(shop: Shop, bodies: list[bytes], delivery: str) -> list[httpx.Response]:
    """The same delivery from as many connections at the same moment."""
    async with crowd(shop.edge, len(bodies)) as api:
        sending = (api.post(shop.path, content=body, headers=shop.headers(body, delivery)) for body in bodies)
        return list(await asyncio.gather(*sending))


# --- C15: twenty copies of one delivery at the same moment ---


@pytest.mark.clause("inbox.immutable")
async def test_c15_twenty_copies_of_one_delivery_are_one_event(own: LocalEdge) -> None:
    shop, shop2 = Shop(own), Shop(own)
    body, other = b'{"order":7}', b'{"order":8}'
    answers = [good(one) for one in await at_once(shop, [body] * 20, "d-100")]
    assert sorted(one["added"] for one in answers) == [False] * 19 + [True]
    [event_id] = {one["event_id"] for one in answers}
    with client(own) as api:
        good(api.post("/testing/clock", json={"advance_seconds": 1}))
    duplicate = {"event_id": event_id, "added": False}
    assert good(shop.send(body, "d-100")) == duplicate
    assert good(shop.send(other, "d-100")) == {**duplicate, "content_differs": True}
    own.stop()
    own.start()
    assert good(shop.send(body, "d-100")) == duplicate
    assert good(shop.send(other, "d-100")) == {**duplicate, "content_differs": True}
    [stored] = shop.events()
    assert (stored["event_id"], stored["id"], stored["event"]["data"]) == (event_id, "d-100", {"order": 7})
    assert shop.rows() == (1, 1)
    # The same id with another body while the first is in flight: whichever is first stands, and nothing replaces it.
    mixed = [good(one) for one in await at_once(shop, [body, other] * 10, "d-200")]
    assert [sum(one["added"] for one in mixed), len({one["event_id"] for one in mixed})] == [1, 1]
    [kept] = [one["event"]["data"] for one in shop.events() if one["id"] == "d-200"]
    for sent, told in zip([{"order": 7}, {"order": 8}] * 10, mixed, strict=True):
        assert told.get("content_differs", False) == (sent != kept), (sent, told, kept)
    # The same id from another source is another delivery.
    assert good(shop2.send(body, "d-100"))["added"] is True
    assert (shop.rows(), shop2.rows()) == ((2, 2), (1, 1))


def test_c15_an_id_is_exactly_itself_or_refused(own: LocalEdge) -> None:
    shop = Shop(own)
    body = b'{"order":7}'
    first = good(shop.send(body, "d-100"))
    assert good(shop.send(body, "D-100"))["added"] is True
    headers = [(name, value.encode()) for name, value in shop.headers(body, "d-100 ").items()]
    # HTTP leaves out spaces around a header's value, so this is the same id.
    assert shop.send_raw(body, headers) == (200, {**first, "added": False})
    for wrong in ("", "x" * 5000, "x" * 1025, "\t", "\xe9"):
        sent = [(name, wrong.encode("latin-1") if name == "x-github-delivery" else value) for name, value in headers]
        assert shop.send_raw(body, sent)[0] == 422
    assert shop.send_raw(body, [one for one in headers if one[0] != "x-github-delivery"])[0] == 422
    assert good(shop.send(body, "x" * 1024))["added"] is True
    assert [one["id"] for one in shop.events()] == ["d-100", "D-100", "x" * 1024]
    assert shop.rows() == (3, 3)
    # In a body every character of an id counts.
    inside = Shop(own, id="/id")
    for ident in ("d-100", "d-100 ", " d-100", "D-100", "é", "x" * 1024):
        sent_body = json.dumps({"id": ident}).encode()
        assert [good(inside.send(sent_body))["added"] for _ in range(2)] == [True, False]
    wrong_ids: list[Any] = ["", "x" * 1025, "x" * 5000, "a\nb", None, True, 1.5, []]
    for bad in wrong_ids:
        problem(inside.send(json.dumps({"id": bad}).encode()), 422)
    assert [one["id"] for one in inside.events()] == ["d-100", "d-100 ", " d-100", "D-100", "é", "x" * 1024]


# --- C16: the signature covers the bytes, not the parsed JSON ---


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


def test_c16_the_exact_bytes_are_what_is_signed(own: LocalEdge) -> None:
    shop = Shop(own)
    assert signature(EXACT[0]) == "1ca8a1207b095fd91bb85551926525ed3229710409b633e933cb73b1cb0ffc70"
    for number, body in enumerate(EXACT):
        right = signature(body)
        for changed in (body + b" ", b" " + body, body.replace(b":", b": ") + b"\n"):
            refused = shop.send(changed, f"d-{number}", x_hub_signature_256=f"sha256={right}")
            assert problem(refused, 401)["code"] == "Unauthenticated"
        wrong = ("0" if right[0] != "0" else "1") + right[1:]
        for shown in (f"sha256={wrong}", f"sha256={'0' * 64}", f"sha256={right[:-1]}", right, ""):
            problem(shop.send(body, f"d-{number}", x_hub_signature_256=shown), 401)
        assert shop.rows() == (number, number)
        upper = shop.send(body, f"d-{number}", x_hub_signature_256="", **{"X-HUB-Signature-256": f"SHA256={right.upper()}"})
        assert (upper.status_code, upper.json()["added"]) == (202, True)
    stored = [one["event"].get("data") for one in shop.events()]
    assert stored == [json.loads(body or b"null") for body in EXACT]


def test_c16_the_signature_is_looked_at_before_the_json(own: LocalEdge) -> None:
    shop = Shop(own)
    for bad in (b"{", b'{"a":1,"a":2}', b"[" * 12_000, b"\xff", b"not json"):
        problem(shop.send(bad, "d-1", x_hub_signature_256="sha256=" + "0" * 64), 401)
        assert problem(shop.send(bad, "d-1"), 400)["code"] == "JsonInvalid"
    assert shop.rows() == (0, 0)
    assert good(shop.send(b"{}", "d-1"))["added"] is True


# --- C17: form-encoded, plain text and empty deliveries ---


ZEN = b"payload=%7B%22zen%22%3A%22Keep+it+simple%22%2C%22sum%22%3A%221%2B1%22%2C%22n%22%3A1%7D"
UNFOLDED = {"zen": "Keep it simple", "sum": "1+1", "n": 1}


@pytest.mark.clause("awake.content-types")
def test_c17_each_content_type_has_one_value_and_a_refusal_uses_up_no_id(own: LocalEdge) -> None:
    shop = Shop(own)
    assert signature(ZEN) == "7c2b0aaf8e71e41bf663b97a5fd3bd80ac247869194586fd4851098fe75e2599"
    bytes_of = {"content_type": "application/octet-stream", "base64": "eyJhIjoxfQ=="}
    multipart = {"content_type": "multipart/form-data; boundary=x", "base64": "LS14LS0="}
    expected: list[tuple[str, bytes, Any]] = [
        (FORM, ZEN, UNFOLDED),
        (f"{FORM}; charset=utf-8", ZEN, UNFOLDED),
        ("text/plain", b"hello", "hello"),
        ("", b'{"a":1}', bytes_of),
        ("application/json; charset=utf-8", b'{"a":1}', {"a": 1}),
        ("application/vnd.example.v3+json", b'{"a":1}', {"a": 1}),
        ("application/json", b"", None),
        ("multipart/form-data; boundary=x", b"--x--", multipart),
        (FORM, b"a=1&a=2&b", {"a": ["1", "2"], "b": [""]}),
    ]
    for number, (content_type, body, _) in enumerate(expected):
        refused = shop.send(body + b"\xff", f"d-{number}", content_type="text/plain; charset=no")
        assert problem(refused, 415)["code"] == "UnsupportedMediaType"
        answer = shop.send(body, f"d-{number}", content_type=content_type)
        assert (answer.status_code, answer.json()["added"]) == (202, True)
    stored = shop.events()
    assert [one["event"].get("data") for one in stored] == [value for _, _, value in expected]
    assert ["data" in one["event"] for one in stored] == [bool(body) for _, body, _ in expected]
    assert shop.rows() == (len(expected), len(expected))


# --- F01: GitHub's own payloads ---


@pytest.mark.clause("awake.content-types", "inbox.actor")
async def test_f01_every_github_payload_is_one_event_as_json_and_as_a_form(own: LocalEdge) -> None:
    as_json, as_form = Shop(own), Shop(own)
    examples = payloads()
    texts = [json.dumps(body, ensure_ascii=False) for _, body in examples]

    async def deliver(api: httpx.AsyncClient, shop: Shop, bodies: list[bytes], content_type: str) -> list[int]:
        sending = (
            api.post(
                shop.path,
                content=body,
                headers=shop.headers(body, f"d-{number}", x_github_event=examples[number][0], content_type=content_type),
            )
            for number, body in enumerate(bodies)
        )
        answers = await asyncio.gather(*sending)
        assert all(good(one)["added"] == (one.status_code == 202) for one in answers)
        return [one.status_code for one in answers]

    async with crowd(own) as api:
        api.headers.pop("authorization")
        for status in (202, 200):
            assert set(await deliver(api, as_json, [text.encode() for text in texts], "application/json")) == {status}
        forms = [f"payload={quote_plus(text)}".encode() for text in texts]
        assert set(await deliver(api, as_form, forms, FORM)) == {202}
    assert (as_json.rows(), as_form.rows()) == ((329, 329), (329, 329))
    for shop in (as_json, as_form):
        stored = {one["id"]: one for one in shop.events()}
        assert [stored[f"d-{number}"]["event"]["data"] for number in range(329)] == [body for _, body in examples]
        assert [stored[f"d-{number}"]["type"] for number in range(329)] == [f"github.{name}" for name, _ in examples]
        assert {one["actor"] for one in stored.values()} == {f"sender:{shop.name}"}


# --- hostile senders, and what they may not learn ---


ODD = [b"", b" ", b"\xff\xfe", b"\xc3\xa9", b"x" * 9000, b"%00", b"%zz", b'"', b"a,b", b"1.0", b"application/json"]
NAMES = [
    "content-type", "x-github-delivery", "x-github-event", "x-hub-signature-256", "ce-specversion", "ce-id", "ce-source",
    "ce-type", "content-encoding", "webhook-id", "idempotency-key", "authorization", "expect-ct",
]  # fmt: skip
BODIES = [
    b"",
    b"{",
    b"null",
    b"\x00",
    b"\xff" * 100,
    b"payload=%7B",
    b"[" * 9000,
    b'{"id":1e999}',
    b'{"type":{"$gt":""}}',
    b"a" * 1_100_000,
]


def test_a_hostile_sender_is_refused_or_stored_and_never_our_fault(own: LocalEdge) -> None:
    shop = Shop(own)
    chance = random.Random(11)
    met = set()
    for number in range(60):
        body = chance.choice(BODIES) if number % 3 else chance.randbytes(chance.randrange(60))
        headers = [(name, value.encode()) for name, value in shop.headers(body).items()]
        headers += [(chance.choice(NAMES), chance.choice(ODD)) for _ in range(chance.randrange(4))]
        status, _ = shop.send_raw(body, headers)
        assert status < 500, (status, body[:100], headers)
        met.add(status)
    assert {202, 400, 401, 413} <= met
    events, told = shop.rows()
    assert events == told == len(shop.events())


@pytest.mark.clause("catalog.credentials")
def test_no_secret_and_no_signature_is_logged_or_kept(own: LocalEdge) -> None:
    shop = Shop(own)
    body = b'{"a":"hush"}'
    told = [shop.send(body).text, shop.send(body + b" ", x_hub_signature_256=signature(body)).text, shop.send(b"{").text]
    with client(own) as api:
        paths = ("/senders", f"/senders/{shop.name}", "/history?limit=50", f"/events?source={shop.path}")
        told += [api.get(path).text for path in paths]
    for hidden in (SECRET, signature(body), signature(b"{")):
        assert hidden not in own.logs()
        assert not [text for text in told if hidden in text]

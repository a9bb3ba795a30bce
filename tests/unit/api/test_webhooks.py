"""Webhooks over HTTP on the host: verified, stored once, refused without a trace, and whoever sends secrets keeps them."""

import base64
import hashlib
import hmac
import json
import random
from typing import Any

import httpx
import pytest

from moorage.api.routes import webhooks as route
from moorage.kernel.errors import Unauthenticated
from moorage.kernel.limits import EVENT_DATA_BYTES
from moorage.messages.inbox.accept import accept
from moorage.store.sqlite import SqliteDatabase
from moorage.store.transaction import Reading
from tests.unit.api.conftest import ROOT, START, House
from tests.unit.api.test_requests import problem

pytestmark = pytest.mark.clause("inbox.accept", "awake.senders")

SECRET = "case-secret-1"
KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
AT = START // 1000


def mac(signed: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def github(raw: bytes, delivery: str = "d-100", secret: str = SECRET, **more: str) -> dict[str, str]:
    """The headers of a delivery as GitHub sends it; nothing of the client's own credential."""
    own = {"authorization": "", "content-type": "application/json", "x-github-delivery": delivery}
    return {**own, "x-hub-signature-256": f"sha256={mac(raw, secret)}", **{k.replace("_", "-"): v for k, v in more.items()}}


def standard(raw: bytes, at: int = AT) -> dict[str, str]:
    key = base64.b64decode(KEY.removeprefix("whsec_"))
    signature = base64.b64encode(hmac.digest(key, f"m-1.{at}.".encode() + raw, "sha256")).decode()
    return {"webhook-id": "m-1", "webhook-timestamp": str(at), "webhook-signature": f"v1,{signature}"}


def signed(scheme: str, raw: bytes, at: int = AT) -> dict[str, str]:
    """The headers of one delivery in each scheme."""
    shown = {
        "standard": standard(raw, at),
        "github": {"x-hub-signature-256": f"sha256={mac(raw)}", "x-github-delivery": "m-1", "x-github-event": "ping"},
        "stripe": {"stripe-signature": f"t={at},v1={mac(f'{at}.'.encode() + raw)}"},
        "slack": {"x-slack-request-timestamp": str(at), "x-slack-signature": f"v0={mac(f'v0:{at}:'.encode() + raw)}"},
        "bearer": {"webhook-id": "m-1", "authorization": f"Bearer {SECRET}"},
    }
    return {"authorization": "", "content-type": "application/json", **shown[scheme]}


def events(house: House) -> list[dict[str, Any]]:
    """What is stored, looked at from outside the application."""
    rows = house.connection.execute("SELECT * FROM events ORDER BY seq")
    names = [column[0] for column in rows.description]
    return [dict(zip(names, row, strict=True)) for row in rows]


def trace(house: House) -> list[Any]:
    """Everything that accepting an event leaves behind."""
    wanted = ("SELECT * FROM events", "SELECT * FROM event_terms", "SELECT * FROM history")
    return [house.connection.execute(sql).fetchall() for sql in wanted]


async def declare(root: httpx.AsyncClient, name: str = "shop", /, **told: Any) -> httpx.AsyncClient:
    declared = {"scheme": "github", "secrets": [SECRET], "subject": "shop", **told}
    answer = await root.put(f"/senders/{name}", json=declared)
    assert answer.status_code == 200, answer.text
    return root


@pytest.fixture
async def shop(root: httpx.AsyncClient) -> httpx.AsyncClient:
    return await declare(root)


@pytest.mark.clause("inbox.actor")
@pytest.mark.parametrize(
    ("scheme", "type_"),
    [("standard", "paid"), ("github", "github.ping"), ("stripe", "paid"), ("slack", "slack.paid"), ("bearer", "paid")],
)
async def test_every_schemes_delivery_is_one_event(root: httpx.AsyncClient, house: House, scheme: str, type_: str) -> None:
    await declare(root, scheme=scheme, secrets=[KEY if scheme == "standard" else SECRET])
    raw = b'{"id":"m-1","event_id":"m-1","type":"paid"}'
    answers = [await root.post("/webhooks/shop", content=raw, headers=signed(scheme, raw)) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [202, 200, 200]
    [stored] = events(house)
    assert [answer.json() for answer in answers] == [{"event_id": stored["event_id"], "added": n == 0} for n in range(3)]
    told = (stored["source"], stored["delivery_id"], stored["type"], stored["actor"], json.loads(stored["data"]))
    assert told == ("/webhooks/shop", "m-1", type_, "sender:shop", json.loads(raw))
    read = (await root.get(f"/events/{stored['event_id']}")).json()
    assert (read["actor"], read["event"]["data"]) == ("sender:shop", json.loads(raw))
    accepted = house.connection.execute("SELECT actor, at FROM history WHERE type = 'event.accepted'").fetchall()
    assert [tuple(row) for row in accepted] == [("sender:shop", START)]


@pytest.mark.clause("inbox.immutable")
async def test_a_duplicate_with_other_content_is_told_so_and_replaces_nothing(shop: httpx.AsyncClient, house: House) -> None:
    first = (await shop.post("/webhooks/shop", content=b'{"order":7}', headers=github(b'{"order":7}'))).json()
    before = trace(house)
    for raw, differs in ((b'{"order":8}', True), (b'{ "order": 7.0 }', None)):
        answer = await shop.post("/webhooks/shop", content=raw, headers=github(raw))
        expected = {"event_id": first["event_id"], "added": False} | ({"content_differs": True} if differs else {})
        assert (answer.status_code, answer.json()) == (200, expected)
    assert trace(house)[:2] == before[:2]
    await declare(shop, "shop2")
    other = await shop.post("/webhooks/shop2", content=b'{"order":7}', headers=github(b'{"order":7}'))
    assert (other.status_code, other.json()["added"]) == (202, True)


@pytest.mark.parametrize(
    ("name", "raw", "headers"),
    [
        ("shop", b'{"a":1} ', github(b'{"a":1}')),
        ("shop", b'{"a":1}', github(b'{"a":1}', secret="another")),
        ("shop", b"{", github(b"x")),
        ("shop", b'{"a":1}', {}),
        ("shop", b'{"a":1}', {"authorization": f"Bearer {ROOT}", "x-github-delivery": "d"}),
        ("none", b'{"a":1}', github(b'{"a":1}')),
        ("sh%00op", b'{"a":1}', github(b'{"a":1}')),
        ("x" * 3000, b'{"a":1}', github(b'{"a":1}')),
    ],
)
async def test_what_does_not_verify_is_401_and_reads_nothing_but_the_sender(
    shop: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, name: str, raw: bytes, headers: dict[str, str]
) -> None:
    read: list[str] = []
    original = SqliteDatabase.read

    async def watched(self: SqliteDatabase, reading: Reading) -> None:
        read.extend(statement.sql for statement in reading)
        await original(self, reading)

    async def never(self: SqliteDatabase, transaction: Any) -> None:
        raise AssertionError("nothing may be written")

    monkeypatch.setattr(SqliteDatabase, "read", watched)
    monkeypatch.setattr(SqliteDatabase, "commit", never)
    answer = await shop.post(f"/webhooks/{name}", content=raw, headers={"authorization": "", **headers})
    assert problem(answer, 401, "Unauthenticated")["detail"] == "the signature does not verify"
    assert not [sql for sql in read if "events" in sql.replace("sender_events", "")]


@pytest.mark.clause("awake.content-types")
@pytest.mark.clause("inbox.causation")
async def test_a_foreign_cause_is_an_attribute_and_keeps_no_webhook_out(shop: httpx.AsyncClient) -> None:
    cloud = {"ce_specversion": "1.0", "ce_id": "1", "ce_source": "/a", "ce_type": "t", "ce_causationid": "evt_no"}
    answer = await shop.post("/webhooks/shop", content=b"{}", headers=github(b"{}", **cloud))
    assert answer.status_code == 202, answer.text


async def test_a_refused_delivery_does_not_use_up_its_id(shop: httpx.AsyncClient, house: House) -> None:
    before = trace(house)
    for raw, told, status, code in (
        (b"{", {}, 400, "JsonInvalid"),
        (b'{"a":1,"a":2}', {}, 400, "JsonInvalid"),
        (b"[" * 12_000, {}, 400, "JsonInvalid"),
        (b"\xff", {}, 400, "JsonInvalid"),
        (b"x", {"content_type": "text/plain; charset=no"}, 415, "UnsupportedMediaType"),
        (b"x", {"content_type": "nonsense"}, 415, "UnsupportedMediaType"),
        (b"[]", {"content_type": "application/cloudevents-batch+json"}, 415, "UnsupportedMediaType"),
        (b"{}", {"content_type": "application/cloudevents+json"}, 422, "RequestInvalid"),
        (b"{}", {"x_github_delivery": ""}, 422, "RequestInvalid"),
        (b"{}", {"x_github_delivery": "x" * 5000}, 422, "RequestInvalid"),
        (b"x" * int(EVENT_DATA_BYTES), {"content_type": "image/png"}, 413, "PayloadTooLarge"),
    ):  # fmt: skip
        wrong = await shop.post("/webhooks/shop", content=raw, headers=github(raw + b"x", **told))
        problem(wrong, 401, "Unauthenticated")
        problem(await shop.post("/webhooks/shop", content=raw, headers=github(raw, **told)), status, code)
        assert trace(house) == before
    answer = await shop.post("/webhooks/shop", content=b"{}", headers=github(b"{}"))
    assert (answer.status_code, answer.json()["added"]) == (202, True)


@pytest.mark.clause("kernel.limits")
async def test_a_body_past_the_bound_is_refused_whether_or_not_its_length_was_told(shop: httpx.AsyncClient) -> None:
    raw = b'"' + b"x" * (int(EVENT_DATA_BYTES) - 2) + b'"'
    assert (await shop.post("/webhooks/shop", content=raw, headers=github(raw))).status_code == 202
    more = raw + b" "

    async def pieces() -> Any:
        yield more[:1000]
        yield more[1000:]

    for content in (more, pieces()):
        problem(await shop.post("/webhooks/shop", content=content, headers=github(more, "d-2")), 413, "PayloadTooLarge")


@pytest.mark.parametrize(("late", "status"), [(-300, 202), (-301, 401), (300, 202), (301, 401)])
@pytest.mark.parametrize("scheme", ["standard", "stripe", "slack"])
async def test_a_signature_counts_within_the_senders_tolerance(
    root: httpx.AsyncClient, scheme: str, late: int, status: int
) -> None:
    await declare(root, scheme=scheme, secrets=[KEY if scheme == "standard" else SECRET], tolerance_seconds=300)
    raw = b'{"id":"m-1"}'
    answer = await root.post("/webhooks/shop", content=raw, headers=signed(scheme, raw, AT - late))
    assert answer.status_code == status, answer.text


async def test_keys_are_rotated_without_losing_a_delivery(shop: httpx.AsyncClient) -> None:
    async def status(secret: str, delivery: str) -> int:
        headers = github(b"{}", delivery, secret)
        return (await shop.post("/webhooks/shop", content=b"{}", headers=headers)).status_code

    assert (await status(SECRET, "1"), await status("new", "2")) == (202, 401)
    await declare(shop, secrets=["new", SECRET])
    assert (await status(SECRET, "2"), await status("new", "3")) == (202, 202)
    assert await status("new", "2") == 200  # the same delivery, signed anew
    await declare(shop, secrets=["new"])
    assert (await status(SECRET, "4"), await status("new", "4")) == (401, 202)
    await shop.delete("/senders/shop")
    assert await status("new", "5") == 401


async def test_a_sender_that_goes_while_its_webhook_is_read_stores_nothing(
    shop: httpx.AsyncClient, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late(*arguments: Any, **told: Any) -> Any:
        await declare(shop, secrets=["new"])
        return await accept(*arguments, **told)

    monkeypatch.setattr(route, "accept", late)
    answer = await shop.post("/webhooks/shop", content=b"{}", headers=github(b"{}"))
    problem(answer, 401, Unauthenticated.__name__)
    assert events(house) == []


async def test_a_key_that_is_rotated_while_a_webhook_is_read_loses_it_not(
    shop: httpx.AsyncClient, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[int] = []

    async def late(*arguments: Any, **told: Any) -> Any:
        if not times:
            await declare(shop, secrets=["new", SECRET])
        times.append(1)
        return await accept(*arguments, **told)

    monkeypatch.setattr(route, "accept", late)
    answer = await shop.post("/webhooks/shop", content=b"{}", headers=github(b"{}"))
    assert (answer.status_code, answer.json()["added"], len(times)) == (202, True, 2)
    assert len(events(house)) == 1


async def test_what_the_sender_says_of_its_events_is_followed(root: httpx.AsyncClient, house: House) -> None:
    problem(await root.put("/senders/shop", json={**SENDER, "event": {"scope": "none"}}), 404, "ScopeUnknown")
    await root.put("/scopes/eu", json={})
    told = {"id": "/order/id", "type": "/kind", "keys": ["/order/id", "/order/customer"], "scope": "eu"}
    await declare(root, event=told)
    raw = json.dumps({"order": {"id": 7, "customer": "c-1"}, "kind": "order.paid"}).encode()
    for _ in range(2):
        await root.post("/webhooks/shop", content=raw, headers=github(raw, "another each time"))
    [stored] = events(house)
    assert (stored["delivery_id"], stored["type"], stored["scope"]) == ("7", "order.paid", "eu")
    assert json.loads(stored["keys"]) == ["7", "c-1"]
    problem(await root.post("/webhooks/shop", content=b"{}", headers=github(b"{}")), 422, "RequestInvalid")


SENDER: dict[str, Any] = {"scheme": "github", "secrets": [SECRET], "subject": "shop"}


async def test_slacks_challenge_is_answered_to_slack_alone_and_stores_nothing(root: httpx.AsyncClient, house: House) -> None:
    await declare(root, scheme="slack")
    before = trace(house)
    raw = b'{"token":"x","challenge":"3eZbrw1aBm2rZgRN","type":"url_verification"}'
    answer = await root.post("/webhooks/shop", content=raw, headers=signed("slack", raw))
    assert (answer.status_code, answer.json()) == (200, {"challenge": "3eZbrw1aBm2rZgRN"})
    problem(await root.post("/webhooks/shop", content=raw, headers=signed("slack", raw + b" ")), 401, "Unauthenticated")
    assert trace(house) == before


async def test_no_other_method_and_no_query_is_taken(shop: httpx.AsyncClient) -> None:
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        answer = await shop.request(method, "/webhooks/shop")
        problem(answer, 405, "MethodNotAllowed")
        assert answer.headers["allow"] == "OPTIONS, POST"
    problem(await shop.post("/webhooks/shop?id=7", content=b"{}", headers=github(b"{}")), 422, "RequestInvalid")


@pytest.mark.clause("catalog.credentials")
async def test_secrets_and_signatures_stay_out_of_answers_logs_events_and_history(
    root: httpx.AsyncClient, house: House, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(0)
    raw = b'{"type":"paid"}'
    answers = []
    for scheme in ("standard", "github", "slack", "bearer"):
        await declare(root, scheme, scheme=scheme, secrets=[KEY if scheme == "standard" else SECRET])
        answers.append(await root.post(f"/webhooks/{scheme}", content=raw, headers=signed(scheme, raw)))
        answers.append(await root.post(f"/webhooks/{scheme}", content=raw + b" ", headers=signed(scheme, raw)))
        answers.append(await root.get(f"/senders/{scheme}"))
    assert [answer.status_code for answer in answers] == [202, 401, 200] * 3 + [202, 200, 200]  # bearer signs no bytes

    async def broken(*arguments: Any, **told: Any) -> Any:
        raise RuntimeError(f"{SECRET} {signed('bearer', raw)}")

    monkeypatch.setattr(route, "accept", broken)
    answers.append(await root.post("/webhooks/bearer", content=raw, headers=signed("bearer", raw)))
    assert answers[-1].status_code == 500
    answers += [await root.get("/history"), await root.get("/events"), await root.get("/senders")]
    shown = [one for scheme in ("standard", "github", "slack") for name, one in signed(scheme, raw).items() if "sig" in name]
    hidden = [SECRET, KEY, *(one.split("=")[-1].split(",")[-1] for one in shown)]
    stored = json.dumps([[list(row) for row in table] for table in trace(house)])
    told = "".join(answer.text for answer in answers) + caplog.text + stored
    assert "failed" in caplog.text
    assert [one for one in hidden if one and one in told] == []


TYPES = [
    "application/json", "application/x-www-form-urlencoded", "text/plain", "text/plain; charset=utf-16", "a/b", "",
    "multipart/form-data", "application/cloudevents+json", "application/json;charset=latin-1", "x", "é/é", "a/b;" * 300,
]  # fmt: skip
PIECES = [
    b"{", b"}", b"[", b"]", b'"', b":", b",", b"payload=", b"%7B", b"%", b"+", b"&", b"\xff", b"\x00", b"1e999", b"null",
    b'"id"', b'"type"', b"\xed\xa0\x80", b"\\ud800", b"specversion",
]  # fmt: skip
ODD = ["", " ", "\xe9", "x" * 9000, "a,b", '"', "%00", "%zz", "1.0", "\x7f"]
NAMES = [
    "x-github-delivery", "x-github-event", "ce-specversion", "ce-id", "ce-type", "ce-source", "ce-", "ce-a-b", "webhook-id",
]  # fmt: skip


async def test_signed_noise_is_stored_or_refused_and_never_our_fault(shop: httpx.AsyncClient, house: House) -> None:
    chance = random.Random(7)
    met: set[int] = set()
    for number in range(600):
        raw = b"".join(chance.choices(PIECES, k=chance.randrange(12)))
        extra = {chance.choice(NAMES): chance.choice(ODD) for _ in range(chance.randrange(4))}
        headers = {**github(raw, f"n-{number}"), "content-type": chance.choice(TYPES), **extra}
        sent = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        answer = await shop.post("/webhooks/shop", content=raw, headers=sent)
        assert answer.status_code in (200, 202, 400, 413, 415, 422), (answer.text, raw, headers)
        assert len([one for one in events(house) if one["delivery_id"] == f"n-{number}"]) <= 1
        met.add(answer.status_code)
    assert {202, 400, 415, 422} <= met
    stored = {one["delivery_id"] for one in events(house)}
    assert (await shop.post("/webhooks/shop", content=b"{}", headers=github(b"{}", "after"))).status_code == 202
    assert "after" not in stored

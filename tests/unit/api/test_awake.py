"""Awakeables over HTTP: bodies of every type, signed senders, and tokens that stay secret."""

import hashlib
import hmac
from typing import Any

import httpx
import pytest

from moorage.awakeables import resolve
from moorage.store.sqlite import SqliteDatabase
from moorage.store.transaction import Reading
from tests.unit.api.conftest import ROOT, House
from tests.unit.api.test_requests import problem

SECRET = "case-secret-1"


async def mint(client: httpx.AsyncClient, **more: Any) -> str:
    token: str = (await client.post("/awakeables", json={"ttl_seconds": 60, **more})).json()["token"]
    return token


def signed(raw: bytes, secret: str = SECRET) -> dict[str, str]:
    return {"x-hub-signature-256": "sha256=" + hmac.new(secret.encode(), raw, hashlib.sha256).hexdigest()}


@pytest.fixture
async def hooked(root: httpx.AsyncClient) -> httpx.AsyncClient:
    declared = {"scheme": "github", "secrets": [SECRET], "subject": "github"}
    assert (await root.put("/senders/gh", json=declared)).status_code == 200
    return root


@pytest.mark.clause("awake.content-types", "awake.route")
@pytest.mark.parametrize(
    ("media", "raw", "payload"),
    [
        ("application/json", b'{"a":1}', {"a": 1}),
        ("application/json; charset=utf-8", b'{"a":1}', {"a": 1}),
        ("application/vnd.example.v3+json", b"[1]", [1]),
        ("application/x-www-form-urlencoded", b"a=1+1&a=%2B&b", {"a": ["1 1", "+"], "b": [""]}),
        ("text/plain", "é".encode(), "é"),
        ("application/octet-stream", b"\x00\xff", {"content_type": "application/octet-stream", "base64": "AP8="}),
        ("multipart/form-data; boundary=x", b"--x", {"content_type": "multipart/form-data; boundary=x", "base64": "LS14"}),
        ("application/json", b"", None),
        (None, b"", None),
    ],
)
async def test_every_content_type_has_one_payload(
    root: httpx.AsyncClient, media: str | None, raw: bytes, payload: Any
) -> None:
    token = await mint(root)
    headers = {} if media is None else {"content-type": media}
    for _ in range(2):
        answer = await root.post(f"/awake/{token}", content=raw, headers=headers)
        assert (answer.status_code, answer.json()) == (200, payload)
    problem(await root.post(f"/awake/{token}", json="another"), 409, "AwakeableAlreadyResolved")


@pytest.mark.clause("awake.content-types")
@pytest.mark.parametrize("raw", [b"{", b'{"a":1,"a":2}', b"[" * 6000, b"NaN"])
async def test_malformed_json_leaves_the_awakeable_pending(root: httpx.AsyncClient, raw: bytes) -> None:
    token = await mint(root)
    answer = await root.post(f"/awake/{token}", content=raw, headers={"content-type": "application/json"})
    problem(answer, 400, "JsonInvalid")
    assert (await root.get(f"/awake/{token}")).json()["state"] == "pending"


@pytest.mark.clause("awake.senders")
@pytest.mark.parametrize("raw", [b'{"b": 1,  "a":2}', b'{"a":1.0}', b'{"a":1e3}', b'{"s":"\\u00e9"}', b'{"a":1}\r\n', b""])
async def test_a_signature_over_the_exact_bytes_admits(hooked: httpx.AsyncClient, raw: bytes) -> None:
    token = await mint(hooked)
    headers = {**signed(raw), "content-type": "application/json", "authorization": ""}
    answer = await hooked.post(f"/awake/{token}?sender=gh", content=raw, headers=headers)
    assert answer.status_code == 200, answer.text


@pytest.mark.clause("awake.senders")
@pytest.mark.parametrize(("secrets", "status"), [(["new", SECRET], 200), (["new"], 401)])
async def test_a_key_is_rotated_while_its_webhook_is_read(
    hooked: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, secrets: list[str], status: int
) -> None:
    token = await mint(hooked)
    times: list[int] = []
    really = resolve.resolve

    async def late(*arguments: Any) -> Any:
        times.append(1)
        if len(times) == 1:
            await hooked.put("/senders/gh", json={"scheme": "github", "secrets": secrets, "subject": "github"})
        return await really(*arguments)

    monkeypatch.setattr(resolve, "resolve", late)
    headers = {**signed(b"{}"), "content-type": "application/json", "authorization": ""}
    answer = await hooked.post(f"/awake/{token}?sender=gh", content=b"{}", headers=headers)
    assert answer.status_code == status, answer.text
    assert (await hooked.get(f"/awake/{token}")).json()["state"] == ("resolved" if status == 200 else "pending")


@pytest.mark.clause("awake.senders")
@pytest.mark.parametrize(
    ("sender", "raw", "headers"),
    [
        ("gh", b'{"a":1} ', signed(b'{"a":1}')),
        ("gh", b'{"a":1}', signed(b'{"a":1}', "another")),
        ("gh", b"{", signed(b"x")),
        ("gh", b'{"a":1}', {}),
        ("gh", b'{"a":1}', {"authorization": f"Bearer {ROOT}"}),
        ("none", b'{"a":1}', signed(b'{"a":1}')),
        ("", b'{"a":1}', {"authorization": f"Bearer {ROOT}"}),
    ],
)
async def test_a_bad_signature_is_401_and_reads_nothing(
    hooked: httpx.AsyncClient,
    house: House,
    monkeypatch: pytest.MonkeyPatch,
    sender: str,
    raw: bytes,
    headers: dict[str, str],
) -> None:
    token = await mint(hooked)
    read: list[str] = []
    original = SqliteDatabase.read

    async def watched(self: SqliteDatabase, reading: Reading) -> None:
        read.extend(statement.sql for statement in reading)
        await original(self, reading)

    async def never(self: SqliteDatabase, transaction: Any) -> None:
        raise AssertionError("nothing may be written")

    monkeypatch.setattr(SqliteDatabase, "read", watched)
    monkeypatch.setattr(SqliteDatabase, "commit", never)
    sent = {"content-type": "application/json", "authorization": "", **headers}
    problem(await hooked.post(f"/awake/{token}?sender={sender}", content=raw, headers=sent), 401, "Unauthenticated")
    assert not [sql for sql in read if "awakeables" in sql]


@pytest.mark.clause("awake.senders", "runs.wake")
async def test_a_signed_webhook_resolves_what_a_run_waits_for_and_pokes_it(hooked: httpx.AsyncClient, house: House) -> None:
    made = (await hooked.post("/awakeables", json={"ttl_seconds": 60, "subject": "github"})).json()
    house.connection.execute(
        "INSERT INTO executions (execution_id, scope, body, host, runner, build, plan_reference, pins, run_id, attempt,"
        " epoch, subject, opened_at, input_sha256, input_size, input)"
        " VALUES ('exe_1', 's', 'order', 'worker', 'r:00', '', '', '{}', 'run_1', 1, 1, 'root', 0, '', 4, 'null')"
    )
    house.connection.execute("UPDATE awakeables SET execution_id = 'exe_1'")
    raw = b'{"approved":true}'
    headers = {**signed(raw), "content-type": "application/json", "authorization": ""}
    for _ in range(2):
        answer = await hooked.post(f"/awake/{made['token']}?sender=gh", content=raw, headers=headers)
        assert (answer.status_code, answer.json()) == (200, {"approved": True})
    assert [one.execution_id for one in house.runners.poked] == ["exe_1"]
    shown = (await hooked.get(f"/awakeables/{made['id']}")).json()
    assert (shown["ended_by"], shown["execution_id"], shown["payload"]) == ("github", "exe_1", {"approved": True})


@pytest.mark.clause("awake.content-types", "awake.senders")
async def test_a_good_signature_over_bad_json_is_400(hooked: httpx.AsyncClient) -> None:
    token = await mint(hooked)
    headers = {**signed(b"{"), "content-type": "application/json"}
    problem(await hooked.post(f"/awake/{token}?sender=gh", content=b"{", headers=headers), 400, "JsonInvalid")


@pytest.mark.clause("awake.authenticates", "awake.unknown", "awake.expired")
async def test_unknown_late_and_unadmitted_callers_are_told_apart(
    root: httpx.AsyncClient, nobody: httpx.AsyncClient
) -> None:
    token = await mint(root)
    problem(await nobody.post(f"/awake/{token}", json=1), 401, "Unauthenticated")
    problem(await root.post("/awake/unknown", json=1), 404, "AwakeableUnknown")
    await root.post("/testing/clock", json={"advance_seconds": 60})
    problem(await root.post(f"/awake/{token}", json=1), 410, "AwakeableTimedOut")


@pytest.mark.clause("awake.binding")
async def test_a_bound_awakeable_is_unknown_to_others(root: httpx.AsyncClient) -> None:
    token = await mint(root, subject="someone")
    problem(await root.post(f"/awake/{token}", json=1), 404, "AwakeableUnknown")
    problem(await root.get(f"/awake/{token}"), 404, "AwakeableUnknown")
    [listed] = (await root.get("/awakeables")).json()["items"]
    assert (await root.get(f"/awakeables/{listed['id']}")).json()["subject"] == "someone"
    problem(await root.get(f"/awakeables/{listed['id']}x"), 404, "AwakeableUnknown")


@pytest.mark.clause("awake.mint")
async def test_a_key_answers_the_same_token_to_the_same_bearer(root: httpx.AsyncClient) -> None:
    headers = {"idempotency-key": "mint-1"}
    first = await root.post("/awakeables", json={"ttl_seconds": 60}, headers=headers)
    again = await root.post("/awakeables", json={"ttl_seconds": 60}, headers=headers)
    assert (first.status_code, again.json()) == (201, first.json())
    assert first.json()["url"] == f"http://moorage.test/awake/{first.json()['token']}"


@pytest.mark.clause("catalog.credentials")
async def test_secrets_appear_only_where_they_are_handed_out(
    hooked: httpx.AsyncClient, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    token = await mint(hooked)
    credential = (await hooked.post("/credentials", json={"subject": "s", "grants": []})).json()["token"]
    bearer = {"authorization": f"Bearer {credential}"}
    secrets = [token, credential, SECRET, ROOT]
    answers = [
        await hooked.get(f"/awake/{token}"),
        await hooked.get(f"/awake/{token}x"),
        await hooked.post(f"/awake/{token}", json=1, headers={"authorization": f"Bearer {credential}x"}),
        await hooked.post(f"/awake/{token}", json=1, headers=bearer),
        await hooked.post(f"/awake/{token}", json=2, headers=bearer),
        await hooked.post(f"/awake/{token}/reject", json={"tag": token, "message": 1}),
        await hooked.post(f"/awake/{token}?{credential}=1", json=1),
        await hooked.post(f"/awake/{token}", content=credential.encode(), headers={"content-type": "application/json"}),
        await hooked.put("/senders/other", json={"scheme": SECRET, "secrets": [SECRET], "subject": "s"}),
        await hooked.get("/senders/gh"),
        await hooked.get("/history"),
        await hooked.get("/credentials"),
        await hooked.get("/awakeables"),
    ]
    for number, answer in enumerate(answers):
        for secret in secrets:
            assert secret not in answer.text, (number, answer.text)
    logged = "".join(record.getMessage() for record in caplog.records if record.name.startswith("moorage"))
    assert not [secret for secret in secrets if secret in logged]
    dumped = "\n".join(house.connection.iterdump())
    assert token not in dumped
    assert credential not in dumped

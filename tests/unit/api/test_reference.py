"""The OpenAPI document and its page tell the truth about the routes."""

import re
from typing import Any

import httpx
import pytest

from moorage.api.app import build_app
from moorage.api.reference import operations
from moorage.kernel import errors, limits
from moorage.store.schema import RECORD_FORMAT, SCHEMA
from tests.unit.api.conftest import ROOT, House, client_of

DOCUMENT = build_app().document.openapi


TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def conforms(value: Any, schema: dict[str, Any], where: str = "") -> None:
    """Check a value against the parts of JSON Schema that the document uses."""
    if "$ref" in schema:
        conforms(value, DOCUMENT["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]], where)
        return
    if "anyOf" in schema:
        assert any(fits(value, one) for one in schema["anyOf"]), f"{where}: {value!r} fits none"
        return
    if "type" in schema:
        assert isinstance(value, TYPES[schema["type"]]), f"{where}: {value!r} is no {schema['type']}"
        assert isinstance(value, bool) == (schema["type"] == "boolean"), f"{where}: {value!r}"
    if "enum" in schema:
        assert value in schema["enum"], where
    if isinstance(value, dict):
        members_conform(value, schema, where)
    if isinstance(value, list):
        for number, one in enumerate(value):
            conforms(one, schema.get("items", {}), f"{where}/{number}")


def fits(value: Any, schema: dict[str, Any]) -> bool:
    try:
        conforms(value, schema)
    except AssertionError:
        return False
    return True


def members_conform(value: dict[str, Any], schema: dict[str, Any], where: str) -> None:
    known, extra = schema.get("properties", {}), schema.get("additionalProperties", True)
    assert set(schema.get("required", [])) <= value.keys(), f"{where}: lacks some of {schema['required']}"
    for name, one in value.items():
        assert name in known or extra is not False, f"{where}/{name} is not documented"
        conforms(one, known.get(name, extra if isinstance(extra, dict) else {}), f"{where}/{name}")


def documented(answer: httpx.Response, template: str) -> None:
    """The answer is one that the document tells of."""
    operation = DOCUMENT["paths"][template][answer.request.method.lower()]
    told = operation["responses"].get(str(answer.status_code))
    assert told is not None, f"{answer.request.method} {template} does not tell of {answer.status_code}"
    if answer.content:
        media = answer.headers["content-type"].partition(";")[0]
        conforms(answer.json(), told["content"][media]["schema"], template)


@pytest.mark.clause("kernel.problem")
async def test_answers_are_as_documented(root: httpx.AsyncClient, house: House) -> None:
    async def ask(method: str, template: str, sent: Any = None, **parts: Any) -> Any:
        answer = await root.request(method, template.format(**parts), json=sent)
        documented(answer, template)
        return answer.json() if answer.content else None

    await ask("PUT", "/kinds/{kind}", {"paths": {"n": "number"}, "claim": {"max_attempts": 1}}, kind="doc")
    await ask("PUT", "/kinds/{kind}", {"paths": {"n": "string"}}, kind="doc")
    await ask("GET", "/kinds/{kind}", kind="doc")
    await ask("GET", "/kinds/{kind}", kind="none")
    await ask("GET", "/kinds")
    one = await ask("POST", "/records", {"kind": "doc", "body": {"n": 1}, "not_before": "2030-01-01T00:00:00Z"})
    await ask("POST", "/records", {"kind": "doc", "body": {"n": "x"}})
    await ask("POST", "/records", {"kind": "doc", "body": {}, "parents": ["none"]})
    await ask("POST", "/records/batch", {"records": [{"kind": "doc", "body": {"n": 2}, "parents": [one["id"]]}]})
    await ask("GET", "/records/{record}", record=one["id"])
    await ask("GET", "/records/{record}", record="none")
    await ask("GET", "/records/{record}/lineage?direction=descendants".partition("?")[0], record=one["id"])
    await ask("GET", "/records/{record}/history", record=one["id"])
    await ask("POST", "/records/query", {"kind": "doc", "limit": 1})
    await ask("POST", "/records/query", {"kind": "doc", "match": {"x": 1}})
    claimed = (await ask("POST", "/claims", {"kind": "doc", "worker": "w"}))["claims"][0]
    under = {"epoch": claimed["lease"]["epoch"]}
    record = claimed["record"]["id"]
    await ask("POST", "/claims/{record}/renew", under, record=record)
    await ask("POST", "/claims/{record}/renew", {"epoch": 99}, record=record)
    failure = {**under, "error": {"tag": "Transient", "message": "no"}}
    await ask("POST", "/claims/{record}/fail", failure, record=record)
    await ask("GET", "/dead-letters")
    await ask("GET", "/dead-letters/{record}", record=record)
    await ask("POST", "/dead-letters/{record}/requeue", {"reason": "again"}, record=record)
    await ask("POST", "/dead-letters/{record}/requeue", {"reason": "again"}, record=record)
    await ask("POST", "/dead-letters/requeue", {"reason": "again", "kind": "doc"})
    claimed = (await ask("POST", "/claims", {"kind": "doc", "worker": "w"}))["claims"][0]
    under = {"epoch": claimed["lease"]["epoch"]}
    await ask("POST", "/claims/{record}/release", under, record=record)
    claimed = (await ask("POST", "/claims", {"kind": "doc", "worker": "w"}))["claims"][0]
    settled = {"epoch": claimed["lease"]["epoch"], "results": [{"kind": "doc", "body": {}}]}
    await ask("POST", "/claims/{record}/settle", settled, record=record)
    await ask("POST", "/claims/{record}/settle", {**settled, "results": []}, record=record)
    await ask("GET", "/history")
    made = await ask("POST", "/credentials", {"subject": "s", "grants": [{"actions": ["read"], "kinds": ["doc"]}]})
    await ask("GET", "/credentials")
    await ask("GET", "/credentials/{id}", id=made["id"])
    await ask("DELETE", "/credentials/{id}", id=made["id"])
    await ask("GET", "/credentials/{id}", id="none")
    await ask("PUT", "/senders/{name}", {"scheme": "github", "secrets": ["abc"], "subject": "s"}, name="gh")
    caller = {"scheme": "bearer", "secrets": [ROOT], "subject": "s", "event": {"id": "/n", "keys": ["/n"]}}
    await ask("PUT", "/senders/{name}", caller, name="caller")
    for body in ({"n": 1}, {"n": 1}, {"n": 1, "more": 2}, {}):
        await ask("POST", "/webhooks/{sender}", body, sender="caller")
    await ask("GET", "/senders")
    await ask("GET", "/senders/{name}", name="gh")
    await ask("DELETE", "/senders/{name}", name="gh")
    await ask("GET", "/senders/{name}", name="gh")
    await ask("PUT", "/destinations/{name}", {"url": "https://example.com/hook"}, name="d")
    await ask("GET", "/destinations")
    await ask("GET", "/destinations/{name}", name="d")
    await ask("PUT", "/scopes/{id}", {"config": {"a": 1}}, id="top")
    await ask("PUT", "/scopes/{id}", {"parent": "none"}, id="low")
    await ask("GET", "/scopes")
    await ask("GET", "/scopes/{id}", id="top")
    minted = await ask("POST", "/awakeables", {"ttl_seconds": 60, "label": "l"})
    await ask("GET", "/awake/{token}", token=minted["token"])
    await ask("POST", "/awake/{token}", {"a": [1]}, token=minted["token"])
    await ask("POST", "/awake/{token}", {"a": [2]}, token=minted["token"])
    await ask("POST", "/awake/{token}/reject", {"tag": "Permanent", "message": "m"}, token=minted["token"])
    await ask("POST", "/awake/{token}", {"a": [2]}, token="none")
    minted = await ask("POST", "/awakeables", {"ttl_seconds": 60})
    await ask("POST", "/awake/{token}/reject", {"tag": "Permanent", "message": "m"}, token=minted["token"])
    await ask("GET", "/awake/{token}", token=minted["token"])
    await ask("GET", "/awakeables")
    event = {"type": "ping", "data": {"n": 1}}
    await ask("PUT", "/timers/{timer}", {"delay_seconds": 60, "event": event}, timer="t")
    await ask("PUT", "/timers/{timer}", {"delay_seconds": 60, "event": event, "revision": 7}, timer="t")
    await ask("GET", "/timers")
    await ask("GET", "/timers/{timer}", timer="t")
    await ask("GET", "/timers/{timer}", timer="none")
    await ask("PUT", "/kv/{namespace}/{key}", {"value": [1]}, namespace="ns", key="k")
    await ask("PUT", "/kv/{namespace}/{key}", {"value": [1], "revision": 0}, namespace="ns", key="k")
    await ask("GET", "/kv/{namespace}/{key}", namespace="ns", key="k")
    await ask("GET", "/kv/{namespace}", namespace="ns")
    await ask("DELETE", "/kv/{namespace}/{key}", namespace="ns", key="k")
    await ask("GET", "/kv/{namespace}/{key}", namespace="ns", key="k")
    inbox = {"outcome": {"n": 1}, "kv": {"ns": {"k": 1}}}
    for _ in range(2):
        await ask("POST", "/inbox/{consumer}/{event_id}", inbox, consumer="c", event_id="e")
    await ask("GET", "/inbox/{consumer}/{event_id}", consumer="c", event_id="e")
    for path in ("/health", "/capabilities", "/limits", "/errors", "/openapi.json"):
        await ask("GET", path)


def test_every_operation_is_described() -> None:
    for method, path, operation in operations(DOCUMENT):
        assert operation["summary"], (method, path)
        assert operation["description"].endswith("."), (method, path)
        assert operation["responses"].keys() >= {"400", "422", "500"}
        told = [body.get("description") for body in operation["responses"].values()]
        assert all(told), (method, path)


def test_what_needs_no_credential_says_so() -> None:
    without = [path for _, path, operation in operations(DOCUMENT) if "security" not in operation]
    assert sorted(without) == ["/docs", "/health", "/openapi.json"]


async def test_the_test_clock_exists_only_where_there_is_one(house: House) -> None:
    async with client_of(build_app(house.ports(test_clock=None))) as client:
        assert (await client.get("/testing/clock")).status_code == 404
        assert (await client.post("/testing/clock", json={"advance_seconds": 1})).status_code == 404
        assert "/testing/clock" not in (await client.get("/openapi.json")).json()["paths"]
    async with client_of(build_app(house.ports())) as client:
        assert (await client.get("/testing/clock")).status_code == 200
        assert "/testing/clock" in (await client.get("/openapi.json")).json()["paths"]


async def test_the_page_needs_nothing_from_elsewhere(nobody: httpx.AsyncClient) -> None:
    answer = await nobody.get("/docs")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert re.findall(r"(?:src|href)=\"(?!/openapi\.json)[^\"]*|url\(|@import|<script", answer.text) == []
    for _, path, _ in operations(DOCUMENT):
        assert f"<code>{path}</code>" in answer.text
    for error in errors.reference():
        assert f'id="{error["code"]}"' in answer.text


@pytest.mark.clause("kernel.limits")
async def test_limits_are_served(root: httpx.AsyncClient) -> None:
    assert (await root.get("/limits")).json() == limits.published()


@pytest.mark.clause("kernel.failure-tag")
async def test_errors_are_served(root: httpx.AsyncClient) -> None:
    items = (await root.get("/errors")).json()["items"]
    assert {item["code"] for item in items} == {cls.__name__ for cls in errors.every_error() if not cls.__subclasses__()}
    assert {item["tag"] for item in items} <= set(errors.FailureTag)


@pytest.mark.clause("edge.capabilities")
async def test_health_and_capabilities_tell_what_runs(root: httpx.AsyncClient) -> None:
    health = (await root.get("/health")).json()
    assert (health["ok"], health["schema"], health["record_format"]) == (True, SCHEMA, RECORD_FORMAT)
    told = (await root.get("/capabilities")).json()
    assert {"records", "claims", "awakeables"} <= set(told["capabilities"])
    assert told["profile"] == health["profile"]

"""Schemas, numbered claims and public credentials on the real edge: what the isolate's Python could break."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from ops.local.edge import LocalEdge

pytestmark = pytest.mark.edge

PAGE = "https://shop.example.test"


@pytest.fixture
def root(edge: LocalEdge) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {edge.root_token}"}
    with httpx.Client(base_url=edge.url, headers=headers, timeout=60) as client:
        yield client


def tree(depth: int) -> dict[str, Any]:
    body: dict[str, Any] = {"id": 1}
    for _ in range(depth):
        body = {"id": 1, "kids": [body]}
    return body


@pytest.mark.clause("records.publish", "catalog.kind")
def test_a_schema_is_applied_as_deep_as_its_bound_and_the_isolate_lives(root: httpx.Client) -> None:
    schema: dict[str, Any] = {
        "properties": {"kids": {"items": {"allOf": [{"$ref": "#"}]}}, "n": {"type": "integer"}},
        "required": ["id"],
    }
    assert root.put("/kinds/edge.tree", json={"schema": schema}).status_code == 200
    for depth, status in ((20, 201), (24, 201), (30, 422)):
        answer = root.post("/records", json={"kind": "edge.tree", "body": tree(depth)})
        assert answer.status_code == status, (depth, answer.text)
    for body, pointer in (({"id": 1, "n": "x"}, "/body/n"), ({"id": 1, "kids": [{}]}, "/body/kids/0")):
        answer = root.post("/records", json={"kind": "edge.tree", "body": body})
        assert (answer.status_code, answer.json()["code"]) == (422, "BodyInvalid")
        assert [one["pointer"] for one in answer.json()["errors"]] == [pointer]
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(16):
        deep = {"properties": {"a": deep}}
    assert root.put("/kinds/edge.deep", json={"schema": deep}).status_code == 200
    doubling = {str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}, {"$ref": f"#/$defs/{n + 1}"}]} for n in range(25)} | {
        "25": {}
    }
    refused = root.put("/kinds/edge.wide", json={"schema": {"$ref": "#/$defs/0", "$defs": doubling}})
    assert (refused.status_code, refused.json()["code"]) == (422, "RequestInvalid")
    assert root.get("/health").status_code == 200


@pytest.mark.clause("records.claim-replay")
def test_a_numbered_claim_is_answered_again(root: httpx.Client) -> None:
    root.put("/kinds/edge.turn", json={})
    root.post("/records/batch", json={"records": [{"kind": "edge.turn", "body": {}}] * 3})
    session = root.post("/sessions", json={}).json()["session"]
    asked = {"kind": "edge.turn", "worker": "w", "session": session, "consumer": "c", "sequence": 1}
    first = root.post("/claims", json=asked)
    assert len(first.json()["claims"]) == 1
    assert root.post("/claims", json=asked).json() == first.json()
    assert "trips=1 " in root.post("/claims", json={**asked, "sequence": 2}).headers["server-timing"]


@pytest.mark.clause("edge.cors-head", "catalog.credentials")
def test_a_page_publishes_with_a_public_credential(root: httpx.Client, edge: LocalEdge) -> None:
    root.put("/kinds/edge.click", json={})
    grants = [{"actions": ["publish"], "kinds": ["edge.click"]}]
    made = root.post("/credentials", json={"subject": "web", "grants": grants, "public": True, "origins": [PAGE]}).json()
    wish = {"origin": PAGE, "access-control-request-method": "POST"}
    with httpx.Client(base_url=edge.url, headers={"authorization": f"Bearer {made['token']}", "origin": PAGE}) as web:
        assert web.options("/records", headers=wish).headers["access-control-allow-origin"] == PAGE
        told = web.post("/records", json={"kind": "edge.click", "body": {}})
        assert (told.status_code, list(told.json()), told.headers["access-control-allow-origin"]) == (201, ["id"], PAGE)
        assert web.get("/kinds").status_code == 403

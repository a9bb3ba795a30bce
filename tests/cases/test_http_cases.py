"""Cases from the field over HTTP on the real edge: what clients see of C09, C12, C13, C18, C19 and C22."""

import json
from collections.abc import Iterator
from itertools import chain
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from ops.local.edge import LocalEdge
from tests.edge.client import client, declare, found, fresh, good, problem, publish, still_works
from tests.edge.edges import ALLOWED_ORIGIN

pytestmark = pytest.mark.edge

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def api(edge: LocalEdge) -> Iterator[httpx.Client]:
    with client(edge) as made:
        yield made


@pytest.fixture(autouse=True)
def ordinary_work_goes_on(api: httpx.Client) -> Iterator[None]:
    yield
    still_works(api)


# --- C09: many things with one timestamp across a page edge ---


def pages(api: httpx.Client, path: str, key: str, limit: int, **filters: Any) -> Iterator[list[str]]:
    cursor = None
    while True:
        asked = {"limit": limit, **filters} | ({"cursor": cursor} if cursor else {})
        answer = good(api.post(path, json=asked) if path == "/records/query" else api.get(path, params=asked))
        yield [str(item["record"]["id"] if key == "record" else item[key]) for item in answer["items"]]
        cursor = answer["next_cursor"]
        if cursor is None:
            return


flat = chain.from_iterable


@pytest.mark.parametrize("count", [20, 25])
def test_c09_every_listing_shows_each_item_once(api: httpx.Client, count: int) -> None:
    kind = declare(api, fresh("c09"))
    batch = [{"kind": kind, "body": {"n": number}} for number in range(count)]
    ids = [one["id"] for one in good(api.post("/records/batch", json={"records": batch}))["records"]]
    seen = list(pages(api, "/records/query", "id", 10, kind=kind))
    assert [len(page) for page in seen] == [10] * (count // 10) + [5] * (count % 10 > 0)
    assert [*flat(seen)] == ids
    assert [*flat(pages(api, "/records/query", "id", 10, kind=kind, order="desc"))] == ids[::-1]

    walk = pages(api, "/records/query", "id", 10, kind=kind)
    first = next(walk)
    late = [one["id"] for one in good(api.post("/records/batch", json={"records": batch[:3]}))["records"]]
    for claim in good(api.post("/claims", json={"kind": kind, "worker": "w", "limit": 2}))["claims"]:
        assert claim["record"]["id"] in first
        good(api.post(f"/claims/{claim['record']['id']}/settle", json={"epoch": claim["lease"]["epoch"]}))
    assert [*first, *flat(walk)] == [*ids, *late]

    claims = good(api.post("/claims", json={"kind": kind, "worker": "w", "limit": 100}))["claims"]
    for claim in claims:
        ending = {"epoch": claim["lease"]["epoch"], "error": {"tag": "Permanent", "message": "no"}, "dead_letter": True}
        good(api.post(f"/claims/{claim['record']['id']}/fail", json=ending))
    assert [*flat(pages(api, "/dead-letters", "record", 7, kind=kind))] == [*ids[2:], *late]
    start = api.get(f"/records/{ids[0]}").json()["seq"] - 1
    positions = [int(one) for one in flat(pages(api, "/history", "position", 10, after=start))]
    assert positions == list(range(start + 1, start + 1 + len(positions)))


def test_c09_bad_cursors_and_limits_are_refused_on_every_listing(api: httpx.Client) -> None:
    kind = declare(api, fresh("c09"))
    good(api.post("/records/batch", json={"records": [{"kind": kind, "body": {}}] * 3}))
    foreign = good(api.post("/records/query", json={"kind": kind, "limit": 1}))["next_cursor"]
    listings = ["/kinds", "/credentials", "/senders", "/destinations", "/scopes", "/awakeables", "/dead-letters", "/history"]
    for path in listings:
        for cursor in ("abc", foreign, "é", "x" * 1024):
            assert problem(api.get(path, params={"cursor": cursor}), 400)["code"] == "CursorMismatch", path
        for limit in ("0", "-1", "1000000000", "10;drop", "1.5", ""):
            problem(api.get(path, params={"limit": limit}), 422)
    for asked in ({"kind": kind, "state": "dead"}, {"kind": kind, "order": "desc"}, {"kind": kind, "match": {"$or": []}}):
        answer = api.post("/records/query", json={**asked, "cursor": foreign})
        assert problem(answer, 400)["code"] in ("CursorMismatch", "PatternInvalid")


# --- C12: hostile text, with no SQL in any answer ---

HOSTILE = [
    "k') OR 1=1 --",
    'k"); DROP TABLE records; --',
    "$.k",
    "k\0",
    "%",
    "x" * 10_000,
    ".".join(["s"] * 200),
    "v%",
    "v_",
]


@pytest.mark.clause("records.pattern-safe")
def test_c12_hostile_text_matches_nothing_wherever_it_stands(api: httpx.Client) -> None:
    kind = declare(api, fresh("c12"), {"k": "string"})
    ids = [publish(api, kind, {"k": "v1"})["id"], *(publish(api, kind, {"k": "v2"})["id"] for _ in range(5))]
    said = []
    for text in HOSTILE:
        said.append(api.post("/records/query", json={"kind": kind, "match": {text: 1}}))
        said.append(api.post("/claims", json={"kind": kind, "worker": "w", "match": {text: 1}}))
        said.append(api.post("/claims", json={"kind": text, "worker": "w"}))
        said.append(api.post("/claims", json={"kind": kind, "worker": text, "match": {"k": "nothing"}}))
        said.append(api.put(f"/kinds/{quote(text, safe='')}", json={}))
        assert found(api, kind, {"k": text}) == []
        answer = api.post("/records", json={"kind": text, "body": {}}, headers={"idempotency-key": text[:200].strip("\0")})
        said.append(answer)
    for answer in said:
        assert answer.status_code in (200, 201, 400, 404, 422), answer.text  # v_ is a fine name for a kind
        assert not any(word in answer.text for word in ("SELECT", "INSERT", "sqlite", "D1_ERROR", "json_each"))
    assert [one["id"] for one in found(api, kind, {})] == ids


# --- C13: numbers ---


@pytest.mark.clause("kernel.canonical-json")
def test_c13_a_number_is_refused_or_is_the_same_everywhere(api: httpx.Client) -> None:
    kind = declare(api, fresh("c13"), {"n": "number"})
    kept = {"9007199254740992": 2**53, "-0": 0, "0.1": 0.1, "1.0": 1, "1e20": 1e20}
    for literal, value in kept.items():
        answer = api.post("/records", content=f'{{"kind":"{kind}","body":{{"n":{literal}}}}}', headers=JSON)
        record = good(answer)
        assert record["body"]["n"] == value
        assert good(api.get(f"/records/{record['id']}"))["body"]["n"] == value
        for match in (f'{{"n":{literal}}}', f'{{"n":{{"$gte":{literal},"$lte":{literal}}}}}'):
            answer = api.post("/records/query", content=f'{{"kind":"{kind}","match":{match}}}', headers=JSON)
            assert record["id"] in [item["id"] for item in good(answer)["items"]]
    for literal in (
        "9007199254740993",
        "12345678901234567890123",
        "1e400",
        "1e-400",
        "NaN",
        "Infinity",
        "-Infinity",
        "01",
        "+1",
        ".5",
    ):
        for content in (
            f'{{"kind":"{kind}","body":{{"n":{literal}}}}}',
            f'{{"kind":"{kind}","body":{{"other":[{literal}]}}}}',
        ):
            assert problem(api.post("/records", content=content, headers=JSON), 400)["code"] == "JsonInvalid"
    assert len(found(api, kind, {})) == len(kept)
    claims = good(api.post("/claims", json={"kind": kind, "worker": "w", "limit": 100}))["claims"]
    assert [claim["record"]["body"]["n"] for claim in claims] == list(kept.values())


# --- C18: ids in paths ---

IDS = ["a/b", "a%2Fb", "../x", ".", "..", "a b", "a+b", "a#b", "a?b=1", "é", "a;b", "a\\b", "%", "%ZZ", "a\0b", "x" * 2000]


@pytest.mark.clause("kernel.ids")
def test_c18_an_id_means_exactly_its_object_or_is_refused_with_the_allowed_characters(api: httpx.Client) -> None:
    kind = declare(api, fresh("c18"))
    for name in IDS:
        refused = problem(api.post("/records", json={"kind": kind, "body": {}, "id": name}), 400)
        assert refused["code"] == "IdInvalid"
        assert "may hold letters" in refused["detail"] or "1 to 200 characters" in refused["detail"]
        problem(api.post("/claims", json={"kind": kind, "worker": name}), 400, 422)
        if name not in (".", ".."):
            for path in ("/senders/", "/destinations/", "/scopes/"):
                problem(api.put(path + quote(name, safe=""), json={}), 400, 422)
            problem(api.get("/records/" + quote(name, safe="")), 404)
    prefix = fresh("id")
    names = [f"{prefix}{name}" for name in ("cancel", "batch", "query", "A", "a", "a.b", "a:b", "a~b@c", "-")]
    made = {name: publish(api, kind, {"name": name}, id=name)["seq"] for name in names}
    assert len(set(made.values())) == len(names)
    for name in names:
        for path in (name, quote(name, safe=""), "".join(f"%{ord(char):02X}" for char in name)):
            assert good(api.get(f"/records/{path}"))["body"] == {"name": name}
    for name in ("cancel", "requeue", "settle", "batch", "query"):
        scope = good(api.put(f"/scopes/{name}", json={"config": {"name": name}}))
        assert good(api.get(f"/scopes/{name}/")) == scope


def test_c18_an_id_that_is_also_the_name_of_a_route_is_still_a_record(api: httpx.Client) -> None:
    kind = declare(api, fresh("c18"))
    for name in ("batch", "query"):
        answer = api.post("/records", json={"kind": kind, "body": {"name": name}, "id": name})
        if answer.status_code == 201 or problem(answer, 409)["code"] == "RecordExists":
            assert good(api.get(f"/records/{name}"))["body"] == {"name": name}


# --- C19: preflight without credentials ---


@pytest.mark.clause("edge.cors-head")
def test_c19_a_preflight_needs_no_credential_and_does_nothing(edge: LocalEdge, api: httpx.Client) -> None:
    kind = declare(api, fresh("c19"))
    publish(api, kind, {})
    token = good(api.post("/awakeables", json={"ttl_seconds": 600}))["token"]
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    claim = json.dumps({"kind": kind, "worker": "w"})
    with httpx.Client(base_url=edge.url, timeout=60) as page:
        for path in ("/claims", f"/awake/{token}", "/records/query"):
            allowed = page.options(path, headers={"origin": ALLOWED_ORIGIN, **asks})
            assert allowed.is_success
            assert allowed.headers["access-control-allow-origin"] == ALLOWED_ORIGIN
            assert "POST" in allowed.headers["access-control-allow-methods"]
            assert allowed.headers["access-control-allow-headers"] == "authorization,content-type"
            assert "access-control-allow-credentials" not in allowed.headers
            assert "origin" in allowed.headers["vary"]
            other = page.options(path, headers={"origin": "https://evil.example.test", **asks})
            assert not any(name.startswith("access-control-") for name in other.headers)
            assert "POST" in page.options(path).headers["allow"]
            page.request("OPTIONS", path, content=claim, headers={**JSON, "authorization": f"Bearer {edge.root_token}"})
            denied = page.post(path, content=claim, headers={**JSON, "origin": ALLOWED_ORIGIN, "authorization": "Bearer no"})
            problem(denied, 401)
            assert denied.headers["access-control-allow-origin"] == ALLOWED_ORIGIN
    assert found(api, kind, {})[0]["state"] == "ready"
    assert good(api.get(f"/awake/{token}"))["state"] == "pending"


# --- C22: long lists ---


@pytest.mark.clause("records.pattern-safe", "kernel.limits")
def test_c22_lists_of_every_length_give_the_right_set_or_name_the_limit(api: httpx.Client) -> None:
    kind = declare(api, fresh("c22"), {"sku": "string"})
    batch = {"records": [{"kind": kind, "body": {"sku": f"s{number}"}} for number in range(1, 151)]}
    assert len(good(api.post("/records/batch", json=batch))["records"]) == 150
    for count in (0, 1, 95, 99, 100, 101, 150):
        wanted = [f"s{number}" for number in range(1, count + 1)]
        assert [one["body"]["sku"] for one in found(api, kind, {"sku": {"$in": [*wanted, *wanted]}})] == wanted
        assert len(found(api, kind, {"sku": {"$nin": wanted}})) == 150 - count
    for match in (
        {"sku": {"$in": [str(number) for number in range(1000)]}},
        {"$or": [{"sku": f"s{number}"} for number in range(120)]},
    ):
        refused = problem(api.post("/claims", json={"kind": kind, "worker": "w", "match": match}), 400)
        assert refused["code"] == "PatternInvalid"
        assert "500" in refused["detail"] or "64" in refused["detail"]
    assert found(api, kind, {"$and": [{"sku": {"$gte": "s"}}] * 40}) == found(api, kind, {})
    problem(api.post("/claims", json={"kind": kind, "worker": "w", "limit": 150}), 422)
    assert {one["state"] for one in found(api, kind, {})} == {"ready"}
    assert len(good(api.post("/claims", json={"kind": kind, "worker": "w", "limit": 100}))["claims"]) == 100

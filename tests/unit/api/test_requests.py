"""What holds for every route: admission, bodies, parameters, paths, methods, and what every answer carries."""

from typing import Any

import httpx
import pytest

from moorage.api.app import build_app
from moorage.api.reference import operations
from moorage.kernel.limits import JSON_DEPTH, PAGE_ITEMS, REQUEST_BYTES
from tests.unit.api.conftest import ROOT, House, client_of

DOCUMENT = build_app().document.openapi
OPERATIONS = [(method, path) for method, path, _ in operations(DOCUMENT)]
OPEN = {("GET", "/health"), ("GET", "/openapi.json"), ("GET", "/docs")}
JSON_ROUTES = [
    (method, path)
    for method, path, operation in operations(DOCUMENT)
    if "application/json" in operation.get("requestBody", {}).get("content", {}) and path != "/webhooks/{sender}"
]
"""A webhook's body is parsed once its signature was verified: see test_webhooks.py."""


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    body: dict[str, Any] = answer.json()
    assert body["code"] == code
    assert {"type", "title", "status", "detail", "code", "retryable"} <= body.keys()
    assert body["status"] == status
    return body


def filled(path: str) -> str:
    return path.replace("{", "").replace("}", "")


@pytest.mark.clause("catalog.credentials")
@pytest.mark.parametrize(("method", "path"), [one for one in OPERATIONS if one not in OPEN])
@pytest.mark.parametrize("shown", [None, "Bearer wrong", "Basic cm9vdA==", "Bearer", f"Bearer {ROOT}, Bearer x", ""])
async def test_every_route_but_health_and_the_document_takes_a_credential(
    nobody: httpx.AsyncClient, method: str, path: str, shown: str | None
) -> None:
    headers = {} if shown is None else {"authorization": shown}
    answer = await nobody.request(method, filled(path), headers=headers)
    problem(answer, 401, "RunStreamUnauthorized" if path.endswith("/stream") else "Unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "wrong" not in answer.text


@pytest.mark.parametrize(("method", "path"), sorted(OPEN))
async def test_open_routes_take_no_credential(nobody: httpx.AsyncClient, method: str, path: str) -> None:
    assert (await nobody.request(method, path)).status_code == 200


@pytest.mark.clause("kernel.ids")
@pytest.mark.parametrize(("method", "path"), [one for one in OPERATIONS if one[0] != "GET"])
async def test_every_write_checks_its_idempotency_key(root: httpx.AsyncClient, method: str, path: str) -> None:
    for key in ("", "k" * 201):
        problem(await root.request(method, filled(path), headers={"idempotency-key": key}), 400, "IdInvalid")
    twice = [("idempotency-key", "a"), ("idempotency-key", "b")]
    problem(await root.request(method, filled(path), headers=twice), 422, "RequestInvalid")


@pytest.mark.clause("edge.cors-head")
@pytest.mark.parametrize(("method", "path"), [one for one in OPERATIONS if one[0] != "GET"])
async def test_every_write_refuses_a_precondition_that_it_would_not_keep(
    root: httpx.AsyncClient, method: str, path: str
) -> None:
    for name in ("If-Match", "If-None-Match"):
        answer = await root.request(method, filled(path), headers={name: "*"})
        if path in ("/awake/{token}", "/webhooks/{sender}"):
            assert "if-" not in answer.text
        else:
            assert problem(answer, 422, "RequestInvalid")["errors"][0]["pointer"] == f"/header/{name.lower()}"


@pytest.mark.clause("edge.cors-head")
async def test_a_cache_may_revalidate_what_it_reads(root: httpx.AsyncClient) -> None:
    await root.put("/kv/ns/k", json={"value": 1})
    for headers in ({"if-none-match": '"x"'}, {"if-match": "*"}, {"if-modified-since": "Mon, 30 Nov 2026 00:00:00 GMT"}):
        assert (await root.get("/kv/ns/k", headers=headers)).json()["value"] == 1


@pytest.mark.clause("catalog.credentials")
async def test_a_refused_request_reads_nothing_of_its_body(nobody: httpx.AsyncClient) -> None:
    problem(await nobody.post("/records", content=b"\xff" * 100), 401, "Unauthenticated")


@pytest.mark.clause("kernel.canonical-json")
@pytest.mark.parametrize(("method", "path"), JSON_ROUTES)
@pytest.mark.parametrize("raw", [b"[" * 6_000, b"[" * 1_048_576, b'{"a":' * 6_000, b"[" * 6_000 + b"]" * 6_000])
async def test_deep_nesting_is_refused_on_every_route_that_takes_json(
    root: httpx.AsyncClient, method: str, path: str, raw: bytes
) -> None:
    headers = {"content-type": "application/json"}
    problem(await root.request(method, filled(path), content=raw, headers=headers), 400, "JsonInvalid")


@pytest.mark.clause("kernel.canonical-json", "kernel.limits")
async def test_nesting_is_taken_up_to_the_limit(root: httpx.AsyncClient) -> None:
    await root.put("/kinds/deep", json={})
    for depth, status in ((JSON_DEPTH - 2, 201), (JSON_DEPTH - 1, 400)):
        body: Any = 0
        for _ in range(depth):
            body = [body]
        answer = await root.post("/records", json={"kind": "deep", "body": {"a": body}})
        assert answer.status_code == status
        if status == 201:
            assert answer.json()["body"] == {"a": body}


@pytest.mark.clause("kernel.canonical-json")
@pytest.mark.parametrize(
    "raw",
    [
        b'{"kind":"a","kind":"b","body":{}}',
        b'{"kind":"a","body":{"n":NaN}}',
        b'{"kind":"a","body":{"n":01}}',
        b'{"kind":"a","body":{"n":1e400}}',
        b'{"kind":"a","body":{"n":9007199254740993}}',
        b'{"kind":"a","body":{"s":"\\ud800"}}',
        b'{"kind":"a","body":{"s":"\xff"}}',
        b"{",
        b"\x00",
        b"\xef\xbb\xbf{}",
    ],
)
async def test_bad_json_is_refused_by_name(root: httpx.AsyncClient, raw: bytes) -> None:
    answer = await root.post("/records", content=raw, headers={"content-type": "application/json"})
    problem(answer, 400, "JsonInvalid")


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", "json", "\x7f"])
async def test_another_media_type_is_refused(root: httpx.AsyncClient, media: str) -> None:
    answer = await root.post("/records", content=b"{}", headers={"content-type": media})
    assert problem(answer, 415, "UnsupportedMediaType")["accepted"] == ["application/json"]


@pytest.mark.parametrize(
    "media", ["application/json", "Application/JSON; charset=utf-8", "application/vnd.example.v3+json", None]
)
async def test_json_is_taken_under_its_types_and_under_none(root: httpx.AsyncClient, media: str | None) -> None:
    headers = {} if media is None else {"content-type": media}
    answer = await root.put("/kinds/typed", content=b'{"paths":{"a":"string"}}', headers=headers)
    assert answer.status_code == 200, answer.text


async def test_unknown_fields_are_refused_with_their_place(root: httpx.AsyncClient) -> None:
    sent = {"kind": "a", "body": {}, "extra": 1, "a/b~c": 2}
    found = problem(await root.post("/records", json=sent), 422, "RequestInvalid")["errors"]
    assert found == [
        {"pointer": "/extra", "message": "is not a known field"},
        {"pointer": "/a~1b~0c", "message": "is not a known field"},
    ]


@pytest.mark.parametrize(
    ("sent", "pointer"),
    [
        ({"kind": "a", "body": []}, "/body"),
        ({"kind": 1, "body": {}}, "/kind"),
        ({"kind": "a"}, "/body"),
        ({"kind": "a", "body": {}, "priority": True}, "/priority"),
        ({"kind": "a", "body": {}, "priority": "1"}, "/priority"),
        ({"kind": "a", "body": {}, "not_before": "tomorrow"}, "/not_before"),
        ({"kind": "a", "body": {}, "parents": ["x", 1]}, "/parents/1"),
        ([], ""),
        (None, ""),
        ("text", ""),
    ],
)
async def test_types_never_coerce(root: httpx.AsyncClient, sent: Any, pointer: str) -> None:
    found = problem(await root.post("/records", json=sent), 422, "RequestInvalid")["errors"]
    assert found[0]["pointer"] == pointer


async def test_an_empty_body_is_refused_where_one_is_needed(root: httpx.AsyncClient) -> None:
    problem(await root.post("/records", headers={"content-type": "application/json"}), 422, "RequestInvalid")


@pytest.mark.clause("kernel.limits")
@pytest.mark.parametrize("limit", ["0", "-1", "x", "10;drop", "", "1e3", str(PAGE_ITEMS + 1), "9" * 5000, "1.5", "１"])
async def test_a_bad_page_size_is_refused(root: httpx.AsyncClient, limit: str) -> None:
    found = problem(await root.get("/kinds", params={"limit": limit}), 422, "RequestInvalid")["errors"]
    assert found[0]["pointer"] == "/query/limit"
    if limit == str(PAGE_ITEMS + 1):
        assert str(int(PAGE_ITEMS)) in found[0]["message"]


@pytest.mark.clause("kernel.limits")
async def test_a_page_may_have_as_many_items_as_the_limit_says(root: httpx.AsyncClient) -> None:
    assert (await root.get("/kinds", params={"limit": int(PAGE_ITEMS)})).status_code == 200


@pytest.mark.parametrize("cursor", ["abc", "", "%00", "é", "A" * 1024, "eyJ", "====", "WzFd"])
async def test_a_bad_cursor_is_refused(root: httpx.AsyncClient, cursor: str) -> None:
    problem(await root.get("/kinds", params={"cursor": cursor}), 400, "CursorMismatch")


@pytest.mark.parametrize("query", ["limt=1", "limit=1&limit=2", "a=&b", "%ff=1", "&&=", "a[]=1", "limit%00=3"])
async def test_unknown_and_repeated_query_parameters_are_refused(root: httpx.AsyncClient, query: str) -> None:
    problem(await root.get(f"/kinds?{query}"), 422, "RequestInvalid")


async def test_a_pathological_query_string_is_answered(root: httpx.AsyncClient) -> None:
    for query in ("&" * 60_000, "%" * 10_000, "a=1&" * 15_000, "?" * 1000, "limit=1#x"):
        assert (await root.get(f"/kinds?{query}")).status_code in (200, 422)


@pytest.mark.clause("kernel.problem")
async def test_a_body_past_the_limit_is_refused_before_it_is_read(house: House) -> None:
    read: list[int] = []

    async def receive() -> dict[str, Any]:
        read.append(1)
        return {"type": "http.request", "body": b"", "more_body": False}

    status, _ = await call(house, receive, [(b"content-length", str(REQUEST_BYTES + 1).encode())])
    assert (status, read) == (413, [])


async def test_a_body_of_untold_length_is_read_no_further_than_the_limit(house: House) -> None:
    read: list[int] = []

    async def receive() -> dict[str, Any]:
        read.append(1)
        return {"type": "http.request", "body": b"[" * 1_000_000, "more_body": True}

    status, _ = await call(house, receive, [])
    assert status == 413
    assert len(read) == REQUEST_BYTES // 1_000_000 + 1


async def test_a_body_that_breaks_off_is_the_clients_fault(house: House) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    assert (await call(house, receive, []))[0] == 422


async def call(house: House, receive: Any, headers: list[tuple[bytes, bytes]]) -> tuple[int, bytes]:
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "scheme": "http",
        "path": "/records",
        "raw_path": b"/records",
        "query_string": b"",
        "headers": [(b"authorization", f"Bearer {ROOT}".encode()), *headers],
    }
    await build_app(house.ports())(scope, receive, send)
    return sent[0]["status"], sent[1]["body"]


# --- paths and methods ----------------------------------------------------------------------------------------------


@pytest.mark.clause("edge.cors-head")
@pytest.mark.parametrize(
    "path", ["/nope", "/", "/records/x/y/z", "/records//history", "//records", "/kinds//", "/%72", "/a%2Fb"]
)
async def test_unknown_paths_are_404(root: httpx.AsyncClient, path: str) -> None:
    problem(await raw_get(root, path), 404, "RouteUnknown")


@pytest.mark.clause("edge.cors-head")
@pytest.mark.parametrize("path", ["/records/%", "/records/%ZZ", "/records/%a", "/%ff", "/records/%ed%a0%80", "/records/a%"])
async def test_malformed_percent_encoding_is_400(root: httpx.AsyncClient, path: str) -> None:
    problem(await raw_get(root, path), 400, "IdInvalid")


async def raw_get(client: httpx.AsyncClient, path: str, method: str = "GET") -> httpx.Response:
    """Send a path as it is: httpx would make it well-formed."""
    url = httpx.URL("http://moorage.test").copy_with(raw_path=path.encode())
    return await client.send(httpx.Request(method, url, headers=client.headers))


@pytest.mark.clause("edge.cors-head")
@pytest.mark.parametrize(
    "made",
    ["a/b", "a%2Fb", "../x", ".", "..", "a b", "a+b", "a#b", "a?b=1", "é", "a;b", "a\\b", "%", "%ZZ", "a\0b", "x" * 201],
)
async def test_an_id_that_cannot_stand_in_a_path_is_refused_with_what_may(root: httpx.AsyncClient, made: str) -> None:
    await root.put("/kinds/doc", json={})
    answer = await root.post("/records", json={"kind": "doc", "body": {}, "id": made})
    detail = problem(answer, 400, "IdInvalid")["detail"]
    assert "letters, digits" in detail or "200 characters" in detail


@pytest.mark.clause("edge.cors-head", "kernel.ids")
@pytest.mark.parametrize("made", ["query", "batch", "cancel", "A", "a", "a@b:c", "~.-_", "x" * 200, "..."])
async def test_an_accepted_id_means_exactly_its_record(root: httpx.AsyncClient, made: str) -> None:
    await root.put("/kinds/doc", json={})
    await root.post(
        "/records", json={"kind": "doc", "body": {"of": "another"}, "id": made.swapcase() + "x"[: 200 - len(made)]}
    )
    answer = await root.post("/records", json={"kind": "doc", "body": {"of": made}, "id": made})
    assert answer.status_code == 201, answer.text
    encoded = "".join(f"%{byte:02X}" for byte in made.encode())
    for path in (f"/records/{made}", f"/records/{encoded}", f"/records/{made}/"):
        shown = await raw_get(root, path)
        assert (shown.status_code, shown.json()["body"]) == (200, {"of": made})
    claimed = await root.post(f"/claims/{made}/renew", json={"epoch": 1})
    problem(claimed, 409, "LeaseFenced")


@pytest.mark.clause("edge.cors-head")
async def test_an_encoded_slash_never_reaches_another_route(root: httpx.AsyncClient) -> None:
    await root.put("/kinds/doc", json={})
    await root.post("/records", json={"kind": "doc", "body": {}, "id": "a"})
    problem(await raw_get(root, "/records/a%2Fhistory"), 404, "RecordUnknown")
    problem(await raw_get(root, "/records/a%252Fhistory"), 404, "RecordUnknown")
    problem(await raw_get(root, "/records%2Fa"), 404, "RouteUnknown")


@pytest.mark.clause("edge.cors-head")
@pytest.mark.parametrize("path", sorted({path for method, path in OPERATIONS}))
async def test_head_options_and_a_trailing_slash_work_on_every_route(root: httpx.AsyncClient, path: str) -> None:
    url = filled(path)
    methods = {method for method, one in OPERATIONS if one == path}
    for spelled in (url, url + "/"):
        options = await root.options(spelled)
        expected = methods | {"OPTIONS"} | ({"HEAD"} if "GET" in methods else set())
        assert options.status_code == 204
        assert set(options.headers["allow"].split(", ")) == expected
        head = await root.head(spelled)
        if "GET" in methods:
            got = await root.get(spelled)
            assert (head.status_code, head.content) == (got.status_code, b"")
            assert head.headers.get("content-length") == got.headers.get("content-length")
        elif url not in (
            "/records/query",
            "/records/batch",
            "/records/dry-run",
            "/dead-letters/requeue",
            "/deliveries/redeliver",
            "/schedules/preview",
            "/executions/claim",
            "/executions/renew",
            "/executions/stops",
            "/executions/wait",
        ):  # also ids, which GET shows
            assert (head.status_code, head.headers["allow"]) == (405, ", ".join(sorted(expected)))


@pytest.mark.clause("edge.cors-head")
@pytest.mark.parametrize("method", ["DELETE", "PATCH", "TRACE", "BREW", "GET GET"])
async def test_a_method_that_a_route_does_not_have_is_405_with_allow(nobody: httpx.AsyncClient, method: str) -> None:
    answer = await nobody.send(httpx.Request(method, "http://moorage.test/records/query"))
    problem(answer, 405, "MethodNotAllowed")
    assert answer.headers["allow"] == "OPTIONS, POST"


async def test_every_answer_has_its_own_request_id(root: httpx.AsyncClient) -> None:
    paths = ["/health", "/nope", "/kinds", "/records/%ZZ", "/kinds?limit=0"]
    found = [(await raw_get(root, path)).headers["x-request-id"] for path in paths]
    assert len(set(found)) == len(paths)
    assert all(one.startswith("req_") for one in found)


async def test_only_a_credential_that_may_operate_is_told_the_cost(root: httpx.AsyncClient, house: House) -> None:
    await root.put("/kinds/doc", json={})
    told: dict[str, str | None] = {}
    for action in ("operate", "read"):
        made = {"subject": action, "grants": [{"actions": [action]}]}
        token = (await root.post("/credentials", json=made)).json()["token"]
        async with client_of(build_app(house.ports()), token) as client:
            told[action] = (await client.get("/kinds/doc")).headers.get("server-timing")
    assert told["read"] is None
    assert told["operate"] is not None
    assert told["operate"].startswith("d1;dur=")
    assert 'desc="trips=2 ' in told["operate"]


async def test_hostile_headers_are_answered(root: httpx.AsyncClient) -> None:
    for name in ("origin", "host", "content-type", "idempotency-key", "traceparent", "content-length", "x-any", "cookie"):
        for value in (b"\xff\xfe", b"a" * 10_000, b"-1", b"%00", b"9" * 400, b"\t", b"{}"):
            sent = httpx.Request("POST", "http://moorage.test/records/query", content=b"{}")
            sent.headers = httpx.Headers([(b"authorization", f"Bearer {ROOT}".encode()), (name.encode(), value)])
            answer = await root.send(sent)
            assert answer.status_code < 500, (name, value)

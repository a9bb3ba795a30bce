"""Tokens that a web page may hold: they publish, from their pages, and learn nothing."""

from typing import Any

import httpx
import pytest

from moorage.api.app import Application
from moorage.kernel.instants import after
from tests.unit.api.conftest import ORIGIN, House, client_of

PAGE = "https://shop.example.test"
OTHER = "https://other.example.test"
GRANTS = [{"actions": ["publish"], "kinds": ["click"]}]
CLICK = {"kind": "click", "body": {"n": 1}}


@pytest.fixture
async def declared(root: httpx.AsyncClient) -> httpx.AsyncClient:
    for kind in ("click", "secret"):
        await root.put(f"/kinds/{kind}", json={"paths": {"n": "number"}})
    return root


async def token(root: httpx.AsyncClient, **more: Any) -> str:
    made = await root.post("/credentials", json={"subject": "web", "grants": GRANTS, "public": True, **more})
    assert made.status_code == 201, made.text
    return str(made.json()["token"])


def preflight(origin: str, method: str = "POST") -> dict[str, str]:
    return {
        "origin": origin,
        "access-control-request-method": method,
        "access-control-request-headers": "authorization,content-type",
    }


def cors_of(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control-")}


@pytest.mark.clause("catalog.credentials", "catalog.grants")
async def test_a_public_credential_publishes_and_learns_the_id_alone(app: Application, declared: httpx.AsyncClient) -> None:
    async with client_of(app, await token(declared)) as web:
        published = await web.post("/records", json=CLICK, headers={"idempotency-key": "a"})
        assert published.status_code == 201
        assert list(published.json()) == ["id"]
        await declared.post("/claims", json={"kind": "click", "worker": "w"})
        again = await web.post("/records", json=CLICK, headers={"idempotency-key": "a"})
        assert again.json() == published.json()
        record = published.json()["id"]
        assert (await declared.get(f"/records/{record}")).json()["created_by"] == "web"


@pytest.mark.clause("catalog.credentials", "catalog.grants")
async def test_it_may_do_nothing_else(app: Application, declared: httpx.AsyncClient) -> None:
    record = (await declared.post("/records", json=CLICK)).json()["id"]
    minted = (await declared.post("/awakeables", json={"ttl_seconds": 60})).json()["token"]
    async with client_of(app, await token(declared)) as web:
        for method, path, body in (
            ("GET", f"/records/{record}", None),
            ("GET", "/kinds", None),
            ("GET", "/kinds/click", None),
            ("GET", "/history", None),
            ("POST", "/records/query", {"kind": "click"}),
            ("POST", "/records/batch", {"records": [CLICK]}),
            ("POST", "/claims", {"kind": "click", "worker": "w"}),
            ("POST", "/sessions", {}),
            ("POST", f"/awake/{minted}", {}),
        ):
            answer = await web.request(method, path, json=body)
            assert (answer.status_code, answer.json()["code"]) == (403, "Forbidden"), path
            assert "server-timing" not in answer.headers
        for wish in ({"id": "mine"}, {"parents": [record]}):
            assert (await web.post("/records", json={**CLICK, **wish})).status_code == 403
        assert (await web.post("/records", json={"kind": "secret", "body": {}})).status_code == 404
    assert (await declared.get(f"/awake/{minted}")).json()["state"] == "pending"


@pytest.mark.clause("edge.cors-head", "catalog.credentials")
async def test_pages_of_its_origins_may_call_that_one_route(app: Application, declared: httpx.AsyncClient) -> None:
    mine = await token(declared, origins=[PAGE])
    async with client_of(app, None) as page:
        allowed = await page.options("/records", headers=preflight(PAGE))
        assert allowed.status_code == 204
        assert cors_of(allowed)["access-control-allow-origin"] == PAGE
        assert cors_of(allowed)["access-control-allow-methods"] == "OPTIONS, POST"
        bearer = {"authorization": f"Bearer {mine}"}
        published = await page.post("/records", json=CLICK, headers={**bearer, "origin": PAGE})
        assert (published.status_code, cors_of(published)["access-control-allow-origin"]) == (201, PAGE)
        refused = await page.post("/records", json={**CLICK, "body": {"n": "x"}}, headers={**bearer, "origin": PAGE})
        assert (refused.status_code, cors_of(refused)["access-control-allow-origin"]) == (422, PAGE)
        for headers in ({"origin": OTHER}, {}, {"origin": "null"}):
            answer = await page.post("/records", json=CLICK, headers={**bearer, **headers})
            assert (answer.status_code, cors_of(answer)) == (403, {})
        for path, wish in (
            ("/records", preflight(OTHER)),
            ("/records", preflight(PAGE, "GET")),
            ("/records/batch", preflight(PAGE)),
            ("/claims", preflight(PAGE)),
            ("/records/query", preflight(PAGE)),
        ):
            assert not cors_of(await page.options(path, headers=wish)), path
        assert cors_of(await page.options("/claims", headers=preflight(ORIGIN)))


@pytest.mark.clause("edge.cors-head", "catalog.credentials")
async def test_without_origins_every_page_may_and_a_revoked_one_admits_none(
    app: Application, declared: httpx.AsyncClient
) -> None:
    made = await declared.post("/credentials", json={"subject": "web", "grants": GRANTS, "public": True})
    async with client_of(app, made.json()["token"]) as web:
        assert cors_of(await web.options("/records", headers=preflight(OTHER)))
        answer = await web.post("/records", json=CLICK, headers={"origin": OTHER})
        assert cors_of(answer)["access-control-allow-origin"] == OTHER
        await declared.delete(f"/credentials/{made.json()['id']}")
        assert not cors_of(await web.options("/records", headers=preflight(OTHER)))
        assert (await web.post("/records", json=CLICK)).status_code == 401


@pytest.mark.clause("catalog.credentials")
async def test_its_rate_is_shared_and_durable(app: Application, house: House, declared: httpx.AsyncClient) -> None:
    mine = await token(declared, rate={"per_second": 0.5, "burst": 2})
    async with client_of(app, mine) as web:
        assert [(await web.post("/records", json=CLICK)).status_code for _ in range(3)] == [201, 201, 429]
        answer = await web.post("/records", json=CLICK)
        assert (answer.json()["code"], answer.json()["retryable"], answer.headers["retry-after"]) == (
            "RateLimited",
            True,
            "2",
        )
        house.now = after(house.now, 2)
        assert [(await web.post("/records", json=CLICK)).status_code for _ in range(2)] == [201, 429]


@pytest.mark.clause("catalog.credentials")
@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        ({"grants": [{"actions": ["publish", "read"], "kinds": ["click"]}]}, "/grants/0/actions"),
        ({"grants": [{"actions": ["publish"]}]}, "/grants/0/kinds"),
        ({"grants": [{"actions": ["publish", "resume"], "kinds": ["click"]}]}, "/grants/0/actions"),
        ({"grants": [{"actions": ["resume"], "kinds": ["click"]}]}, "/grants/0/kinds"),
        ({"grants": [{"actions": ["resume"], "match": {"n": 1}}]}, "/grants/0/match"),
        ({"grants": [{"actions": ["publish"], "kinds": ["cl*"]}]}, "/grants/0/kinds"),
        ({"origins": ["shop.example.test"]}, "/origins/0"),
        ({"origins": ["https://shop.example.test/"]}, "/origins/0"),
        ({"origins": ["*"]}, "/origins/0"),
        ({"public": False, "origins": [PAGE]}, "/origins"),
        ({"public": False, "rate": {"per_second": 1}}, "/rate"),
        ({"rate": {"per_second": 0}}, "/rate/per_second"),
        ({"rate": {"per_second": 5e-324}}, "/rate/per_second"),
    ],
)
async def test_what_no_public_credential_may_be_is_refused(
    declared: httpx.AsyncClient, wrong: dict[str, Any], pointer: str
) -> None:
    sent = {"subject": "web", "grants": GRANTS, "public": True, **wrong}
    answer = await declared.post("/credentials", json=sent)
    assert (answer.status_code, [one["pointer"] for one in answer.json()["errors"]]) == (422, [pointer])


async def test_it_is_shown_as_what_it_is(declared: httpx.AsyncClient) -> None:
    made = await declared.post(
        "/credentials",
        json={"subject": "web", "grants": GRANTS, "public": True, "origins": [PAGE], "rate": {"per_second": 1.5}},
    )
    shown = (await declared.get(f"/credentials/{made.json()['id']}")).json()
    assert (shown["public"], shown["origins"], shown["rate"]) == (True, [PAGE], {"per_second": 1.5, "burst": 1})

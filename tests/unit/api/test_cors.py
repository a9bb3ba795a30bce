"""What browsers are told (case: preflight without credentials)."""

import dataclasses

import httpx
import pytest

from moorage.api.app import build_app
from tests.unit.api.conftest import ORIGIN, House, client_of

EVIL = "https://evil.example.test"
URLS = ["/claims", "/awake/some-token", "/records/query", "/kinds", "/claims/r/settle"]


def preflight(origin: str, method: str = "POST") -> dict[str, str]:
    return {
        "origin": origin,
        "access-control-request-method": method,
        "access-control-request-headers": "authorization,content-type",
    }


@pytest.mark.clause("edge.cors-head")
@pytest.mark.parametrize("url", URLS)
async def test_a_preflight_of_an_allowed_origin_is_answered_without_a_credential(
    nobody: httpx.AsyncClient, url: str
) -> None:
    answer = await nobody.options(url, headers=preflight(ORIGIN))
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    allowed = set(answer.headers["access-control-allow-methods"].split(", "))
    assert set((await nobody.options(url)).headers["allow"].split(", ")) <= allowed
    assert answer.headers["access-control-allow-headers"] == "authorization,content-type"
    assert answer.headers["vary"] == "origin"
    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.clause("edge.cors-head")
@pytest.mark.parametrize("origin", [EVIL, "null", ORIGIN + ".evil.test", ORIGIN.upper(), "", ORIGIN + ", " + EVIL])
async def test_another_origin_is_allowed_nothing(root: httpx.AsyncClient, origin: str) -> None:
    for answer in (
        await root.options("/claims", headers=preflight(origin)),
        await root.get("/kinds", headers={"origin": origin}),
    ):
        assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.clause("edge.cors-head")
async def test_options_without_an_origin_tells_the_methods(nobody: httpx.AsyncClient) -> None:
    answer = await nobody.options("/claims")
    assert (answer.status_code, answer.headers["allow"]) == (204, "OPTIONS, POST")


@pytest.mark.clause("edge.cors-head")
async def test_options_with_a_body_has_no_effect(root: httpx.AsyncClient) -> None:
    await root.put("/kinds/doc", json={})
    await root.post("/records", json={"kind": "doc", "body": {}, "id": "r"})
    await root.request("OPTIONS", "/claims", json={"kind": "doc", "worker": "w"}, headers=preflight(ORIGIN))
    assert (await root.get("/records/r")).json()["state"] == "ready"


@pytest.mark.clause("edge.cors-head")
@pytest.mark.parametrize("url", ["/claims", "/nope", "/records/%ZZ"])
async def test_a_page_of_an_allowed_origin_can_read_errors(nobody: httpx.AsyncClient, url: str) -> None:
    answer = await nobody.post(url, headers={"origin": ORIGIN, "authorization": "Bearer bad"})
    assert answer.status_code in (400, 401, 404)
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert "x-request-id" in answer.headers["access-control-expose-headers"]


@pytest.mark.parametrize("asked", ["a b", "x\x01", "(", "a" * 2000])
async def test_malformed_requested_headers_are_not_repeated(nobody: httpx.AsyncClient, asked: str) -> None:
    headers = {**preflight(ORIGIN), "access-control-request-headers": asked}
    answer = await nobody.options("/claims", headers=headers)
    assert answer.status_code == 204
    assert "access-control-allow-headers" not in answer.headers


async def test_every_origin_may_be_allowed_but_never_with_credentials(house: House) -> None:
    ports = house.ports()
    settings = dataclasses.replace(ports.settings, allowed_origins=frozenset({"*"}))
    async with client_of(build_app(dataclasses.replace(ports, settings=settings))) as client:
        answer = await client.get("/kinds", headers={"origin": EVIL})
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in answer.headers

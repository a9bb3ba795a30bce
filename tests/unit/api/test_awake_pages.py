"""Awakeables resolved from web pages, with a token that the page may hold; and payloads that go to the bucket, over HTTP."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from moorage.api.app import Application, build_app
from moorage.kernel.instants import after
from moorage.kernel.limits import AWAKE_PAYLOAD_BYTES, JOURNAL_INLINE_BYTES
from moorage.store.directory import DirectoryBlobs
from tests.unit.api.conftest import ORIGIN, House, client_of
from tests.unit.api.test_awake import mint
from tests.unit.api.test_public import OTHER, PAGE, cors_of, preflight
from tests.unit.api.test_requests import problem

RESUME = [{"actions": ["resume"]}]


async def token(root: httpx.AsyncClient, grants: Any = RESUME, **more: Any) -> str:
    made = await root.post("/credentials", json={"subject": "page", "grants": grants, "public": True, **more})
    assert made.status_code == 201, made.text
    return str(made.json()["token"])


@pytest.mark.clause("awake.route", "catalog.credentials")
async def test_a_page_resolves_and_rejects_by_the_tokens_it_was_given(app: Application, root: httpx.AsyncClient) -> None:
    yes, no = await mint(root), await mint(root)
    async with client_of(app, await token(root)) as page:
        assert (await page.post(f"/awake/{yes}", json={"approved": True})).json() == {"approved": True}
        assert (await page.post(f"/awake/{yes}", json={"approved": True})).status_code == 200
        problem(await page.post(f"/awake/{yes}", json={"approved": False}), 409, "AwakeableAlreadyResolved")
        answer = await page.post(f"/awake/{no}/reject", json={"tag": "Forbidden", "message": "no"})
        assert answer.json()["state"] == "rejected"
        problem(await page.post("/awake/unknown", json=1), 404, "AwakeableUnknown")
        problem(await page.post("/awake/unknown/reject", json={"tag": "Forbidden", "message": ""}), 404, "AwakeableUnknown")
    assert (await root.get(f"/awake/{yes}")).json()["ended_by"] == "page"


@pytest.mark.clause("catalog.credentials", "catalog.grants")
async def test_such_a_token_reads_and_does_nothing_else(app: Application, root: httpx.AsyncClient) -> None:
    await root.put("/kinds/click", json={})
    made = (await root.post("/awakeables", json={"ttl_seconds": 60})).json()
    async with client_of(app, await token(root)) as page:
        for method, path, body in (
            ("GET", f"/awake/{made['token']}", None),
            ("GET", f"/awakeables/{made['id']}", None),
            ("GET", "/awakeables", None),
            ("POST", "/awakeables", {"ttl_seconds": 60}),
            ("POST", "/records", {"kind": "click", "body": {}}),
            ("POST", "/claims", {"kind": "click", "worker": "w"}),
            ("GET", "/kinds", None),
        ):
            problem(await page.request(method, path, json=body), 403, "Forbidden")
    publisher = await token(root, [{"actions": ["publish"], "kinds": ["click"]}])
    async with client_of(app, publisher) as page:
        problem(await page.post(f"/awake/{made['token']}", json=1), 403, "Forbidden")
        problem(
            await page.post(f"/awake/{made['token']}/reject", json={"tag": "Forbidden", "message": ""}), 403, "Forbidden"
        )
    assert (await root.get(f"/awake/{made['token']}")).json()["state"] == "pending"


@pytest.mark.clause("awake.binding", "catalog.credentials")
async def test_a_page_resolves_what_is_bound_to_its_own_subject_and_nothing_else_that_is_bound(
    app: Application, root: httpx.AsyncClient
) -> None:
    own, others = await mint(root, subject="page"), await mint(root, subject="github")
    async with client_of(app, await token(root)) as page:
        problem(await page.post(f"/awake/{others}", json=1), 404, "AwakeableUnknown")
        assert (await page.post(f"/awake/{own}", json=1)).status_code == 200


@pytest.mark.clause("edge.cors-head", "awake.route")
@pytest.mark.parametrize("path", ["/awake/{}", "/awake/{}/reject"])
async def test_pages_of_its_origins_alone_may_call(app: Application, root: httpx.AsyncClient, path: str) -> None:
    promise = await mint(root)
    body = {"tag": "Forbidden", "message": "no"}
    place = path.format(promise)
    async with client_of(app, None) as anybody:
        assert not cors_of(await anybody.options(place, headers=preflight(PAGE)))
    publisher = await token(root, [{"actions": ["publish"], "kinds": ["click"]}], origins=[OTHER])
    mine = await token(root, origins=[PAGE])
    async with client_of(app, None) as anybody:
        allowed = await anybody.options(place, headers=preflight(PAGE))
        assert (allowed.status_code, cors_of(allowed)["access-control-allow-origin"]) == (204, PAGE)
        assert cors_of(allowed)["access-control-allow-headers"] == "authorization,content-type"
        # An origin that may publish may not resolve.
        assert not cors_of(await anybody.options(place, headers=preflight(OTHER)))
        assert not cors_of(await anybody.options(place, headers=preflight(PAGE, "GET")))
        assert not cors_of(await anybody.options("/records", headers=preflight(PAGE)))
        for origin in (OTHER, None):
            headers = {"authorization": f"Bearer {mine}", **({} if origin is None else {"origin": origin})}
            answer = await anybody.post(place, json=body, headers=headers)
            assert (answer.status_code, cors_of(answer)) == (403, {})
        assert (await root.get(f"/awake/{promise}")).json()["state"] == "pending"
        refused = await anybody.post(place, json=body, headers={"authorization": f"Bearer {publisher}", "origin": OTHER})
        assert (refused.status_code, (await root.get(f"/awake/{promise}")).json()["state"]) == (403, "pending")
        answer = await anybody.post(place, json=body, headers={"authorization": f"Bearer {mine}", "origin": PAGE})
        assert (answer.status_code, cors_of(answer)["access-control-allow-origin"]) == (200, PAGE)


@pytest.mark.clause("edge.cors-head", "awake.route")
async def test_pages_of_the_deployments_origins_call_with_any_credential(app: Application, root: httpx.AsyncClient) -> None:
    promise = await mint(root)
    made = await root.post("/credentials", json={"subject": "reviewer", "grants": []})
    headers = {"authorization": f"Bearer {made.json()['token']}", "origin": ORIGIN}
    async with client_of(app, None) as page:
        assert cors_of(await page.options(f"/awake/{promise}", headers=preflight(ORIGIN)))
        answer = await page.post(f"/awake/{promise}", json=1, headers=headers)
        assert (answer.status_code, cors_of(answer)["access-control-allow-origin"]) == (200, ORIGIN)
        unread = await page.post(f"/awake/{promise}", json=1, headers={"origin": ORIGIN})
        assert (unread.status_code, cors_of(unread)["access-control-allow-origin"]) == (401, ORIGIN)


@pytest.mark.clause("catalog.credentials")
async def test_its_rate_bounds_guesses_too(app: Application, house: House, root: httpx.AsyncClient) -> None:
    promise = await mint(root)
    async with client_of(app, await token(root, rate={"per_second": 0.5, "burst": 2})) as page:
        for _ in range(2):
            problem(await page.post("/awake/a-guess", json=1), 404, "AwakeableUnknown")
        problem(await page.post(f"/awake/{promise}", json=1), 429, "RateLimited")
        problem(await page.post(f"/awake/{promise}/reject", json={"tag": "Forbidden", "message": ""}), 429, "RateLimited")
        house.now = after(house.now, 2)
        assert (await page.post(f"/awake/{promise}", json=1)).status_code == 200


# --- large payloads ---------------------------------------------------------------------------------------------------


@pytest.fixture
def with_bucket(house: House, tmp_path: Path) -> Application:
    house.blobs = DirectoryBlobs(tmp_path)
    return build_app(house.ports())


@pytest.mark.clause("blobs.inline-cutoff", "awake.content-types")
@pytest.mark.parametrize("media", ["application/json", "text/plain"])
async def test_a_large_payload_is_answered_and_read_back_exactly(with_bucket: Application, media: str) -> None:
    text = "é" * JOURNAL_INLINE_BYTES
    raw = (f'"{text}"' if media == "application/json" else text).encode()
    async with client_of(with_bucket) as root:
        made = (await root.post("/awakeables", json={"ttl_seconds": 60})).json()
        for _ in range(2):
            answer = await root.post(f"/awake/{made['token']}", content=raw, headers={"content-type": media})
            assert (answer.status_code, answer.json()) == (200, text)
        other = await root.post(f"/awake/{made['token']}", json=f"{text}!")
        problem(other, 409, "AwakeableAlreadyResolved")
        for path in (f"/awake/{made['token']}", f"/awakeables/{made['id']}"):
            assert (await root.get(path)).json()["payload"] == text
        assert "payload" not in (await root.get("/awakeables")).json()["items"][0]


@pytest.mark.clause("kernel.limits")
async def test_limits_tell_of_payloads_and_one_byte_more_is_413(with_bucket: Application) -> None:
    async with client_of(with_bucket) as root:
        told = (await root.get("/limits")).json()["awake_payload_bytes"]
        assert told["value"] == AWAKE_PAYLOAD_BYTES == 8 * 1024 * 1024
        promise = await mint(root)
        raw = b"x" * (AWAKE_PAYLOAD_BYTES - 2)
        headers = {"content-type": "text/plain"}
        problem(await root.post(f"/awake/{promise}", content=raw + b"x", headers=headers), 413, "PayloadTooLarge")
        assert (await root.get(f"/awake/{promise}")).json()["state"] == "pending"
        assert (await root.post(f"/awake/{promise}", content=raw, headers=headers)).status_code == 200


@pytest.mark.clause("blobs.inline-cutoff")
async def test_without_a_bucket_only_large_payloads_are_refused(root: httpx.AsyncClient) -> None:
    promise = await mint(root)
    headers = {"content-type": "text/plain"}
    raw = b"x" * (JOURNAL_INLINE_BYTES - 1)
    problem(await root.post(f"/awake/{promise}", content=raw, headers=headers), 503, "StorageCapabilityMissing")
    assert (await root.get(f"/awake/{promise}")).json()["state"] == "pending"
    assert (await root.post(f"/awake/{promise}", content=raw[:-1], headers=headers)).status_code == 200

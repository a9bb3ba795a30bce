"""Seals through HTTP: who may, what is answered, and when the Clock is told."""

from typing import Any

import httpx
import pytest

from moorage.api.app import Application
from moorage.history.seals import due_after
from moorage.kernel.limits import VERIFY_BATCH
from tests.unit.api.conftest import House, client_of

pytestmark = pytest.mark.clause("history.seal")

KIND = "doc"


async def publish(client: httpx.AsyncClient, count: int = 1) -> list[str]:
    sent = {"records": [{"kind": KIND, "body": {"n": number, "text": "é"}} for number in range(count)]}
    answer = await client.post("/records/batch", json=sent)
    assert answer.status_code == 201, answer.text
    return [record["id"] for record in answer.json()["records"]]


@pytest.fixture
async def docs(root: httpx.AsyncClient) -> httpx.AsyncClient:
    """Root's client, with a kind declared: one entry."""
    assert (await root.put(f"/kinds/{KIND}", json={"paths": {"n": "number"}})).is_success
    return root


async def verified(client: httpx.AsyncClient, **sent: Any) -> dict[str, Any]:
    answer = await client.post("/seals/verify", json=sent)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_sealing_verifying_and_listing(docs: httpx.AsyncClient) -> None:
    await publish(docs, 2)
    done = (await docs.post("/seals")).json()
    head = done["head"]
    assert done == {"sealed": 3, "head": {"position": 3, "link": head["link"]}, "unsealed": 0}
    assert await verified(docs) == {"ok": True, "checked": 3, "head": head, "unsealed": 0}
    await publish(docs)
    assert await verified(docs, limit=2, head=head) == {
        "ok": True, "checked": 2, "head": (await verified(docs, limit=2))["head"], "unsealed": 1, "next": 2,
    }  # fmt: skip
    assert (await verified(docs, after=2))["checked"] == 1
    assert (await docs.post("/seals")).json()["sealed"] == 1
    assert (await docs.post("/seals")).json()["sealed"] == 0
    newest = (await docs.get("/seals", params={"order": "desc", "limit": 1})).json()
    assert [(one["position"], one["entries"]) for one in newest["items"]] == [(4, 1)]
    older = await docs.get("/seals", params={"order": "desc", "limit": 1, "cursor": newest["next_cursor"]})
    assert older.json()["items"][0]["link"] == head["link"]
    other = await docs.get("/seals", params={"cursor": newest["next_cursor"]})
    assert (other.status_code, other.json()["code"]) == (400, "CursorMismatch")


async def test_entries_are_given_with_their_links(docs: httpx.AsyncClient) -> None:
    await publish(docs, 3)
    assert (await docs.get("/seals/entries")).json() == {"items": [], "next_cursor": None}
    head = (await docs.post("/seals")).json()["head"]
    first = (await docs.get("/seals/entries", params={"limit": 3, "after": 0})).json()
    rest = (await docs.get("/seals/entries", params={"limit": 3, "cursor": first["next_cursor"]})).json()
    assert [one["position"] for one in first["items"] + rest["items"]] == [1, 2, 3, 4]
    assert rest["items"][-1]["link"] == head["link"]
    assert rest["next_cursor"] is None


async def test_the_whole_of_history_takes_a_grant_to_operate(app: Application, docs: httpx.AsyncClient) -> None:
    grants = [{"actions": ["read", "publish", "claim"]}, {"actions": ["operate"], "kinds": [KIND]}]
    token = (await docs.post("/credentials", json={"subject": "w", "grants": grants})).json()["token"]
    async with client_of(app, token) as worker:
        for method, path in (("POST", "/seals"), ("GET", "/seals"), ("GET", "/seals/entries"), ("POST", "/seals/verify")):
            answer = await worker.request(method, path, json={} if path.endswith("verify") else None)
            assert (answer.status_code, answer.json()["code"]) == (403, "Forbidden")


async def test_a_revoked_operator_seals_nothing(house: House, app: Application, docs: httpx.AsyncClient) -> None:
    made = (
        await docs.post("/credentials", json={"subject": "o", "grants": [{"actions": ["operate"], "kinds": ["*"]}]})
    ).json()
    async with client_of(app, made["token"]) as operator:
        assert (await operator.get("/seals")).status_code == 200
        house.connection.execute("UPDATE credentials SET revoked_at = 1")
        assert (await operator.post("/seals")).status_code == 401
    assert house.connection.execute("SELECT count(*) FROM seals").fetchone()[0] == 0


@pytest.mark.parametrize(
    "sent",
    [
        {"limit": 0},
        {"limit": int(VERIFY_BATCH) + 1},
        {"after": -1},
        {"after": 2**53},
        {"head": {"position": 0, "link": "0" * 64}},
        {"head": {"position": 1, "link": "0" * 63}},
        {"head": {"position": 1, "link": "G" * 64}},
        {"other": 1},
    ],
    ids=str,
)
async def test_what_makes_no_sense_is_refused(docs: httpx.AsyncClient, sent: dict[str, Any]) -> None:
    answer = await docs.post("/seals/verify", json=sent)
    assert (answer.status_code, answer.json()["code"]) == (422, "RequestInvalid")


@pytest.mark.parametrize("after", [4, 2**53 - 2, 2**53 - 1])
async def test_a_position_far_behind_the_end_is_answered(docs: httpx.AsyncClient, after: int) -> None:
    await publish(docs, 2)
    await docs.post("/seals")
    head = {"position": 2**53 - 1, "link": "0" * 64}
    for sent in ({}, {"content": True}, {"head": head}):
        found = await verified(docs, after=after, **sent)
        assert (found["broken"]["position"], found["head"], found["checked"]) == (4, None, 0)
    assert (await verified(docs, head=head))["broken"]["position"] == 4
    assert (await docs.get("/seals/entries", params={"after": after})).json() == {"items": [], "next_cursor": None}


async def test_edited_data_that_is_no_json_is_named_and_breaks_no_answer(house: House, docs: httpx.AsyncClient) -> None:
    await publish(docs, 2)
    await docs.post("/seals")
    house.connection.execute("UPDATE history SET data = '{', at = 1 << 62 WHERE position = 2")
    house.connection.execute("UPDATE seals SET sealed_at = 1 << 62")
    assert (await verified(docs))["broken"]["position"] == 2
    assert (await docs.get("/seals/entries")).status_code == 200
    assert (await docs.get("/seals")).status_code == 200


async def test_an_edited_body_is_found_when_content_is_compared(house: House, docs: httpx.AsyncClient) -> None:
    first, second = await publish(docs, 2)
    await docs.post("/seals")
    assert (await verified(docs, content=True))["ok"]
    house.connection.execute("UPDATE records SET body = replace(body, 'é', 'e') WHERE id = ?", (second,))
    assert (await verified(docs))["ok"]
    assert (await verified(docs, content=True))["broken"]["position"] == 3
    house.connection.execute("UPDATE records SET body_sha256 = 'x' WHERE id = ?", (first,))
    found = await verified(docs, content=True)
    assert (found["ok"], found["broken"]["position"]) == (False, 2)
    house.connection.execute("UPDATE history SET actor = 'x' WHERE position = 1")
    assert (await verified(docs, content=True))["broken"]["position"] == 1


async def test_a_removed_record_leaves_the_chain_valid(house: House, docs: httpx.AsyncClient) -> None:
    await publish(docs, 3)
    await docs.post("/seals")
    house.connection.execute("DELETE FROM records")
    assert (await verified(docs, content=True))["ok"]
    assert (await docs.get("/history")).json()["items"][-1]["content_sha256"] is not None


async def test_large_bodies_are_compared_over_several_requests(docs: httpx.AsyncClient) -> None:
    for number in range(20):
        body = {"text": f"{number}" + "x" * 1_000_000}
        assert (await docs.post("/records", json={"kind": KIND, "body": body})).status_code == 201
    await docs.post("/seals")
    after, requests = 0, 0
    while True:
        found = await verified(docs, content=True, after=after)
        assert found["ok"]
        requests += 1
        if "next" not in found:
            break
        after = found["next"]
    assert requests == 2


async def test_the_clock_is_told_of_what_was_written_and_of_nothing_else(house: House, docs: httpx.AsyncClient) -> None:
    due = due_after(house.now)
    house.woken.clear()
    await publish(docs)
    assert due in house.woken
    house.woken.clear()
    assert (await docs.post("/records/query", json={"kind": KIND})).status_code == 200
    assert (await docs.post("/claims", json={"kind": KIND, "match": {"n": 77}, "worker": "w"})).json() == {"claims": []}
    assert (await docs.post("/seals/verify", json={})).status_code == 200
    assert house.woken == []


async def test_the_test_clock_seals_as_the_clock_would(docs: httpx.AsyncClient) -> None:
    await publish(docs, 2)
    moved = (await docs.post("/testing/clock", json={"advance_seconds": 10})).json()
    assert moved["fired"] == {"history_sealed": 3}
    assert (await verified(docs))["checked"] == 3


async def test_a_publication_costs_what_it_did(docs: httpx.AsyncClient) -> None:
    sent = {"kind": KIND, "body": {"n": 1}}
    before = (await docs.post("/records", json=sent)).headers["server-timing"]
    await docs.post("/seals")
    after = (await docs.post("/records", json=sent)).headers["server-timing"]
    assert before.split("desc=")[1].split(",")[0] == after.split("desc=")[1].split(",")[0]
    assert "trips=1" in after

"""A DELETE that is repeated after a lost answer: under its Idempotency-Key it happens once, whatever was made since."""

from typing import Any

import httpx
import pytest

from tests.unit.api.conftest import House, client_of
from tests.unit.api.test_requests import problem

ROOMS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "timers": ("/timers/t", {"delay_seconds": 60, "event": {"type": "ping"}}, {"revision": 1}),
    "schedules": ("/schedules/s", {"every_seconds": 60, "target": {"record": {"kind": "tick", "body": {}}}}, {}),
    "kv": ("/kv/space/key", {"value": 1}, {"revision": 1}),
    "kv of any revision": ("/kv/space/key", {"value": 1}, {}),
    "subscriptions": ("/subscriptions/all", {"types": ["*"], "destination": "there"}, {}),
}


@pytest.mark.clause("records.idempotent", "kv.ops")
@pytest.mark.parametrize("room", ROOMS)
async def test_a_repeated_deletion_happens_once(root: httpx.AsyncClient, room: str) -> None:
    path, sent, query = ROOMS[room]
    assert (await root.put("/kinds/tick", json={})).status_code < 300
    assert (await root.put("/destinations/there", json={"url": "https://there.example/hook"})).status_code < 300
    assert (await root.put(path, json=sent)).status_code < 300
    key = {"idempotency-key": "k"}

    async def delete(**headers: str) -> httpx.Response:
        return await root.delete(path, params=query, headers=headers)

    assert [(await delete(**key)).status_code for _ in range(3)] == [204] * 3
    assert (await delete()).status_code == (204 if room.startswith("kv") else 404), "without a key: as it stands"
    before = len((await root.get("/history", params={"limit": 500})).json()["items"])
    assert (await root.put(path, json=sent)).status_code < 300
    assert (await delete(**key)).status_code == 204
    assert (await root.get(path)).status_code == 200, "what was made since stays"
    told = (await root.get("/history", params={"limit": 500})).json()["items"][before:]
    assert not [one["type"] for one in told if one["type"].endswith(".deleted")]
    other = {"timers": "/timers/u", "schedules": "/schedules/u", "subscriptions": "/subscriptions/u"}
    elsewhere = other.get(room, "/kv/space/u")
    problem(await root.delete(elsewhere, params=query, headers=key), 409, "IdempotencyConflict")


async def test_whoever_may_not_delete_learns_nothing_by_a_key(root: httpx.AsyncClient, house: House, app: Any) -> None:
    await root.put("/timers/t", json={"delay_seconds": 60, "event": {"type": "ping"}})
    grants = [{"actions": ["publish"], "kinds": ["pong"]}]
    token = (await root.post("/credentials", json={"subject": "ann", "grants": grants})).json()["token"]
    key = {"idempotency-key": "k"}
    async with client_of(app, token) as ann:
        problem(await ann.delete("/timers/t?revision=1", headers=key), 404, "TimerUnknown")
    assert (await root.delete("/timers/t?revision=1", headers=key)).status_code == 204
    async with client_of(app, token) as ann:
        problem(await ann.delete("/timers/t?revision=1", headers=key), 404, "TimerUnknown")

"""Subscriptions, completions and deliveries over HTTP (clauses outbox.event-shape, outbox.redeliver, outbox.lag,
completion.subscribe)."""

import json
import re
from collections.abc import Awaitable
from typing import Any

import httpx
import pytest

from moorage.kernel.instants import render
from moorage.kernel.limits import COMPLETIONS, SUBSCRIPTION_TYPES, SUBSCRIPTIONS
from moorage.messages.outbox.fan_out import OutboxFanOut
from tests.unit.api.conftest import House, client_of

KIND = {"paths": {"weight": "number", "to": "string"}}


async def told(answering: Awaitable[httpx.Response], status: int = 200, code: str | None = None) -> Any:
    answer = await answering
    assert answer.status_code == status, answer.text
    if status == 204:
        return None
    body = answer.json()
    assert code is None or body["code"] == code
    return body


@pytest.fixture
async def api(root: httpx.AsyncClient) -> httpx.AsyncClient:
    for name in ("there", "elsewhere"):
        await told(root.put(f"/destinations/{name}", json={"url": f"https://{name}.example.com/hook"}))
    await told(root.put("/kinds/parcels", json=KIND), 200)
    return root


async def subscribe(api: httpx.AsyncClient, name: str = "all", start: int | str | None = None, **declared: Any) -> Any:
    begin = {} if start is None else {"from": start}
    sent = {"types": ["*"], "destination": "there", **declared, **begin}
    return await told(api.put(f"/subscriptions/{name}", json=sent))


async def publish(api: httpx.AsyncClient, **body: Any) -> str:
    made = await told(api.post("/records", json={"kind": "parcels", "body": body}), 201)
    return str(made["record"]["id"] if "record" in made else made["id"])


async def fan_out(house: House, *names: str) -> None:
    for name in names or ("all",):
        while await OutboxFanOut("shop").look_further(house.database(), house.now, name):
            pass


async def listed(api: httpx.AsyncClient, **wanted: Any) -> list[dict[str, Any]]:
    return list((await told(api.get("/deliveries", params=wanted)))["items"])


@pytest.mark.clause("outbox.event-shape")
async def test_what_is_told_of_a_publication(api: httpx.AsyncClient, house: House) -> None:
    await subscribe(api, types=["record.*"], kinds=["parcels"])
    record = await publish(api, weight=3, to="a secret place")
    await fan_out(house)
    [head] = await listed(api)
    assert "body" not in head
    shown = await told(api.get(f"/deliveries/{head['delivery_id']}"))
    sent = json.loads(shown["body"])
    [entry] = (await told(api.get("/history", params={"subject": record})))["items"]
    event = head["event_id"]
    assert re.fullmatch(f"dom_{entry['position']:016d}_[0-9a-f]{{12}}", event)
    assert shown == {**head, "body": shown["body"]}
    assert (head["event_id"], head["type"], head["aggregate_id"], head["generation"]) == (
        event,
        "record.published",
        record,
        1,
    )
    assert sent == {
        "specversion": "1.0",
        "id": event,
        "source": "/moorage/shop",
        "type": "record.published",
        "subject": record,
        "time": entry["at"],
        "datacontenttype": "application/json",
        "data": {
            "event_id": event,
            "schema_version": "1",
            "aggregate_id": record,
            "aggregate_revision": 1,
            "occurred_at": entry["at"],
            "type": "record.published",
            "kind": "parcels",
            "data_ref": f"/records/{record}",
            "content_sha256": entry["content_sha256"],
        },
    }
    assert "secret place" not in shown["body"]
    assert (await told(api.get(sent["data"]["data_ref"])))["body"]["to"] == "a secret place"


async def test_a_new_subscription_begins_now_and_a_changed_one_where_it_stood(api: httpx.AsyncClient, house: House) -> None:
    await publish(api, weight=1)
    made = await subscribe(api, types=["record.published"])
    assert (made["state"], made["behind"], made["kinds"], made["filter"]) == ("active", 0, [], None)
    await publish(api, weight=2)
    assert (await told(api.get("/subscriptions/all")))["behind"] == 1
    changed = await subscribe(api, types=["record.published"], kinds=["parcels"], filter={"weight": {"$gte": 2}})
    assert changed["position"] == made["position"]
    assert changed["filter"] == {"weight": {"$gte": 2}}
    await fan_out(house)
    assert len(await listed(api)) == 1
    again = await subscribe(api, start=0)
    assert again["position"] == 0
    await fan_out(house)
    everything = await told(api.get("/history"))
    assert len(await listed(api)) == len(everything["items"]), "what was told before is not told again, all else is"
    newest = await subscribe(api, start="now")
    assert newest["behind"] == 0
    assert (await subscribe(api, "late", start=2**53 - 1))["behind"] == 0


async def test_pausing_resuming_and_deleting(api: httpx.AsyncClient, house: House) -> None:
    await subscribe(api, types=["record.published"])
    paused = await told(api.post("/subscriptions/all/pause", json={"reason": "they move house"}))
    assert (paused["state"], paused["reason"]) == ("paused", "they move house")
    await publish(api, weight=1)
    await fan_out(house)
    assert await listed(api) == []
    house.dues.clear()
    resumed = await told(api.post("/subscriptions/all/resume"))
    assert (resumed["state"], resumed["reason"]) == ("active", None)
    assert (house.now, "messages") in house.dues
    await fan_out(house)
    await told(api.delete("/subscriptions/all"), 204)
    assert len(await listed(api)) == 1, "what was told already is still delivered"
    await told(api.delete("/subscriptions/all"), 404, "SubscriptionUnknown")
    for asked in (api.get("/subscriptions/all"), api.post("/subscriptions/all/pause", json={})):
        await told(asked, 404, "SubscriptionUnknown")
    assert (await subscribe(api, paused=True))["state"] == "paused"
    assert [one["name"] for one in (await told(api.get("/subscriptions")))["items"]] == ["all"]


@pytest.mark.parametrize(
    ("declared", "status", "code"),
    [
        ({"types": []}, 422, "RequestInvalid"),
        ({"types": ["record.published", "record.published"]}, 422, "RequestInvalid"),
        ({"types": ["re*cord"]}, 422, "RequestInvalid"),
        ({"types": [""]}, 422, "RequestInvalid"),
        ({"types": ["delivery.canceled"]}, 422, "RequestInvalid"),
        ({"types": ["record"]}, 422, "RequestInvalid"),
        ({"types": ["records.*"]}, 422, "RequestInvalid"),
        ({"types": ["record.*", "payment.received"]}, 422, "RequestInvalid"),
        ({"types": ["t"] * (SUBSCRIPTION_TYPES + 1)}, 422, "RequestInvalid"),
        ({"kinds": ["Parcels"]}, 422, "RequestInvalid"),
        ({"kinds": ["*"]}, 422, "RequestInvalid"),
        ({"destination": "nowhere"}, 404, "DestinationUnknown"),
        ({"from": -1}, 422, "RequestInvalid"),
        ({"from": True}, 422, "RequestInvalid"),
        ({"from": 2**53}, 422, "RequestInvalid"),
        ({"from": "then"}, 422, "RequestInvalid"),
        ({"filter": {"$huh": 1}}, 422, "PatternInvalid"),
        ({"types": ["record.*"], "kinds": ["parcels"], "filter": {"color": "red"}}, 422, "PatternInvalid"),
        ({"types": ["record.*"], "kinds": ["boxes"], "filter": {"weight": 1}}, 404, "KindUnknown"),
        ({"surprise": 1}, 422, "RequestInvalid"),
    ],
)
async def test_bad_declarations_are_refused_and_nothing_is_stored(
    api: httpx.AsyncClient, declared: Any, status: int, code: str
) -> None:
    sent = {"types": ["*"], "destination": "there", **declared}
    answer = await api.put("/subscriptions/bad", json=sent)
    assert answer.status_code in (status, 400), answer.text
    assert answer.json()["code"] == code
    if "from" in declared:
        assert [one["pointer"] for one in answer.json()["errors"]] == ["/from"]
    assert (await told(api.get("/subscriptions")))["items"] == []


async def test_names_and_numbers_of_subscriptions_are_bounded(api: httpx.AsyncClient) -> None:
    types = [f"record.type{number}" for number in range(SUBSCRIPTION_TYPES)]
    assert len((await subscribe(api, types=types))["types"]) == SUBSCRIPTION_TYPES
    for name in ("_completions", "_mine", "a b"):
        answer = await api.put(f"/subscriptions/{name}", json={"types": ["*"], "destination": "there"})
        assert answer.status_code in (400, 422)
    for number in range(SUBSCRIPTIONS - 1):
        await subscribe(api, f"s{number}")
    await told(api.put("/subscriptions/more", json={"types": ["*"], "destination": "there"}), 422, "RequestInvalid")
    assert (await subscribe(api, "s0", types=["run.*"]))["types"] == ["run.*"], "one that is there may be changed"


@pytest.mark.clause("outbox.redeliver")
async def test_a_redelivery_keeps_event_and_bytes_and_raises_the_generation(api: httpx.AsyncClient, house: House) -> None:
    await subscribe(api, types=["record.published"])
    await publish(api, weight=1)
    await fan_out(house)
    [one] = await listed(api)
    path = f"/deliveries/{one['delivery_id']}"
    before = await told(api.get(path))
    await told(api.post(f"{path}/redeliver", json={}), 409, "DeliveryConflict")
    canceled = await told(api.post(f"{path}/cancel", json={"reason": "not wanted"}))
    assert (canceled["state"], canceled["next_attempt_at"], canceled["ended_at"]) == ("canceled", None, render(house.now))
    assert await told(api.post(f"{path}/cancel", json={})) == canceled
    house.dues.clear()
    key = {"Idempotency-Key": "once more"}
    again = await told(api.post(f"{path}/redeliver", json={"reason": "wanted after all"}, headers=key))
    assert again == await told(api.post(f"{path}/redeliver", json={"reason": "wanted after all"}, headers=key))
    assert (again["state"], again["generation"], again["attempts"]) == ("pending", 2, 0)
    assert (house.now, "messages") in house.dues
    after = await told(api.get(path))
    assert (after["event_id"], after["body"]) == (before["event_id"], before["body"])
    entries = (await told(api.get("/history", params={"subject": one["delivery_id"]})))["items"]
    assert [(entry["type"], entry["revision"]) for entry in entries] == [
        ("delivery.canceled", 1),
        ("delivery.redelivered", 2),
    ]
    assert entries[1]["data"]["reason"] == "wanted after all"
    assert entries[1]["data"]["generation"] == 2
    house.connection.execute("UPDATE deliveries SET state = 'delivered', next_attempt_at = NULL, ended_at = 1")
    await told(api.post(f"{path}/cancel", json={}), 409, "DeliveryConflict")
    for missing in (api.get("/deliveries/dlv_x"), api.post("/deliveries/dlv_x/cancel", json={})):
        await told(missing, 404, "DeliveryUnknown")
    await told(api.post("/deliveries/dlv_x/redeliver", json={}), 404, "DeliveryUnknown")


@pytest.mark.clause("outbox.redeliver")
async def test_many_are_delivered_again_at_once(api: httpx.AsyncClient, house: House) -> None:
    await subscribe(api, types=["record.published"])
    await subscribe(api, "other", types=["record.published"], destination="elsewhere")
    for weight in range(6):
        await publish(api, weight=weight)
    await fan_out(house, "all", "other")
    house.connection.execute("UPDATE deliveries SET state = 'dead', next_attempt_at = NULL, ended_at = 1, attempts = 24")
    assert await listed(api, state="pending") == []
    assert len(await listed(api, state="dead", subscription="other")) == 6
    sent = {"destination": "elsewhere", "limit": 4, "reason": "they are back"}
    key = {"Idempotency-Key": "k"}
    first = await told(api.post("/deliveries/redeliver", json=sent, headers=key))
    assert [one["destination"] for one in first["deliveries"]] == ["elsewhere"] * 4
    assert first["next_after"]
    replay = await told(api.post("/deliveries/redeliver", json=sent, headers=key))
    assert replay["deliveries"] == first["deliveries"]
    rest = await told(api.post("/deliveries/redeliver", json={**sent, "after": first["next_after"]}))
    assert (len(rest["deliveries"]), rest["next_after"]) == (2, None)
    later = {"state": "dead", "since": render(house.now + 1), "reason": "r"}  # type: ignore[arg-type]
    assert (await told(api.post("/deliveries/redeliver", json=later)))["deliveries"] == []
    others = await told(api.post("/deliveries/redeliver", json={"subscription": "all", "reason": "r"}))
    assert len(others["deliveries"]) == 6
    assert {one["generation"] for one in others["deliveries"]} == {2}
    for bad in (
        {"reason": ""},
        {},
        {"reason": "r", "limit": 0},
        {"reason": "r", "limit": 501},
        {"reason": "r", "state": "x"},
    ):
        answer = await api.post("/deliveries/redeliver", json=bad)
        assert answer.status_code in (400, 422), answer.text


async def test_lists_of_deliveries_page_both_ways_and_by_event(api: httpx.AsyncClient, house: House) -> None:
    await subscribe(api, types=["record.published"])
    await subscribe(api, "other", types=["record.published"], destination="elsewhere")
    for weight in range(5):
        await publish(api, weight=weight)
    await fan_out(house, "all", "other")
    cursors: list[dict[str, str]] = []
    for order in ("asc", "desc"):
        found: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            page = await told(api.get("/deliveries", params={"order": order, "limit": 3, **cursor}))
            found += [one["delivery_id"] for one in page["items"]]
            if page["next_cursor"] is None:
                break
            cursor = {"cursor": page["next_cursor"]}
            cursors.append(cursor)
        assert len(found) == 10
        assert found == sorted(found, reverse=order == "desc")
    event = (await listed(api))[0]["event_id"]
    assert {one["subscription"] for one in await listed(api, event_id=event)} == {"all", "other"}
    assert [one["destination"] for one in await listed(api, event_id=event, destination="elsewhere")] == ["elsewhere"]
    await told(api.get("/deliveries", params={**cursors[-1], "state": "dead", "limit": 3}), 400, "CursorMismatch")


@pytest.mark.clause("outbox.lag")
async def test_lag_age_attempts_and_delay_are_visible(api: httpx.AsyncClient, house: House) -> None:
    await subscribe(api, types=["record.published"])
    assert (await told(api.get("/deliveries/summary")))["lag_seconds"] == 0.0
    await publish(api, weight=1)
    await publish(api, weight=2)
    start = house.now
    house.now = type(start)(start + 90_000)
    assert (await told(api.get("/deliveries/summary")))["lag_seconds"] == 90.0
    health = await told(api.get("/health"))
    assert health["outbox"] == {"lag_seconds": 90.0}
    await fan_out(house)
    house.connection.execute(
        "UPDATE deliveries SET attempts = 3, first_attempt_at = occurred_at + 2500 WHERE position % 2 = 0"
    )
    house.connection.execute(
        "INSERT INTO couriers (destination, state, failures, opened, blocked_until, reason, updated_at)"
        " VALUES ('there', 'open', 5, 1, ?, 'it fails', 0)",
        (start + 120_000,),
    )
    summary = await told(api.get("/deliveries/summary"))
    assert summary["lag_seconds"] == 0.0
    assert summary["next_cursor"] is None
    elsewhere, there = summary["items"]
    assert there == {
        "destination": "there",
        "pending": 2,
        "oldest_pending_at": render(start),
        "oldest_pending_seconds": 90.0,
        "attempts": 3,
        "dead": 0,
        "publication_delay_seconds": {"mean": 2.5, "longest": 2.5},
        "circuit": "open",
        "blocked_until": render(type(start)(start + 120_000)),
        "reason": "it fails",
    }
    assert (elsewhere["pending"], elsewhere["oldest_pending_at"], elsewhere["circuit"]) == (0, None, "closed")
    assert elsewhere["publication_delay_seconds"] is None


BUILD = {"implementation": "a" * 64}


async def a_run(api: httpx.AsyncClient, notify: list[str] | None = None, status: int = 202) -> Any:
    await told(api.put("/bodies/work", json={"build": BUILD}), 200)
    sent = {"body": "work", "input": None, "scope": "job"}
    return await told(api.post("/runs", json=sent if notify is None else {**sent, "notify": notify}), status)


@pytest.mark.clause("completion.subscribe")
async def test_the_end_of_a_run_is_told_to_whom_it_was_promised(api: httpx.AsyncClient, house: House) -> None:
    run = (await a_run(api, ["there"]))["run_id"]
    assert [one["destination"] for one in (await told(api.get(f"/runs/{run}/notify")))["items"]] == ["there"]
    asked = await told(api.put(f"/runs/{run}/notify/elsewhere"))
    assert (asked["destination"], asked["created_by"]) == ("elsewhere", "root")
    await told(api.post(f"/runs/{run}/stop", json={"scope": "run"}))
    await fan_out(house, "_completions")
    found = await listed(api, subscription="_completions")
    assert [(one["destination"], one["type"], one["aggregate_id"]) for one in found] == [
        ("elsewhere", "run.closed", run),
        ("there", "run.closed", run),
    ]
    data = json.loads((await told(api.get(f"/deliveries/{found[0]['delivery_id']}")))["body"])["data"]
    assert (data["status"], data["data_ref"]) == ("canceled", f"/runs/{run}")
    await told(api.put(f"/runs/{run}/notify/there"))
    assert len(await listed(api)) == 2, "each is told once"
    assert (await told(api.get("/subscriptions")))["items"] == []
    await told(api.get("/subscriptions/_completions"), 404, "SubscriptionUnknown")


@pytest.mark.clause("completion.subscribe")
async def test_who_asks_after_the_end_is_told_at_once_and_once(api: httpx.AsyncClient, house: House) -> None:
    run = (await a_run(api))["run_id"]
    await told(api.post(f"/runs/{run}/stop", json={"scope": "run"}))
    house.dues.clear()
    await told(api.put(f"/runs/{run}/notify/there"))
    assert (house.now, "messages") in house.dues
    [one] = await listed(api)
    assert (one["type"], one["aggregate_id"]) == ("run.closed", run)
    await told(api.put(f"/runs/{run}/notify/there"))
    house.connection.execute("DELETE FROM deliveries")
    await told(api.put(f"/runs/{run}/notify/there"))
    assert await listed(api) == [], "also when the delivery is so old that it is gone"
    await house.advance(31 * 86_400)
    await told(api.get(f"/runs/{run}/notify"), 404, "RunUnknown")
    assert house.connection.execute("SELECT count(*) AS n FROM completions").fetchone()["n"] == 0, "it goes with its run"


@pytest.mark.clause("completion.subscribe")
async def test_completions_name_declared_destinations_and_known_runs(api: httpx.AsyncClient, house: House) -> None:
    await a_run(api, ["nowhere"], 404)
    assert (await told(api.get("/runs")))["items"] == [], "nothing is half stored"
    for bad in (["there", "there"], ["there"] * (COMPLETIONS + 1), [1], "there"):
        sent = {"body": "work", "input": None, "notify": bad}
        assert (await api.post("/runs", json=sent)).status_code in (400, 422)
    names = [f"d{number}" for number in range(COMPLETIONS)]
    for name in names:
        await told(api.put(f"/destinations/{name}", json={"url": "https://d.example.com/"}))
    run = (await a_run(api, names))["run_id"]
    await told(api.put(f"/runs/{run}/notify/d0"))
    await told(api.put(f"/runs/{run}/notify/there"), 422, "RequestInvalid")
    await told(api.put(f"/runs/{run}/notify/nowhere"), 404, "DestinationUnknown")
    await told(api.put("/runs/run_x/notify/there"), 404, "RunUnknown")
    await told(api.get("/runs/run_x/notify"), 404, "RunUnknown")


async def test_only_operators_see_and_change_subscriptions_and_deliveries(
    api: httpx.AsyncClient, app: Any, house: House
) -> None:
    grants = [{"actions": ["publish", "read", "claim", "execute"]}]
    made = await told(api.post("/credentials", json={"subject": "eve", "grants": grants}), 201)
    async with client_of(app, made["token"]) as eve:
        for asked in (
            eve.put("/subscriptions/mine", json={"types": ["*"], "destination": "there"}),
            eve.get("/subscriptions"),
            eve.get("/deliveries"),
            eve.get("/deliveries/summary"),
            eve.get("/deliveries/dlv_x"),
            eve.post("/deliveries/dlv_x/redeliver", json={}),
            eve.post("/deliveries/redeliver", json={"reason": "r"}),
            eve.post("/deliveries/dlv_x/cancel", json={}),
            eve.delete("/subscriptions/all"),
        ):
            await told(asked, 403, "Forbidden")

"""Events and correlations over HTTP: what is answered, what is refused, who may."""

import json
from typing import Any

import httpx
import pytest
from cloudevents.core.bindings.http import to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent

from moorage.api.app import Application
from moorage.kernel.limits import EVENT_BATCH, EVENT_RETENTION_SECONDS
from moorage.messages.inbox.cloudevents import BATCH, STRUCTURED
from tests.unit.api.conftest import House, client_of
from tests.unit.api.test_requests import problem

EVENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order.paid", "subject": "order-7", "data": {"n": 1}}
KEYED = {"Idempotency-Key": "k"}


async def send(client: httpx.AsyncClient, event: Any = EVENT, media: str = STRUCTURED, **asked: Any) -> httpx.Response:
    """Send an event, or a batch, as JSON."""
    raw = event if isinstance(event, bytes) else json.dumps(event).encode()
    return await client.post("/events", content=raw, headers={"content-type": media, **asked.pop("headers", {})}, **asked)


async def granted(root: httpx.AsyncClient, app: Application, *grants: dict[str, Any]) -> httpx.AsyncClient:
    """A client with a credential of its own."""
    made = await root.post("/credentials", json={"subject": "alice", "grants": list(grants)})
    return client_of(app, made.json()["token"])


@pytest.mark.clause("inbox.accept", "inbox.actor", "inbox.two-checkpoints")
async def test_one_event_is_accepted_in_each_mode_once(root: httpx.AsyncClient, house: House) -> None:
    answer = await send(root)
    assert answer.status_code == 202
    told = answer.json()
    assert (told["added"], told["event"], told["keys"], told["actor"]) == (True, EVENT, ["order-7"], "subject:root")
    assert "content_differs" not in told
    assert house.dues[-3:], "nobody was told"
    assert (house.now + int(EVENT_RETENTION_SECONDS) * 1000, "upkeep") in house.dues
    assert "messages" in {shard for _, shard in house.dues}

    headers = {f"ce-{name}": str(value) for name, value in EVENT.items() if name != "data"}
    binary = await send(root, EVENT["data"], "application/json", headers=headers)
    assert binary.status_code == 202
    assert {**binary.json(), "event": None} == {
        **told,
        "added": False,
        "event": None,
        "content_differs": True,
        "routed_at": binary.json()["routed_at"],
        "disposition": binary.json()["disposition"],
    }, "binary mode has told a content type"
    again = (await send(root, EVENT, "application/json")).json()
    assert (again["added"], again["event_id"], again.get("content_differs")) == (False, told["event_id"], None)
    shown = (await root.get(f"/events/{told['event_id']}")).json()
    assert {name: shown[name] for name in ("event", "seq", "content_sha256")} == {
        name: told[name] for name in ("event", "seq", "content_sha256")
    }


@pytest.mark.clause("inbox.accept")
async def test_the_sdk_s_own_requests_are_taken(root: httpx.AsyncClient) -> None:
    for place, message in enumerate(
        (
            to_structured_event(CloudEvent({"id": "a", "source": "/sdk", "type": "t", "specversion": "1.0"}, {"n": 1})),
            to_binary_event(CloudEvent({"id": "b", "source": "/sdk", "type": "t", "specversion": "1.0"}, {"n": 1})),
        )
    ):
        answer = await root.post("/events", content=message.body, headers=dict(message.headers))
        assert (answer.status_code, answer.json()["event"]["data"]) == (202, {"n": 1}), place


@pytest.mark.clause("inbox.accept")
async def test_a_batch_is_accepted_whole_or_not_at_all(root: httpx.AsyncClient) -> None:
    batch = [{**EVENT, "id": f"b-{n}"} for n in range(EVENT_BATCH)]
    told = (await send(root, [*batch[:2], batch[0]], BATCH)).json()["events"]
    assert [(one["id"], one["added"]) for one in told] == [("b-0", True), ("b-1", True), ("b-0", False)]
    assert set(told[0]) == {"event_id", "seq", "source", "id", "type", "added"}
    found = problem(await send(root, [*batch[:5], {**EVENT, "id": ""}], BATCH), 422, "RequestInvalid")
    assert found["errors"][0]["pointer"] == "/5/id"
    problem(await send(root, [*batch[:5], {**EVENT, "id": "x", "causationid": "evt_no"}], BATCH), 409, "CausationUnknown")
    problem(await send(root, [*batch, EVENT], BATCH), 422, "RequestInvalid")
    problem(await send(root, batch, BATCH, params={"event_id": "evt_1"}), 422, "RequestInvalid")
    assert len((await root.get("/events")).json()["items"]) == 2
    assert (await send(root, [], BATCH)).json() == {"events": []}
    whole = (await send(root, batch, BATCH)).json()["events"]
    assert [one["added"] for one in whole] == [False, False, *[True] * (EVENT_BATCH - 2)]


@pytest.mark.parametrize(
    ("media", "raw", "status", "code"),
    [
        ("text/plain", b"x", 415, "UnsupportedMediaType"),
        ("application/cloudevents+avro", b"x", 415, "UnsupportedMediaType"),
        (STRUCTURED, b"", 400, "JsonInvalid"),
        (STRUCTURED, b"{", 400, "JsonInvalid"),
        (STRUCTURED, json.dumps(EVENT).encode()[:-1] + b',"id":"2"}', 400, "JsonInvalid"),
        (STRUCTURED, json.dumps({**EVENT, "data": 2**53 + 1}).encode(), 400, "JsonInvalid"),
        (STRUCTURED, b"{}", 422, "RequestInvalid"),
        ("application/json", b'{"kind":"a"}', 422, "RequestInvalid"),
        (BATCH, b"{}", 422, "RequestInvalid"),
        (STRUCTURED, json.dumps({**EVENT, "data": "x" * 1_048_575}).encode(), 413, "PayloadTooLarge"),
        (STRUCTURED, json.dumps({**EVENT, "causationid": "evt_nobody"}).encode(), 409, "CausationUnknown"),
    ],
)
async def test_what_is_refused_stores_nothing(
    root: httpx.AsyncClient, media: str, raw: bytes, status: int, code: str
) -> None:
    problem(await send(root, raw, media), status, code)
    assert (await root.get("/events")).json() == {"items": [], "next_cursor": None}


@pytest.mark.clause("kernel.problem")
async def test_every_refusal_of_a_shape_points_somewhere(root: httpx.AsyncClient) -> None:
    twice = {"delay_seconds": 1, "event": {"type": "t", "keys": ["a", "a"]}}
    for method, path, sent, pointer in (
        ("PUT", "/timers/t", twice, "/event/keys"),
        ("GET", "/correlations", None, "/query/work"),
        ("PUT", "/correlations", {"work": "w", "keys": [KEY, KEY]}, "/keys"),
        ("GET", "/schedules/s/next?after=noon", None, ""),
        ("POST", "/inbox/c/e", {"outcome": 1, "kv": {"n": {f"k{number}": 1 for number in range(51)}}}, "/kv"),
    ):
        found = problem(await root.request(method, path, json=sent), 422, "RequestInvalid")["errors"]
        assert [one["pointer"] for one in found] == [pointer], path


@pytest.mark.clause("inbox.accept")
@pytest.mark.parametrize("source", ["/webhooks/shop", "/timers/other"])
async def test_the_sources_of_webhooks_and_timers_are_theirs_alone(root: httpx.AsyncClient, source: str) -> None:
    """Else a publisher could use up the delivery ids of a sender or a timer, whose own events would count as repeated."""
    taken = {**EVENT, "source": source}
    for sent, media, pointer in (
        (taken, STRUCTURED, "/source"),
        ([EVENT, {**taken, "id": "2"}], BATCH, "/1/source"),
    ):
        found = problem(await send(root, sent, media), 422, "RequestInvalid")
        assert found["errors"][0]["pointer"] == pointer
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": source, "ce-type": "t"}
    problem(await root.post("/events", content=b"{}", headers=headers), 422, "RequestInvalid")
    timer = {"delay_seconds": 1, "event": {"type": "t", "source": source, "id": "1"}}
    found = problem(await root.put("/timers/t", json=timer), 422, "RequestInvalid")
    assert found["errors"][0]["pointer"] == "/event/source"
    assert (await root.get("/events")).json()["items"] == (await root.get("/timers")).json()["items"] == []
    own = {"delay_seconds": 1, "event": {"type": "t", "source": "/timers/t"}}
    assert (await root.put("/timers/t", json=own)).json()["event"]["source"] == "/timers/t"
    for free in ("/webhooks", "/timers", "/webhook/shop", "https://a.example/webhooks/shop"):
        assert (await send(root, {**EVENT, "source": free})).status_code == 202


async def test_an_idempotency_key_binds_the_events(root: httpx.AsyncClient) -> None:
    first = await send(root, headers={"idempotency-key": "k"})
    again = await send(root, EVENT, "application/json", headers={"idempotency-key": "k"})
    assert (again.status_code, again.json()["added"], again.json()["event_id"]) == (202, True, first.json()["event_id"])
    problem(await send(root, {**EVENT, "data": 2}, headers={"idempotency-key": "k"}), 409, "IdempotencyConflict")
    problem(await send(root, headers={"idempotency-key": "k"}, params={"scope": "x"}), 409, "IdempotencyConflict")


@pytest.mark.clause("inbox.accept")
async def test_an_id_of_ones_own(root: httpx.AsyncClient) -> None:
    assert (await send(root, params={"event_id": "evt_mine"})).json()["event_id"] == "evt_mine"
    assert (await send(root, params={"event_id": "evt_other"})).json()["event_id"] == "evt_mine"
    problem(await send(root, {**EVENT, "id": "2"}, params={"event_id": "evt_mine"}), 409, "EventConflict")
    problem(await send(root, {**EVENT, "id": "2"}, params={"event_id": "rec_1"}), 400, "IdInvalid")


@pytest.mark.clause("inbox.scope-once")
async def test_a_scope_is_written_once(root: httpx.AsyncClient) -> None:
    for scope in ("a", "b"):
        await root.put(f"/scopes/{scope}", json={})
    problem(await send(root, params={"scope": "nowhere"}), 404, "ScopeUnknown")
    scoped = (await send(root, {**EVENT, "id": "2"}, params={"scope": "a"})).json()
    assert scoped["scope"] == "a"
    event = (await send(root)).json()
    path = f"/events/{event['event_id']}/scope"
    problem(await root.put(path, json={"scope": ""}), 422, "RequestInvalid")
    problem(await root.put(path, json={"scope": "nowhere"}), 404, "ScopeUnknown")
    problem(await root.put("/events/evt_no/scope", json={"scope": "a"}), 404, "EventUnknown")
    first = await root.put(path, json={"scope": "a"})
    assert (first.status_code, first.json()["scope"]) == (200, "a")
    assert (await root.put(path, json={"scope": "a"})).json() == first.json()
    problem(await root.put(path, json={"scope": "b"}), 409, "EventScopeConflict")
    problem(await root.put(f"/events/{scoped['event_id']}/scope", json={"scope": "b"}), 409, "EventScopeConflict")
    story = (await root.get("/history", params={"subject": event["event_id"]})).json()["items"]
    assert [one["type"] for one in story if one["type"] == "event.scoped"] == ["event.scoped"]
    assert [one["id"] for one in (await root.get("/events", params={"scope": "a"})).json()["items"]] == ["2", "1"]


async def test_lists_are_narrowed_and_paged(root: httpx.AsyncClient) -> None:
    for place in range(5):
        await send(
            root, {**EVENT, "id": f"{place}", "type": "even" if place % 2 == 0 else "odd", "subject": f"k{place // 3}"}
        )
    await send(root, {**EVENT, "source": "/other"})

    async def ids(**asked: Any) -> list[str]:
        return [one["id"] for one in (await root.get("/events", params=asked)).json()["items"]]

    assert await ids(type="even") == ["0", "2", "4"]
    assert await ids(key="k0") == ["0", "1", "2"]
    assert await ids(key="k0", type="odd") == ["1"]
    assert await ids(source="/other") == ["1"]
    assert await ids(work="nobody") == []
    seqs = [one["seq"] for one in (await root.get("/events")).json()["items"]]
    assert seqs == sorted(seqs)
    assert await ids(after=seqs[3]) == ["4", "1"]
    met: list[str] = []
    asked: dict[str, Any] = {"limit": 2, "type": "even"}
    while True:
        found = (await root.get("/events", params=asked)).json()
        met += [one["id"] for one in found["items"]]
        if found["next_cursor"] is None:
            break
        asked["cursor"] = found["next_cursor"]
    assert met == ["0", "2", "4"]
    problem(await root.get("/events", params={"cursor": asked["cursor"], "type": "odd"}), 400, "CursorMismatch")


async def test_who_may_send_and_read(root: httpx.AsyncClient, app: Application) -> None:
    sent = (await send(root)).json()
    async with await granted(root, app, {"actions": ["publish", "read"], "kinds": ["order.*"]}) as alice:
        told = (await send(alice, {**EVENT, "id": "hers", "actor": "operator:root"})).json()
        assert (told["actor"], "actor" in told["event"]) == ("subject:alice", False)
        problem(await send(alice, {**EVENT, "type": "other"}), 403, "Forbidden")
        problem(await send(alice, [EVENT, {**EVENT, "type": "other"}], BATCH), 403, "Forbidden")
        problem(await alice.get("/events"), 403, "Forbidden")
        assert len((await alice.get("/events", params={"type": "order.paid"})).json()["items"]) == 2
        problem(await alice.get("/events", params={"type": "other"}), 403, "Forbidden")
        assert (await alice.get(f"/events/{sent['event_id']}")).status_code == 200
        other = (await send(root, {**EVENT, "id": "2", "type": "other"})).json()
        problem(await alice.get(f"/events/{other['event_id']}"), 404, "EventUnknown")
        problem(await alice.put(f"/events/{sent['event_id']}/scope", json={"scope": "a"}), 403, "Forbidden")
        problem(await alice.put("/correlations", json={"work": "w", "keys": [KEY]}), 403, "Forbidden")
        problem(await alice.get("/correlations", params={"work": "w"}), 403, "Forbidden")
    async with await granted(root, app, {"actions": ["publish", "read"], "kinds": ["order.paid"], "match": {}}) as narrow:
        problem(await send(narrow, {**EVENT, "id": "3"}), 403, "Forbidden")
        problem(await narrow.get(f"/events/{sent['event_id']}"), 404, "EventUnknown")


@pytest.mark.clause("inbox.accept", "catalog.grants")
async def test_who_hits_upon_an_event_that_it_may_not_read_is_told_only_that_it_stands(
    root: httpx.AsyncClient, app: Application
) -> None:
    hidden = {**EVENT, "id": "hidden", "type": "secret", "data": {"n": "private"}}
    stands = (await send(root, hidden)).json()
    own = (await send(root, {**EVENT, "id": "own"})).json()
    async with await granted(root, app, {"actions": ["publish"], "kinds": ["order.*"]}) as alice:
        mine = {**EVENT, "id": "hidden", "data": {"n": 1}}
        names = ("event_id", "seq", "source", "id", "accepted_at")
        short = {**{name: stands[name] for name in names}, "added": False, "content_differs": True}
        assert (await send(alice, mine)).json() == short
        assert (await send(alice, [mine], BATCH)).json() == {
            "events": [{n: v for n, v in short.items() if n != "accepted_at"}]
        }
        again = await send(alice, mine, headers=KEYED)
        assert again.json() == (await send(alice, mine, headers=KEYED)).json() == short
        # Of its own type too it is told of nobody's content but the one it sends.
        other = await send(alice, {**EVENT, "id": "own", "data": {"n": "another"}})
        assert other.json() == {**short, **{name: own[name] for name in names}}
        assert (await send(alice, {**EVENT, "id": "own"})).json()["event"] == own["event"]
    async with await granted(root, app, {"actions": ["publish", "read"], "kinds": ["order.*", "secret"]}) as reader:
        assert (await send(reader, mine)).json()["event"]["data"] == {"n": "private"}


# --- correlations ---------------------------------------------------------------------------------------------------

KEY = {"source": "/shop", "external_id": "order-7"}


@pytest.mark.clause("inbox.correlation")
async def test_keys_belong_to_one_work_for_ever(root: httpx.AsyncClient) -> None:
    other = {"source": "/shop", "external_id": "order-8"}
    first = await root.put("/correlations", json={"work": "orders/7", "keys": [KEY]})
    assert (first.status_code, first.json()["items"][0]["work"]) == (200, "orders/7")
    assert (await root.put("/correlations", json={"work": "orders/7", "keys": [KEY]})).json() == first.json()
    problem(await root.put("/correlations", json={"work": "orders/8", "keys": [other, KEY]}), 409, "CorrelationConflict")
    assert (await root.get("/correlations", params=other)).json()["items"] == []
    assert (await root.get("/correlations", params=KEY)).json()["items"] == first.json()["items"]
    listed = (await root.get("/correlations", params={"work": "orders/7"})).json()
    assert listed == {"items": first.json()["items"], "next_cursor": None}
    unclear: list[dict[str, str]] = [{}, {"work": "w", **KEY}, {"source": "/shop"}, {"work": "w", "source": "/shop"}]
    for asked in unclear:
        problem(await root.get("/correlations", params=asked), 422, "RequestInvalid")
    for sent in ({"work": "", "keys": [KEY]}, {"work": "w", "keys": []}, {"work": "w", "keys": [KEY, KEY]}):
        problem(await root.put("/correlations", json=sent), 422, "RequestInvalid")
    problem(await root.put("/correlations", json={"work": "w", "keys": [{**KEY, "source": "a b"}]}), 422, "RequestInvalid")
    for work in ("orders 8", "orders/8/", "/orders/8", "orders//8", "..", "é"):
        problem(await root.put("/correlations", json={"work": work, "keys": [other]}), 400, "IdInvalid")
    assert (await root.get("/correlations", params=other)).json()["items"] == []
    for work, key in (("run_01m9tj4e609svt54wcp1z43hrt", "1"), ("orders/7/ship+0123456789abcdef", "2")):
        sent = {"work": work, "keys": [{"source": "/shop", "external_id": key}]}
        assert (await root.put("/correlations", json=sent)).status_code == 200


@pytest.mark.clause("inbox.correlation")
async def test_a_run_brings_keys_that_belong_to_its_scope(root: httpx.AsyncClient) -> None:
    await root.put("/bodies/work", json={"build": {"implementation": "a" * 64}})
    await root.put("/correlations", json={"work": "orders/7", "keys": [KEY]})
    other = {"source": "/shop", "external_id": "order-8"}
    start = {"body": "work", "scope": "orders/8", "correlations": [other, KEY]}
    problem(await root.post("/runs", json=start), 409, "CorrelationConflict")
    assert (await root.get("/runs")).json()["items"] == []
    assert (await root.get("/correlations", params=other)).json()["items"] == []
    problem(await root.post("/runs", json={**start, "correlations": [other] * 2}), 422, "RequestInvalid")
    assert (await root.post("/runs", json={**start, "correlations": [other]})).status_code == 202
    assert (await root.get("/correlations", params=other)).json()["items"][0]["work"] == "orders/8"
    own = {"source": "/shop", "external_id": "order-9"}
    run = (await root.post("/runs", json={"body": "work", "correlations": [own]})).json()["run_id"]
    assert (await root.get("/correlations", params=own)).json()["items"][0]["work"] == run

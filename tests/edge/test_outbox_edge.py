"""The outbox on the real edge: what is committed becomes deliveries within moments, whoever committed it."""

import json
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import httpx
import pytest

from ops.local.edge import LocalEdge
from tests.edge.client import client, declare, fresh, good, publish

pytestmark = pytest.mark.edge

DEADLINE_SECONDS = 30.0


@pytest.fixture
def api(edge: LocalEdge) -> Iterator[httpx.Client]:
    with client(edge) as one:
        yield one


def destination(api: httpx.Client) -> str:
    name = fresh("there")
    good(api.put(f"/destinations/{name}", json={"url": "https://there.invalid/hook"}))
    return name


def within_moments(api: httpx.Client, aggregate_id: str, **wanted: Any) -> tuple[dict[str, Any], float]:
    """The one delivery about it that is wanted, and after how many seconds it was there."""
    begun = time.monotonic()
    while time.monotonic() - begun < DEADLINE_SECONDS:
        items = good(api.get("/deliveries", params=wanted))["items"]
        if found := [one for one in items if one["aggregate_id"] == aggregate_id]:
            (one,) = found
            return one, time.monotonic() - begun
    raise AssertionError(f"no delivery is like {wanted}")


@pytest.mark.clause("outbox.atomic", "outbox.lag", "outbox.event-shape")
def test_what_is_committed_becomes_a_delivery_within_moments(api: httpx.Client) -> None:
    kind, there, name = declare(api, fresh("parcels"), {"n": "number"}), destination(api), fresh("odd")
    sent = {"types": ["record.published"], "kinds": [kind], "filter": {"n": {"$in": [1, 3, 5, 7, 9]}}, "destination": there}
    good(api.put(f"/subscriptions/{name}", json=sent))
    try:
        waits, records = [], []
        for number in range(10):
            record = publish(api, kind, {"n": number})
            if number % 2:
                one, seconds = within_moments(api, subscription=name, aggregate_id=record["id"])
                assert one["event_id"].startswith(f"dom_{record['seq']:016d}_")
                assert (one["generation"], one["destination"]) == (1, there)
                waits.append(seconds)
                records.append(record["id"])
        assert median(waits) < 1.0, waits
        told = good(api.get("/deliveries", params={"subscription": name}))["items"]
        assert [one["aggregate_id"] for one in told] == records, "each that fits is told once, and no other"
        (one, *_) = told
        body = json.loads(good(api.get(f"/deliveries/{one['delivery_id']}"))["body"])
        assert (body["id"], body["type"], body["data"]["aggregate_revision"]) == (one["event_id"], "record.published", 1)
        assert good(api.get(body["data"]["data_ref"]))["id"] == records[0]
    finally:
        good(api.delete(f"/subscriptions/{name}"))


@pytest.mark.clause("outbox.lag", "inbox.two-checkpoints")
def test_what_becomes_of_an_event_is_told_within_moments_whoever_accepted_it(api: httpx.Client) -> None:
    """A request, or the Clock as a timer fires; routing comes beside either."""
    there, name, type_ = destination(api), fresh("routed"), fresh("rang")
    good(api.put(f"/subscriptions/{name}", json={"types": ["event.routed"], "destination": there}))
    try:
        for number in range(6):
            key = fresh("key")
            event = {"type": type_, "source": "/here", "id": key}
            if number % 2:
                good(api.post("/events", json={"specversion": "1.0", **event}))
            else:
                good(api.put(f"/timers/{key}", json={"delay_seconds": 0, "event": event}))
            begun = time.monotonic()
            while not (found := good(api.get("/events", params={"type": type_}))["items"][number:]):
                assert time.monotonic() - begun < DEADLINE_SECONDS
            within_moments(api, found[0]["event_id"], subscription=name)
            assert time.monotonic() - begun < 5, "not at the next tick"
    finally:
        good(api.delete(f"/subscriptions/{name}"))


@pytest.mark.clause("completion.subscribe")
def test_the_end_of_a_run_of_the_worker_is_told(api: httpx.Client) -> None:
    there = destination(api)
    sent = {"body": "hello", "input": {"name": "you"}, "notify": [there]}
    run = good(api.post("/runs", params={"wait_seconds": 20}, json=sent))
    assert run["run"]["status"] == "success", run
    one, seconds = within_moments(api, run["run_id"], subscription="_completions", destination=there)
    assert (one["type"], one["aggregate_id"]) == ("run.closed", run["run_id"])
    assert seconds < 10
    body = json.loads(good(api.get(f"/deliveries/{one['delivery_id']}"))["body"])
    assert (body["data"]["status"], body["data"]["data_ref"]) == ("success", f"/runs/{run['run_id']}")
    late = destination(api)
    good(api.put(f"/runs/{run['run_id']}/notify/{late}"))
    assert within_moments(api, run["run_id"], destination=late)[0]["event_id"] == one["event_id"]

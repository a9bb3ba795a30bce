"""Deliveries on the real edge: what arrives verifies, and a destination that is hostile gets everything all the same."""

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook

from ops.local.edge import LocalEdge
from tests.edge.client import client, declare, fresh, good, problem, publish
from tests.edge.conftest import STRICT
from tests.edge.edges import EdgeFactory
from tests.edge.http import await_log, get
from tests.edge.subscriber import Got, Subscriber, subscriber, verified_by_npm

pytestmark = [pytest.mark.edge, pytest.mark.clause("outbox.deliver")]

SECRET = "whsec_dGhlLW91dGdvaW5nLXNlY3JldC10aGF0LW5vYm9keS1tYXktc2Vl"
VARS = {"MOORAGE_TEST_CLOCK": "1", "MOORAGE_ALLOW_LOCAL_DESTINATIONS": "1", "HOOK": SECRET}


@pytest.fixture(scope="module")
def there() -> Iterator[Subscriber]:
    with subscriber() as one:
        yield one


@pytest.fixture(scope="module")
def post(edge_factory: EdgeFactory) -> Iterator[LocalEdge]:
    edge = edge_factory(vars=VARS)
    yield edge
    edge.stop()


@pytest.fixture
def api(post: LocalEdge, there: Subscriber) -> Iterator[httpx.Client]:
    there.answer, there.seconds, there.most = (lambda got, times: (204, ())), 0.0, 0
    with client(post) as made:
        yield made


class Line:
    """A kind of records, a subscription to it, and a destination of its own."""

    def __init__(self, api: httpx.Client, there: Subscriber, **delivery: Any) -> None:
        self.api = api
        self.there = there
        self.name = fresh("line")
        self.path = f"/{self.name}"
        declare(api, self.name)
        told = {"url": f"{there.url}{self.path}", "secret": "env:HOOK", "delivery": delivery}
        good(api.put(f"/destinations/{self.name}", json=told))
        declared = {"types": ["record.published"], "kinds": [self.name], "destination": self.name}
        good(api.put(f"/subscriptions/{self.name}", json=declared))

    def publish(self, number: int = 1) -> list[str]:
        return [publish(self.api, self.name, {"n": n})["id"] for n in range(number)]

    def got(self) -> list[Got]:
        return self.there.of(self.path)

    def until(self, number: int) -> list[Got]:
        return self.there.until(number, self.path)

    def deliveries(self) -> list[dict[str, Any]]:
        return list(good(self.api.get("/deliveries", params={"destination": self.name, "limit": 100}))["items"])

    def rested(self, state: str, attempts: int = 1) -> list[dict[str, Any]]:
        """The deliveries once all have this state, so many attempts were made together and none is being sent."""
        end = time.monotonic() + 60
        while True:
            shown = self.deliveries()
            made = sum(one["attempts"] for one in shown)
            if made >= attempts and all(one["state"] == state and one["leased_until"] is None for one in shown):
                return shown
            assert time.monotonic() < end, shown
            time.sleep(0.01)

    def health(self) -> dict[str, Any]:
        return dict(good(self.api.get(f"/destinations/{self.name}/health")))

    def advance(self, seconds: float) -> None:
        good(self.api.post("/testing/clock", json={"advance_seconds": seconds}))


@pytest.mark.clause("completion.subscribe")
def test_what_arrives_verifies_over_its_raw_bytes_and_comes_at_once(api: httpx.Client, there: Subscriber) -> None:
    line = Line(api, there)
    began = time.monotonic()
    records = line.publish()
    line.until(1)
    assert time.monotonic() - began < 5
    records += line.publish(4)
    got = line.until(5)
    events = [json.loads(one.body) for one in got]
    assert [one["data"]["aggregate_id"] for one in sorted(events, key=lambda one: one["id"])] == records
    for one, event in zip(got, events, strict=True):
        assert Webhook(SECRET).verify(one.body, one.headers) == event
        assert one.id == event["id"]
        assert one.headers["content-type"] == "application/cloudevents+json"
        assert (one.headers["moorage-generation"], one.headers["moorage-attempt"]) == ("1", "1")
        shown = good(api.get(f"/deliveries/{next(d for d in line.deliveries() if d['event_id'] == one.id)['delivery_id']}"))
        assert shown["body"].encode() == one.body
    told = {"body": "hello", "input": {"name": "you"}, "notify": [line.name]}
    run = good(api.post("/runs", json=told))["run_id"]
    got = line.until(6)
    ended = Webhook(SECRET).verify(got[-1].body, got[-1].headers)
    assert (ended["subject"], ended["type"], ended["data"]["status"]) == (run, "run.closed", "success")
    assert verified_by_npm(SECRET, got) == 6
    assert {one["state"] for one in line.rested("delivered")} == {"delivered"}


@pytest.mark.clause("outbox.redeliver")
def test_down_then_slow_then_it_asks_for_time_and_everything_arrives(api: httpx.Client, there: Subscriber) -> None:
    line = Line(api, there, concurrency=3)
    there.answer = lambda got, times: (500, ())
    line.publish(12)
    line.rested("pending", 5)
    assert line.health()["state"] == "open"
    down = len(line.got())
    assert 5 <= down < 5 + 3
    line.publish(3)
    for seconds in (30, 60, 120):
        before = len(line.got())
        line.advance(seconds)
        assert len(line.got()) == before + 1
    # A whole day of it, then it is slow, and asks for time.
    line.advance(86_400)
    assert {one["state"] for one in line.deliveries()} == {"pending"}
    there.seconds, there.most = 0.1, 0
    asked: list[str] = []

    def in_time(got: Got, times: int) -> tuple[int, list[tuple[str, str]]]:
        if len(asked) < 2 and got.id not in asked:
            asked.append(got.id)
            return 429, [("Retry-After", "3"), ("rEtRy-AfTeR", "120")]
        return 200, []

    there.answer = in_time
    line.advance(86_400)
    before = len(line.got())
    assert 1 <= len(asked) <= 2
    assert line.health()["blocked_until"] is not None
    line.advance(60)
    assert len(line.got()) == before
    for _ in range(8):
        line.advance(14_400)
    assert {one["state"] for one in line.rested("delivered")} == {"delivered"}
    assert len({got.id for got in line.got()}) == 15
    assert there.most <= 3
    # Asked for again by hand it is the same once more, as a new generation.
    [one, *_] = line.deliveries()
    good(api.post(f"/deliveries/{one['delivery_id']}/redeliver", json={"reason": "they lost it"}))
    line.rested("delivered")
    assert line.got()[-1].headers["moorage-generation"] == "2"
    there.check_bytes()


def test_gone_is_disabled_until_it_is_enabled_and_order_is_kept(api: httpx.Client, there: Subscriber) -> None:
    line = Line(api, there, ordered=True)
    there.answer = lambda got, times: (410, ())
    line.publish()
    line.until(1)
    line.rested("canceled")
    assert line.health()["state"] == "disabled"
    records = line.publish(5)
    line.advance(86_400)
    assert len(line.got()) == 1
    there.answer, there.seconds = (lambda got, times: (500 if times == 1 and got.id.endswith("7") else 200, ())), 0.01
    good(api.post(f"/destinations/{line.name}/enable"))
    for _ in range(3):
        line.advance(60)
    assert line.health()["state"] == "closed"
    arrived = [json.loads(got.body)["data"]["aggregate_id"] for got in line.got()[1:]]
    assert [one for n, one in enumerate(arrived) if one not in arrived[:n]] == records
    assert there.most == 1
    problem(api.post("/destinations/nowhere/enable"), 404)


def test_redirects_are_not_followed_and_no_secret_is_kept(api: httpx.Client, there: Subscriber, post: LocalEdge) -> None:
    """Case C20 for what goes out: a delivery that fails with 401, one that cannot connect, and one sent elsewhere."""
    line = Line(api, there)
    inside = fresh("inside")
    there.answer = lambda got, times: (307, [("location", f"{there.url}/{inside}")])
    line.publish()
    line.until(1)
    [sent] = line.rested("pending")
    assert sent["last_status"] == 307
    echo = Line(api, there)
    there.answer = lambda got, times: (401, [("www-authenticate", f"Bearer {SECRET}"), ("x-signature", SECRET)])
    echo.publish()
    echo.until(1)
    [refused] = echo.rested("pending")
    assert (refused["last_status"], refused["last_error"]) == (401, "it answered 401")
    good(api.put(f"/destinations/{echo.name}", json={"url": "http://127.0.0.1:9/", "secret": "env:HOOK"}))
    line.advance(60)
    assert there.of(f"/{inside}") == []
    [lost] = echo.rested("pending", 2)
    assert lost["attempts"] == 2
    assert lost["last_error"] is not None
    said = [post.logs()]
    lists = ("/deliveries", "/destinations", "/history", "/subscriptions")
    said += [api.get(path, params={"limit": 100}).text for path in lists]
    ones = ("/deliveries/summary", f"/destinations/{echo.name}/health", f"/deliveries/{lost['delivery_id']}")
    for text in [*said, *(api.get(path).text for path in ones)]:
        assert SECRET.removeprefix("whsec_") not in text
        assert "whsec_" not in text


def test_an_answer_counts_whatever_its_headers_hold(api: httpx.Client, there: Subscriber) -> None:
    """Bytes past ASCII are no rarity in headers, and a success must not come again and again because of them."""
    line = Line(api, there)
    there.answer = lambda got, times: (200, [("X-Answered-By", "Zoë"), ("Retry-After", "\xff\xfe5")])
    line.publish()
    line.until(1)
    [sent] = line.rested("delivered")
    assert (sent["last_status"], sent["attempts"]) == (200, 1)


@pytest.mark.clause("catalog.destinations")
def test_nothing_is_sent_inside_where_the_deployment_may_not(
    post: LocalEdge, edge_factory: EdgeFactory, there: Subscriber, api: httpx.Client
) -> None:
    """What was declared while it might, and what a name resolves to: workerd itself refuses by the address."""
    line = Line(api, there)
    good(api.post(f"/subscriptions/{line.name}/pause", json={}))
    line.publish()
    post.stop()
    closed = edge_factory(state=post.config.state, vars={**VARS, "MOORAGE_ALLOW_LOCAL_DESTINATIONS": "0"})
    with client(closed) as made:
        line.api = made
        good(made.post(f"/subscriptions/{line.name}/resume", json={}))
        [refused] = line.rested("pending")
        assert refused["attempts"] == 1
        assert "nothing is sent to the destination's URL" in refused["last_error"]
        told = {"url": f"{there.url}/again", "secret": "env:HOOK"}
        problem(made.put(f"/destinations/{line.name}", json=told), 422)
    closed.stop()
    assert line.got() == []
    port = there.url.rpartition(":")[2]
    outside = edge_factory(STRICT, vars={"MOORAGE_ALLOW_LOCAL_DESTINATIONS": "0"})
    before = len(there.got)
    names = ["127.0.0.1", "localhost", socket.gethostname(), "[::1]", "[::ffff:127.0.0.1]", "0x7f000001", "2130706433",
             "127.1", "169.254.169.254", "10.0.0.1"]  # fmt: skip
    for name in names:
        with pytest.raises(AssertionError):
            get(outside, "/outside", f"http://{name}:{port}/inside".encode())
    assert len(there.got) == before
    await_log(outside, f"connecting to 127.0.0.1:{port} is not allowed")
    outside.stop()

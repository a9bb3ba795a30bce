"""The outbox under SIGKILL: what was committed is told, once for each subscription, and nothing else is.

Ten times workerd is killed while records are published, entries are fanned out and deliveries are sent. Afterwards there is
exactly one delivery for each entry that was committed and each subscription that means it, whether or not the publication
was answered; all of them have arrived, and each with the same bytes however often it came.
"""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, Self

import httpx
import pytest

from ops.local.edge import LocalEdge
from tests.edge.client import client, declare, good
from tests.edge.edges import EdgeFactory
from tests.edge.subscriber import Subscriber, subscriber
from tests.edge.test_runs_crash import back

pytestmark = [pytest.mark.edge, pytest.mark.crash]

KILLS = 10
PUBLISHERS = 3
VARS = {"MOORAGE_TEST_CLOCK": "1", "MOORAGE_ALLOW_LOCAL_DESTINATIONS": "1", "HOOK": "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ="}


class Publishers:
    """Threads that publish all the time, whatever happens to whom they ask."""

    def __init__(self, edge: LocalEdge) -> None:
        self._edge = edge
        self._over = threading.Event()
        self.go = threading.Event()
        self.go.set()
        self._threads = [threading.Thread(target=self._publish, args=(n,), daemon=True) for n in range(PUBLISHERS)]
        self.asked: set[str] = set()
        self.answered: set[str] = set()

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.go.set()
        for thread in self._threads:
            thread.join(60)

    def _publish(self, number: int) -> None:
        n = 0
        while not self._over.is_set():
            self.go.wait()
            n += 1
            id_ = f"parcel-{number}-{n}"
            self.asked.add(id_)
            try:
                with client(self._edge) as api:
                    sent = {"kind": "parcel", "id": id_, "body": {"n": n}}
                    if api.post("/records", json=sent, timeout=30).status_code == 201:
                        self.answered.add(id_)
            except httpx.HTTPError:
                time.sleep(0.1)


def everything(api: httpx.Client, path: str, **wanted: Any) -> list[dict[str, Any]]:
    """All items of a list."""
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = good(api.get(path, params={"limit": 100, **wanted, **({"cursor": cursor} if cursor else {})}))
        found += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


def advance(edge: LocalEdge, seconds: float) -> None:
    """Let leases of who was killed run out."""
    with client(edge) as api:
        good(api.post("/testing/clock", json={"advance_seconds": seconds}))


@pytest.fixture
def there() -> Iterator[Subscriber]:
    with subscriber() as one:
        one.seconds = 0.02
        yield one


@pytest.mark.timeout(900)
@pytest.mark.clause("outbox.atomic", "outbox.deliver", "history.append")
def test_one_delivery_for_each_committed_entry_and_none_else(edge_factory: EdgeFactory, there: Subscriber) -> None:
    edge = edge_factory(vars=VARS)
    draw = random.Random(6)
    with client(edge) as api:
        declare(api, "parcel")
        for name in ("one", "two"):
            told = {"url": f"{there.url}/{name}", "secret": "env:HOOK", "delivery": {"concurrency": 8, "max_attempts": 100}}
            good(api.put(f"/destinations/{name}", json=told))
            declared = {"types": ["record.published"], "kinds": ["parcel"], "destination": name}
            good(api.put(f"/subscriptions/{name}", json=declared))
    with Publishers(edge) as publishers:
        for _ in range(KILLS):
            published, came = len(publishers.answered), len(there.got)
            end = time.monotonic() + 60
            while len(publishers.answered) < published + 10 or len(there.got) < came + 10:
                assert time.monotonic() < end, (len(publishers.answered) - published, len(there.got) - came)
                time.sleep(0.01)
            time.sleep(draw.uniform(0, 0.05))
            edge.kill_workerd()
            back(edge)
            publishers.go.clear()  # the clock is moved once nothing new is to be sent
            advance(edge, 31)
            publishers.go.set()
    with client(edge) as api:
        end = time.monotonic() + 60
        advance(edge, 60)
        while any(one["pending"] for one in good(api.get("/deliveries/summary"))["items"]):
            assert time.monotonic() < end
            advance(edge, 60)
        assert [one["behind"] for one in everything(api, "/subscriptions")] == [0, 0]
        history = everything(api, "/history")
        deliveries = everything(api, "/deliveries")
    positions = {f"dom_{e['position']:016d}": e["subject"] for e in history if e["type"] == "record.published"}
    committed = {one["event_id"]: positions[one["event_id"].rpartition("_")[0]] for one in deliveries}
    assert sorted(committed.values()) == sorted(positions.values())
    assert publishers.answered <= set(committed.values()) <= publishers.asked
    made = Counter((one["event_id"], one["subscription"]) for one in deliveries)
    assert made == Counter((event, name) for event in committed for name in ("one", "two"))
    for name in ("one", "two"):
        got = there.of(f"/{name}")
        assert {one.id for one in got} == set(committed)
        assert all(json.loads(one.body)["data"]["aggregate_id"] == committed[one.id] for one in got)
    there.check_bytes()
    again = len(there.got) - 2 * len(committed)
    print(f"\n{len(committed)} entries over {KILLS} kills; {again} deliveries came more than once", end="")
    edge.stop()

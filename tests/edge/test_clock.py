"""The Clock on the real edge: alarms ring by themselves, in real time and across restarts."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from typing import Any

import httpx
import pytest

from ops.local.edge import LocalEdge
from tests.edge.conftest import EdgeFactory

pytestmark = pytest.mark.edge

ORIGIN = "https://app.example.test"


@pytest.fixture(scope="module")
def plain(edge_factory: EdgeFactory) -> Iterator[LocalEdge]:
    """Moorage as it is deployed: no test clock."""
    edge = edge_factory(vars={"MOORAGE_ALLOWED_ORIGINS": f"{ORIGIN}/, https://other.example.test"})
    yield edge
    edge.stop()


def client_of(edge: LocalEdge) -> httpx.Client:
    headers = {"authorization": f"Bearer {edge.root_token}"}
    return httpx.Client(base_url=edge.url, headers=headers, timeout=60)


@pytest.fixture
def root(plain: LocalEdge) -> Iterator[httpx.Client]:
    with client_of(plain) as client:
        yield client


def eventually(look: Callable[[], Any], seconds: float = 60) -> Any:
    """What `look` gives once it gives something: real alarms take real time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"nothing within {seconds} s")


def entries(client: httpx.Client, subject: str, happened: str) -> list[Any]:
    found = client.get("/history", params={"subject": subject, "limit": 500}).json()["items"]
    return [entry for entry in found if entry["type"] == happened]


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def leased(client: httpx.Client, kind: str, seconds: float, count: int = 1) -> list[str]:
    client.put(f"/kinds/{kind}", json={}).raise_for_status()
    sent = {"records": [{"kind": kind, "body": {}} for _ in range(count)]}
    client.post("/records/batch", json=sent).raise_for_status()
    taken: list[str] = []
    while len(taken) < count:
        claim = {"kind": kind, "worker": "w", "lease_seconds": seconds, "limit": min(100, count - len(taken))}
        taken += [one["record"]["id"] for one in client.post("/claims", json=claim).json()["claims"]]
    return taken


@pytest.mark.clause("timers.alarm", "records.recover")
def test_a_lease_runs_out_by_itself(root: httpx.Client) -> None:
    record = leased(root, "clock.lease", 1)[0]
    due = instant(entries(root, record, "record.claimed")[0]["data"]["expires_at"])
    expired = eventually(lambda: entries(root, record, "record.lease_expired"))[0]
    assert 0 <= (instant(expired["at"]) - due).total_seconds() < 3
    assert root.get(f"/records/{record}").json()["state"] == "ready"


@pytest.mark.clause("timers.alarm", "awake.expired")
def test_a_deadline_passes_by_itself(root: httpx.Client) -> None:
    minted = root.post("/awakeables", json={"ttl_seconds": 1}).json()
    assert eventually(lambda: entries(root, minted["id"], "awakeable.timed_out"))


@pytest.mark.clause("timers.alarm")
def test_an_earlier_instant_rings_although_a_later_one_was_armed_first(root: httpx.Client) -> None:
    late = leased(root, "clock.late", 3600)[0]
    early = leased(root, "clock.early", 1)[0]
    assert eventually(lambda: entries(root, early, "record.lease_expired"))
    assert root.get(f"/records/{late}").json()["state"] == "claimed"


@pytest.mark.clause("timers.alarm")
def test_what_failed_and_waits_for_an_hour_is_tried_as_soon_as_somebody_asks(root: httpx.Client, plain: LocalEdge) -> None:
    far = {"attempts": 13, "error": "KeyError", "retry_at": "9999-01-01T00:00:00.000Z"}
    with sqlite3.connect(plain.d1_path()) as database:
        database.execute("INSERT INTO due_failures VALUES ('timer_fired', 'aside@1', 13, 253370764800000, 'KeyError')")
    for timer in ("aside", "other"):
        root.put(f"/timers/{timer}", json={"delay_seconds": 0, "event": {"type": "ping"}}).raise_for_status()
    assert eventually(lambda: entries(root, "timer:other", "timer.fired"))
    assert root.get("/timers/aside").json()["failing"] == far
    assert root.get("/clock/failures").json()["items"] == [{"work": "timer_fired", "item": "aside@1", **far}]
    asked = {"work": "timer_fired", "item": "aside@1"}
    assert root.post("/clock/failures/retry", json=asked).json() == {"retried": 1}
    assert eventually(lambda: entries(root, "timer:aside", "timer.fired"))
    assert eventually(lambda: root.get("/clock/failures").json()["items"] == [])


@pytest.mark.clause("history.seal", "timers.alarm")
def test_history_is_sealed_by_the_clocks_alarm_and_an_edit_of_the_database_is_found(
    root: httpx.Client, plain: LocalEdge
) -> None:
    leased(root, "clock.sealed", 3600, 3)
    last = root.get("/history", params={"limit": 500}).json()["items"][-1]["position"]

    def sealed() -> Any:
        newest = root.get("/seals", params={"order": "desc", "limit": 1}).json()["items"]
        return newest[0] if newest and newest[0]["position"] >= last else None

    newest = eventually(sealed, 20)
    head = {"position": newest["position"], "link": newest["link"]}
    verified = root.post("/seals/verify", json={"head": head}).json()
    assert verified["ok"]
    assert verified["checked"] >= last
    with sqlite3.connect(plain.d1_path()) as database:
        database.execute("UPDATE history SET actor = actor || '!' WHERE position = ?", (last,))
    found = root.post("/seals/verify", json={"head": head}).json()
    assert (found["ok"], found["broken"]["position"]) == (False, last)
    with sqlite3.connect(plain.d1_path()) as database:
        database.execute("UPDATE history SET actor = rtrim(actor, '!') WHERE position = ?", (last,))
    assert root.post("/seals/verify", json={"head": head}).json()["ok"]


@pytest.mark.clause("timers.alarm")
def test_a_burst_is_drained_to_the_last_item(root: httpx.Client) -> None:
    leased(root, "clock.burst", 4, 450)

    def all_ready() -> bool:
        query = {"kind": "clock.burst", "state": "ready", "limit": 500}
        return len(root.post("/records/query", json=query).json()["items"]) == 450

    assert eventually(all_ready, 60)


@pytest.mark.clause("edge.local")
def test_without_the_variable_there_is_no_test_clock(root: httpx.Client) -> None:
    assert root.get("/testing/clock").status_code == 404
    assert root.post("/testing/clock", json={"advance_seconds": 1}).status_code == 404


@pytest.mark.clause("edge.cors-head")
def test_the_deployments_origins_may_call(plain: LocalEdge) -> None:
    asked = {"origin": ORIGIN, "access-control-request-method": "POST"}
    answer = httpx.options(f"{plain.url}/claims", headers=asked, timeout=60)
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    refused = httpx.post(f"{plain.url}/claims", headers={"origin": ORIGIN}, timeout=60)
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, ORIGIN)
    evil = httpx.get(f"{plain.url}/health", headers={"origin": "https://evil.example.test"}, timeout=60)
    assert "access-control-allow-origin" not in evil.headers


@pytest.mark.crash
@pytest.mark.clause("timers.late")
def test_what_fell_due_while_nothing_ran_fires_at_the_start(plain: LocalEdge) -> None:
    with client_of(plain) as client:
        record = leased(client, "clock.down", 1)[0]
    plain.kill()
    time.sleep(1.2)
    plain.start()
    with client_of(plain) as client:
        assert eventually(lambda: entries(client, record, "record.lease_expired"))


@pytest.mark.clause("timers.alarm")
def test_a_cron_tick_makes_a_lost_alarm_good_and_arms_for_the_next(root: httpx.Client, plain: LocalEdge) -> None:
    overdue, near, far = leased(root, "clock.lost", 3600, 3)
    move(plain, overdue, -60)
    move(plain, near, 3)
    assert root.get(f"/records/{overdue}").json()["state"] == "claimed"
    plain.trigger_cron()
    assert root.get(f"/records/{overdue}").json()["state"] == "ready"
    assert eventually(lambda: entries(root, near, "record.lease_expired"))
    assert root.get(f"/records/{far}").json()["state"] == "claimed"


@pytest.mark.crash
@pytest.mark.clause("timers.alarm", "timers.late")
def test_a_start_makes_a_lost_alarm_good(plain: LocalEdge) -> None:
    """After a day in which nothing ran, and whose alarms are lost."""
    with client_of(plain) as client:
        overdue = leased(client, "clock.start", 3600, 5)
    plain.stop()
    for number, record in enumerate(overdue):
        move(plain, record, number * 3600 - 86_400)
    plain.start()
    with client_of(plain) as client:
        fired = [eventually(partial(entries, client, record, "record.lease_expired")) for record in overdue]
    assert [len(once) for once in fired] == [1] * 5
    positions = [once[0]["position"] for once in fired]
    assert positions == sorted(positions)


def move(edge: LocalEdge, record: str, seconds: float) -> None:
    """Let a lease end at another instant without telling the Clock, as if its alarm for it had been lost."""
    with sqlite3.connect(edge.d1_path()) as database:
        now = int(time.time() * 1000)
        database.execute("UPDATE records SET expires_at = ? WHERE id = ?", (now + int(seconds * 1000), record))
    database.close()

"""The Clock's shards on the real edge: a burst in one holds up none of the others, and nothing fires early or twice."""

import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import pytest

from moorage.kernel.instants import Instant, render
from ops.local.edge import LocalEdge
from tests.edge.conftest import EdgeFactory
from tests.edge.test_clock import client_of, entries, eventually, instant, leased

pytestmark = pytest.mark.edge

BURST = 10_000


@pytest.fixture(scope="module")
def plain(edge_factory: EdgeFactory) -> Iterator[LocalEdge]:
    """Moorage as it is deployed: no test clock."""
    edge = edge_factory()
    yield edge
    edge.stop()


def awakeables(edge: LocalEdge, name: str, number: int, deadline: int) -> None:
    """So many awakeables with one deadline, put into the database behind the Clock's back."""
    with sqlite3.connect(edge.d1_path(), timeout=30) as database:
        database.execute(
            "INSERT INTO awakeables (id, token_sha256, state, metadata, created_at, created_by, deadline) "
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) "
            "SELECT 'awk_' || ?2 || i, ?2 || i, 'pending', '{}', 0, 'root', ?3 FROM n",
            (number, name, deadline),
        )
    database.close()


def told(edge: LocalEdge, sql: str, *values: Any) -> list[Any]:
    """What the database has."""
    with sqlite3.connect(edge.d1_path(), timeout=30) as database:
        rows = database.execute(sql, values).fetchall()
    database.close()
    return rows


def shard(client: httpx.Client, name: str) -> dict[str, Any]:
    """How a shard stands, as everybody may read."""
    answer: dict[str, Any] = client.get("/health").json()["clock"]["shards"][name]
    return answer


_TIMED_OUT = (
    "SELECT count(*), count(DISTINCT subject), min(at) FROM history WHERE type = 'awakeable.timed_out' AND subject GLOB ?"
)


@pytest.mark.crash
@pytest.mark.clause("timers.alarm", "timers.late")
def test_ten_thousand_due_at_one_instant_fire_once_each_over_a_kill_and_hold_up_no_other_shard(plain: LocalEdge) -> None:
    def fired() -> int:
        return int(told(plain, _TIMED_OUT, "awk_burst*")[0][0])

    due = int(time.time() * 1000) + 1000
    awakeables(plain, "burst", BURST, due)
    plain.trigger_cron()
    assert fired() == 0 or time.time() * 1000 >= due, "nothing fires before its time"
    eventually(lambda: fired() > BURST // 20, 60)
    plain.kill()
    before = fired()
    plain.start()
    late, lateness, began = [], [], time.monotonic()
    with client_of(plain) as root, ThreadPoolExecutor(1) as beside:
        while fired() < BURST and time.monotonic() - began < 200:
            # A tick beside the alarms: both drain, and each item is fired by one of them.
            tick = beside.submit(plain.trigger_cron)
            record = leased(root, "shards.beside", 1)[0]
            ended = instant(entries(root, record, "record.claimed")[0]["data"]["expires_at"])
            time.sleep(1.1)
            expired = eventually(partial(entries, root, record, "record.lease_expired"))[0]
            late.append((instant(expired["at"]) - ended).total_seconds())
            lateness.append(shard(root, "runs")["lateness_seconds"])
            tick.result()
        spent = time.monotonic() - began
        print(f"\n{BURST - before} in {spent:.1f} s after a kill; leases beside them at most {max(late):.2f} s late", end="")
        number, different, first = told(plain, _TIMED_OUT, "awk_burst*")[0]
        assert (number, different) == (BURST, BURST)
        assert first >= due
        assert 0 < before < BURST
        assert max(lateness) > 0
        assert max(late) < 3
        assert eventually(lambda: shard(root, "runs")["lateness_seconds"] == 0)
        assert shard(root, "runs")["set_aside"] == 0


@pytest.mark.clause("timers.alarm")
def test_what_is_due_in_thousands_of_years_is_armed_for_and_does_not_hold_up_what_is_near(plain: LocalEdge) -> None:
    event = {"type": "shards.rang", "keys": ["shards"]}
    month = render(Instant(int(time.time() * 1000) + 2**31 + 86_400_000))
    with client_of(plain) as root:
        for name, fire_at in (("far", "9999-12-31T23:59:59.999Z"), ("month", month)):
            root.put(f"/timers/shards-{name}", json={"fire_at": fire_at, "event": event}).raise_for_status()
        plain.trigger_cron()
        near = root.put("/timers/shards-near", json={"delay_seconds": 0.5, "event": event}).json()
        fired = eventually(lambda: entries(root, "timer:shards-near", "timer.fired"))[0]
        assert 0 <= (instant(fired["at"]) - instant(near["fire_at"])).total_seconds() < 3
        # What one shard fires is followed up in another at once, not by the next tick.
        [sent] = root.get("/events", params={"type": "shards.rang"}).json()["items"]
        routed = eventually(lambda: entries(root, sent["event_id"], "event.routed"))[0]
        assert (instant(routed["at"]) - instant(fired["at"])).total_seconds() < 1.5
        left = {one["id"]: one["fire_at"] for one in root.get("/timers").json()["items"]}
        assert left == {"shards-far": "9999-12-31T23:59:59.999Z", "shards-month": month}
        standing = {"lateness_seconds": 0.0, "next_due": month, "set_aside": 0}
        assert eventually(lambda: shard(root, "time") == standing)


@pytest.mark.clause("timers.alarm")
def test_every_shard_goes_by_the_test_clock_that_one_of_them_keeps(edge: LocalEdge) -> None:
    with client_of(edge) as root:
        record = leased(root, "shards.driven", 3600)[0]
        minted = root.post("/awakeables", json={"ttl_seconds": 3600}).json()["id"]
        advanced = root.post("/testing/clock", json={"advance_seconds": 3601}).json()
        assert advanced["fired"]["lease_expired"] >= 1
        assert advanced["fired"]["awakeable_timed_out"] >= 1
        [lease], [deadline] = entries(root, record, "record.lease_expired"), entries(root, minted, "awakeable.timed_out")
        # Each at its own instant, although another shard's clock was moved.
        for ended, began in ((lease, "record.claimed"), (deadline, "awakeable.minted")):
            since = instant(ended["at"]) - instant(entries(root, ended["subject"], began)[0]["at"])
            assert 3600 <= since.total_seconds() < 3601
        # From here on each rings by itself, in the time that the clock was moved to.
        record = leased(root, "shards.driven", 1)[0]
        minted = root.post("/awakeables", json={"ttl_seconds": 1}).json()["id"]
        assert eventually(lambda: entries(root, record, "record.lease_expired"))
        assert eventually(lambda: entries(root, minted, "awakeable.timed_out"))
        assert shard(root, "records")["lateness_seconds"] < 60


@pytest.mark.clause("timers.alarm")
def test_what_was_armed_for_rings_in_time_after_the_test_clock_was_moved_near_to_it(edge: LocalEdge) -> None:
    with client_of(edge) as root:
        record, deadline = leased(root, "shards.near", 3600)[0], root.post("/awakeables", json={"ttl_seconds": 3600}).json()
        # What one shard fires it tells the others, and so knows when these ring: surely before it fires a second later.
        for name, delay in (("now", 0), ("soon", 1)):
            timer = {"delay_seconds": delay, "event": {"type": "shards.told"}}
            root.put(f"/timers/shards-{name}", json=timer).raise_for_status()
        assert eventually(lambda: entries(root, "timer:shards-soon", "timer.fired"))
        left = instant(deadline["deadline"]) - instant(root.get("/testing/clock").json()["now"])
        root.post("/testing/clock", json={"advance_seconds": left.total_seconds() - 2}).raise_for_status()
        for subject, happened in ((record, "record.lease_expired"), (deadline["id"], "awakeable.timed_out")):
            assert eventually(partial(entries, root, subject, happened))

"""Nothing that was acknowledged is lost, nothing is half done and nothing is done twice, whatever is killed when."""

import asyncio
import os
import random
import signal
import sqlite3
import time
from typing import Any

import httpx
import pytest

from ops.local.edge import LocalEdge
from ops.local.state import command_line
from tests.crash.burst import BATCH, RESULTS, Burst
from tests.crash.ledger import faults, opened
from tests.edge.client import client, crowd, declare, fresh, good
from tests.edge.edges import EdgeFactory
from tests.edge.http import await_log

pytestmark = [pytest.mark.edge, pytest.mark.crash]

KILLS = 10


@pytest.fixture
def own(edge_factory: EdgeFactory) -> LocalEdge:
    """An edge that the test may kill."""
    return edge_factory()


def ends(pid: int) -> bool:
    """Whether a process ends soon, with nobody ending it."""
    deadline = time.monotonic() + 30
    while command_line(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return command_line(pid) == ""


def declared(edge: LocalEdge) -> str:
    with client(edge) as api:
        policy: dict[str, Any] = {"lease_seconds": 3600, "max_attempts": 100, "retry": {"delay_seconds": 0}}
        return declare(api, fresh("crash"), {"n": "number"}, **policy)


def all_records(api: httpx.Client, kind: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    cursor = None
    while True:
        page = good(api.post("/records/query", json={"kind": kind, "limit": 500, "cursor": cursor}))
        found |= {record["id"]: record for record in page["items"]}
        cursor = page["next_cursor"]
        if cursor is None:
            return found


def check_acknowledged(edge: LocalEdge, burst: Burst) -> None:
    """Every acknowledged write can be read."""
    told = burst.acknowledged
    with client(edge) as api:
        stored = all_records(api, burst.kind)
        for operation, records in told.records.items():
            for made in records:
                assert stored[made["id"]]["body"] == made["body"] == {"operation": operation, "n": 1}
                assert stored[made["id"]]["seq"] == made["seq"]
            assert len({made["id"] for made in records}) == (BATCH if operation.startswith("batch") else 1)
        for record, settled in told.settled.items():
            assert stored[record]["state"] == "consumed"
            assert len(settled["receipt"]["results"]) == RESULTS
            assert all(stored[result]["parents"] == [record] for result in settled["receipt"]["results"])
        for record, attempts in told.failed.items():
            assert stored[record]["attempts"] >= attempts
        for token, payload in told.resolved.items():
            shown = good(api.get(f"/awake/{token}"))
            assert (shown["state"], shown["payload"]) == ("resolved", payload)


@pytest.mark.clause("history.append", "store.atomic", "edge.local", "awake.restart", "records.idempotent")
async def test_ten_kills_of_workerd_during_a_burst_of_writes_lose_nothing_and_double_nothing(own: LocalEdge) -> None:
    chance = random.Random(20)
    async with crowd(own) as api:
        burst = Burst(api, declared(own))

        async def kill_again_and_again() -> None:
            for _ in range(KILLS):
                await burst.reach(chance.randint(15, 60))
                await asyncio.sleep(chance.random() / 20)
                await asyncio.to_thread(own.kill_workerd)

        await burst.run(kill_again_and_again)
        # Each kill finds several writes under way; those that had no answer were sent again.
        assert burst.acknowledged.repeated >= KILLS
    check_acknowledged(own, burst)
    died = "workerd died and was started again"
    assert await_log(own, died, times=KILLS).count(died) == KILLS
    own.kill()
    assert faults(own.d1_path()) == {}
    with opened(own.d1_path()) as database:
        ((published,),) = database.execute("SELECT count(*) FROM records WHERE json_extract(metadata, '$.operation') <> ''")
    assert published == sum(len(records) for records in burst.acknowledged.records.values())
    own.start()
    check_acknowledged(own, burst)


@pytest.mark.clause("history.append", "edge.local")
async def test_a_kill_of_node_during_a_burst_ends_workerd_too_and_a_fresh_start_goes_on(own: LocalEdge) -> None:
    workerd = own.workerd_pid()
    async with crowd(own) as api:
        burst = Burst(api, declared(own))

        async def kill_and_start() -> None:
            await burst.reach(30)
            os.kill(own.node_pid, signal.SIGKILL)
            await asyncio.to_thread(own.wait)
            await asyncio.to_thread(own.kill)
            assert await asyncio.to_thread(ends, workerd)
            assert faults(own.d1_path()) == {}
            await asyncio.to_thread(own.start)
            api.base_url = httpx.URL(own.url)

        await burst.run(kill_and_start)
        assert burst.acknowledged.repeated > 0
    check_acknowledged(own, burst)


@pytest.mark.clause("timers.alarm", "records.recover", "awake.deadline", "leases.claim")
async def test_what_fell_due_while_everything_was_dead_fires_after_the_start_with_nobody_asking(own: LocalEdge) -> None:
    with client(own) as api:
        kind = declare(api, fresh("due"), lease_seconds=4, max_attempts=1)
        ids = [good(api.post("/records", json={"kind": kind, "body": {}}))["id"] for _ in range(3)]
        assert len(good(api.post("/claims", json={"kind": kind, "worker": "w", "limit": 3}))["claims"]) == 3
        ids.append(good(api.post("/awakeables", json={"ttl_seconds": 4}))["id"])
        soon = {"kind": kind, "body": {}, "not_before": good(api.get("/awakeables"))["items"][0]["deadline"]}
        ids.append(good(api.post("/records", json=soon))["id"])
        due = time.monotonic() + 4
    own.kill()
    with opened(own.d1_path()) as database:
        assert fired(database, ids) == set()
    await asyncio.sleep(max(0.0, due - time.monotonic()))  # nothing runs whose clock could be driven
    own.start()
    deadline = time.monotonic() + 30
    while True:
        # The file is read, so that no request can be what makes anything fire.
        with opened(own.d1_path()) as database:
            database.execute("PRAGMA query_only = 1")
            done = fired(database, ids)
        if done == set(ids):
            break
        assert time.monotonic() < deadline, (done, ids)
        await asyncio.sleep(0.1)
    own.kill()
    assert faults(own.d1_path()) == {}


def fired(database: sqlite3.Connection, ids: list[str]) -> set[str]:
    """Which of these have an entry that only the Clock writes."""
    types = "('record.lease_expired', 'record.dead_lettered', 'record.due', 'awakeable.timed_out')"
    marks = ",".join("?" * len(ids))
    rows = database.execute(f"SELECT subject FROM history WHERE type IN {types} AND subject IN ({marks})", ids)  # noqa: S608
    return {row[0] for row in rows}

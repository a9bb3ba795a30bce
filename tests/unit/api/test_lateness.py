"""GET /health tells how late each shard of the Clock is, to everybody and at a bounded cost."""

import dataclasses
import sqlite3
from typing import Any

import httpx
import pytest

from moorage.api.app import build_app
from moorage.api.lateness import LATENESS_SECONDS, Lateness
from moorage.kernel.instants import after
from moorage.store.sqlite import SqliteDatabase
from moorage.timers.due import SHARDS
from tests.unit.api.conftest import House, client_of


class Told:
    """An application whose cache sees a clock of its own, and how often its database is read."""

    def __init__(self, house: House) -> None:
        self.ticks = 0.0
        self.reads = 0
        ports = house.ports(database=lambda: self._counted(house.connection))
        self.app = build_app(dataclasses.replace(ports, lateness=Lateness(ports.works, lambda: self.ticks)))

    def _counted(self, connection: sqlite3.Connection) -> SqliteDatabase:
        told = self

        class Counted(SqliteDatabase):
            async def read(self, reading: Any) -> None:
                told.reads += 1
                await super().read(reading)

        return Counted(connection)

    async def health(self) -> dict[str, Any]:
        async with client_of(self.app, "") as nobody:
            answer = await nobody.get("/health")
        assert answer.status_code == 200
        shown: dict[str, Any] = answer.json()
        return shown


@pytest.mark.clause("timers.alarm")
async def test_health_tells_everybody_what_is_due_how_late_and_what_is_set_aside(
    house: House, root: httpx.AsyncClient
) -> None:
    told = Told(house)
    idle = (await told.health())["clock"]["shards"]
    assert set(idle) <= set(SHARDS)
    assert idle["records"] == {"lateness_seconds": 0.0, "next_due": None, "set_aside": 0}
    await root.put("/kinds/note", json={})
    await root.post("/records", json={"kind": "note", "body": {}})
    await root.post("/claims", json={"kind": "note", "worker": "w", "lease_seconds": 30})
    retry_at = after(house.now, 10_000)
    house.connection.execute("INSERT INTO due_failures VALUES ('lease_expired', 'rec_1', 3, ?, 'KeyError')", [retry_at])
    told.ticks += LATENESS_SECONDS * 1000
    waiting = (await told.health())["clock"]["shards"]["records"]
    assert (waiting["lateness_seconds"], waiting["set_aside"]) == (0.0, 1)
    house.now = after(house.now, 42.5)
    told.ticks += LATENESS_SECONDS * 1000
    late = (await told.health())["clock"]["shards"]
    assert late["records"] == {"lateness_seconds": 12.5, "next_due": waiting["next_due"], "set_aside": 1}
    assert late["runs"]["lateness_seconds"] == 0.0
    assert "rec_" not in str(late)


@pytest.mark.clause("timers.alarm")
async def test_an_open_route_reads_at_most_once_in_a_while(house: House) -> None:
    told = Told(house)
    await told.health()
    once = told.reads
    for _ in range(20):
        await told.health()
    assert told.reads == once
    told.ticks += LATENESS_SECONDS * 1000 - 1
    await told.health()
    assert told.reads == once
    told.ticks += 1
    for _ in range(3):
        await told.health()
    assert told.reads == once + 1


@pytest.mark.clause("timers.alarm")
async def test_where_the_database_cannot_tell_the_clock_is_null_and_health_is_answered(house: House) -> None:
    told = Told(house)
    assert (await told.health())["clock"] is not None
    house.connection.execute("ALTER TABLE due_failures RENAME TO gone")
    told.ticks += LATENESS_SECONDS * 1000
    shown = await told.health()
    assert (shown["ok"], shown["clock"]) == (True, None)

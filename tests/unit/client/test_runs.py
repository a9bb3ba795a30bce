"""The client's operations on runs, against the application on SQLite."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from moorage.api.app import build_app
from moorage.bodies import Run, body
from moorage.client import Host, Moorage, Problem, RunFailed
from moorage.store.directory import DirectoryBlobs
from moorage.store.sqlite import connect
from tests.unit.api.conftest import ROOT, House


@body("halves", effects=["half", "rest"])
async def halves(run: Run, number: int) -> int:
    half = await run.step("half", lambda: number // 2)
    if number % 2:
        raise ValueError("it is odd")
    return await run.step("rest", lambda: number - half)


@pytest.fixture
async def moorage(schema: str, tmp_path: Path) -> AsyncIterator[Moorage]:
    connection = connect(":memory:")
    connection.executescript(schema)
    house = House(connection, blobs=DirectoryBlobs(tmp_path)).initialized()
    transport = httpx.ASGITransport(app=build_app(house.ports()))
    async with Moorage("http://moorage.test", ROOT, transport=transport) as made:
        yield made


async def failed(moorage: Moorage, scope: str) -> RunFailed:
    with pytest.raises(RunFailed) as found:
        await Host(moorage, halves).run("halves", 7, scope=scope)
    return found.value


async def test_runs_are_listed_exported_and_looked_into(moorage: Moorage) -> None:
    host = Host(moorage, halves)
    for number in range(0, 14, 2):
        await host.run("halves", number)
    page = await moorage.runs.list(body="halves")
    assert (len(page.items), page.truncated, page.window["limit"]) == (5, True, 5)
    runs = [run.run_id async for run in moorage.runs.iterate(body="halves", since=datetime(2026, 1, 1, tzinfo=UTC))]
    assert (len(runs), runs) == (7, sorted(runs, reverse=True))
    header, *lines = [line async for line in moorage.runs.export(limit=3)]
    assert (header["count"], header["truncated"]) == (3, True)
    assert [line["run_id"] for line in lines] == runs[:3]
    with pytest.raises(Problem) as misspelled:
        await moorage.runs.list(since="yesterday")
    assert misspelled.value.code == "HistoryBoundSpelling"


async def test_a_failed_run_is_looked_into_restarted_and_rewound(moorage: Moorage) -> None:
    error = await failed(moorage, "s")
    assert "it is odd" in str(error)
    (step,) = await moorage.runs.steps(error.run.run_id)
    assert await moorage.runs.output(error.run.run_id, step.wire()["output"]["ref"]) == 3
    with pytest.raises(Problem) as ended:
        await moorage.runs.stop(error.run.run_id)
    assert ended.value.code == "CancelTargetNotInFlight"
    await Host(moorage, halves).offer()
    again = await moorage.runs.restart(error.run.run_id, "the input was fine", from_step="half")
    assert (await moorage.runs.get(again.run_id)).wire()["restarted_from"] == error.run.run_id
    assert await moorage.runs.stop(again.run_id, reason="enough") == [again.run_id]
    other = await failed(moorage, "t")
    rewound = await moorage.runs.rewind(other.run.execution_id, "another input", force=True)
    assert rewound["scope"] == "t"
    assert await Host(moorage, halves).run("halves", 8, scope="t") == 4


async def test_waiting_ends_after_its_time(moorage: Moorage) -> None:
    await Host(moorage, halves).offer()
    started = await moorage.runs.start("halves", 4, metadata={"of": "nobody"})
    run = await moorage.runs.wait(started.run_id, seconds=0.05)
    assert (run.ended, run.status) == (False, "running")

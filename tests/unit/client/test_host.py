"""A host outside the Worker, against the application on SQLite: the same body files, the substrate over HTTP."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from moorage.api.app import Application, build_app
from moorage.awakeables.derive import derive
from moorage.bodies import Run, body, each
from moorage.client import Host, Moorage, Patience, Problem, RunFailed
from moorage.client.substrate import HttpSubstrate, error_of
from moorage.journal.model import EntryKey, Fence, Value
from moorage.kernel import canonical
from moorage.kernel.errors import (
    CursorMoved,
    ExecutionBusy,
    ExecutionPinMismatch,
    Forbidden,
    LeaseExpired,
    LeaseFenced,
    MoorageError,
    RequestInvalid,
    RunMetadataTooLarge,
    StorageBindingUnavailable,
)
from moorage.kernel.limits import JOURNAL_INLINE_BYTES, JSON_DEPTH, JSON_VALUES
from moorage.runs.model import Execution
from moorage.runs.operations import Claim, Claimed, Close, CommitCursor, Operation, Record, Recorded, SetMetadata
from moorage.store.directory import DirectoryBlobs
from moorage.store.sqlite import connect
from tests.unit.api.conftest import ROOT, House

calls: list[Any] = []


def noted(what: Any, value: Any) -> Any:
    """The value, after it was noted that somebody asked for it."""
    calls.append(what)
    return value


@body("parcel", effects=["weigh", each("stamp")])
async def parcel(run: Run, given: dict[str, Any]) -> dict[str, Any]:
    grams = await run.step("weigh", lambda: noted("weigh", given["pieces"] * 120))
    stamps = [await run.step("stamp", lambda n=n: noted(n, n), input=n) for n in range(given["pieces"])]
    return {"grams": grams, "stamps": stamps}


@body("asks", effects=["before", "approval", "after"])
async def asks(run: Run, given: Any = None) -> Any:
    await run.step("before", lambda: calls.append("before"))
    answer = await (await run.awakeable("approval", ttl=3600))
    await run.step("after", lambda: calls.append("after"))
    return answer


@body("naps", effects=["before", "after"])
async def naps(run: Run, seconds: float) -> str:
    await run.step("before", lambda: calls.append("before"))
    await run.sleep(seconds)
    await run.step("after", lambda: calls.append("after"))
    return "rested"


@body("large", effects=["make", "look"])
async def large(run: Run, size: int) -> int:
    made = await run.step("make", lambda: "x" * size)
    await run.sleep(100)
    return await run.step("look", lambda text: len(text), input=made)


@body("breaks", effects=["x"])
async def breaks(run: Run) -> None:
    await run.step("x", lambda: 1)
    raise ValueError("no")


@body("stuck", effects=["begin", "hang"])
async def stuck(run: Run) -> None:
    await run.step("begin", lambda: calls.append("begin"))
    await run.step("hang", lambda: asyncio.get_running_loop().create_future())


ALL = (parcel, asks, naps, large, breaks, stuck)


@pytest.fixture(autouse=True)
def fresh_calls() -> None:
    calls.clear()


@pytest.fixture
def house(schema: str, tmp_path: Path) -> House:
    connection = connect(":memory:")
    connection.executescript(schema)
    return House(connection, blobs=DirectoryBlobs(tmp_path)).initialized()


@pytest.fixture
def app(house: House) -> Application:
    return build_app(house.ports())


def moorage_of(app: Any, token: str = ROOT) -> Moorage:
    transport = httpx.ASGITransport(app=app)
    return Moorage("http://moorage.test", token, transport=transport, patience=Patience(tries=3, first_seconds=0.01))


@pytest.fixture
async def moorage(app: Application) -> AsyncIterator[Moorage]:
    async with moorage_of(app) as made:
        yield made


async def until(holds: Any) -> None:
    for _ in range(3000):
        if await holds():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it never held")


def the_token(house: House) -> str:
    """The token of the one awakeable that there is, as its body would send it to whom it asks."""
    return derive(ROOT, house.connection.execute("SELECT id FROM awakeables").fetchone()["id"])


# --- one run ---------------------------------------------------------------------------------------------------------


@pytest.mark.clause("runs.substrate")
async def test_a_run_is_driven_here_and_recorded_there(moorage: Moorage) -> None:
    host = Host(moorage, *ALL)
    assert await host.run("parcel", {"pieces": 2}) == {"grams": 240, "stamps": [0, 1]}
    assert calls == ["weigh", 0, 1]
    (run,) = (await moorage.runs.list()).items
    assert (run.status, run.result, run.body) == ("success", None, "parcel")
    assert [(step.label, step.status) for step in await moorage.runs.steps(run.run_id)] == [
        ("weigh", "success"),
        ("stamp", "success"),
        ("stamp", "success"),
    ]


@pytest.mark.clause("runs.substrate")
async def test_a_run_that_fails_is_told(moorage: Moorage) -> None:
    with pytest.raises(RunFailed) as failed:
        await Host(moorage, breaks).run("breaks")
    assert failed.value.run.error is not None
    assert (failed.value.run.status, failed.value.run.error.tag) == ("failed", "Permanent")


@pytest.mark.clause("runs.substrate", "runs.wake")
async def test_a_run_goes_on_after_its_wait(moorage: Moorage, house: House) -> None:
    host = Host(moorage, naps)
    running = asyncio.create_task(host.run("naps", 100))

    async def waits() -> bool:
        return [run.status for run in (await moorage.runs.list()).items] == ["waiting"]

    await until(waits)
    assert calls == ["before"]
    await house.advance(101)
    assert await asyncio.wait_for(running, 10) == "rested"
    assert calls == ["before", "after"]


@pytest.mark.clause("runs.substrate", "runs.unclosed-execution", "runs.no-double-spend")
async def test_another_host_goes_on_where_one_vanished(moorage: Moorage, house: House) -> None:
    first = Host(moorage, *ALL, name="first")
    dying = asyncio.create_task(first.run("stuck", scope="s"))

    async def hangs() -> bool:
        return calls == ["begin"] and house.connection.execute("SELECT count(*) FROM journal").fetchone()[0] == 2

    await until(hangs)
    dying.cancel()
    await asyncio.wait([dying])
    with pytest.raises(ExecutionBusy):
        await Host(moorage, *ALL, name="second").run("stuck", scope="s")
    with pytest.raises(ExecutionBusy):
        await Host(moorage, *ALL, name="second").run("parcel", {"pieces": 1}, scope="s")
    await house.advance(31)
    assert [run.status for run in (await moorage.runs.list(scope="s", status="partial_failure")).items] == [
        "partial_failure"
    ]
    with pytest.raises(ExecutionPinMismatch):
        await Host(moorage, *ALL, name="second").run("parcel", {"pieces": 1}, scope="s")
    second = asyncio.create_task(Host(moorage, *ALL, name="second").run("stuck", scope="s"))
    await asyncio.sleep(0.2)
    assert calls == ["begin"]
    second.cancel()
    await asyncio.wait([second])


@pytest.mark.clause("blobs.inline-cutoff")
@pytest.mark.parametrize("size", [10, int(JOURNAL_INLINE_BYTES) + 1, 3_000_000])
async def test_large_values_travel_apart(moorage: Moorage, house: House, size: int) -> None:
    running = asyncio.create_task(Host(moorage, large).run("large", size))

    async def waits() -> bool:
        return [run.status for run in (await moorage.runs.list()).items] == ["waiting"]

    await until(waits)
    row = house.connection.execute("SELECT size, blob FROM journal WHERE label = 'make'").fetchone()
    assert (row["size"], row["blob"] is not None) == (size + 2, size + 2 > JOURNAL_INLINE_BYTES)
    await house.advance(101)
    assert await asyncio.wait_for(running, 20) == size


# --- serving ---------------------------------------------------------------------------------------------------------


@pytest.mark.clause("runs.substrate")
async def test_a_host_serves_what_is_started_by_name(moorage: Moorage, house: House) -> None:
    host = Host(moorage, *ALL)
    serving = asyncio.create_task(host.serve(concurrency=4))

    async def offered() -> bool:
        return len(await moorage.runs.bodies()) == len(ALL)

    await until(offered)
    runs = [(await moorage.runs.start("parcel", {"pieces": n})).run_id for n in range(6)]
    results = [await asyncio.wait_for(moorage.runs.result(run), 10) for run in runs]
    assert [one["grams"] for one in results] == [n * 120 for n in range(6)]
    asked = await moorage.runs.start("asks")

    async def suspended() -> bool:
        return (await moorage.runs.get(asked.run_id)).status == "suspended"

    await until(suspended)
    await moorage.awakeables.resolve(the_token(house), {"yes": 1})
    assert await asyncio.wait_for(moorage.runs.result(asked.run_id), 10) == {"yes": 1}
    host.stop()
    await asyncio.wait_for(serving, 30)
    assert host.held == {}


class Overheard(httpx.ASGITransport):
    """The application, and what is asked of it and answered."""

    def __init__(self, app: Any) -> None:
        super().__init__(app=app)
        self.asked: list[tuple[str, str]] = []
        self.answered: list[tuple[str, str]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append((request.url.path, (await request.aread()).decode()))
        answer = await super().handle_async_request(request)
        self.answered.append((request.url.path, (await answer.aread()).decode()))
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


@pytest.mark.clause("awake.mint", "runs.substrate")
async def test_whoever_goes_on_is_handed_the_tokens_and_nobody_else(
    app: Application, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    overheard = Overheard(app)
    async with Moorage("http://moorage.test", ROOT, transport=overheard) as moorage:
        host = Host(moorage, asks)
        running = asyncio.create_task(host.run("asks"))

        async def suspended() -> bool:
            return [run.status for run in (await moorage.runs.list()).items] == ["suspended"]

        await until(suspended)
        token = the_token(house)
        (execution,) = house.connection.execute("SELECT execution_id FROM executions").fetchone()
        await moorage.wire.call("GET", f"/executions/{execution}")
        await moorage.awakeables.resolve(token, {"yes": 1})
        assert await asyncio.wait_for(running, 10) == {"yes": 1}
    minted = [body for path, body in overheard.asked if path.endswith("/journal") and '"mint"' in body]
    assert len(minted) == 1
    told = [path for path, body in overheard.answered if token in body]
    assert told == [f"/executions/{execution}/journal", "/executions/claim"]
    assert not [one for one in caplog.records if one.name != "httpx" and token in one.getMessage()]


@pytest.mark.clause("runs.substrate", "runs.poll")
async def test_a_stop_ends_what_a_host_is_at(moorage: Moorage, house: House) -> None:
    host = Host(moorage, *ALL)
    running = asyncio.create_task(host.run("stuck"))

    async def hangs() -> bool:
        return calls == ["begin"] and len(host.held) == 1

    await until(hangs)
    (run,) = (await moorage.runs.list()).items
    assert await moorage.runs.stop(run.run_id, reason="enough") == [run.run_id]
    with pytest.raises(RunFailed) as failed:
        await asyncio.wait_for(running, 10)
    assert failed.value.run.status == "canceled"


@pytest.mark.clause("runs.substrate")
async def test_a_host_that_is_told_to_stop_gives_up_what_it_has(moorage: Moorage, house: House) -> None:
    host = Host(moorage, *ALL, grace_seconds=0.05)
    serving = asyncio.create_task(host.serve())

    async def offered() -> bool:
        return len(await moorage.runs.bodies()) == len(ALL)

    await until(offered)
    run = await moorage.runs.start("stuck")

    async def hangs() -> bool:
        return calls == ["begin"]

    await until(hangs)
    signal.raise_signal(signal.SIGTERM)
    await asyncio.wait_for(serving, 10)
    assert (await moorage.runs.get(run.run_id)).status == "waiting"
    await house.advance(1)
    other = Host(moorage, *ALL)
    serving = asyncio.create_task(other.serve())

    async def taken() -> bool:
        return len(other.held) == 1

    await until(taken)
    assert calls == ["begin"]
    other.stop()
    other.stop()
    await asyncio.wait_for(serving, 10)


async def test_a_host_without_a_grant_is_told_so(app: Application, moorage: Moorage) -> None:
    made = await moorage.credentials.create("ann", [{"actions": ["execute"], "kinds": ["naps"]}])
    async with moorage_of(app, made.token) as poor:
        with pytest.raises(Problem) as refused:
            await Host(poor, parcel).serve()
        assert refused.value.code == "Forbidden"
        with pytest.raises(Forbidden):
            await Host(poor, parcel).run("parcel", {"pieces": 1})


# --- the substrate's own manners -------------------------------------------------------------------------------------

BUILD = {"implementation": "a" * 64}
KEY = EntryKey("step")


async def opened(moorage: Moorage, given: Any = None, **more: Any) -> tuple[HttpSubstrate, Execution]:
    substrate = HttpSubstrate(moorage.wire)
    sent = {"body": "far", "input": given, "holder": "h", "build": BUILD, **more}
    return substrate, await substrate.open(sent, "k" if more.get("scope") is None else None)


@pytest.mark.clause("runs.substrate", "leases.fence")
async def test_a_fence_that_is_not_ones_own_is_refused(app: Application, moorage: Moorage, house: House) -> None:
    substrate, execution = await opened(moorage)
    claim = Claim(KEY, "step", "0")
    assert await substrate.apply(execution.fence, [claim]) == [Claimed(1)]
    grants = [{"actions": ["execute"]}]
    async with moorage_of(app, (await moorage.credentials.create("ann", grants)).token) as other:
        foreign = HttpSubstrate(other.wire)
        for asked in (
            foreign.apply(execution.fence, [claim]),
            foreign.refresh(execution.fence),
            foreign.values(execution.fence, [KEY]),
            foreign.cursor(execution.fence, "c"),
        ):
            with pytest.raises(LeaseFenced):
                await asked
        assert await foreign.renew([execution.fence]) == {}
        assert await foreign.stops([execution.fence]) == {}
    for fence in (Fence(execution.execution_id, 2), Fence("exe_never", 1)):
        with pytest.raises(LeaseFenced):
            await substrate.apply(fence, [claim])
    house.now = type(house.now)(house.now + 31_000)
    with pytest.raises(LeaseExpired):
        await substrate.apply(execution.fence, [claim])
    assert await substrate.renew([execution.fence]) == {}


@pytest.mark.clause("runs.substrate")
async def test_whatever_is_sent_again_answers_the_same(moorage: Moorage) -> None:
    substrate, execution = await opened(moorage)
    fence = execution.fence
    again = await substrate.open({"body": "far", "input": None, "holder": "h", "build": BUILD}, "k")
    assert (again.execution_id, again.lease) == (execution.execution_id, execution.lease)
    operations: list[Operation] = [Claim(KEY, "step", "0"), Record(KEY, Value.of("1"))]
    first, second = [await substrate.apply(fence, operations) for _ in range(2)]
    assert isinstance(second[1], Recorded)
    assert first[1] == second[1]
    close = [Close("success", Value.of('{"a":1}'))]
    assert await substrate.apply(fence, close) == await substrate.apply(fence, close)
    assert (await moorage.runs.get(execution.run_id)).result == {"a": 1}
    with pytest.raises(MoorageError):
        await substrate.apply(fence, [Record(KEY, Value.of("2"))])


@pytest.mark.clause("kernel.canonical-json", "blobs.inline-cutoff")
async def test_values_that_no_request_could_hold_are_kept_exactly(moorage: Moorage) -> None:
    deep: Any = 1
    for _ in range(int(JSON_DEPTH)):
        deep = [deep]
    values = [deep, list(range(int(JSON_VALUES) - 10)), "x" * 7_000_000, 1e21, {"é": "\0"}, None]
    substrate, execution = await opened(moorage, {"n": 1e16})
    assert execution.input == Value.of('{"n":10000000000000000}')
    fence = execution.fence
    keys = [EntryKey(f"v{number}") for number in range(len(values))]
    operations: list[Any] = []
    for key, value in zip(keys, values, strict=True):
        operations += [Claim(key, "step", "0"), Record(key, Value.of(canonical.dumps(value)))]
    await substrate.apply(fence, operations)
    loaded = await substrate.values(fence, keys)
    assert [canonical.loads((value.text or "").encode()) for value in loaded] == values


async def test_errors_come_as_what_they_are(moorage: Moorage) -> None:
    substrate, execution = await opened(moorage)
    fence = execution.fence
    with pytest.raises(RunMetadataTooLarge) as large_:
        await substrate.apply(fence, [SetMetadata({"a": "x" * 20_000})])
    assert large_.value.members["limit"] == 16384
    await substrate.apply(fence, [CommitCursor(KEY, "0", "c", Value.of("5"), 0)])
    assert await substrate.cursor(fence, "c") == (Value.of("5"), 1)
    with pytest.raises(CursorMoved):
        await substrate.apply(fence, [CommitCursor(EntryKey("other"), "1", "c", Value.of("6"), 0)])
    assert await substrate.cursor(fence, "none") == (None, 0)
    unknown = error_of(Problem(418, {"code": "Teapot", "detail": "short"}))
    assert (type(unknown), str(unknown)) == (RequestInvalid, "short")
    assert isinstance(error_of(Problem(500, {"code": "Http500"})), StorageBindingUnavailable)

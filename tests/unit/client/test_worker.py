"""The worker loop, on a clock that the tests drive."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from moorage.client import Draft, FailureTag, FailWork, Job, Moorage, Problem, Report, Work, Worker, worker
from moorage.client.jobs import Results
from tests.unit.client.conftest import ROOT, World, settled

GRACE = 20


class Workshop:
    """A worker whose handlers end when the test says so."""

    def __init__(self, world: World, moorage: Moorage, **options: Any) -> None:
        self.world = world
        self.moorage = moorage
        self.began: list[str] = []
        self.cancelled: list[str] = []
        self.running = 0
        self.most = 0
        self.gates: dict[str, asyncio.Future[Results]] = {}
        self.reports: list[Report] = []
        job = Job("doc", {}, self.handle, **{"name": "w", "wait_seconds": 0, "grace_seconds": GRACE, **options})
        self.worker: Worker = moorage.worker(job, self.reports.append)
        self.task: asyncio.Task[None] | None = None

    async def handle(self, work: Work) -> Results:
        name = work.record.id
        self.began.append(name)
        self.running += 1
        self.most = max(self.most, self.running)
        self.gates[name] = asyncio.get_running_loop().create_future()
        try:
            return await self.gates[name]
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        finally:
            self.running -= 1

    def start(self) -> None:
        self.task = asyncio.create_task(self.worker.run())

    async def publish(self, count: int = 1) -> list[str]:
        made = await self.moorage.records.publish_batch([Draft("doc", {"n": n}) for n in range(count)])
        return [one.id for one in made]

    async def state(self, record: str) -> str:
        return (await self.moorage.records.get(record)).state

    def did(self, *wanted: str) -> list[str]:
        return [one.did for one in self.reports if not wanted or one.did in wanted]

    async def begins(self, count: int) -> None:
        await self.world.until(lambda: len(self.began) == count)

    async def ends(self) -> None:
        assert self.task is not None
        await self.world.until(self.task.done)
        await self.task


Opened = Callable[..., Workshop]


@pytest.fixture
async def opened(world: World, moorage: Moorage) -> Any:
    shops: list[Workshop] = []

    def make(**options: Any) -> Workshop:
        shops.append(Workshop(world, moorage, **options))
        return shops[-1]

    yield make
    for shop in shops:
        if shop.task is not None and not shop.task.done():
            shop.task.cancel()
            await asyncio.wait({shop.task})


@pytest.mark.clause("records.claim", "records.settle")
async def test_a_record_is_claimed_worked_on_and_settled_with_its_results(opened: Opened) -> None:
    shop = opened()
    (record,) = await shop.publish()
    shop.start()
    await shop.begins(1)
    assert await shop.state(record) == "claimed"
    shop.gates[record].set_result(Draft("doc", {"n": 7}))
    await shop.begins(2)
    found = await shop.moorage.records.get(shop.began[1])
    assert (await shop.state(record), found.parents, found.body) == ("consumed", [record], {"n": 7})
    shop.gates[found.id].set_result(None)
    await shop.world.until(lambda: shop.did("settled") == ["settled"] * 2)


async def test_no_more_run_at_once_than_the_job_says(opened: Opened) -> None:
    shop = opened(concurrency=3)
    records = await shop.publish(8)
    shop.start()
    await shop.begins(3)
    for number in range(8):
        await settled()
        assert (shop.running, len(shop.began)) == (min(3, 8 - number), min(8, 3 + number))
        shop.gates[records[number]].set_result(None)
        await shop.begins(min(8, 4 + number))
    await shop.world.until(lambda: len(shop.did("settled")) == 8)
    assert shop.most == 3


async def test_a_lease_is_renewed_at_thirds_for_as_long_as_the_handler_runs(opened: Opened) -> None:
    shop = opened(lease_seconds=30)
    (record,) = await shop.publish()
    shop.start()
    await shop.begins(1)
    for _ in range(12):
        await shop.world.advance(10)
        assert await shop.state(record) == "claimed"
    assert shop.did("renewed") == ["renewed"] * 12
    assert shop.cancelled == []
    shop.gates[record].set_result(None)
    await shop.world.until(lambda: shop.did("settled") == ["settled"])
    assert (await shop.moorage.records.get(record)).attempts == 1


@pytest.mark.clause("leases.fence")
async def test_a_handler_is_cancelled_when_somebody_else_has_its_record(opened: Opened, world: World) -> None:
    shop = opened(lease_seconds=30)
    (record,) = await shop.publish()
    shop.start()
    await shop.begins(1)
    # The deployment's clock runs ahead, as after a pause of this process: the lease is over there, and taken by another.
    await world.house.advance(31)
    (other,) = await shop.moorage.claims.claim("doc", "other", lease_seconds=600)
    assert other.record.id == record
    await world.advance(10)
    await world.until(lambda: shop.did("lost") == ["lost"])
    assert shop.cancelled == [record]
    assert shop.did("settled", "failed", "released") == []
    assert (await shop.moorage.claims.renew(other)).epoch == other.lease.epoch


class Cut(httpx.AsyncBaseTransport):
    """A connection that can be cut for some paths."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self.inner, self.cut, self.asked = inner, "", list[str]()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(f"{request.method} {request.url.path}")
        if self.cut and self.cut in request.url.path:
            raise httpx.ReadError("cut")
        return await self.inner.handle_async_request(request)


async def test_a_handler_is_cancelled_when_its_lease_could_not_be_renewed_in_time(
    world: World, transport: httpx.ASGITransport, moorage: Moorage
) -> None:
    cut = Cut(transport)
    async with Moorage("http://moorage.test", ROOT, transport=cut, timing=world.clock) as client:
        shop = Workshop(world, client, lease_seconds=30)
        (record,) = await shop.publish()
        shop.start()
        await shop.begins(1)
        cut.cut = "/renew"
        await world.advance(29)
        assert (shop.cancelled, shop.did("lost")) == ([], [])
        await world.advance(1)
        await world.until(lambda: shop.did("lost") == ["lost"])
        assert shop.cancelled == [record]
        cut.cut = ""
        shop.worker.stop()
        await world.advance(60)
        await shop.ends()


async def test_a_renewal_that_fails_once_costs_nothing(
    world: World, transport: httpx.ASGITransport, moorage: Moorage
) -> None:
    cut = Cut(transport)
    async with Moorage("http://moorage.test", ROOT, transport=cut, timing=world.clock) as client:
        shop = Workshop(world, client, lease_seconds=30)
        (record,) = await shop.publish()
        shop.start()
        await shop.begins(1)
        cut.cut = "/renew"
        await world.advance(20)
        cut.cut = ""
        await world.advance(70)
        assert (shop.cancelled, await shop.state(record)) == ([], "claimed")
        shop.gates[record].set_result(None)
        await world.until(lambda: shop.did("settled") == ["settled"])
        shop.worker.stop()
        await world.advance(60)
        await shop.ends()


async def test_what_many_handlers_ask_for_at_once_goes_in_few_requests(
    world: World, transport: httpx.ASGITransport, moorage: Moorage
) -> None:
    cut = Cut(transport)
    async with Moorage("http://moorage.test", ROOT, transport=cut, timing=world.clock) as client:
        shop = Workshop(world, client, concurrency=40, lease_seconds=30)
        records = await shop.publish(40)
        shop.start()
        await shop.begins(40)
        await world.advance(10)
        await world.until(lambda: len(shop.did("renewed")) == 40)
        for record in records[:39]:
            shop.gates[record].set_result(Draft("doc", {"n": -1}))
        shop.gates[records[39]].set_result(Draft("nowhere", {}))
        await world.until(lambda: len(shop.did("settled", "failed")) == 40)
        shop.worker.stop()
        shop.worker.stop()
        await shop.ends()
    assert shop.did("lost") == []
    assert sum("/renew" in one for one in cut.asked) <= 2
    assert sum(one.endswith("/settle") for one in cut.asked) <= 3
    found = [one async for one in moorage.records.iterate("doc", {"n": {"$gte": 0}})]
    assert [one.state for one in found] == ["consumed"] * 39 + ["ready"]
    assert found[39].failure is not None
    assert found[39].failure.tag is FailureTag.UNKNOWN


async def test_stopping_lets_handlers_end_and_claims_nothing_more(opened: Opened) -> None:
    shop = opened(concurrency=2)
    records = await shop.publish(4)
    shop.start()
    await shop.begins(2)
    shop.worker.stop()
    await shop.world.advance(GRACE - 1)
    for record in records[:2]:
        shop.gates[record].set_result(None)
    await shop.ends()
    assert [await shop.state(record) for record in records] == ["consumed", "consumed", "ready", "ready"]
    assert shop.cancelled == []


async def test_what_does_not_end_within_the_grace_is_given_back_unworked(opened: Opened) -> None:
    shop = opened(concurrency=2)
    records = await shop.publish(2)
    shop.start()
    await shop.begins(2)
    shop.worker.stop()
    await shop.world.advance(GRACE - 1)
    assert shop.cancelled == []
    await shop.world.advance(1)
    await shop.ends()
    assert shop.cancelled == records
    for record in records:
        found = await shop.moorage.records.get(record)
        assert (found.state, found.attempts) == ("ready", 0)
    assert shop.did("released") == ["released"] * 2


@pytest.mark.parametrize("how", ["twice", "cancelled"])
async def test_a_second_stop_or_a_cancel_gives_back_at_once(opened: Opened, how: str) -> None:
    shop = opened()
    (record,) = await shop.publish()
    shop.start()
    await shop.begins(1)
    assert shop.task is not None
    if how == "twice":
        shop.worker.stop()
        shop.worker.stop()
        await shop.ends()
    else:
        shop.task.cancel()
        await shop.world.until(shop.task.done)
        assert shop.task.cancelled()
    found = await shop.moorage.records.get(record)
    assert (found.state, found.attempts, shop.cancelled) == ("ready", 0, [record])


async def test_an_idle_worker_stops_at_once(opened: Opened) -> None:
    shop = opened()
    shop.start()
    await settled()
    shop.worker.stop()
    await shop.ends()


async def raise_(error: Exception) -> Results:
    raise error


FAILURES: dict[str, tuple[Callable[[], Awaitable[Any]], FailureTag, str, str]] = {
    "said": (
        lambda: raise_(FailWork("RateLimited", "slow down", retry_after=90)),
        FailureTag.RATE_LIMITED,
        "slow down",
        "ready",
    ),
    "hopeless": (
        lambda: raise_(FailWork(FailureTag.INVALID, "no pdf", dead_letter=True)),
        FailureTag.INVALID,
        "no pdf",
        "dead",
    ),
    "surprise": (lambda: raise_(KeyError("size")), FailureTag.PERMANENT, "KeyError: 'size'", "ready"),
    "time-out": (lambda: raise_(TimeoutError()), FailureTag.TIMED_OUT, "TimeoutError", "ready"),
    "long": (lambda: raise_(ValueError("x" * 5000)), FailureTag.PERMANENT, ("ValueError: " + "x" * 5000)[:1024], "ready"),
    "problem": (
        lambda: raise_(Problem(409, {"code": "RecordExists", "tag": "Conflict", "detail": "there"})),
        FailureTag.CONFLICT,
        "RecordExists: there",
        "ready",
    ),
}


@pytest.mark.clause("records.fail")
@pytest.mark.parametrize("name", FAILURES)
async def test_what_a_handler_raises_is_why_the_attempt_failed(opened: Opened, moorage: Moorage, name: str) -> None:
    outcome, tag, message, state = FAILURES[name]
    shop = opened()
    (record,) = await shop.publish()
    job = Job("doc", {}, lambda _: outcome(), name="w", wait_seconds=0)
    shop.worker = moorage.worker(job, shop.reports.append)
    shop.start()
    await shop.world.until(lambda: shop.did("failed") == ["failed"])
    found = await moorage.records.get(record)
    assert found.failure is not None
    assert (found.state, found.failure.tag, found.failure.message) == (state, tag, message)
    if name == "said":
        assert found.not_before is not None
        assert round((found.not_before - found.created_at).total_seconds()) == 90


@pytest.mark.parametrize("returned", [{"kind": "doc"}, "text", 7, [{"kind": "doc"}]])
async def test_a_handler_that_returns_no_drafts_has_failed(opened: Opened, returned: Any) -> None:
    shop = opened()
    (record,) = await shop.publish()
    shop.start()
    await shop.begins(1)
    shop.gates[record].set_result(returned)
    await shop.world.until(lambda: shop.did("failed") == ["failed"])
    failure = (await shop.moorage.records.get(record)).failure
    assert failure is not None
    assert "return Drafts or None" in failure.message


async def test_results_that_are_refused_fail_the_attempt_with_the_reason(opened: Opened) -> None:
    shop = opened()
    (record,) = await shop.publish()
    shop.start()
    await shop.begins(1)
    shop.gates[record].set_result([Draft("nowhere", {})])
    await shop.world.until(lambda: shop.did("failed") == ["failed"])
    failure = (await shop.moorage.records.get(record)).failure
    assert failure is not None
    assert (failure.tag, failure.message[:12]) == (FailureTag.UNKNOWN, "KindUnknown:")


async def test_an_idle_worker_asks_ever_less_often_and_at_once_after_work(opened: Opened) -> None:
    shop = opened()
    shop.start()
    await shop.world.advance(60)
    waits = shop.world.clock.slept
    assert waits[:6] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0]
    assert len(waits) < 20
    (record,) = await shop.publish()
    await shop.world.advance(5)
    await shop.begins(1)
    shop.gates[record].set_result(None)
    await shop.world.until(lambda: shop.did("settled") == ["settled"])
    await settled()
    assert waits[-1] == 0.2


async def test_trouble_is_waited_out(world: World, transport: httpx.ASGITransport, moorage: Moorage) -> None:
    cut = Cut(transport)
    async with Moorage("http://moorage.test", ROOT, transport=cut, timing=world.clock) as client:
        shop = Workshop(world, client)
        cut.cut = "/claims"
        shop.start()
        await world.advance(100)
        assert 5 < shop.did().count("trouble") < 20
        await moorage.records.publish("doc", {})
        cut.cut = ""
        await world.advance(15)
        await shop.begins(1)
        shop.worker.stop()
        shop.worker.stop()
        await shop.ends()


@pytest.mark.parametrize(
    ("job", "code"),
    [(("nowhere", {}), "KindUnknown"), (("doc", {"undeclared": 1}), "PatternInvalid")],
    ids=["kind", "pattern"],
)
async def test_a_claim_that_is_refused_for_good_ends_the_worker(
    moorage: Moorage, world: World, job: tuple[str, dict[str, Any]], code: str
) -> None:
    async def handler(_work: Work) -> None:
        raise AssertionError("nothing can be claimed")

    with pytest.raises(Problem) as caught:
        await moorage.work(*job, handler, wait_seconds=0).run()
    assert caught.value.code == code


def test_a_job_is_made_of_a_function_and_stays_callable() -> None:
    @worker(kind="doc", match={"n": 1}, concurrency=4, lease_seconds=60)
    async def handle(work: Work) -> None:
        return None

    assert (handle.kind, handle.match, handle.concurrency, handle.lease_seconds) == ("doc", {"n": 1}, 4, 60)
    assert (handle.room(0), handle.room(4)) == (4, 0)
    with pytest.raises(ValueError, match="concurrency"):
        worker(kind="doc", concurrency=0)(handle.handler)

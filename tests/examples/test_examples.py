"""The worked bodies on the real substrate, against an upstream that is slow to be satisfied."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from moorage.bodies.registry import Registry
from moorage.client.models import Run
from tests.examples.deployment import Deployment
from tests.examples.upstream import BROKEN, DROPPED, ITEMS, REGIONS, TOO_MANY, Answer, Upstream

PATIENCE_SECONDS = 20.0


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


@pytest.fixture
async def deployed(tmp_path: Path) -> AsyncIterator[Deployment]:
    made = Deployment(Registry.of("examples"), tmp_path)
    for kind in ("order.closed", "feed.item", "report.summary"):
        await made.moorage.kinds.put(kind, {})
    yield made
    await made.close()


async def started(deployed: Deployment, body: str, given: Any, scope: str | None = None) -> str:
    return (await deployed.moorage.runs.start(body, given, scope=scope)).run_id


async def until(deployed: Deployment, run: str, *statuses: str) -> Run:
    """The run once it stands so."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = await deployed.moorage.runs.get(run)
        if found.status in statuses:
            return found
        assert not found.ended, f"{found.status}: {found.error}"
        assert time.monotonic() < deadline, f"the run stands as {found.status}: {found.awaiting}"
        await asyncio.sleep(0.01)


async def records(deployed: Deployment, kind: str) -> list[dict[str, Any]]:
    return [one.body async for one in deployed.moorage.records.iterate(kind)]


def an_order(upstream: Upstream, cents: int, tag: str = "t") -> dict[str, Any]:
    return {"id": "17", "shop": upstream.base(tag), "sku": "lamp", "quantity": 2, "amount_cents": cents}


def asked(upstream: Upstream, tag: str = "t") -> list[str]:
    return [one.name for one in upstream.of(tag)]


async def answer(deployed: Deployment, upstream: Upstream, payload: Any, suffix: str = "") -> None:
    """What the person who was asked says."""
    (request,) = [one for one in upstream.of("t") if one.path == "/approvals"]
    path = urlsplit(request.body["url"]).path
    await deployed.moorage.wire.call("POST", path + suffix, payload)


@pytest.mark.clause("runs.bodies")
async def test_a_small_order_ships_without_anybody_asked(deployed: Deployment, upstream: Upstream) -> None:
    ended = await until(deployed, await started(deployed, "order", an_order(upstream, 900), "order-17"), "success")
    assert ended.result["outcome"] == "shipped"
    assert asked(upstream) == ["POST /stock", "POST /payments", "POST /shipments"]
    assert await records(deployed, "order.closed") == [ended.result]
    assert all(len(keys) == 1 and "" not in keys for keys in upstream.keys("t").values())
    assert all(one.trace and one.trace.startswith("00-") for one in upstream.of("t"))


async def test_a_large_order_waits_for_a_person(deployed: Deployment, upstream: Upstream) -> None:
    run = await started(deployed, "order", an_order(upstream, 50_000))
    waiting = await until(deployed, run, "suspended")
    assert [one["label"] for one in waiting.awaiting or []] == ["approval"]
    assert asked(upstream) == ["POST /stock", "POST /approvals"]
    await answer(deployed, upstream, {"approved": True, "by": "ada"})
    ended = await until(deployed, run, "success")
    assert ended.result["outcome"] == "shipped"
    assert asked(upstream) == ["POST /stock", "POST /approvals", "POST /payments", "POST /shipments"]


@pytest.mark.parametrize(
    ("payload", "suffix"), [({"approved": False}, ""), ({"tag": "Forbidden", "message": "no"}, "/reject")]
)
async def test_an_order_that_is_declined_gives_its_reservation_back(
    deployed: Deployment, upstream: Upstream, payload: Any, suffix: str
) -> None:
    run = await started(deployed, "order", an_order(upstream, 50_000))
    await until(deployed, run, "suspended")
    await answer(deployed, upstream, payload, suffix)
    ended = await until(deployed, run, "success")
    assert (ended.result["outcome"], ended.result["payment"]) == ("declined", None)
    assert asked(upstream)[-1].endswith("/release")


async def test_an_order_that_nobody_answers_expires_at_its_deadline(deployed: Deployment, upstream: Upstream) -> None:
    run = await started(deployed, "order", an_order(upstream, 50_000))
    await until(deployed, run, "suspended")
    await deployed.advance(2 * 86400 - 60)
    assert (await deployed.moorage.runs.get(run)).status == "suspended"
    await deployed.advance(120)
    assert (await until(deployed, run, "success")).result["outcome"] == "expired"
    assert asked(upstream)[-1].endswith("/release")


async def test_a_payment_whose_answer_was_lost_is_asked_for_again_and_made_once(
    deployed: Deployment, upstream: Upstream
) -> None:
    upstream.next_answers["t", "/payments"].extend([DROPPED, BROKEN])
    ended = await until(deployed, await started(deployed, "order", an_order(upstream, 900)), "success")
    assert asked(upstream).count("POST /payments") == 3
    assert len(upstream.keys("t")["POST /payments"]) == 1
    assert len(upstream.effects) == 3
    steps = {step.label: step.attempt for step in await deployed.moorage.runs.steps(ended.run_id)}
    assert (steps["charge"], steps["reserve"]) == (3, 1)


async def test_an_import_reads_every_page_and_moves_its_cursor_with_the_records(
    deployed: Deployment, upstream: Upstream
) -> None:
    given = {"feed": upstream.base("t")}
    ended = await until(deployed, await started(deployed, "import", given, "feed"), "success")
    assert ended.result == {"pages": 3, "items": ITEMS}
    assert [one["id"] for one in await records(deployed, "feed.item")] == [f"item-{n}" for n in range(1, ITEMS + 1)]


async def test_a_later_import_goes_on_where_the_last_page_ended(deployed: Deployment, upstream: Upstream) -> None:
    given = {"feed": upstream.base("t")}
    upstream.next_answers["t", "/feed"].extend([Answer(), Answer(404, {"error": "gone"})])
    failed = await until(deployed, await started(deployed, "import", given, "feed"), "failed")
    assert failed.error is not None
    assert (failed.error.tag, failed.error.step) == ("Unknown", "page")
    again = await until(deployed, await started(deployed, "import", given, "feed"), "success")
    assert again.execution_id == failed.execution_id
    # The first page was recorded, and is not asked for again.
    assert asked(upstream) == [f"GET /feed?after={n}" for n in (0, 3, 3, 6)]
    assert len(await records(deployed, "feed.item")) == ITEMS


async def test_an_import_bears_with_a_server_that_says_when_to_come_again(deployed: Deployment, upstream: Upstream) -> None:
    minute = Answer(429, {}, {"Retry-After": "60"}, effect=False)
    upstream.next_answers["t", "/feed"].extend([Answer(), minute, TOO_MANY])
    run = await started(deployed, "import", {"feed": upstream.base("t")})
    waiting = await until(deployed, run, "waiting")
    assert waiting.next_attempt_at is not None
    assert len(asked(upstream)) == 2
    await deployed.advance(59)
    assert len(asked(upstream)) == 2
    await deployed.advance(2)
    ended = await until(deployed, run, "success")
    assert ended.result == {"pages": 3, "items": ITEMS}
    steps = [step for step in await deployed.moorage.runs.steps(run) if step.label == "page"]
    assert sorted(step.attempt for step in steps) == [1, 1, 3]


@pytest.mark.clause("runs.fan-out-join")
async def test_a_report_leaves_out_what_failed_and_says_so(deployed: Deployment, upstream: Upstream) -> None:
    upstream.next_answers["t", "/regions/north/sales"].append(BROKEN)
    regions = [*REGIONS, "atlantis"]
    given = {"night": "2026-11-29", "books": upstream.base("t"), "regions": regions}
    ended = await until(deployed, await started(deployed, "report", given), "success")
    assert ended.result["total"] == sum(REGIONS.values())
    assert ended.result["missing"] == {"atlantis": "Unknown"}
    assert await records(deployed, "report.summary") == [ended.result]
    shown = (await deployed.moorage.runs.get(ended.run_id)).wire()
    assert "atlantis" not in str(shown["metadata"])
    assert shown["metadata"]["failed_branches"][0]["tag"] == "Unknown"


async def test_a_report_reads_its_regions_side_by_side(deployed: Deployment, upstream: Upstream) -> None:
    begun: list[str] = []
    everybody = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait(seen: Any) -> None:
        begun.append(seen.path)
        if len(begun) == len(REGIONS):
            loop.call_soon_threadsafe(everybody.set)
        asyncio.run_coroutine_threadsafe(everybody.wait(), loop).result(PATIENCE_SECONDS)

    upstream.arrived = wait
    given = {"night": "2026-11-29", "books": upstream.base("t"), "regions": list(REGIONS)}
    assert (await until(deployed, await started(deployed, "report", given), "success")).result["missing"] == {}

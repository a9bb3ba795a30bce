"""The bodies that docs/bodies.md and README.md print do what the pages say."""

import asyncio
import importlib
import re
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from moorage.bodies.registry import Registry
from moorage.catalog import destinations
from moorage.catalog.access import Caller
from moorage.catalog.model import DestinationDeclaration
from moorage.client.models import Run
from ops.setup import paths
from tests.examples.deployment import Deployment
from tests.examples.upstream import DROPPED, Upstream

PAGES = (paths.ROOT / "docs" / "bodies.md", paths.ROOT / "README.md")
PACKAGE = "printed_bodies"


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Every block of the pages whose first line names a module, as a package of bodies."""
    folder = tmp_path_factory.mktemp("printed")
    package = folder / PACKAGE
    package.mkdir()
    (package / "__init__.py").touch()
    for page in PAGES:
        blocks = re.findall(r"^```python\n# (\S+?)\.py\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
        assert blocks, page
        for name, block in blocks:
            (package / f"{page.stem.lower()}_{Path(name).name}.py").write_text(block)
    sys.path.insert(0, str(folder))
    try:
        importlib.invalidate_caches()
        modules = sorted(file.stem for file in package.glob("[a-z]*.py"))
        # Two pages print a body of one name: each page is a deployment of its own.
        found = {page.stem.lower(): [name for name in modules if name.startswith(page.stem.lower())] for page in PAGES}
        bodies = [importlib.import_module(f"{PACKAGE}.{name}") for name in found["bodies"]]
        yield Registry([one for module in bodies for one in vars(module).values() if type(one).__name__ == "Body"], PACKAGE)
    finally:
        sys.path.remove(str(folder))


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


async def deployment(registry: Registry, folder: Path) -> AsyncIterator[Deployment]:
    made = Deployment(registry, folder)
    yield made
    await made.close()


@pytest.fixture
async def deployed(printed: Registry, tmp_path: Path) -> AsyncIterator[Deployment]:
    async for made in deployment(printed, tmp_path):
        yield made


async def stands(deployed: Deployment, run: str, status: str) -> Run:
    deadline = time.monotonic() + 60
    while (found := await deployed.moorage.runs.get(run)).status != status:
        assert not found.ended, (found.status, found.error)
        assert time.monotonic() < deadline, (found.status, found.awaiting)
        await asyncio.sleep(0.01)
    return found


async def start(deployed: Deployment, body: str, given: Any) -> str:
    return (await deployed.moorage.runs.start(body, given)).run_id


async def test_the_first_body_greets_sends_waits_a_day_and_checks(deployed: Deployment, upstream: Upstream) -> None:
    upstream.next_answers["t", "/send"].append(DROPPED)
    run = await start(deployed, "welcome", {"name": "Ada", "mail": f"{upstream.base('t')}/send"})
    await stands(deployed, run, "waiting")
    assert [one.body for one in upstream.of("t")] == [{"to": "Ada", "text": "Welcome, Ada!"}] * 2
    assert [len(keys) for keys in upstream.keys("t").values()] == [1]
    await deployed.advance(86_400)
    assert (await stands(deployed, run, "success")).result == "Welcome, Ada! (201)"
    assert len(upstream.of("t")) == 2


async def test_a_failure_is_caught_or_tried_again_as_its_tag_says(deployed: Deployment) -> None:
    paid, refused, closed = [await start(deployed, "charge", cents) for cents in (5, 100_001, 13)]
    assert (await stands(deployed, paid, "success")).result == "paid"
    assert (await stands(deployed, refused, "success")).result == "refused"
    for attempt in (1, 2):
        while [step.attempt for step in await deployed.moorage.runs.steps(closed)] != [attempt]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await stands(deployed, closed, "waiting")
        await deployed.advance(31)
    failed = await stands(deployed, closed, "failed")
    assert failed.error is not None
    assert (failed.error.tag, failed.error.step) == ("Transient", "charge")


@pytest.mark.parametrize(
    ("suffix", "payload", "result"),
    [
        ("", {"by": "Bob"}, "yes: Bob"),
        ("/reject", {"tag": "Forbidden", "message": "not today"}, "no: not today"),
        (None, None, "nobody answered"),
    ],
)
async def test_somebody_is_asked(
    deployed: Deployment, upstream: Upstream, suffix: str | None, payload: Any, result: str
) -> None:
    run = await start(deployed, "approve", f"{upstream.base('t')}/ask")
    await stands(deployed, run, "suspended")
    if suffix is None:
        await deployed.advance(3601)
    else:
        (asked,) = upstream.of("t")
        await deployed.moorage.wire.call("POST", urlsplit(asked.body["answer_at"]).path + suffix, payload)
    assert (await stands(deployed, run, "success")).result == result


@pytest.mark.clause("waits.match")
@pytest.mark.parametrize("when", ["before", "after", "never"])
async def test_an_order_is_paid_by_an_event(deployed: Deployment, when: str) -> None:
    event = {"specversion": "1.0", "id": "p1", "source": "/bank", "type": "payment.received", "subject": "order-7"}
    sent = {**event, "data": {"amount": 1250}}
    if when == "before":
        await deployed.moorage.wire.call("POST", "/events", sent)
    run = await start(deployed, "paid", "order-7")
    if when != "before":
        await stands(deployed, run, "suspended")
        if when == "after":
            await deployed.moorage.wire.call("POST", "/events", {**sent, "id": "p0", "data": {"amount": 0}})
            await deployed.moorage.wire.call("POST", "/events", sent)
        else:
            await deployed.advance(2 * 86400 + 1)
    ended = await stands(deployed, run, "success")
    assert ended.result == ("nobody paid" if when == "never" else "shipped for 1250")


async def test_sellers_that_fail_are_left_out(deployed: Deployment, upstream: Upstream) -> None:
    good, bad = (f"{upstream.base('t')}/regions/{place}/sales" for place in ("north", "nowhere"))
    ended = await stands(deployed, await start(deployed, "quotes", [good, bad]), "success")
    assert ended.result == {good: '{"total": 120}'}


async def test_a_payment_in_doubt_waits_for_the_books_of_the_bank(deployed: Deployment, upstream: Upstream) -> None:
    declared = DestinationDeclaration(url=upstream.base("bank"))
    await destinations.put(deployed.database(), Caller("root"), deployed.now(), "bank", declared, allow_local=True)
    paid = await stands(deployed, await start(deployed, "payout", 500), "success")
    assert paid.result is not None
    assert paid.result.startswith("paid: payments-")
    upstream.next_answers["bank", "/payments"].append(DROPPED)
    run = await start(deployed, "payout", 700)
    waiting = await stands(deployed, run, "suspended")
    assert waiting.awaiting is not None
    token = waiting.awaiting[0]["guard"]
    guard = await deployed.moorage.wire.call("GET", f"/guards/{token}")
    assert upstream.of("bank")[-1].key == guard["idempotency_key"]
    evidence = {"evidence": f"receipt:{guard['idempotency_key']}:7", "operator": "ann"}
    await deployed.moorage.wire.call("POST", f"/guards/{token}/reconcile", evidence)
    assert (await stands(deployed, run, "success")).result == "paid, as the bank's books say: 7"
    assert len(upstream.of("bank")) == 2


async def test_the_body_of_the_readme_waits_for_its_answer(tmp_path: Path, printed: Registry) -> None:
    module = importlib.import_module(f"{PACKAGE}.readme_welcome")
    async for deployed in deployment(Registry([module.welcome], PACKAGE), tmp_path):
        run = await start(deployed, "welcome", {"name": "Ada"})
        waiting = await stands(deployed, run, "suspended")
        path = urlsplit(waiting.wire()["metadata"]["answer_at"]).path
        await deployed.moorage.wire.call("POST", path, "thank you")
        assert (await stands(deployed, run, "success")).result == "Hello, Ada! thank you"

"""Whoever asks to be told of a run's end is told once, in whichever order asking, the end and the fan-out are committed."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from moorage.catalog import destinations
from moorage.catalog.access import Caller
from moorage.catalog.model import DestinationDeclaration
from moorage.messages.outbox.deliveries import COMPLETIONS
from moorage.messages.outbox.fan_out import OutboxFanOut
from moorage.runs import notify, stop
from moorage.store.ports import Database
from tests.contract.adapters import Store, sqlite_store
from tests.contract.outbox_model import START, Meanwhile
from tests.contract.runs_desk import REMOTE, RunsDesk

ROOT = Caller("root")


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Store]:
    """SQLite alone: what overtakes what is the same on every adapter."""
    async with sqlite_store(tmp_path) as one:
        yield one


Step = Callable[[Database], Awaitable[Any]]


async def a_run(store: Store) -> str:
    """A run that nobody holds, and two destinations, one of which is told of its end already."""
    told = DestinationDeclaration.model_validate({"url": "https://there.example.com/"})
    for name in ("there", "early"):
        await destinations.put(store.db(), ROOT, START, name, told)
    run: str = (await RunsDesk(store).admit("job", info=REMOTE)).run_id
    await notify.ask(store.db(), ROOT, START, run, "early", "shop")
    return run


def steps_of(run: str) -> dict[str, Step]:
    """What can happen."""

    async def ask(db: Database) -> None:
        await notify.ask(db, ROOT, START, run, "there", "shop")

    async def end(db: Database) -> None:
        await stop.stop(db, ROOT, START, run)

    async def tell(db: Database) -> None:
        await OutboxFanOut("shop").look_further(db, START, COMPLETIONS)

    return {"ask": ask, "end": end, "tell": tell}


async def agrees(store: Store, run: str) -> None:
    """After all has been looked at, each was told once, of the same event and bytes."""
    await OutboxFanOut("shop").look_further(store.db(), START, COMPLETIONS)
    rows = await store.sql("SELECT * FROM deliveries ORDER BY destination")
    assert [(row["destination"], row["subscription"]) for row in rows] == [("early", COMPLETIONS), ("there", COMPLETIONS)]
    assert {(row["aggregate_id"], row["type"], row["state"]) for row in rows} == {(run, "run.closed", "pending")}
    assert len({(row["event_id"], row["body"]) for row in rows}) == 1


@pytest.mark.clause("completion.subscribe")
async def test_in_every_order(store: Store) -> None:
    for order in itertools.permutations(("ask", "end", "tell")):
        run = await a_run(store)
        steps = steps_of(run)
        for name in order:
            await steps[name](store.db())
        await agrees(store, run)
        for table in ("deliveries", "completions"):
            await store.sql(f"DELETE FROM {table}")  # noqa: S608


@pytest.mark.clause("completion.subscribe")
@pytest.mark.parametrize(("outer", "inner"), list(itertools.permutations(("ask", "end", "tell"), 2)))
async def test_with_one_between_the_reading_and_the_commit_of_another(host: Store, outer: str, inner: str) -> None:
    """The third comes first, or last; either way the one that was overtaken looks again or is right all the same."""
    (third,) = {"ask", "end", "tell"} - {outer, inner}
    for third_first in (True, False):
        run = await a_run(host)
        steps = steps_of(run)
        if third_first:
            await steps[third](host.db())
        await steps[outer](Meanwhile(host.db(), lambda steps=steps: steps[inner](host.db())))  # type: ignore[misc]
        if not third_first:
            await steps[third](host.db())
        await agrees(host, run)
        for table in ("deliveries", "completions"):
            await host.sql(f"DELETE FROM {table}")  # noqa: S608

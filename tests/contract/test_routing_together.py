"""Events that are routed many at a time, against everything that may happen between what routing reads and what it commits
(clauses inbox.two-checkpoints, waits.match)."""

from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from moorage.kernel.errors import StorageBindingUnavailable
from moorage.kernel.instants import after
from moorage.messages.inbox import routing, wait_statements
from moorage.messages.inbox.routing import UnroutedEvents
from moorage.runs.operations import Claimed, GiveUp, Recorded
from moorage.store.ports import Database
from moorage.timers.clock import drain
from tests.contract.adapters import Store, sqlite_store
from tests.contract.harbor import key
from tests.contract.quay import Interrupted, Quay, received, wait

Meanwhile = Callable[[], Awaitable[object]]


@pytest.fixture
def quay(store: Store) -> Quay:
    return Quay(store)


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Quay]:
    """For what is not about what the database does, SQLite alone."""
    async with sqlite_store(tmp_path) as store:
        yield Quay(store)


async def route_all(quay: Quay, db: Database | None = None) -> int:
    """Route everything; how many passes that took."""
    db, passes = db or quay.store.db(), 1
    while await routing.route_unrouted(db, quay.now):
        passes += 1
    return passes


def before_commit(quay: Quay, meanwhile: Meanwhile, number: int = 1) -> Database:
    async def act() -> None:
        await meanwhile()

    return Interrupted(quay.store.db(), act, commit=number)


async def told(quay: Quay) -> list[str]:
    """The events of which history tells that they were routed, in its order."""
    rows = await quay.store.sql("SELECT subject FROM history WHERE type = 'event.routed' ORDER BY position")
    events = {row["event_id"]: row["delivery_id"] for row in await quay.rows("events")}
    return [events[row["subject"]] for row in rows]


async def disposed(quay: Quay) -> dict[str, str | None]:
    return {row["delivery_id"]: row["disposition"] for row in await quay.rows("events")}


@pytest.mark.clause("inbox.two-checkpoints", "inbox.correlation")
async def test_what_nobody_awaits_is_routed_together_each_with_its_entry(
    quay: Quay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "PASS", 20)
    await quay.store.sql("INSERT INTO correlations VALUES ('/shop', 'order-3', 'the work', 0, 'ann')")
    for number in range(45):
        await quay.send(f"order-{number % 10}")
    db = quay.store.db()
    assert await route_all(quay, db) == 3
    assert db.cost.trips == 6
    assert await told(quay) == [f"d{number}" for number in range(1, 46)]
    rows = await quay.rows("events")
    assert {row["disposition"] for row in rows if row["keys"] != '["order-3"]'} == {"unmatched"}
    assert {(row["disposition"], row["work"]) for row in rows if row["keys"] == '["order-3"]'} == {
        ("correlated", "the work")
    }
    entries = await quay.store.sql("SELECT data FROM history WHERE type = 'event.routed' ORDER BY position LIMIT 4")
    assert entries[3]["data"] == '{"disposition":"correlated","executions":[],"waits":0,"work":"the work"}'


@pytest.mark.clause("waits.match", "inbox.two-checkpoints")
async def test_what_wakes_somebody_is_routed_together_and_each_wakes_its_own(quay: Quay) -> None:
    executions = [await quay.opened() for _ in range(4)]
    for number, execution in enumerate(executions):
        await quay.apply(execution.fence, wait(keys=[f"order-{number}"], match={"n": {"$ne": 9}}))
    for number in (0, 1, 2, 3, 7):
        await quay.send(f"order-{number}", data={"n": number})
    await quay.send("order-3", data={"n": 9})
    db = quay.store.db()
    assert await route_all(quay, db) == 1
    # The page, the data for the patterns, those that wake, those that do not.
    assert db.cost.trips == 4
    assert await disposed(quay) == {**dict.fromkeys(("d1", "d2", "d3", "d4"), "woke"), "d5": "unmatched", "d6": "unmatched"}
    for number, execution in enumerate(executions):
        [outcome] = await quay.substrate.refresh(execution.fence)
        assert received(outcome)["event"]["data"] == {"n": number}
    assert await quay.terms() == []


@pytest.mark.clause("waits.match")
async def test_two_events_for_one_wait_and_the_second_for_one_that_is_stored_meanwhile(quay: Quay) -> None:
    """The later wait leaves both to the earlier one before that is woken; only the next reading tells that it is there."""
    execution = await quay.opened()
    await quay.apply(execution.fence, wait("first"))
    await quay.send("order-7", data=1)
    await quay.send("order-7", data=2)

    async def store() -> None:
        assert await quay.apply(execution.fence, wait("second")) == [Claimed(1)]

    assert await route_all(quay, before_commit(quay, store)) == 2
    assert await quay.states() == {"first": "woken", "second": "woken"}
    assert await disposed(quay) == {"d1": "woke", "d2": "woke"}


@pytest.mark.clause("waits.match")
async def test_two_events_for_two_waits_of_one_execution(quay: Quay) -> None:
    execution, other = await quay.opened(), await quay.opened()
    for label in ("first", "second", "third"):
        await quay.apply(execution.fence, wait(label))
        quay.pass_time(1)
    await quay.apply(other.fence, wait("other"))
    one, two = await quay.send("order-7"), await quay.send("order-7")
    # The other execution has one wait only, which the first event takes: the second one is read again.
    assert await route_all(quay) == 2
    by_label = {row["label"]: row["event"] for row in await quay.rows("event_waits")}
    assert by_label == {"first": one, "second": two, "third": None, "other": one}


@pytest.mark.clause("waits.match")
@pytest.mark.parametrize("what", ["given up", "timed out", "routed"])
async def test_one_of_many_that_is_overtaken_holds_up_none_of_the_others(quay: Quay, what: str) -> None:
    executions = [await quay.opened() for _ in range(3)]
    until = after(quay.now, 60)
    for number, execution in enumerate(executions):
        await quay.apply(execution.fence, wait(f"w{number}", keys=[f"order-{number}"], timeout_at=until))
    seqs = [await quay.send(f"order-{number}") for number in range(3)]
    await quay.send("nobody")

    async def overtake() -> None:
        if what == "given up":
            await quay.apply(executions[1].fence, GiveUp(key("w1")))
        elif what == "timed out":
            quay.now = until
            await quay.time_out(executions[1])
        else:
            await quay.route(seqs[1])

    await route_all(quay, before_commit(quay, overtake))
    gone = what == "given up"
    assert await quay.states() == {"w0": "woken", "w1": "canceled" if gone else "woken", "w2": "woken"}
    assert await disposed(quay) == {"d1": "woke", "d2": "unmatched" if gone else "woke", "d3": "woke", "d4": "unmatched"}
    assert sorted(await told(quay)) == ["d1", "d2", "d3", "d4"]


@pytest.mark.clause("waits.match", "inbox.two-checkpoints")
async def test_a_wait_that_is_stored_while_nobody_seems_to_wait_takes_its_event_and_once(quay: Quay) -> None:
    execution = await quay.opened()
    for number in (6, 7, 8):
        await quay.send(f"order-{number}")
    outcomes: list[Any] = []

    async def store() -> None:
        outcomes.extend(await quay.apply(execution.fence, wait()))

    await route_all(quay, before_commit(quay, store))
    assert isinstance(outcomes[0], Recorded)
    assert await disposed(quay) == {"d1": "unmatched", "d2": "woke", "d3": "unmatched"}
    assert [row["waits"] for row in await quay.store.sql(
        "SELECT data ->> 'waits' AS waits FROM history WHERE type = 'event.routed' ORDER BY position"
    )] == [0, 1, 0]  # fmt: skip


@pytest.mark.clause("inbox.two-checkpoints")
async def test_several_who_route_at_once_route_each_event_once(quay: Quay) -> None:
    execution = await quay.opened()
    await quay.apply(execution.fence, wait())
    for number in (5, 6, 7):
        await quay.send(f"order-{number}")

    async def meanwhile() -> None:
        await route_all(quay, before_commit(quay, lambda: route_all(quay), 2))

    await route_all(quay, before_commit(quay, meanwhile))
    assert sorted(await told(quay)) == ["d1", "d2", "d3"]
    assert await quay.states() == {"paid": "woken"}


@pytest.mark.clause("inbox.two-checkpoints")
@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_in_the_middle_of_a_page_leaves_the_rest_to_be_routed(here: Quay, at: int, when: str) -> None:
    execution = await here.opened()
    await here.apply(execution.fence, wait())
    for number in (6, 7, 8):
        await here.send(f"order-{number}")

    class Dying:
        """A database whose n-th commit is its last, applied or not."""

        def __init__(self, db: Database) -> None:
            self._db, self.cost, self.commits = db, db.cost, 0
            self.read, self.initialize = db.read, db.initialize

        async def commit(self, transaction: Any) -> None:
            self.commits += 1
            if self.commits < at or when == "after":
                await self._db.commit(transaction)
            if self.commits == at:
                raise StorageBindingUnavailable

    with pytest.raises(StorageBindingUnavailable):
        await route_all(here, Dying(here.store.db()))
    routed = {name for name, disposition in (await disposed(here)).items() if disposition is not None}
    first, both = {"d2"}, {"d1", "d2", "d3"}
    assert routed == {(1, "before"): set(), (1, "after"): first, (2, "before"): first, (2, "after"): both}[at, when]
    await route_all(here)
    assert sorted(await told(here)) == ["d1", "d2", "d3"]
    assert await here.states() == {"paid": "woken"}


@pytest.mark.clause("waits.match")
@pytest.mark.parametrize(
    ("bound", "at"), [("WAITS", 3), ("WAITS", 4), ("EXECUTIONS", 2), ("EXECUTIONS", 3), ("DATA_BYTES", 1)]
)
async def test_a_page_of_more_than_one_reading_or_transaction_holds(
    here: Quay, monkeypatch: pytest.MonkeyPatch, bound: str, at: int
) -> None:
    """One past each bound, and at it: three events, each for three executions."""
    monkeypatch.setattr(routing, bound, at)
    executions = [await here.opened() for _ in range(3)]
    for execution in executions:
        for number in range(3):
            await here.apply(execution.fence, wait(f"w{number}", keys=[f"order-{number}"], match={"n": number}))
    for number in range(3):
        await here.send("nobody")
        await here.send(f"order-{number}", data={"n": number})
    woken = [0]

    class Counting:
        """A database that counts the waits that are woken after each commit."""

        def __init__(self, db: Database) -> None:
            self._db, self.cost = db, db.cost
            self.read, self.initialize = db.read, db.initialize

        async def commit(self, transaction: Any) -> None:
            await self._db.commit(transaction)
            woken.append(sum(row["state"] == "woken" for row in await here.rows("event_waits")))

    await route_all(here, Counting(here.store.db()))
    assert max(later - sooner for sooner, later in pairwise(woken)) <= routing.EXECUTIONS
    assert len({(row["label"], row["event"]) for row in await here.rows("event_waits")}) == 3
    assert {row["state"] for row in await here.rows("event_waits")} == {"woken"}
    assert sorted(await told(here)) == [f"d{number}" for number in range(1, 7)]


@pytest.mark.clause("timers.alarm", "inbox.two-checkpoints")
@pytest.mark.parametrize(
    "torn", ["UPDATE event_waits SET types = {}", "UPDATE events SET keys = {} WHERE delivery_id = 'd3'"]
)
async def test_an_event_that_cannot_be_routed_is_set_aside_and_the_others_are_routed(here: Quay, torn: str) -> None:
    execution = await here.opened()
    await here.apply(execution.fence, wait("torn"))
    for name in ("order-5", "order-6", "order-7", "order-8", "order-9"):
        await here.send(name)
    await here.store.sql(torn.format("'{'"))
    here.pass_time(wait_statements.UNROUTED_MS / 1000)
    drained = await drain(here.store.db, here.now, [UnroutedEvents()])
    assert [failure.item for failure in drained.failed] == [str((await here.rows("events"))[2]["seq"])]
    assert drained.fired == {"event_routed": 4}
    await here.store.sql(torn.format("""'["order-7"]'""" if "keys" in torn else "'[]'"))
    here.pass_time(1)
    assert (await drain(here.store.db, here.now, [UnroutedEvents()])).fired == {"event_routed": 1}
    assert await here.states() == {"torn": "woken"}

"""Couriers on every adapter: leases, retries, what a destination asks for, and its circuit (clause outbox.deliver)."""

import asyncio

import httpx
import pytest

from moorage.catalog.access import Caller, Grant
from moorage.history.query import entries
from moorage.kernel.errors import DestinationUnknown, ExecutionRecoveryMismatch, Forbidden
from moorage.kernel.instants import after
from moorage.kernel.limits import DELIVERY_DELAY_SECONDS
from moorage.messages.outbox import circuit, redeliver
from moorage.messages.outbox.circuit import FAILURES, LONGEST_SECONDS, OPEN_SECONDS
from moorage.messages.outbox.courier import COMING_SECONDS, Courier
from moorage.messages.outbox.leasing import MARGIN_SECONDS, begin, lease
from moorage.messages.outbox.sending import Sender
from tests.contract.adapters import Store
from tests.contract.dock import ROOT, START, Dock, Got

pytestmark = pytest.mark.clause("outbox.deliver")

LEASE = 15 + MARGIN_SECONDS


def fails(status: int = 500) -> httpx.Response:
    return httpx.Response(status)


@pytest.fixture
async def dock(store: Store) -> Dock:
    one = Dock(store)
    await one.declare()
    return one


async def types(dock: Dock, subject: str) -> list[str]:
    return [entry.type for entry in await entries(dock.store.db(), 0, 50, subject)]


async def test_what_is_due_is_sent_once_and_then_rested_upon(dock: Dock) -> None:
    await dock.insert(1, 2, 3)
    assert await dock.due() == START
    assert await dock.clock() == 1
    assert dock.subscriber.ids() == [f"dom_{n:016d}" for n in (1, 2, 3)]
    assert await dock.states() == ["delivered"] * 3
    row = await dock.row()
    assert (row["attempts"], row["last_status"], row["last_error"], row["leased_until"]) == (1, 204, None, None)
    assert row["first_attempt_at"] == row["ended_at"] == START
    assert await dock.due() is None
    assert await dock.clock() == 0
    # It rests, so that what comes next is told of at once.
    await dock.insert(4)
    assert await dock.clock() == 1
    assert await dock.states() == ["delivered"] * 4


async def test_a_courier_is_told_once_and_again_only_when_it_does_not_come(dock: Dock) -> None:
    await dock.insert(1)
    dock.send = lambda: asyncio.sleep(0)  # type: ignore[method-assign] # it is lost on the way
    assert await dock.clock() == 1
    assert await dock.clock() == 0
    assert await dock.due() == after(START, COMING_SECONDS)
    dock.wait(COMING_SECONDS)
    assert await dock.clock() == 1


async def test_no_more_are_under_way_than_the_policy_allows(dock: Dock) -> None:
    await dock.declare(concurrency=3)
    await dock.insert(*range(1, 21))

    async def slowly(got: Got) -> httpx.Response:
        await asyncio.sleep(0.001)
        return httpx.Response(200)

    dock.subscriber.answer = slowly
    await dock.send()
    assert dock.subscriber.most == 3
    assert sorted(dock.subscriber.ids()) == [f"dom_{n:016d}" for n in range(1, 21)]
    assert set(await dock.states()) == {"delivered"}


async def test_what_comes_while_an_answer_is_slow_is_sent_beside_it(dock: Dock) -> None:
    """The Clock tells of what comes next as soon as all that is due is under way: a slow answer holds up nothing else."""
    await dock.declare(concurrency=2)
    came, go = {"1": asyncio.Event(), "2": asyncio.Event()}, asyncio.Event()

    async def slowly(got: Got) -> httpx.Response:
        came[got.id[-1]].set()
        if got.id.endswith("1"):
            await go.wait()
        return httpx.Response(200)

    dock.subscriber.answer = slowly
    await dock.insert(1)
    first = asyncio.ensure_future(dock.clock())
    await came["1"].wait()
    await dock.insert(2)
    second = asyncio.ensure_future(dock.clock())
    try:
        await asyncio.wait_for(came["2"].wait(), 60)
    finally:
        go.set()
        told = (await first, await second)
    assert told == (1, 1)
    assert await dock.states() == ["delivered"] * 2


async def test_where_order_is_kept_the_next_waits_for_the_one_before(dock: Dock) -> None:
    await dock.declare(ordered=True)
    await dock.insert(3, 1, 2)
    dock.subscriber.answer = lambda got: fails() if got.id.endswith("1") and got.attempt < 3 else httpx.Response(200)
    await dock.send()
    assert [(got.id[-1], got.attempt) for got in dock.subscriber.got] == [("1", 1)]
    assert await dock.due() == after(START, 5)
    dock.wait(5)
    await dock.clock()
    dock.wait(10)
    await dock.clock()
    assert [got.id[-1] for got in dock.subscriber.got] == ["1", "1", "1", "2", "3"]
    assert dock.subscriber.most == 1


@pytest.mark.parametrize("ordered", [True, False])
async def test_whoever_works_on_a_backlog_is_not_told_of_it_again(dock: Dock, ordered: bool) -> None:
    await dock.declare(ordered=ordered, concurrency=1)
    await dock.insert(1, 2, 3)
    told_again_at = []

    async def looked_at(got: Got) -> httpx.Response:
        told_again_at.append((await dock.health())["poke_at"])
        return httpx.Response(200)

    dock.subscriber.answer = looked_at
    assert await dock.clock() == 1
    assert told_again_at == [after(START, COMING_SECONDS)] * 2 + [None]
    assert await dock.due() is None


async def test_attempts_are_bounded_and_their_delays_double(dock: Dock) -> None:
    await dock.declare(max_attempts=4)
    await dock.insert(1)
    dock.subscriber.answer = lambda got: fails()
    delays = []
    for _ in range(4):
        await dock.clock()
        upcoming = await dock.due()
        if upcoming is not None:
            delays.append((upcoming - dock.now) / 1000)
            dock.now = upcoming
    assert delays == [5, 10, 20]
    row = await dock.row()
    assert (row["state"], row["attempts"], row["last_error"]) == ("dead", 4, "it answered 500")
    assert len(dock.subscriber.got) == 4
    assert await types(dock, row["delivery_id"]) == ["delivery.dead"]


async def test_a_lost_courier_s_lease_runs_out_and_the_same_is_sent_again(dock: Dock) -> None:
    await dock.insert(1)
    known, _ = await begin(dock.store.db(), dock.now, "there")
    assert known is not None
    [leased] = (await lease(dock.store.db(), dock.now, known, 4)).leased
    assert await dock.clock() == 0
    assert await dock.due() == after(START, LEASE)
    dock.wait(LEASE - 0.001)
    assert await dock.clock() == 0
    dock.wait(0.001)
    assert await dock.clock() == 1
    [got] = dock.subscriber.got
    assert (got.id, got.content.decode(), got.attempt) == (leased.event_id, leased.body, 2)
    row = await dock.row()
    assert (row["state"], row["attempts"], row["epoch"]) == ("delivered", 2, 2)


async def test_another_s_leases_count_and_the_last_attempt_may_be_lost_too(dock: Dock) -> None:
    await dock.declare(concurrency=2, max_attempts=1)
    await dock.insert(1, 2, 3)
    known, _ = await begin(dock.store.db(), dock.now, "there")
    assert known is not None
    assert len((await lease(dock.store.db(), dock.now, known, 5)).leased) == 2
    assert (await lease(dock.store.db(), dock.now, known, 5)).leased == []
    dock.wait(LEASE)
    await dock.clock()
    assert dock.subscriber.ids() == ["dom_0000000000000003"]
    assert await dock.states() == ["dead", "dead", "delivered"]
    assert "without an outcome" in (await dock.row(1))["last_error"]
    assert await types(dock, "dlv_000001") == ["delivery.dead"]


async def test_an_outcome_that_comes_too_late_changes_nothing(dock: Dock) -> None:
    await dock.insert(1)

    async def canceled_meanwhile(got: Got) -> httpx.Response:
        await redeliver.cancel(dock.store.db(), ROOT, dock.now, "dlv_000001")
        return httpx.Response(200)

    dock.subscriber.answer = canceled_meanwhile
    await dock.send()
    assert await dock.states() == ["canceled"]
    await redeliver.redeliver(dock.store.db(), ROOT, dock.now, "dlv_000001")
    dock.subscriber.answer = lambda got: httpx.Response(200)
    await dock.send()
    first, second = dock.subscriber.got
    assert (first.content, first.id) == (second.content, second.id)
    assert [got.headers["moorage-generation"] for got in dock.subscriber.got] == ["1", "2"]
    assert await dock.states() == ["delivered"]


async def test_gone_is_sent_nothing_until_an_operator_enables_it(dock: Dock) -> None:
    await dock.declare(concurrency=1)
    await dock.insert(1, 2)
    dock.subscriber.answer = lambda got: fails(410)
    await dock.clock()
    assert await dock.states() == ["canceled", "pending"]
    assert (await dock.health())["state"] == "disabled"
    assert await dock.due() is None
    assert await types(dock, "destination:there") == ["destination.declared", "destination.declared", "destination.disabled"]
    dock.subscriber.answer = lambda got: httpx.Response(200)
    health = await circuit.enable(dock.store.db(), ROOT, dock.now, "there")
    assert (health.state, health.failures, health.reason) == ("closed", 0, None)
    await dock.clock()
    assert await dock.states() == ["canceled", "delivered"]
    assert (await types(dock, "destination:there"))[-1] == "destination.enabled"


async def test_who_may_enable(dock: Dock) -> None:
    reader = Caller("reader", (Grant(frozenset({"read"})),), "cred_1")
    with pytest.raises(Forbidden):
        await circuit.enable(dock.store.db(), reader, dock.now, "there")
    with pytest.raises(Forbidden):
        await circuit.show(dock.store.db(), reader, "there")
    with pytest.raises(DestinationUnknown):
        await circuit.enable(dock.store.db(), ROOT, dock.now, "nowhere")
    with pytest.raises(DestinationUnknown):
        await circuit.show(dock.store.db(), ROOT, "nowhere")
    assert (await circuit.show(dock.store.db(), ROOT, "there")).answer()["state"] == "closed"


async def test_failures_in_a_row_open_the_circuit_and_one_probe_closes_it(dock: Dock) -> None:
    await dock.declare(concurrency=4)
    await dock.insert(*range(1, 13))
    dock.subscriber.answer = lambda got: fails()
    await dock.clock()
    # Those under way when it opened are over; nothing else was begun.
    assert FAILURES <= len(dock.subscriber.got) < FAILURES + 4
    assert (await dock.health())["state"] == "open"
    tried = sum(row["attempts"] for row in await dock.rows())
    opened = dock.now
    for longer in (OPEN_SECONDS, 2 * OPEN_SECONDS, 4 * OPEN_SECONDS):
        assert await dock.due() == after(opened, longer)
        dock.wait(longer - 0.001)
        assert await dock.clock() == 0
        dock.wait(0.001)
        before = len(dock.subscriber.got)
        await dock.clock()
        assert len(dock.subscriber.got) == before + 1
        tried += 1
        opened = dock.now
        # Whoever waits for an open circuit uses no attempt.
        assert sum(row["attempts"] for row in await dock.rows()) == tried
    dock.subscriber.answer = lambda got: httpx.Response(200)
    dock.now = await dock.due() or dock.now
    await dock.clock()
    assert (await dock.health())["state"] == "closed"
    dock.wait(DELIVERY_DELAY_SECONDS)
    await dock.clock()
    assert set(await dock.states()) == {"delivered"}
    health = await dock.health()
    assert (health["failures"], health["opened"], health["blocked_until"]) == (0, 0, None)


async def test_an_open_circuit_is_never_open_for_longer_than_the_longest(dock: Dock) -> None:
    await dock.declare(concurrency=1, max_attempts=100)
    await dock.insert(1)
    dock.subscriber.answer = lambda got: fails()
    opens = []
    for _ in range(14):
        await dock.clock()
        health = await dock.health()
        if health["state"] == "open":
            opens.append((health["blocked_until"] - dock.now) // 1000)
        dock.now = await dock.due() or dock.now
    assert opens[:6] == [30, 60, 120, 240, 480, 900]
    assert set(opens[6:]) == {LONGEST_SECONDS}


async def test_a_probe_that_is_lost_is_followed_by_another(dock: Dock) -> None:
    await dock.insert(1)
    await dock.store.sql(
        "INSERT INTO couriers (destination, state, failures, opened, blocked_until, updated_at)"
        " VALUES ('there', 'open', 5, 1, ?, ?)", START, START,
    )  # fmt: skip
    known, _ = await begin(dock.store.db(), dock.now, "there")
    assert known is not None
    assert len((await lease(dock.store.db(), dock.now, known, 4)).leased) == 1
    health = await dock.health()
    assert (health["state"], health["blocked_until"]) == ("half_open", after(START, LEASE))
    await dock.insert(2, 3)
    assert (await lease(dock.store.db(), dock.now, known, 4)).leased == []
    dock.wait(LEASE)
    await dock.clock()
    assert await dock.states() == ["delivered"] * 3
    assert (await dock.health())["state"] == "closed"


async def test_a_destination_that_asks_for_time_gets_it_whole(dock: Dock) -> None:
    await dock.declare(concurrency=2)
    await dock.insert(1, 2, 3)
    waits = {"1": "7", "2": "3"}
    dock.subscriber.answer = lambda got: httpx.Response(429, headers={"retry-after": waits[got.id[-1]]})
    await dock.clock()
    # The longest of several holds, for what was not sent yet too, and the circuit is not touched.
    assert await dock.due() == after(START, 7)
    health = await dock.health()
    assert (health["state"], health["failures"]) == ("closed", 0)
    assert len(dock.subscriber.got) == 2
    dock.subscriber.answer = lambda got: httpx.Response(200)
    dock.wait(6.999)
    assert await dock.clock() == 0
    dock.wait(0.001)
    await dock.clock()
    assert await dock.states() == ["delivered"] * 3
    assert [row["attempts"] for row in await dock.rows()] == [2, 2, 1]


@pytest.mark.clause("store.recovery-identity")
async def test_nothing_is_sent_where_no_effect_may_be_admitted(dock: Dock) -> None:
    async def refuse() -> None:
        raise ExecutionRecoveryMismatch

    await dock.insert(1)
    sender = Sender(dock.subscriber, dock.secrets.get)
    courier = Courier("there", dock.database, lambda: dock.now, sender, lambda: 1.0, dock.woken.append, refuse)
    courier.tell()
    await courier.settled()
    assert dock.subscriber.got == []
    row = await dock.row()
    assert (row["state"], row["attempts"]) == ("pending", 0)


async def test_a_policy_that_changes_holds_from_the_next_attempt_on(dock: Dock) -> None:
    """Whoever gives a slow destination more time and enables it is not told by the old time once more."""
    await dock.declare(timeout_seconds=1)
    await dock.insert(1)
    await dock.send()
    await dock.declare(timeout_seconds=60)
    until = []

    async def looked_at(got: Got) -> httpx.Response:
        until.append((await dock.row(2))["leased_until"])
        return httpx.Response(200)

    dock.subscriber.answer = looked_at
    await dock.insert(2)
    await dock.send()
    assert until == [after(START, 60 + MARGIN_SECONDS)]


async def test_a_policy_that_changes_meanwhile_does_not_outlast_the_lease(dock: Dock) -> None:
    await dock.declare(timeout_seconds=1)
    await dock.insert(1, 2)
    await dock.send()
    until = []

    async def slower(got: Got) -> httpx.Response:
        until.append((await dock.row(int(got.id[4:])))["leased_until"])
        await dock.declare(timeout_seconds=60)
        return httpx.Response(200)

    dock.subscriber.answer = slower
    for position in (3, 4):
        await dock.insert(position)
        await dock.send()
    assert until == [after(START, 1 + MARGIN_SECONDS), after(START, 60 + MARGIN_SECONDS)]

"""Acceptance, routing, storing a wait and timing out in every order that two transactions can have: nothing is lost, and
nothing ends twice (clauses waits.match, inbox.two-checkpoints)."""

import json
from collections.abc import Awaitable, Callable

import pytest

from moorage.kernel.errors import EventMatched, StorageBindingUnavailable
from moorage.kernel.instants import after
from moorage.messages.inbox import routing, waits
from moorage.runs.operations import Claimed, GiveUp, Recorded
from moorage.store.ports import Database
from tests.contract.adapters import Store
from tests.contract.harbor import key
from tests.contract.quay import Interrupted, Quay, received, wait

Meanwhile = Callable[[], Awaitable[object]]


@pytest.fixture
def quay(store: Store) -> Quay:
    return Quay(store)


def before_commit(quay: Quay, meanwhile: Meanwhile, number: int = 1) -> Database:
    """A database before whose n-th commit something happens."""

    async def act() -> None:
        await meanwhile()

    return Interrupted(quay.store.db(), act, commit=number)


def during_apply(quay: Quay, meanwhile: Meanwhile) -> None:
    """Let something happen between what the next `apply` reads and what it commits."""

    async def act() -> None:
        await meanwhile()

    quay.between = lambda db: Interrupted(db, act, commit=1)


# --- storing a wait against what comes --------------------------------------------------------------------------------


@pytest.mark.clause("waits.match")
@pytest.mark.parametrize("routed", [False, True])
@pytest.mark.parametrize("look_back", [0.0, 60.0])
async def test_an_event_between_the_look_and_the_commit_is_found(quay: Quay, routed: bool, look_back: float) -> None:
    execution = await quay.opened()
    await quay.arrive("order-8")
    during_apply(quay, lambda: quay.arrive("order-7") if routed else quay.send("order-7"))
    [outcome] = await quay.apply(execution.fence, wait(look_back=look_back))
    assert received(outcome)["event"]["id"] == "d2"
    assert await quay.states() == {"paid": "woken"}


@pytest.mark.clause("waits.match")
@pytest.mark.parametrize("alone", [True, False])
async def test_an_event_from_before_a_wait_that_looks_back_no_time_is_not_its_own(quay: Quay, alone: bool) -> None:
    seq = await quay.send("order-7")
    execution = await quay.opened()
    await quay.apply(execution.fence, wait(look_back=0.0))
    await (quay.route(seq) if alone else routing.route_unrouted(quay.store.db(), quay.now))
    assert await quay.states() == {"paid": "active"}
    assert (await quay.event(seq))["disposition"] == "unmatched"


@pytest.mark.clause("waits.match")
async def test_a_stream_of_events_that_do_not_fit_keeps_no_wait_from_being_stored(quay: Quay) -> None:
    execution = await quay.opened()
    during_apply(quay, lambda: quay.send("order-7", data={"n": 1}))
    assert await quay.apply(execution.fence, wait(match={"n": 2})) == [Claimed(1)]

    class Busy:
        """A database before whose every commit an event comes."""

        def __init__(self, db: Database) -> None:
            self._db, self.cost = db, db.cost
            self.read, self.initialize = db.read, db.initialize

        async def commit(self, transaction: object) -> None:
            await quay.send("order-7", data={"n": 1})
            await self._db.commit(transaction)  # type: ignore[arg-type]

    quay.between = Busy
    with pytest.raises(EventMatched):
        await quay.apply(execution.fence, wait("never", match={"n": 2}))
    assert set(await quay.states()) == {"paid"}


@pytest.mark.clause("waits.match", "inbox.two-checkpoints")
async def test_a_wait_stored_while_an_event_is_routed_takes_it_and_once(quay: Quay) -> None:
    """Routing has read that nobody waits, then somebody does, then routing commits."""
    execution = await quay.opened()
    seq = await quay.send("order-7")
    outcomes: list[object] = []

    async def store() -> None:
        outcomes.extend(await quay.apply(execution.fence, wait()))

    await quay.route(seq, before_commit(quay, store))
    assert isinstance(outcomes[0], Recorded)
    assert (await quay.event(seq))["disposition"] == "woke"
    assert len([row for row in await quay.rows("event_waits") if row["event"] == seq]) == 1


@pytest.mark.clause("waits.match")
async def test_an_event_that_was_left_to_an_earlier_wait_finds_the_later_one_when_that_ends(quay: Quay) -> None:
    """Routing chose the earlier wait; it is given up, and the later one stored, before routing commits."""
    execution = await quay.opened()
    await quay.apply(execution.fence, wait("first"))
    seq = await quay.send("order-7")

    async def change() -> None:
        assert await quay.apply(execution.fence, wait("second")) == [Claimed(1)]
        await quay.apply(execution.fence, GiveUp(key("first")))

    await quay.route(seq, before_commit(quay, change))
    assert await quay.states() == {"first": "canceled", "second": "woken"}


@pytest.mark.clause("waits.match")
async def test_an_event_is_left_to_no_wait_that_has_ended_when_the_later_one_is_stored(quay: Quay) -> None:
    """The later wait leaves the second event to the earlier one; the first event wakes that, the second is routed to nobody,
    and only then would the later wait be stored."""
    execution = await quay.opened()
    await quay.apply(execution.fence, wait("first"))
    one, two = await quay.send("order-7", data=1), await quay.send("order-7", type_="other", data=2)

    async def route() -> None:
        await quay.route(one)
        await quay.route(two)

    during_apply(quay, route)
    [outcome] = await quay.apply(execution.fence, wait("second", types=["other"]))
    assert received(outcome)["event"]["data"] == 2


# --- routing ----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("inbox.two-checkpoints")
async def test_two_who_route_one_event_do_it_once(quay: Quay) -> None:
    execution = await quay.opened()
    await quay.apply(execution.fence, wait())
    seq = await quay.send("order-7")
    assert await quay.route(seq, before_commit(quay, lambda: quay.route(seq))) == 0
    assert len(await quay.store.sql("SELECT * FROM history WHERE type = 'event.routed'")) == 1


@pytest.mark.clause("inbox.two-checkpoints")
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_at_the_second_checkpoint_leaves_an_event_that_is_routed_again(quay: Quay, when: str) -> None:
    execution = await quay.opened()
    await quay.apply(execution.fence, wait())
    seq = await quay.send("order-7")
    quay.faults = None

    class Dying:
        """A database that fails once, before or after its commit."""

        def __init__(self, db: Database) -> None:
            self._db, self.cost = db, db.cost
            self.read, self.initialize = db.read, db.initialize

        async def commit(self, transaction: object) -> None:
            if when == "after":
                await self._db.commit(transaction)  # type: ignore[arg-type]
            raise StorageBindingUnavailable

    with pytest.raises(StorageBindingUnavailable):
        await quay.route(seq, Dying(quay.store.db()))
    routed = (await quay.event(seq))["routed_at"] is not None
    assert routed == (when == "after")
    assert await quay.states() == {"paid": "woken" if routed else "active"}
    quay.pass_time(1)
    assert await routing.route_unrouted(quay.store.db(), quay.now) is False
    assert ((await quay.event(seq))["disposition"], await quay.states()) == ("woke", {"paid": "woken"})
    [ended] = await quay.substrate.refresh(execution.fence)
    assert received(ended)["event"]["id"] == "d1"


@pytest.mark.clause("waits.match", "inbox.two-checkpoints")
async def test_an_event_for_more_executions_than_one_transaction_wakes(quay: Quay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "EXECUTIONS", 2)
    executions = [await quay.opened() for _ in range(5)]
    for number, execution in enumerate(executions):
        await quay.apply(execution.fence, wait(look_back=0.0, match={"n": {"$ne": number}}))
    seq = await quay.send("order-7", data={"n": 1})
    assert await quay.route(seq) == 4
    states = sorted(row["state"] for row in await quay.rows("event_waits"))
    assert states == ["active", *["woken"] * 4]
    assert len(await quay.store.sql("SELECT * FROM history WHERE type = 'event.routed'")) == 1


@pytest.mark.clause("waits.match", "inbox.two-checkpoints")
async def test_a_wait_that_is_for_later_events_only_hides_no_others_behind_it(
    quay: Quay, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in ("EXECUTIONS", "WAITS"):
        monkeypatch.setattr(routing, bound, 2)
    later, *others = sorted([await quay.opened() for _ in range(4)], key=lambda one: one.execution_id)
    for execution in others:
        await quay.apply(execution.fence, wait(look_back=0.0))
    seq = await quay.send("order-7")
    await quay.apply(later.fence, wait(look_back=0.0))
    assert await quay.route(seq) == 3
    woken = {row["execution_id"] for row in await quay.rows("event_waits") if row["state"] == "woken"}
    assert woken == {execution.execution_id for execution in others}


@pytest.mark.clause("waits.match", "inbox.two-checkpoints")
async def test_waits_that_an_event_does_not_fit_cost_a_reading_a_page_and_no_transaction(
    quay: Quay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "WAITS", 2)
    executions = sorted([await quay.opened() for _ in range(7)], key=lambda one: one.execution_id)
    for number, execution in enumerate(executions):
        await quay.apply(execution.fence, wait(look_back=0.0, keys=[], types=["payment.received"], match={"n": number}))
    for n, trips in ((9, 5), (6, 5), (2, 6)):
        seq = await quay.send(data={"n": n})
        db = quay.store.db()
        assert await quay.route(seq, db) == 1
        assert db.cost.trips == trips
        assert (await quay.event(seq))["disposition"] == ("unmatched" if n == 9 else "woke")


@pytest.mark.clause("waits.match")
async def test_a_wait_costs_as_many_rows_as_any_other_that_shares_its_type(
    quay: Quay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "WAITS", 10)
    rows = [(f"exe_{number:04}", json.dumps({"n": number})) for number in range(200)]
    waits = ",".join(f"('{name}','w','','active',0,1,'[]','[\"hot\"]','{match}')" for name, match in rows)
    terms = ",".join(f"('t:hot','{name}','w','')" for name, _ in rows)
    columns = "execution_id, label, input_sha256, state, after, created_at, keys, types, match"
    await quay.store.sql(f"INSERT INTO event_waits ({columns}) VALUES {waits}")  # noqa: S608
    await quay.store.sql(f"INSERT INTO event_wait_terms VALUES {terms}")  # noqa: S608
    seq = await quay.send(type_="hot", data={"n": -1})
    db = quay.store.db()
    await quay.route(seq, db)
    assert (db.cost.trips, db.cost.rows_read <= 10 * len(rows)) == (22, True), db.cost


# --- an event against its timeout -------------------------------------------------------------------------------------


@pytest.mark.clause("waits.match")
@pytest.mark.parametrize("first", ["event", "timeout", "accepted"])
async def test_event_and_timeout_race_to_exactly_one_winner(quay: Quay, first: str) -> None:
    execution = await quay.opened()
    until = after(quay.now, 20)
    await quay.apply(execution.fence, wait(timeout_at=until))
    quay.now = until
    if first == "accepted":
        # It comes while the wait is being timed out, and nobody has routed it.
        await quay.time_out(execution, before_commit(quay, lambda: quay.send("order-7")))
        winner = "woken"
    elif first == "event":
        seq = await quay.send("order-8")
        await quay.time_out(execution, before_commit(quay, lambda: quay.arrive("order-7")))
        assert seq
        winner = "woken"
    else:
        seq = await quay.send("order-8")
        await quay.time_out(execution)
        await quay.arrive("order-7")
        winner = "timed_out"
    assert await quay.states() == {"paid": winner}
    [ended] = await quay.substrate.refresh(execution.fence)
    assert ("event" in received(ended)) == (winner == "woken")
    assert await quay.terms() == []


@pytest.mark.clause("waits.match")
async def test_a_timeout_while_an_event_is_routed_leaves_it_to_the_event(quay: Quay) -> None:
    """Routing has read the wait; the timeout routes first itself, and the first router finds that done."""
    execution = await quay.opened()
    until = after(quay.now, 20)
    await quay.apply(execution.fence, wait(timeout_at=until))
    seq = await quay.send("order-7")
    quay.now = until
    assert await quay.route(seq, before_commit(quay, lambda: quay.time_out(execution))) == 0
    assert await quay.states() == {"paid": "woken"}


@pytest.mark.clause("waits.match")
async def test_a_wait_is_timed_out_by_one_of_two(quay: Quay) -> None:
    execution = await quay.opened()
    until = after(quay.now, 20)
    await quay.apply(execution.fence, wait(timeout_at=until))
    quay.now = until
    assert await quay.time_out(execution, before_commit(quay, lambda: quay.time_out(execution))) == 0
    assert await quay.states() == {"paid": "timed_out"}
    assert waits.TIMEOUTS

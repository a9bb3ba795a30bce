"""Waits for events: which event wakes which wait, whenever it comes, and how a wait ends (clause waits.match)."""

import json
from typing import Any

import pytest

from moorage.catalog.access import Grant
from moorage.history import statements as history
from moorage.kernel.errors import ExecutionWoken, Forbidden, LeaseFenced, PatternInvalid, RequestInvalid
from moorage.kernel.instants import Instant, after, render
from moorage.kernel.limits import (
    EVENT_DATA_BYTES,
    EVENT_LOOK_BACK_SECONDS,
    EVENT_WAIT_KEYS,
    EVENT_WAIT_MATCH_BYTES,
    PATTERN_DEPTH,
)
from moorage.messages.inbox import routing, wait_statements, waits
from moorage.messages.inbox.matching import Filter
from moorage.messages.inbox.routing import UnroutedEvents
from moorage.messages.inbox.waits import EventWaitTimeouts
from moorage.runs import restart, stop
from moorage.runs.due import RunsDue
from moorage.runs.model import BodyInfo, Execution, Failure
from moorage.runs.operations import Claimed, Close, GiveUp, Recorded, Suspend
from moorage.store.transaction import Reading
from tests.contract.adapters import Store
from tests.contract.harbor import BODIES, ROOT, TRACE, claim, credential, entry, key, put, record, text, value
from tests.contract.occasions import fire
from tests.contract.quay import HOUR, Quay, received, wait

SQLITE = pytest.mark.parametrize("store", ["sqlite"], indirect=True)
"""Where the statements are the same as elsewhere, and only what they are asked differs."""


@pytest.fixture
def quay(store: Store) -> Quay:
    return Quay(store)


# --- an event before, while and after the wait is stored -----------------------------------------------------------------


@pytest.mark.clause("waits.match")
async def test_an_event_before_the_wait_is_found_by_the_wait(quay: Quay) -> None:
    execution = await quay.opened()
    await quay.send("order-7", data={"amount": 1250}, attributes={"subject": "order-7", "time": "2027-01-15T08:00:00Z"})
    [outcome] = await quay.apply(execution.fence, wait())
    told = received(outcome)["event"]
    assert told["data"] == {"amount": 1250}
    assert told["attributes"] == {"subject": "order-7", "time": "2027-01-15T08:00:00Z"}
    assert (told["source"], told["id"], told["type"], told["keys"]) == ("/shop", "d1", "payment.received", ["order-7"])
    assert told["accepted_at"] == render(quay.now)
    assert await quay.terms() == []
    assert (await quay.apply(execution.fence, wait()))[0] == outcome
    [row] = await quay.rows("events")
    assert await quay.route(row["seq"]) == 1
    assert ((await quay.event(row["seq"]))["disposition"], told["event_id"]) == ("woke", row["event_id"])


@pytest.mark.clause("waits.match", "runs.wake")
async def test_an_event_after_the_wait_wakes_it(quay: Quay) -> None:
    execution = await quay.opened()
    assert await quay.apply(execution.fence, wait()) == [Claimed(1)]
    assert await quay.apply(execution.fence, wait()) == [Claimed(1)]
    assert await quay.terms() == ["k:order-7"]
    await quay.apply(execution.fence, Suspend("suspended", None, [{"label": "paid"}]))
    seq = await quay.send("order-7", data=1)
    assert await quay.states() == {"paid": "active"}
    assert await quay.route(seq) == 1
    assert (await quay.states(), await quay.terms()) == ({"paid": "woken"}, [])
    row = await quay.row(execution.execution_id)
    assert row is not None
    assert row["wake_at"] == quay.now + 5000
    again = await quay.held(execution.execution_id, "bob")
    assert received(again.entries[0])["event"]["data"] == 1
    assert await quay.route(seq) == 0
    [told] = await quay.store.sql("SELECT * FROM history WHERE type = 'event.routed'")
    assert (told["subject"], json.loads(told["data"])) == (
        (await quay.event(seq))["event_id"],
        {"disposition": "woke", "executions": [execution.execution_id], "waits": 1, "work": None},
    )


@SQLITE
@pytest.mark.clause("waits.match", "runs.wake")
@pytest.mark.parametrize("when", ["before", "between", "after"])
async def test_an_event_is_found_whenever_it_comes_while_the_run_goes_to_sleep(quay: Quay, when: str) -> None:
    """Case C24 for events: a run that awaits one never sleeps over it."""
    execution = await quay.opened()
    if when == "before":
        await quay.arrive("order-7")
        [outcome] = await quay.apply(execution.fence, wait())
        assert isinstance(outcome, Recorded)
        return
    await quay.apply(execution.fence, wait())
    if when == "between":
        await quay.arrive("order-7")
        with pytest.raises(ExecutionWoken):
            await quay.apply(execution.fence, Suspend("suspended", None))
        [ended] = await quay.substrate.refresh(execution.fence)
    else:
        await quay.apply(execution.fence, Suspend("suspended", None))
        await quay.arrive("order-7")
        [ended] = (await quay.held(execution.execution_id, "bob")).entries
    assert received(ended)["event"]["id"] == "d1"


@pytest.mark.clause("waits.match")
async def test_two_events_in_one_millisecond_go_to_two_waits_in_their_order(quay: Quay) -> None:
    execution = await quay.opened()
    await quay.apply(execution.fence, wait("a", 1), wait("a", 2))
    for seq in [await quay.send("order-7"), await quay.send("order-7"), await quay.send("order-7")]:
        await quay.route(seq)
    ended = await quay.substrate.refresh(execution.fence)
    assert sorted(received(one)["event"]["id"] for one in ended) == ["d1", "d2"]
    dispositions = [row["disposition"] for row in await quay.rows("events ORDER BY seq")]
    assert dispositions == ["woke", "woke", "unmatched"]
    [third] = await quay.apply(execution.fence, wait("a", 3))
    assert received(third)["event"]["id"] == "d3"


@pytest.mark.clause("waits.match")
async def test_an_event_wakes_every_execution_that_waits_for_it_and_each_once(quay: Quay) -> None:
    first, second = await quay.opened(), await quay.opened("other")
    for execution in (first, second):
        await quay.apply(execution.fence, wait("a", 1), wait("a", 2))
    seq = await quay.arrive("order-7")
    assert sorted((await quay.rows("event_waits")), key=lambda row: row["state"])[2:] != []
    assert [row["state"] for row in await quay.rows("event_waits")].count("woken") == 2
    for execution in (first, second):
        [ended] = await quay.substrate.refresh(execution.fence)
        assert received(ended)["event"]["id"] == "d1"
    assert (await quay.event(seq))["disposition"] == "woke"


# --- what fits ----------------------------------------------------------------------------------------------------------


@SQLITE
@pytest.mark.clause("waits.match")
@pytest.mark.parametrize(
    ("asked", "fits"),
    [
        ({"keys": ["order-7"]}, True),
        ({"keys": ["order-8", "order-7"]}, True),
        ({"keys": ["order-8"]}, False),
        ({"keys": [], "types": ["payment.received"]}, True),
        ({"keys": [], "types": ["payment.failed", "payment.received"]}, True),
        ({"keys": ["order-7"], "types": ["payment.failed"]}, False),
        ({"keys": ["payment.received"]}, False),
        ({"keys": [], "types": ["order-7"]}, False),
        ({"match": {"amount": {"$gte": 1000}, "by.card": True}}, True),
        ({"match": {"amount": {"$gte": 2000}}}, False),
        ({"match": {"amount": "1250"}}, False),
        ({"match": {"by.card": 1}}, False),
        ({"match": {"missing": {"$exists": False}}}, True),
        ({"match": {"grains": 1.2345678901234567e20}}, True),
        ({"match": {"grains": {"$lt": 1.2345678901234567e20}}}, False),
        ({"match": {}}, True),
    ],
)
async def test_a_wait_is_for_what_it_names(quay: Quay, asked: dict[str, Any], fits: bool) -> None:
    early, late = await quay.opened(), await quay.opened("other")
    await quay.apply(late.fence, wait(**asked))
    seq = await quay.arrive(
        "order-7", "customer-1", data={"amount": 1250, "by": {"card": True}, "grains": 1.2345678901234567e20}
    )
    [outcome] = await quay.apply(early.fence, wait(**asked))
    assert isinstance(outcome, Recorded) == fits
    assert bool(await quay.substrate.refresh(late.fence)) == fits
    assert (await quay.event(seq))["disposition"] == ("woke" if fits else "unmatched")


@pytest.mark.clause("waits.match")
def test_bounds_of_a_wait() -> None:
    most = [f"k{number}" for number in range(EVENT_WAIT_KEYS)]
    assert Filter.checked(most, most, None).terms == [f"k:{one}" for one in most]
    wide = {"a": "x" * (EVENT_WAIT_MATCH_BYTES - len('{"a":""}'))}
    assert len(Filter.checked(["k"], [], wide).match or "") == EVENT_WAIT_MATCH_BYTES
    deep: dict[str, Any] = {"a": 1}
    for _ in range(PATTERN_DEPTH + 1):
        deep = {"$not": deep}
    for keys, types, match in (
        ([], [], None),
        ([], [], {"a": 1}),
        ([*most, "more"], [], None),
        ([], [*most, "more"], None),
        (["k", "k"], [], None),
        ([""], [], None),
        (["a\nb"], [], None),
        (["k"], [], {"a": wide["a"] + "x"}),
    ):
        with pytest.raises(RequestInvalid):
            Filter.checked(keys, types, match)
    for bad in ({"$nope": 1}, {"a": {"$in": 1}}, deep, {"a": {1, 2}}):
        with pytest.raises(PatternInvalid):
            Filter.checked(["k"], [], bad)


@SQLITE
@pytest.mark.clause("waits.match")
async def test_what_a_wait_names_badly_is_stored_nowhere(quay: Quay) -> None:
    execution = await quay.opened()
    for bad in (
        wait(keys=()),
        wait(look_back=-1),
        wait(look_back=float(EVENT_LOOK_BACK_SECONDS) + 1),
        wait(look_back=1e400),
    ):
        with pytest.raises(RequestInvalid):
            await quay.apply(execution.fence, bad)
    assert await quay.rows("journal") == []
    await quay.apply(execution.fence, wait(look_back=float(EVENT_LOOK_BACK_SECONDS)), wait("now", look_back=0))


@pytest.mark.clause("waits.match")
@pytest.mark.parametrize(("seconds", "found"), [(59.999, False), (60, True)])
async def test_a_wait_looks_back_so_far_and_no_further(quay: Quay, seconds: float, found: bool) -> None:
    for _ in range(3):
        await quay.arrive("other")
        quay.pass_time(1)
    await quay.arrive("order-7")
    quay.pass_time(60)
    execution = await quay.opened()
    [outcome] = await quay.apply(execution.fence, wait(look_back=seconds))
    assert isinstance(outcome, Recorded) == found
    # What came later wakes it in either case.
    await quay.arrive("order-7", id_="late")
    if not found:
        assert received((await quay.substrate.refresh(execution.fence))[0])["event"]["id"] == "late"


@pytest.mark.clause("waits.match")
async def test_many_events_before_the_wait_are_looked_at_page_by_page(quay: Quay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "PAGE", 3)
    for number in range(10):
        await quay.send("order-7" if number % 2 else "order-8", data={"n": number})
    execution = await quay.opened()
    keys = ["order-7", "order-8"]
    [last] = await quay.apply(execution.fence, wait("last", keys=keys, match={"n": 9}))
    assert received(last)["event"]["data"] == {"n": 9}
    [first] = await quay.apply(execution.fence, wait("first", keys=keys, match={"n": {"$gte": 4}}))
    assert received(first)["event"]["data"] == {"n": 4}
    assert await quay.apply(execution.fence, wait("none", keys=keys, match={"n": 10})) == [Claimed(1)]
    monkeypatch.setattr(waits, "EXAMINED", 6)
    with pytest.raises(RequestInvalid):
        await quay.apply(execution.fence, wait("more", keys=keys, match={"n": 10}))


@pytest.mark.clause("waits.match", "blobs.inline-cutoff")
async def test_the_largest_event_is_recorded_whole(quay: Quay) -> None:
    data = {"a": "x" * (EVENT_DATA_BYTES - len('{"a":""}'))}
    await quay.send("order-7", data=data, attributes={"comment": 'ü"\\/\x7f'})
    execution = await quay.opened()
    [outcome] = await quay.apply(execution.fence, wait(match={"a": {"$exists": True}}))
    told = received(outcome)["event"]
    assert (told["data"], told["attributes"]["comment"]) == (data, 'ü"\\/\x7f')


@pytest.mark.clause("waits.match", "catalog.grants")
async def test_a_run_waits_for_no_event_that_whoever_started_it_may_not_read(quay: Quay) -> None:
    quay.caller = await credential(
        quay.store, "ann", Grant(frozenset({"execute"}), ("*",)), Grant(frozenset({"read"}), ("payment.received",))
    )
    await quay.send("order-7")
    execution = await quay.opened()
    for refused in (wait(), wait(types=["payment.received", "other"]), wait(keys=(), types=["other"])):
        with pytest.raises(Forbidden):
            await quay.apply(execution.fence, refused)
    assert await quay.rows("event_waits") == []
    [outcome] = await quay.apply(execution.fence, wait(types=["payment.received"]))
    assert received(outcome)["event"]["id"] == "d1"


# --- timeouts -----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("waits.match", "timers.alarm")
async def test_a_wait_times_out_at_its_instant_and_wakes_the_run(quay: Quay) -> None:
    execution = await quay.opened()
    until = after(quay.now, 60)
    await quay.apply(execution.fence, wait(timeout_at=until))
    assert quay.woken[-1] == until
    assert (await quay.rows("journal"))[0]["next_attempt_at"] == until
    await quay.apply(execution.fence, Suspend("suspended", until))
    quay.now = Instant(until - 1)
    assert await EventWaitTimeouts().fire(quay.store.db(), quay.now, f"{execution.execution_id}@{until}") == 0
    quay.now = until
    assert await EventWaitTimeouts().fire(quay.store.db(), quay.now, f"{execution.execution_id}@{until}") == 1
    assert await EventWaitTimeouts().fire(quay.store.db(), quay.now, f"{execution.execution_id}@{until}") == 0
    assert (await quay.states(), await quay.terms()) == ({"paid": "timed_out"}, [])
    [ended] = (await quay.held(execution.execution_id, "bob")).entries
    assert received(ended) == {"timed_out": render(until)}
    assert ended.ended_at == until
    assert (await quay.event(await quay.arrive("order-7")))["disposition"] == "unmatched"


@pytest.mark.clause("waits.match")
@pytest.mark.parametrize("who", ["clock", "refresh", "wait"])
async def test_an_event_that_lies_in_the_store_wins_over_the_timeout(quay: Quay, who: str) -> None:
    """Also where nobody has routed it yet, and whoever looks first."""
    execution = await quay.opened()
    until = after(quay.now, 20)
    await quay.apply(execution.fence, wait(timeout_at=until))
    quay.now = Instant(until - 1)
    seq = await quay.send("order-7")
    quay.now = after(until, 1)
    if who == "clock":
        await quay.time_out(execution)
        [ended] = await quay.substrate.refresh(execution.fence)
    elif who == "refresh":
        [ended] = await quay.substrate.refresh(execution.fence)
    else:
        ended = entry((await quay.apply(execution.fence, wait(timeout_at=until)))[0])
    assert received(ended)["event"]["id"] == "d1"
    assert (await quay.event(seq))["disposition"] == "woke"


@SQLITE
@pytest.mark.clause("waits.match")
@pytest.mark.parametrize("who", ["refresh", "wait"])
async def test_a_host_that_looks_after_the_timeout_need_not_wait_for_the_clock(quay: Quay, who: str) -> None:
    execution = await quay.opened()
    until = after(quay.now, 20)
    await quay.apply(execution.fence, wait(timeout_at=until))
    quay.now = until
    if who == "refresh":
        [ended] = await quay.substrate.refresh(execution.fence)
        assert received(ended) == {"timed_out": render(until)}
    else:
        assert received((await quay.apply(execution.fence, wait(timeout_at=until)))[0]) == {"timed_out": render(until)}


@pytest.mark.clause("waits.match")
async def test_a_wait_without_time_only_looks(quay: Quay) -> None:
    execution = await quay.opened()
    [outcome] = await quay.apply(execution.fence, wait(timeout_at=quay.now))
    assert received(outcome) == {"timed_out": render(quay.now)}
    await quay.send("order-7")
    [outcome] = await quay.apply(execution.fence, wait("again", timeout_at=quay.now))
    assert received(outcome)["event"]["id"] == "d1"


# --- ends ---------------------------------------------------------------------------------------------------------------


@pytest.mark.clause("waits.match")
async def test_a_wait_that_is_given_up_takes_no_event(quay: Quay) -> None:
    execution = await quay.opened()
    await quay.apply(execution.fence, wait("lost"), claim("beside"))
    await quay.apply(execution.fence, GiveUp(key("lost")), record("beside", 1))
    assert (await quay.states(), await quay.terms()) == ({"lost": "canceled"}, [])
    await quay.arrive("order-7")
    [outcome] = await quay.apply(execution.fence, wait("lost"))
    assert entry(outcome).state == "canceled"
    assert received((await quay.apply(execution.fence, wait("other")))[0])["event"]["id"] == "d1"


@pytest.mark.clause("waits.match", "runs.collection")
async def test_what_a_success_leaves_is_gone(quay: Quay) -> None:
    execution = await quay.opened()
    await quay.apply(execution.fence, wait("a"), wait("b", keys=["b"]), Close("success", value(1)))
    assert await quay.rows("event_waits") == await quay.rows("event_wait_terms") == await quay.rows("journal") == []
    assert (await quay.event(await quay.arrive("order-7")))["disposition"] == "unmatched"


async def _failed(quay: Quay, execution: Execution) -> None:
    await quay.apply(execution.fence, Close("failed", error=Failure("Permanent", "x")))


async def _stopped(quay: Quay, execution: Execution) -> None:
    await quay.apply(execution.fence, Suspend("suspended", None))
    await stop.stop(quay.store.db(), ROOT, quay.now, execution.run_id)


async def _lapsed(quay: Quay, execution: Execution) -> None:
    await quay.store.sql("UPDATE executions SET host = 'remote'")
    quay.now = execution.lease.expires_at
    await fire(RunsDue(), quay.store.db, quay.now, execution.execution_id)


@pytest.mark.clause("waits.match", "runs.cancel-race")
@pytest.mark.parametrize("end", [_failed, _stopped, _lapsed])
async def test_an_event_revives_no_run_that_has_ended_and_is_there_for_the_next(quay: Quay, end: Any) -> None:
    """Case C24 for events: what ended stays so; whoever opens the scope again takes the wait up where it was left."""
    execution = await quay.opened(scope="job")
    until = after(quay.now, HOUR)
    await quay.apply(execution.fence, put("before", 1), wait(timeout_at=until, look_back=0))
    await end(quay, execution)
    assert (await quay.states(), await quay.terms()) == ({"paid": "canceled"}, [])
    ended = (await quay.run(execution.run_id))["status"]
    seq = await quay.arrive("order-7")
    assert (await quay.event(seq))["disposition"] == "unmatched"
    assert (await quay.run(execution.run_id))["status"] == ended
    row = await quay.row(execution.execution_id)
    assert row is not None
    assert row["wake_at"] is None
    await quay.store.sql("UPDATE executions SET host = 'worker'")
    again = await quay.opened(scope="job")
    assert again.execution_id == execution.execution_id
    [outcome] = await quay.apply(again.fence, wait(timeout_at=until, look_back=0))
    assert received(outcome)["event"]["id"] == "d1"


@pytest.mark.clause("waits.match", "leases.fence")
async def test_only_who_holds_the_execution_waits(quay: Quay) -> None:
    execution = await quay.opened()
    quay.now = execution.lease.expires_at
    again = await quay.held(execution.execution_id, "bob")
    with pytest.raises(LeaseFenced):
        await quay.apply(execution.fence, wait())
    assert await quay.rows("event_waits") == []
    assert await quay.apply(again.fence, wait()) == [Claimed(1)]


# --- the Clock's statements ---------------------------------------------------------------------------------------------


@pytest.mark.clause("timers.alarm", "inbox.two-checkpoints")
async def test_what_nobody_routed_falls_due_and_so_do_timeouts(quay: Quay) -> None:
    execution = await quay.opened()
    until = after(quay.now, 60)
    await quay.apply(execution.fence, wait("a", timeout_at=until), wait("b", timeout_at=after(until, 60)), wait("c"))
    seq = await quay.send("somebody-else")
    for work, due, item in (
        (EventWaitTimeouts(), until, f"{execution.execution_id}@{until}"),
        (UnroutedEvents(), quay.now + wait_statements.UNROUTED_MS, str(seq)),
    ):
        reading = Reading()
        earliest = reading.ask(work.earliest)
        early, at = (reading.ask(work.page, now=instant, limit=10) for instant in (due - 1, due))
        await quay.store.db().read(reading)
        assert (earliest.rows, early.rows, at.rows) == ([{"due": due}], [], [{"item": item, "due": due}])
        assert await work.fire(quay.store.db(), Instant(due), item) == 1
    assert (await quay.event(seq))["disposition"] == "unmatched"
    assert history.PAGE
    assert routing.ROUTER not in {row["subject"] for row in await quay.rows("history")}
    assert text((await quay.apply(execution.fence, wait("a")))[0]) == f'{{"timed_out":"{render(until)}"}}'


@pytest.mark.clause("waits.match")
async def test_a_run_that_is_restarted_takes_no_event_again_that_it_kept(quay: Quay) -> None:
    execution = await quay.opened(scope="job")
    await quay.send("order-7")
    await quay.apply(execution.fence, wait("kept"), wait("open", keys=["other"]))
    await quay.send("order-7")
    await quay.apply(execution.fence, Close("failed", error=Failure("Permanent", "x")))

    async def body(name: str) -> BodyInfo:
        return BODIES[name]

    await restart.restart(
        quay.store.db(), None, ROOT, quay.now, execution.run_id, body, TRACE, "mended", check=lambda info, value: None
    )
    again = await quay.opened(scope="job")
    assert again.execution_id != execution.execution_id
    assert received(again.entries[0])["event"]["id"] == "d1"
    assert await quay.states() == {"kept": "woken"}
    [outcome] = await quay.apply(again.fence, wait("next"))
    assert received(outcome)["event"]["id"] == "d2"

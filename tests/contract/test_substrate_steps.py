"""Steps through the substrate: claimed before their effect, recorded once, replayed alike."""

import asyncio
import json
from typing import Any

import pytest

from moorage.journal.model import NO_INPUT, EntryKey, Fence
from moorage.kernel.errors import EntryUnknown, LeaseExpired, LeaseFenced, RequestInvalid
from moorage.kernel.instants import Instant
from moorage.kernel.limits import APPLY_OPERATIONS, OWNER_LEASE_SECONDS
from moorage.runs.model import Failure
from moorage.runs.operations import Claim, Claimed, Close, Fail, GiveUp, Recorded, Suspend
from tests.contract.adapters import Store, dump
from tests.contract.harbor import Harbor, claim, entry, key, put, record, text, value

BOOM = Failure("Transient", "boom")


@pytest.fixture
def harbor(store: Store) -> Harbor:
    return Harbor(store)


# --- claimed, recorded once (C23) ------------------------------------------------------------------------------------


@pytest.mark.clause("runs.entry-key", "runs.step-output")
async def test_an_entry_is_pending_before_its_effect_and_recorded_with_the_next_claim(harbor: Harbor) -> None:
    fence = (await harbor.opened()).fence
    assert await harbor.apply(fence, claim("a")) == [Claimed(1)]
    [row] = await harbor.rows("journal")
    assert (row["state"], row["attempt"], row["value"]) == ("pending", 1, None)
    recorded, claimed = await harbor.apply(fence, record("a", {"n": 1}), claim("b"))
    assert (text(recorded), claimed) == ('{"n":1}', Claimed(1))
    assert harbor.cost.trips == 1
    states = {row["label"]: row["state"] for row in await harbor.rows("journal")}
    assert states == {"a": "done", "b": "pending"}


@pytest.mark.clause("runs.entry-key", "runs.step-output")
async def test_one_label_with_several_inputs_keeps_each_result_whatever_the_order(harbor: Harbor) -> None:
    first, second = await harbor.opened(), await harbor.opened()
    await harbor.apply(first.fence, claim("charge", {"i": 1}), claim("charge", {"i": 2}))
    await harbor.apply(first.fence, record("charge", "B", {"i": 2}), record("charge", "A", {"i": 1}))
    assert await harbor.apply(second.fence, claim("charge", {"i": 1})) == [Claimed(1)]
    for order in ((1, 2), (2, 1)):
        told = await harbor.apply(first.fence, *(claim("charge", {"i": one}) for one in order))
        assert [text(one) for one in told] == [{1: '"A"', 2: '"B"'}[one] for one in order]


SAME: list[tuple[Any, Any]] = [({"x": 1, "y": 2}, {"y": 2, "x": 1}), ({"x": 1}, {"x": 1.0})]
OTHER: list[tuple[Any, Any]] = [("\u00e9", "e\u0301"), (None, {}), ({"x": None}, {}), (1, "1"), ([], {})]


@pytest.mark.clause("runs.entry-key")
@pytest.mark.parametrize(("one", "two"), SAME)
async def test_inputs_that_are_the_same_json_are_one_entry(harbor: Harbor, one: Any, two: Any) -> None:
    fence = (await harbor.opened()).fence
    await harbor.apply(fence, put("charge", "first", one))
    [told] = await harbor.apply(fence, put("charge", "second", two))
    assert text(told) == '"first"'


@pytest.mark.clause("runs.entry-key")
@pytest.mark.parametrize(("one", "two"), OTHER)
async def test_inputs_that_differ_are_entries_of_their_own(harbor: Harbor, one: Any, two: Any) -> None:
    fence = (await harbor.opened()).fence
    told = await harbor.apply(fence, put("charge", "first", one), put("charge", "second", two), put("charge", "none"))
    assert [text(one) for one in told] == ['"first"', '"second"', '"none"']
    assert len(await harbor.rows("journal")) == 3


@pytest.mark.clause("runs.step-output")
async def test_of_two_simultaneous_recordings_one_stands_and_the_other_is_told(harbor: Harbor) -> None:
    fence = (await harbor.opened()).fence
    await harbor.apply(fence, claim("a"))
    told = await asyncio.gather(
        harbor.apply(fence, record("a", "one")), harbor.apply(fence, record("a", "two")), return_exceptions=False
    )
    texts = {text(outcome) for [outcome] in told}
    assert len(texts) == 1
    assert texts <= {'"one"', '"two"'}
    [row] = await harbor.rows("journal")
    assert {row["value"]} == texts


@pytest.mark.clause("runs.step-output")
@pytest.mark.parametrize(
    "again", [record("a", "other"), put("a", "other"), claim("a"), Fail(key("a"), 1, BOOM), GiveUp(key("a"))]
)
async def test_nothing_changes_a_recorded_value(harbor: Harbor, again: Any) -> None:
    fence = (await harbor.opened()).fence
    await harbor.apply(fence, claim("a"))
    await harbor.apply(fence, record("a", "first"))
    before = await harbor.rows("journal")
    harbor.pass_time(1)
    [told] = await harbor.apply(fence, again)
    assert text(told) == '"first"'
    assert harbor.cost.trips == 2
    assert await harbor.rows("journal") == before


async def test_operations_on_one_entry_apply_in_their_order(harbor: Harbor) -> None:
    fence = (await harbor.opened()).fence
    told = await harbor.apply(fence, claim("a"), Fail(key("a"), 1, BOOM, harbor.now), claim("a"), record("a", 7))
    assert told[0] == Claimed(1)
    assert entry(told[1]).state == "waiting"
    assert told[2] == Claimed(2)
    assert (entry(told[3]).attempt, text(told[3])) == (2, "7")


async def test_a_record_of_what_was_never_claimed_changes_nothing(harbor: Harbor) -> None:
    fence = (await harbor.opened()).fence
    before = await dump(harbor.store)
    for operation in (record("a", 1), Fail(key("a"), 1, BOOM), GiveUp(key("a"))):
        with pytest.raises(EntryUnknown):
            await harbor.apply(fence, claim("b"), operation)
    assert await dump(harbor.store) == before


# --- failing, waiting, giving up -------------------------------------------------------------------------------------


@pytest.mark.clause("runs.not-before", "runs.resume-at")
async def test_an_attempt_waits_and_is_never_claimed_early(harbor: Harbor) -> None:
    fence = (await harbor.opened()).fence
    await harbor.apply(fence, claim("a"))
    until = Instant(harbor.now + 5000)
    [failed] = await harbor.apply(fence, Fail(key("a"), 1, BOOM, until))
    assert (entry(failed).state, entry(failed).next_attempt_at) == ("waiting", until)
    [row] = await harbor.rows("journal")
    assert (row["next_attempt_at"], json.loads(row["failure"])["message"]) == (until, "boom")
    harbor.now = Instant(until - 1)
    for early in (claim("a"), record("a", 1)):
        [told] = await harbor.apply(fence, early)
        assert (entry(told).state, entry(told).next_attempt_at) == ("waiting", until)
    harbor.now = until
    assert await harbor.apply(fence, claim("a")) == [Claimed(2)]
    assert await harbor.apply(fence, claim("a")) == [Claimed(2)]
    [done] = await harbor.apply(fence, record("a", 1))
    assert (entry(done).failure, entry(done).next_attempt_at, entry(done).attempt) == (None, None, 2)


async def test_a_failure_for_good_stands(harbor: Harbor) -> None:
    fence = (await harbor.opened()).fence
    await harbor.apply(fence, claim("a"))
    [failed] = await harbor.apply(fence, Fail(key("a"), 1, BOOM, bound="wall"))
    assert entry(failed).failure == {"bound": "wall", "message": "boom", "tag": "Transient"}
    harbor.pass_time(1)
    for again in (claim("a"), record("a", 1), Fail(key("a"), 1, BOOM, harbor.now)):
        [told] = await harbor.apply(fence, again)
        assert (entry(told).state, entry(told).failure) == ("failed", entry(failed).failure)


async def test_a_failure_of_another_attempt_changes_nothing(harbor: Harbor) -> None:
    fence = (await harbor.opened()).fence
    await harbor.apply(fence, claim("a"))
    [told] = await harbor.apply(fence, Fail(key("a"), 2, BOOM))
    assert entry(told).state == "pending"


@pytest.mark.clause("runs.error-cap")
async def test_a_failure_is_masked_before_it_is_stored(harbor: Harbor) -> None:
    fence = (await harbor.opened()).fence
    await harbor.apply(fence, claim("a"))
    failure = Failure("Permanent", "Authorization: Bearer abcdefghijklmnopqrstuvwxyz0123456789 " + "x" * 5000)
    await harbor.apply(fence, Fail(key("a"), 1, failure))
    [row] = await harbor.rows("journal")
    assert "abcdefghijklmnop" not in row["failure"]
    assert len(json.loads(row["failure"])["message"].encode()) <= 2048


@pytest.mark.clause("runs.resume-at")
async def test_a_wait_of_time_keeps_its_instant_and_ends_no_earlier(harbor: Harbor) -> None:
    execution = await harbor.opened()
    until = Instant(harbor.now + 60_000)
    sleep = Claim(key("nap"), "sleep", "0", until)
    assert await harbor.apply(execution.fence, sleep) == [Claimed(1)]
    assert await harbor.apply(execution.fence, sleep) == [Claimed(1)]
    [told] = await harbor.apply(execution.fence, Claim(key("nap"), "sleep", "0", Instant(until + 1)))
    assert entry(told).next_attempt_at == until
    await harbor.apply(execution.fence, Suspend("waiting", until))
    harbor.now = until
    again = await harbor.held(execution.execution_id, "bob")
    assert [(one.state, one.next_attempt_at) for one in again.entries] == [("waiting", until)]
    [done] = await harbor.apply(again.fence, record("nap", None))
    assert text(done) == "null"


async def test_giving_up_ends_an_entry_for_good(harbor: Harbor) -> None:
    fence = (await harbor.opened()).fence
    await harbor.apply(fence, claim("a"))
    [told] = await harbor.apply(fence, GiveUp(key("a")))
    assert entry(told).state == "canceled"
    for again in (claim("a"), record("a", 1)):
        assert entry((await harbor.apply(fence, again))[0]).state == "canceled"


# --- fences and takeovers --------------------------------------------------------------------------------------------


@pytest.mark.clause("leases.fence", "runs.owner")
async def test_another_epoch_and_a_lapsed_lease_write_nothing(harbor: Harbor) -> None:
    execution = await harbor.opened()
    await harbor.apply(execution.fence, claim("a"))
    before = await dump(harbor.store)
    for epoch in (0, 2, 99):
        for operations in ((record("a", 1),), (Close("success"),), (Suspend("suspended", None),)):
            with pytest.raises(LeaseFenced):
                await harbor.apply(Fence(execution.execution_id, epoch), *operations)
    with pytest.raises(LeaseFenced):
        await harbor.apply(Fence("exe_nowhere", 1), record("a", 1))
    harbor.now = execution.lease.expires_at
    for operations in ((record("a", 1),), (Close("success"),), (Suspend("suspended", None),)):
        with pytest.raises(LeaseExpired):
            await harbor.apply(execution.fence, *operations)
    assert await dump(harbor.store) == before


@pytest.mark.clause("runs.claim-takeover", "runs.live-owner")
async def test_a_pending_claim_is_taken_over_after_the_lease_and_not_before(harbor: Harbor) -> None:
    first = await harbor.opened()
    await harbor.apply(first.fence, claim("a"), put("p", 1))
    harbor.now = Instant(first.lease.expires_at - 1)
    assert await harbor.take(first.execution_id, "bob") is None
    harbor.now = first.lease.expires_at
    second = await harbor.held(first.execution_id, "bob")
    assert (second.run_id, second.lease.epoch, second.lease.attempt) == (first.run_id, 2, 2)
    assert [one.state for one in second.entries] == ["pending", "done"]
    assert await harbor.apply(second.fence, claim("a")) == [Claimed(2)]
    assert await harbor.apply(second.fence, claim("a")) == [Claimed(2)]
    with pytest.raises(LeaseFenced):
        await harbor.apply(first.fence, record("a", "late"))
    [told] = await harbor.apply(second.fence, record("a", "in time"))
    assert (entry(told).epoch, entry(told).attempt, text(told)) == (2, 2, '"in time"')


async def test_a_list_has_bounds(harbor: Harbor) -> None:
    fence = (await harbor.opened()).fence
    assert await harbor.apply(fence) == []
    most = [put("p", number, number) for number in range(int(APPLY_OPERATIONS))]
    assert len(await harbor.apply(fence, *most)) == APPLY_OPERATIONS
    with pytest.raises(RequestInvalid):
        await harbor.apply(fence, *most, put("p", 1, "one more"))
    for last in (Close("success"), Suspend("suspended", None)):
        with pytest.raises(RequestInvalid):
            await harbor.apply(fence, last, claim("z"))
    with pytest.raises(RequestInvalid):
        await harbor.apply(fence, Close("failed", value(1)))


@pytest.mark.clause("runs.entry-key")
async def test_labels_and_values_are_kept_as_they_are(harbor: Harbor) -> None:
    fence = (await harbor.opened()).fence
    told = {"\u0000": '"\\\u2028', "é": "e\u0301", "n": [1.5, -1, 1e21], "deep": {"a": [None, True]}}
    labels = ["it's", 'a "quoted" one', "back\\slash", " ", "null", "1", "日本"]
    outcomes = await harbor.apply(fence, *(put(label, told) for label in labels))
    assert {text(one) for one in outcomes} == {value(told).text}
    rows = await harbor.rows("journal")
    assert {row["label"] for row in rows} == set(labels)
    assert {row["value"] for row in rows} == {value(told).text}
    values = await harbor.substrate.values(fence, [EntryKey(label, NO_INPUT) for label in labels])
    assert {one.text for one in values} == {value(told).text}


@pytest.mark.parametrize("label", ["", "\u0000", "a\nb", "\ud800", "x" * 201])
async def test_a_label_that_cannot_be_printed_is_refused(harbor: Harbor, label: str) -> None:
    fence = (await harbor.opened()).fence
    with pytest.raises(RequestInvalid):
        await harbor.apply(fence, claim(label))
    assert await harbor.rows("journal") == []


@pytest.mark.clause("runs.owner-lease")
async def test_renewals_extend_what_is_held_and_leave_out_what_is_lost(harbor: Harbor) -> None:
    held, lost, lapsed = [await harbor.opened() for _ in range(3)]
    await harbor.apply(lost.fence, Suspend("suspended", None))
    harbor.pass_time(10)
    fences = [held.fence, lost.fence, Fence(lapsed.execution_id, 7), Fence("exe_nowhere", 1)]
    renewed = await harbor.substrate.renew(fences)
    assert harbor.cost.trips == 1
    assert set(renewed) == {held.execution_id}
    assert renewed[held.execution_id].expires_at == harbor.now + int(OWNER_LEASE_SECONDS) * 1000
    harbor.pass_time(20)
    assert await harbor.substrate.renew([lapsed.fence]) == {}
    assert set(await harbor.substrate.renew([held.fence])) == {held.execution_id}
    assert await harbor.substrate.renew([]) == {}


async def test_a_claim_of_an_entry_that_waits_for_somebody_else_tells_of_it(harbor: Harbor) -> None:
    first = await harbor.opened()
    await harbor.apply(first.fence, claim("a"))
    [told] = await harbor.apply(first.fence, Fail(key("a"), 1, BOOM, Instant(harbor.now + 90_000)))
    assert isinstance(told, Recorded)
    harbor.now = first.lease.expires_at
    second = await harbor.held(first.execution_id, "bob")
    [waiting] = await harbor.apply(second.fence, claim("a"))
    assert (entry(waiting).state, entry(waiting).epoch) == ("waiting", 1)

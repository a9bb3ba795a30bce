"""Guards as the requirements tell them: what an effect in flight keeps from changing hands, and what lets go of it."""

import re

import pytest

from moorage.guards.model import EntityLease
from moorage.journal.model import Fence, idempotency_key
from moorage.kernel import canonical
from moorage.kernel.errors import (
    DestinationUnknown,
    EntryUnknown,
    ExecutionGuardBlocked,
    ExecutionGuardEvidenceMismatch,
    ExecutionGuardHeld,
    GuardedElsewhere,
    GuardUnknown,
    HolderUnknown,
    IdInvalid,
    LeaseExpired,
    LeaseFenced,
    LeaseHeld,
    RequestInvalid,
)
from moorage.runs.operations import Close, Doubtful, HoldEntity, LetEntity, Recorded, ReleaseGuard, SetMetadata, Suspend
from tests.contract.adapters import Store, dump
from tests.contract.harbor import key, put, record, value
from tests.contract.watch_house import STEP, WINDOW, WatchHouse, admit, admitted, claims


@pytest.fixture
async def house(store: Store) -> WatchHouse:
    return await WatchHouse.of(store)


# --- run.callback-guard.scope ----------------------------------------------------------------------------------------


@pytest.mark.clause("guards.scope", "guards.blocked")
async def test_a_callback_on_an_item_keeps_the_item_its_ancestors_and_its_entity_while_others_go_on(
    house: WatchHouse,
) -> None:
    job = await house.opened("part", scope="job")
    item = await house.opened(scope="job/item")
    entity = await house.hold(item.fence)
    guard = await house.begin(item.fence, entities=[entity])
    assert await house.protected() == ["lease:entity:customer:7", "scope:job", "scope:job/item"]
    house.lapse(item)
    for execution in (item.execution_id, job.execution_id):
        with pytest.raises(ExecutionGuardBlocked) as blocked:
            await house.take(execution, "bob")
        assert blocked.value.members["token"] == guard.token
    other = await house.opened("other", scope="another")
    with pytest.raises(ExecutionGuardBlocked):
        await house.hold(other.fence)
    assert (await house.begin(other.fence)).token != guard.token
    assert await house.hold(other.fence, "8") == EntityLease("customer", "8", 1)
    exporting = await house.opened("other")
    await house.apply(exporting.fence, put("rows", 1), Close("success", value(1)))


@pytest.mark.clause("guards.scope")
async def test_under_a_guard_on_the_job_alone_an_item_is_taken_over_and_its_next_callback_waits(house: WatchHouse) -> None:
    item = await house.opened(scope="job/item")
    job, guard = await house.working("job")
    assert await house.protected() == ["scope:job"]
    house.pass_time(29)
    await house.substrate.renew([job.fence])
    house.pass_time(2)
    taken = await house.held(item.execution_id, "bob")
    with pytest.raises(GuardedElsewhere) as waits:
        await house.begin(taken.fence)
    assert waits.value.members["token"] == guard.token
    await house.end(job.fence, guard.token)
    assert (await house.begin(taken.fence)).token != guard.token


@pytest.mark.clause("guards.scope")
async def test_a_guard_protects_every_entity_that_the_execution_holds_whatever_the_host_says(house: WatchHouse) -> None:
    execution = await house.opened()
    await house.hold(execution.fence, "7")
    await house.hold(execution.fence, "a:b 'c' \"d\"")
    await house.begin(execution.fence)
    assert [row for row in await house.protected() if row.startswith("lease:")] == [
        "lease:entity:customer:7",
        "lease:entity:customer:a:b 'c' \"d\"",
    ]


# --- run.callback-guard.acquire --------------------------------------------------------------------------------------


@pytest.mark.clause("guards.acquire")
async def test_callbacks_on_disjoint_rows_run_at_once_and_on_a_shared_row_only_one(house: WatchHouse) -> None:
    one, two = await house.opened(scope="a/1"), await house.opened(scope="b/1")
    third = await house.opened(scope="a/2")
    first = await house.begin(one.fence)
    await house.begin(two.fence)
    before = await dump(house.store)
    with pytest.raises(GuardedElsewhere) as shared:
        await house.apply(third.fence, put("x", 1), claims(), admit(house.holder))
    assert (shared.value.tag, shared.value.members["token"]) == ("Transient", first.token)
    assert not {"a/1", STEP.label} & set(re.findall(r"[\w/]+", str(shared.value.problem())))
    assert await dump(house.store) == before


@pytest.mark.clause("guards.acquire", "guards.current-owner")
async def test_whoever_is_not_the_owner_any_more_admits_nothing(house: WatchHouse) -> None:
    execution = await house.opened()
    await house.apply(execution.fence, claims())
    house.lapse(execution)
    for fence, error in ((execution.fence, LeaseExpired), (Fence(execution.execution_id, 9), LeaseFenced)):
        with pytest.raises(error):
            await house.apply(fence, admit(house.holder))
    again = await house.held(execution.execution_id, "bob")
    with pytest.raises(LeaseFenced):
        await house.apply(execution.fence, admit(house.holder))
    assert await house.open_guards() == []
    assert again.lease.attempt == 2
    guard = await house.begin(again.fence)
    [row] = await house.rows("guards")
    assert (row["token"], row["attempt"], row["epoch"]) == (guard.token, 2, again.lease.epoch)


@pytest.mark.clause("guards.acquire", "guards.current-owner")
async def test_a_run_that_has_ended_admits_nothing(house: WatchHouse) -> None:
    execution = await house.opened()
    await house.apply(execution.fence, claims())
    await house.store.sql("UPDATE runs SET status = 'canceled', ended_at = 1")
    with pytest.raises(LeaseFenced):
        await house.apply(execution.fence, admit(house.holder))
    assert await house.protected() == []


@pytest.mark.clause("guards.acquire", "guards.scope")
async def test_an_entity_that_was_lost_admits_nothing(house: WatchHouse) -> None:
    execution, rival = await house.opened(scope="a"), await house.opened(scope="b")
    entity = await house.hold(execution.fence)
    await house.apply(execution.fence, LetEntity("customer", "7"))
    theirs = await house.hold(rival.fence)
    assert (entity.epoch, theirs.epoch) == (1, 2)
    for lease in (entity, theirs):
        with pytest.raises(LeaseFenced) as lost:
            await house.begin(execution.fence, entities=[lease])
        assert lost.value.members["key"] == "entity:customer:7"
    assert await house.open_guards() == []
    assert (await house.begin(rival.fence, entities=[theirs])).token


@pytest.mark.clause("guards.acquire")
async def test_a_callback_needs_an_entry_a_holder_and_a_declared_destination(house: WatchHouse) -> None:
    execution = await house.opened()
    with pytest.raises(EntryUnknown):
        await house.apply(execution.fence, admit(house.holder))
    with pytest.raises(DestinationUnknown):
        await house.begin(execution.fence, destination="nowhere")
    for holder in ("hld_" + "0" * 26, await gone(house)):
        with pytest.raises(HolderUnknown):
            await house.begin(execution.fence, holder=holder)
    [outcome] = await house.apply(execution.fence, put("known", 1))
    assert isinstance(outcome, Recorded)
    [told] = await house.apply(execution.fence, admit(house.holder, key("known")))
    assert told == outcome
    assert await house.open_guards() == []


async def gone(house: WatchHouse) -> str:
    holder = await house.engine()
    await house.leave(holder)
    return holder


async def test_one_callback_a_list_and_none_with_an_end(house: WatchHouse) -> None:
    execution = await house.opened()
    for operations in (
        [claims(), admit(house.holder), admit(house.holder)],
        [claims(), admit(house.holder), Suspend("suspended", None)],
        [HoldEntity("customer", "7"), Close("canceled")],
        [HoldEntity("customer", str(number)) for number in range(9)],
    ):
        with pytest.raises(RequestInvalid):
            await house.apply(execution.fence, *operations)


# --- identity, window, class -----------------------------------------------------------------------------------------


@pytest.mark.clause("guards.identity", "guards.window", "guards.class", "guards.inspect")
async def test_a_guard_tells_of_whom_it_is_and_what_its_request_carries(house: WatchHouse) -> None:
    execution = await house.opened(scope="a/b")
    entity = await house.hold(execution.fence)
    house.pass_time(1)
    told = await house.begin(execution.fence, destination="bank", entities=[entity])
    [guard] = await house.guards()
    assert told.idempotency_key == idempotency_key(execution.execution_id, STEP) == guard.idempotency_key
    assert told.target is not None
    assert (told.target.url, told.target.methods, told.publication) == ("https://bank.test/in", ("POST",), False)
    assert (told.admitted_at, told.window_ends_at) == (house.now, house.now + WINDOW * 1000)
    shown = guard.wire(house.now)
    assert shown == {
        "token": told.token,
        "class": "replay-safe",
        "publication": False,
        "scopes": ["a", "a/b"],
        "lease_keys": ["entity:customer:7"],
        "execution_id": execution.execution_id,
        "run_id": execution.run_id,
        "scope": "a/b",
        "attempt": 1,
        "epoch": 1,
        "holder": house.holder,
        "entry_key": {"label": STEP.label, "input_sha256": STEP.input_sha256},
        "idempotency_key": told.idempotency_key,
        "destination": "bank",
        "admitted_at": "2027-01-15T08:00:01.000Z",
        "since": "2027-01-15T08:00:01.000Z",
        "window_seconds": WINDOW,
        "window_ends_at": "2027-01-15T09:00:01.000Z",
        "holder_name": "r:00",
        "holder_exited_at": None,
        "lease_expires_at": "2027-01-15T08:00:30.000Z",
    }
    assert canonical.dumps(shown)


@pytest.mark.clause("guards.window", "guards.class")
async def test_the_window_counts_from_admission_and_its_last_instant_is_over(house: WatchHouse) -> None:
    await house.working("a", "bank")
    await house.working("b", "press")
    await house.working("c", "printer")
    await house.working("d", publication=True)
    await house.working("e")
    classes = {guard.scope: guard.evidence_class(house.now) for guard in await house.guards()}
    later = {"b": "receipt-required", "c": "unknown", "d": "receipt-required", "e": "unknown"}
    assert classes == {"a": "replay-safe", **later}
    [bank] = await house.guards(scope="a")
    ends = bank.window_ends_at
    assert ends is not None
    house.now = type(house.now)(ends - 1)
    assert [one.scope for one in await house.guards(evidence_class="replay-safe")] == ["a"]
    house.now = ends
    assert await house.guards(evidence_class="replay-safe") == []
    assert {guard.scope: guard.evidence_class(house.now) for guard in await house.guards()} == {"a": "unknown", **later}


# --- release ---------------------------------------------------------------------------------------------------------


@pytest.mark.clause("guards.release")
async def test_a_holder_removes_its_guard_with_the_value_and_before_it(house: WatchHouse) -> None:
    execution, guard = await house.working("a/b", "bank")
    sent = house.listen()
    await house.apply(execution.fence, record("charge", "done"), ReleaseGuard(guard.token, house.holder))
    statements = [one.sql for one in sent[-1]]
    removed = next(at for at, sql in enumerate(statements) if sql.startswith("DELETE FROM guards"))
    written = next(at for at, sql in enumerate(statements) if "INSERT INTO journal" in sql)
    assert removed < written
    assert (await house.open_guards(), await house.protected()) == ([], [])
    assert await house.types(guard.token) == ["guard.admitted", "guard.released"]


@pytest.mark.clause("guards.release")
async def test_nobody_elses_guard_is_removed(house: WatchHouse) -> None:
    execution, guard = await house.working("a")
    _, other = await house.working("b")
    before = await dump(house.store)
    for token, holder in ((guard.token, await house.engine("other")), (other.token, house.holder)):
        with pytest.raises(GuardUnknown):
            await house.apply(execution.fence, ReleaseGuard(token, holder), record("charge", 1))
    assert {**await dump(house.store), "holders": [], "history": []} == {**before, "holders": [], "history": []}
    await house.apply(execution.fence, ReleaseGuard("grd_never", house.holder), SetMetadata({"a": 1}))


@pytest.mark.clause("guards.release", "guards.live-holder")
async def test_a_holder_whose_lease_is_over_removes_nothing(house: WatchHouse) -> None:
    execution, guard = await house.working("a")
    house.lapse(execution)
    with pytest.raises(LeaseExpired):
        await house.end(execution.fence, guard.token)
    assert await house.open_guards() == [guard.token]


@pytest.mark.clause("guards.release")
async def test_one_effect_after_another_in_one_list(house: WatchHouse) -> None:
    execution, guard = await house.working("a", "bank")
    done = ReleaseGuard(guard.token, house.holder), record("charge", 1)
    outcomes = await house.apply(execution.fence, *done, claims(key("ship")), admit(house.holder, key("ship"), "printer"))
    assert await house.open_guards() == [admitted(outcomes[3]).token]


# --- replay ----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("guards.replay", "guards.holder-gone", "guards.crash-held")
async def test_a_lapsed_lease_alone_releases_nothing_however_long_it_lasts(house: WatchHouse) -> None:
    execution, guard = await house.working("a", "bank")
    for seconds in (31, 300, WINDOW):
        house.pass_time(seconds)
        with pytest.raises(ExecutionGuardBlocked) as blocked:
            await house.take(execution.execution_id, "bob")
        assert blocked.value.members["token"] == guard.token
    assert await house.open_guards() == [guard.token]
    assert await house.audit() == []


@pytest.mark.clause("guards.replay", "guards.blocked")
@pytest.mark.parametrize("destination", ["bank", "printer", None])
async def test_when_the_window_is_over_or_there_is_none_a_gone_holders_guard_stays_for_operators(
    house: WatchHouse, destination: str | None
) -> None:
    execution, guard = await house.working("a", destination)
    await house.leave()
    house.pass_time(WINDOW if destination == "bank" else 31)
    with pytest.raises(ExecutionGuardBlocked) as blocked:
        await house.take(execution.execution_id, "bob")
    members = blocked.value.members
    assert (members["token"], members["evidence_class"]) == (guard.token, "unknown")
    assert members["command"].startswith(f"moorage storage reconcile-guard --project <project> {guard.token}")
    assert blocked.value.retryable
    assert await house.open_guards() == [guard.token]


@pytest.mark.clause("guards.replay")
async def test_within_the_window_release_and_takeover_are_one_and_the_key_is_the_same(house: WatchHouse) -> None:
    execution, guard = await house.working("a/b", "bank")
    await house.leave()
    assert await house.take(execution.execution_id, "bob") is None
    assert await house.open_guards() == [guard.token]
    house.lapse(execution)
    taken = await house.held(execution.execution_id, "bob")
    assert (await house.open_guards(), await house.protected()) == ([], [])
    assert await house.types(guard.token) == ["guard.admitted", "guard.replayed"]
    assert (taken.lease.attempt, [(one.key, one.state) for one in taken.entries]) == (2, [(STEP, "pending")])
    house.holder = await house.engine("second")
    again = await house.begin(taken.fence, destination="bank")
    assert again.idempotency_key == guard.idempotency_key
    assert again.token != guard.token
    await house.end(taken.fence, again.token)
    with pytest.raises(LeaseFenced):
        await house.end(execution.fence, guard.token)


@pytest.mark.clause("guards.replay", "guards.window")
async def test_however_often_a_key_is_sent_its_window_counts_from_the_first_time(house: WatchHouse) -> None:
    execution, guard = await house.working("a", "bank")
    first = house.now
    for _ in range(2):
        await house.leave()
        house.pass_time(WINDOW // 3)
        taken = await house.held(execution.execution_id, "bob")
        house.holder = await house.engine()
        again = await house.begin(taken.fence, destination="bank")
        assert (again.idempotency_key, again.window_ends_at) == (guard.idempotency_key, first + WINDOW * 1000)
    await house.leave()
    house.pass_time(WINDOW // 3 + 1)
    with pytest.raises(ExecutionGuardBlocked):
        await house.take(execution.execution_id, "bob")


@pytest.mark.clause("guards.replay", "guards.window")
@pytest.mark.parametrize("released", ["by a takeover", "by hand"])
async def test_a_key_that_was_to_be_sent_again_is_not_once_its_window_is_over(house: WatchHouse, released: str) -> None:
    """Whoever took over fell silent before it sent anything: then the first request may be forgotten by now."""
    execution, guard = await house.working("a", "bank")
    await house.leave()
    house.lapse(execution)
    if released == "by hand":
        await house.reconcile(guard.token, f"idempotency:{guard.idempotency_key}")
    await house.held(execution.execution_id, "bob")
    house.holder = await house.engine()
    house.pass_time(WINDOW)
    taken = await house.held(execution.execution_id, "cid")
    operations = claims(), admit(house.holder, destination="bank")
    [_, told] = await house.apply(taken.fence, *operations)
    assert told == (await house.apply(taken.fence, *operations))[1]
    assert isinstance(told, Doubtful)
    assert (told.evidence_class, await house.open_guards()) == ("unknown", [told.token])
    await house.apply(taken.fence, Suspend("suspended", None, [{"guard": told.token}]))
    with pytest.raises(ExecutionGuardBlocked):
        await house.take(execution.execution_id)
    with pytest.raises(ExecutionGuardEvidenceMismatch):
        await house.reconcile(told.token, f"idempotency:{guard.idempotency_key}")
    await house.reconcile(told.token, f"receipt:{guard.idempotency_key}:ch_1")
    again = await house.held(execution.execution_id)
    assert [(one.key, one.state) for one in again.entries] == [(STEP, "done")]


@pytest.mark.clause("guards.holder-gone", "runs.wake")
async def test_an_exit_wakes_what_may_go_on_without_an_operator(house: WatchHouse) -> None:
    safe, _ = await house.working("a", "bank")
    unsafe, _ = await house.working("b", "printer")
    for execution in (safe, unsafe):
        await house.apply(execution.fence, Suspend("suspended", None))
    await house.leave()
    due = {row["execution_id"]: row["wake_at"] is not None for row in await house.rows("executions")}
    assert due == {safe.execution_id: True, unsafe.execution_id: False}
    assert await house.take(safe.execution_id, "bob") is not None


# --- live-holder, evidence, container-stop ---------------------------------------------------------------------------


@pytest.mark.clause("guards.live-holder")
async def test_while_the_owners_lease_is_live_an_operator_is_refused(house: WatchHouse) -> None:
    _, guard = await house.working("a", "bank")
    for evidence in (f"idempotency:{guard.idempotency_key}", f"receipt:{guard.idempotency_key}:ch_1"):
        with pytest.raises(ExecutionGuardHeld) as held:
            await house.reconcile(guard.token, evidence)
        assert held.value.members["token"] == guard.token
    assert await house.open_guards() == [guard.token]
    assert await house.audit() == []


@pytest.mark.clause("guards.evidence")
async def test_another_key_is_no_evidence(house: WatchHouse) -> None:
    execution, guard = await house.working("a", "bank")
    other, _ = await house.working("b", "bank")
    foreign = idempotency_key(other.execution_id, STEP)
    own = guard.idempotency_key
    house.lapse(execution)
    for evidence in (
        f"idempotency:{foreign}",
        f"receipt:{foreign}:ch_1",
        f"idempotency:{own} ",
        f"idempotency:{own.upper()}",
        f"IDEMPOTENCY:{own}",
        f"receipt:{own}",
        f"receipt:{own}:",
        f"receipt:{own}: ",
        f"receipt:{own}:a\nb",
        f"receipt:{own}:{'x' * 1025}",
        own,
        "seen",
        "",
    ):
        with pytest.raises(ExecutionGuardEvidenceMismatch):
            await house.reconcile(guard.token, evidence)
    assert guard.token in await house.open_guards()
    assert await house.audit() == []


@pytest.mark.clause("guards.evidence", "guards.window")
async def test_without_a_window_the_key_is_no_evidence_and_a_receipt_is(house: WatchHouse) -> None:
    execution, guard = await house.working("a", "printer")
    house.lapse(execution)
    with pytest.raises(ExecutionGuardEvidenceMismatch):
        await house.reconcile(guard.token, f"idempotency:{guard.idempotency_key}")
    done = await house.reconcile(guard.token, f"receipt:{guard.idempotency_key}:ch_1:2")
    assert done.receipt == "ch_1:2"
    assert await house.open_guards() == []


@pytest.mark.clause("guards.evidence", "guards.window")
async def test_when_the_window_is_over_the_key_is_no_evidence_any_more(house: WatchHouse) -> None:
    execution, guard = await house.working("a", "bank")
    house.lapse(execution)
    house.pass_time(WINDOW - 31)
    with pytest.raises(ExecutionGuardEvidenceMismatch):
        await house.reconcile(guard.token, f"idempotency:{guard.idempotency_key}")


@pytest.mark.clause("guards.crash-held", "guards.live-holder", "guards.blocked")
async def test_a_container_that_stops_leaves_its_guard_until_evidence_once_the_lease_has_lapsed(house: WatchHouse) -> None:
    execution, guard = await house.working("a", "bank")
    evidence = f"idempotency:{guard.idempotency_key}"
    assert await house.take(execution.execution_id, "bob") is None
    with pytest.raises(ExecutionGuardHeld):
        await house.reconcile(guard.token, evidence)
    house.lapse(execution)
    with pytest.raises(ExecutionGuardBlocked):
        await house.take(execution.execution_id, "bob")
    await house.reconcile(guard.token, evidence)
    taken = await house.held(execution.execution_id, "bob")
    assert [(one.key, one.state) for one in taken.entries] == [(STEP, "pending")]


# --- callback-limits -------------------------------------------------------------------------------------------------


@pytest.mark.clause("guards.callback-limits")
async def test_under_a_guard_metadata_is_set_and_owner_and_leases_stay(house: WatchHouse) -> None:
    execution = await house.opened(scope="a")
    entity = await house.hold(execution.fence)
    guard = await house.begin(execution.fence, entities=[entity])
    await house.apply(execution.fence, SetMetadata({"percent": 50}))
    for operation in (LetEntity("customer", "7"), Close("success", value(1))):
        with pytest.raises(ExecutionGuardBlocked) as blocked:
            await house.apply(execution.fence, operation)
        assert blocked.value.members["token"] == guard.token
    with pytest.raises(GuardedElsewhere):
        await house.begin(execution.fence, key("nested"))
    done = ReleaseGuard(guard.token, house.holder), record("charge", 1), LetEntity("customer", "7")
    await house.apply(execution.fence, *done)
    await house.apply(execution.fence, LetEntity("customer", "7"), Close("success", value(1)))


# --- entities --------------------------------------------------------------------------------------------------------


@pytest.mark.clause("guards.scope", "leases.claim")
async def test_one_execution_at_a_time_holds_an_entity_and_renewing_keeps_it(house: WatchHouse) -> None:
    one, two = await house.opened(scope="a"), await house.opened(scope="b")
    first = await house.hold(one.fence)
    assert await house.hold(one.fence) == first
    with pytest.raises(LeaseHeld) as held:
        await house.apply(two.fence, put("x", 1), HoldEntity("customer", "7"))
    assert held.value.retry_after == 30
    house.pass_time(20)
    await house.substrate.renew([one.fence, two.fence])
    house.pass_time(20)
    with pytest.raises(LeaseHeld):
        await house.hold(two.fence)
    house.pass_time(9.999)
    await house.substrate.renew([two.fence])
    house.pass_time(0.001)
    assert await house.hold(two.fence) == EntityLease("customer", "7", 2)
    with pytest.raises(LeaseExpired):
        await house.hold(one.fence)
    assert (await house.entries(two.execution_id)) == {}


@pytest.mark.clause("guards.scope")
async def test_an_entitys_name_cannot_be_another_lease(house: WatchHouse) -> None:
    execution = await house.opened()
    for namespace, name in (("Customer", "7"), ("a:b", "7"), ("", "7"), ("customer", ""), ("customer", "a\nb")):
        with pytest.raises(IdInvalid):
            await house.hold(execution.fence, name, namespace)
    assert await house.rows("leases") == []

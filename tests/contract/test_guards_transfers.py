"""What a guard keeps from changing hands: every way in which an execution does, and what each leaves of it."""

from typing import Any

import pytest

from moorage.catalog.access import Grant
from moorage.kernel import canonical
from moorage.kernel.errors import EffectUnsettled, ExecutionBusy, ExecutionGuardBlocked, ExecutionPinMismatch, LeaseFenced
from moorage.kernel.instants import Instant
from moorage.runs import admission, hosting, letting_go, restart, stop
from moorage.runs.due import RunRetention, RunsDue
from moorage.runs.model import BodyInfo, Execution, Failure
from moorage.runs.operations import Close, ReleaseGuard, StartChild, Suspend
from moorage.runs.take import take_next
from moorage.runs.tracing_context import trace_of
from moorage.store.transaction import Transaction
from tests.contract.adapters import Store, dump
from tests.contract.executions import Poked
from tests.contract.harbor import BODIES, ROOT, TRACE, credential, key, put, record, value
from tests.contract.occasions import fire
from tests.contract.runs_desk import REMOTE
from tests.contract.watch_house import STEP, WINDOW, WatchHouse

FAILED = Close("failed", error=Failure("Permanent", "no"))


@pytest.fixture
async def house(store: Store) -> WatchHouse:
    return await WatchHouse.of(store)


async def stuck(
    house: WatchHouse, scope: str = "a", destination: str | None = None, *, done: bool = True
) -> tuple[Any, Any]:
    """An execution whose owner fell silent while an effect was in flight, with one step before it."""
    execution = await house.opened(scope=scope)
    if done:
        await house.apply(execution.fence, put("before", 1))
    guard = await house.begin(execution.fence, destination=destination)
    house.lapse(execution)
    return execution, guard


# --- opening ---------------------------------------------------------------------------------------------------------


@pytest.mark.clause("guards.blocked")
async def test_an_opening_does_not_join_what_a_guard_protects(house: WatchHouse) -> None:
    execution, guard = await stuck(house)
    before = await house.row(execution.execution_id)
    with pytest.raises(ExecutionGuardBlocked) as blocked:
        await house.open(scope="a")
    members = blocked.value.members
    assert (members["token"], members["evidence_class"], members["scope"]) == (guard.token, "unknown", "a")
    assert guard.token in members["command"]
    refused = await house.run(members["run_id"])
    assert (refused["status"], canonical.loads(refused["error"].encode())["code"]) == ("failed", "ExecutionGuardBlocked")
    assert await house.row(execution.execution_id) == before
    assert (await house.run(execution.run_id))["status"] == "running"
    assert (await house.entries(execution.execution_id))["charge"]["state"] == "pending"
    await house.reconcile(guard.token, f"receipt:{guard.idempotency_key}:ch_1")
    assert await house.open(scope="a") == execution.execution_id


@pytest.mark.clause("guards.blocked", "catalog.grants")
async def test_who_may_not_see_the_body_is_not_told_of_its_guard(house: WatchHouse) -> None:
    _, guard = await stuck(house)
    caller = await credential(house.store, "ann", Grant(frozenset({"execute"}), ("part",)))
    start = admission.Start("a", value(None), caller.subject, caller.credential, TRACE)
    with pytest.raises(ExecutionPinMismatch) as other:
        await admission.admit(house.db(), house.store.blobs, caller, house.now, BODIES["part"], start)
    assert guard.token not in str(other.value.problem())


@pytest.mark.clause("guards.blocked")
async def test_what_refused_before_refuses_still_in_its_own_words(house: WatchHouse) -> None:
    execution, _ = await house.working("a")
    with pytest.raises(ExecutionBusy):
        await house.open(scope="a")
    house.lapse(execution)
    with pytest.raises(ExecutionPinMismatch):
        await house.open(scope="a", given="something else")


@pytest.mark.clause("guards.replay")
async def test_a_worker_joins_what_gives_way_and_takes_it_over_with_its_guard(house: WatchHouse) -> None:
    execution, guard = await stuck(house, destination="bank")
    await house.leave()
    assert await house.open(scope="a") == execution.execution_id
    assert await house.open_guards() == [guard.token]
    taken = await house.held(execution.execution_id)
    assert await house.open_guards() == []
    assert taken.run_id != execution.run_id
    house.holder = await house.engine()
    assert (await house.begin(taken.fence, destination="bank")).idempotency_key == guard.idempotency_key


async def remote(house: WatchHouse, scope: str | None = "a", info: BodyInfo = REMOTE, holder: str = "h1") -> Execution:
    """An execution of a host elsewhere, which holds it at once."""
    start = admission.Start(scope, value(None), "root", None, TRACE)
    return await hosting.open_(house.db(), house.store.blobs, ROOT, house.now, info, start, holder)


@pytest.mark.clause("guards.replay", "guards.blocked", "guards.holder-gone")
async def test_a_host_elsewhere_opens_anew_only_when_the_guard_gives_way_and_then_removes_it(house: WatchHouse) -> None:
    execution = await remote(house)
    guard = await house.begin(execution.fence, destination="bank")
    house.lapse(execution)
    assert await fire(RunsDue(), house.db, house.now, execution.execution_id) == 1
    assert (await house.run(execution.run_id))["status"] == "partial_failure"
    assert await house.open_guards() == [guard.token]
    with pytest.raises(ExecutionGuardBlocked):
        await remote(house, holder="h2")
    assert await house.open_guards() == [guard.token]
    await house.leave()
    again = await remote(house, holder="h2")
    assert again.execution_id == execution.execution_id
    assert (await house.open_guards(), await house.protected()) == ([], [])
    assert await house.types(guard.token) == ["guard.admitted", "guard.replayed"]
    house.holder = await house.engine()
    second = await house.begin(again.fence, destination="bank")
    assert (second.idempotency_key, second.window_ends_at) == (guard.idempotency_key, guard.window_ends_at)


@pytest.mark.clause("guards.replay", "guards.blocked")
async def test_what_waits_for_hosts_elsewhere_is_passed_over_until_its_guard_gives_way(house: WatchHouse) -> None:
    execution = await remote(house)
    guard = await house.begin(execution.fence, destination="bank")
    await house.apply(execution.fence, Suspend("waiting", Instant(house.now + 1000)))
    house.pass_time(2)
    await fire(RunsDue(), house.db, house.now, execution.execution_id)
    builds = {REMOTE.name: REMOTE.build}
    digests = {REMOTE.name: REMOTE.build.digest}
    assert not await hosting.anything_waits(house.db(), house.now, builds)
    assert not (await hosting.standing(house.db(), ROOT, house.now, execution.execution_id)).due
    assert await take_next(house.db(), house.store.blobs, house.now, "root/h2", digests) is None
    with pytest.raises(ExecutionGuardBlocked):
        await hosting.take_one(house.db(), house.store.blobs, house.now, execution.execution_id, "root/h2", builds)
    await house.leave()
    assert await hosting.anything_waits(house.db(), house.now, builds)
    assert (await hosting.standing(house.db(), ROOT, house.now, execution.execution_id)).due
    taken = await take_next(house.db(), house.store.blobs, house.now, "root/h2", digests)
    assert taken is not None
    assert await house.types(guard.token) == ["guard.admitted", "guard.replayed"]


# --- ending ----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("guards.blocked")
@pytest.mark.parametrize("ending", [Close("success", value(1)), FAILED], ids=lambda one: one.status)
async def test_an_owner_does_not_end_what_its_own_effect_may_yet_change(house: WatchHouse, ending: Close) -> None:
    execution, guard = await house.working("a")
    with pytest.raises(ExecutionGuardBlocked) as blocked:
        await house.apply(execution.fence, record("charge", 1), ending)
    assert blocked.value.members["token"] == guard.token
    assert (await house.entries(execution.execution_id))["charge"]["state"] == "pending"
    await house.apply(execution.fence, ReleaseGuard(guard.token, house.holder), record("charge", 1), ending)
    assert (await house.run(execution.run_id))["status"] == ending.status


@pytest.mark.clause("runs.cancel-keeps-effects", "guards.blocked")
async def test_what_is_canceled_ends_and_its_effect_stays_guarded(house: WatchHouse) -> None:
    execution, guard = await house.working("a")
    await house.apply(execution.fence, Close("canceled"))
    assert (await house.run(execution.run_id))["status"] == "canceled"
    row = await house.row(execution.execution_id)
    assert row is not None
    assert (row["owner"], row["wake_at"]) == (None, None)
    assert (await house.entries(execution.execution_id))["charge"]["state"] == "pending"
    with pytest.raises(ExecutionGuardBlocked):
        await house.open(scope="a")
    await house.reconcile(guard.token, f"receipt:{guard.idempotency_key}:ch_1")
    again = await house.held(await house.open(scope="a"))
    assert [(one.key, one.state) for one in again.entries] == [(STEP, "done")]


@pytest.mark.clause("runs.cancel-keeps-effects", "guards.blocked")
@pytest.mark.parametrize("done", [True, False])
async def test_a_stop_of_what_nobody_holds_ends_the_run_and_hides_no_effect(house: WatchHouse, done: bool) -> None:
    execution, guard = await stuck(house, done=done)
    assert await stop.stop(house.db(), ROOT, house.now, execution.run_id) == [execution.run_id]
    assert (await house.run(execution.run_id))["status"] == "canceled"
    assert await house.row(execution.execution_id) is not None
    assert (await house.open_guards(), await house.protected()) == ([guard.token], ["scope:a"])
    assert (await house.entries(execution.execution_id))["charge"]["state"] == "pending"


@pytest.mark.clause("guards.scope", "guards.blocked")
async def test_a_parent_does_not_succeed_while_an_effect_of_its_child_is_in_flight(house: WatchHouse) -> None:
    parent = await house.opened(scope="job")
    await house.apply(parent.fence, put("x", 1), StartChild(key("child"), "0", "part", value(1), "job/part"))
    [child] = await house.store.sql("SELECT execution_id FROM executions WHERE scope = 'job/part'")
    held = await house.held(child["execution_id"])
    guard = await house.begin(held.fence)
    with pytest.raises(ExecutionGuardBlocked) as blocked:
        await house.apply(parent.fence, Close("success", value(1)))
    assert blocked.value.members["token"] == guard.token
    await house.apply(parent.fence, FAILED)
    assert await house.row(parent.execution_id) is not None
    with pytest.raises(ExecutionGuardBlocked):
        await house.open(scope="job")
    await house.end(held.fence, guard.token)
    assert await house.open(scope="job") == parent.execution_id


@pytest.mark.clause("guards.scope", "runs.wake")
async def test_what_waited_for_a_guard_below_it_is_woken_when_that_is_released(house: WatchHouse) -> None:
    parent, other = await house.opened(scope="job"), await house.opened(scope="other")
    child = await house.opened("part", scope="job/part")
    guard = await house.begin(child.fence)
    await house.apply(parent.fence, Suspend("waiting", Instant(house.now + 1000)))
    await house.apply(other.fence, Suspend("waiting", Instant(house.now + 1000)))
    house.pass_time(2)
    with pytest.raises(ExecutionGuardBlocked):
        await house.take(parent.execution_id)
    poked = Poked(house.db())
    house.substrate.database = lambda: poked
    await house.end(child.fence, guard.token)
    assert poked.pokes == [parent.execution_id]


@pytest.mark.clause("guards.scope", "runs.wake")
async def test_who_says_that_it_waits_for_a_guard_is_woken_with_it(house: WatchHouse) -> None:
    parent = await house.opened(scope="job")
    idle = await house.opened(scope="job/part")
    child = await house.opened("part", scope="job/part/one")
    guard = await house.begin(child.fence)
    await house.apply(parent.fence, Suspend("suspended", None, [{"label": "end", "guard": guard.token}]))
    await house.apply(idle.fence, Suspend("suspended", None))
    poked = Poked(house.db())
    house.substrate.database = lambda: poked
    await house.end(child.fence, guard.token)
    assert poked.pokes == [parent.execution_id]


async def _restarted(house: WatchHouse, run_id: str) -> admission.Admitted:
    async def body(name: str) -> BodyInfo:
        return BODIES[name]

    db, trace = house.db(), trace_of(None)
    return await restart.restart(
        db, house.store.blobs, ROOT, house.now, run_id, body, trace, "mended", check=lambda info, value: None
    )


# --- retiring --------------------------------------------------------------------------------------------------------


@pytest.mark.clause("guards.blocked", "runs.rewind")
async def test_neither_rewinding_nor_restarting_gives_up_what_may_be_in_flight(house: WatchHouse) -> None:
    execution, guard = await stuck(house, destination="bank")
    await house.leave()
    before = await house.row(execution.execution_id)

    with pytest.raises(ExecutionGuardBlocked) as blocked:
        await house.rewind(execution.execution_id)
    assert blocked.value.members["token"] == guard.token
    with pytest.raises(ExecutionGuardBlocked):
        await _restarted(house, execution.run_id)
    assert await house.row(execution.execution_id) == before
    assert await house.open_guards() == [guard.token]
    await house.reconcile(guard.token, f"receipt:{guard.idempotency_key}:ch_1")
    assert (await _restarted(house, execution.run_id)).execution_id != execution.execution_id


@pytest.mark.clause("guards.replay", "runs.rewind")
@pytest.mark.parametrize("released", ["by a takeover", "by hand"])
async def test_an_execution_that_is_to_send_a_key_again_is_not_given_up_for_one_with_another_key(
    house: WatchHouse, released: str
) -> None:
    """Its guard gave way, and whoever was to send the key again fell silent or was stopped before that."""
    execution, guard = await stuck(house, destination="bank")
    if released == "by hand":
        await house.reconcile(guard.token, f"idempotency:{guard.idempotency_key}")
    else:
        await house.leave()
        await house.held(execution.execution_id, "bob")
        house.lapse()
    before = await dump(house.store)
    giving_up = (
        house.rewind(execution.execution_id),
        _restarted(house, execution.run_id),
    )
    for one in giving_up:
        with pytest.raises(EffectUnsettled) as refused:
            await one
        assert refused.value.members == {"label": "charge", "idempotency_key": guard.idempotency_key}
    assert await dump(house.store) == before
    house.holder = await house.engine()
    assert await house.open(scope="a") == execution.execution_id
    taken = await house.held(execution.execution_id, "cid")
    again = await house.begin(taken.fence, destination="bank")
    assert again.idempotency_key == guard.idempotency_key
    await house.apply(taken.fence, ReleaseGuard(again.token, house.holder), record("charge", 1), FAILED)
    assert (await _restarted(house, taken.run_id)).execution_id != execution.execution_id


@pytest.mark.clause("guards.replay", "runs.rewind")
async def test_what_is_known_to_be_settled_is_given_up_by_its_key(house: WatchHouse) -> None:
    execution, guard = await stuck(house, destination="bank")
    await house.reconcile(guard.token, f"idempotency:{guard.idempotency_key}")
    for keys in ([], ["moorage-" + "0" * 40]):
        with pytest.raises(EffectUnsettled):
            await house.rewind(execution.execution_id, keys)
    await house.rewind(execution.execution_id, [guard.idempotency_key])
    [told] = await house.store.sql("SELECT data FROM history WHERE type = 'execution.rewound'")
    assert canonical.loads(told["data"].encode())["settled"] == [guard.idempotency_key]


@pytest.mark.clause("guards.replay", "runs.cancel-keeps-effects")
@pytest.mark.parametrize("ends", ["stopped", "canceled", "failed"])
async def test_what_is_to_send_a_key_again_stays_however_its_run_ends(house: WatchHouse, ends: Any) -> None:
    """It has recorded nothing, and is kept for its key: the next opening of the scope sends that."""
    execution, guard = await stuck(house, destination="bank", done=False)
    await house.reconcile(guard.token, f"idempotency:{guard.idempotency_key}")
    if ends == "stopped":
        await stop.stop(house.db(), ROOT, house.now, execution.run_id)
    else:
        taken = await house.held(execution.execution_id, "bob")
        await house.apply(taken.fence, FAILED if ends == "failed" else Close("canceled"))
    assert (await house.run(execution.run_id))["status"] == ("failed" if ends == "failed" else "canceled")
    assert await house.open(scope="a") == execution.execution_id


@pytest.mark.clause("guards.window")
async def test_a_window_that_is_declared_later_says_nothing_of_what_was_sent_before(house: WatchHouse) -> None:
    execution, guard = await stuck(house, destination="bank")
    await house.leave()
    await house.held(execution.execution_id, "bob")
    await house.declare("bank", dedup_window_seconds=10 * WINDOW)
    house.holder = await house.engine()
    house.lapse()
    taken = await house.held(execution.execution_id, "cid")
    again = await house.begin(taken.fence, destination="bank")
    assert again.window_ends_at == guard.window_ends_at


@pytest.mark.clause("guards.blocked", "runs.rewind")
async def test_a_scope_is_not_rewound_above_an_effect_in_flight(house: WatchHouse) -> None:
    parent = await house.opened(scope="job")
    await house.apply(parent.fence, put("x", 1), FAILED)
    _, guard = await stuck(house, "job/part")
    with pytest.raises(ExecutionGuardBlocked) as blocked:
        await house.rewind(parent.execution_id)
    assert blocked.value.members["token"] == guard.token


@pytest.mark.clause("guards.blocked")
async def test_however_old_it_is_retention_keeps_what_a_guard_protects_and_its_record(house: WatchHouse) -> None:
    execution, guard = await house.working("a")
    await house.apply(execution.fence, Close("canceled"))
    plain = await house.opened(scope="b")
    await house.apply(plain.fence, put("x", 1), FAILED)
    house.pass_time(31 * 86_400)
    await RunRetention().fire(house.db(), house.now, "sweep")
    assert [row["run_id"] for row in await house.rows("runs")] == [execution.run_id]
    assert [row["execution_id"] for row in await house.rows("executions")] == [execution.execution_id]
    assert await house.open_guards() == [guard.token]
    [due] = await house.store.sql(RunRetention.earliest) or [{"due": None}]
    assert due == {"due": None}
    await house.reconcile(guard.token, f"receipt:{guard.idempotency_key}:ch_1")
    await RunRetention().fire(house.db(), house.now, "sweep")
    assert await house.rows("executions") == await house.rows("runs") == await house.rows("journal") == []
    assert len(await house.audit()) == 1


@pytest.mark.clause("guards.window")
async def test_what_is_known_of_keys_goes_with_the_record_of_their_execution(house: WatchHouse) -> None:
    execution, _ = await stuck(house, destination="bank")
    await house.leave()
    taken = await house.held(execution.execution_id)
    assert [row["since"] for row in await house.rows("guard_replays")] == [house.now - 31_000]
    await house.apply(taken.fence, record("charge", 1), Close("success", value(1)))
    assert len(await house.rows("guard_replays")) == 1
    house.pass_time(31 * 86_400)
    await RunRetention().fire(house.db(), house.now, "sweep")
    assert await house.rows("guard_replays") == []


@pytest.mark.clause("guards.blocked")
async def test_a_host_without_the_build_ends_the_run_and_the_guard_stays(house: WatchHouse) -> None:
    execution, guard = await stuck(house, done=False)
    assert await house.take(execution.execution_id, "bob", {"order": "f" * 64}) is None
    assert (await house.run(execution.run_id))["status"] == "failed"
    assert await house.row(execution.execution_id) is not None
    assert await house.open_guards() == [guard.token]


async def test_nothing_retires_what_a_guard_protects_even_if_asked_to(house: WatchHouse) -> None:
    execution, _ = await house.working("a")
    tx = Transaction(house.now)
    letting_go.close(tx, execution.fence, Close("failed"))
    await house.db().commit(tx)
    assert await house.row(execution.execution_id) is not None


# --- entity leases ---------------------------------------------------------------------------------------------------


@pytest.mark.clause("guards.scope", "guards.blocked")
async def test_an_entity_in_flight_is_not_taken_though_its_lease_has_lapsed(house: WatchHouse) -> None:
    execution, rival = await house.opened(scope="a"), await house.opened(scope="b")
    entity = await house.hold(execution.fence)
    guard = await house.begin(execution.fence, destination="bank", entities=[entity])
    await house.leave()
    house.pass_time(29)
    await house.substrate.renew([rival.fence])
    for seconds in (2, 20):
        house.pass_time(seconds)
        await house.substrate.renew([rival.fence])
        with pytest.raises(ExecutionGuardBlocked) as blocked:
            await house.hold(rival.fence)
        assert blocked.value.members["token"] == guard.token
        # Whoever shares an entity need not see who else works on it, or at what.
        told = str(blocked.value.problem())
        assert execution.execution_id not in told
        assert STEP.label not in told
    taken = await house.held(execution.execution_id, "bob")
    assert (await house.hold(rival.fence)).epoch == entity.epoch + 1
    house.holder = await house.engine()
    with pytest.raises(LeaseFenced):
        await house.begin(taken.fence, destination="bank", entities=[entity])
    assert await house.open_guards() == []


@pytest.mark.clause("guards.scope")
async def test_a_takeover_keeps_the_entities_of_its_execution(house: WatchHouse) -> None:
    execution = await house.opened(scope="a")
    await house.hold(execution.fence)
    house.pass_time(20)
    await house.hold(execution.fence)
    house.pass_time(11)
    taken = await house.held(execution.execution_id, "bob")
    assert (await house.hold(taken.fence)).epoch == 1
    await house.begin(taken.fence)
    assert "lease:entity:customer:7" in await house.protected()


@pytest.mark.clause("guards.blocked")
async def test_under_a_window_the_error_names_no_command(house: WatchHouse) -> None:
    execution, _ = await stuck(house, destination="bank")
    with pytest.raises(ExecutionGuardBlocked) as blocked:
        await house.take(execution.execution_id)
    assert blocked.value.members["evidence_class"] == "replay-safe"
    assert "command" not in blocked.value.members
    house.pass_time(WINDOW)
    with pytest.raises(ExecutionGuardBlocked) as blocked:
        await house.take(execution.execution_id)
    assert "reconcile-guard" in blocked.value.members["command"]

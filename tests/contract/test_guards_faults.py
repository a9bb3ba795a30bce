"""Guards when answers are lost: nothing is admitted twice, and nothing is released that was not."""

import pytest

from moorage.kernel.errors import ExecutionGuardBlocked, GuardUnknown, StorageBindingUnavailable
from moorage.runs import admission, hosting
from moorage.runs.operations import Admitted, Close, ReleaseGuard, SetMetadata
from tests.contract.adapters import Store, dump
from tests.contract.faults import Fault, Plan
from tests.contract.harbor import ROOT, TRACE, key, record, value
from tests.contract.runs_desk import REMOTE
from tests.contract.watch_house import WatchHouse, admit, admitted, claims

LOST = Plan(commits=[Fault.FAIL_AFTER])
LOST_SECOND = Plan(commits=[Fault.NONE, Fault.FAIL_AFTER])


@pytest.fixture
async def house(store: Store) -> WatchHouse:
    return await WatchHouse.of(store)


@pytest.mark.clause("guards.acquire", "store.transport")
async def test_an_admission_whose_answer_was_lost_is_answered_with_the_same_guard(house: WatchHouse) -> None:
    execution = await house.opened(scope="a/b")
    entity = await house.hold(execution.fence)
    operations = claims(), admit(house.holder, destination="bank", entities=[entity]), SetMetadata({"a": 1})
    house.faults = LOST
    with pytest.raises(StorageBindingUnavailable):
        await house.apply(execution.fence, *operations)
    house.faults = None
    before = await dump(house.store)
    house.pass_time(3)
    told = admitted((await house.apply(execution.fence, *operations))[1])
    assert await dump(house.store) == before
    assert await house.open_guards() == [told.token]
    assert told.admitted_at == house.now - 3000
    assert told.target is not None


@pytest.mark.clause("guards.release", "store.transport")
async def test_a_release_whose_answer_was_lost_goes_on_to_the_next_effect_once(house: WatchHouse) -> None:
    execution, guard = await house.working("a", "bank")
    next_ = key("ship")
    done = ReleaseGuard(guard.token, house.holder), record("charge", 1)
    house.faults = LOST
    with pytest.raises(StorageBindingUnavailable):
        await house.apply(execution.fence, *done, claims(next_), admit(house.holder, next_))
    house.faults = None
    before = await dump(house.store)
    outcomes = await house.apply(execution.fence, *done, claims(next_), admit(house.holder, next_))
    assert await dump(house.store) == before
    assert isinstance(outcomes[3], Admitted)
    assert await house.open_guards() == [outcomes[3].token]


@pytest.mark.clause("guards.release", "store.transport")
async def test_a_release_with_the_end_of_the_run_may_be_sent_again(house: WatchHouse) -> None:
    execution, guard = await house.working("a", "bank")
    operations = ReleaseGuard(guard.token, house.holder), record("charge", 1), Close("success", value(1))
    house.faults = LOST
    with pytest.raises(StorageBindingUnavailable):
        await house.apply(execution.fence, *operations)
    house.faults = None
    assert len(await house.apply(execution.fence, *operations)) == 3
    assert (await house.open_guards(), await house.rows("executions")) == ([], [])


@pytest.mark.clause("guards.replay", "store.transport")
async def test_a_takeover_whose_answer_was_lost_has_released_and_taken_both(house: WatchHouse) -> None:
    execution, guard = await house.working("a", "bank")
    await house.leave()
    house.lapse(execution)
    before = await dump(house.store)
    house.faults = Plan(commits=[Fault.NONE, Fault.FAIL_BEFORE])
    with pytest.raises(StorageBindingUnavailable):
        await house.take(execution.execution_id, "bob")
    assert await dump(house.store) == before
    house.faults = LOST_SECOND
    with pytest.raises(StorageBindingUnavailable):
        await house.take(execution.execution_id, "bob")
    house.faults = None
    assert await house.open_guards() == []
    assert await house.types(guard.token) == ["guard.admitted", "guard.replayed"]
    assert await house.take(execution.execution_id, "bob") is None
    house.pass_time(31)
    taken = await house.held(execution.execution_id, "bob")
    house.holder = await house.engine()
    again = await house.begin(taken.fence, destination="bank")
    assert (again.idempotency_key, again.window_ends_at) == (guard.idempotency_key, guard.window_ends_at)


@pytest.mark.clause("guards.replay", "store.transport")
async def test_an_opening_elsewhere_whose_answer_was_lost_has_released_and_taken_both(house: WatchHouse) -> None:
    start = admission.Start("a", value(None), "root", None, TRACE)
    blobs = house.store.blobs
    execution = await hosting.open_(house.db(), blobs, ROOT, house.now, REMOTE, start, "h1")
    guard = await house.begin(execution.fence, destination="bank")
    await house.leave()
    house.lapse(execution)
    house.faults = LOST
    with pytest.raises(StorageBindingUnavailable):
        await hosting.open_(house.db(), blobs, ROOT, house.now, REMOTE, start, "h2")
    house.faults = None
    assert await house.open_guards() == []
    [row] = await house.rows("executions")
    assert row["owner"] == "root/h2"
    assert await house.types(guard.token) == ["guard.admitted", "guard.replayed"]


@pytest.mark.clause("guards.release", "guards.acquire")
async def test_a_release_that_is_delivered_late_removes_no_later_guard(house: WatchHouse) -> None:
    execution, first = await house.working("a", "bank")
    await house.end(execution.fence, first.token)
    second = await house.begin(execution.fence, key("ship"))
    await house.apply(execution.fence, ReleaseGuard(first.token, house.holder), SetMetadata({}))
    assert await house.open_guards() == [second.token]
    other = await house.engine()
    with pytest.raises(GuardUnknown):
        await house.apply(execution.fence, ReleaseGuard(second.token, other), SetMetadata({}))


@pytest.mark.clause("guards.acquire")
async def test_an_admission_that_is_delivered_twice_leaves_one_guard(house: WatchHouse) -> None:
    execution = await house.opened(scope="a")
    house.faults = Plan(commits=[Fault.DUPLICATE])
    told = await house.begin(execution.fence, destination="bank")
    house.faults = None
    assert await house.open_guards() == [told.token]
    await house.end(execution.fence, told.token)
    assert await house.protected() == []


@pytest.mark.clause("guards.crash-held")
async def test_a_release_that_never_arrived_leaves_the_guard_for_operators(house: WatchHouse) -> None:
    execution, guard = await house.working("a", "printer")
    house.faults = Plan(commits=[Fault.FAIL_BEFORE])
    with pytest.raises(StorageBindingUnavailable):
        await house.end(execution.fence, guard.token)
    house.faults = None
    house.lapse(execution)
    with pytest.raises(ExecutionGuardBlocked):
        await house.take(execution.execution_id)
    assert await house.open_guards() == [guard.token]

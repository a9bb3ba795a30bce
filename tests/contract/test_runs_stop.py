"""Stopping runs: what is stopped at which grain, who may, and that exactly one end wins."""

import asyncio

import pytest

from moorage.catalog.access import Grant
from moorage.journal.model import Lease, Value
from moorage.kernel import canonical
from moorage.kernel.errors import (
    CancelTargetNotInFlight,
    CancelUnauthorized,
    MoorageError,
    RequestInvalid,
    RunUnknown,
    Unauthenticated,
)
from moorage.kernel.instants import Instant
from moorage.runs import stop
from moorage.runs.model import Execution, Pins
from moorage.runs.record import grain
from moorage.runs.tracing_context import trace_of
from tests.contract.adapters import Store, dump
from tests.contract.faults import Fault, FaultyDatabase, Plan
from tests.contract.runs_desk import REMOTE, ROOT, RunsDesk, Watched


@pytest.fixture
def desk(store: Store) -> RunsDesk:
    return RunsDesk(store)


@pytest.mark.clause("runs.stop-channel", "runs.cancel-race")
async def test_a_live_run_is_marked_and_goes_on_until_its_host_closes_it(desk: RunsDesk) -> None:
    held = await desk.open_remote("job")
    before = await desk.execution(held.execution_id)
    desk.pass_time(1)
    assert await desk.stop(held.run_id, reason="too slow") == [held.run_id]
    run = await desk.show(held.run_id)
    assert run.status == "running"
    assert run.stop is not None
    assert (run.stop.requested_at, run.stop.scope, run.stop.reason) == (desk.now, "run", "too slow")
    assert run.wire()["stop"]["reason"] == "too slow"
    assert await desk.execution(held.execution_id) == before
    desk.pass_time(1)
    await desk.stop(held.run_id, "pipeline")
    again = (await desk.show(held.run_id)).stop
    assert again is not None
    assert (again.requested_at, again.scope, again.reason) == (desk.now, "pipeline", None)
    await desk.close(held.fence, "canceled")
    assert await desk.status(held.run_id) == "canceled"
    assert await desk.types(held.run_id) == ["run.opened", "run.stop_requested", "run.stop_requested", "run.closed"]


@pytest.mark.clause("runs.stop-channel")
async def test_a_stop_pokes_whoever_executes_and_the_parent_of_what_it_ends(desk: RunsDesk, store: Store) -> None:
    parent = await desk.open_remote("parent")
    child = await desk.admit("child", handoff=False, parent_execution=parent.execution_id, parent_run=parent.run_id)
    await desk.suspend(parent.fence)
    db = Watched(store)
    await stop.stop(db, ROOT, desk.now, child.run_id)
    assert db.poked == [parent.execution_id]
    row = await desk.execution(parent.execution_id)
    assert row is not None
    assert (row["wake_at"], row["claimable"]) == (desk.now + 5000, 1)
    live = await desk.open_remote("live")
    await stop.stop(db, ROOT, desk.now, live.run_id)
    assert db.poked == [parent.execution_id, live.execution_id]


@pytest.mark.clause("runs.stop-channel", "runs.distinct-canceled", "runs.resumable-remains", "runs.pin-release")
@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("state", ["fresh", "suspended", "waiting", "lapsed"])
async def test_what_nobody_executes_ends_with_the_stop_and_what_it_recorded_remains(
    desk: RunsDesk, state: str, recorded: bool
) -> None:
    held = await (_fresh(desk) if state == "fresh" else desk.open_remote("job"))
    run_id, execution_id = held.run_id, held.execution_id
    if recorded:
        await desk.note(execution_id, "one")
    await desk.note(execution_id, "two", "pending", position="1")
    if state == "lapsed":
        desk.pass_time(30)
    elif state != "fresh":
        await desk.suspend(held.fence, Instant(desk.now + 60_000) if state == "waiting" else None)
    assert await desk.stop(run_id) == [run_id]
    run = await desk.show(run_id)
    assert (run.status, run.ended_at, run.error, run.next_attempt_at) == ("canceled", desk.now, None, None)
    assert [step.key.label for step in (await desk.steps(run_id)).items] == (["one", "two"] if recorded else ["two"])
    row = await desk.execution(execution_id)
    if not recorded:
        assert row is None
        assert await desk.journal(execution_id) == {}
        return
    assert row is not None
    assert (row["owner"], row["expires_at"], row["wake_at"], row["claimable"]) == (None, None, None, 0)
    assert await desk.journal(execution_id) == {"one": "done", "two": "pending"}
    assert await desk.take(execution_id) is None
    if state != "fresh":
        again = await desk.open_remote("job")
        assert again.execution_id == execution_id
        assert [entry.key.label for entry in again.entries] == ["one", "two"]


async def _fresh(desk: RunsDesk) -> Execution:
    """A remote execution that no host has taken, as it would be if one had."""
    made = await desk.admit("job", info=REMOTE)
    pins = Pins(REMOTE.build, canonical.digest("1"))
    lease = Lease(0, "", desk.now)
    return Execution(made.execution_id, made.run_id, "fetch", "job", lease, pins, Value.of("1"), trace_of(None))


@pytest.mark.clause("runs.two-grains", "runs.scope-independence")
async def test_the_pipeline_grain_reaches_the_scope_and_what_lies_below_and_nothing_else(desk: RunsDesk) -> None:
    names = ("a", "a/b", "a/b/c", "a/bb", "a/b-", "ab", "a.", "b", "A")
    held = {name: await desk.open_remote(name) for name in names}
    over = await desk.open_remote("a/b/over")
    await desk.close(over.fence)
    child = await desk.admit("a/b/kid", handoff=False)
    expected = sorted([held["a/b"].run_id, held["a/b/c"].run_id, child.run_id])
    assert await desk.stop(held["a/b"].run_id, "pipeline") == expected
    assert await desk.status(child.run_id) == "canceled"
    stopped = {name for name, one in held.items() if (await desk.show(one.run_id)).stop is not None}
    assert stopped == {"a/b", "a/b/c"}
    assert set(await desk.stop(held["a"].run_id, "pipeline")) == {
        held[name].run_id for name in ("a", "a/b", "a/b/c", "a/bb", "a/b-")
    }
    assert await desk.stop(held["b"].run_id) == [held["b"].run_id]
    assert (await desk.show(held["ab"].run_id)).stop is None


@pytest.mark.clause("runs.two-grains")
async def test_the_pipeline_grain_takes_many_pages(desk: RunsDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop, "STOP_BATCH", 3)
    made = [await desk.admit(name, handoff=False) for name in ("p", *(f"p/{number}" for number in range(10)))]
    assert sorted(await desk.stop(made[0].run_id, "pipeline")) == sorted(one.run_id for one in made)
    assert await desk.store.sql("SELECT 1 FROM executions") == []


@pytest.mark.clause("runs.two-grains")
def test_a_stored_scope_that_nobody_knows_reads_as_run() -> None:
    assert [grain(stored) for stored in ("pipeline", "run", "galaxy", "", None)] == ["pipeline", "run", "run", "run", "run"]


@pytest.mark.clause("runs.not-in-flight")
async def test_what_has_ended_takes_no_stop(desk: RunsDesk, store: Store) -> None:
    ended = []
    for number, status in enumerate(("success", "failed", "canceled")):
        held = await desk.open_remote(f"job-{number}")
        await desk.note(held.execution_id, "one")
        await desk.close(held.fence, status)
        ended.append(held.run_id)
    before = await dump(store)
    for run_id in ended:
        for scope in ("run", "pipeline"):
            with pytest.raises(CancelTargetNotInFlight):
                await desk.stop(run_id, scope)
    assert await dump(store) == before
    again = await desk.open_remote("job-1")
    with pytest.raises(CancelTargetNotInFlight):
        await desk.stop(ended[1])
    assert await desk.stop(ended[1], "pipeline") == [again.run_id]
    with pytest.raises(RunUnknown):
        await desk.stop("run_none")
    for reason in ("", "x" * 1025):
        with pytest.raises(RequestInvalid):
            await desk.stop(again.run_id, reason=reason)


@pytest.mark.clause("runs.stop-authority", "catalog.grants")
async def test_a_stop_takes_a_grant_on_the_body_of_the_record_and_names_nothing(desk: RunsDesk, store: Store) -> None:
    order = await desk.admit("a", handoff=False)
    fetch = await desk.open_remote("a/b")
    starter = await desk.credential("starter", Grant(frozenset({"read", "operate"})))
    other = await desk.credential("other", Grant(frozenset({"execute"}), ("fetch",)))
    narrowed = await desk.credential("narrowed", Grant(frozenset({"execute"}), match={"x": 1}))
    before = await dump(store)
    told: set[tuple[str, int]] = set()
    for caller in (starter, other, narrowed):
        for run_id in (order.run_id, "run_none"):
            with pytest.raises(CancelUnauthorized) as refused:
                await desk.seen_by(caller).stop(run_id, "pipeline")
            assert not refused.value.members
            told.add((refused.value.detail, refused.value.status))
    assert [status for _, status in told] == [403]
    assert await dump(store) == before
    both = desk.seen_by(await desk.credential("both", Grant(frozenset({"execute"}), ("order",))))
    assert await both.stop(order.run_id, "pipeline") == [order.run_id]
    assert (await desk.show(fetch.run_id)).stop is None
    await store.sql("UPDATE credentials SET revoked_at = 1 WHERE id = 'crd_other'")
    with pytest.raises(Unauthenticated):
        await desk.seen_by(other).stop(fetch.run_id)


@pytest.mark.clause("runs.cancel-race")
@pytest.mark.parametrize("first", ["stop", "close", "both"])
async def test_a_stop_and_an_end_make_one_end(desk: RunsDesk, first: str) -> None:
    held = await desk.open_remote("job")
    await desk.note(held.execution_id, "one")
    if first == "both":
        outcomes = await asyncio.gather(desk.stop(held.run_id), desk.close(held.fence), return_exceptions=True)
        assert not any(isinstance(one, Exception) and not isinstance(one, MoorageError) for one in outcomes)
    elif first == "stop":
        await desk.stop(held.run_id)
        await desk.close(held.fence)
    else:
        await desk.close(held.fence)
        with pytest.raises(CancelTargetNotInFlight):
            await desk.stop(held.run_id)
    assert await desk.status(held.run_id) == "success"
    assert (await desk.types(held.run_id)).count("run.closed") == 1
    lapsed = await desk.open_remote("lapsed")
    desk.pass_time(30)
    await desk.stop(lapsed.run_id)
    with pytest.raises(MoorageError):
        await desk.close(lapsed.fence)
    assert await desk.status(lapsed.run_id) == "canceled"
    assert (await desk.types(lapsed.run_id)).count("run.closed") == 1


@pytest.mark.clause("runs.stop-channel")
async def test_a_stop_whose_answer_was_lost_is_asked_again(desk: RunsDesk, store: Store) -> None:
    held = await desk.open_remote("job")
    with pytest.raises(MoorageError):
        await stop.stop(FaultyDatabase(store.db(), Plan([Fault.FAIL_AFTER])), ROOT, desk.now, held.run_id)
    assert await desk.stop(held.run_id) == [held.run_id]
    twice = FaultyDatabase(store.db(), Plan([Fault.DUPLICATE]))
    fresh = await desk.admit("fresh", handoff=False)
    assert await stop.stop(twice, ROOT, desk.now, fresh.run_id) == [fresh.run_id]
    assert (await desk.types(fresh.run_id)) == ["run.opened", "run.stop_requested", "run.closed"]
    assert await desk.execution(fresh.execution_id) is None

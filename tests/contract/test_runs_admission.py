"""Opening executions: what is checked first, what one transaction stores, and what a pending execution makes of it."""

import asyncio
import json

import pytest

from moorage.catalog.access import Caller, Grant
from moorage.kernel import canonical, ids
from moorage.kernel.errors import (
    ExecutionBusy,
    ExecutionPinMismatch,
    ExecutionUnknown,
    Forbidden,
    IdempotencyConflict,
    IdInvalid,
    MoorageError,
    PayloadTooLarge,
    RunMetadataTooLarge,
    Unauthenticated,
)
from moorage.kernel.instants import Instant
from moorage.kernel.limits import JOURNAL_INLINE_BYTES, JOURNAL_VALUE_BYTES, METADATA_BYTES, OWNER_LEASE_SECONDS
from moorage.runs import admission, hosting
from moorage.runs.admission import HANDOFF_SECONDS, Admitted
from moorage.runs.model import Pins
from moorage.runs.take import take
from moorage.runs.tracing_context import trace_of
from tests.contract.adapters import Store, dump
from tests.contract.faults import Fault, FaultyDatabase, Plan
from tests.contract.runs_desk import BUILD, ORDER, REBUILT, REMOTE, ROOT, RunsDesk


@pytest.fixture
def desk(store: Store) -> RunsDesk:
    return RunsDesk(store)


@pytest.mark.clause("runs.admission", "runs.row-at-open", "runs.owner-lease", "runs.trace-context")
async def test_one_round_trip_stores_the_run_and_hands_its_execution_over(desk: RunsDesk) -> None:
    trace = trace_of("00-" + "1" * 32 + "-" + "2" * 16 + "-01", "a=b")
    made = await desk.admit(input_={"n": 1}, trace=trace, config_revision="r7", metadata={"for": "ann"}, config={"k": 1})
    assert desk.cost.trips == 1
    assert (made.status, made.host) == ("running", "worker")
    handed = made.execution
    assert handed is not None
    assert (handed.execution_id, handed.run_id) == (made.execution_id, made.run_id)
    assert (handed.lease.epoch, handed.lease.owner, handed.lease.attempt) == (1, f"runner:{made.runner}", 1)
    assert handed.lease.expires_at == desk.now + HANDOFF_SECONDS * 1000 == made.due
    assert (handed.pins, handed.input.text, handed.config) == (Pins(BUILD, canonical.digest('{"n":1}')), '{"n":1}', {"k": 1})
    run = await desk.run(made.run_id)
    assert (run["status"], run["attempt"], run["started_at"], run["ended_at"]) == ("running", 1, desk.now, None)
    assert (run["config_revision"], run["plan_reference"], run["created_by"]) == ("r7", handed.pins.reference, "root")
    assert (run["trace_id"], run["parent_span"], run["trace_state"]) == ("1" * 32, "2" * 16, "a=b")
    assert run["span_id"] not in ("2" * 16, None)
    assert json.loads(run["metadata"]) == {"for": "ann"}
    execution = await desk.execution(made.execution_id)
    assert execution is not None
    assert (execution["owner"], execution["epoch"], execution["wake_at"]) == (handed.lease.owner, 1, made.due)
    assert (execution["scope"], execution["build"], json.loads(execution["config"])) == (made.run_id, BUILD.digest, {"k": 1})
    assert await desk.types(made.run_id) == ["run.opened"]


@pytest.mark.clause("runs.admission")
async def test_what_is_not_handed_over_is_poked_and_due_soon(desk: RunsDesk) -> None:
    made = await desk.admit(handoff=False)
    assert made.execution is None
    assert made.due == desk.now + 5000 == await desk.next_due()
    row = await desk.execution(made.execution_id)
    assert row is not None
    assert (row["owner"], row["epoch"], row["claimable"]) == (None, 0, 0)
    remote = await desk.admit(info=REMOTE)
    row = await desk.execution(remote.execution_id)
    assert row is not None
    assert (row["owner"], row["host"], row["claimable"]) == (None, "remote", 1)
    fence = await desk.take(made.execution_id)
    assert fence is not None
    assert fence.epoch == 1
    assert (await desk.run(made.run_id))["attempt"] == 1


@pytest.mark.clause("runs.admission", "catalog.grants")
async def test_nothing_is_stored_of_what_is_refused(desk: RunsDesk, store: Store) -> None:
    reader = await desk.credential("reader", Grant(frozenset({"read"})))
    other = await desk.credential("other", Grant(frozenset({"execute"}), ("invoice",)))
    narrowed = await desk.credential("narrowed", Grant(frozenset({"execute"}), match={"a": 1}))
    before = await dump(store)
    for caller in (reader, other, narrowed):
        with pytest.raises(Forbidden):
            await desk.seen_by(caller).admit()
    with pytest.raises(Unauthenticated):
        await desk.seen_by(Caller("gone", (Grant(frozenset({"execute"})),), "crd_gone")).admit()
    for scope in ("", "a/", "/a", "a//b", "..", "a/./b", "a b", "a+b", "x" * 201, "run_" + "0" * 26 + "/x+y"):
        with pytest.raises(IdInvalid):
            await desk.admit(scope)
    with pytest.raises(PayloadTooLarge):
        await desk.admit(input_="x" * JOURNAL_VALUE_BYTES)
    with pytest.raises(RunMetadataTooLarge):
        await desk.admit(metadata={"x": "y" * METADATA_BYTES})
    with pytest.raises(ExecutionUnknown):
        await desk.admit(ids.new("run", desk.now))
    assert await dump(store) == before
    starter = await desk.credential("starter", Grant(frozenset({"execute"}), ("ord*",)))
    made = await desk.seen_by(starter).admit()
    row = await desk.execution(made.execution_id)
    assert row is not None
    assert (row["subject"], row["credential"]) == ("starter", "crd_starter")


@pytest.mark.clause("runs.host-scope", "runs.scope-independence")
async def test_scopes_are_apart_and_a_client_reaches_no_derived_one(desk: RunsDesk) -> None:
    fresh = [await desk.admit() for _ in range(3)]
    named = [await desk.admit(scope) for scope in ("a", "a/b", "b", "A")]
    assert len({made.execution_id for made in fresh + named}) == 7
    assert [made.runner for made in named] == ["s:a", "s:a/b", "s:b", "s:A"]
    assert all(made.runner.startswith("r:") for made in fresh)
    with pytest.raises(ExecutionBusy):
        await desk.admit("a/b")
    fence = await desk.take(fresh[0].execution_id)
    assert fence is None
    desk.pass_time(60)
    joined = await desk.admit(fresh[0].run_id)
    assert joined.execution_id == fresh[0].execution_id
    assert joined.runner == fresh[0].runner


@pytest.mark.clause("runs.live-owner", "runs.row-at-open")
async def test_a_live_attempt_refuses_an_open_which_leaves_a_failed_run(desk: RunsDesk) -> None:
    first = await desk.admit("index-42")
    desk.pass_time(HANDOFF_SECONDS - 0.001)
    before = await desk.execution(first.execution_id)
    with pytest.raises(ExecutionBusy) as busy:
        await desk.admit("index-42", handoff=False)
    members = busy.value.members
    assert members["attempt"] == first.run_id
    assert busy.value.retryable
    assert busy.value.retry_after == 1
    refused = await desk.show(members["run_id"])
    assert (refused.status, refused.started_at, refused.ended_at) == ("failed", desk.now, desk.now)
    assert refused.error is not None
    assert (refused.error["code"], refused.error["tag"]) == ("ExecutionBusy", "Transient")
    assert first.run_id in refused.error["message"]
    assert refused.execution_id != first.execution_id
    assert await desk.execution(first.execution_id) == before
    assert await desk.status(first.run_id) == "running"
    desk.pass_time(0.001)
    joined = await desk.admit("index-42")
    assert joined.execution_id == first.execution_id


@pytest.mark.clause("runs.pinned-plan-changed", "runs.admission-pin", "runs.body-pins")
@pytest.mark.parametrize("what", ["build", "input"])
async def test_other_pins_refuse_an_open_and_name_the_ways_out(desk: RunsDesk, what: str) -> None:
    first = await desk.admit("score")
    desk.pass_time(HANDOFF_SECONDS)
    info, input_ = (REBUILT, 1) if what == "build" else (ORDER, 2)
    asked = Pins(info.build, canonical.digest(canonical.dumps(input_)))
    with pytest.raises(ExecutionPinMismatch) as mismatch:
        await desk.admit("score", input_, info)
    error = mismatch.value
    assert not error.retryable
    assert (error.members["scope"], error.members["execution_id"]) == ("score", first.execution_id)
    assert error.members["pending"]["implementation"] == BUILD.implementation
    assert error.members["requested"] == {"plan_reference": asked.reference, **asked.wire()}
    assert error.members["recoveries"][1] == f"moorage run rewind {first.execution_id} --reason '...'"
    assert all(part in error.detail for part in ("score", first.execution_id, asked.reference, "Restore the build"))
    assert f"bound to another {'implementation' if what == 'build' else what}: " in error.detail
    refused = await desk.show(error.members["run_id"])
    assert (refused.status, refused.plan_reference) == ("failed", asked.reference)
    assert refused.error is not None
    assert refused.error["code"] == "ExecutionPinMismatch"
    row = await desk.execution(first.execution_id)
    assert row is not None
    assert (row["requested_plan"], row["run_id"], row["build"]) == (asked.reference, first.run_id, BUILD.digest)
    assert (await desk.admit("score")).execution_id == first.execution_id


@pytest.mark.clause("runs.pinned-plan-changed", "catalog.grants")
async def test_who_may_not_see_the_pending_body_is_told_nothing_of_it(desk: RunsDesk) -> None:
    first = await desk.admit("shared")
    plan = (await desk.show(first.run_id)).plan_reference or ""
    stranger = desk.seen_by(await desk.credential("stranger", Grant(frozenset({"execute"}), ("fetch",))))
    with pytest.raises(ExecutionBusy) as busy:
        await stranger.admit("shared", info=REMOTE)
    stranger.pass_time(60)
    with pytest.raises(ExecutionPinMismatch) as mismatch:
        await stranger.admit("shared", info=REMOTE)
    for error in (busy.value, mismatch.value):
        told = json.dumps(error.problem())
        told += json.dumps((await stranger.show(error.members["run_id"])).wire())
        assert not any(part in told for part in (first.run_id, first.execution_id, BUILD.implementation, plan, "order"))


@pytest.mark.clause("runs.unclosed-execution", "runs.execution-id-keys-journal", "runs.partial-failure", "runs.status-set")
async def test_equal_pins_join_what_nobody_holds_with_all_that_it_recorded(desk: RunsDesk) -> None:
    first = await desk.admit("index-42")
    await desk.note(first.execution_id, "one")
    await desk.note(first.execution_id, "two", position="1")
    desk.pass_time(HANDOFF_SECONDS)
    second = await desk.admit("index-42")
    assert second.execution is None
    assert (second.execution_id, second.status) == (first.execution_id, "running")
    left = await desk.show(first.run_id)
    assert (left.status, left.ended_at) == ("partial_failure", desk.now)
    assert [step.key.label for step in (await desk.steps(first.run_id)).items] == ["one", "two"]
    assert await desk.types(first.run_id) == ["run.opened", "run.closed"]
    fence = await desk.take(first.execution_id)
    assert fence is not None
    assert fence.epoch == 2
    await desk.close(fence)
    assert await desk.status(second.run_id) == "success"
    assert await desk.status(first.run_id) == "partial_failure"
    fresh = await desk.admit("index-42")
    assert fresh.execution_id != first.execution_id


@pytest.mark.clause("runs.pin-release", "runs.resumable-remains", "runs.retirement")
@pytest.mark.parametrize("status", ["failed", "canceled"])
async def test_what_recorded_something_is_joined_after_its_end_and_its_failed_step_is_tried_anew(
    desk: RunsDesk, status: str
) -> None:
    first = await desk.open_remote("job", info=REMOTE)
    await desk.note(first.execution_id, "one")
    await desk.note(first.execution_id, "two", "failed", position="1")
    await desk.note(first.execution_id, "other", "failed", position="2")
    await desk.close(first.fence, status, step="two")
    kept = await desk.execution(first.execution_id)
    assert kept is not None
    assert (kept["owner"], kept["wake_at"], kept["claimable"]) == (None, None, 0)
    second = await desk.open_remote("job")
    assert second.execution_id == first.execution_id
    assert second.lease.epoch == 2
    states = {entry.key.label: (entry.state, entry.attempt) for entry in second.entries}
    tried = ("pending", 0) if status == "failed" else ("failed", 1)
    assert states == {"one": ("done", 1), "two": tried, "other": ("failed", 1)}
    assert second.entries[0].value is not None
    assert second.entries[0].value.text == "7"
    assert await desk.status(first.run_id) == status
    await desk.close(second.fence, "failed")
    empty = await desk.open_remote("other")
    await desk.close(empty.fence, status)
    assert await desk.execution(empty.execution_id) is None


@pytest.mark.clause("runs.owner-lease", "runs.substrate")
async def test_a_remote_host_opens_in_one_round_trip_and_goes_on_in_two(desk: RunsDesk) -> None:
    held = await desk.open_remote("job")
    assert desk.cost.trips == 1
    assert (held.lease.epoch, held.lease.owner) == (1, "root/host-1")
    assert held.lease.expires_at == desk.now + OWNER_LEASE_SECONDS * 1000
    with pytest.raises(ExecutionBusy):
        await desk.open_remote("job", holder="host-2")
    desk.pass_time(OWNER_LEASE_SECONDS)
    again = await desk.open_remote("job", holder="host-2")
    assert desk.cost.trips == 2
    assert (again.execution_id, again.lease.epoch, again.lease.owner) == (held.execution_id, 2, "root/host-2")
    with pytest.raises(MoorageError, match="may not write"):
        await desk.close(held.fence)


@pytest.mark.clause("runs.admission", "blobs.inline-cutoff", "blobs.order")
async def test_a_large_input_is_an_object_that_the_execution_holds(desk: RunsDesk, store: Store) -> None:
    text = "x" * int(JOURNAL_INLINE_BYTES)
    made = await desk.admit("big", text)
    row = await desk.execution(made.execution_id)
    assert row is not None
    assert row["input"] is None
    assert (await store.blobs.get(row["input_blob"])).decode() == canonical.dumps(text)
    references = "SELECT sha256, holder FROM blob_references WHERE uploading_until IS NULL"
    held = [{"sha256": row["input_blob"], "holder": made.execution_id}]
    assert await store.sql(references) == held
    with pytest.raises(ExecutionBusy):
        await desk.admit("big", text)
    assert await store.sql(references) == held
    desk.pass_time(HANDOFF_SECONDS)
    joined = await desk.admit("big", text)
    assert joined.execution_id == made.execution_id
    assert await store.sql(references) == held
    exact = await desk.admit(input_="x" * (int(JOURNAL_INLINE_BYTES) - 2))
    row = await desk.execution(exact.execution_id)
    assert row is not None
    assert row["input_blob"] is None


@pytest.mark.clause("runs.admission", "records.idempotent")
async def test_a_key_starts_one_run_whatever_is_lost(desk: RunsDesk, store: Store) -> None:
    key = desk.key("k")
    lost = FaultyDatabase(store.db(), Plan([Fault.FAIL_AFTER]))
    start = desk.start_of()
    with pytest.raises(MoorageError):
        await admission.admit(lost, store.blobs, ROOT, desk.now, ORDER, start, key)
    again = await desk.admit(key=key)
    twice = await desk.admit(key=key)
    assert again == twice
    assert again.execution is None
    assert [row["run_id"] for row in await store.sql("SELECT run_id FROM runs")] == [again.run_id]
    with pytest.raises(IdempotencyConflict):
        await desk.admit(key=desk.key("k", "other content"))


@pytest.mark.clause("runs.live-owner", "records.idempotent")
async def test_a_refused_open_binds_no_key(desk: RunsDesk) -> None:
    first = await desk.admit("s")
    key = desk.key("k")
    with pytest.raises(ExecutionBusy):
        await desk.admit("s", key=key)
    desk.pass_time(HANDOFF_SECONDS)
    joined = await desk.admit("s", key=key)
    assert joined.execution_id == first.execution_id
    assert (await desk.admit("s", key=key)).run_id == joined.run_id


@pytest.mark.clause("runs.owner", "runs.live-owner")
async def test_of_many_opens_at_once_one_has_the_scope(desk: RunsDesk, store: Store) -> None:
    outcomes = await asyncio.gather(*(desk.admit("s") for _ in range(8)), return_exceptions=True)
    admitted = [one for one in outcomes if isinstance(one, Admitted)]
    assert len(admitted) == 1
    assert sum(isinstance(one, ExecutionBusy) for one in outcomes) == 7
    assert len(await store.sql("SELECT 1 FROM executions")) == 1
    rows = await store.sql("SELECT status, count(*) AS n FROM runs GROUP BY status ORDER BY status")
    assert rows == [{"status": "failed", "n": 7}, {"status": "running", "n": 1}]


@pytest.mark.clause("runs.wake", "runs.owner")
async def test_a_parent_that_waits_goes_on_waiting_when_its_child_is_opened_again(desk: RunsDesk, store: Store) -> None:
    parent = await desk.open_remote("parent")
    child = await desk.admit("child", parent_execution=parent.execution_id, parent_run=parent.run_id)
    await desk.note(parent.execution_id, "kid", "pending", kind="child", ref=child.run_id)
    await desk.suspend(parent.fence)
    desk.pass_time(60)
    again = await desk.admit("child")
    assert again.execution_id == child.execution_id
    [entry] = await store.sql("SELECT ref FROM journal WHERE execution_id = ?", parent.execution_id)
    assert entry["ref"] == again.run_id
    fence = await desk.take(child.execution_id)
    assert fence is not None
    await desk.close(fence)
    row = await desk.execution(parent.execution_id)
    assert row is not None
    assert row["wake_at"] == Instant(desk.now + 5000)


RETRY = {"attempts": 2, "base_ms": 10}


@pytest.mark.clause("runs.schedule", "runs.body-pins")
async def test_a_schedule_belongs_to_the_execution_and_is_no_pin(desk: RunsDesk) -> None:
    first = await desk.admit("job", retry=RETRY)
    assert first.execution is not None
    assert first.execution.retry == RETRY
    with pytest.raises(ExecutionBusy):
        await desk.admit("job", retry={"attempts": 9})
    await desk.note(first.execution_id, "one")
    await desk.close(first.execution.fence, "failed")
    for brought, stands in ((None, RETRY), ({"attempts": 7}, {"attempts": 7}), (None, {"attempts": 7})):
        again = await desk.admit("job", handoff=False, retry=brought)
        assert again.execution_id == first.execution_id
        taken = await take(desk.db(), desk.store.blobs, desk.now, first.execution_id, "bob", {"order": BUILD.digest})
        assert taken is not None
        assert taken.retry == stands
        await desk.close(taken.fence, "failed")
    restarted = await desk.restart(first.run_id)
    row = await desk.execution(restarted.execution_id)
    assert row is not None
    assert json.loads(row["retry"]) == {"attempts": 7}


@pytest.mark.clause("runs.schedule", "runs.substrate")
async def test_a_host_outside_the_worker_is_told_the_schedule(desk: RunsDesk) -> None:
    start = desk.start_of("job", retry=RETRY)
    for _ in range(2):
        held = await hosting.open_(desk.db(), desk.store.blobs, ROOT, desk.now, REMOTE, start, "ann")
        assert held.retry == RETRY
        start = desk.start_of("job")
        desk.pass_time(OWNER_LEASE_SECONDS)

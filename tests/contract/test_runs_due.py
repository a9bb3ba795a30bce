"""What time does to runs: repairs of lost pokes, lapsed leases, suspended runs whose instant comes, and retention."""

import asyncio

import pytest

from moorage.journal.model import Fence
from moorage.kernel import canonical
from moorage.kernel.errors import MoorageError, RunUnknown
from moorage.kernel.instants import Instant
from moorage.kernel.limits import JOURNAL_INLINE_BYTES, OWNER_LEASE_SECONDS, RUN_RETENTION_SECONDS
from moorage.runs.due import FIRST_LOOK_MS, LONGEST_LOOK_MS, SWEEP_RUNS, RunRetention, RunsDue
from moorage.runs.placement import runner_of
from moorage.timers import clock
from tests.contract.adapters import Store, dump
from tests.contract.faults import Fault, FaultyDatabase, Plan
from tests.contract.occasions import item_of
from tests.contract.runs_desk import WORKS, RunsDesk, Watched

DAY = 86_400
KEPT = int(RUN_RETENTION_SECONDS)


@pytest.fixture
def desk(store: Store) -> RunsDesk:
    return RunsDesk(store)


async def fired(desk: RunsDesk, execution_id: str) -> list[str]:
    """What one firing pokes."""
    db = Watched(desk.store)
    await RunsDue().fire(db, desk.now, await item_of(desk.db(), RunsDue(), execution_id))
    return db.poked


@pytest.mark.clause("runs.wake", "runs.bodies")
async def test_a_runner_that_does_not_come_is_poked_again_later_each_time(desk: RunsDesk) -> None:
    made = await desk.admit()
    waits: list[int] = []
    while len(waits) < 9:
        due = await desk.next_due()
        assert due is not None
        desk.now = Instant(due - 1)
        assert await fired(desk, made.execution_id) == []
        desk.now = due
        assert await fired(desk, made.execution_id) == [made.execution_id]
        row = await desk.execution(made.execution_id)
        assert row is not None
        waits.append(row["wake_at"] - desk.now)
    assert waits == [min(FIRST_LOOK_MS << number, LONGEST_LOOK_MS) for number in range(9)]
    assert await desk.status(made.run_id) == "running"
    fence = await desk.take(made.execution_id)
    assert fence is not None
    assert (await desk.run(made.run_id))["attempt"] == 2
    desk.pass_time(OWNER_LEASE_SECONDS)
    assert await fired(desk, made.execution_id) == [made.execution_id]
    row = await desk.execution(made.execution_id)
    assert row is not None
    assert row["wake_at"] - desk.now == FIRST_LOOK_MS


@pytest.mark.clause("runs.orphan-reap", "runs.partial-failure", "runs.owner-lease", "runs.unclosed-execution")
async def test_a_remote_host_that_lets_its_lease_run_out_leaves_a_partial_failure(desk: RunsDesk) -> None:
    held = await desk.open_remote("job")
    other = await desk.open_remote("other")
    await desk.note(held.execution_id, "one")
    await desk.note(held.execution_id, "two", "pending", position="1")
    desk.pass_time(OWNER_LEASE_SECONDS - 0.001)
    assert await desk.fire() == {}
    await desk.store.sql(
        "UPDATE executions SET expires_at = expires_at + 10000, wake_at = wake_at + 10000 WHERE scope = 'other'"
    )
    desk.pass_time(0.001)
    assert await desk.fire() == {"run_due": 1}
    run = await desk.show(held.run_id)
    assert (run.status, run.ended_at) == ("partial_failure", desk.now)
    assert run.error is not None
    assert run.error["tag"] == "Transient"
    assert [step.key.label for step in (await desk.steps(held.run_id)).items] == ["one", "two"]
    assert await desk.types(held.run_id) == ["run.opened", "run.reaped"]
    assert (await desk.told(held.run_id))[1].actor == "moorage:clock"
    row = await desk.execution(held.execution_id)
    assert row is not None
    assert (row["owner"], row["wake_at"], row["claimable"]) == (None, None, 0)
    assert await desk.journal(held.execution_id) == {"one": "done", "two": "pending"}
    assert await desk.status(other.run_id) == "running"
    with pytest.raises(MoorageError):
        await desk.close(held.fence)
    assert await desk.fire() == {}
    again = await desk.open_remote("job")
    assert (again.execution_id, again.lease.epoch) == (held.execution_id, 2)
    assert [entry.key.label for entry in again.entries] == ["one", "two"]


@pytest.mark.clause("runs.claim-takeover", "runs.owner-lease")
async def test_a_lapsed_run_of_the_worker_is_taken_over_and_not_reaped(desk: RunsDesk) -> None:
    made = await desk.admit()
    await desk.note(made.execution_id, "one")
    desk.pass_time(60)
    assert await desk.fire() == {"run_due": 1}
    assert await desk.status(made.run_id) == "running"
    fence = await desk.take(made.execution_id)
    assert fence is not None
    assert fence.epoch == 2
    assert await desk.fire() == {}
    await desk.close(fence)
    assert (await desk.show(made.run_id)).attempt == 2
    assert await desk.status(made.run_id) == "success"


@pytest.mark.clause("runs.wake", "runs.resume-at", "runs.waiting-state")
async def test_a_remote_run_is_offered_at_its_instant_and_never_earlier(desk: RunsDesk) -> None:
    held = await desk.open_remote("job")
    until = Instant(desk.now + 3_600_000)
    await desk.suspend(held.fence, until)
    assert await desk.next_due() == until
    desk.now = Instant(until - 1)
    assert await desk.fire() == {}
    row = await desk.execution(held.execution_id)
    assert row is not None
    assert row["claimable"] == 0
    desk.now = until
    assert await fired(desk, held.execution_id) == [held.execution_id]
    row = await desk.execution(held.execution_id)
    assert row is not None
    assert (row["claimable"], row["wake_at"]) == (1, None)
    assert await desk.status(held.run_id) == "waiting"
    fence = await desk.take(held.execution_id)
    assert fence is not None
    run = await desk.show(held.run_id)
    assert (run.status, run.attempt, run.next_attempt_at) == ("running", 1, None)
    forever = await desk.open_remote("forever")
    await desk.suspend(forever.fence)
    desk.pass_time(300 * DAY)
    assert await fired(desk, forever.execution_id) == []
    assert await desk.status(forever.run_id) == "suspended"


@pytest.mark.clause("runs.orphan-reap", "runs.wake")
async def test_a_parent_learns_that_its_child_was_reaped(desk: RunsDesk) -> None:
    parent = await desk.open_remote("parent")
    made = await desk.admit("child", handoff=False, parent_execution=parent.execution_id, parent_run=parent.run_id)
    await desk.store.sql("UPDATE executions SET host = 'remote' WHERE execution_id = ?", made.execution_id)
    await desk.suspend(parent.fence)
    assert await desk.take(made.execution_id) is not None
    desk.pass_time(OWNER_LEASE_SECONDS)
    assert await fired(desk, made.execution_id) == [parent.execution_id]
    assert await desk.status(made.run_id) == "partial_failure"


@pytest.mark.clause("runs.orphan-reap", "timers.late")
@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.DUPLICATE])
async def test_a_firing_that_fails_or_comes_twice_is_one(desk: RunsDesk, store: Store, fault: Fault) -> None:
    held = await desk.open_remote("job")
    desk.pass_time(OWNER_LEASE_SECONDS)
    plan = Plan([fault])
    item = f"{held.execution_id}@{desk.now}"
    await asyncio.gather(
        RunsDue().fire(FaultyDatabase(store.db(), plan), desk.now, item),
        return_exceptions=True,
    )
    await desk.fire()
    once = await dump(store)
    await RunsDue().fire(store.db(), desk.now, item)
    await RunsDue().fire(store.db(), desk.now, f"exe_none@{desk.now}")
    assert await dump(store) == once
    assert await desk.types(held.run_id) == ["run.opened", "run.reaped"]


@pytest.mark.clause("runs.owner-lease")
async def test_a_renewed_lease_is_not_reaped_on_a_stale_picture(desk: RunsDesk, store: Store) -> None:
    held = await desk.open_remote("job")
    desk.pass_time(OWNER_LEASE_SECONDS)
    await store.sql("UPDATE executions SET expires_at = expires_at + 1, wake_at = wake_at + 1")
    before = await dump(store)
    for due in (desk.now, desk.now + 1):
        assert await RunsDue().fire(store.db(), desk.now, f"{held.execution_id}@{due}") == 0
    assert await dump(store) == before


# --- retention ---


@pytest.mark.clause("runs.retirement", "runs.collection")
async def test_old_runs_go_with_their_results_and_with_what_they_could_be_resumed_from(desk: RunsDesk, store: Store) -> None:
    done = await desk.open_remote("done")
    text = canonical.dumps("x" * int(JOURNAL_INLINE_BYTES))
    digest = await store.blobs.put(text.encode())
    await desk.close(done.fence)
    await store.sql("UPDATE runs SET result = NULL, result_blob = ? WHERE run_id = ?", digest, done.run_id)
    await store.sql("INSERT INTO blob_references (sha256, holder) VALUES (?, ?)", digest, done.run_id)
    failed = await desk.open_remote("failed")
    await desk.note(failed.execution_id, "one")
    await desk.close(failed.fence, "failed")
    resumed = await desk.open_remote("resumed")
    await desk.note(resumed.execution_id, "one")
    await desk.close(resumed.fence, "failed")
    ended = desk.now
    desk.pass_time(10 * DAY)
    again = await desk.open_remote("resumed")
    await desk.suspend(again.fence)
    old = await desk.open_remote("old")
    await desk.suspend(old.fence)
    desk.now = Instant(ended + KEPT * 1000)
    due = Instant((desk.now + 599_999) // 600_000 * 600_000)
    assert await desk.next_due() == due
    desk.now = Instant(due - 1)
    assert await desk.fire() == {}
    desk.now = due
    assert await desk.fire() == {"run_retention": 3}
    for run_id in (done.run_id, failed.run_id, resumed.run_id):
        with pytest.raises(RunUnknown):
            await desk.show(run_id)
    assert await store.sql("SELECT holder FROM blob_references") == []
    assert [row["sha256"] for row in await store.sql("SELECT sha256 FROM blob_deletions")] == [digest]
    assert await desk.execution(failed.execution_id) is None
    assert await desk.journal(failed.execution_id) == {}
    assert await desk.types(failed.execution_id) == ["execution.retired"]
    assert await desk.journal(resumed.execution_id) == {"one": "done"}
    assert await desk.status(again.run_id) == await desk.status(old.run_id) == "suspended"
    desk.pass_time(400 * DAY)
    assert await desk.fire() == {}
    fresh = await desk.open_remote("failed")
    assert fresh.execution_id != failed.execution_id


@pytest.mark.clause("runs.retirement", "awake.unknown", "blobs.order")
async def test_awakeables_go_with_the_last_run_of_their_execution(desk: RunsDesk, store: Store) -> None:
    first = await desk.open_remote("job")
    await desk.note(first.execution_id, "one")
    await desk.close(first.fence, "failed")
    ended = desk.now
    desk.pass_time(10 * DAY)
    second = await desk.open_remote("job")
    digest = await store.blobs.put(b"a payload")
    for name, state in (("awk_1", "resolved"), ("awk_2", "timed_out")):
        await store.sql(
            "INSERT INTO awakeables (id, token_sha256, state, metadata, created_at, created_by, deadline, payload_blob, "
            "payload_size, ended_at, ended_by, execution_id) VALUES (?, ?, ?, '{}', CAST(? AS INTEGER), 'root', "
            "CAST(? AS INTEGER), ?, CAST(? AS INTEGER), CAST(? AS INTEGER), 'root', ?)",
            name,
            name,
            state,
            desk.now,
            desk.now,
            digest if state == "resolved" else None,
            9 if state == "resolved" else None,
            desk.now,
            first.execution_id,
        )
    await store.sql("INSERT INTO blob_references (sha256, holder) VALUES (?, 'awk_1')", digest)
    await desk.close(second.fence)
    desk.now = Instant(ended + KEPT * 1000 + 600_000)
    assert await desk.fire() == {"run_retention": 1}
    assert len(await store.sql("SELECT 1 FROM awakeables")) == 2
    desk.pass_time(10 * DAY)
    assert await desk.fire() == {"run_retention": 1}
    assert await store.sql("SELECT 1 FROM awakeables") == []
    assert [row["sha256"] for row in await store.sql("SELECT sha256 FROM blob_deletions")] == [digest]


@pytest.mark.clause("runs.retirement")
async def test_a_sweep_is_bounded_and_goes_on_until_nothing_is_left(desk: RunsDesk, store: Store) -> None:
    for number in range(SWEEP_RUNS + 7):
        held = await desk.open_remote(f"s{number}")
        await desk.close(held.fence, "failed")
    desk.pass_time(KEPT + 600)
    assert await RunRetention().fire(store.db(), desk.now, "sweep") == SWEEP_RUNS
    assert await desk.fire() == {"run_retention": 7}
    assert await store.sql("SELECT 1 FROM runs") == []
    assert await clock.next_due(store.db(), desk.now, WORKS) is None


@pytest.mark.clause("runs.retirement", "awake.restart", "records.idempotent")
async def test_what_a_run_suspended_for_long_needs_outlives_every_sweep(desk: RunsDesk, store: Store) -> None:
    """Case C21 E, H and I: its journal, the object that it holds, its awakeable and its idempotency key."""
    key = desk.key("e")
    made = await desk.admit("e", handoff=False, key=key)
    fence = await desk.take(made.execution_id)
    assert fence is not None
    digest = await store.blobs.put(b"held")
    await desk.note(made.execution_id, "one", blob=digest)
    await desk.note(made.execution_id, "two", position="1", value={"a": 1})
    await desk.suspend(fence)
    desk.pass_time(3 * 3600)
    for _ in range(3):
        await desk.fire()
    assert (await desk.admit("e", handoff=False, key=key)).run_id == made.run_id
    desk.pass_time(100 * DAY)
    await desk.fire()
    assert await desk.status(made.run_id) == "suspended"
    assert await desk.journal(made.execution_id) == {"one": "done", "two": "done"}
    assert [row["sha256"] for row in await store.sql("SELECT sha256 FROM blob_references")] == [digest]
    assert await store.sql("SELECT 1 FROM blob_deletions") == []
    again = await desk.take(made.execution_id)
    assert again == Fence(made.execution_id, 2)
    await desk.close(again)


@pytest.mark.clause("runs.owner-lease")
async def test_an_end_after_the_lease_is_refused_while_nobody_has_looked(desk: RunsDesk) -> None:
    held = await desk.open_remote("job")
    desk.pass_time(OWNER_LEASE_SECONDS)
    with pytest.raises(MoorageError):
        await desk.close(held.fence)
    assert await desk.status(held.run_id) == "running"


def test_runners_are_chosen_by_scope_alone() -> None:
    assert runner_of("a/b", declared=True) == "s:a/b"
    shared = {runner_of(f"run_{number}", declared=False, shards=4) for number in range(200)}
    assert shared == {"r:00", "r:01", "r:02", "r:03"}
    assert runner_of("run_1", declared=False) == runner_of("run_1", declared=False)
    assert runner_of("run_1", declared=False, shards=0) == "r:00"


@pytest.mark.clause("runs.wake")
async def test_an_execution_whose_run_has_ended_is_left_alone(desk: RunsDesk, store: Store) -> None:
    held = await desk.open_remote("job")
    await desk.note(held.execution_id, "one")
    await desk.close(held.fence, "failed")
    await store.sql("UPDATE executions SET wake_at = CAST(? AS INTEGER), claimable = 1", desk.now)
    assert await fired(desk, held.execution_id) == []
    row = await desk.execution(held.execution_id)
    assert row is not None
    assert (row["wake_at"], row["claimable"]) == (None, 0)


@pytest.mark.clause("runs.retirement")
async def test_a_parent_that_nobody_took_in_time_finds_its_child_failed(desk: RunsDesk) -> None:
    parent = await desk.open_remote("parent")
    child = await desk.open_remote("child")
    await desk.store.sql("UPDATE runs SET parent_run = ? WHERE run_id = ?", parent.run_id, child.run_id)
    await desk.note(parent.execution_id, "kid", "pending", kind="child", ref=child.run_id)
    await desk.note(parent.execution_id, "own", "pending", position="1")
    await desk.suspend(parent.fence)
    await desk.close(child.fence)
    desk.pass_time(KEPT + 600)
    assert (await desk.fire())["run_retention"] == 1
    assert await desk.journal(parent.execution_id) == {"kid": "failed", "own": "pending"}
    kid = (await desk.steps(parent.run_id)).items[0]
    assert kid.error is not None
    assert kid.error["code"] == "RunUnknown"

"""How runs end: in one state, with their journal collected in the same transaction, or kept for what comes after."""

import asyncio
import json
from typing import Any

import pytest

from moorage.blobs import due as blob_due
from moorage.kernel.errors import LeaseFenced, RunEnded
from moorage.kernel.instants import Instant
from moorage.runs.model import Failure
from moorage.runs.operations import Close, Suspend
from tests.contract.adapters import Store, dump
from tests.contract.faults import Fault, Plan
from tests.contract.harbor import Harbor, claim, put, record, value
from tests.contract.occasions import fire

NO = Failure("Permanent", "no", "Boom", "a")


@pytest.fixture
def harbor(store: Store) -> Harbor:
    return Harbor(store)


@pytest.mark.clause("runs.retirement", "runs.collection", "runs.execution-id-keys-journal")
async def test_success_retires_the_execution_with_its_journal_and_no_other(harbor: Harbor) -> None:
    execution, other = await harbor.opened(scope="s1"), await harbor.opened(scope="s2")
    for one in (execution, other):
        await harbor.apply(one.fence, claim("a"), put("b", 2))
    await harbor.apply(execution.fence, record("a", 1), Close("success", value({"r": 1})))
    assert {row["execution_id"] for row in await harbor.rows("journal")} == {other.execution_id}
    assert {row["execution_id"] for row in await harbor.rows("executions")} == {other.execution_id}
    run = await harbor.run(execution.run_id)
    assert (run["status"], run["ended_at"], run["result"], run["result_size"]) == ("success", harbor.now, '{"r":1}', 7)
    steps = json.loads(run["steps"])
    assert steps["total"] == 2
    assert {(one["label"], one["state"], one["size"]) for one in steps["items"]} == {("a", "done", 1), ("b", "done", 1)}
    assert "value" not in steps["items"][0]
    told = await harbor.store.sql("SELECT type, data FROM history WHERE subject = ? ORDER BY position", execution.run_id)
    assert [row["type"] for row in told] == ["run.opened", "run.closed"]
    assert json.loads(told[1]["data"])["status"] == "success"


@pytest.mark.clause("runs.resumable-remains", "runs.pin-release", "runs.unclosed-execution")
@pytest.mark.parametrize("status", ["failed", "canceled"])
@pytest.mark.parametrize("recorded", [True, False])
async def test_another_end_keeps_what_was_recorded_and_retires_what_recorded_nothing(
    harbor: Harbor, status: Any, recorded: bool
) -> None:
    execution = await harbor.opened(scope="s1")
    await harbor.apply(execution.fence, claim("a"))
    if recorded:
        await harbor.apply(execution.fence, put("b", 2))
    await harbor.apply(execution.fence, Close(status, error=NO if status == "failed" else None))
    run, kept = await harbor.run(execution.run_id), await harbor.row(execution.execution_id)
    assert (run["status"], run["ended_at"] is not None) == (status, True)
    assert (run["error"] is not None) == (status == "failed")
    assert len(await harbor.rows("journal")) == (2 if recorded else 0)
    assert (kept is not None) == recorded
    if kept is not None:
        assert (kept["owner"], kept["expires_at"], kept["wake_at"], kept["claimable"]) == (None, None, None, 0)
        assert await harbor.take(execution.execution_id) is None
    later = await harbor.held(await harbor.open(scope="s1"), "bob")
    assert (later.execution_id == execution.execution_id) == recorded
    assert len(later.entries) == (2 if recorded else 0)


@pytest.mark.clause("runs.collection", "runs.retirement")
@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER])
async def test_the_journal_is_collected_with_the_retirement_or_not_at_all(harbor: Harbor, fault: Fault) -> None:
    execution = await harbor.opened()
    await harbor.apply(execution.fence, put("a", 1))
    before = await dump(harbor.store)
    harbor.faults = Plan(commits=[fault])
    with pytest.raises(Exception, match="the test lost"):
        await harbor.apply(execution.fence, Close("success"))
    if fault is Fault.FAIL_BEFORE:
        assert await dump(harbor.store) == before
    else:
        assert (await harbor.rows("journal"), await harbor.rows("executions")) == ([], [])


@pytest.mark.clause("runs.cancel-race")
async def test_of_several_ends_at_once_one_is_the_run_s(harbor: Harbor) -> None:
    for round_ in range(5):
        execution = await harbor.opened(scope=f"s{round_}")
        await harbor.apply(execution.fence, put("a", 1))
        closes = [Close("success"), Close("canceled"), Close("failed", error=NO)]
        told = await asyncio.gather(*(harbor.apply(execution.fence, one) for one in closes), return_exceptions=True)
        won = [close.status for close, one in zip(closes, told, strict=True) if isinstance(one, list)]
        assert len(won) == 1
        assert {type(one) for one in told if not isinstance(one, list)} == {RunEnded}
        assert (await harbor.run(execution.run_id))["status"] == won[0]
        closed = await harbor.store.sql("SELECT 1 FROM history WHERE subject = ? AND type = 'run.closed'", execution.run_id)
        assert len(closed) == 1


@pytest.mark.clause("runs.cancel-race")
async def test_a_run_that_somebody_else_ended_is_not_ended_again(harbor: Harbor) -> None:
    execution = await harbor.opened()
    await harbor.apply(execution.fence, put("a", 1), Suspend("suspended", None))
    await harbor.store.sql("UPDATE runs SET status = 'canceled', ended_at = 1800000000001")
    before = await dump(harbor.store)
    with pytest.raises(RunEnded) as raised:
        await harbor.apply(execution.fence, Close("success"))
    assert raised.value.members["run_status"] == "canceled"
    with pytest.raises(LeaseFenced):
        await harbor.apply(execution.fence, record("a", 1))
    assert await dump(harbor.store) == before


@pytest.mark.clause("runs.cancel-race", "leases.fence")
async def test_an_owner_that_was_followed_ends_nothing(harbor: Harbor) -> None:
    first = await harbor.opened()
    harbor.now = first.lease.expires_at
    second = await harbor.held(first.execution_id, "bob")
    with pytest.raises(LeaseFenced):
        await harbor.apply(first.fence, Close("success", value("mine")))
    await harbor.apply(second.fence, Close("success", value("ours")))
    with pytest.raises(RunEnded):
        await harbor.apply(first.fence, Close("success", value("mine")))
    assert (await harbor.run(first.run_id))["result"] == '"ours"'


@pytest.mark.clause("runs.error-cap")
async def test_an_error_is_masked_and_bounded_before_it_is_stored(harbor: Harbor) -> None:
    execution = await harbor.opened()
    told = "Authorization: Bearer abcdefghijklmnopqrstuvwxyz0123456789 " + "y" * 5000
    await harbor.apply(execution.fence, Close("failed", error=Failure("Permanent", told)))
    error = json.loads((await harbor.run(execution.run_id))["error"])
    assert "abcdefghijklmnop" not in error["message"]
    assert len(error["message"].encode()) <= 2048


@pytest.mark.clause("blobs.order", "runs.collection", "runs.retirement")
async def test_objects_go_with_what_needs_them(harbor: Harbor) -> None:
    big, result = "b" * 1_100_000, "r" * 1_100_000
    execution = await harbor.opened(given="i" * 1_100_000)
    await harbor.apply(execution.fence, put("a", big))
    await harbor.apply(execution.fence, put("c", big), Close("success", value(result)))
    [held] = await harbor.rows("blob_references")
    run = await harbor.run(execution.run_id)
    assert (held["holder"], held["sha256"]) == (execution.run_id, run["result_blob"])
    assert (run["result"], run["result_size"]) == (None, len(result) + 2)
    deletions = blob_due.BlobDeletions(harbor.store.blobs)
    for row in await harbor.rows("blob_deletions"):
        await fire(deletions, harbor.store.db, Instant(harbor.now + 1), row["sha256"])
    assert [one async for one in harbor.store.blobs.list()] == [run["result_blob"]]


@pytest.mark.clause("runs.machine-state")
async def test_no_derived_view_holds_what_an_execution_is(harbor: Harbor) -> None:
    """Sweeping objects and draining what is due change neither journal nor owner."""
    execution = await harbor.opened()
    await harbor.apply(execution.fence, put("a", "x" * 1_100_000), claim("b"))
    before = [await harbor.rows(table) for table in ("executions", "journal", "awakeables", "runs")]
    later = Instant(harbor.now + 25 * 3_600_000)
    sweep = blob_due.BlobSweep(harbor.store.blobs)
    await sweep.fire(harbor.store.db(), later, "after:")
    assert [await harbor.rows(table) for table in ("executions", "journal", "awakeables", "runs")] == before
    assert len([one async for one in harbor.store.blobs.list()]) == 1

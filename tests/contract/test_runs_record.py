"""Looking at runs: one, its steps, what a step recorded, a window of them, and an export."""

import json
from typing import Any

import pytest

from moorage.catalog.access import Caller, Grant
from moorage.journal.model import NO_INPUT, Value
from moorage.kernel import canonical, ids
from moorage.kernel.errors import (
    BlobMissing,
    CursorMismatch,
    EntryUnknown,
    ExecutionBusy,
    Forbidden,
    HistoryBoundSpelling,
    RunJournalRetired,
    RunUnknown,
)
from moorage.kernel.instants import Instant, render
from moorage.kernel.limits import (
    EXPORT_DEFAULT,
    EXPORT_ITEMS,
    JOURNAL_INLINE_BYTES,
    RUN_STEPS_BYTES,
    RUNS_DEFAULT,
    RUNS_ITEMS,
)
from moorage.runs import export, listing, values
from moorage.runs.listing import Wanted, bound
from moorage.runs.tracing_context import trace_of, traceparent
from tests.contract.adapters import Store
from tests.contract.runs_desk import START, RunsDesk


@pytest.fixture
def desk(store: Store) -> RunsDesk:
    return RunsDesk(store)


async def many(desk: RunsDesk, count: int, body: str = "order", by: str = "root", status: str = "success") -> list[str]:
    """Runs that ended, a second after each other; the ids oldest first."""
    rows = []
    for number in range(count):
        at = Instant(desk.now + 1000 * number)
        rows.append([ids.new("run", at), body, status, at, by])
    await desk.store.sql(
        "INSERT INTO runs (run_id, execution_id, body, scope, host, runner, status, attempt, started_at, ended_at, "
        "created_by, trace_id, span_id, metadata) "
        "SELECT value ->> 0, 'exe_' || (value ->> 0), value ->> 1, value ->> 0, 'worker', 'r:00', "
        "value ->> 2, 1, value ->> 3, value ->> 3, value ->> 4, 't', 's', '{}' FROM json_each(?)",
        json.dumps(rows),
    )
    desk.pass_time(count)
    return [str(row[0]) for row in rows]


@pytest.mark.clause("runs.status-set", "runs.trace-context", "runs.row-at-open")
async def test_a_run_in_flight_and_ended_as_json(desk: RunsDesk) -> None:
    trace = trace_of(None)
    held = await desk.open_remote("job")
    made = await desk.admit("s", trace=trace, metadata={"a": 1}, config_revision="c1")
    shown = (await desk.show(made.run_id)).wire()
    row = await desk.run(made.run_id)
    assert shown == {
        "run_id": made.run_id,
        "execution_id": made.execution_id,
        "body": "order",
        "scope": "s",
        "status": "running",
        "attempt": 1,
        "started_at": render(desk.now),
        "host": "worker",
        "plan_reference": row["plan_reference"],
        "config_revision": "c1",
        "created_by": "root",
        "traceparent": traceparent(trace),
        "metadata": {"a": 1},
    }
    desk.pass_time(1)
    await desk.close(held.fence, result={"n": 1})
    ended = (await desk.show(held.run_id)).wire()
    assert (ended["status"], ended["result"], ended["result_bytes"]) == ("success", {"n": 1}, 7)
    assert ended["ended_at"] == render(desk.now)
    other = await desk.open_remote("other")
    await desk.close(other.fence, "failed", step="get")
    failed = (await desk.show(other.run_id)).wire()
    assert failed["error"] == {"tag": "Permanent", "message": "boom", "step": "get"}
    assert "result" not in failed


@pytest.mark.clause("runs.resume-at", "runs.waiting-state")
async def test_a_waiting_run_tells_until_when_and_a_suspended_one_not(desk: RunsDesk) -> None:
    held = await desk.open_remote("a")
    until = Instant(desk.now + 60_000)
    await desk.suspend(held.fence, until)
    shown = (await desk.show(held.run_id)).wire()
    assert (shown["status"], shown["next_attempt_at"]) == ("waiting", render(until))
    other = await desk.open_remote("b")
    await desk.suspend(other.fence)
    shown = (await desk.show(other.run_id)).wire()
    assert shown["status"] == "suspended"
    assert "next_attempt_at" not in shown
    assert (await desk.job(held.run_id))["state"] == (await desk.job(other.run_id))["state"] == "waiting"


@pytest.mark.clause("runs.admission", "catalog.grants")
async def test_who_may_see_a_run(desk: RunsDesk) -> None:
    starter = desk.seen_by(await desk.credential("starter", Grant(frozenset({"execute"}), ("order",))))
    made = await starter.admit()
    lost = desk.seen_by(await desk.credential("starter2"))
    for action in ("read", "execute", "operate"):
        seeing = desk.seen_by(await desk.credential(f"by-{action}", Grant(frozenset({action}), ("ord*",))))
        assert (await seeing.show(made.run_id)).run_id == made.run_id
        assert len((await seeing.page()).items) == 1
    narrowed = desk.seen_by(await desk.credential("narrowed", Grant(frozenset({"read"}), match={"a": 1})))
    elsewhere = desk.seen_by(await desk.credential("elsewhere", Grant(frozenset({"read", "operate"}), ("fetch",))))
    for blind in (lost, narrowed, elsewhere):
        for look in (blind.show, blind.steps, blind.job):
            with pytest.raises(RunUnknown):
                await look(made.run_id)
        with pytest.raises(RunUnknown):
            await blind.output(made.run_id, f"one@{NO_INPUT}")
        assert (await blind.page()).items == []
        assert [line.get("count") for line in await blind.export()] == [0]
    own = starter.seen_by(Caller("starter", (), "crd_starter"))
    assert (await own.show(made.run_id)).run_id == made.run_id
    assert len((await own.page(Wanted(body="order"))).items) == 1


@pytest.mark.clause("runs.outputs-by-reference", "runs.collection")
async def test_steps_come_from_the_journal_while_it_lives_and_from_the_record_afterwards(desk: RunsDesk) -> None:
    held = await desk.open_remote("job")
    run = held.run_id
    await desk.note(held.execution_id, "one", value={"secret": 1}, position="0")
    desk.now = Instant(desk.now + 5)
    await desk.note(held.execution_id, "two", "pending", position="1")
    await desk.note(held.execution_id, "nap", "waiting", position="2", kind="sleep", until=Instant(desk.now + 9))
    await desk.note(held.execution_id, "kid", "pending", position="3", kind="child", ref="run_x")
    await desk.note(held.execution_id, "bad", "failed", position="4")
    living = (await desk.steps(run)).wire()
    assert living["total"] == 5
    assert not living["truncated"]
    by_label = {step["label"]: step for step in living["items"]}
    assert list(by_label) == ["one", "two", "nap", "kid", "bad"]
    assert by_label["one"]["output"] == {"ref": f"one@{NO_INPUT}", "bytes": 12}
    assert "secret" not in canonical.dumps(living)
    statuses = {label: step["status"] for label, step in by_label.items()}
    assert statuses == {"one": "success", "two": "running", "nap": "waiting", "kid": "waiting", "bad": "failed"}
    assert by_label["bad"]["error"] == {"tag": "Permanent", "message": "boom"}
    assert by_label["nap"]["next_attempt_at"] == render(Instant(desk.now + 9))
    assert await desk.output(run, f"one@{NO_INPUT}") == {"secret": 1}
    await desk.close(held.fence)
    assert await desk.journal(held.execution_id) == {}
    kept = (await desk.steps(run)).wire()
    kept_by = {step["label"]: step for step in kept["items"]}
    assert [kept_by[label] for label in ("one", "bad")] == [by_label[label] for label in ("one", "bad")]
    assert (living["outputs"], kept["outputs"]) == ("kept", "retired")
    assert kept_by["two"]["status"] == kept_by["nap"]["status"] == "failed"
    with pytest.raises(RunJournalRetired):
        await desk.output(run, f"one@{NO_INPUT}")


@pytest.mark.clause("runs.distinct-canceled", "runs.abandoned")
async def test_a_stopped_run_shows_its_step_failed_as_canceled_and_has_no_error_itself(desk: RunsDesk) -> None:
    held = await desk.open_remote("job")
    await desk.note(held.execution_id, "one")
    await desk.note(held.execution_id, "two", "pending", position="1")
    await desk.close(held.fence, "canceled")
    assert (await desk.show(held.run_id)).error is None
    one, two = (await desk.steps(held.run_id)).items
    assert (one.status, two.status) == ("success", "failed")
    assert two.error is not None
    assert two.error["tag"] == "Canceled"


@pytest.mark.clause("runs.outputs-by-reference")
async def test_an_output_is_a_request_of_its_own_with_an_authority_of_its_own(desk: RunsDesk, store: Store) -> None:
    held = await desk.open_remote("job")
    await desk.note(held.execution_id, "one", value=[1])
    await desk.note(held.execution_id, "a@b", value="at", input_sha256="f" * 64)
    await desk.note(held.execution_id, "busy", "pending")
    await desk.note(held.execution_id, "lost", blob="0" * 64)
    assert await desk.output(held.run_id, f"a@b@{'f' * 64}") == "at"
    executing = desk.seen_by(await desk.credential("executing", Grant(frozenset({"execute"}), ("fetch",))))
    await executing.steps(held.run_id)
    with pytest.raises(Forbidden):
        await executing.output(held.run_id, f"one@{NO_INPUT}")
    reading = desk.seen_by(await desk.credential("reading", Grant(frozenset({"read"}), ("fetch",))))
    assert await reading.output(held.run_id, f"one@{NO_INPUT}") == [1]
    for reference in ("one", f"two@{NO_INPUT}", f"busy@{NO_INPUT}", ""):
        with pytest.raises(EntryUnknown):
            await desk.output(held.run_id, reference)
    with pytest.raises(BlobMissing):
        await desk.output(held.run_id, f"lost@{NO_INPUT}")


@pytest.mark.clause("blobs.inline-cutoff")
async def test_a_large_result_is_loaded_where_one_run_is_shown_and_nowhere_else(desk: RunsDesk) -> None:
    held = await desk.open_remote("job")
    value = values.placed(Value.of(canonical.dumps("x" * int(JOURNAL_INLINE_BYTES))))
    await values.store(desk.db(), desk.store.blobs, desk.now, held.execution_id, [value])
    await desk.close(held.fence)
    await desk.store.sql(
        "UPDATE runs SET result = NULL, result_blob = ?, result_size = ? WHERE run_id = ?",
        value.blob,
        value.size,
        held.run_id,
    )
    shown = await desk.show(held.run_id)
    assert shown.result is not None
    assert shown.result.text == value.text
    [listed] = (await desk.page()).items
    assert (listed.result, listed.result_bytes) == (None, value.size)
    assert "result" not in listed.wire()


async def test_of_very_many_steps_the_first_are_kept(desk: RunsDesk) -> None:
    held = await desk.open_remote("job")
    label = "y" * 900
    count = int(RUN_STEPS_BYTES) // 1000
    await desk.store.sql(
        "INSERT INTO journal (execution_id, label, input_sha256, position, kind, state, attempt, epoch, started_at) "
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < CAST(?1 AS INTEGER)) "
        "SELECT ?2, ?3 || i, '', i, 'step', 'pending', 1, 1, i FROM n",
        count,
        held.execution_id,
        label,
    )
    await desk.close(held.fence)
    kept = await desk.steps(held.run_id)
    assert kept.total == count
    assert 0 < len(kept.items) < count
    assert kept.items[0].key.label == f"{label}1"
    assert kept.wire()["truncated"]
    assert len((await desk.run(held.run_id))["steps"]) < int(RUN_STEPS_BYTES) + 100


@pytest.mark.clause("runs.history-window", "runs.describe-window", "runs.truncation-flag")
async def test_the_window_is_newest_first_with_five_by_default_and_five_hundred_at_most(desk: RunsDesk) -> None:
    made = await many(desk, 12)
    first = await desk.page()
    assert [run.run_id for run in first.items] == made[:-6:-1]
    assert first.wire()["window"] == {"since": None, "limit": int(RUNS_DEFAULT)}
    assert first.truncated
    second = await desk.page(cursor=first.next_cursor)
    third = await desk.page(cursor=second.next_cursor)
    assert [run.run_id for run in [*first.items, *second.items, *third.items]] == made[::-1]
    assert not third.truncated
    assert (await desk.page(limit=10_000)).limit == int(RUNS_ITEMS)
    assert not (await desk.page(limit=12)).truncated
    assert (await desk.page(limit=11)).truncated
    since = Instant(START + 9000)
    late = await desk.page(Wanted(since=since), limit=10)
    assert [run.run_id for run in late.items] == made[:8:-1]
    assert late.wire()["window"] == {"since": render(since), "limit": 10}
    assert not late.truncated
    assert (await desk.page(Wanted(since=since), limit=2)).truncated
    empty = await desk.page(Wanted(since=Instant(desk.now + 1)))
    assert (empty.items, empty.truncated) == ([], False)
    with pytest.raises(CursorMismatch):
        await desk.page(Wanted(since=since), cursor=first.next_cursor)


@pytest.mark.clause("runs.history-window")
async def test_a_window_reads_itself_and_no_more(desk: RunsDesk) -> None:
    await many(desk, 400)
    await many(desk, 5, "fetch")
    for wanted in (Wanted(), Wanted(body="order"), Wanted(since=desk.now)):
        await desk.page(wanted)
        assert desk.cost.trips == 1
        assert desk.cost.rows_read <= 60


@pytest.mark.clause("runs.history-window", "runs.truncation-flag")
async def test_filters_and_pages_that_are_short(desk: RunsDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "QUERY_EXAMINED", 10)
    old = await many(desk, 2, status="failed")
    await many(desk, 25)
    mine = await many(desk, 1, "fetch", status="failed")
    found: list[str] = []
    cursor, pages = None, 0
    while True:
        page = await desk.page(Wanted(status="failed"), cursor=cursor)
        found += [run.run_id for run in page.items]
        cursor, pages = page.next_cursor, pages + 1
        if cursor is None:
            break
    assert found == [*mine, *old[::-1]]
    assert pages == 3
    assert [run.run_id for run in (await desk.page(Wanted(body="fetch"))).items] == mine
    held = await desk.open_remote("a/b")
    with pytest.raises(ExecutionBusy):
        await desk.open_remote("a/b")
    assert len((await desk.page(Wanted(scope="a/b"))).items) == 2
    assert [run.run_id for run in (await desk.page(Wanted(scope="a/b", status="running"))).items] == [held.run_id]
    assert (await desk.page(Wanted(scope="a"))).items == []
    assert (await desk.page(Wanted(scope="a/b", body="order"))).items == []


@pytest.mark.clause("runs.bound-spelling")
@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2027-01-15", 1_799_971_200_000),
        ("2027-01-15T08:00:00Z", 1_800_000_000_000),
        ("2027-01-15T08:00:00.001Z", 1_800_000_000_001),
        ("2027-01-15T08:00:00.000000001Z", 1_800_000_000_001),
        ("1960-01-01", 0),
        ("9999-12-31T23:59:59.999999999Z", 253_402_300_799_999),
    ],
)
def test_bounds_that_are_understood(text: str, instant: int) -> None:
    assert bound(text) == instant


@pytest.mark.clause("runs.bound-spelling")
@pytest.mark.parametrize(
    "text",
    [
        "", "2027", "2027-1-5", "2027-13-01", "2027-02-30", "20270115", "2027-01-15 08:00:00Z", "2027-01-15T08:00:00",
        "2027-01-15T08:00:00+00:00", "2027-01-15T08:00:00z", "2027-01-15t08:00:00Z", "2027-01-15T08:00Z", "yesterday",
        "1800000000000", "2027-01-15T24:00:00Z", "2027-01-15Z", "٢٠٢٧-01-15", "2027-01-15\n", "2027-01-15T08:00:60Z",
    ],
)  # fmt: skip
def test_bounds_that_are_not(text: str) -> None:
    with pytest.raises(HistoryBoundSpelling):
        bound(text)


@pytest.mark.clause("runs.export", "runs.truncation-flag")
async def test_an_export_is_a_header_and_a_run_a_line(desk: RunsDesk) -> None:
    made = await many(desk, 6)
    other = await many(desk, 1, "fetch")
    header, *lines = await desk.export()
    assert header == {
        "store": "test",
        "window": {"since": None, "limit": int(EXPORT_DEFAULT)},
        "count": 7,
        "truncated": False,
    }
    assert [line["run_id"] for line in lines] == [*other, *made[::-1]]
    header, *lines = await desk.export(Wanted(body="order", since=Instant(START + 1000)), limit=3)
    assert (header["count"], header["truncated"], header["window"]["limit"]) == (3, True, 3)
    assert [line["run_id"] for line in lines] == made[:2:-1]
    assert (await desk.export(limit=7))[0]["truncated"] is False
    assert (await desk.export(limit=10**6))[0]["window"]["limit"] == int(EXPORT_ITEMS)


@pytest.mark.clause("runs.export")
async def test_an_export_streams_a_page_at_a_time_and_holds_to_its_header(desk: RunsDesk) -> None:
    await many(desk, 600)
    db = desk.db()
    lines = export.export(db, desk.caller, desk.now, Wanted(), 550)
    header = json.loads(await anext(lines))
    assert (header["count"], header["truncated"], db.cost.trips) == (550, True, 1)
    await anext(lines)
    assert db.cost.trips == 2
    await many(desk, 3)
    rest = [json.loads(line) async for line in lines]
    assert len(rest) == 549
    assert db.cost.trips == 4
    starts = [run["started_at"] for run in rest]
    assert starts == sorted(starts, reverse=True)


async def test_a_run_as_a_job(desk: RunsDesk) -> None:
    async def job(run_id: str) -> dict[str, Any]:
        return {name: value for name, value in (await desk.job(run_id)).items() if name != "job_id"}

    waiting = await desk.admit("a", handoff=False)
    assert await job(waiting.run_id) == {"state": "accepted"}
    fence = await desk.take(waiting.execution_id)
    assert fence is not None
    assert await job(waiting.run_id) == {"state": "running"}
    await desk.close(fence)
    assert await job(waiting.run_id) == {"state": "completed", "result_ref": f"/runs/{waiting.run_id}"}
    failed = await desk.open_remote("b")
    await desk.close(failed.fence, "failed")
    assert await job(failed.run_id) == {"state": "failed", "error_code": "Permanent"}
    stopped = await desk.open_remote("c")
    await desk.close(stopped.fence, "canceled")
    assert await job(stopped.run_id) == {"state": "cancelled"}
    refused = await desk.open_remote("d")
    with pytest.raises(ExecutionBusy) as busy:
        await desk.open_remote("d")
    assert await job(busy.value.members["run_id"]) == {"state": "failed", "error_code": "ExecutionBusy"}
    assert await job(refused.run_id) == {"state": "running"}
    with pytest.raises(RunUnknown):
        await desk.job("run_none")

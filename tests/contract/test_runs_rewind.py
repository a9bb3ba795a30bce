"""Rewinding and restarting: what is retired by hand, what never is, and what a restart keeps."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from moorage.catalog.access import Grant
from moorage.kernel import canonical
from moorage.kernel.errors import (
    EntryUnknown,
    ExecutionPinMismatch,
    ExecutionRewindNotPending,
    ExecutionRewindPlanCurrent,
    ExecutionRewindUnsafe,
    Forbidden,
    IdempotencyConflict,
    InputInvalid,
    RequestInvalid,
    RunJournalRetired,
    RunUnknown,
)
from moorage.kernel.instants import Instant
from moorage.kernel.limits import JOURNAL_INLINE_BYTES
from moorage.runs.model import BodyInfo
from moorage.runs.restart import place
from tests.contract.adapters import Store, dump
from tests.contract.runs_desk import OTHER, REBUILT, REMOTE, RunsDesk


@pytest.fixture
def desk(store: Store) -> RunsDesk:
    return RunsDesk(store)


async def stuck(desk: RunsDesk, scope: str = "score") -> tuple[str, str]:
    """A failed run of the Worker's body whose execution is pending, after an opening under another build."""
    made = await desk.admit(scope, handoff=False)
    fence = await desk.take(made.execution_id)
    assert fence is not None
    await desk.note(made.execution_id, "one")
    await desk.close(fence, "failed", step="two")
    desk.pass_time(10)
    with pytest.raises(ExecutionPinMismatch):
        await desk.admit(scope, info=REBUILT)
    desk.pass_time(10)
    return made.execution_id, made.run_id


@pytest.mark.clause("runs.rewind", "runs.rewind-record", "runs.pinned-plan-changed", "runs.collection")
async def test_a_rewind_frees_the_scope_for_another_plan_and_leaves_a_canceled_run(desk: RunsDesk, store: Store) -> None:
    execution_id, run_id = await stuck(desk)
    await store.sql(
        "INSERT INTO cursors (scope, name, position, revision, execution_id, updated_at) "
        "VALUES ('score', 'c', '1', 1, ?, 1)",
        execution_id,
    )
    await desk.note(execution_id, "big", blob="0" * 64, position="1")
    opened = await desk.execution(execution_id)
    assert opened is not None
    rewound = await desk.rewind(execution_id, "a new prompt")
    assert await desk.execution(execution_id) is None
    assert await desk.journal(execution_id) == {}
    assert await store.sql("SELECT holder FROM blob_references") == []
    assert [row["revision"] for row in await store.sql("SELECT revision FROM cursors")] == [1]
    run = await desk.show(rewound.run_id)
    assert (run.status, run.scope, run.execution_id) == ("canceled", "score", execution_id)
    assert (run.started_at, run.ended_at) == (opened["opened_at"], desk.now)
    assert run.plan_reference == rewound.plan_reference == opened["plan_reference"]
    assert run.stop is not None
    assert run.stop.reason == "a new prompt"
    assert run.rewound
    assert (run.wire()["rewound_execution"], run.wire()["stop"]["scope"]) == (execution_id, "run")
    assert run.error is None
    assert [step.key.label for step in (await desk.steps(rewound.run_id)).items] == ["one", "big"]
    assert await desk.status(run_id) == "failed"
    listed = [one.run_id for one in (await desk.page()).items]
    assert listed.index(rewound.run_id) >= 1
    assert [one.run_id for one in (await desk.page()).items if one.rewound] == [rewound.run_id]
    assert "rewound_execution" not in (await desk.show(run_id)).wire()
    [told] = await desk.told(execution_id)
    assert (told.type, told.data["reason"], told.data["run_id"]) == ("execution.rewound", "a new prompt", rewound.run_id)
    fresh = await desk.admit("score", info=REBUILT)
    assert fresh.execution_id != execution_id
    assert fresh.execution is not None
    assert fresh.execution.pins.build == OTHER


@pytest.mark.clause("runs.rewind-not-pending")
async def test_what_is_not_pending_holds_nothing_to_release(desk: RunsDesk) -> None:
    made = await desk.open_remote("job")
    await desk.close(made.fence)
    execution_id, _ = await stuck(desk)
    await desk.rewind(execution_id)
    for name in (made.execution_id, execution_id, "exe_none"):
        for force in (False, True):
            with pytest.raises(ExecutionRewindNotPending):
                await desk.rewind(name, force=force)


@pytest.mark.clause("runs.rewind-plan-current")
async def test_an_execution_that_resumes_by_itself_is_rewound_by_force_only(desk: RunsDesk, store: Store) -> None:
    held = await desk.open_remote("job")
    await desk.note(held.execution_id, "one")
    await desk.close(held.fence, "failed")
    before = await dump(store)
    with pytest.raises(ExecutionRewindPlanCurrent):
        await desk.rewind(held.execution_id)
    assert await dump(store) == before
    again = await desk.open_remote("job")
    desk.pass_time(30)
    with pytest.raises(ExecutionRewindPlanCurrent):
        await desk.rewind(held.execution_id)
    rewound = await desk.rewind(held.execution_id, force=True)
    assert await desk.status(again.run_id) == "partial_failure"
    assert await desk.status(rewound.run_id) == "canceled"


Made = Callable[[RunsDesk], Awaitable[tuple[str, str]]]


async def live(desk: RunsDesk) -> tuple[str, str]:
    held = await desk.open_remote("job")
    return held.execution_id, held.run_id


async def waiting(desk: RunsDesk) -> tuple[str, str]:
    held = await desk.open_remote("job")
    await desk.suspend(held.fence, Instant(desk.now + 60_000))
    return held.execution_id, "waiting until"


async def awaiting(desk: RunsDesk) -> tuple[str, str]:
    held = await desk.open_remote("job")
    await _mint(desk, held.execution_id, "awk_1", 60)
    await desk.note(held.execution_id, "answer", "pending", kind="wait", ref="awk_1")
    await desk.suspend(held.fence)
    return held.execution_id, "awk_1"


async def _mint(desk: RunsDesk, execution_id: str, name: str, seconds: int, state: str = "pending") -> None:
    await desk.store.sql(
        "INSERT INTO awakeables (id, token_sha256, state, label, metadata, created_at, created_by, deadline, execution_id, "
        "ended_at, payload, payload_sha256) VALUES (?1, ?1, ?2, 'answer', '{}', CAST(?3 AS INTEGER), 'root', "
        "CAST(?4 AS INTEGER), ?5, CAST(?6 AS INTEGER), ?7, ?8)",
        name,
        state,
        desk.now,
        desk.now + seconds * 1000,
        execution_id,
        None if state == "pending" else desk.now,
        None if state == "pending" else "1",
        None if state == "pending" else "x",
    )


@pytest.mark.clause("runs.rewind-unsafe")
@pytest.mark.parametrize("made", [live, waiting, awaiting])
async def test_nothing_overrides_what_is_unsafe(desk: RunsDesk, store: Store, made: Made) -> None:
    execution_id, named = await made(desk)
    await store.sql("UPDATE executions SET requested_plan = 'another'")
    before = await dump(store)
    for force in (False, True):
        with pytest.raises(ExecutionRewindUnsafe) as refused:
            await desk.rewind(execution_id, force=force)
        assert named in refused.value.detail
    with pytest.raises(ExecutionRewindUnsafe):
        await desk.restart((await desk.page()).items[0].run_id, info=REMOTE)
    assert await dump(store) == before
    desk.pass_time(61)
    if made is not waiting:
        await desk.rewind(execution_id)
        assert [row["state"] for row in await store.sql("SELECT state FROM awakeables")] in ([], ["timed_out"])


@pytest.mark.clause("runs.rewind", "catalog.grants")
async def test_a_rewind_takes_execute_and_operate_on_the_body(desk: RunsDesk, store: Store) -> None:
    execution_id, run_id = await stuck(desk)
    before = await dump(store)
    blind = desk.seen_by(await desk.credential("blind", Grant(frozenset({"execute", "operate"}), ("fetch",))))
    with pytest.raises(ExecutionRewindNotPending):
        await blind.rewind(execution_id)
    with pytest.raises(RunUnknown):
        await blind.restart(run_id)
    for action in ("execute", "operate", "read"):
        half = desk.seen_by(await desk.credential(f"half-{action}", Grant(frozenset({action}), ("order",))))
        with pytest.raises(Forbidden):
            await half.rewind(execution_id)
        with pytest.raises(Forbidden):
            await half.restart(run_id)
    for reason in ("", "x" * 1025):
        with pytest.raises(RequestInvalid):
            await desk.rewind(execution_id, reason)
    await store.sql("DELETE FROM credentials")
    assert await dump(store) == {**before, "credentials": []}
    both = desk.seen_by(await desk.credential("both", Grant(frozenset({"execute", "operate"}), ("order",))))
    await both.rewind(execution_id)


@pytest.mark.clause("runs.rewind", "runs.wake")
async def test_a_parent_learns_that_its_child_was_rewound(desk: RunsDesk) -> None:
    parent = await desk.open_remote("parent")
    child = await desk.admit("child", handoff=False, parent_execution=parent.execution_id, parent_run=parent.run_id)
    await desk.suspend(parent.fence)
    await desk.rewind(child.execution_id, force=True)
    row = await desk.execution(parent.execution_id)
    assert row is not None
    assert row["wake_at"] == desk.now + 5000
    assert await desk.status(child.run_id) == "partial_failure"


@pytest.mark.clause("runs.rewind", "runs.pinned-plan-changed")
async def test_a_restart_keeps_the_prefix_before_a_step_under_the_build_of_now(desk: RunsDesk, store: Store) -> None:
    made = await desk.admit("score", {"n": 1}, handoff=False, metadata={"m": 1}, config={"c": 1}, config_revision="r1")
    fence = await desk.take(made.execution_id)
    assert fence is not None
    for label, position in (("one", "0"), ("two", "1.0/0"), ("two-b", "1.1/0"), ("three", "9"), ("four", "10")):
        await desk.note(made.execution_id, label, position=position, value={"of": label})
    await desk.note(made.execution_id, "large", blob="e" * 64, position="2")
    await desk.note(made.execution_id, "late", blob="f" * 64, position="11")
    await desk.close(fence, "failed", step="five")
    with pytest.raises(EntryUnknown):
        await desk.restart(made.run_id, "no such")
    key = desk.key("again")
    restarted = await desk.restart(made.run_id, "four", REBUILT, key)
    assert restarted.execution_id != made.execution_id
    assert await desk.execution(made.execution_id) is None
    assert await desk.journal(made.execution_id) == {}
    kept = {"one", "two", "two-b", "three", "large"}
    assert set(await desk.journal(restarted.execution_id)) == kept
    values = await store.sql("SELECT label, value FROM journal WHERE blob IS NULL")
    assert {row["label"]: json.loads(row["value"])["of"] for row in values} == {name: name for name in kept - {"large"}}
    assert await store.sql("SELECT sha256, holder FROM blob_references") == [
        {"sha256": "e" * 64, "holder": restarted.execution_id}
    ]
    run = await desk.show(restarted.run_id)
    assert (run.restarted_from, run.scope, run.status, run.metadata) == (made.run_id, "score", "running", {"m": 1})
    assert run.config_revision == "r1"
    row = await desk.execution(restarted.execution_id)
    assert row is not None
    assert (row["build"], row["input"], row["config"]) == (OTHER.digest, '{"n":1}', '{"c":1}')
    assert (row["owner"], row["wake_at"]) == (None, desk.now + 5000)
    assert await desk.take(restarted.execution_id) is None
    assert await desk.take(restarted.execution_id, build=OTHER) is not None
    assert (await desk.restart(made.run_id, "four", REBUILT, key)).run_id == restarted.run_id
    with pytest.raises(RunJournalRetired):
        await desk.restart(made.run_id, "four", REBUILT)
    with pytest.raises((RunJournalRetired, IdempotencyConflict)):
        await desk.restart(made.run_id, "four", REBUILT, desk.key("again", "other"))
    assert [entry.type for entry in await desk.told(made.execution_id)] == ["execution.restarted"]


@pytest.mark.clause("runs.rewind", "runs.body-pins")
@pytest.mark.parametrize("given", [{"n": 1}, {"much": "x" * int(JOURNAL_INLINE_BYTES)}], ids=["small", "large"])
async def test_another_build_that_does_not_take_the_old_input_leaves_all_as_it_is(
    desk: RunsDesk, store: Store, given: dict[str, Any]
) -> None:
    made = await desk.admit("score", given)
    assert made.execution is not None
    await desk.note(made.execution_id, "one")
    await desk.close(made.execution.fence, "failed")
    asked: list[tuple[BodyInfo, Any]] = []

    def check(info: BodyInfo, value: Any) -> None:
        asked.append((info, value))
        raise InputInvalid

    before = await dump(store)
    with pytest.raises(InputInvalid):
        await desk.restart(made.run_id, info=REBUILT, key=desk.key("again"), check=check)
    assert asked == [(REBUILT, given)]
    assert await dump(store) == before
    restarted = await desk.restart(made.run_id, key=desk.key("again"), check=check)
    assert len(asked) == 1
    assert await desk.execution(restarted.execution_id) is not None


@pytest.mark.clause("runs.rewind", "awake.mint")
async def test_a_restart_without_a_step_keeps_all_that_was_recorded_and_its_awakeables(desk: RunsDesk, store: Store) -> None:
    held = await desk.open_remote()
    await _mint(desk, held.execution_id, "awk_1", 60, "resolved")
    minted = {"deadline": "2027-01-15T08:01:00.000Z", "id": "awk_1"}
    await desk.note(held.execution_id, "ask", kind="awakeable", value=minted, ref="awk_1")
    await desk.note(held.execution_id, "busy", "pending", position="1")
    await desk.close(held.fence, "failed")
    once = await desk.restart(held.run_id, info=REMOTE)
    assert once.host == "remote"
    desk.pass_time(1)
    twice = await desk.restart(once.run_id, info=REMOTE)
    [entry] = await store.sql("SELECT label, value FROM journal WHERE execution_id = ?", twice.execution_id)
    assert entry["value"] == canonical.dumps(minted)
    [awakeable] = await store.sql("SELECT execution_id, state FROM awakeables")
    assert awakeable == {"execution_id": twice.execution_id, "state": "resolved"}
    assert (await desk.show(twice.run_id)).scope == held.scope
    assert await desk.status(once.run_id) == "partial_failure"


@pytest.mark.clause("runs.wake")
async def test_a_parent_waits_for_the_restarted_child_instead(desk: RunsDesk, store: Store) -> None:
    parent = await desk.open_remote("parent")
    child = await desk.admit("child", handoff=False, parent_execution=parent.execution_id, parent_run=parent.run_id)
    await desk.note(parent.execution_id, "kid", "pending", kind="child", ref=child.run_id)
    await desk.suspend(parent.fence)
    restarted = await desk.restart(child.run_id)
    [entry] = await store.sql("SELECT ref FROM journal WHERE execution_id = ?", parent.execution_id)
    assert entry["ref"] == restarted.run_id
    row = await desk.execution(restarted.execution_id)
    assert row is not None
    assert row["parent_execution"] == parent.execution_id


def test_places_sort_as_a_body_reads() -> None:
    read = ["0", "1", "2", "2.0/0", "2.0/9", "2.0/10", "2.0/10.1/0", "2.1/0", "3", "10"]
    assert sorted(sorted(read), key=place) == read

"""Awakeables, children and suspension through the substrate: nothing that ends is missed, whenever it ends."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from moorage.awakeables.due import AwakeableDeadlines
from moorage.kernel import canonical
from moorage.kernel.errors import (
    AwakeableUnknown,
    BodyUnknown,
    ExecutionWoken,
    Forbidden,
    LeaseExpired,
    LeaseFenced,
    RequestInvalid,
    Unauthenticated,
)
from moorage.kernel.instants import Instant, render
from moorage.kernel.limits import JSON_DEPTH
from moorage.runs import hosting, wire
from moorage.runs.admission import Start
from moorage.runs.model import Execution, Failure, Minted
from moorage.runs.operations import Await, Claimed, Close, Mint, Recorded, StartChild, Suspend
from moorage.runs.take import Tokens, take
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Transaction
from tests.contract.adapters import Store, dump
from tests.contract.desk import grant
from tests.contract.harbor import BODIES, KEYS, ROOT, TRACE, Harbor, claim, credential, entry, key, put, record, text, value


@pytest.fixture
def harbor(store: Store) -> Harbor:
    return Harbor(store)


MINT = Mint(key("approval"), "0", 60)


async def minted(harbor: Harbor, execution: Execution, operation: Mint = MINT) -> Minted:
    """Mint an awakeable."""
    [told] = await harbor.apply(execution.fence, operation)
    assert isinstance(told, Minted)
    return told


def wait(told: Minted) -> Await:
    """Await it."""
    return Await(key("approval", told.id), "1", told.id)


def child(label: str = "part", given: Any = None, scope: str | None = None, body: str = "part") -> StartChild:
    """Start a child."""
    return StartChild(key(label, given), "0", body, value(given), scope)


@pytest.mark.clause("awake.journal")
async def test_a_payload_as_deep_as_one_may_be_is_told_to_who_waits(harbor: Harbor) -> None:
    """What is recorded of a wait stands a level deeper than the payload."""
    execution = await harbor.opened()
    told = await minted(harbor, execution)
    await harbor.apply(execution.fence, wait(told))
    deepest = canonical.loads(b"[" * int(JSON_DEPTH) + b"]" * int(JSON_DEPTH))
    await harbor.resolve(told.token, deepest)
    [ended] = await harbor.substrate.refresh(execution.fence)
    assert wire.entry_wire(ended)["value"] == {"resolved": deepest}
    assert wire.entry_of(wire.entry_wire(ended)) == ended
    harbor.now = execution.lease.expires_at
    again = wire.execution_wire(await harbor.held(execution.execution_id, "bob"))
    assert {"resolved": deepest} in [entry.get("value") for entry in again["entries"]]


# --- awakeables ------------------------------------------------------------------------------------------------------


@pytest.mark.clause("awake.mint", "awake.journal")
async def test_a_minted_awakeable_is_recorded_and_told_again_alike(harbor: Harbor) -> None:
    execution = await harbor.opened()
    told = await minted(harbor, execution, Mint(key("approval"), "0", 60, metadata={"a": 1}))
    assert told.url == f"https://moor.test/awake/{told.token}"
    assert told.deadline == harbor.now + 60_000
    [row] = await harbor.rows("awakeables")
    assert (row["id"], row["execution_id"], row["created_by"], row["state"]) == (
        told.id,
        execution.execution_id,
        "root",
        "pending",
    )
    assert told.token not in json.dumps(await dump(harbor.store))
    [recorded] = await harbor.rows("journal")
    assert (recorded["kind"], recorded["state"], recorded["ref"]) == ("awakeable", "done", told.id)
    assert json.loads(recorded["value"]) == {"id": told.id, "deadline": render(told.deadline)}
    assert harbor.woken == [told.deadline]
    harbor.now = execution.lease.expires_at
    again = await harbor.held(execution.execution_id, "bob")
    assert await minted(harbor, again) == told
    assert len(await harbor.rows("awakeables")) == 1
    with pytest.raises(LeaseFenced):
        await minted(harbor, execution)


@pytest.mark.clause("awake.mint", "runs.substrate")
async def test_whoever_takes_an_execution_is_handed_its_tokens(harbor: Harbor) -> None:
    execution = await harbor.opened()
    assert execution.minted == {}
    told = [await minted(harbor, execution, Mint(key("approval", number), "0", 60)) for number in range(2)]
    other = await harbor.opened("other")
    await minted(harbor, other)
    harbor.now = execution.lease.expires_at
    again = await harbor.held(execution.execution_id, "bob")
    assert harbor.cost.trips == 1
    assert again.minted == {key("approval", number): one for number, one in enumerate(told)}
    assert not [one for one in told if one.token in repr(again)]
    harbor.now = again.lease.expires_at
    builds = {"order": BODIES["order"].build.digest}
    for keys, known in ((("a new one", *KEYS), 2), (("a new one",), 0), ((), 0)):
        tokens = Tokens(keys, "https://moor.test")
        db, blobs, execution_id = harbor.db(), harbor.store.blobs, execution.execution_id
        taken = await take(db, blobs, harbor.now, execution_id, "ann", builds, tokens)
        assert taken is not None
        assert len(taken.minted) == known
        assert not [one for one in keys if one in repr(tokens)]
        harbor.now = taken.lease.expires_at


@pytest.mark.clause("awake.early", "awake.journal")
async def test_an_end_before_the_wait_is_found_by_the_wait(harbor: Harbor) -> None:
    execution = await harbor.opened()
    told = await minted(harbor, execution)
    await harbor.resolve(told.token, {"ok": True})
    [outcome] = await harbor.apply(execution.fence, wait(told))
    assert text(outcome) == '{"resolved":{"ok":true}}'
    assert harbor.cost.trips == 1
    assert entry(outcome).ref == told.id
    harbor.now = execution.lease.expires_at
    again = await harbor.held(execution.execution_id, "bob")
    assert text((await harbor.apply(again.fence, wait(told)))[0]) == '{"resolved":{"ok":true}}'


@pytest.mark.clause("awake.journal", "runs.wake")
async def test_an_end_during_the_wait_is_told_and_told_again_until_it_is_heard(harbor: Harbor) -> None:
    execution = await harbor.opened()
    told = await minted(harbor, execution)
    assert await harbor.apply(execution.fence, wait(told)) == [Claimed(1, told.id)]
    assert await harbor.apply(execution.fence, wait(told)) == [Claimed(1, told.id)]
    assert await harbor.substrate.refresh(execution.fence) == []
    await harbor.resolve(told.token, 7)
    for _ in range(2):
        [ended] = await harbor.substrate.refresh(execution.fence)
        assert harbor.cost.trips == 1
        assert (ended.state, ended.value.text if ended.value else None) == ("done", '{"resolved":7}')
    assert text((await harbor.apply(execution.fence, wait(told)))[0]) == '{"resolved":7}'


@pytest.mark.clause("awake.deadline", "awake.journal")
@pytest.mark.parametrize("fired", [False, True])
async def test_a_deadline_ends_the_wait_whether_the_clock_was_there_or_not(harbor: Harbor, fired: bool) -> None:
    execution = await harbor.opened()
    told = await minted(harbor, execution, Mint(key("approval"), "0", 5))
    await harbor.apply(execution.fence, wait(told), Suspend("suspended", None, [{"label": "approval"}]))
    assert harbor.woken[-1] == told.deadline
    kept = await harbor.row(execution.execution_id)
    assert kept is not None
    assert (kept["wake_at"], kept["owner"], kept["expires_at"]) == (told.deadline, None, None)
    run = await harbor.run(execution.run_id)
    assert (run["status"], json.loads(run["awaiting"])) == ("suspended", [{"label": "approval"}])
    harbor.now = told.deadline
    if fired:
        await AwakeableDeadlines().fire(harbor.store.db(), harbor.now, told.id)
    again = await harbor.held(execution.execution_id, "bob")
    [_, ended] = again.entries
    assert ended.value is not None
    assert json.loads(ended.value.text or "") == {"timed_out": render(told.deadline)}
    assert ended.ended_at == told.deadline


@pytest.mark.clause("awake.reconcile", "runs.wake")
async def test_an_end_whose_wake_was_lost_is_found_when_the_execution_is_taken(harbor: Harbor) -> None:
    execution = await harbor.opened()
    told = await minted(harbor, execution)
    await harbor.apply(execution.fence, wait(told), Suspend("suspended", None))
    await harbor.resolve(told.token, "yes")
    await harbor.store.sql("UPDATE executions SET wake_at = NULL")
    again = await harbor.held(execution.execution_id, "bob")
    assert [(one.state, one.epoch) for one in again.entries] == [("done", 1), ("done", 2)]
    assert again.entries[1].value is not None
    assert again.entries[1].value.text == '{"resolved":"yes"}'


@pytest.mark.clause("runs.substrate", "runs.wake", "awake.journal")
@pytest.mark.parametrize("when", ["before", "between", "after"])
async def test_a_host_that_opens_a_scope_again_is_told_what_ended_whenever_it_did(harbor: Harbor, when: str) -> None:
    first = await reopened(harbor)
    told = await minted(harbor, first)
    part = StartChild(key("part"), "2", "part", value(1))
    _, claimed = await harbor.apply(first.fence, wait(told), part)
    assert isinstance(claimed, Claimed)
    assert claimed.ref is not None
    await harbor.apply(first.fence, Close("failed", error=Failure("Permanent", "x")))

    async def end() -> None:
        await harbor.resolve(told.token, "yes")
        child = await harbor.held((await harbor.run(str(claimed.ref)))["execution_id"], "bob")
        await harbor.apply(child.fence, Close("success", value(3)))

    if when == "before":
        await end()
    again = await reopened(harbor, end if when == "between" else None)
    if when == "after":
        await end()
        with pytest.raises(ExecutionWoken):
            await harbor.apply(again.fence, Suspend("suspended", None))
        ended = await harbor.substrate.refresh(again.fence)
    else:
        ended = [one for one in again.entries if one.kind in ("wait", "child")]
    assert {one.kind: one.value.text for one in ended if one.value is not None} == {
        "wait": '{"resolved":"yes"}',
        "child": f'{{"result":3,"run_id":"{claimed.ref}","status":"success"}}',
    }
    assert {one.epoch for one in ended} == {again.lease.epoch}


async def reopened(harbor: Harbor, meanwhile: Callable[[], Awaitable[None]] | None = None) -> Execution:
    """Open the scope as a host that holds it; what happens `meanwhile` does so between the host's two round trips."""
    db: Database = harbor.db() if meanwhile is None else Interrupted(harbor.db(), meanwhile)
    start = Start("job", value(None), "root", None, TRACE)
    info = replace(BODIES["order"], host="remote")
    return await hosting.open_(db, harbor.store.blobs, ROOT, harbor.now, info, start, "ann")


class Interrupted:
    """A database after whose first commit something happens."""

    def __init__(self, db: Database, meanwhile: Callable[[], Awaitable[None]]) -> None:
        self.cost = db.cost
        self._db = db
        self._meanwhile = meanwhile
        self._commits = 0

    async def read(self, reading: Reading) -> None:
        await self._db.read(reading)

    async def commit(self, transaction: Transaction) -> None:
        await self._db.commit(transaction)
        self._commits += 1
        if self._commits == 1:
            await self._meanwhile()

    async def initialize(self, statements: list[str]) -> None:
        await self._db.initialize(statements)


@pytest.mark.clause("runs.wake")
@pytest.mark.parametrize("when", ["before", "with", "after"])
async def test_no_suspension_passes_over_what_has_ended(harbor: Harbor, when: str) -> None:
    execution = await harbor.opened()
    told = await minted(harbor, execution)
    if when != "with":
        await harbor.apply(execution.fence, wait(told))
    if when != "after":
        await harbor.resolve(told.token, 1)
    operations = [wait(told)] if when == "with" else []
    if when == "after":
        await harbor.apply(execution.fence, Suspend("suspended", None))
        await harbor.resolve(told.token, 1)
        kept = await harbor.row(execution.execution_id)
        assert kept is not None
        assert kept["wake_at"] is not None
        return
    before = await dump(harbor.store)
    with pytest.raises(ExecutionWoken):
        await harbor.apply(execution.fence, put("x", 1), *operations, Suspend("suspended", None))
    assert await dump(harbor.store) == before
    if when == "before":
        assert len(await harbor.substrate.refresh(execution.fence)) == 1
    else:
        assert text((await harbor.apply(execution.fence, *operations))[0]) == '{"resolved":1}'
    await harbor.apply(execution.fence, Suspend("suspended", None))


async def test_ends_are_not_taken_over_behind_the_back_of_a_live_owner(harbor: Harbor) -> None:
    execution = await harbor.opened()
    told = await minted(harbor, execution)
    await harbor.apply(execution.fence, wait(told))
    await harbor.resolve(told.token, 1)
    assert await harbor.take(execution.execution_id, "bob") is None
    await harbor.apply(execution.fence, put("x", 1))
    [ended] = await harbor.substrate.refresh(execution.fence)
    assert ended.key == wait(told).key


async def test_refreshing_is_for_the_holder(harbor: Harbor) -> None:
    execution = await harbor.opened()
    harbor.now = execution.lease.expires_at
    with pytest.raises(LeaseExpired):
        await harbor.substrate.refresh(execution.fence)
    await harbor.held(execution.execution_id, "bob")
    with pytest.raises(LeaseFenced):
        await harbor.substrate.refresh(execution.fence)
    with pytest.raises(LeaseFenced):
        await harbor.substrate.cursor(execution.fence, "c")
    with pytest.raises(LeaseFenced):
        await harbor.substrate.values(execution.fence, [key("a")])


async def test_what_is_minted_has_bounds(harbor: Harbor) -> None:
    execution = await harbor.opened()
    before = await dump(harbor.store)
    for wrong in (Mint(key("a"), "0", 0), Mint(key("a"), "0", 60, subject=""), Mint(key("a"), "0", 1e12)):
        with pytest.raises(RequestInvalid):
            await harbor.apply(execution.fence, wrong)
    assert await dump(harbor.store) == before


@pytest.mark.clause("awake.binding")
async def test_an_execution_awaits_nobody_else_s_awakeables(harbor: Harbor) -> None:
    mine, other = await harbor.opened(), await harbor.opened()
    told = await minted(harbor, other)
    await harbor.resolve(told.token, "secret")
    before = await dump(harbor.store)
    for awakeable in (told.id, "awk_nothing"):
        with pytest.raises(AwakeableUnknown):
            await harbor.apply(mine.fence, put("x", 1), Await(key("w"), "1", awakeable))
    assert await dump(harbor.store) == before


# --- suspension ------------------------------------------------------------------------------------------------------


@pytest.mark.clause("runs.waiting-state", "runs.not-before")
async def test_a_wait_until_an_instant_is_on_the_row_before_it_begins(harbor: Harbor) -> None:
    execution = await harbor.opened()
    until = Instant(harbor.now + 3_600_000)
    await harbor.apply(execution.fence, claim("a"), Suspend("waiting", until))
    run, kept = await harbor.run(execution.run_id), await harbor.row(execution.execution_id)
    assert kept is not None
    assert (run["status"], run["next_attempt_at"], run["ended_at"]) == ("waiting", until, None)
    assert (kept["wake_at"], kept["owner"]) == (until, None)
    assert harbor.woken == [until]


async def test_the_first_of_instant_and_deadlines_wakes(harbor: Harbor) -> None:
    execution = await harbor.opened()
    soon = await minted(harbor, execution, Mint(key("soon"), "0", 10))
    late = await minted(harbor, execution, Mint(key("late"), "0", 50))
    for told in (soon, late):
        await harbor.apply(execution.fence, Await(key("w", told.id), "1", told.id))
    await harbor.apply(execution.fence, Suspend("waiting", Instant(harbor.now + 30_000)))
    kept = await harbor.row(execution.execution_id)
    assert kept is not None
    assert kept["wake_at"] == soon.deadline


# --- children --------------------------------------------------------------------------------------------------------


async def ended(harbor: Harbor, run_id: str, close: Close) -> str:
    """End a child's run; answers its execution."""
    run = await harbor.run(run_id)
    execution = await harbor.held(run["execution_id"], "child host")
    await harbor.apply(execution.fence, put("p", 1), close)
    return execution.execution_id


@pytest.mark.clause("runs.trace-context", "runs.row-at-open")
async def test_a_child_starts_with_its_parent_s_entry(harbor: Harbor) -> None:
    parent = await harbor.opened()
    [told] = await harbor.apply(parent.fence, child(given={"n": 1}))
    assert isinstance(told, Claimed)
    assert told.ref is not None
    run = await harbor.run(told.ref)
    assert (run["status"], run["parent_run"], run["body"]) == ("running", parent.run_id, "part")
    assert run["scope"].startswith(f"{parent.scope}/part+")
    assert (run["trace_id"], run["parent_span"]) == (parent.trace.trace_id, parent.trace.span_id)
    execution = await harbor.row(run["execution_id"])
    assert execution is not None
    assert (execution["parent_execution"], execution["owner"], execution["input"]) == (
        parent.execution_id,
        None,
        '{"n":1}',
    )
    assert await harbor.apply(parent.fence, child(given={"n": 1})) == [told]
    assert len(await harbor.rows("runs")) == 2


ENDS = [
    (Close("success", value({"r": 1})), {"status": "success", "result": {"r": 1}}),
    (Close("success"), {"status": "success"}),
    (
        Close("failed", error=Failure("Permanent", "no", "Boom")),
        {"status": "failed", "error": {"tag": "Permanent", "message": "no", "code": "Boom"}},
    ),
    (Close("canceled"), {"status": "canceled"}),
]


@pytest.mark.clause("runs.wake")
@pytest.mark.parametrize(("close", "told"), ENDS, ids=lambda one: str(getattr(one, "status", "")))
@pytest.mark.parametrize("parent_sleeps", [True, False])
async def test_a_parent_is_told_of_its_child_s_end(
    harbor: Harbor, close: Close, told: dict[str, Any], parent_sleeps: bool
) -> None:
    parent = await harbor.opened()
    [claimed] = await harbor.apply(parent.fence, child())
    assert isinstance(claimed, Claimed)
    assert claimed.ref is not None
    if parent_sleeps:
        await harbor.apply(parent.fence, Suspend("suspended", None))
    await ended(harbor, claimed.ref, close)
    kept = await harbor.row(parent.execution_id)
    assert kept is not None
    assert kept["wake_at"] is not None
    if parent_sleeps:
        entries = (await harbor.held(parent.execution_id, "bob")).entries
    else:
        with pytest.raises(ExecutionWoken):
            await harbor.apply(parent.fence, Suspend("suspended", None))
        entries = await harbor.substrate.refresh(parent.fence)
    [one] = entries
    assert one.value is not None
    assert json.loads(one.value.text or "") == {"run_id": claimed.ref, **told}
    assert one.value == value(json.loads(one.value.text or ""))


@pytest.mark.clause("runs.wake")
async def test_a_child_that_ended_before_it_is_asked_for_again_answers_at_once(harbor: Harbor) -> None:
    parent = await harbor.opened()
    [claimed] = await harbor.apply(parent.fence, child())
    assert isinstance(claimed, Claimed)
    assert claimed.ref is not None
    await ended(harbor, claimed.ref, Close("success", value(5)))
    [told] = await harbor.apply(parent.fence, child())
    assert json.loads(text(told) or "") == {"run_id": claimed.ref, "status": "success", "result": 5}


@pytest.mark.clause("runs.live-owner")
async def test_a_child_whose_scope_is_busy_is_a_run_that_failed_at_once(harbor: Harbor) -> None:
    await harbor.opened("part", scope="shared")
    parent = await harbor.opened()
    [told] = await harbor.apply(parent.fence, child(scope="shared"))
    outcome = json.loads(text(told) or "")
    assert (outcome["status"], outcome["error"]["code"]) == ("failed", "ExecutionBusy")


async def test_a_child_s_large_result_reaches_its_parent_whole(harbor: Harbor) -> None:
    parent = await harbor.opened()
    [claimed] = await harbor.apply(parent.fence, child())
    assert isinstance(claimed, Claimed)
    assert claimed.ref is not None
    told = "x" * 2_000_000
    await ended(harbor, claimed.ref, Close("success", value(told)))
    [one] = await harbor.substrate.refresh(parent.fence)
    assert one.value is not None
    assert json.loads(one.value.text or "")["result"] == told
    [loaded] = await harbor.substrate.values(parent.fence, [one.key])
    assert loaded.text == one.value.text
    harbor.now = parent.lease.expires_at
    again = await harbor.held(parent.execution_id, "bob")
    [entry_] = again.entries
    assert (entry_.state, entry_.value.blob if entry_.value else None) == ("done", one.value.blob)


async def test_a_child_with_a_large_input_gets_it(harbor: Harbor) -> None:
    parent = await harbor.opened()
    given = "y" * 1_500_000
    [claimed] = await harbor.apply(parent.fence, child(given=given))
    assert isinstance(claimed, Claimed)
    run = await harbor.run(claimed.ref or "")
    assert (await harbor.held(run["execution_id"], "child host")).input.text == value(given).text
    holders = {row["holder"] for row in await harbor.rows("blob_references") if row["uploading_until"] is None}
    assert holders == {parent.execution_id, run["execution_id"]} or holders == {run["execution_id"]}


# --- with whose authority --------------------------------------------------------------------------------------------


@pytest.mark.clause("catalog.grants", "runs.admission")
async def test_a_run_starts_children_and_mints_with_the_grants_of_who_started_it(harbor: Harbor) -> None:
    caller = await credential(harbor.store, "ann", grant("execute", kinds=["order"]))
    harbor.caller = caller
    parent = await harbor.opened()
    told = await minted(harbor, parent)
    before = await dump(harbor.store)
    with pytest.raises(Forbidden):
        await harbor.apply(parent.fence, child())
    with pytest.raises(BodyUnknown):
        await harbor.apply(parent.fence, child(body="nothing"))
    assert await dump(harbor.store) == before
    [claimed] = await harbor.apply(parent.fence, child(body="order"))
    assert isinstance(claimed, Claimed)
    assert (await harbor.run(claimed.ref or ""))["created_by"] == "ann"
    [row] = await harbor.store.sql("SELECT created_by FROM awakeables WHERE id = ?", told.id)
    assert row["created_by"] == "ann"
    await harbor.store.sql("UPDATE credentials SET revoked_at = 1")
    before = await dump(harbor.store)
    for acting in (child("again", body="order"), Mint(key("again"), "0", 60)):
        with pytest.raises(Unauthenticated):
            await harbor.apply(parent.fence, acting)
    assert await dump(harbor.store) == before
    assert isinstance((await harbor.apply(parent.fence, claim("a")))[0], Claimed)
    assert isinstance((await harbor.apply(parent.fence, record("a", 1)))[0], Recorded)


@pytest.mark.clause("runs.schedule")
async def test_a_child_has_its_own_body_s_schedule(harbor: Harbor) -> None:
    parent = await harbor.held(await harbor.open(retry={"attempts": 2}))
    assert parent.retry == {"attempts": 2}
    [claimed] = await harbor.apply(parent.fence, child())
    assert isinstance(claimed, Claimed)
    started = await harbor.held((await harbor.run(str(claimed.ref)))["execution_id"], "bob")
    assert started.retry is None

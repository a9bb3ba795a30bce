"""A run's view as its record tells it: it agrees with what is shown of the run, reading it changes nothing, and every end of
a run is heard."""

from collections.abc import Sequence
from typing import Any

import pytest

from moorage.api.ports import Ended
from moorage.api.ringing import RingingDatabase
from moorage.catalog.access import Caller, Grant, is_alive
from moorage.kernel.errors import RunUnknown
from moorage.kernel.instants import Instant
from moorage.kernel.limits import OWNER_LEASE_SECONDS
from moorage.runs import admission, record, stop
from moorage.runs.due import RunsDue
from moorage.runs.live.record import load, load_traced, runner_of_visible
from moorage.runs.model import Failure, Minted
from moorage.runs.operations import Await, Close, Fail, Mint, Suspend
from moorage.store.ports import Database
from tests.contract.adapters import Store, dump
from tests.contract.harbor import BODIES, ROOT, TRACE, Harbor, claim, key, value
from tests.contract.harbor import record as recorded
from tests.contract.occasions import fire

FAILURE = Failure("Transient", "busy")


@pytest.fixture
def harbor(store: Store) -> Harbor:
    return Harbor(store)


async def agrees(harbor: Harbor, run_id: str) -> dict[str, Any]:
    """The view as a watcher gets it; it says what the routes of the run say, and only in other words."""
    view = await load(harbor.db(), run_id)
    assert view is not None
    told = view.run_wire()
    shown = (await record.show(harbor.db(), harbor.store.blobs, ROOT, run_id)).wire()
    for name in told.keys() - {"awaiting", "metadata"}:
        assert told[name] == shown.get(name), name
    assert (told["awaiting"], told["metadata"]) == (shown.get("awaiting", []), shown["metadata"])
    steps = [step.wire() for step in view.steps.values()]
    known = [{name: found for name, found in step.items() if found is not None} for step in steps]
    assert known == (await record.steps(harbor.db(), ROOT, run_id)).wire()["items"]
    return {**told, "steps": {step["label"]: step for step in steps}}


@pytest.mark.clause("runs.stream", "runs.outputs-by-reference")
async def test_a_view_agrees_with_the_run_and_its_steps_all_its_life(harbor: Harbor) -> None:
    held = await harbor.opened()
    assert (await agrees(harbor, held.run_id))["steps"] == {}
    await harbor.apply(held.fence, claim("a"), claim("b", 1))
    assert (await agrees(harbor, held.run_id))["steps"]["a"]["status"] == "running"
    later = Instant(harbor.now + 60_000)
    await harbor.apply(held.fence, recorded("a", "SECRET"), Fail(key("b", 1), 1, FAILURE, later))
    view = await agrees(harbor, held.run_id)
    assert view["steps"]["a"]["output"] == {"ref": f"a@{key('a').input_sha256}", "bytes": 8}
    assert (view["steps"]["b"]["status"], view["steps"]["b"]["error"]["tag"]) == ("waiting", "Transient")
    [minted] = await harbor.apply(held.fence, Mint(key("token"), "2", 600))
    assert isinstance(minted, Minted)
    waits = Await(key("wait"), "3", minted.id)
    await harbor.apply(held.fence, waits, Suspend("suspended", None, [{"label": "wait"}]))
    view = await agrees(harbor, held.run_id)
    assert (view["status"], view["awaiting"], view["steps"]["wait"]["status"]) == (
        "suspended",
        [{"label": "wait"}],
        "waiting",
    )
    harbor.pass_time(60)
    await harbor.resolve(minted.token, {"SECRET": 1})
    held = await harbor.held(held.execution_id)
    await harbor.apply(held.fence, claim("b", 1), recorded("b", 2, 1), Close("success", value("SECRET")))
    view = await agrees(harbor, held.run_id)
    assert (view["status"], view["result_bytes"]) == ("success", 8)
    assert "SECRET" not in str(view)
    assert {step["status"] for step in view["steps"].values()} == {"success"}


@pytest.mark.clause("runs.stream")
@pytest.mark.parametrize("status", ["failed", "canceled"])
async def test_what_was_under_way_when_a_run_ended_has_failed_in_both(harbor: Harbor, status: Any) -> None:
    held = await harbor.opened()
    error = Failure("Permanent", "no") if status == "failed" else None
    await harbor.apply(held.fence, claim("a"), recorded("a", 1), claim("b"), Close(status, None, error))
    view = await agrees(harbor, held.run_id)
    assert view["steps"]["b"]["status"] == "failed"
    assert view["steps"]["b"]["error"]["tag"] == ("Canceled" if status == "canceled" else "Transient")
    assert view["error"] == (None if error is None else error.wire())


@pytest.mark.clause("runs.machine-state")
async def test_reading_a_view_changes_no_journal_no_owner_and_no_awakeable(harbor: Harbor) -> None:
    held = await harbor.opened()
    await harbor.apply(held.fence, claim("a"), Mint(key("token"), "2", 600))
    before = await dump(harbor.store)
    for _ in range(3):
        assert await load_traced(harbor.db(), held.run_id) is not None
        await runner_of_visible(harbor.db(), ROOT, held.run_id)
    assert await dump(harbor.store) == before
    assert (await harbor.apply(held.fence, recorded("a", 1)))[0] is not None


async def test_a_reading_is_one_round_trip_and_tells_the_trace(harbor: Harbor) -> None:
    held = await harbor.opened()
    db = harbor.db()
    found = await load_traced(db, held.run_id)
    assert found is not None
    assert found[0] == TRACE
    assert db.cost.trips == 1
    assert await load(harbor.db(), "run_0") is None


@pytest.mark.clause("runs.stream")
async def test_who_may_watch_is_who_may_look(harbor: Harbor) -> None:
    held = await harbor.opened()
    runner = (await harbor.run(held.run_id))["runner"]
    seeing = [Caller("a", (Grant(frozenset({action}), ("order",)),), "crd_a") for action in ("read", "execute", "operate")]
    for caller in (ROOT, *seeing, Caller("root", (), "crd_b")):
        assert await runner_of_visible(harbor.db(), caller, held.run_id) == runner
    for caller in (
        Caller("c", (), "crd_c"),
        Caller("d", (Grant(frozenset({"read"}), ("part",)),), "crd_d"),
        Caller("e", (Grant(frozenset({"publish", "claim"}), ("order",)),), "crd_e"),
    ):
        with pytest.raises(RunUnknown):
            await runner_of_visible(harbor.db(), caller, held.run_id)
    with pytest.raises(RunUnknown):
        await runner_of_visible(harbor.db(), ROOT, "run_0")


@pytest.mark.clause("runs.stream")
async def test_a_credential_is_alive_until_it_is_revoked_or_expires(harbor: Harbor) -> None:
    insert = (
        "INSERT INTO credentials (id, token_sha256, subject, grants, created_at, created_by, expires_at, revoked_at) "
        "VALUES (?, ?, 's', '[]', 1, 'root', ?, ?)"
    )
    now = harbor.now
    for id_, expires, revoked in (
        ("for-ever", None, None),
        ("a-while", now + 1, None),
        ("over", now, None),
        ("gone", None, 1),
    ):
        await harbor.store.sql(insert, id_, id_, expires, revoked)
    found = {id_: await is_alive(harbor.db(), now, id_) for id_ in ("for-ever", "a-while", "over", "gone", "never-was")}
    assert found == {"for-ever": True, "a-while": True, "over": False, "gone": False, "never-was": False}


class Heard(Harbor):
    """A harbor whose every commit is heard: the ends of runs."""

    def __init__(self, store: Store) -> None:
        self.heard: list[Ended] = []
        super().__init__(store)

    def db(self) -> Database:
        return RingingDatabase(super().db(), lambda rings: None, lambda pokes: None, self._hear)

    def _hear(self, runs: Sequence[Ended]) -> None:
        self.heard.extend(runs)

    async def told(self, run_id: str) -> dict[str, Any]:
        """The row of the run, and only it, that was heard to have ended, of the Runner that the row names."""
        row = await self.run(run_id)
        assert self.heard == [Ended(run_id, row["runner"])]
        assert row["ended_at"] is not None
        return row


@pytest.fixture
def heard(store: Store) -> Heard:
    return Heard(store)


@pytest.mark.clause("runs.stream", "runs.run-span")
async def test_the_end_of_a_run_is_heard(heard: Heard) -> None:
    held = await heard.opened()
    await heard.apply(held.fence, claim("a"), recorded("a", 1))
    assert heard.heard == []
    await heard.apply(held.fence, Close("success", value(1)))
    assert (await heard.told(held.run_id))["status"] == "success"


@pytest.mark.clause("runs.stream", "runs.run-span")
async def test_the_stop_of_a_run_that_nobody_holds_is_heard(heard: Heard) -> None:
    held = await heard.opened()
    [minted] = await heard.apply(held.fence, Mint(key("token"), "2", 600))
    assert isinstance(minted, Minted)
    await heard.apply(held.fence, Await(key("wait"), "3", minted.id), Suspend("suspended", None))
    assert heard.heard == []
    await stop.stop(heard.db(), ROOT, heard.now, held.run_id)
    assert (await heard.told(held.run_id))["status"] == "canceled"


@pytest.mark.clause("runs.stream", "runs.run-span")
async def test_a_run_that_is_reaped_is_heard(heard: Heard) -> None:
    held = await heard.opened()
    await heard.store.sql("UPDATE executions SET host = 'remote'")
    heard.pass_time(OWNER_LEASE_SECONDS)
    await fire(RunsDue(), heard.db, heard.now, held.execution_id)
    assert (await heard.told(held.run_id))["status"] == "partial_failure"


@pytest.mark.clause("runs.stream", "runs.run-span")
async def test_a_run_that_a_later_one_of_its_scope_supersedes_is_heard(heard: Heard) -> None:
    execution = await heard.open(scope="one")
    held = await heard.held(execution)
    later = Instant(heard.now + 60_000)
    await heard.apply(held.fence, claim("a"), Fail(key("a"), 1, FAILURE, later), Suspend("waiting", later))
    again = admission.Start("one", value(None), "root", None, TRACE)
    await admission.admit(heard.db(), heard.store.blobs, ROOT, heard.now, BODIES["order"], again, handoff=False)
    assert (await heard.told(held.run_id))["status"] == "partial_failure"

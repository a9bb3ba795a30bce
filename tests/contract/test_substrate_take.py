"""Taking an execution: who gets it, with what, and what becomes of one that cannot be executed here."""

import asyncio
import json

import pytest

from moorage.journal.model import Fence
from moorage.kernel import canonical
from moorage.kernel.errors import LeaseFenced
from moorage.kernel.instants import Instant
from moorage.kernel.limits import JOURNAL_ENTRIES, JOURNAL_REPLAY_BYTES, OWNER_LEASE_SECONDS
from moorage.runs.model import CAPABILITIES, Failure
from moorage.runs.operations import Close, Suspend
from moorage.runs.take import take_next
from tests.contract.adapters import Store, dump
from tests.contract.harbor import BODIES, Harbor, claim, key, put, record, value


@pytest.fixture
def harbor(store: Store) -> Harbor:
    return Harbor(store)


@pytest.mark.clause("runs.owner", "runs.row-at-open", "runs.owner-lease")
async def test_a_run_is_there_from_its_opening_and_taken_with_all_that_a_host_needs(harbor: Harbor) -> None:
    opened = await harbor.open(given={"n": 1}, metadata={"who": "me"}, config={"region": "x"})
    [row] = await harbor.rows("runs")
    assert (row["status"], row["ended_at"], row["execution_id"]) == ("running", None, opened)
    harbor.pass_time(1)
    execution = await harbor.held(opened)
    assert harbor.cost.trips == 1
    assert (execution.body, execution.scope, execution.run_id) == ("order", row["run_id"], row["run_id"])
    assert (execution.lease.owner, execution.lease.epoch, execution.lease.attempt) == ("ann", 1, 1)
    assert execution.lease.expires_at == harbor.now + int(OWNER_LEASE_SECONDS) * 1000
    assert (execution.input.text, execution.pins.input) == ('{"n":1}', canonical.digest('{"n":1}'))
    assert execution.pins.build == BODIES["order"].build
    assert (execution.metadata, execution.config) == ({"who": "me"}, {"region": "x"})
    assert (execution.trace.trace_id, execution.capabilities) == ("1" * 32, CAPABILITIES)
    assert (execution.started_at, execution.stop, execution.entries) == (harbor.now - 1000, None, [])
    kept = await harbor.row(opened)
    assert kept is not None
    assert (kept["wake_at"], kept["claimable"]) == (execution.lease.expires_at, 0)


@pytest.mark.clause("leases.claim", "runs.live-owner")
async def test_of_many_takers_one_gets_it(harbor: Harbor) -> None:
    execution = await harbor.open()
    taken = await asyncio.gather(*(harbor.take(execution, f"host {number}") for number in range(8)))
    assert [one is not None for one in taken].count(True) == 1
    assert await harbor.take("exe_nowhere") is None


@pytest.mark.clause("runs.claim-takeover", "leases.claim")
async def test_a_lapsed_owner_is_followed_with_a_larger_epoch_even_by_itself(harbor: Harbor) -> None:
    first = await harbor.opened()
    harbor.now = first.lease.expires_at
    second = await harbor.held(first.execution_id, "ann")
    assert (second.lease.epoch, second.lease.attempt) == (2, 2)
    assert (await harbor.run(first.run_id))["attempt"] == 2
    with pytest.raises(LeaseFenced):
        await harbor.apply(first.fence, claim("a"))


async def test_going_on_after_a_suspension_is_the_same_attempt(harbor: Harbor) -> None:
    first = await harbor.opened()
    await harbor.apply(first.fence, Suspend("suspended", None))
    second = await harbor.held(first.execution_id, "bob")
    assert (second.lease.epoch, second.lease.attempt) == (2, 1)
    run = await harbor.run(first.run_id)
    assert (run["status"], run["next_attempt_at"], run["awaiting"]) == ("running", None, None)


async def test_a_run_that_ended_is_not_taken(harbor: Harbor) -> None:
    execution = await harbor.opened()
    await harbor.apply(execution.fence, put("p", 1), Close("failed", error=Failure("Permanent", "no")))
    before = await dump(harbor.store)
    assert await harbor.take(execution.execution_id) is None
    assert await dump(harbor.store) == before


# --- builds ----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("runs.pinned-plan-changed", "runs.body-pins", "runs.unclosed-execution")
@pytest.mark.parametrize("builds", [{"order": "another build"}, {}])
async def test_another_build_ends_the_run_and_leaves_the_execution_as_it_was(harbor: Harbor, builds: dict[str, str]) -> None:
    first = await harbor.opened(scope="s1")
    await harbor.apply(first.fence, put("p", 1))
    harbor.now = first.lease.expires_at
    assert await harbor.take(first.execution_id, "bob", builds) is None
    run = await harbor.run(first.run_id)
    error = json.loads(run["error"])
    assert (run["status"], error["code"], error["tag"]) == ("failed", "ExecutionPinMismatch", "Incompatible")
    for told in ("s1", first.execution_id, first.pins.build.digest, "rewind", "Restore"):
        assert told in error["message"]
    kept = await harbor.row(first.execution_id)
    assert kept is not None
    assert (kept["build"], kept["owner"], kept["wake_at"]) == (first.pins.build.digest, None, None)
    assert kept["requested_plan"] not in (None, kept["plan_reference"])
    assert len(await harbor.rows("journal")) == 1
    before = await dump(harbor.store)
    assert await harbor.take(first.execution_id, "bob", builds) is None
    assert await dump(harbor.store) == before


@pytest.mark.clause("runs.pin-release")
async def test_another_build_releases_the_pins_of_what_recorded_nothing(harbor: Harbor) -> None:
    opened = await harbor.open()
    assert await harbor.take(opened, "bob", {"order": "another build"}) is None
    assert await harbor.row(opened) is None
    [run] = await harbor.rows("runs")
    assert run["status"] == "failed"


@pytest.mark.clause("runs.live-owner")
async def test_another_build_does_nothing_to_a_live_owner(harbor: Harbor) -> None:
    first = await harbor.opened()
    before = await dump(harbor.store)
    assert await harbor.take(first.execution_id, "bob", {"order": "another build"}) is None
    assert await dump(harbor.store) == before
    await harbor.apply(first.fence, claim("a"))


# --- stops -----------------------------------------------------------------------------------------------------------


async def mark(harbor: Harbor, run: str) -> None:
    """Ask for a stop, as a client does."""
    await harbor.store.sql(
        "UPDATE runs SET stop_requested_at = ?, stop_scope = 'run', stop_reason = 'enough' WHERE run_id = ?",
        float(harbor.now),
        run,
    )


@pytest.mark.clause("runs.cancel-race")
async def test_a_stop_that_was_asked_for_is_told_and_ends_nothing_by_itself(harbor: Harbor) -> None:
    first, other = await harbor.opened(), await harbor.opened()
    assert await harbor.substrate.stops([first.fence, other.fence]) == {}
    await mark(harbor, first.run_id)
    told = await harbor.substrate.stops([first.fence, other.fence, Fence("exe_nowhere", 1)])
    assert harbor.cost.trips == 1
    assert {name: stop.reason for name, stop in told.items()} == {first.execution_id: "enough"}
    assert (await harbor.run(first.run_id))["status"] == "running"
    await harbor.apply(first.fence, Suspend("suspended", None))
    kept = await harbor.row(first.execution_id)
    assert kept is not None
    assert kept["wake_at"] is not None
    again = await harbor.held(first.execution_id, "bob")
    assert again.stop is not None
    assert (again.stop.scope, again.stop.requested_at) == ("run", harbor.now)
    assert await harbor.substrate.stops([]) == {}


# --- what was recorded -----------------------------------------------------------------------------------------------


async def test_two_thousand_entries_come_in_one_trip_in_the_order_in_which_they_began(harbor: Harbor) -> None:
    first = await harbor.opened()
    for start in range(0, 2000, 500):
        await harbor.apply(first.fence, *(put("p", number, number) for number in range(start, start + 500)))
        harbor.pass_time(0.001)
    harbor.now = first.lease.expires_at
    second = await harbor.held(first.execution_id, "bob")
    assert harbor.cost.trips == 1
    assert len(second.entries) == 2000
    started = [one.started_at for one in second.entries]
    assert started == sorted(started)
    assert {(one.key, one.value.text if one.value else None) for one in second.entries} == {
        (key("p", number), str(number)) for number in range(2000)
    }


@pytest.mark.clause("runs.step-output")
async def test_values_past_the_first_mebibytes_are_left_out_and_loaded_when_asked(harbor: Harbor) -> None:
    first = await harbor.opened()
    told = {f"v{number}": f"{number}" * 900_000 for number in range(6)}
    for label, one in told.items():
        await harbor.apply(first.fence, put(label, one))
        harbor.pass_time(0.001)
    harbor.now = first.lease.expires_at
    second = await harbor.held(first.execution_id, "bob")
    there = [one.value is not None and one.value.text is not None for one in second.entries]
    assert there == [True] * 4 + [False] * 2
    assert sum(one.value.size for one in second.entries[:4] if one.value) <= JOURNAL_REPLAY_BYTES
    keys = [one.key for one in second.entries]
    values = await harbor.substrate.values(second.fence, [*reversed(keys), keys[0]])
    wanted = [value(told[one.label]).text for one in [*reversed(keys), keys[0]]]
    assert [one.text for one in values] == wanted


# --- hosts outside the Worker ----------------------------------------------------------------------------------------


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bodies, executed outside the Worker."""
    for name, info in list(BODIES.items()):
        monkeypatch.setitem(BODIES, name, type(info)(name, "remote", info.build, info.effects))


@pytest.mark.usefixtures("remote")
@pytest.mark.clause("leases.claim")
async def test_a_host_takes_the_next_of_its_builds_and_each_once(harbor: Harbor) -> None:
    opened = [await harbor.open("order"), await harbor.open("part"), await harbor.open("order")]
    builds = {"order": BODIES["order"].build.digest, "part": "an older build"}
    taken = await asyncio.gather(
        *(take_next(harbor.db(), harbor.store.blobs, harbor.now, f"host {number}", builds) for number in range(4))
    )
    assert sorted(one.execution_id for one in taken if one) == sorted([opened[0], opened[2]])
    assert {one.lease.epoch for one in taken if one} == {1}
    assert (await harbor.run(next(one for one in taken if one).run_id))["status"] == "running"
    assert await take_next(harbor.db(), harbor.store.blobs, harbor.now, "host", {}) is None
    kept = await harbor.row(opened[1])
    assert kept is not None
    assert kept["claimable"] == 1


@pytest.mark.clause("runs.claim-takeover")
async def test_what_is_recorded_by_the_old_owner_up_to_its_last_moment_is_the_new_one_s(harbor: Harbor) -> None:
    first = await harbor.opened()
    await harbor.apply(first.fence, claim("a"))
    harbor.now = Instant(first.lease.expires_at - 1)
    await harbor.apply(first.fence, record("a", "mine"))
    harbor.now = first.lease.expires_at
    second = await harbor.held(first.execution_id, "bob")
    assert [one.value.text for one in second.entries if one.value] == ['"mine"']


@pytest.mark.clause("runs.entry-key", "runs.resumable-remains")
async def test_a_journal_past_its_bound_is_executed_no_further(harbor: Harbor) -> None:
    execution = await harbor.opened()
    harbor.now = execution.lease.expires_at
    await harbor.store.sql(
        "INSERT INTO journal (execution_id, label, input_sha256, position, kind, state, attempt, epoch, started_at, "
        "ended_at, size, value) "
        "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < CAST(? AS INTEGER)) "
        "SELECT ?, 'many', printf('%064x', i), CAST(i AS TEXT), 'step', 'done', 1, 1, CAST(? AS INTEGER), "
        "CAST(? AS INTEGER), 1, '0' FROM n",
        JOURNAL_ENTRIES,
        execution.execution_id,
        harbor.now,
        harbor.now,
    )
    again = await harbor.held(execution.execution_id, "bob")
    assert len(again.entries) == JOURNAL_ENTRIES
    await harbor.apply(again.fence, put("one more", 1))
    harbor.now = again.lease.expires_at
    assert await harbor.take(execution.execution_id, "carl") is None
    run = await harbor.run(execution.run_id)
    told = json.loads(run["error"])
    assert (run["status"], told["code"], told["tag"]) == ("failed", "JournalFull", "TooLarge")
    assert "children" in told["message"]
    assert await harbor.row(execution.execution_id) is not None

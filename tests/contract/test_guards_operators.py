"""What operators see and do: case C25, the audit, listings, holders."""

import asyncio
import sqlite3

import httpx
import pytest

from moorage.catalog.access import Caller, Grant
from moorage.guards import holders, listing
from moorage.guards.listing import Wanted
from moorage.guards.model import Guard, new_holder
from moorage.kernel import canonical
from moorage.kernel.errors import (
    CursorMismatch,
    ExecutionGuardBlocked,
    ExecutionGuardEvidenceMismatch,
    Forbidden,
    GuardReleased,
    GuardUnknown,
    HolderUnknown,
    IdempotencyConflict,
    IdInvalid,
    LeaseExpired,
    LeaseFenced,
    RequestInvalid,
    Unauthenticated,
)
from moorage.kernel.pages import PageRequest
from moorage.runs import stop
from moorage.runs.due import RunRetention, RunsDue
from moorage.runs.model import Execution
from moorage.runs.operations import Admitted, Close, Recorded, ReleaseGuard, Suspend
from tests.contract.adapters import Store, dump
from tests.contract.executions import Poked
from tests.contract.harbor import ROOT, credential, key, put, record, value
from tests.contract.occasions import fire
from tests.contract.watch_house import OPERATOR, STEP, WatchHouse, admit, claims

PAGE = PageRequest(100)


@pytest.fixture
async def house(store: Store) -> WatchHouse:
    return await WatchHouse.of(store)


# --- C25: an effect that may already be in flight ----------------------------------------------------------------------


@pytest.fixture
async def silent(house: WatchHouse) -> tuple[Execution, Admitted]:
    """Holder H sent a payment under a guard and fell silent; its lease has ended."""
    execution, guard = await house.working("pay-91")
    house.lapse(execution)
    return execution, guard


Silent = tuple[Execution, Admitted]


@pytest.mark.clause("guards.blocked")
async def test_c25_a_another_worker_is_refused_because_it_may_be_in_flight(house: WatchHouse, silent: Silent) -> None:
    execution, guard = silent
    for asking in (house.take(execution.execution_id, "bob"), house.open(scope="pay-91")):
        with pytest.raises(ExecutionGuardBlocked, match="may be in flight") as blocked:
            await asking
        assert blocked.value.retryable
        assert blocked.value.members["token"] == guard.token


@pytest.mark.clause("guards.crash-held")
async def test_c25_b_time_alone_never_releases_it(house: WatchHouse, silent: Silent) -> None:
    execution, guard = silent
    before = await dump(house.store)
    for _ in range(10):
        house.pass_time(30)
        with pytest.raises(ExecutionGuardBlocked):
            await house.take(execution.execution_id, "bob")
    assert await dump(house.store) == before
    assert await house.open_guards() == [guard.token]


@pytest.mark.clause("guards.evidence")
async def test_c25_c_no_evidence_and_empty_evidence_release_nothing(house: WatchHouse, silent: Silent) -> None:
    _, guard = silent
    before = await dump(house.store)
    for evidence, operator in (("", OPERATOR), (" ", OPERATOR), ("seen:ch_1", OPERATOR)):
        with pytest.raises(ExecutionGuardEvidenceMismatch):
            await house.reconcile(guard.token, evidence, operator)
    for operator in ("", " ", "a\nb", "x" * 201):
        with pytest.raises(RequestInvalid):
            await house.reconcile(guard.token, f"receipt:{guard.idempotency_key}:ch_1", operator)
    assert await dump(house.store) == before


@pytest.mark.clause("guards.manual", "guards.audit", "history.append")
async def test_c25_d_evidence_releases_it_and_stays_with_who_gave_it(house: WatchHouse, silent: Silent) -> None:
    execution, guard = silent
    [shown] = await house.guards()
    evidence = f"receipt:{guard.idempotency_key}:ch_1"
    sent = listen_to(house)
    done = await house.reconcile(guard.token, evidence, "op-2", Caller("ann"))
    assert len(sent) == 1
    [row] = await house.audit()
    assert (row["id"], row["token"], row["evidence"]) == (done.audit, guard.token, evidence)
    assert (row["operator"], row["actor"], row["released_at"]) == ("op-2", "ann", house.now)
    assert canonical.loads(row["guard"].encode()) == Guard.wire(shown, house.now)
    assert (await house.open_guards(), await house.protected()) == ([], [])
    assert await house.types(guard.token) == ["guard.admitted", "guard.reconciled"]
    [told] = await house.store.sql("SELECT actor, data FROM history WHERE type = 'guard.reconciled'")
    data = canonical.loads(told["data"].encode())
    assert (told["actor"], data["operator"], data["evidence"], data["audit"]) == ("ann", "op-2", evidence, done.audit)
    page = await listing.list_audit(house.db(), ROOT, PAGE, guard.token)
    assert [one.wire()["operator"] for one in page.items] == ["op-2"]
    taken = await house.held(execution.execution_id, "bob")
    [entry] = taken.entries
    assert (entry.key, entry.state) == (STEP, "done")
    assert entry.value is not None
    assert entry.value.text == '{"receipt":"ch_1","reconciled":true}'
    assert entry.value.size == len(entry.value.text)


def listen_to(house: WatchHouse) -> list[str]:
    """The executions that are poked by what the house commits itself from now on, one text for each commit."""
    sent: list[str] = []
    plain = house.db

    class Counting(Poked):
        async def commit(self, transaction):  # type: ignore[no-untyped-def]
            await super().commit(transaction)
            sent.append(",".join(self.pokes))

    house.db = lambda: Counting(plain())  # type: ignore[method-assign]
    return sent


@pytest.mark.clause("guards.release", "leases.fence")
async def test_c25_e_the_holder_that_wakes_up_releases_nothing(house: WatchHouse, silent: Silent) -> None:
    execution, guard = silent
    before = await dump(house.store)
    with pytest.raises(LeaseExpired):
        await house.end(execution.fence, guard.token)
    assert await dump(house.store) == before
    await house.reconcile(guard.token, f"receipt:{guard.idempotency_key}:ch_1")
    await house.held(execution.execution_id, "bob")
    before = await dump(house.store)
    with pytest.raises(LeaseFenced):
        await house.end(execution.fence, guard.token)
    assert await dump(house.store) == before


@pytest.mark.clause("guards.manual")
async def test_c25_f_a_second_reconcile_is_told_of_the_first(house: WatchHouse, silent: Silent) -> None:
    _, guard = silent
    done = await house.reconcile(guard.token, f"receipt:{guard.idempotency_key}:ch_1")
    with pytest.raises(GuardReleased) as again:
        await house.reconcile(guard.token, f"receipt:{guard.idempotency_key}:ch_2", "op-3")
    assert (again.value.status, again.value.members["audit"]) == (409, done.audit)
    assert len(await house.audit()) == 1
    with pytest.raises(GuardUnknown):
        await house.reconcile("grd_never", "receipt:a:b")


@pytest.mark.clause("guards.manual", "guards.audit")
async def test_c25_g_of_two_operators_at_once_one_wins(house: WatchHouse, silent: Silent) -> None:
    execution, guard = silent
    findings = [f"receipt:{guard.idempotency_key}:{name}" for name in ("ch_1", "ch_2")]
    both = [house.reconcile(guard.token, finding, f"op-{number}") for number, finding in enumerate(findings)]
    told = await asyncio.gather(*both, return_exceptions=True)
    assert sorted(type(one).__name__ for one in told) == ["GuardReleased", "Reconciled"]
    [row] = await house.audit()
    won = next(one for one in told if not isinstance(one, BaseException))
    assert row["id"] == won.audit
    entry = (await house.entries(execution.execution_id))["charge"]
    assert canonical.loads(entry["value"].encode())["receipt"] == won.receipt


@pytest.mark.clause("guards.manual")
async def test_who_read_the_guard_before_it_was_released_is_told_so(house: WatchHouse, silent: Silent) -> None:
    _, guard = silent
    evidence = f"receipt:{guard.idempotency_key}:ch_1"
    plain, others = house.db, [True]

    class Overtaken(Poked):
        async def commit(self, transaction):  # type: ignore[no-untyped-def]
            if others:
                others.clear()
                await house.reconcile(guard.token, evidence, "faster")
            await super().commit(transaction)

    house.db = lambda: Overtaken(plain())  # type: ignore[method-assign]
    with pytest.raises(GuardReleased):
        await house.reconcile(guard.token, evidence, "slower")
    assert [row["operator"] for row in await house.audit()] == ["faster"]


@pytest.mark.clause("guards.crash-held", "runs.cancel-keeps-effects")
async def test_c25_h_no_cleanup_requeue_or_restart_sends_it_again(house: WatchHouse, silent: Silent) -> None:
    execution, guard = silent
    await fire(RunsDue(), house.db, house.now, execution.execution_id)
    await stop.stop(house.db(), ROOT, house.now, execution.run_id)
    house.pass_time(31 * 86_400)
    await RunRetention().fire(house.db(), house.now, "sweep")
    for asking in (house.open(scope="pay-91"), house.rewind(execution.execution_id)):
        with pytest.raises(ExecutionGuardBlocked):
            await asking
    assert await house.open_guards() == [guard.token]
    assert (await house.entries(execution.execution_id))["charge"]["state"] == "pending"


# --- reconciling -----------------------------------------------------------------------------------------------------


@pytest.mark.clause("guards.manual", "guards.evidence", "runs.wake")
async def test_after_the_key_the_step_is_sent_again_and_after_a_receipt_it_is_not(house: WatchHouse) -> None:
    replayed, first = await house.working("a", "bank")
    receipted, second = await house.working("b", "bank")
    for execution in (replayed, receipted):
        await house.apply(execution.fence, Suspend("suspended", None, [{"guard": "?"}]))
    sent = listen_to(house)
    await house.reconcile(first.token, f"idempotency:{first.idempotency_key}")
    await house.reconcile(second.token, f"receipt:{second.idempotency_key}:ch_1")
    assert sent == [replayed.execution_id, receipted.execution_id]
    again = await house.held(replayed.execution_id)
    assert (await house.begin(again.fence, destination="bank")).idempotency_key == first.idempotency_key
    taken = await house.held(receipted.execution_id)
    [outcome, nothing] = await house.apply(taken.fence, claims(), admit(house.holder, destination="bank"))
    assert isinstance(outcome, Recorded)
    assert nothing == outcome
    assert len(await house.open_guards()) == 1


@pytest.mark.clause("guards.evidence", "guards.window")
async def test_what_the_key_released_keeps_its_window(house: WatchHouse) -> None:
    execution, guard = await house.working("a", "bank")
    house.lapse(execution)
    await house.reconcile(guard.token, f"idempotency:{guard.idempotency_key}")
    taken = await house.held(execution.execution_id)
    assert (await house.begin(taken.fence, destination="bank")).window_ends_at == guard.window_ends_at


@pytest.mark.clause("guards.live-holder", "guards.holder-gone")
async def test_a_holder_that_has_exited_is_reconciled_while_the_lease_runs(house: WatchHouse) -> None:
    _, guard = await house.working("a", "printer")
    await house.leave()
    await house.reconcile(guard.token, f"receipt:{guard.idempotency_key}:ch_1")
    assert await house.open_guards() == []


@pytest.mark.clause("guards.audit")
async def test_nothing_of_the_audit_is_ever_changed(house: WatchHouse, silent: Silent) -> None:
    _, guard = silent
    await house.reconcile(guard.token, f"receipt:{guard.idempotency_key}:ch_1")
    before = await house.audit()
    for change in ("UPDATE guard_audit SET operator = 'nobody'", "DELETE FROM guard_audit"):
        with pytest.raises((sqlite3.IntegrityError, httpx.HTTPStatusError)):
            await house.store.sql(change)
    assert await house.audit() == before


@pytest.mark.clause("guards.manual", "catalog.grants")
async def test_it_takes_a_grant_to_operate_on_all_and_a_live_credential(house: WatchHouse, silent: Silent) -> None:
    _, guard = silent
    evidence = f"receipt:{guard.idempotency_key}:ch_1"
    given = [Grant(frozenset({"execute", "read"})), Grant(frozenset({"operate"}), ("order",))]
    for number, grant in enumerate(given):
        caller = await credential(house.store, f"s{number}", grant)
        for asking in (
            house.reconcile(guard.token, evidence, OPERATOR, caller),
            listing.list_guards(house.db(), caller, house.now, PAGE, Wanted()),
            listing.show(house.db(), caller, guard.token),
            listing.list_holders(house.db(), caller, PAGE),
            listing.list_audit(house.db(), caller, PAGE),
        ):
            with pytest.raises(Forbidden):
                await asking
    operator = await credential(house.store, "op", Grant(frozenset({"operate"})))
    await house.store.sql("UPDATE credentials SET revoked_at = 1 WHERE subject = 'op'")
    with pytest.raises(Unauthenticated):
        await house.reconcile(guard.token, evidence, OPERATOR, operator)
    await house.store.sql("UPDATE credentials SET revoked_at = NULL WHERE subject = 'op'")
    await house.reconcile(guard.token, evidence, OPERATOR, operator)


# --- listings --------------------------------------------------------------------------------------------------------


@pytest.mark.clause("guards.inspect")
async def test_guards_are_listed_by_age_filtered_and_counted(house: WatchHouse) -> None:
    assert await listing.count(house.db(), house.now) == {
        "open": 0,
        "by_class": {"replay-safe": 0, "receipt-required": 0, "unknown": 0},
        "oldest_admitted_at": None,
        "oldest_seconds": None,
    }
    made = []
    for scope, destination in (("a/1", "bank"), ("b/1", "press"), ("c", "bank"), ("d", None)):
        made.append(await house.working(scope, destination))
        house.pass_time(1)
    tokens = [guard.token for _, guard in made]
    assert await house.open_guards() == tokens
    shown = {
        "scope": ("a", [0]),
        "execution": (made[1][0].execution_id, [1]),
        "destination": ("bank", [0, 2]),
        "evidence_class": ("unknown", [3]),
    }
    for name, (wanted, places) in shown.items():
        assert [one.token for one in await house.guards(**{name: wanted})] == [tokens[place] for place in places]
    assert await house.guards(scope="a/") == await house.guards(scope="b/1", destination="bank") == []
    told = await listing.count(house.db(), house.now)
    assert told == {
        "open": 4,
        "by_class": {"replay-safe": 2, "receipt-required": 1, "unknown": 1},
        "oldest_admitted_at": "2027-01-15T08:00:00.000Z",
        "oldest_seconds": 4,
    }
    assert (await listing.show(house.db(), ROOT, tokens[0])).token == tokens[0]
    with pytest.raises(GuardUnknown):
        await listing.show(house.db(), ROOT, "grd_never")


@pytest.mark.clause("guards.inspect", "guards.audit")
async def test_pages_of_guards_holders_and_the_audit_go_on_where_they_ended(house: WatchHouse) -> None:
    for number in range(5):
        execution, guard = await house.working(f"s{number}", "bank")
        await house.apply(execution.fence, Suspend("suspended", None))
        if number % 2:
            await house.reconcile(guard.token, f"receipt:{guard.idempotency_key}:r{number}")
        house.pass_time(1)
        await house.engine()
    seen: list[str] = []
    cursor = None
    while True:
        page = await listing.list_guards(house.db(), ROOT, house.now, PageRequest(2, cursor), Wanted(destination="bank"))
        seen += [one.scope for one in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
        with pytest.raises(CursorMismatch):
            await listing.list_guards(house.db(), ROOT, house.now, PageRequest(2, cursor), Wanted())
    assert seen == ["s0", "s2", "s4"]
    first = await listing.list_holders(house.db(), ROOT, PageRequest(4))
    rest = await listing.list_holders(house.db(), ROOT, PageRequest(4, first.next_cursor))
    ids = [one.holder_id for one in (*first.items, *rest.items)]
    assert (len(ids), ids) == (6, sorted(ids))
    audit = await listing.list_audit(house.db(), ROOT, PageRequest(1))
    again = await listing.list_audit(house.db(), ROOT, PageRequest(1, audit.next_cursor))
    assert [one.guard["scope"] for one in (*audit.items, *again.items)] == ["s1", "s3"]


# --- holders ---------------------------------------------------------------------------------------------------------


@pytest.mark.clause("guards.holder-identity")
async def test_a_holder_registers_once_and_an_id_is_one_subjects(house: WatchHouse) -> None:
    ann, ben = [await credential(house.store, name, Grant(frozenset({"execute"}))) for name in ("ann", "ben")]
    drawn = new_holder(house.now)
    made = await holders.register(house.db(), ann, house.now, drawn, "laptop")
    house.pass_time(1)
    assert await holders.register(house.db(), ann, house.now, drawn, "another name") == made
    assert await house.types(drawn) == ["holder.registered"]
    with pytest.raises(IdempotencyConflict):
        await holders.register(house.db(), ben, house.now, drawn, "laptop")
    with pytest.raises(IdempotencyConflict):
        await house.substrate.register_holder(drawn, "r:00")
    for wrong in ("hld_1", "grd" + drawn[3:], drawn.upper(), drawn + "0", drawn[:-1] + "u"):
        with pytest.raises(IdInvalid):
            await holders.register(house.db(), ann, house.now, wrong, "laptop")
    for name in ("", " ", "a\nb", "x" * 1025):
        with pytest.raises(RequestInvalid):
            await holders.register(house.db(), ann, house.now, new_holder(house.now), name)
    assert new_holder(house.now) != new_holder(house.now)


@pytest.mark.clause("guards.holder-gone")
async def test_only_itself_says_that_a_holder_has_stopped_and_it_does_not_come_back(house: WatchHouse) -> None:
    ann, ben = [await credential(house.store, name, Grant(frozenset({"execute"}))) for name in ("ann", "ben")]
    drawn = new_holder(house.now)
    await holders.register(house.db(), ann, house.now, drawn, "laptop")
    for caller, holder in ((ben, drawn), (ROOT, drawn), (ann, house.holder), (ann, new_holder(house.now))):
        before = await dump(house.store)
        with pytest.raises(HolderUnknown):
            await holders.exit_(house.db(), caller, house.now, holder)
        assert await dump(house.store) == before
    with pytest.raises(HolderUnknown):
        await house.leave(drawn)
    left = await holders.exit_(house.db(), ann, house.now, drawn, "deployed anew")
    assert (left.exited_at, left.exit_reason) == (house.now, "deployed anew")
    house.pass_time(1)
    assert await holders.exit_(house.db(), ann, house.now, drawn) == left
    assert await house.types(drawn) == ["holder.registered", "holder.exited"]
    with pytest.raises(HolderUnknown):
        await holders.register(house.db(), ann, house.now, drawn, "laptop")


@pytest.mark.clause("guards.holder-identity", "guards.acquire")
async def test_a_host_elsewhere_admits_nothing_under_another_subjects_holder(house: WatchHouse) -> None:
    ann, ben = [await credential(house.store, name, Grant(frozenset({"execute"}))) for name in ("ann", "be/n")]
    own, foreign = new_holder(house.now), new_holder(house.now)
    await holders.register(house.db(), ann, house.now, own, "laptop")
    await holders.register(house.db(), ben, house.now, foreign, "laptop")
    execution = await house.held(await house.open(), "ann/laptop")
    with pytest.raises(HolderUnknown):
        await house.begin(execution.fence, holder=foreign)
    assert (await house.begin(execution.fence, holder=own)).token


# --- costs -----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("runs.substrate", "guards.acquire", "guards.release")
async def test_a_guarded_effect_is_two_round_trips_and_a_plain_step_knows_nothing_of_it(house: WatchHouse) -> None:
    execution = await house.opened(scope="a/b/c")
    await house.apply(execution.fence, claims(key("plain")))
    trips = []
    sent = house.listen()
    admission = admit(house.holder, destination="bank")
    outcomes = await house.apply(execution.fence, record("plain", 1), claims(), admission)
    trips.append(house.cost.trips)
    [guard] = [one for one in outcomes if isinstance(one, Admitted)]
    await house.apply(execution.fence, ReleaseGuard(guard.token, house.holder), record("charge", 1), claims(key("next")))
    trips.append(house.cost.trips)
    assert trips == [1, 1]
    sent.clear()
    await house.apply(execution.fence, record("next", 1), claims(key("last")))
    await house.apply(execution.fence, record("last", 1), Suspend("suspended", None))
    taken = await house.held(execution.execution_id)
    trips.append(house.cost.trips)
    await house.apply(taken.fence, put("x", 1), Close("success", value(1)))
    trips.append(house.cost.trips)
    assert trips == [1, 1, 1, 1]
    told = " ".join(
        one.sql for tx in sent for one in tx if not one.sql.startswith(("INSERT INTO preconditions", "\nDELETE"))
    )
    assert "guard" not in told


@pytest.mark.edge
@pytest.mark.clause("runs.substrate")
async def test_a_guard_costs_as_many_rows_beside_a_thousand_as_alone(house: WatchHouse) -> None:
    if house.store.name != "d1":
        pytest.skip("only the edge's database counts rows read")
    told = []
    for others in (0, 1000):
        for start in range(0, others, 250):
            await house.store.sql_batch(_guards(start, start + 250))
        execution = await house.opened(scope=f"job-{others}/item")
        guard = await house.begin(execution.fence, destination="bank")
        admission = house.cost
        await house.end(execution.fence, guard.token)
        told.append([(cost.rows_read, cost.rows_written) for cost in (admission, house.cost)])
        house.pass_time(31)
    alone, beside = told
    assert [one[1] for one in alone] == [one[1] for one in beside]
    assert all(more[0] - one[0] <= 3 for one, more in zip(alone, beside, strict=True))
    assert alone[0] <= (40, 10)


def _guards(start: int, end: int) -> list[str]:
    columns = "execution_id, run_id, scope, attempt, epoch, holder, label, input_sha256, idempotency_key"
    return [
        f"INSERT INTO guards (token, {columns}, publication, admitted_at, since, scopes, lease_keys) "  # noqa: S608
        f"VALUES ('grd_{n}', 'exe_{n}', 'run', 's{n}', 1, 1, 'h', 'l', 'i', 'k', 0, 1, 1, '[]', '[]')"
        for n in range(start, end)
    ] + [f"INSERT INTO guard_rows (row, token) VALUES ('scope:s{n}', 'grd_{n}')" for n in range(start, end)]  # noqa: S608

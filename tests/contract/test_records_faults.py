"""A commit whose answer is lost: asking again as the documentation says gives one outcome, whole."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from moorage.kernel.errors import StorageBindingUnavailable
from moorage.kernel.instants import after
from moorage.records.due import RecordDelays, RecordLeases
from moorage.records.model import ClaimRef, Draft
from moorage.store.ports import Database
from tests.contract.adapters import Store, dump
from tests.contract.desk import KIND, Desk, ref
from tests.contract.faults import Fault, FaultyDatabase, Plan


class FaultyDesk(Desk):
    """A desk whose next commit meets a fault."""

    next_fault = Fault.NONE

    def db(self) -> Database:
        fault, self.next_fault = self.next_fault, Fault.NONE
        return FaultyDatabase(super().db(), Plan(commits=[fault]))


@dataclass(frozen=True)
class Retried:
    """`act` on what `arrange` made; asked again after a lost answer it answers and changes nothing more."""

    name: str
    arrange: Callable[[Desk], Awaitable[Any]]
    act: Callable[[Desk, Any], Awaitable[Any]]


async def nothing(desk: Desk) -> None:
    await desk.declare()


async def held(desk: Desk) -> ClaimRef:
    await desk.declare()
    await desk.publish()
    return ref(await desk.claim_one(seconds=5))


async def several(desk: Desk) -> None:
    await desk.declare()
    await desk.publish_all([Draft(KIND, {"size": number}) for number in range(3)])


async def expired(desk: Desk) -> ClaimRef:
    claim = await held(desk)
    desk.pass_time(5)
    return claim


async def last_expired(desk: Desk) -> ClaimRef:
    claim = await held(desk)
    for _ in range(2):
        desk.pass_time(5)
        await desk.fire()
        claim = ref(await desk.claim_one(seconds=5))
    desk.pass_time(5)
    return claim


async def waiting(desk: Desk) -> str:
    await desk.declare()
    record = await desk.publish(not_before=after(desk.now, 5))
    desk.pass_time(5)
    return record.id


async def dead(desk: Desk) -> list[str]:
    await desk.declare()
    await desk.publish_all([Draft(KIND, {"size": number}) for number in range(3)])
    taken = await desk.claim(limit=3)
    for one in taken:
        await desk.fail(ref(one), dead=True)
    return [one.record.id for one in taken]


DRAFTS = [Draft(KIND, {"size": 1}, id="a"), Draft(KIND, {"text": "x" * 300_000}), Draft(KIND, {"size": 2})]
RESULTS = [Draft(KIND, {"size": 1}), Draft(KIND, {"size": 2}, not_before=None, priority=4)]

OPERATIONS = [
    Retried("publish a batch by key", nothing, lambda desk, _: desk.publish_all(DRAFTS, desk.key("k", "batch"))),
    Retried("settle with results", held, lambda desk, claim: desk.settle(claim, *RESULTS)),
    Retried("settle by key", held, lambda desk, claim: desk.settle(claim, *RESULTS, key=desk.key("k", "settle"))),
    Retried("renew by key", held, lambda desk, claim: desk.renew(claim, 100, desk.key("k", "renew"))),
    Retried("claim by key", several, lambda desk, _: desk.claim(limit=2, key=desk.key("k", "claim"))),
    Retried("release by key", held, lambda desk, claim: desk.release(claim, desk.key("k", "release"))),
    Retried("fail by key", held, lambda desk, claim: desk.fail(claim, key=desk.key("k", "fail"))),
    Retried("dead-letter by key", held, lambda desk, claim: desk.fail(claim, dead=True, key=desk.key("k", "dead"))),
    Retried("cancel by key", held, lambda desk, claim: desk.cancel(claim.record, key=desk.key("k", "cancel"))),
    Retried("requeue by key", dead, lambda desk, ids: desk.requeue(ids[0], key=desk.key("k", "requeue"))),
    Retried("requeue by pattern", dead, lambda desk, _: desk.requeue_matching({"size": {"$lt": 2}})),
    Retried("requeue by pattern and key", dead, lambda desk, _: desk.requeue_matching({}, 2, key=desk.key("k", "all"))),
    Retried("expire", expired, lambda desk, claim: RecordLeases().fire(desk.db(), desk.now, f"{claim.record}@{desk.now}")),
    Retried(
        "expire the last",
        last_expired,
        lambda desk, claim: RecordLeases().fire(desk.db(), desk.now, f"{claim.record}@{desk.now}"),
    ),
    Retried("become due", waiting, lambda desk, record: RecordDelays().fire(desk.db(), desk.now, f"{record}@{desk.now}")),
]


@pytest.fixture
def desk(store: Store) -> FaultyDesk:
    return FaultyDesk(store)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
@pytest.mark.clause("store.atomic", "store.transport", "history.append", "records.idempotent")
async def test_a_commit_that_is_not_answered_is_done_once_whatever_was_lost(desk: FaultyDesk, operation: Retried) -> None:
    subject = await operation.arrange(desk)
    before = await dump(desk.store)
    desk.next_fault = Fault.FAIL_BEFORE
    with pytest.raises(StorageBindingUnavailable):
        await operation.act(desk, subject)
    assert await dump(desk.store) == before
    desk.next_fault = Fault.FAIL_AFTER
    with pytest.raises(StorageBindingUnavailable):
        await operation.act(desk, subject)
    applied = await dump(desk.store)
    assert applied != before
    await desk.history_agrees()
    await operation.act(desk, subject)
    assert await dump(desk.store) == applied


@pytest.mark.clause("store.transport", "records.settle-replay")
async def test_a_settlement_whose_answer_was_lost_is_answered_as_it_was_made(desk: FaultyDesk) -> None:
    claim = await held(desk)
    desk.next_fault = Fault.FAIL_AFTER
    with pytest.raises(StorageBindingUnavailable):
        await desk.settle(claim, *RESULTS)
    [stored] = await desk.store.sql("SELECT receipt FROM records WHERE id = ?", claim.record)
    again = await desk.settle(claim, *RESULTS)
    assert all(f'"{one.id}"' in stored["receipt"] for one in again.results)
    assert [one.record.id for one in (await desk.lineage(claim.record, "descendants"))[0]] == again.receipt["results"]


@pytest.mark.clause("store.transport", "records.recover")
async def test_a_claim_without_a_key_whose_answer_was_lost_is_recovered_by_the_clock(desk: FaultyDesk) -> None:
    await desk.declare()
    record = await desk.publish()
    desk.next_fault = Fault.FAIL_AFTER
    with pytest.raises(StorageBindingUnavailable):
        await desk.claim(seconds=5)
    assert await desk.claim() == []
    desk.pass_time(5)
    assert await desk.fire() == {"lease_expired": 1}
    assert (await desk.claim_one()).record.id == record.id
    await desk.history_agrees()


@pytest.mark.clause("store.atomic", "history.append")
async def test_a_statement_that_fails_inside_leaves_nothing(desk: FaultyDesk) -> None:
    """The last statement of each plan breaks: what came before it in the batch is gone as well."""
    claim = await held(desk)
    await desk.store.sql(
        "CREATE TRIGGER broken BEFORE INSERT ON record_parents BEGIN SELECT RAISE(ABORT, 'constraint failed'); END"
    )
    before = await dump(desk.store)
    with pytest.raises(Exception, match="database"):
        await desk.settle(claim, *RESULTS)
    with pytest.raises(Exception, match="database"):
        await desk.publish_all([*DRAFTS, Draft(KIND, {}, parents=(claim.record,))], desk.key("k", "c"))
    assert await dump(desk.store) == before
    await desk.store.sql("DROP TRIGGER broken")
    assert len((await desk.settle(claim, *RESULTS)).results) == 2
    await desk.history_agrees()

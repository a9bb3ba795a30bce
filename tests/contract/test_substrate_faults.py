"""Lost answers: what was applied may be sent again as it is, does nothing twice, and is answered as it would have been."""

from dataclasses import dataclass
from typing import Any

import pytest

from moorage.catalog import declare
from moorage.catalog.kinds import Kinds
from moorage.catalog.model import KindDeclaration
from moorage.kernel import canonical
from moorage.kernel.errors import LeaseFenced, StorageBindingUnavailable
from moorage.kernel.instants import Instant
from moorage.runs.model import Execution, Failure, Minted
from moorage.runs.operations import (
    Await,
    Claim,
    Claimed,
    Close,
    CommitCursor,
    Done,
    Fail,
    GiveUp,
    Mint,
    Operation,
    Outcome,
    Publish,
    Recorded,
    SetMetadata,
    StartChild,
    Suspend,
)
from tests.contract.adapters import Store, dump
from tests.contract.faults import Fault, Plan
from tests.contract.harbor import ROOT, START, Harbor, claim, key, put, record, value

LATER = Instant(START + 60_000)
BOOM = Failure("Transient", "boom")
RECORDS = [{"kind": "parcels", "body": {"weight": 1}}]
BIG = "x" * 1_200_000


@dataclass(frozen=True, slots=True)
class Case:
    """A list of operations, after others that were answered."""

    name: str
    operations: tuple[Operation, ...]
    before: tuple[Operation, ...] = ()


CASES = [
    Case("claim", (claim("a"),)),
    Case("record and claim", (record("a", 1), claim("b")), (claim("a"),)),
    Case("put", (put("a", 1), put("b", 2))),
    Case("large put", (put("a", BIG), claim("b"))),
    Case("sleep", (Claim(key("nap"), "sleep", "0", LATER),)),
    Case("fail and wait", (Fail(key("a"), 1, BOOM, LATER),), (claim("a"),)),
    Case("fail", (Fail(key("a"), 1, BOOM),), (claim("a"),)),
    Case("give up", (GiveUp(key("a")),), (claim("a"),)),
    Case("mint", (Mint(key("m"), "0", 60), claim("a"))),
    Case("start a child", (StartChild(key("c"), "0", "part", value(1)), claim("a"))),
    Case("start a child with a large input", (StartChild(key("c"), "0", "part", value(BIG)),)),
    Case("publish", (Publish(key("p"), "0", RECORDS), put("a", 1))),
    Case("move a cursor", (CommitCursor(key("k"), "0", "feed", value(7), 0, RECORDS),)),
    Case("metadata", (SetMetadata({"a": 1}), claim("a"))),
    Case("suspend", (record("a", 1), Suspend("waiting", LATER)), (claim("a"),)),
    Case("suspend without end", (claim("b"), Suspend("suspended", None)), (claim("a"),)),
    Case("succeed", (record("a", 1), Close("success", value("r"))), (claim("a"),)),
    Case("succeed with a large result", (Close("success", value(BIG)),), (put("a", 1),)),
    Case("fail for good", (record("a", 1), Close("failed", error=BOOM)), (claim("a"),)),
    Case("cancel with nothing recorded", (Close("canceled"),), (claim("a"),)),
]


@pytest.fixture
async def harbor(store: Store) -> Harbor:
    told = KindDeclaration.model_validate({"paths": {"weight": "number"}})
    await declare.declare(store.db(), ROOT, START, Kinds(), "parcels", told)
    return Harbor(store)


def shape(outcome: Outcome) -> Any:
    """An outcome without ids that are drawn anew."""
    match outcome:
        case Claimed():
            return ("claimed", outcome.attempt, outcome.ref is not None)
        case Recorded():
            one = outcome.entry
            drawn = one.kind in ("publish",)
            text = None if one.value is None or drawn else (one.value.text or one.value.blob)
            return ("recorded", one.key, one.state, one.attempt, one.next_attempt_at, one.failure, text)
        case Minted():
            return ("minted", outcome.deadline)
        case Done():
            return "done"


async def arranged(harbor: Harbor, case: Case) -> Execution:
    """An execution in which everything before was answered."""
    execution = await harbor.opened()
    if case.before:
        await harbor.apply(execution.fence, *case.before)
    return execution


@pytest.mark.clause("runs.substrate", "runs.step-output", "store.transport")
@pytest.mark.parametrize("case", CASES, ids=lambda one: one.name)
async def test_a_list_whose_answer_was_lost_is_answered_alike_and_done_once(harbor: Harbor, case: Case) -> None:
    twin = await arranged(harbor, case)
    wanted = [shape(one) for one in await harbor.apply(twin.fence, *case.operations)]
    execution = await arranged(harbor, case)
    large = "large" in case.name
    harbor.faults = Plan(commits=[Fault.NONE, Fault.FAIL_AFTER] if large else [Fault.FAIL_AFTER])
    with pytest.raises(StorageBindingUnavailable):
        await harbor.apply(execution.fence, *case.operations)
    harbor.faults = None
    applied = await _without_uploads(harbor)
    told = [shape(one) for one in await harbor.apply(execution.fence, *case.operations)]
    assert _digested(told) == _digested(wanted)
    assert await _without_uploads(harbor) == applied


def _digested(outcomes: list[Any]) -> list[Any]:
    """Large values by their digests: their text may or may not be at hand."""
    text = value(BIG).text or ""
    same = (text, canonical.digest(text))
    return [tuple("BIG" if part in same else part for part in one) if isinstance(one, tuple) else one for one in outcomes]


async def _without_uploads(harbor: Harbor) -> dict[str, Any]:
    """Everything but uploads that run out by themselves."""
    told = await dump(harbor.store)
    told["blob_references"] = [row for row in told["blob_references"] if row["uploading_until"] is None]
    return told


@pytest.mark.clause("store.atomic", "runs.substrate")
@pytest.mark.parametrize("case", CASES, ids=lambda one: one.name)
async def test_a_list_that_was_lost_on_its_way_changes_nothing(harbor: Harbor, case: Case) -> None:
    execution = await arranged(harbor, case)
    before = await _without_uploads(harbor)
    harbor.faults = Plan(commits=[Fault.NONE, Fault.FAIL_BEFORE] if "large" in case.name else [Fault.FAIL_BEFORE])
    with pytest.raises(StorageBindingUnavailable):
        await harbor.apply(execution.fence, *case.operations)
    told = await _without_uploads(harbor)
    told["blob_sweep"] = before["blob_sweep"]
    assert told == before


@pytest.mark.clause("leases.fence")
@pytest.mark.parametrize("case", CASES, ids=lambda one: one.name)
async def test_a_list_of_an_owner_that_was_followed_changes_nothing(harbor: Harbor, case: Case) -> None:
    first = await arranged(harbor, case)
    harbor.now = first.lease.expires_at
    await harbor.held(first.execution_id, "bob")
    before = await _without_uploads(harbor)
    with pytest.raises(LeaseFenced):
        await harbor.apply(first.fence, *case.operations)
    told = await _without_uploads(harbor)
    for noise in ("blob_sweep", "blob_deletions"):
        told[noise] = before[noise]
    assert told == before


async def test_a_take_whose_answer_was_lost_is_made_up_for_by_the_next(harbor: Harbor) -> None:
    opened = await harbor.open()
    harbor.faults = Plan(commits=[Fault.FAIL_AFTER])
    with pytest.raises(StorageBindingUnavailable):
        await harbor.take(opened)
    harbor.faults = None
    assert await harbor.take(opened, "bob") is None
    harbor.pass_time(30)
    assert (await harbor.held(opened, "bob")).lease.epoch == 2


async def test_a_refresh_whose_answer_was_lost_tells_the_same_again(harbor: Harbor) -> None:
    execution = await harbor.opened()
    [minted] = await harbor.apply(execution.fence, Mint(key("m"), "0", 60))
    assert isinstance(minted, Minted)
    await harbor.apply(execution.fence, Await(key("w"), "1", minted.id))
    await harbor.resolve(minted.token, 1)
    harbor.faults = Plan(commits=[Fault.FAIL_AFTER] * 2)
    told = [await harbor.substrate.refresh(execution.fence)]
    harbor.faults = Plan(commits=[Fault.FAIL_AFTER] * 3)
    with pytest.raises(StorageBindingUnavailable):
        await harbor.substrate.refresh(execution.fence)
    harbor.faults = None
    told.append(await harbor.substrate.refresh(execution.fence))
    assert [[one.value.text for one in entries if one.value] for entries in told] == [['{"resolved":1}']] * 2

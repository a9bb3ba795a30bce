"""What every operation does when its commit is not answered: on each adapter, for each operation (one line each)."""

import asyncio
from typing import Any

import pytest

from moorage.kernel.errors import StorageBindingUnavailable
from tests.contract.adapters import Store, dump
from tests.contract.faults import Fault, FaultyDatabase, Plan
from tests.contract.operations import OPERATIONS, Operation, World

pytestmark = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)


async def arranged(store: Store, operation: Operation) -> tuple[World, Any]:
    """The world before the operation."""
    world = World(store)
    return world, await operation.arrange(world)


async def history(store: Store) -> list[tuple[Any, ...]]:
    """What happened, without the ids that differ from run to run."""
    rows = await store.sql("SELECT position, revision, type, actor, at FROM history ORDER BY position")
    return [tuple(row.values()) for row in rows]


@pytest.mark.clause("store.atomic", "store.transport", "history.append")
async def test_a_lost_request_changes_nothing_and_is_not_sent_again(store: Store, operation: Operation) -> None:
    world, subject = await arranged(store, operation)
    before = await dump(store)
    db = FaultyDatabase(store.db(), Plan(commits=[Fault.FAIL_BEFORE]))
    with pytest.raises(StorageBindingUnavailable):
        await operation.act(world, db, subject)
    assert db.sent == 0
    assert await dump(store) == before


@pytest.mark.clause("store.atomic", "store.transport", "history.append")
async def test_a_lost_answer_leaves_the_whole_change_and_asking_again_does_nothing_twice(
    store: Store, operation: Operation
) -> None:
    world, subject = await arranged(store, operation)
    before = len(await history(store))
    db = FaultyDatabase(store.db(), Plan(commits=[Fault.FAIL_AFTER]))
    with pytest.raises(StorageBindingUnavailable):
        await operation.act(world, db, subject)
    assert db.sent == 1
    applied, happened = await dump(store), await history(store)
    assert operation.name.startswith(("leases.", "journal.", "outbox.")) or len(happened) > before
    if operation.again is not None:
        with pytest.raises(operation.again):
            await operation.act(world, store.db(), subject)
    else:
        await operation.act(world, store.db(), subject)
    if operation.renews:
        assert len(await history(store)) == len(happened) + (len(happened) - before)
    else:
        assert await dump(store) == applied


@pytest.mark.clause("store.atomic", "history.query")
async def test_a_commit_delivered_twice_leaves_history_without_a_gap(store: Store, operation: Operation) -> None:
    world, subject = await arranged(store, operation)
    db = FaultyDatabase(store.db(), Plan(commits=[Fault.DUPLICATE]))
    await operation.act(world, db, subject)
    assert db.sent == 2
    entries = await store.sql("SELECT position, subject, revision FROM history ORDER BY position")
    assert [entry["position"] for entry in entries] == list(range(1, len(entries) + 1))
    for name in {entry["subject"] for entry in entries}:
        revisions = [entry["revision"] for entry in entries if entry["subject"] == name]
        assert revisions == list(range(1, len(revisions) + 1))


@pytest.mark.clause("store.copies", "store.no-external-io")
async def test_a_delayed_commit_carries_what_was_planned_before_it(store: Store, operation: Operation) -> None:
    world, subject = await arranged(store, operation)
    before = await dump(store)
    plan = Plan(commits=[Fault.DELAY])
    running = asyncio.ensure_future(operation.act(world, FaultyDatabase(store.db(), plan), subject))
    done, _ = await asyncio.wait([running], timeout=0.05)
    assert not done
    assert await dump(store) == before
    plan.gate.set()
    await running
    assert await dump(store) != before

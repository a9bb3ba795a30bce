"""Records, cursors and metadata in a run's own transaction, as whoever started it."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from moorage.catalog import declare
from moorage.catalog.kinds import Kinds
from moorage.catalog.model import KindDeclaration
from moorage.kernel.errors import (
    BodyInvalid,
    CursorMoved,
    Forbidden,
    KindUnknown,
    ParentUnknown,
    PayloadTooLarge,
    RequestInvalid,
    RunMetadataTooLarge,
    Unauthenticated,
)
from moorage.kernel.limits import CURSOR_POSITION_BYTES, METADATA_BYTES
from moorage.runs.operations import Close, CommitCursor, Done, Operation, Publish, SetMetadata
from tests.contract.adapters import Store, dump
from tests.contract.desk import grant
from tests.contract.harbor import ROOT, Harbor, credential, entry, key, record, text, value

KIND = "parcels"


@pytest.fixture
async def harbor(store: Store) -> Harbor:
    made = Harbor(store)
    await declared(made)
    return made


async def declared(harbor: Harbor, paths: Mapping[str, str] | None = None) -> None:
    """The kind, as somebody else declares it: the run's host has not heard of it."""
    told = KindDeclaration.model_validate({"paths": dict(paths or {"weight": "number"})})
    await declare.declare(harbor.store.db(), ROOT, harbor.now, Kinds(), KIND, told)


def publish(*bodies: Any, label: str = "out", **more: Any) -> Publish:
    """Publish records of the kind."""
    return Publish(key(label), "0", [{"kind": KIND, "body": body, **more} for body in bodies])


def commit(position: Any, expected: int, label: str = "commit", name: str = "feed", **more: Any) -> CommitCursor:
    """Move a cursor."""
    return CommitCursor(key(label, position), "0", name, value(position), expected, **more)


# --- records ---------------------------------------------------------------------------------------------------------


@pytest.mark.clause("runs.effect-boundary", "records.publish")
async def test_records_and_their_entry_are_one_commit_and_published_once(harbor: Harbor) -> None:
    execution = await harbor.opened()
    told = [await harbor.apply(execution.fence, publish({"weight": 1}, {"weight": 2})) for _ in range(2)]
    assert told[0] == told[1]
    published = json.loads(text(told[0][0]) or "")["records"]
    rows = await harbor.store.sql("SELECT id, created_by FROM records ORDER BY seq")
    assert rows == [{"id": one, "created_by": "root"} for one in published]
    harbor.now = execution.lease.expires_at
    again = await harbor.held(execution.execution_id, "bob")
    assert text((await harbor.apply(again.fence, publish({"weight": 9})))[0]) == text(told[0][0])
    assert len(await harbor.rows("records")) == 2


@pytest.mark.clause("records.publish")
async def test_what_a_publication_refuses_leaves_nothing(harbor: Harbor) -> None:
    execution = await harbor.opened()
    before = await dump(harbor.store)
    wrong: list[tuple[Operation, type[Exception]]] = [
        (publish({"weight": "heavy"}), BodyInvalid),
        (publish({"weight": 1}, parents=["rec_nothing"]), ParentUnknown),
        (publish(), RequestInvalid),
        (Publish(key("out"), "0", [{"kind": "nothing", "body": {}}]), KindUnknown),
        (publish({"weight": 1}, id="mine"), RequestInvalid),
        (publish({"weight": 1}, priority=True), RequestInvalid),
        (publish({"weight": 1}, not_before="soon"), RequestInvalid),
        (publish([1]), RequestInvalid),
        (publish({"weight": 1}, parents="rec"), RequestInvalid),
        (publish({"weight": 1}, metadata=3), RequestInvalid),
    ]
    for operation, raised in wrong:
        with pytest.raises(raised):
            await harbor.apply(execution.fence, record_before("x"), operation)
    assert await dump(harbor.store) == before


def record_before(label: str) -> Operation:
    """Something that is committed with a publication, or not at all."""
    return Publish(key(label), "0", [{"kind": KIND, "body": {"weight": 3}}])


@pytest.mark.clause("records.publish")
async def test_a_kind_that_is_redeclared_meanwhile_is_planned_with_anew(harbor: Harbor) -> None:
    execution = await harbor.opened()
    await harbor.apply(execution.fence, publish({"weight": 1}))
    await declared(harbor, {"weight": "number", "to": "string"})
    await harbor.apply(execution.fence, publish({"weight": 1, "to": "me"}, label="second"))
    [row] = await harbor.store.sql("SELECT s2 FROM records ORDER BY seq DESC LIMIT 1")
    assert row["s2"] == "sme" or row["s2"] is not None


@pytest.mark.clause("catalog.grants")
async def test_a_run_publishes_within_the_grants_of_who_started_it(harbor: Harbor) -> None:
    light = grant("publish", "read", kinds=[KIND], match={"weight": {"$lt": 5}})
    harbor.caller = await credential(harbor.store, "ann", grant("execute"), light)
    execution = await harbor.opened()
    await harbor.apply(execution.fence, publish({"weight": 1}))
    [row] = await harbor.rows("records")
    assert row["created_by"] == "ann"
    before = await dump(harbor.store)
    with pytest.raises(Forbidden):
        await harbor.apply(execution.fence, publish({"weight": 9}, label="heavy"))
    with pytest.raises(Forbidden):
        await harbor.apply(execution.fence, commit(1, 0, records=[{"kind": KIND, "body": {"weight": 9}}]))
    await harbor.store.sql("UPDATE credentials SET revoked_at = 1")
    with pytest.raises(Unauthenticated):
        await harbor.apply(execution.fence, publish({"weight": 1}, label="late"))
    await harbor.store.sql("UPDATE credentials SET revoked_at = NULL")
    assert await dump(harbor.store) == before


async def test_a_delayed_record_tells_the_clock(harbor: Harbor) -> None:
    execution = await harbor.opened()
    await harbor.apply(execution.fence, publish({"weight": 1}, not_before="2030-01-01T00:00:00Z"))
    assert harbor.woken == [1_893_456_000_000]


# --- cursors ---------------------------------------------------------------------------------------------------------


@pytest.mark.clause("runs.substrate")
async def test_a_cursor_moves_with_its_records_and_once(harbor: Harbor) -> None:
    execution = await harbor.opened(scope="imports")
    assert await harbor.substrate.cursor(execution.fence, "feed") == (None, 0)
    rows = [{"kind": KIND, "body": {"weight": 1}}]
    for _ in range(2):
        [told] = await harbor.apply(execution.fence, commit({"page": 1}, 0, records=rows))
        assert json.loads(text(told) or "") == {"position": {"page": 1}, "revision": 1}
    assert len(await harbor.rows("records")) == 1
    position, revision = await harbor.substrate.cursor(execution.fence, "feed")
    assert harbor.cost.trips == 1
    assert position is not None
    assert (position.text, revision) == ('{"page":1}', 1)
    [told] = await harbor.apply(execution.fence, commit({"page": 2}, 1))
    assert entry(told).kind == "cursor"
    await harbor.apply(execution.fence, Close("success"))
    later = await harbor.opened(scope="imports")
    position, revision = await harbor.substrate.cursor(later.fence, "feed")
    assert (position.text if position else None, revision) == ('{"page":2}', 2)
    other = await harbor.opened(scope="elsewhere")
    assert await harbor.substrate.cursor(other.fence, "feed") == (None, 0)


@pytest.mark.clause("runs.substrate")
async def test_a_cursor_that_was_moved_since_moves_no_further_and_publishes_nothing(harbor: Harbor) -> None:
    execution = await harbor.opened()
    await harbor.apply(execution.fence, commit(1, 0))
    before = await dump(harbor.store)
    for expected in (0, 2):
        with pytest.raises(CursorMoved):
            await harbor.apply(execution.fence, commit(2, expected, records=[{"kind": KIND, "body": {"weight": 1}}]))
    assert await dump(harbor.store) == before
    told = await asyncio.gather(
        *(harbor.apply(execution.fence, commit(2 + number, 1)) for number in range(3)), return_exceptions=True
    )
    assert sorted(type(one).__name__ for one in told) == ["CursorMoved", "CursorMoved", "list"]


async def test_a_cursor_s_position_has_a_bound(harbor: Harbor) -> None:
    execution = await harbor.opened()
    await harbor.apply(execution.fence, commit("x" * (int(CURSOR_POSITION_BYTES) - 2), 0))
    with pytest.raises(PayloadTooLarge):
        await harbor.apply(execution.fence, commit("x" * (int(CURSOR_POSITION_BYTES) - 1), 1))


# --- metadata --------------------------------------------------------------------------------------------------------


@pytest.mark.clause("runs.metadata-too-large")
async def test_metadata_is_replaced_up_to_its_bound_and_stands_past_it(harbor: Harbor) -> None:
    execution = await harbor.opened()
    most = {"m": "x" * (int(METADATA_BYTES) - len('{"m":""}'))}
    assert await harbor.apply(execution.fence, SetMetadata({"a": 1}), SetMetadata(most)) == [Done(), Done()]
    before = await dump(harbor.store)
    with pytest.raises(RunMetadataTooLarge, match=r"16385 bytes of metadata; the limit is 16384"):
        await harbor.apply(execution.fence, publish({"weight": 1}), SetMetadata({"m": most["m"] + "x"}))
    assert await dump(harbor.store) == before
    harbor.now = execution.lease.expires_at
    assert (await harbor.held(execution.execution_id, "bob")).metadata == most


async def test_an_entry_that_stands_is_told_whatever_else_is_new(harbor: Harbor) -> None:
    execution = await harbor.opened()
    await harbor.apply(execution.fence, publish({"weight": 1}))
    told = await harbor.apply(execution.fence, publish({"weight": 1}), publish({"weight": 2}, label="new"), commit(1, 0))
    assert [entry(one).state for one in told] == ["done"] * 3
    assert len(await harbor.rows("records")) == 2
    assert record("a", 1).op == "record"

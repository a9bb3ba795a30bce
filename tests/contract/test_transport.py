"""The transport rule of the real D1 adapter, met with the platform's own errors inside workerd."""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from moorage.kernel.errors import LeaseFenced, StorageBindingUnavailable, StorageCapabilityMissing
from moorage.kernel.instants import Instant
from moorage.store.ports import BlobRange
from moorage.store.transaction import Reading, Transaction
from moorage.store.transport import PATIENCE, Patience
from tests.contract.adapters import dump, schema_statements
from tests.contract.remote import D1Store, Fault, RemoteBlobs

pytestmark = [pytest.mark.edge, pytest.mark.clause("store.transport")]

NOW = Instant(1_800_000_000_000)
IMPATIENT = Patience(seconds=0.2, write_seconds=0.2)
LOST = ["fail_before", "lose_answer"]


def question() -> Reading:
    """A read that answers one row."""
    reading = Reading()
    reading.ask("SELECT count(*) AS n FROM leases")
    return reading


def change() -> Transaction:
    """A write of one row."""
    tx = Transaction(NOW)
    tx.run("INSERT INTO leases (key, epoch) VALUES ('a', 1)")
    return tx


def test_the_rule_is_three_attempts_of_fifteen_seconds() -> None:
    assert (PATIENCE.attempts, PATIENCE.seconds) == (3, 15.0)


@pytest.mark.parametrize("kind", LOST)
@pytest.mark.parametrize("times", [0, 1, 2])
async def test_a_read_without_an_answer_is_sent_again(d1_store: D1Store, kind: str, times: int) -> None:
    db = d1_store.db(Fault(kind, times))
    reading = question()
    await db.read(reading)
    assert reading.statements[0].answer.one() == {"n": 0}
    assert db.batches == db.cost.trips == times + 1


@pytest.mark.parametrize("kind", LOST)
async def test_a_read_is_given_up_after_three_attempts(d1_store: D1Store, kind: str) -> None:
    db = d1_store.db(Fault(kind, times=99))
    with pytest.raises(StorageBindingUnavailable, match="Network connection lost"):
        await db.read(question())
    assert db.batches == 3


async def test_an_attempt_that_hangs_is_given_up_and_sent_again(d1_store: D1Store) -> None:
    db = d1_store.db(Fault("hang", times=2, seconds=2, patience=IMPATIENT))
    reading = question()
    await db.read(reading)
    assert reading.statements[0].answer.one() == {"n": 0}
    assert db.batches == 3


async def test_a_read_that_the_database_refuses_is_not_sent_again(d1_store: D1Store) -> None:
    db = d1_store.db()
    reading = Reading()
    reading.ask("SELECT * FROM no_such_table")
    with pytest.raises(StorageCapabilityMissing):
        await db.read(reading)
    assert db.batches == 1


@pytest.mark.clause("store.atomic")
@pytest.mark.parametrize(("kind", "rows"), [("fail_before", 0), ("lose_answer", 1)])
async def test_a_write_is_sent_once_whatever_became_of_it(d1_store: D1Store, kind: str, rows: int) -> None:
    db = d1_store.db(Fault(kind))
    with pytest.raises(StorageBindingUnavailable):
        await db.commit(change())
    assert db.batches == 1
    assert len(await d1_store.sql("SELECT key FROM leases")) == rows


async def test_a_write_that_hangs_is_reported_and_not_sent_again(d1_store: D1Store) -> None:
    db = d1_store.db(Fault("hang", seconds=2, patience=IMPATIENT))
    with pytest.raises(StorageBindingUnavailable, match=r"no answer within 0\.2 s"):
        await db.commit(change())
    assert db.batches == 1


async def test_a_conflict_after_no_fault_is_an_answer_and_is_not_sent_again(d1_store: D1Store) -> None:
    db = d1_store.db()
    tx = change()
    tx.require("SELECT 1 WHERE 0", LeaseFenced())
    with pytest.raises(LeaseFenced):
        await db.commit(tx)
    assert db.batches == 1


@pytest.mark.clause("store.initialize")
@pytest.mark.parametrize("kind", LOST)
async def test_the_initialization_is_sent_again_and_is_applied_once(d1_store: D1Store, kind: str) -> None:
    await d1_store.sql("DROP TABLE due_failures")
    before = await dump(d1_store)
    db = d1_store.db(Fault(kind, times=2))
    await db.initialize(schema_statements())
    assert db.batches == 3
    assert await dump(d1_store) == {**before, "due_failures": []}


@pytest.mark.clause("store.ports")
async def test_the_cost_is_what_the_database_itself_counted(d1_store: D1Store) -> None:
    db = d1_store.db()
    await db.commit(change())
    assert (db.cost.trips, db.cost.rows_written) == (1, 1)
    assert db.cost.milliseconds >= 0
    await db.read(question())
    assert (db.cost.trips, db.cost.rows_read) == (2, 1)


CONTENT = b"content"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
BLOB_REQUESTS: dict[str, Callable[[RemoteBlobs], Awaitable[Any]]] = {
    "get": lambda blobs: blobs.get(SHA256),
    "part": lambda blobs: blobs.get(SHA256, BlobRange(1, 2)),
    "size": lambda blobs: blobs.size(SHA256),
    "put": lambda blobs: blobs.put(CONTENT),
    "delete": lambda blobs: blobs.delete(SHA256),
}


@pytest.mark.parametrize("kind", LOST)
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("request_name", BLOB_REQUESTS)
async def test_a_blob_request_without_an_answer_is_sent_again(
    d1_store: D1Store, request_name: str, kind: str, times: int
) -> None:
    await d1_store.blobs.put(CONTENT)
    plain, faulty = RemoteBlobs(d1_store.harness), RemoteBlobs(d1_store.harness, Fault(kind, times))
    answer = await BLOB_REQUESTS[request_name](faulty)
    if request_name == "delete":
        assert await d1_store.keys() == []
    else:
        assert await BLOB_REQUESTS[request_name](plain) == answer
        assert faulty.requests == plain.requests + times


@pytest.mark.clause("blobs.write")
async def test_a_put_whose_answer_was_lost_is_one_object(d1_store: D1Store) -> None:
    blobs = RemoteBlobs(d1_store.harness, Fault("lose_answer", times=2))
    assert await blobs.put(CONTENT) == SHA256
    assert await d1_store.keys() == [f"blobs/{SHA256}"]
    assert await d1_store.blobs.get(SHA256) == CONTENT


@pytest.mark.parametrize("kind", LOST)
async def test_a_blob_request_is_given_up_after_three_attempts(d1_store: D1Store, kind: str) -> None:
    blobs = RemoteBlobs(d1_store.harness, Fault(kind, times=99))
    with pytest.raises(StorageBindingUnavailable, match="Network connection lost"):
        await blobs.get(SHA256)
    assert blobs.requests == 3

"""Large payloads on every adapter: in the bucket before the row that names them, held by it, and read back exactly."""

import asyncio
from typing import Any

import pytest

from moorage.awakeables import executions
from moorage.awakeables.due import SWEEP_AWAKEABLES, AwakeableDeadlines, AwakeableRetention
from moorage.awakeables.mint import mint
from moorage.awakeables.model import Draft, Minted, Rejection
from moorage.awakeables.payloads import Payload, read
from moorage.awakeables.resolve import reject, resolve, show, show_one
from moorage.awakeables.statements import OUTCOME_BLOB, OUTCOME_SIZE, OUTCOME_VALUE
from moorage.blobs.due import BlobDeletions
from moorage.kernel import canonical
from moorage.kernel.errors import (
    AwakeableAlreadyResolved,
    AwakeableRejected,
    AwakeableTimedOut,
    AwakeableUnknown,
    BlobMissing,
    FailureTag,
    MoorageError,
    PayloadTooLarge,
    StorageBindingUnavailable,
    StorageCapabilityMissing,
)
from moorage.kernel.instants import Instant
from moorage.kernel.limits import AWAKE_PAYLOAD_BYTES, AWAKE_RETENTION_SECONDS, JOURNAL_INLINE_BYTES, JOURNAL_VALUE_BYTES
from moorage.store.transaction import Transaction
from moorage.timers.clock import drain
from moorage.timers.due import DueWork
from tests.contract.adapters import Store, dump
from tests.contract.declared import Interrupted
from tests.contract.executions import Poked, an_entry, an_execution
from tests.contract.test_awakeables import DEADLINE, NOW, OK, ROOT, TTL, a_credential, later, story

LARGE = Payload.of({"s": "é" * JOURNAL_INLINE_BYTES})
ANOTHER = Payload.of("another" * 200_000)
HELD = "SELECT sha256, holder, uploading_until FROM blob_references"


async def minted(store: Store, **draft: Any) -> Minted:
    return await mint(store.db(), ROOT, NOW, Draft(**{"ttl_seconds": TTL, **draft}))


async def objects(store: Store) -> list[str]:
    """What lies in the bucket once the Clock has seen to what was let go."""
    await drain(store.db, later(1), [BlobDeletions(store.blobs)])
    return [digest async for digest in store.blobs.list()]


def of_bytes(size: int) -> Payload:
    """A payload of so many bytes of canonical JSON."""
    return Payload.of("x" * (size - 2))


@pytest.mark.clause("blobs.inline-cutoff", "blobs.order")
async def test_a_large_payload_is_an_object_that_the_awakeable_holds(store: Store) -> None:
    new = await minted(store)
    answered = await resolve(store.db(), ROOT, NOW, new.token, LARGE, store.blobs)
    assert answered.payload == LARGE.text
    [row] = await store.sql("SELECT payload, payload_sha256, payload_blob, payload_size FROM awakeables")
    digest = canonical.digest(LARGE.outcome)
    assert row == {
        "payload": None,
        "payload_sha256": LARGE.sha256,
        "payload_blob": digest,
        "payload_size": LARGE.size + len('{"resolved":}'),
    }
    assert await store.sql(HELD) == [{"sha256": digest, "holder": new.awakeable.id, "uploading_until": None}]
    assert await objects(store) == [digest]
    for shown in (
        await show(store.db(), ROOT, later(TTL * 9000), new.token, store.blobs),
        await show_one(store.db(), ROOT, later(TTL * 9000), new.awakeable.id, store.blobs),
    ):
        assert shown.awakeable.payload == LARGE.text
        assert canonical.dumps(shown.wire()["payload"]) == LARGE.text


@pytest.mark.clause("blobs.inline-cutoff", "kernel.limits")
async def test_a_mebibyte_stays_in_its_row_and_one_byte_more_does_not(store: Store) -> None:
    for size, kept_in_row in ((JOURNAL_INLINE_BYTES, True), (JOURNAL_INLINE_BYTES + 1, False)):
        payload = of_bytes(size)
        new = await minted(store)
        blobs = None if kept_in_row else store.blobs
        assert (await resolve(store.db(), ROOT, NOW, new.token, payload, blobs)).payload == payload.text
        [row] = await store.sql("SELECT payload IS NOT NULL AS inline FROM awakeables WHERE id = ?", new.awakeable.id)
        assert bool(row["inline"]) is kept_in_row
        assert (await show_one(store.db(), ROOT, NOW, new.awakeable.id, blobs)).awakeable.payload == payload.text


@pytest.mark.clause("kernel.limits")
async def test_the_largest_payload_is_taken_and_one_byte_more_is_not(store: Store) -> None:
    assert int(AWAKE_PAYLOAD_BYTES) == int(JOURNAL_VALUE_BYTES)
    new = await minted(store)
    raw = b'"' + b"x" * (AWAKE_PAYLOAD_BYTES - 2) + b'"'
    for content_type, body in (("application/json", raw + b" "), ("text/plain", raw)):
        with pytest.raises(PayloadTooLarge):
            read(content_type, body)
    largest = read("application/json", raw)
    await resolve(store.db(), ROOT, NOW, new.token, largest, store.blobs)
    loaded = (await show_one(store.db(), ROOT, NOW, new.awakeable.id, store.blobs)).awakeable.payload
    assert loaded == largest.text


@pytest.mark.clause("awake.journal")
async def test_the_journal_can_take_the_object_over_as_it_is(store: Store) -> None:
    """What the wait records is the text of this object, and its size is the object's."""
    for payload in (LARGE, OK, Payload.of({"q": "\"}'é"})):
        new = await minted(store)
        await resolve(store.db(), ROOT, NOW, new.token, payload, store.blobs)
        [row] = await store.sql(
            f"SELECT {OUTCOME_VALUE} AS value, {OUTCOME_BLOB} AS blob, {OUTCOME_SIZE} AS size"  # noqa: S608
            " FROM awakeables AS a WHERE a.id = ?",
            new.awakeable.id,
        )
        text = row["value"] if row["blob"] is None else (await store.blobs.get(row["blob"])).decode()
        assert text == canonical.dumps({"resolved": canonical.loads(payload.text.encode())})
        assert row["size"] == canonical.size(text)


@pytest.mark.clause("awake.idempotent")
async def test_the_same_large_payload_again_is_answered_alike_and_writes_nothing(store: Store) -> None:
    new = await minted(store)
    await resolve(store.db(), ROOT, NOW, new.token, LARGE, store.blobs)
    before = await dump(store)
    anyone = await a_credential(store, "anyone", "read")
    assert (await resolve(store.db(), anyone, later(TTL * 9000), new.token, LARGE, store.blobs)).payload == LARGE.text
    for other in (ANOTHER, OK):
        with pytest.raises(AwakeableAlreadyResolved):
            await resolve(store.db(), ROOT, NOW, new.token, other, store.blobs)
    after = await dump(store)
    assert {name: rows for name, rows in after.items() if name != "credentials"} == {
        name: rows for name, rows in before.items() if name != "credentials"
    }
    assert await objects(store) == [canonical.digest(LARGE.outcome)]


@pytest.mark.clause("awake.unknown", "awake.expired", "blobs.order")
async def test_no_object_is_written_for_a_token_that_resolves_nothing(store: Store) -> None:
    bound, late, rejected = await minted(store, subject="github"), await minted(store), await minted(store)
    await reject(store.db(), ROOT, NOW, rejected.token, Rejection(FailureTag.PERMANENT, "no"))
    for token, now, refusal in (
        ("awk_tok_unknown", NOW, AwakeableUnknown),
        (bound.token, NOW, AwakeableUnknown),
        (rejected.token, NOW, AwakeableRejected),
        (late.token, DEADLINE, AwakeableTimedOut),
    ):
        with pytest.raises(refusal):
            await resolve(store.db(), ROOT, now, token, LARGE, store.blobs)
    assert await store.sql(HELD) == []
    assert [digest async for digest in store.blobs.list()] == []
    [row] = await store.sql("SELECT state FROM awakeables WHERE id = ?", late.awakeable.id)
    assert row["state"] == "timed_out"


@pytest.mark.clause("awake.idempotent", "blobs.order")
@pytest.mark.parametrize("winner", [LARGE, OK])
async def test_who_loses_the_race_after_uploading_leaves_nothing(store: Store, winner: Payload) -> None:
    new = await minted(store)

    async def overtake() -> object:
        return await resolve(store.db(), ROOT, NOW, new.token, winner, store.blobs)

    async def nothing() -> None:
        pass

    # The first commit holds the upload, the second would resolve.
    db = Interrupted(store.db(), [nothing, overtake])
    with pytest.raises(AwakeableAlreadyResolved):
        await resolve(db, ROOT, NOW, new.token, ANOTHER, store.blobs)
    assert await objects(store) == ([canonical.digest(LARGE.outcome)] if winner is LARGE else [])
    assert (await show(store.db(), ROOT, NOW, new.token, store.blobs)).awakeable.payload == winner.text
    assert len(await store.sql(HELD)) == (1 if winner is LARGE else 0)


@pytest.mark.clause("awake.idempotent", "blobs.order")
async def test_equal_large_payloads_at_once_are_one_object_and_one_success(store: Store) -> None:
    new = await minted(store)
    results = await asyncio.gather(
        *[resolve(store.db(), ROOT, NOW, new.token, LARGE, store.blobs) for _ in range(3)], return_exceptions=True
    )
    assert [getattr(result, "payload", result) for result in results] == [LARGE.text] * 3
    assert await store.sql(HELD) == [
        {"sha256": canonical.digest(LARGE.outcome), "holder": new.awakeable.id, "uploading_until": None}
    ]
    assert await objects(store) == [canonical.digest(LARGE.outcome)]


@pytest.mark.clause("blobs.order")
async def test_a_resolution_that_fails_after_its_upload_leaves_the_awakeable_pending(store: Store) -> None:
    new = await minted(store)

    async def nothing() -> None:
        pass

    async def fail() -> None:
        raise StorageBindingUnavailable

    with pytest.raises(StorageBindingUnavailable):
        await resolve(Interrupted(store.db(), [nothing, fail]), ROOT, NOW, new.token, LARGE, store.blobs)
    assert (await show(store.db(), ROOT, NOW, new.token)).awakeable.state == "pending"
    assert await objects(store) == []
    assert (await resolve(store.db(), ROOT, NOW, new.token, LARGE, store.blobs)).payload == LARGE.text
    assert await objects(store) == [canonical.digest(LARGE.outcome)]


@pytest.mark.clause("blobs.inline-cutoff")
async def test_only_large_payloads_need_a_bucket(store: Store) -> None:
    new = await minted(store)
    with pytest.raises(StorageCapabilityMissing):
        await resolve(store.db(), ROOT, NOW, new.token, LARGE)
    assert await store.sql(HELD) == []
    assert (await resolve(store.db(), ROOT, NOW, new.token, OK)).value() == {"ok": True, "n": 1}


@pytest.mark.clause("blobs.verify")
async def test_a_payload_whose_bytes_are_gone_is_missing_to_who_sees_it_and_not_to_others(store: Store) -> None:
    new = await minted(store)
    await resolve(store.db(), ROOT, NOW, new.token, LARGE, store.blobs)
    await store.blobs.delete(canonical.digest(LARGE.outcome))
    with pytest.raises(BlobMissing):
        await show_one(store.db(), ROOT, NOW, new.awakeable.id, store.blobs)
    stranger = await a_credential(store, "stranger", "read")
    assert (await show(store.db(), stranger, NOW, new.token)).wire()["state"] == "resolved"
    # The digest still tells what was recorded.
    assert (await resolve(store.db(), ROOT, NOW, new.token, LARGE, store.blobs)).payload == LARGE.text


@pytest.mark.clause("awake.reconcile", "blobs.inline-cutoff")
async def test_a_large_payload_is_completed_from_the_journal(store: Store) -> None:
    await an_execution(store, "exe_1")
    new = await minted(store)
    identity = new.awakeable.id
    await resolve(store.db(), ROOT, NOW, new.token, LARGE, store.blobs)
    [row] = await store.sql("SELECT payload_blob, payload_size FROM awakeables")
    await an_entry(
        store, "exe_1", "approval", "wait", "done", ref=identity, blob=row["payload_blob"], size=row["payload_size"]
    )
    await store.sql(
        "UPDATE awakeables SET state = 'pending', payload_sha256 = NULL, payload_blob = NULL, payload_size = NULL,"
        " ended_at = NULL, ended_by = NULL, execution_id = 'exe_1'"
    )
    for payload in (ANOTHER, OK):
        with pytest.raises(AwakeableAlreadyResolved):
            await resolve(store.db(), ROOT, NOW, new.token, payload, store.blobs)
    assert (await resolve(store.db(), ROOT, NOW, new.token, LARGE, store.blobs)).payload == LARGE.text
    assert (await show_one(store.db(), ROOT, NOW, identity, store.blobs)).awakeable.payload == LARGE.text
    assert await objects(store) == [row["payload_blob"]]


@pytest.mark.clause("blobs.order")
async def test_awakeables_of_forgotten_executions_go_with_their_payloads(store: Store) -> None:
    several = [await minted(store) for _ in range(3)]
    for new, payload in zip(several, (LARGE, ANOTHER, LARGE), strict=True):
        await resolve(store.db(), ROOT, NOW, new.token, payload, store.blobs)
    owners = ("exe_1", "exe_1", "exe_2")
    for new, owner in zip(several, owners, strict=True):
        await store.sql("UPDATE awakeables SET execution_id = ? WHERE id = ?", owner, new.awakeable.id)
    tx = Transaction(later(1))
    executions.forget(tx, "SELECT :execution_id", execution_id="exe_1")
    await store.db().commit(tx)
    assert [row["id"] for row in await store.sql("SELECT id FROM awakeables")] == [several[2].awakeable.id]
    assert await objects(store) == [canonical.digest(LARGE.outcome)]
    with pytest.raises(AwakeableUnknown):
        await resolve(store.db(), ROOT, NOW, several[0].token, LARGE, store.blobs)


@pytest.mark.clause("runs.wake")
async def test_a_large_payload_wakes_its_execution_once(store: Store) -> None:
    await an_execution(store, "exe_1")
    new = await minted(store)
    await store.sql("UPDATE awakeables SET execution_id = 'exe_1'")
    db = Poked(store.db())
    for _ in range(2):
        await resolve(db, ROOT, NOW, new.token, LARGE, store.blobs)
    assert db.pokes == ["exe_1"]
    refused: MoorageError | None = None
    try:
        await resolve(db, ROOT, NOW, new.token, ANOTHER, store.blobs)
    except MoorageError as error:
        refused = error
    assert isinstance(refused, AwakeableAlreadyResolved)
    assert db.pokes == ["exe_1"]


# --- retention -------------------------------------------------------------------------------------------------------

KEPT = int(AWAKE_RETENTION_SECONDS) * 1000


def full(instant: int) -> Instant:
    """The full ten minutes at or after it."""
    return Instant((instant + 599_999) // 600_000 * 600_000)


@pytest.mark.clause("awake.unknown", "blobs.order")
async def test_what_no_run_minted_is_removed_with_its_payload_once_it_is_long_over(store: Store) -> None:
    works: list[DueWork] = [AwakeableDeadlines(), AwakeableRetention()]
    answered, passed, open_ = await minted(store), await minted(store), await minted(store, ttl_seconds=300 * 86_400)
    await resolve(store.db(), ROOT, NOW, answered.token, LARGE, store.blobs)
    await an_execution(store, "exe_1")
    of_a_run = await minted(store)
    await resolve(store.db(), ROOT, NOW, of_a_run.token, ANOTHER, store.blobs)
    await store.sql("UPDATE awakeables SET execution_id = 'exe_1' WHERE id = ?", of_a_run.awakeable.id)
    drained = await drain(store.db, DEADLINE, works)
    due = full(NOW + KEPT)
    assert (drained.fired, drained.next_due) == ({"awakeable_timed_out": 1}, due)
    assert (await drain(store.db, Instant(due - 1), works)).fired == {}
    assert (await show(store.db(), ROOT, Instant(due - 1), answered.token, store.blobs)).awakeable.state == "resolved"
    both = full(DEADLINE + KEPT)
    fired = (await drain(store.db, both, works)).fired
    assert fired == {"awakeable_retention": 2}
    assert (await story(store, answered.awakeable.id))[-1] == ("awakeable.removed", "moorage:clock")
    for gone in (answered, passed):
        with pytest.raises(AwakeableUnknown):
            await show(store.db(), ROOT, both, gone.token)
        with pytest.raises(AwakeableUnknown):
            await resolve(store.db(), ROOT, both, gone.token, OK)
    await drain(store.db, both, [BlobDeletions(store.blobs)])
    [kept] = await store.sql("SELECT id, payload_blob FROM awakeables WHERE state = 'resolved'")
    assert kept["id"] == of_a_run.awakeable.id
    assert [digest async for digest in store.blobs.list()] == [kept["payload_blob"]]
    assert (await show(store.db(), ROOT, both, open_.token)).awakeable.state == "pending"
    assert (await show(store.db(), ROOT, both, of_a_run.token, store.blobs)).awakeable.state == "resolved"
    assert (await drain(store.db, later(200 * 86_400_000), works)).fired == {}


@pytest.mark.clause("awake.unknown", "timers.alarm")
async def test_a_sweep_of_awakeables_is_bounded_and_goes_on_until_nothing_is_left(store: Store) -> None:
    await store.sql(
        "INSERT INTO awakeables (id, token_sha256, state, metadata, created_at, created_by, deadline, ended_at, ended_by) "
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < CAST(? AS INTEGER)) "
        "SELECT 'awk_' || i, 'sha_' || i, 'timed_out', '{}', CAST(? AS INTEGER), 'root', CAST(? AS INTEGER), "
        "CAST(? AS INTEGER) + i, 'moorage:clock' FROM n",
        SWEEP_AWAKEABLES + 7,
        NOW,
        NOW,
        NOW,
    )
    work = AwakeableRetention()
    due = full(NOW + SWEEP_AWAKEABLES + 7 + KEPT)
    db = store.db()
    assert await work.fire(db, due, "sweep") == SWEEP_AWAKEABLES
    assert db.cost.trips == 1
    left = await store.sql("SELECT id FROM awakeables ORDER BY ended_at")
    assert [row["id"] for row in left] == [f"awk_{SWEEP_AWAKEABLES + number}" for number in range(1, 8)]
    assert (await drain(store.db, due, [work])).fired == {work.name: 7}
    assert (await drain(store.db, due, [work])).next_due is None

"""Artifacts and references to objects on every adapter: who may delete, who may refer, and what a fault leaves."""

import hashlib
from collections.abc import Sequence

import pytest

from moorage.blobs import deletion, references
from moorage.blobs.due import AbandonedUploads, BlobDeletions, BlobSweep
from moorage.catalog.access import Caller, Grant
from moorage.catalog.kinds import Kinds
from moorage.history.query import entries
from moorage.idempotency.keys import Key, key_for
from moorage.kernel.errors import (
    ArtifactShredded,
    BlobBusy,
    StorageBindingUnavailable,
    Unauthenticated,
    UploadTimedOut,
)
from moorage.kernel.instants import Instant, after
from moorage.kernel.limits import ARTIFACT_UPLOAD_SECONDS
from moorage.records.artifacts import content, shred
from moorage.records.artifacts.model import Artifact, Upload
from moorage.records.artifacts.shred import ArtifactOrphans
from moorage.records.artifacts.upload import Uploading
from moorage.store.ports import Database, HeldBytes
from moorage.store.transaction import Transaction
from moorage.timers import clock
from moorage.timers.due import DueWork
from tests.contract.adapters import Store, dump
from tests.contract.faults import Fault, FaultyDatabase, Plan

# Past every object's age: the bucket has a clock of its own.
NOW = Instant(4_000_000_000_000)
HOUR = 3600
ROOT = Caller("root")
BYTES = b"the bytes of an artifact"
DIGEST = hashlib.sha256(BYTES).hexdigest()


class Room:
    """A store at an instant that only the test moves."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = NOW
        self.kinds = Kinds()

    def works(self) -> list[DueWork]:
        blobs = self.store.blobs
        return [ArtifactOrphans(), AbandonedUploads(), BlobDeletions(blobs), BlobSweep(blobs, batch=2)]

    async def advance(self, seconds: float) -> dict[str, int]:
        before, self.now = self.now, after(self.now, seconds)
        drained = await clock.advance(self.store.db, before, self.now, self.works())
        return drained.fired

    async def upload(
        self,
        db: Database | None = None,
        digest: str | None = DIGEST,
        bytes_: bytes = BYTES,
        caller: Caller = ROOT,
        key: Key | None = None,
    ) -> Artifact:
        uploading = Uploading(db or self.store.db(), self.store.blobs, self.kinds, caller, lambda: self.now)
        return await uploading.run(Upload(len(bytes_), digest=digest), HeldBytes(bytes_), lambda _: key)

    async def shred(self, record: str, db: Database | None = None) -> Artifact:
        return await shred.shred(
            db or self.store.db(), self.store.blobs, self.kinds, ROOT, self.now, record, "the test says so"
        )

    async def read(self, record: str) -> bytes:
        found = await content.show(self.store.db(), self.kinds, ROOT, self.now, record)
        return b"".join([piece async for piece in await content.read(self.store.db(), self.store.blobs, found)])

    async def hold(self, upload: str) -> None:
        tx = Transaction(self.now)
        references.hold(tx, DIGEST, upload)
        await self.store.db().commit(tx)

    async def confirm(self, upload: str, holder: str) -> None:
        tx = Transaction(self.now)
        references.confirm(tx, DIGEST, upload, holder)
        await self.store.db().commit(tx)

    async def release(self, holder: str) -> None:
        tx = Transaction(self.now)
        references.release(tx, DIGEST, holder)
        await self.store.db().commit(tx)

    async def objects(self) -> list[str]:
        return [one async for one in self.store.blobs.list()]

    async def deletions(self) -> int:
        return len(await self.store.sql("SELECT * FROM blob_deletions"))


@pytest.fixture
def room(store: Store) -> Room:
    return Room(store)


# --- references and deletion ---


@pytest.mark.clause("blobs.order")
async def test_an_upload_under_way_keeps_the_object(room: Room) -> None:
    await room.store.blobs.put(BYTES)
    await room.hold("upl_a")
    await room.confirm("upl_a", "rec_a")
    await room.hold("upl_b")
    await room.release("rec_a")
    assert await room.deletions() == 0
    await room.confirm("upl_b", "rec_b")
    await room.release("rec_b")
    assert await deletion.delete(room.store.db(), room.store.blobs, room.now, DIGEST)
    assert await room.objects() == []
    assert await room.deletions() == 0


@pytest.mark.clause("blobs.order")
async def test_nothing_refers_to_an_object_while_it_is_being_deleted(room: Room) -> None:
    await room.hold("upl_a")
    await room.confirm("upl_a", "rec_a")
    await room.release("rec_a")
    before = await dump(room.store)
    with pytest.raises(BlobBusy) as caught:
        await room.hold("upl_b")
    assert caught.value.retryable
    assert await dump(room.store) == before
    await deletion.delete(room.store.db(), room.store.blobs, room.now, DIGEST)
    await room.hold("upl_b")


@pytest.mark.clause("blobs.order")
async def test_one_deleter_at_a_time(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    await room.hold("upl_a")
    await room.confirm("upl_a", "rec_a")
    await room.release("rec_a")
    blobs = room.store.blobs

    async def dies(sha256: str) -> None:
        assert not await deletion.delete(room.store.db(), blobs, room.now, sha256)
        raise StorageBindingUnavailable()

    with monkeypatch.context() as patched:
        patched.setattr(blobs, "delete", dies)
        with pytest.raises(StorageBindingUnavailable):
            await deletion.delete(room.store.db(), blobs, room.now, DIGEST)
    assert not await deletion.delete(room.store.db(), blobs, room.now, DIGEST)
    with pytest.raises(BlobBusy):
        await room.upload()
    fired = await room.advance(deletion.TAKEN_MS / 1000)
    assert fired["blob_deleted"] == 1
    await room.upload()


@pytest.mark.clause("blobs.order", "artifacts.publish")
async def test_an_upload_counts_as_long_as_an_upload_may_take(room: Room) -> None:
    await room.store.blobs.put(BYTES)
    await room.hold("upl_a")
    await room.advance(int(ARTIFACT_UPLOAD_SECONDS) - 1)
    assert await room.objects() == [DIGEST]
    fired = await room.advance(1)
    assert (fired["upload_abandoned"], fired["blob_deleted"]) == (1, 1)
    assert await room.objects() == []
    with pytest.raises(UploadTimedOut):
        await room.confirm("upl_a", "rec_a")


async def test_what_was_confirmed_is_nobodys_to_abandon(room: Room) -> None:
    await room.hold("upl_a")
    await room.confirm("upl_a", "rec_a")
    tx = Transaction(room.now)
    references.abandon(tx, DIGEST, "upl_a")
    await room.store.db().commit(tx)
    assert await room.deletions() == 0
    assert len(await room.store.sql("SELECT * FROM blob_references")) == 1


# --- the sweep ---


@pytest.mark.clause("blobs.sweep")
async def test_the_sweep_goes_in_batches_and_remembers_how_far_it_came(room: Room) -> None:
    kept = await room.upload()
    for number in range(5):
        await room.store.blobs.put(f"stray {number}".encode())
    assert len(await room.objects()) == 6
    fired = await room.advance(24 * HOUR)
    assert fired == {"blob_sweep": 4, "blob_deleted": 5}
    assert await room.objects() == [DIGEST]
    assert await room.read(kept.record.id) == BYTES
    [row] = await room.store.sql("SELECT * FROM blob_sweep")
    assert (row["after"], row["due_at"]) == ("", room.now + 24 * HOUR * 1000)


@pytest.mark.clause("blobs.sweep")
async def test_a_sweep_that_was_interrupted_goes_on_where_it_was(room: Room) -> None:
    await room.upload()
    for number in range(5):
        await room.store.blobs.put(f"stray {number}".encode())
    room.now = after(room.now, 24 * HOUR)
    assert await BlobSweep(room.store.blobs, batch=2).fire(room.store.db(), room.now, "after:") == 1
    [row] = await room.store.sql("SELECT * FROM blob_sweep")
    assert row["after"] == (await room.objects())[1]
    assert await BlobSweep(room.store.blobs, batch=2).fire(room.store.db(), room.now, "after:") == 0
    fired = await room.advance(HOUR)
    assert fired["blob_sweep"] == 3
    assert await room.objects() == [DIGEST]
    [row] = await room.store.sql("SELECT * FROM blob_sweep")
    assert row["due_at"] == NOW + 48 * HOUR * 1000


@pytest.mark.clause("blobs.sweep", "blobs.order")
async def test_the_sweep_leaves_young_objects_and_those_of_uploads_alone(room: Room) -> None:
    await room.store.blobs.put(BYTES)
    await room.hold("upl_a")
    [stored] = await room.store.blobs.page("", 1)
    young = [await room.store.blobs.put(b"young")]
    for instant, left in (
        (after(stored.uploaded, HOUR - 60), [DIGEST, *young]),
        (after(stored.uploaded, HOUR + 60), [DIGEST]),
    ):
        await room.store.sql("UPDATE blob_references SET uploading_until = ?", str(after(instant, 1)))
        await room.store.sql("UPDATE blob_sweep SET due_at = ?, after = ''", str(instant))
        await BlobSweep(room.store.blobs).fire(room.store.db(), instant, "after:")
        await clock.drain(room.store.db, instant, [BlobDeletions(room.store.blobs)])
        assert await room.objects() == sorted(left)


# --- faults ---


def plans() -> Sequence[tuple[int, Fault]]:
    return [(place, fault) for place in range(4) for fault in (Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.DUPLICATE)]


@pytest.mark.clause("artifacts.publish", "blobs.order")
@pytest.mark.parametrize("digest", [DIGEST, None], ids=["declared", "unknown"])
@pytest.mark.parametrize(("place", "fault"), plans())
async def test_an_upload_that_a_fault_meets_is_whole_or_nothing(
    room: Room, digest: str | None, place: int, fault: Fault
) -> None:
    await room.upload(bytes_=b"first", digest=None)
    await room.shred((await room.store.sql("SELECT id FROM records"))[0]["id"])
    key = key_for("root", "k", "POST /artifacts", DIGEST)
    faulty = FaultyDatabase(room.store.db(), Plan(commits=[Fault.NONE] * place + [fault]))
    try:
        made: Artifact | None = await room.upload(faulty, digest, key=key)
    except StorageBindingUnavailable:
        made = None
    await room.advance(2 * HOUR)
    found = await room.store.sql("SELECT id FROM records WHERE body LIKE ?", f"%{DIGEST[:16]}%")
    assert len(found) <= 1
    assert await room.objects() == ([DIGEST] if found else [])
    assert made is None or [made.record.id] == [row["id"] for row in found]
    again = await room.upload(digest=digest, key=key)
    assert [again.record.id] == ([row["id"] for row in found] or [again.record.id])
    await room.advance(48 * HOUR)
    assert await room.read(again.record.id) == BYTES


@pytest.mark.clause("artifacts.shred", "blobs.order")
@pytest.mark.parametrize(("place", "fault"), plans()[:9])
async def test_a_shred_that_a_fault_meets_is_done_once_it_was_told(room: Room, place: int, fault: Fault) -> None:
    made = await room.upload()
    faulty = FaultyDatabase(room.store.db(), Plan(commits=[Fault.NONE] * place + [fault]))
    try:
        await room.shred(made.record.id, faulty)
    except StorageBindingUnavailable:
        await room.shred(made.record.id)
    with pytest.raises(ArtifactShredded):
        await room.read(made.record.id)
    await room.advance(deletion.TAKEN_MS / 1000)
    assert await room.objects() == []
    told = await entries(room.store.db(), 0, 10, made.record.id)
    assert [entry.type for entry in told] == ["record.published", "artifact.shredded"]


@pytest.mark.clause("artifacts.publish", "catalog.grants")
async def test_a_credential_that_is_not_alive_uploads_nothing(room: Room) -> None:
    await room.upload(bytes_=b"first", digest=None)
    gone = Caller("gone", (Grant(frozenset({"publish"}), ("artifact",)),), "crd_gone")
    for digest in (DIGEST, None):
        before = await dump(room.store)
        with pytest.raises(Unauthenticated):
            await room.upload(caller=gone, digest=digest)
        assert await dump(room.store) == before
        assert DIGEST not in await room.objects()
